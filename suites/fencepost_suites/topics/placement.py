"""The placement of a new topic's replicas, and their moves when brokers are added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import NOTHING, Event, Evidence, Exercised, Findings, Rule, on, violated
from fencepost_kafka import (
    AdminCompleted,
    BrokerCommitted,
    BrokerDeclared,
    BrokerDeleted,
    BrokersListed,
    PartitionCommitted,
    TopicCommitted,
    broker_of,
    partition_at,
    partition_of,
)
from fencepost_kafka.committed import BROKER_NEWS, Brokers, Partitions, TopicPartition

_RECORDS = (TopicCommitted, PartitionCommitted, *BROKER_NEWS, BrokersListed, BrokerDeleted)
TURNS = 2
"""From the second partition on that has the same preferred replica, the other replicas must
differ."""


@dataclass(slots=True)
class _Cluster:
    partitions: Partitions = field(default_factory=Partitions)
    brokers: Brokers = field(default_factory=Brokers)

    def made(self, event: Event) -> PartitionCommitted | None:
        """Applies a record; returns the partition if it has just been created."""
        match event.body:
            case BrokerCommitted() | BrokerDeclared() as body:
                self.brokers.take(body)
            case BrokersListed() as body:
                self.brokers.listed(body)
            case BrokerDeleted() as body:
                self.brokers.forget(body)
            case TopicCommitted() as body:
                self.partitions.forget(body)
            case PartitionCommitted() as body:
                news, before = self.partitions.take(body)
                return body if news and before is None else None
        return None


def placed(brokers: Sequence[int], number: int, replicas: int) -> tuple[int, ...]:
    """The replicas of a topic's partition with that number, by the replication design."""
    n = len(brokers)
    i, k = number % n, number // n
    others = ((i + 1 + (j - 1 + k) % (n - 1)) % n for j in range(1, replicas))
    return tuple(brokers[x] for x in (i, *others))


@final
class PlacedByFormula(Rule[_Cluster]):
    """RP-01. Judged by the records, over the brokers that were live at the partition's offset. A
    placement that a client lists replica by replica is exempt; no client here does that. Exercised
    by the second and every later partition that has the same preferred broker, with other
    replicas."""

    clause = "RP-01"
    state = _Cluster

    @on(*_RECORDS)
    def step(self, state: _Cluster, event: Event, body: Struct) -> Findings:
        one = state.made(event)
        if one is None:
            return NOTHING
        fenced = state.brokers.at(one.offset)
        live = sorted(b for b in fenced if not fenced[b])
        if not set(one.replicas) <= set(live):
            return NOTHING  # judged by another clause
        due = placed(live, one.partition, len(one.replicas))
        if one.replicas != due:
            broken = violated(
                event.ref,
                Evidence.PEER,
                "{partition} was placed on brokers {replicas}; over the live ones {live} it "
                "belongs on {expected}",
                partition=partition_of(one),
                replicas=tuple(map(broker_of, one.replicas)),
                live=tuple(map(broker_of, live)),
                expected=tuple(map(broker_of, due)),
            )
            return (broken,)
        turned = one.partition // len(live) + 1 >= TURNS and len(one.replicas) > 1
        return (Exercised(event.ref, Evidence.PEER),) if turned else NOTHING


@final
class PlacedOnLive(Rule[_Cluster]):
    """RP-28. A broker is live if the records up to the partition's offset say that it is not
    fenced. Exercised by a partition created while a registered broker was fenced."""

    clause = "RP-28"
    state = _Cluster

    @on(*_RECORDS)
    def step(self, state: _Cluster, event: Event, body: Struct) -> Findings:
        one = state.made(event)
        if one is None:
            return NOTHING
        fenced = state.brokers.at(one.offset)
        dead = [b for b in one.replicas if fenced.get(b, True)]
        if dead:
            broken = violated(
                event.ref,
                Evidence.PEER,
                "{partition} was placed on broker {broker}, which is fenced",
                partition=partition_of(one),
                broker=broker_of(dead[0]),
                fenced=tuple(map(broker_of, dead)),
            )
            return (broken,)
        some = any(fenced.values())
        return (Exercised(event.ref, Evidence.PEER),) if some else NOTHING


@dataclass(slots=True)
class _Moves:
    cluster: _Cluster = field(default_factory=_Cluster)
    since: dict[TopicPartition, tuple[tuple[int, ...], tuple[int, ...]]] = field(
        default_factory=dict
    )
    """The partitions that began to move since the last administrative call: from which replicas to
    which."""


def _target(one: PartitionCommitted) -> tuple[int, ...]:
    return tuple(b for b in one.replicas if b not in one.removing)


def _spread(counts: Counter[int], brokers: Sequence[int]) -> int:
    held = [counts[b] for b in brokers]
    return max(held, default=0) - min(held, default=0)


@final
class AddingMovesLittle(Rule[_Moves]):
    """RP-03. Judged are the partitions that began to move by the time a client was answered that
    its brokers are added. The counts must be even only if those of the old brokers were. Exercised
    by a call that moved some."""

    clause = "RP-03"
    state = _Moves

    @on(*_RECORDS, AdminCompleted)
    def step(self, state: _Moves, event: Event, body: Struct) -> Findings:
        if isinstance(body, AdminCompleted):
            found: Findings = NOTHING
            if body.api == "add_brokers" and body.outcome == "ok":
                new = [int(b) for b in body.subject.split(",")]
                found = self._added(state, event, new)
            if body.api in ("add_brokers", "rebalance", "reassign"):
                state.since.clear()
            return found
        if isinstance(body, PartitionCommitted):
            place = (body.topic, body.partition)
            known = state.cluster.partitions.newest.get(place)
            if known is not None and known.offset < body.offset:
                before, after = _target(known), _target(body)
                if set(before) != set(after):
                    state.since[place] = (before, after)
        state.cluster.made(event)
        return NOTHING

    @staticmethod
    def _added(state: _Moves, event: Event, new: Sequence[int]) -> Findings:
        before: Counter[int] = Counter()
        after: Counter[int] = Counter()
        for place, one in state.cluster.partitions.newest.items():
            origin, target = state.since.get(place, (_target(one), _target(one)))
            before.update(origin)
            after.update(target)
            stray = sorted(set(target) - set(origin) - set(new))
            if stray:
                broken = violated(
                    event.ref,
                    Evidence.PEER,
                    "when brokers {added} were added, {partition} moved from {before} to "
                    "{replicas}, to broker {broker} as well",
                    added=tuple(map(broker_of, new)),
                    partition=partition_at(*place),
                    before=tuple(map(broker_of, origin)),
                    replicas=tuple(map(broker_of, target)),
                    broker=broker_of(stray[0]),
                )
                return (broken,)
        live = state.cluster.brokers.live()
        old = [b for b in live if b not in new]
        # Only if the old brokers' counts were even before: moving as few as possible cannot even
        # out what was uneven.
        if _spread(before, old) <= 1 < _spread(after, live):
            broken = violated(
                event.ref,
                Evidence.PEER,
                "brokers {added} were added, and the brokers {live} are to hold {counts} replicas",
                added=tuple(map(broker_of, new)),
                live=tuple(map(broker_of, live)),
                counts=tuple(after[b] for b in live),
            )
            return (broken,)
        return (Exercised(event.ref, Evidence.PEER),) if state.since else NOTHING
