"""Elections: who may be made leader, and who when several may."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    BrokerCommitted,
    Event,
    Exercised,
    Finding,
    Key,
    PartitionCommitted,
    RunEnd,
    TopicCommitted,
    Violated,
    Witness,
)
from fencepost_suites.rules.committed import Brokers, Partitions
from fencepost_suites.rules.keys import NOTHING, whole_run


@dataclass(slots=True)
class _Cluster:
    partitions: Partitions = field(default_factory=Partitions)
    brokers: Brokers = field(default_factory=Brokers)


@final
@dataclass(frozen=True, slots=True)
class DeadIsrLeadsNobody:
    """RP-29. Live is unfenced, by the records. Exercised by a partition left without a leader while
    a replica outside its ISR lives."""

    clause: str = "RP-29"
    kinds: frozenset[type[Struct]] = frozenset(
        {TopicCommitted, PartitionCommitted, BrokerCommitted}
    )
    keys = staticmethod(whole_run)

    def start(self, key: Key) -> _Cluster:
        return _Cluster()

    def step(self, state: _Cluster, event: Event) -> tuple[_Cluster, Sequence[Finding]]:
        body = event.body
        match body:
            case BrokerCommitted():
                state.brokers.take(body)
            case TopicCommitted():
                state.partitions.forget(body)
            case PartitionCommitted():
                return state, self._changed(state, event, body)
        return state, NOTHING

    @staticmethod
    def _changed(state: _Cluster, event: Event, body: PartitionCommitted) -> Sequence[Finding]:
        news, before = state.partitions.take(body)
        if not news or before is None:
            return NOTHING
        dead = all(state.brokers.fenced(member) for member in before.isr)
        if not dead:
            return NOTHING
        if body.leader >= 0 and body.leader not in before.isr:
            saying = (
                f"broker {body.leader} was made leader of {body.topic}-{body.partition} while no "
                f"member of its ISR {list(before.isr)} was live"
            )
            return (Violated(event.ref, Witness.PEER, saying),)
        others = [r for r in body.replicas if r not in before.isr and not state.brokers.fenced(r)]
        if body.leader < 0 and others:
            return (Exercised(event.ref, Witness.PEER),)
        return NOTHING

    def end(self, state: _Cluster, end: RunEnd) -> Sequence[Finding]:
        return NOTHING
