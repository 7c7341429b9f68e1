"""Histories of what replicas of `orders-0` store, for the rules about the members of an ISR."""

from __future__ import annotations

from tests.clusters.apache_kafka.kraft_histories import OBSERVER

from fencepost import NodeStarted
from fencepost.testing import HistoryBuilder
from fencepost_kafka import (
    CallOutcome,
    IsrChangeAsked,
    LeadershipStarted,
    LogAppended,
    PartitionCommitted,
    Polled,
    ProduceCompleted,
)

B1, B2, B3, DUPLICATE = "broker-1#1", "broker-2#1", "broker-3#1", "broker-2-duplicate#1"
CLIENT = "clients/producer-1#1"
SETTLED_MS = 200


def begun(*isr: int) -> HistoryBuilder:
    """Broker 1 leads; the ISR is that."""
    h = HistoryBuilder()
    for node_id, process in ((1, B1), (2, B2), (3, B3), (2, DUPLICATE)):
        h.add(process, NodeStarted(role="broker", node_id=node_id, incarnation="", log_end=-1))
    recorded(h, 10, *isr)
    began = LeadershipStarted(
        topic="orders",
        partition=0,
        leader_epoch=1,
        isr=isr,
        log_start=-1,
        log_end=0,
        high_watermark=0,
    )
    h.add(B1, began)
    return h


def recorded(h: HistoryBuilder, offset: int, *isr: int) -> None:
    body = PartitionCommitted(
        offset=offset,
        topic="orders",
        partition=0,
        leader=1,
        leader_epoch=1,
        isr=isr,
        replicas=(1, 2, 3),
    )
    h.add(OBSERVER, body)


def stores(h: HistoryBuilder, *processes: str, end: int) -> None:
    """Each of them stores one message, after which its log ends there."""
    for process in processes:
        body = LogAppended(
            topic="orders",
            partition=0,
            base_offset=end - 1,
            log_end=end,
            expected_base=end - 1,
            batch_epoch=-1,
            leader_epoch=1,
            as_leader=process == B1,
            digest="",
            producer_id=-1,
            base_sequence=-1,
        )
        h.add(process, body)


def acknowledged(
    h: HistoryBuilder, offset: int, acks: int = -1, outcome: CallOutcome = "ok"
) -> None:
    body = ProduceCompleted(
        operation="op-1",
        topic="orders",
        partition=0,
        acks=acks,
        outcome=outcome,
        offset=offset,
        error="",
    )
    h.add(CLIENT, body)


def polled(h: HistoryBuilder, *offsets: int, final: bool = False) -> None:
    body = Polled(
        topic="orders",
        partition=0,
        offsets=offsets,
        operations=("op-1",) * len(offsets),
        final=final,
    )
    h.add(CLIENT, body)


def asked(
    h: HistoryBuilder, new: tuple[int, ...], old: tuple[int, ...], start: int = 0, epoch: int = 1
) -> None:
    body = IsrChangeAsked(
        topic="orders",
        partition=0,
        leader_epoch=epoch,
        broker_epoch=5,
        old_isr=old,
        new_isr=new,
        ends=(-1,) * len(new),
        high_watermark=-1,
        epoch_start=start,
        lag_ns=0,
    )
    h.add(B1, body)
