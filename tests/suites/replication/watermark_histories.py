"""Histories of a leader, its high watermark and its ISR."""

from __future__ import annotations

from fencepost.testing import HistoryBuilder, Verdict, judge
from fencepost_kafka import (
    FollowingStarted,
    HighWatermarkAdvanced,
    IsrChangeAnswered,
    IsrChangeAsked,
    LeadershipStarted,
    LogAppended,
    PartitionCommitted,
    ProduceAnswered,
)
from fencepost_suites import rules
from fencepost_suites.plugin import DECLARED

CLAUSES = {clause.id: clause for clause in DECLARED.clauses}
B1, B2 = "broker-1#1", "broker-2#1"
CONSUMER = "clients/consumer#1"
ALL3 = (1, 2, 3)
MS = 1_000_000


def verdict(h: HistoryBuilder, clause: str, complete: bool = True) -> Verdict:
    chosen = [rule for rule in rules.ALL if rule.clause == clause]
    return judge(h.events(), chosen, CLAUSES, h.end(complete), "quorum").verdicts[clause]


def mark(
    h: HistoryBuilder,
    high_watermark: int,
    log_end: int,
    counted: tuple[int, ...] = ALL3,
    isr: tuple[int, ...] = ALL3,
    epoch: int = 1,
) -> None:
    """The leader's high watermark moves."""
    h.add(
        B1,
        HighWatermarkAdvanced(
            topic="orders",
            partition=0,
            high_watermark=high_watermark,
            log_end=log_end,
            leader_epoch=epoch,
            as_leader=True,
            isr=isr,
            counted=counted,
        ),
    )


def learn(h: HistoryBuilder, high_watermark: int, log_end: int) -> None:
    h.add(
        B2,
        HighWatermarkAdvanced(
            topic="orders",
            partition=0,
            high_watermark=high_watermark,
            log_end=log_end,
            leader_epoch=1,
            as_leader=False,
            isr=(),
            counted=(),
        ),
    )


def store(h: HistoryBuilder, process: str, offset: int, as_leader: bool | None = None) -> None:
    """One message; broker 1 leads, unless the call says otherwise."""
    leads = process == B1 if as_leader is None else as_leader
    h.add(
        process,
        LogAppended(
            topic="orders",
            partition=0,
            base_offset=offset,
            log_end=offset + 1,
            expected_base=offset,
            batch_epoch=1,
            leader_epoch=1,
            as_leader=leads,
            digest=f"d{offset}",
            producer_id=-1,
            base_sequence=-1,
        ),
    )


def lead(h: HistoryBuilder, epoch: int = 1, keep_ms: int = 2000) -> None:
    h.add(
        B1,
        LeadershipStarted(
            topic="orders",
            partition=0,
            leader_epoch=epoch,
            isr=ALL3,
            log_start=0,
            log_end=0,
            high_watermark=0,
            keep_in_sync_ms=keep_ms,
        ),
    )


def follow(h: HistoryBuilder, log_end: int = 0, own: int = 0) -> None:
    h.add(
        B2,
        FollowingStarted(
            topic="orders",
            partition=0,
            leader=1,
            leader_epoch=1,
            log_end=log_end,
            high_watermark=own,
        ),
    )


def stored_isr(
    h: HistoryBuilder, offset: int, epoch: int, isr: tuple[int, ...], leader: int = 1
) -> None:
    h.add(
        "controller-1#1",
        PartitionCommitted(
            offset=offset,
            topic="orders",
            partition=0,
            leader=leader,
            leader_epoch=epoch,
            isr=isr,
            replicas=ALL3,
        ),
    )


def ask(
    h: HistoryBuilder,
    new: tuple[int, ...],
    old: tuple[int, ...] = ALL3,
    ends: tuple[int, ...] = (),
    mark: int = 5,
    start: int = 3,
    lag_ms: int = 2000,
    epoch: int = 1,
) -> None:
    ends = ends or (5,) * len(new)
    h.add(
        B1,
        IsrChangeAsked(
            topic="orders",
            partition=0,
            leader_epoch=epoch,
            broker_epoch=5,
            old_isr=old,
            new_isr=new,
            ends=ends,
            high_watermark=mark,
            epoch_start=start,
            lag_ns=lag_ms * MS,
        ),
    )


def time_out(h: HistoryBuilder) -> None:
    """A write has waited for as long as its client allows."""
    error = "REQUEST_TIMED_OUT"
    h.add(
        B1,
        ProduceAnswered(
            topic="orders",
            partition=0,
            client=CONSUMER,
            acks=-1,
            error=error,
            base_offset=-1,
            log_end=-1,
            leader_epoch=1,
            high_watermark=0,
            isr=ALL3,
            ends=(1, 0, 0),
            duplicate=False,
        ),
    )


def refuse(h: HistoryBuilder, error: str, process: str = B1) -> None:
    """The controller answers a request for another ISR."""
    h.add(
        process,
        IsrChangeAnswered(topic="orders", partition=0, leader_epoch=1, error=error, isr=()),
    )
