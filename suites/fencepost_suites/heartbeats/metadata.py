"""The metadata that the controller over ZooKeeper sends, and the leaders that it elects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import Cause, Event, Evidence, Exercised, Finding, Key, RunEnd, Violated
from fencepost_kafka import (
    BrokerDeclared,
    ControllerBegan,
    ControlRequestAnswered,
    ControlRequestSent,
    PartitionCommitted,
)
from fencepost_suites.brokers.leases import MS
from fencepost_suites.common.committed import Partitions
from fencepost_suites.common.keys import NOTHING, whole_run
from fencepost_suites.heartbeats.terms import LIVE

UPDATE_METADATA = "UpdateMetadata"
IDLE_NS = 100 * MS
"""A request that is sent this long after its queue was empty was made just before."""
Place = tuple[str, int, int]
"""A queue: the controller's process, the broker, and the broker epoch."""


@dataclass(slots=True)
class _Out:
    """The brokers that the newest controller has declared inactive."""

    epoch: int = -1
    controller: str = ""
    refs: dict[int, Cause] = field(default_factory=dict)
    """broker -> the declaration that it is inactive."""
    partitions: Partitions = field(default_factory=Partitions)
    sent: dict[tuple[str, int], frozenset[int]] = field(default_factory=dict)
    """(controller, request) -> the inactive brokers when that UpdateMetadata was made."""
    idle_ns: dict[Place, int | None] = field(default_factory=dict)
    """Queue -> since when it is empty; None: a request waits in it."""
    places: dict[tuple[str, int], Place] = field(default_factory=dict)
    """(controller, request) -> its queue."""


@final
@dataclass(frozen=True, slots=True)
class InactiveIsLeftOut:
    """HB-03. After a broker was declared inactive, no new UpdateMetadata may name it, and it may
    not be elected leader. The receiving broker is the evidence of what an UpdateMetadata names. A
    request that may have waited in its queue is not judged. Exercised if a broker carries out an
    UpdateMetadata while another broker is inactive."""

    clause: str = "HB-03"
    kinds: frozenset[type[Struct]] = frozenset(
        {
            *(BrokerDeclared, ControllerBegan, PartitionCommitted),
            *(ControlRequestSent, ControlRequestAnswered),
        }
    )
    keys = staticmethod(whole_run)

    def start(self, key: Key) -> _Out:
        return _Out()

    def step(self, state: _Out, event: Event) -> tuple[_Out, Sequence[Finding]]:
        body = event.body
        match body:
            case ControllerBegan() if body.epoch > state.epoch:
                state.epoch, state.controller = body.epoch, event.process
                state.refs.clear()
            case BrokerDeclared() if body.controller_epoch == state.epoch:
                if body.new in LIVE:
                    state.refs.pop(body.broker_id, None)
                elif body.new == "Inactive":
                    state.refs[body.broker_id] = event.ref
            case ControlRequestSent():
                self._sent(state, event, body)
            case ControlRequestAnswered():
                return state, self._read(state, event, body)
            case PartitionCommitted():
                return state, self._led(state, event, body)
        return state, NOTHING

    @staticmethod
    def _sent(state: _Out, event: Event, body: ControlRequestSent) -> None:
        place = (event.process, body.broker_id, body.broker_epoch)
        idle_ns = state.idle_ns.get(place, -IDLE_NS)
        fresh = idle_ns is not None and event.at_ns >= idle_ns + IDLE_NS
        if fresh and body.api == UPDATE_METADATA and event.process == state.controller:
            state.sent[event.process, body.correlation] = frozenset(state.refs)
        state.idle_ns[place] = None
        state.places[event.process, body.correlation] = place

    @staticmethod
    def _read(state: _Out, event: Event, body: ControlRequestAnswered) -> Sequence[Finding]:
        """Judges the live brokers that a broker has read in a request."""
        if event.cause is None:
            return NOTHING
        request = (event.cause.process, event.cause.seq)
        if request in state.places:
            state.idle_ns[state.places[request]] = event.at_ns
        out = state.sent.pop(request, frozenset())
        if body.error != "NONE":
            return NOTHING
        named = sorted(out & set(body.brokers))
        if named:
            message = (
                f"{event.process} was sent metadata that name broker {named[0]}, which had been "
                "declared inactive"
            )
            because = (state.refs[named[0]],) if named[0] in state.refs else ()
            return (Violated(event.ref, Evidence.PEER, message, because),)
        return (Exercised(event.ref, Evidence.PEER),) if out else NOTHING

    @staticmethod
    def _led(state: _Out, event: Event, body: PartitionCommitted) -> Sequence[Finding]:
        """Judges which broker was elected leader."""
        news, before = state.partitions.take(body)
        known = state.refs.get(body.leader)
        elected = before is None or (before.leader, before.leader_epoch) != (
            body.leader,
            body.leader_epoch,
        )
        if not news or known is None or not elected:
            return NOTHING
        message = (
            f"broker {body.leader} was made leader of {body.topic}-{body.partition} while it was "
            "inactive"
        )
        return (Violated(event.ref, Evidence.PEER, message, (known,)),)

    def end(self, state: _Out, end: RunEnd) -> Sequence[Finding]:
        return NOTHING


@dataclass(slots=True)
class _Queue:
    """The newest request in the queue for a broker's process."""

    first: Cause
    correlations: set[int]
    attempts: int
    api: str
    answered: bool = False


@dataclass(slots=True)
class _Queues:
    by_process: dict[tuple[str, int, int], _Queue] = field(default_factory=dict)
    """(controller process, broker, broker epoch) -> its queue."""
    places: dict[tuple[str, int], tuple[str, int, int]] = field(default_factory=dict)
    """(controller process, request) -> its queue."""


@final
@dataclass(frozen=True, slots=True)
class UpdateIsRetried:
    """HB-25. An UpdateMetadata is repeated until the broker answers it, or is declared inactive. No
    other request may go to the same process before. The evidence is the broker's own answer.
    Exercised by an UpdateMetadata that is answered at a later attempt than the first. A controller
    that is elected again sends all metadata in new requests.

    Clause HB-06 limits the age of the metadata that a cut-off broker serves: it fences itself.
    """

    clause: str = "HB-25"
    kinds: frozenset[type[Struct]] = frozenset(
        {ControlRequestSent, ControlRequestAnswered, BrokerDeclared, ControllerBegan}
    )
    keys = staticmethod(whole_run)

    def start(self, key: Key) -> _Queues:
        return _Queues()

    def step(self, state: _Queues, event: Event) -> tuple[_Queues, Sequence[Finding]]:
        body = event.body
        if isinstance(body, ControlRequestSent):
            return state, self._sent(state, event, body)
        if isinstance(body, ControllerBegan):
            for gone in [p for p in state.by_process if p[0] == event.process]:
                del state.by_process[gone]
        if isinstance(body, BrokerDeclared) and body.new not in LIVE:
            # Its queue ends. The broker gets all metadata when it is active again.
            for gone in [p for p in state.by_process if p[1] == body.broker_id]:
                del state.by_process[gone]
        if isinstance(body, ControlRequestAnswered) and event.cause is not None:
            place = state.places.get((event.cause.process, event.cause.seq))
            queue = state.by_process.get(place) if place is not None else None
            if queue is not None and event.cause.seq in queue.correlations:
                first_time, queue.answered = not queue.answered, True
                if first_time and queue.api == UPDATE_METADATA and queue.attempts > 1:
                    return state, (Exercised(event.ref, Evidence.PEER),)
        return state, NOTHING

    @staticmethod
    def _sent(state: _Queues, event: Event, body: ControlRequestSent) -> Sequence[Finding]:
        place = (event.process, body.broker_id, body.broker_epoch)
        state.places[event.process, body.correlation] = place
        before = state.by_process.get(place)
        if body.attempt > 1 and before is not None:
            before.correlations.add(body.correlation)
            before.attempts = body.attempt
            return NOTHING
        state.by_process[place] = _Queue(event.ref, {body.correlation}, body.attempt, body.api)
        if before is None or before.answered or before.api != UPDATE_METADATA:
            return NOTHING
        message = (
            f"{event.process} sent broker {body.broker_id} another request, though its process "
            f"with broker epoch {body.broker_epoch} has not answered the UpdateMetadata before"
        )
        return (Violated(event.ref, Evidence.PEER, message, (before.first,)),)

    def end(self, state: _Queues, end: RunEnd) -> Sequence[Finding]:
        return NOTHING
