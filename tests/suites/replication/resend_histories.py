"""Histories of writes that outlast their leader, of `orders-0`; see `partition_histories`."""

from __future__ import annotations

from typing import Literal

from tests.suites.partition_histories import ALL3, B1, B2, CLIENT, lead

from fencepost import Cause
from fencepost.testing import HistoryBuilder
from fencepost_kafka import (
    LeadershipEnded,
    LogAppended,
    ProduceAnswered,
    ProduceCompleted,
    ProduceInvoked,
)

ASKED = Cause(CLIENT, 9, True)


def store(
    h: HistoryBuilder,
    process: str,
    offset: int,
    sequence: int = -1,
    crc: str = "aa",
    epoch: int = 1,
    cause: Cause | None = None,
    leads: bool = True,
    producer: int = 7,
) -> None:
    """One message of that producer; without a sequence, of no idempotent one."""
    h.add(
        process,
        LogAppended(
            topic="orders",
            partition=0,
            base_offset=offset,
            log_end=offset + 1,
            expected_base=offset,
            batch_epoch=epoch,
            leader_epoch=epoch,
            as_leader=leads,
            digest=f"{crc}.{epoch}",
            producer_id=producer if sequence >= 0 else -1,
            base_sequence=sequence,
        ),
        cause,
    )


def answer(
    h: HistoryBuilder,
    process: str,
    end: int,
    error: str = "NONE",
    marked: int = 0,
    duplicate: bool = False,
    cause: Cause | None = None,
    acks: int = -1,
) -> None:
    good = error == "NONE"
    base, upto = (end - 1, end) if good else (-1, -1)
    h.add(
        process,
        ProduceAnswered(
            topic="orders",
            partition=0,
            client=CLIENT,
            acks=acks,
            error=error,
            base_offset=base,
            log_end=upto,
            leader_epoch=1,
            high_watermark=marked,
            isr=ALL3,
            ends=(end,) * 3,
            duplicate=duplicate,
        ),
        cause,
    )


def sought(h: HistoryBuilder) -> None:
    """A write is open while leadership moves from broker 1 to broker 2."""
    lead(h, B1, 1)
    h.add(CLIENT, ProduceInvoked(operation="op-1", topic="orders", partition=0, acks=-1))
    lead(h, B2, 2, log_end=3)


def completed(h: HistoryBuilder, outcome: Literal["ok", "failed", "unknown"], offset: int) -> None:
    h.add(
        CLIENT,
        ProduceCompleted(
            operation="op-1",
            topic="orders",
            partition=0,
            acks=-1,
            outcome=outcome,
            offset=offset,
            error="",
        ),
    )


def step_down(h: HistoryBuilder, process: str, epoch: int) -> None:
    body = LeadershipEnded(topic="orders", partition=0, leader_epoch=epoch, reason="metadata")
    h.add(process, body)
