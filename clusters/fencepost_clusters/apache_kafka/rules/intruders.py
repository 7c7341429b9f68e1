"""KR-01 by what a second process with an id tells: whether it runs, and how it was refused.

The other rule of this clause judges records alone. A process that runs with an id that no record
gave to it passes there, since nothing was handed over. So does one that is refused for another
reason than that the id is taken: for that one, the controller had not looked at the holder.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    READ_WITHIN_NS,
    Event,
    Evidence,
    Finding,
    Findings,
    NodeStarted,
    Reason,
    Rule,
    RunEnd,
    Undecided,
    Violated,
    on,
    process_scope,
    violated,
)
from fencepost_clusters.apache_kafka.rules.holders import KINDS, IdHolders
from fencepost_kafka import (
    BrokerCommitted,
    BrokerStateChanged,
    HeartbeatRefused,
    MetadataCommitted,
    broker_of,
)

_ANSWERS = frozenset({"DUPLICATE_BROKER_REGISTRATION", "INCONSISTENT_CLUSTER_ID"})
"""How a controller refuses an id that is taken. It compares the cluster's id before that."""
_ELSEWHERE = frozenset({"NOT_CONTROLLER", "REQUEST_TIMED_OUT", "NETWORK_EXCEPTION"})
"""Answers of a controller that did not look: it is not active, or it gave up."""


@dataclass(frozen=True, slots=True)
class _Suspect:
    violated: Violated
    broker: int
    at_ns: int
    incarnation: str = ""
    """That of a process that runs: a record of it explains that. Empty: any record of the broker
    does, since the holder's session may have ended."""
    epoch: int = -1
    """The broker epoch that it named as it ran. A record that gave it this one was there before, at
    whatever time it is read: else the process could not know it."""


@dataclass(slots=True)
class _Intruders:
    holders: IdHolders = field(default_factory=IdHolders)
    own: dict[str, str] = field(default_factory=dict)
    """process -> its incarnation."""
    registered: set[str] = field(default_factory=set)
    """The incarnations that any record has given an id to."""
    suspects: list[_Suspect] = field(default_factory=list)
    read_ns: int = -1
    """When an observer read a record last."""

    def explain(self, event: Event, body: BrokerCommitted) -> None:
        """A record was read, maybe a while after it was committed."""
        self.registered.add(body.incarnation)
        self.suspects = [
            one
            for one in self.suspects
            if one.broker != body.broker_id
            or (event.at_ns > one.at_ns + READ_WITHIN_NS and one.epoch != body.broker_epoch)
            or (one.incarnation and one.incarnation != body.incarnation)
        ]


@final
class RefusedDoesNotRun(Rule[_Intruders]):
    """KR-01. A process with an id runs only once a record gave it the id, and one that asks for the
    id of a live, unfenced and unaffected process is refused since the id is taken. Never exercised:
    what it finds is no part of a run in which the promise is kept."""

    clause = "KR-01"
    state = _Intruders

    @on(*KINDS, BrokerStateChanged, HeartbeatRefused, MetadataCommitted)
    def step(self, state: _Intruders, event: Event, body: Struct) -> Findings:
        state.holders.learn(event)
        match body:
            case NodeStarted(role="broker", incarnation=incarnation):
                state.own[event.process] = incarnation
            case MetadataCommitted():
                state.read_ns = event.at_ns
            case BrokerCommitted():
                state.read_ns = event.at_ns
                news, _ = state.holders.commit(body)
                if news:
                    state.explain(event, body)
            case BrokerStateChanged(new="ACTIVE", old=old) if old != "ACTIVE":
                self._runs(state, event, body)
            case HeartbeatRefused(broker_epoch=-1, error=error):
                if error not in _ANSWERS | _ELSEWHERE:
                    self._refused(state, event, body)
        return NOTHING

    @staticmethod
    def _runs(state: _Intruders, event: Event, body: BrokerStateChanged) -> None:
        incarnation = state.own.get(event.process, "")
        # Histories without incarnations, or without records of brokers, prove nothing.
        if not incarnation or incarnation in state.registered or not state.registered:
            return
        runs = violated(
            event.ref,
            Evidence.PEER,
            "{process} ran as broker {broker}, and no record had given it that id",
            process=process_scope(event.process),
            broker=broker_of(body.broker_id),
        )
        epoch = body.broker_epoch
        state.suspects.append(_Suspect(runs, body.broker_id, event.at_ns, incarnation, epoch))

    @staticmethod
    def _refused(state: _Intruders, event: Event, body: HeartbeatRefused) -> None:
        record = state.holders.records.get(body.broker_id)
        holder = state.holders.process(record)
        if record is None or record.fenced or holder in ("", event.process):
            return
        if not state.holders.alive(holder, event.at_ns):
            return
        if state.holders.excuse(holder, event.at_ns) is not None:
            return
        refused = violated(
            event.ref,
            Evidence.PEER,
            "{process} was refused with {error} as broker {broker}, while {holder} held that id, "
            "unfenced and unaffected by faults",
            process=process_scope(event.process),
            error=body.error,
            broker=broker_of(body.broker_id),
            holder=process_scope(holder),
        )
        state.suspects.append(_Suspect(refused, body.broker_id, event.at_ns))

    def end(self, state: _Intruders, end: RunEnd) -> Findings:
        found: list[Finding] = []
        for one in state.suspects:
            read = end.complete and state.read_ns > one.at_ns + READ_WITHIN_NS
            why = Reason("the observers may not have read its record")
            found.append(one.violated if read else Undecided.of(one.violated, why))
        return found
