"""Rules about the records of one decision: a reassignment's end, a broker's unregistration, and its
fencing (KR-21, KR-22, KR-29)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import msgspec
from msgspec import Struct

from fencepost import (
    NOTHING,
    SECOND,
    Administered,
    Cause,
    Event,
    Evidence,
    Exercised,
    Finding,
    Findings,
    Rule,
    on,
    violated,
)
from fencepost_clusters.apache_kafka.rules.news import Newest
from fencepost_kafka import (
    BrokerCommitted,
    BrokerDeleted,
    BrokerStopping,
    PartitionCommitted,
    TopicCommitted,
    TopicPartition,
    broker_of,
    partition_at,
    partition_of,
)
from fencepost_kafka.committed import Partitions

FENCED_WITHIN_NS = SECOND
"""A leader that leaves the ISR so soon before it is fenced leaves because of that."""


class _Drain(Struct, frozen=True):
    """The arguments of that operation: each partition with its new replicas."""

    moves: tuple[tuple[str, int, tuple[int, ...]], ...]


class _Reassign(Struct, frozen=True):
    """The arguments of that operation."""

    topic: str
    partition: int
    replicas: tuple[int, ...]


@dataclass(slots=True)
class _Records:
    partitions: Partitions = field(default_factory=Partitions)
    brokers: dict[int, BrokerCommitted] = field(default_factory=dict)
    about: Newest = field(default_factory=Newest)
    """The newest record about each broker."""
    gone: dict[int, int] = field(default_factory=dict)
    """broker -> the offset of the record that unregistered it."""
    wanted: dict[TopicPartition, frozenset[int]] = field(default_factory=dict)
    """The replicas that an administrator asked for last."""

    def note(self, body: Administered) -> None:
        """An administrator asks for other replicas."""
        if body.operation == "reassign":
            asked = msgspec.json.decode(body.arguments, type=_Reassign)
            self.wanted[asked.topic, asked.partition] = frozenset(asked.replicas)
        elif body.operation == "drain_broker":
            drained = msgspec.json.decode(body.arguments, type=_Drain)
            for topic, partition, replicas in drained.moves:
                self.wanted[topic, partition] = frozenset(replicas)


@final
class SwitchCoversNewReplicas(Rule[_Records]):
    """KR-21. Judged by the record that ends a reassignment. One that calls it off has the replicas
    of before. One that an administrator has asked for since replaces it, and ends with the same
    record if it needs no new replica. Exercised by each end with a replica that was new."""

    clause = "KR-21"
    state = _Records

    @on(TopicCommitted, PartitionCommitted, Administered)
    def step(self, state: _Records, event: Event, body: Struct) -> Findings:
        if isinstance(body, TopicCommitted):
            state.partitions.forget(body)
            return NOTHING
        if isinstance(body, Administered):
            state.note(body)
            return NOTHING
        assert isinstance(body, PartitionCommitted)
        news, before = state.partitions.take(body)
        # Only a record after which nothing is to be added or removed ends a reassignment.
        ended = before is not None and bool(before.adding or before.removing)
        if not news or before is None or not ended or body.adding or body.removing:
            return NOTHING
        replicas = set(body.replicas)
        newest = state.wanted.get((body.topic, body.partition))
        if newest is not None and replicas == newest <= set(before.replicas):
            return self._covers(event, body, before)
        if replicas == set(before.replicas) - set(before.adding):
            return NOTHING  # it is called off
        if replicas != set(before.replicas) - set(before.removing):
            wrong = violated(
                event.ref,
                Evidence.PEER,
                "the reassignment of {partition} ended with replicas {replicas}; it was to remove "
                "{removing} from {before}",
                partition=partition_of(body),
                replicas=tuple(body.replicas),
                removing=tuple(before.removing),
                before=tuple(before.replicas),
            )
            return (wrong,)
        return self._covers(event, body, before)

    @staticmethod
    def _covers(event: Event, body: PartitionCommitted, before: PartitionCommitted) -> Findings:
        """Whether the new replicas that the partition keeps are in sync, none that was removed is,
        and one of the ISR leads."""
        kept = sorted(set(before.replicas) & set(body.isr) - set(body.replicas))
        if kept:
            wrong = violated(
                event.ref,
                Evidence.PEER,
                "the reassignment of {partition} ended with the removed brokers {kept} in the ISR "
                "{isr}",
                partition=partition_of(body),
                kept=tuple(kept),
                isr=tuple(body.isr),
            )
            return (wrong,)
        early = sorted(set(before.adding) & set(body.replicas) - set(body.isr))
        if early:
            wrong = violated(
                event.ref,
                Evidence.PEER,
                "the reassignment of {partition} ended while brokers {early} were not in the ISR "
                "{isr}",
                partition=partition_of(body),
                early=tuple(early),
                isr=tuple(body.isr),
            )
            return (wrong,)
        # A partition without a leader is for other rules: this one asks where the leadership went.
        if body.leader >= 0 and body.leader not in body.isr:
            outside = violated(
                event.ref,
                Evidence.PEER,
                "broker {leader} leads {partition} after its reassignment, outside the ISR",
                leader=broker_of(body.leader),
                partition=partition_of(body),
            )
            return (outside,)
        took = set(before.adding) & set(body.replicas)
        return (Exercised(event.ref, Evidence.PEER),) if took else NOTHING


@final
class UnregisteredHoldsNothing(Rule[_Records]):
    """KR-22. The records of one batch take a broker's places, and then unregister it. From then on
    until it registers again no record may give it one. Exercised by a broker that was not fenced
    when it was unregistered: until then it had its places."""

    clause = "KR-22"
    state = _Records

    @on(TopicCommitted, PartitionCommitted, BrokerCommitted, BrokerDeleted)
    def step(self, state: _Records, event: Event, body: Struct) -> Findings:
        match body:
            case TopicCommitted():
                state.partitions.forget(body)
            case BrokerCommitted() if state.about.take(body.broker_id, body.offset):
                state.brokers[body.broker_id] = body
                state.gone.pop(body.broker_id, None)
            case PartitionCommitted():
                news, _ = state.partitions.take(body)
                if news:
                    return self._given(state, event, body)
            case BrokerDeleted() if state.about.take(body.broker_id, body.offset):
                return self._gone(state, event, body)
        return NOTHING

    @staticmethod
    def _given(state: _Records, event: Event, body: PartitionCommitted) -> Findings:
        for broker, offset in state.gone.items():
            # A record of before the removal may be read after it.
            if body.offset > offset and _holds(body, broker):
                given = violated(
                    event.ref,
                    Evidence.PEER,
                    "broker {broker}, unregistered at offset {offset}, was given a place in "
                    "{partition}: leader {leader}, ISR {isr}",
                    broker=broker_of(broker),
                    offset=offset,
                    partition=partition_of(body),
                    leader=broker_of(body.leader),
                    isr=tuple(body.isr),
                )
                return (given,)
        return NOTHING

    @staticmethod
    def _gone(state: _Records, event: Event, body: BrokerDeleted) -> Findings:
        was = state.brokers.pop(body.broker_id, None)
        state.gone[body.broker_id] = body.offset
        kept = [
            partition_at(topic, number)
            for (topic, number), one in sorted(state.partitions.newest.items())
            if _holds(one, body.broker_id)
        ]
        if kept:
            gone = violated(
                event.ref,
                Evidence.PEER,
                "broker {broker} was unregistered with its place in {partition}",
                broker=broker_of(body.broker_id),
                partition=kept[0],
                partitions=tuple(kept),
            )
            return (gone,)
        # A broker that was fenced had lost its places already: its removal has nothing left to
        # take.
        return (Exercised(event.ref, Evidence.PEER),) if was and not was.fenced else NOTHING


@dataclass(frozen=True, slots=True)
class _Move:
    """A record that took a leadership from a broker."""

    before: PartitionCommitted
    now: PartitionCommitted
    due: int
    """The broker that was to lead then, if the former leader was to be fenced (-1: none)."""
    at_ns: int
    ref: Cause

    @property
    def removes(self) -> bool:
        """Whether it took the broker out of the ISR, too, though it stays a replica whose
        directory is there: so do only a fencing and a shutdown, and no election."""
        former, now = self.before.leader, self.now
        kept = former in now.isr or former not in now.replicas or former in now.offline
        return former in self.before.isr and not kept


@dataclass(slots=True)
class _Moves:
    records: _Records = field(default_factory=_Records)
    moved: dict[int, list[_Move]] = field(default_factory=dict)
    """broker -> the records that took a leadership from it."""
    stopping: set[int] = field(default_factory=set)
    run: tuple[int, int] = (0, 0)
    """Offsets from the first to after the last of the newest records of partitions without a gap
    between."""

    def due(self, broker: int, before: PartitionCommitted, offset: int) -> int:
        """The broker that is to lead instead of a fenced one, by a record at that offset (-1: none,
        or it is not known, as a later record of a broker was told before)."""
        for one in before.replicas:
            known = self.records.brokers.get(one)
            if known is None or one not in before.isr or one in before.offline or one == broker:
                continue
            if known.offset > offset:
                break
            if not known.fenced:
                return one
        return -1


@final
class NextInOrderLeads(Rule[_Moves]):
    """KR-29. The records of one batch move a broker's leaderships, and then fence it. So they are
    as even as the placement makes them. Exercised by each fencing of a broker that led something.
    A record between the two makes them two batches. The move counts all the same if it took the
    broker out of the ISR, and was read a second before at most. Not judged while a broker stops,
    since it is to lead nothing more."""

    clause = "KR-29"
    state = _Moves

    @on(TopicCommitted, PartitionCommitted, BrokerCommitted, BrokerDeleted, BrokerStopping)
    def step(self, state: _Moves, event: Event, body: Struct) -> Findings:
        match body:
            case TopicCommitted():
                state.records.partitions.forget(body)
            case BrokerStopping():
                state.stopping.add(body.broker_id)
            case BrokerDeleted() if state.records.about.take(body.broker_id, body.offset):
                state.records.brokers.pop(body.broker_id, None)
            case PartitionCommitted():
                news, before = state.records.partitions.take(body)
                if news:
                    first, after = state.run
                    # A batch has its records at offsets without a gap.
                    state.run = first if body.offset == after else body.offset, body.offset + 1
                if news and before is not None and before.leader not in (-1, body.leader):
                    due = state.due(before.leader, before, body.offset)
                    move = _Move(before, body, due, event.at_ns, event.ref)
                    state.moved.setdefault(before.leader, []).append(move)
            case BrokerCommitted() if state.records.about.take(body.broker_id, body.offset):
                was = state.records.brokers.get(body.broker_id)
                state.records.brokers[body.broker_id] = body
                moved = state.moved.pop(body.broker_id, [])
                if was is None or was.broker_epoch != body.broker_epoch:
                    state.stopping.discard(body.broker_id)  # it has begun anew
                elif body.fenced and not was.fenced and not state.stopping:
                    return self._fenced(state, event, body, moved)
        return NOTHING

    @staticmethod
    def _fenced(
        state: _Moves, event: Event, body: BrokerCommitted, moved: Sequence[_Move]
    ) -> Findings:
        found: list[Finding] = []
        for move in moved:
            before, now, due, ref = move.before, move.now, move.due, move.ref
            batch = state.run[0] <= now.offset and state.run[1] == body.offset
            apart = move.removes and event.at_ns - move.at_ns <= FENCED_WITHIN_NS
            if due < 0 or not (batch or apart):
                continue  # of an earlier batch; or one that no member of its ISR can lead
            if now.leader == due:
                if batch:
                    found.append(Exercised(ref, Evidence.PEER))
                continue
            wrong = violated(
                ref,
                Evidence.PEER,
                "{partition}, which broker {former} led, went to broker {leader}; of its replicas "
                "{replicas}, broker {due} is the first live member of its ISR {isr}",
                partition=partition_of(now),
                former=broker_of(body.broker_id),
                leader=broker_of(now.leader),
                replicas=tuple(before.replicas),
                due=broker_of(due),
                isr=tuple(before.isr),
            )
            found.append(wrong)
        return found


def _holds(one: PartitionCommitted, broker: int) -> bool:
    """Whether a broker leads, or is one of several members of the ISR."""
    return one.leader == broker or (broker in one.isr and len(one.isr) > 1)
