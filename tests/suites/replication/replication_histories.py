"""Additions to a history of `orders-0` for the tests of the rules of replication; see
`partition_histories`."""

from __future__ import annotations

from tests.suites.partition_histories import ALL3, B1, B2, CLIENT

from fencepost.testing import HistoryBuilder
from fencepost_kafka import (
    FollowerFetched,
    HighWatermarkAdvanced,
    LogAppended,
    LogTruncated,
    ProbeCompleted,
    ProduceAnswered,
    ProduceCompleted,
)

PROBE = "clients/probe#1"


def store(
    h: HistoryBuilder,
    process: str,
    offset: int,
    digest: str = "",
    as_leader: bool = False,
    epoch: int = 1,
    expected: int | None = None,
) -> None:
    """One message at that offset; its content depends on the offset unless one is given."""
    before = offset if expected is None else expected
    h.add(
        process,
        LogAppended(
            topic="orders",
            partition=0,
            base_offset=offset,
            log_end=offset + 1,
            expected_base=before,
            batch_epoch=epoch,
            leader_epoch=epoch,
            as_leader=as_leader,
            digest=digest or f"d{offset}",
            producer_id=-1,
            base_sequence=-1,
        ),
    )


def fetched(h: HistoryBuilder, follower: int, client: str, offset: int, epoch: int = 5) -> None:
    """The leader counts a follower, whose fetch names that broker epoch."""
    h.add(
        B1,
        FollowerFetched(
            topic="orders",
            partition=0,
            leader_epoch=1,
            follower=follower,
            client=client,
            broker_epoch=epoch,
            offset=offset,
        ),
    )


def mark(h: HistoryBuilder, process: str, high_watermark: int, end: int | None = None) -> None:
    leads = process == B1
    log_end = high_watermark if end is None else end
    isr = ALL3 if leads else ()
    h.add(
        process,
        HighWatermarkAdvanced(
            topic="orders",
            partition=0,
            high_watermark=high_watermark,
            log_end=log_end,
            leader_epoch=1,
            as_leader=leads,
            isr=isr,
            counted=isr,
        ),
    )


def acknowledge(
    h: HistoryBuilder,
    end: int,
    ends: tuple[int, ...],
    mark: int,
    acks: int = -1,
    duplicate: bool = False,
    process: str = B1,
    error: str = "NONE",
) -> None:
    isr = ALL3[: len(ends)]
    h.add(
        process,
        ProduceAnswered(
            topic="orders",
            partition=0,
            client=CLIENT,
            acks=acks,
            error=error,
            base_offset=end - 1,
            log_end=end,
            leader_epoch=1,
            high_watermark=mark,
            isr=isr,
            ends=ends,
            duplicate=duplicate,
        ),
    )


def acked(h: HistoryBuilder, offset: int, acks: int = -1, outcome: str = "ok") -> None:
    h.add(
        CLIENT,
        ProduceCompleted(
            operation=f"op-{offset}",
            topic="orders",
            partition=0,
            acks=acks,
            outcome=outcome,
            offset=offset,
            error="",
        ),
    )


def truncate(h: HistoryBuilder, to: int, end: int, mark: int, reason: str = "leader_epoch") -> None:
    h.add(
        B2,
        LogTruncated(
            topic="orders",
            partition=0,
            to_offset=to,
            from_log_end=end,
            high_watermark=mark,
            leader_epoch=2,
            reason=reason,
        ),
    )


def probe(h: HistoryBuilder, outcome: str, sent_ns: int) -> None:
    """A fetch that a client sent directly to broker 1 at that time has ended."""
    h.add(
        PROBE,
        ProbeCompleted(
            operation="p",
            api="Fetch",
            broker=1,
            slot="broker-1",
            topic="orders",
            partition=0,
            outcome=outcome,
            error="NOT_LEADER_OR_FOLLOWER" if outcome == "refused" else "",
            records=0,
            base_offset=-1,
            sent_at_ns=sent_ns,
        ),
    )
