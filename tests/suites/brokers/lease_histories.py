"""Histories of one lease, its controllers and its broker."""

from __future__ import annotations

from fencepost.testing import HistoryBuilder, Verdict, judge
from fencepost_kafka import (
    BrokerCommitted,
    BrokerStateChanged,
    ControllerElected,
    HeartbeatAnswered,
    HeartbeatSent,
    LeaseExpired,
    LeaseGranted,
)
from fencepost_suites import rules
from fencepost_suites.plugin import DECLARED

CLAUSES = {clause.id: clause for clause in DECLARED.clauses}
ONE, TWO = "controller-1#1", "controller-2#1"
BROKER = "broker-1#1"
MS = 1_000_000
LEASE_MS = 3000


def verdict(h: HistoryBuilder, clause: str, complete: bool = True) -> Verdict:
    chosen = [rule for rule in rules.ALL if rule.clause == clause]
    return judge(h.events(), chosen, CLAUSES, h.end(complete), "quorum").verdicts[clause]


def ask(h: HistoryBuilder, start_ms: int = 50, target: str = "ACTIVE") -> None:
    """The broker sends a heartbeat, for a lease from that start."""
    h.add(
        BROKER,
        HeartbeatSent(
            broker_id=1,
            broker_epoch=5,
            controller=101,
            correlation=1,
            target_state=target,
            lease_start_ms=start_ms,
            metadata_offset=10,
        ),
    )


def answer(
    h: HistoryBuilder,
    start_ms: int = 50,
    length_ms: int = LEASE_MS,
    process: str = ONE,
    epoch: int = 1,
    active: bool = True,
    error: str = "NONE",
    next_state: str = "ACTIVE",
    client: str = BROKER,
) -> None:
    h.add(
        process,
        HeartbeatAnswered(
            client=client,
            broker_id=1,
            incarnation="x",
            request_epoch=5,
            broker_epoch=5,
            error=error,
            next_state=next_state,
            lease_start_ms=start_ms,
            lease_end_ms=start_ms + length_ms,
            lease_period_ms=LEASE_MS,
            controller_epoch=epoch,
            active_controller=101,
            active=active,
        ),
    )


def grant(
    h: HistoryBuilder,
    start_ms: int = 50,
    length_ms: int = LEASE_MS,
    epoch: int = 1,
    late_ms: int = 0,
    process: str = BROKER,
) -> None:
    """The broker takes an answer to what it sent that many milliseconds ago."""
    ends_ns = h.now_ns + (length_ms - late_ms) * MS
    h.add(
        process,
        LeaseGranted(
            broker_id=1,
            broker_epoch=5,
            next_state="ACTIVE",
            lease_start_ms=start_ms,
            lease_end_ms=start_ms + length_ms,
            ends_at_ns=ends_ns,
            controller_epoch=epoch,
        ),
    )


def active_broker(h: HistoryBuilder) -> None:
    """An active controller, and a broker that it has unfenced and granted a lease."""
    h.add(ONE, ControllerElected(epoch=1, log_end=0, last_epoch=0))
    h.add(
        ONE, BrokerCommitted(offset=5, broker_id=1, broker_epoch=5, fenced=False, incarnation="x")
    )
    answer(h)
    grant(h)
    h.add(
        BROKER,
        BrokerStateChanged(
            broker_id=1, old="FENCED", new="ACTIVE", broker_epoch=5, reason="unfenced"
        ),
    )


def fence_itself(h: HistoryBuilder) -> None:
    h.add(
        BROKER,
        BrokerStateChanged(
            broker_id=1, old="ACTIVE", new="FENCED", broker_epoch=5, reason="lease_expired"
        ),
    )


def expired(
    h: HistoryBuilder,
    at_ms: int = LEASE_MS,
    process: str = ONE,
    epoch: int = 1,
    period_ms: int = LEASE_MS,
) -> None:
    """A controller finds that the broker's lease has ended."""
    h.add(
        process,
        LeaseExpired(
            broker_id=1,
            broker_epoch=5,
            last_heard_ns=0,
            now_ns=at_ms * MS,
            lease_period_ms=period_ms,
            controller_epoch=epoch,
        ),
    )


def expire(h: HistoryBuilder) -> None:
    """The lease has ended, and the fencing is stored."""
    expired(h)
    for process in (ONE, TWO):
        h.add(
            process,
            BrokerCommitted(offset=9, broker_id=1, broker_epoch=5, fenced=True, incarnation="x"),
        )


def isolated(h: HistoryBuilder) -> None:
    """A controller that renews a lease, and its successor a while later."""
    h.add(ONE, ControllerElected(epoch=1, log_end=0, last_epoch=0))
    answer(h)
