"""The metadata that the controller over ZooKeeper sends, and the leaders that it elects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    MS,
    NOTHING,
    Cause,
    Deadline,
    Event,
    Evidence,
    Exercised,
    Findings,
    Rule,
    RunEnd,
    judged,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    BrokerDeclared,
    ControllerBegan,
    ControlRequestAnswered,
    ControlRequestSent,
    PartitionCommitted,
    broker_of,
    partition_of,
)
from fencepost_kafka.committed import Partitions
from fencepost_suites.heartbeats.terms import LIVE, TERM_KINDS, Terms

UPDATE_METADATA = "UpdateMetadata"
OUT = ("Inactive", "Absent")
"""The states of a broker that is left out: an inactive one is treated as absent."""
IDLE_NS = 100 * MS
"""A request that is sent this long after its queue was empty was made just before."""
AGAIN_WITHIN_NS = 6_000 * MS
"""How long a controller may wait before it repeats a request that is not answered."""
Place = tuple[str, int, int]
"""A queue: the controller's process, the broker, and the broker epoch."""


@dataclass(slots=True)
class _Out:
    """The brokers that the newest controller has declared inactive or absent."""

    epoch: int = -1
    controller: str = ""
    refs: dict[int, Cause] = field(default_factory=dict)
    """broker -> the declaration that it is inactive or absent."""
    since_ns: dict[int, int] = field(default_factory=dict)
    """broker -> from when on no new metadata may name it."""
    partitions: Partitions = field(default_factory=Partitions)
    sent: dict[tuple[str, int], frozenset[int]] = field(default_factory=dict)
    """(controller, request) -> the brokers that were out when that UpdateMetadata was made."""
    idle_ns: dict[Place, int | None] = field(default_factory=dict)
    """Queue -> since when it is empty; None: a request waits in it."""
    places: dict[tuple[str, int], tuple[Place, int]] = field(default_factory=dict)
    """(controller, request) -> its queue, and when it was sent."""


@final
class InactiveIsLeftOut(Rule[_Out]):
    """HB-03. After a broker was declared inactive or absent, and until it is declared live, no new
    UpdateMetadata may name it (an absent one: six seconds later), and it may not be elected leader.
    The receiving broker is the evidence of what an UpdateMetadata names. A request that may have
    waited in its queue is not judged. Exercised if a broker carries out an UpdateMetadata while
    another broker is out."""

    clause = "HB-03"
    state = _Out

    @on(
        BrokerDeclared,
        ControllerBegan,
        PartitionCommitted,
        ControlRequestSent,
        ControlRequestAnswered,
    )
    def step(self, state: _Out, event: Event, body: Struct) -> Findings:
        match body:
            case ControllerBegan() if body.epoch > state.epoch:
                state.epoch, state.controller = body.epoch, event.process
                state.refs.clear()
                state.since_ns.clear()
            # By the process, and not by the epoch that it names.
            case BrokerDeclared() if event.process == state.controller:
                if body.new in LIVE:
                    state.refs.pop(body.broker_id, None)
                    state.since_ns.pop(body.broker_id, None)
                # What it finds absent when it begins may lead by a state that its predecessor has
                # stored, and that it reads only now.
                elif body.new in OUT and body.reason != "controller_elected":
                    state.refs[body.broker_id] = event.ref
                    # When two brokers go at once, what is made for the first one still names the
                    # second, and is sent once both are declared absent.
                    wait_ns = AGAIN_WITHIN_NS if body.new == "Absent" else 0
                    # One that was inactive before is left out already.
                    state.since_ns.setdefault(body.broker_id, event.at_ns + wait_ns)
            case ControlRequestSent():
                self._sent(state, event, body)
            case ControlRequestAnswered():
                return self._read(state, event, body)
            case PartitionCommitted():
                return self._led(state, event, body)
        return NOTHING

    @staticmethod
    def _sent(state: _Out, event: Event, body: ControlRequestSent) -> None:
        place = (event.process, body.broker_id, body.broker_epoch)
        idle_ns = state.idle_ns.get(place, -IDLE_NS)
        # A request that waited in its queue may have been made before the declaration. Of one that
        # left an empty queue it is known that it was made just now.
        fresh = idle_ns is not None and event.at_ns >= idle_ns + IDLE_NS
        if fresh and body.api == UPDATE_METADATA and event.process == state.controller:
            state.sent[event.process, body.correlation] = frozenset(
                broker for broker, since_ns in state.since_ns.items() if event.at_ns >= since_ns
            )
        state.idle_ns[place] = None
        state.places[event.process, body.correlation] = place, event.at_ns

    @staticmethod
    def _read(state: _Out, event: Event, body: ControlRequestAnswered) -> Findings:
        """Judges the live brokers that a broker has read in a request."""
        if event.cause is None:
            return NOTHING
        request = (event.cause.process, event.cause.seq)
        if request in state.places:
            # The answer takes about as long as the request took: a slow link is slow both ways. The
            # controller sends what waits only then, and may have made it before the declaration.
            place, sent_ns = state.places[request]
            state.idle_ns[place] = event.at_ns + (event.at_ns - sent_ns)
        out = state.sent.pop(request, frozenset())
        if body.error != "NONE":
            return NOTHING
        named = sorted(out & set(body.brokers))
        if named:
            broken = violated(
                event.ref,
                Evidence.PEER,
                "{process} was sent metadata that name broker {broker}, which had been declared "
                "inactive or absent",
                (state.refs[named[0]],) if named[0] in state.refs else (),
                process=process_scope(event.process),
                broker=broker_of(named[0]),
                other=process_scope(event.cause.process),
                inactive=tuple(map(broker_of, named)),
            )
            return (broken,)
        return (Exercised(event.ref, Evidence.PEER),) if out else NOTHING

    @staticmethod
    def _led(state: _Out, event: Event, body: PartitionCommitted) -> Findings:
        """Judges which broker was elected leader."""
        news, before = state.partitions.take(body)
        known = state.refs.get(body.leader)
        # A record that changes the ISR only repeats the leader.
        elected = before is None or (before.leader, before.leader_epoch) != (
            body.leader,
            body.leader_epoch,
        )
        if not news or known is None or not elected:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.PEER,
            "broker {leader} was made leader of {partition} while it was inactive or absent",
            (known,),
            leader=broker_of(body.leader),
            partition=partition_of(body),
            epoch=body.leader_epoch,
            other=process_scope(known.process),
        )
        return (broken,)


Content = tuple[str, tuple[str, ...], tuple[int, ...], bool]


def _content(body: ControlRequestSent) -> Content:
    """What a repeated request must have in common with the first."""
    return body.api, body.partitions, body.brokers, body.deletes


@dataclass(slots=True)
class _Queue:
    """The newest request in the queue for a broker's process. `sent_ns` is its newest attempt."""

    first: Cause
    content: Content
    correlations: set[int]
    attempts: int
    sent_ns: int
    answered: bool = False

    @property
    def awaits_answer(self) -> bool:
        """Whether it is an UpdateMetadata that the broker has not answered."""
        return self.content[0] == UPDATE_METADATA and not self.answered


@dataclass(slots=True)
class _Queues:
    terms: Terms = field(default_factory=Terms)
    by_process: dict[Place, _Queue] = field(default_factory=dict)
    places: dict[tuple[str, int], Place] = field(default_factory=dict)
    """(controller process, request) -> its queue."""
    suspects: list[Deadline] = field(default_factory=list)


@final
class UpdateIsRetried(Rule[_Queues]):
    """HB-25. A controller repeats an UpdateMetadata, with the same content, until the broker
    answers it, or until that controller declares the broker inactive or its term ends. The next
    attempt must come within six seconds: the documents name no time, and our request timeout is two
    seconds. No other request may go to the same process before. The evidence is the broker's own
    answer. Exercised by an UpdateMetadata that is answered at a later attempt than the first.

    Clause HB-06 limits the age of the metadata that a cut-off broker serves: it fences itself.
    """

    clause = "HB-25"
    state = _Queues

    @on(*TERM_KINDS, ControlRequestSent, ControlRequestAnswered)
    def step(self, state: _Queues, event: Event, body: Struct) -> Findings:
        ending = state.terms.ending(event)
        if ending is not None:
            self._close(state, [p for p in state.by_process if p[0] == ending.process], event.at_ns)
        state.terms.take(event)
        match body:
            case ControlRequestSent() if event.process in state.terms.now:
                return self._sent(state, event, body)
            case BrokerDeclared() if body.new not in LIVE:
                # Its queue ends. The broker gets all metadata when it is active again.
                of = (event.process, body.broker_id)
                self._close(state, [p for p in state.by_process if p[:2] == of], event.at_ns)
            case ControlRequestAnswered() if event.cause is not None:
                return self._answered(state, event, event.cause)
        return NOTHING

    def _answered(self, state: _Queues, event: Event, cause: Cause) -> Findings:
        place = state.places.get((cause.process, cause.seq))
        queue = state.by_process.get(place) if place is not None else None
        if place is None or queue is None or cause.seq not in queue.correlations:
            return NOTHING
        self._overdue(state, place, event.at_ns)
        first_time = queue.awaits_answer
        queue.answered = True
        return (Exercised(event.ref, Evidence.PEER),) if first_time and queue.attempts > 1 else ()

    def _sent(self, state: _Queues, event: Event, body: ControlRequestSent) -> Findings:
        place = (event.process, body.broker_id, body.broker_epoch)
        state.places[event.process, body.correlation] = place
        self._overdue(state, place, event.at_ns)
        before = state.by_process.get(place)
        # The same request again: all of its attempts count as one.
        if body.attempt > 1 and before is not None and before.content == _content(body):
            before.correlations.add(body.correlation)
            before.attempts, before.sent_ns = body.attempt, event.at_ns
            return NOTHING
        state.by_process[place] = _Queue(
            first=event.ref,
            content=_content(body),
            correlations={body.correlation},
            attempts=body.attempt,
            sent_ns=event.at_ns,
        )
        if before is None or not before.awaits_answer:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} sent broker {broker} another request, though its process with broker epoch "
            "{epoch} has not answered the UpdateMetadata before",
            (before.first,),
            process=process_scope(event.process),
            broker=broker_of(body.broker_id),
            epoch=body.broker_epoch,
            operation=body.api,
        )
        return (broken,)

    def _close(self, state: _Queues, places: Sequence[Place], at_ns: int) -> None:
        """Ends queues, and judges what was due in them."""
        for place in places:
            self._overdue(state, place, at_ns)
            del state.by_process[place]

    @staticmethod
    def _overdue(state: _Queues, place: Place, at_ns: int) -> None:
        """Adds a suspect if the next attempt of a queue's request is late."""
        queue = state.by_process.get(place)
        if queue is None or not queue.awaits_answer or at_ns <= queue.sent_ns + AGAIN_WITHIN_NS:
            return
        state.suspects.append(
            Deadline(
                violated=violated(
                    queue.first,
                    Evidence.PEER,
                    "{process} did not repeat an UpdateMetadata to broker {broker}, which had not "
                    "answered it, for {since_ns}",
                    process=process_scope(place[0]),
                    broker=broker_of(place[1]),
                    since_ns=at_ns - queue.sent_ns,
                    epoch=place[2],
                ),
                actors=(place[0],),
                from_ns=queue.sent_ns,
                to_ns=at_ns,
                bound_ns=AGAIN_WITHIN_NS,
                due_ns=queue.sent_ns + AGAIN_WITHIN_NS,
            )
        )

    def end(self, state: _Queues, end: RunEnd) -> Findings:
        self._close(state, list(state.by_process), end.ended_at_ns)
        return judged(state.suspects, end)
