"""Reassignment: the replacement of a partition's replicas by others."""

from __future__ import annotations

from typing import final

from msgspec import Struct

from fencepost import NOTHING, Event, Evidence, Exercised, Findings, Rule, on, violated
from fencepost_kafka import PartitionCommitted, TopicCommitted, broker_of, partition_of
from fencepost_kafka.committed import Partitions
from fencepost_suites.common.keys import by_topic


@final
class SwitchesWhenCaughtUp(Rule[Partitions]):
    """RP-20. Judged by the ISR in the record just before. Exercised by each switch that had to wait
    for a new replica."""

    clause = "RP-20"
    keys = staticmethod(by_topic)
    state = Partitions

    @on(TopicCommitted, PartitionCommitted)
    def step(self, state: Partitions, event: Event, body: Struct) -> Findings:
        if isinstance(body, TopicCommitted):
            state.forget(body)
            return NOTHING
        assert isinstance(body, PartitionCommitted)
        news, before = state.take(body)
        if not news or before is None or body.adding or body.removing:
            return NOTHING
        new = set(body.replicas)
        early = sorted(new - set(before.isr))
        moving = bool(before.adding or before.removing)
        # Back to the replicas of before, which need not catch up.
        called_off = moving and new == set(before.replicas) - set(before.adding)
        ended = (moving or new != set(before.replicas)) and not called_off
        if ended and early:
            broken = violated(
                event.ref,
                Evidence.PEER,
                "{partition} switched from {before} to {replicas} while brokers {early} were not "
                "in the ISR {isr}",
                partition=partition_of(body),
                before=tuple(map(broker_of, before.replicas)),
                replicas=tuple(map(broker_of, body.replicas)),
                early=tuple(map(broker_of, early)),
                isr=tuple(map(broker_of, before.isr)),
            )
            return (broken,)
        if body.leader >= 0 and body.leader not in new:
            broken = violated(
                event.ref,
                Evidence.PEER,
                "broker {leader} leads {partition}, but is not one of its replicas",
                leader=broker_of(body.leader),
                partition=partition_of(body),
                replicas=tuple(map(broker_of, body.replicas)),
            )
            return (broken,)
        switched = bool(before.adding) and set(before.adding) <= new
        return (Exercised(event.ref, Evidence.PEER),) if switched else NOTHING
