"""Rules about brokers' answers, writes and leaderships until their end (REG-07, KR-04, KR-05)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    SECOND,
    Cause,
    Event,
    Evidence,
    Exercised,
    Finding,
    Findings,
    NodeStarted,
    Rule,
    RunEnd,
    Violated,
    on,
    process_scope,
    slot_of,
    slot_scope,
    violated,
)
from fencepost_clusters.apache_kafka.rules.keys import KRAFT, by_partition
from fencepost_clusters.apache_kafka.rules.news import Newest
from fencepost_kafka import (
    BrokerCommitted,
    BrokerStateChanged,
    BrokerStopping,
    FollowingStarted,
    LeadershipStarted,
    MetadataApplied,
    PartitionCommitted,
    ProbeCompleted,
    TopicCommitted,
    broker_of,
    partition_at,
    partition_of,
)
from fencepost_kafka.committed import Partitions

APPLIED_WITHIN_NS = SECOND // 2
"""A broker logs that it applies metadata just before it does."""


@dataclass(slots=True)
class _Applied:
    """The metadata offset that each slot's broker has applied, and the offset since which each
    broker is fenced."""

    applied: dict[str, tuple[int, int]] = field(default_factory=dict)
    """slot -> offset, and since when."""
    reached: dict[str, dict[int, int]] = field(default_factory=dict)
    """slot -> fenced broker -> when the slot's broker had applied the fencing."""
    fenced: dict[int, tuple[int, Cause]] = field(default_factory=dict)
    about: Newest = field(default_factory=Newest)
    """The newest record about each broker."""
    suspects: list[tuple[int, int, Violated]] = field(default_factory=list)
    """Answers that named a fenced broker, by the records so far, with the offset that the answering
    broker had applied: the record of an earlier unfencing may still arrive."""


@final
class FencedIsLeftOut(Rule[_Applied]):
    """REG-07. A client's evidence: a Metadata request was sent half a second after the answering
    broker began to apply the fencing, and answered before it applied an unfencing."""

    clause = "REG-07"
    planes = KRAFT
    state = _Applied

    @on(NodeStarted, BrokerCommitted, MetadataApplied, ProbeCompleted)
    def step(self, state: _Applied, event: Event, body: Struct) -> Findings:
        match body:
            case NodeStarted():
                # A process that starts has applied nothing so far.
                state.applied.pop(slot_of(event.process), None)
                state.reached.pop(slot_of(event.process), None)
            case BrokerCommitted() if not state.about.take(body.broker_id, body.offset):
                pass  # the other observer has read it, or a newer one
            case BrokerCommitted(fenced=True):
                # The first fencing counts: a second record of a fenced broker does not fence it
                # anew.
                state.fenced.setdefault(body.broker_id, (body.offset, event.ref))
                # The broker may have applied the record before the observer has read it.
                for slot, (offset, at_ns) in state.applied.items():
                    self._reach(state, slot, offset, at_ns)
            case BrokerCommitted():
                state.fenced.pop(body.broker_id, None)
                state.suspects = [
                    one
                    for one in state.suspects
                    # A suspect stays if the unfencing is later than what the answering broker had
                    # applied: it could not know of it.
                    if one[0] != body.broker_id or one[1] < body.offset
                ]
                for reached in state.reached.values():
                    reached.pop(body.broker_id, None)
            case MetadataApplied():
                slot = slot_of(event.process)
                state.applied[slot] = (body.offset, event.at_ns)
                self._reach(state, slot, body.offset, event.at_ns)
            case ProbeCompleted(api="Metadata", outcome="answered"):
                return self._answered(state, event, body)
        return NOTHING

    @staticmethod
    def _reach(state: _Applied, slot: str, offset: int, at_ns: int) -> None:
        for broker, (fenced_at, _) in state.fenced.items():
            if offset >= fenced_at:
                state.reached.setdefault(slot, {}).setdefault(broker, at_ns)

    @staticmethod
    def _answered(state: _Applied, event: Event, body: ProbeCompleted) -> Findings:
        found: list[Finding] = []
        for broker, since_ns in sorted(state.reached.get(body.slot, {}).items()):
            # By the time of the sending: a request that was under way before may be answered from
            # the former state.
            if since_ns + APPLIED_WITHIN_NS > body.sent_at_ns:
                continue
            if broker in body.brokers:
                named = violated(
                    event.ref,
                    Evidence.CLIENT,
                    "{slot} named broker {broker}, which is fenced, to {client}",
                    (state.fenced[broker][1],),
                    slot=slot_scope(body.slot),
                    broker=broker_of(broker),
                    client=process_scope(event.process),
                )
                state.suspects.append((broker, state.applied[body.slot][0], named))
            else:
                found.append(Exercised(event.ref, Evidence.CLIENT))
        return found

    def end(self, state: _Applied, end: RunEnd) -> Findings:
        return tuple(named for _, _, named in state.suspects)


@dataclass(slots=True, kw_only=True)
class _Left:
    """A process whose shutdown was granted: the partitions that it led by the records until then,
    and the offset it had applied; an earlier record may still arrive."""

    broker: int
    applied: int
    places: set[tuple[str, int]]
    at: Cause
    process: str
    asked: Cause


@dataclass(slots=True)
class _Leaving:
    partitions: Partitions = field(default_factory=Partitions)
    applied: dict[str, int] = field(default_factory=dict)
    wishes: dict[str, tuple[Cause, bool]] = field(default_factory=dict)
    """process that was asked to shut down -> that event, and whether it led anything then."""
    left: list[_Left] = field(default_factory=list)

    def led_by(self, broker: int) -> set[tuple[str, int]]:
        """The partitions that a broker leads although another member of the ISR could."""
        return {
            place
            for place, one in self.partitions.newest.items()
            if one.leader == broker and set(one.isr) - {broker}
        }


@final
class LeavesLeadingNothing(Rule[_Leaving]):
    """KR-04. The broker reports that its shutdown was granted; the records show the partitions that
    it led. Exercised by a broker that led something when it was asked to shut down."""

    clause = "KR-04"
    state = _Leaving

    @on(BrokerStopping, BrokerStateChanged, PartitionCommitted, TopicCommitted, MetadataApplied)
    def step(self, state: _Leaving, event: Event, body: Struct) -> Findings:
        match body:
            case MetadataApplied():
                state.applied[event.process] = body.offset
            case PartitionCommitted():
                self._changed(state, body)
            case TopicCommitted():
                state.partitions.forget(body)
            case BrokerStopping(state="ACTIVE"):
                state.wishes[event.process] = event.ref, bool(state.led_by(body.broker_id))
            case BrokerStateChanged(new="SHUTDOWN") if event.process in state.wishes:
                asked, led = state.wishes.pop(event.process)
                applied = state.applied.get(event.process, -1)
                places = state.led_by(body.broker_id)
                state.left.append(
                    _Left(
                        broker=body.broker_id,
                        applied=applied,
                        places=places,
                        at=event.ref,
                        process=event.process,
                        asked=asked,
                    )
                )
                return (Exercised(event.ref, Evidence.PEER),) if led else NOTHING
        return NOTHING

    @staticmethod
    def _changed(state: _Leaving, body: PartitionCommitted) -> None:
        place = body.topic, body.partition
        state.partitions.take(body)
        for left in state.left:
            if body.offset <= left.applied and body.leader != left.broker:
                left.places.discard(place)

    def end(self, state: _Leaving, end: RunEnd) -> Findings:
        found: list[Finding] = []
        for left in state.left:
            if left.places:
                places = sorted(left.places)
                leading = violated(
                    left.at,
                    Evidence.PEER,
                    "{process} left the cluster leading {names}",
                    (left.asked,),
                    process=process_scope(left.process),
                    names=", ".join(f"{topic}-{number}" for topic, number in places),
                    partitions=tuple(partition_at(*place) for place in places),
                )
                found.append(leading)
        return found


@dataclass(slots=True)
class _Following:
    """The newest process of each slot that holds the partition, and since when it follows."""

    newest: dict[str, str] = field(default_factory=dict)
    since: dict[str, tuple[int, Cause]] = field(default_factory=dict)


@final
class FollowerStoresNothing(Rule[_Following]):
    """KR-05. A client's evidence: a produce was sent to a broker after it had logged that it
    follows another one."""

    clause = "KR-05"
    keys = staticmethod(by_partition)
    state = _Following

    @on(FollowingStarted, LeadershipStarted, ProbeCompleted)
    def step(self, state: _Following, event: Event, body: Struct) -> Findings:
        match body:
            case FollowingStarted():
                state.newest[slot_of(event.process)] = event.process
                state.since[event.process] = event.at_ns, event.ref
            case LeadershipStarted():
                state.newest[slot_of(event.process)] = event.process
                state.since.pop(event.process, None)
            case ProbeCompleted(api="Produce"):
                return self._asked(state, event, body)
        return NOTHING

    @staticmethod
    def _asked(state: _Following, event: Event, body: ProbeCompleted) -> Findings:
        process = state.newest.get(body.slot, "")
        since_ns, ref = state.since.get(process, (body.sent_at_ns, None))
        if ref is None or body.sent_at_ns <= since_ns:
            return NOTHING
        if body.outcome == "answered":
            stored = violated(
                event.ref,
                Evidence.CLIENT,
                "{process} stored a message of {client} in {partition}, sent after it had begun to "
                "follow",
                (ref,),
                process=process_scope(process),
                partition=partition_of(body),
                client=process_scope(event.process),
            )
            return (stored,)
        return (Exercised(event.ref, Evidence.CLIENT),) if "NOT_LEADER" in body.error else NOTHING
