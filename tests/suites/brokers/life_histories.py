"""Histories of a broker's life: its start, its sessions and its stop."""

from __future__ import annotations

from tests.suites.brokers.broker_histories import BROKER, MS, NEW, PROBE, grant

from fencepost import NodeStarted
from fencepost.testing import HistoryBuilder
from fencepost_kafka import (
    BrokerCommitted,
    BrokerStateChanged,
    BrokerStopping,
    HeartbeatAnswered,
    HeartbeatSent,
    PartitionCommitted,
    ProbeCompleted,
    RequestRefused,
)


def change(h: HistoryBuilder, old: str, new: str, why: str = "x", said: str = "") -> None:
    h.add(
        BROKER,
        BrokerStateChanged(
            broker_id=1, old=old, new=new, broker_epoch=5, reason=why, global_state=said
        ),
    )


def probe(h: HistoryBuilder, outcome: str, sent_ms: int, brokers: tuple[int, ...] = ()) -> None:
    """A probe of broker 1 that ended now; `sent_ms` counts from the beginning of the history."""
    sent_ns = (1_000 + sent_ms) * MS
    h.add(
        PROBE,
        ProbeCompleted(
            operation="p",
            api="Metadata",
            broker=1,
            slot="broker-1",
            topic="orders",
            partition=-1,
            outcome=outcome,
            error="",
            records=0,
            base_offset=-1,
            sent_at_ns=sent_ns,
            brokers=brokers,
        ),
    )


def online(h: HistoryBuilder) -> None:
    h.add(BROKER, NodeStarted(role="broker", node_id=1, incarnation="x", log_end=0))
    grant(h)
    change(h, "FENCED", "ACTIVE")


def refuse(h: HistoryBuilder) -> None:
    error = "BROKER_NOT_AVAILABLE"
    h.add(
        BROKER,
        RequestRefused(
            api="Metadata",
            topic="",
            partition=-1,
            client=PROBE,
            requester=-1,
            error=error,
            reason="fenced",
            state="FENCED",
        ),
    )


def knows_fenced(h: HistoryBuilder) -> None:
    h.add(BROKER, NodeStarted(role="broker", node_id=1, incarnation="x", log_end=0))
    h.add(
        BROKER, BrokerCommitted(offset=7, broker_id=2, broker_epoch=5, fenced=True, incarnation="y")
    )


def asked(h: HistoryBuilder, leading: bool = True) -> None:
    leader = 1 if leading else 2
    h.add(
        BROKER,
        PartitionCommitted(
            offset=6,
            topic="orders",
            partition=0,
            leader=leader,
            leader_epoch=1,
            isr=(1, 2),
            replicas=(1, 2),
        ),
    )
    h.add(
        BROKER, BrokerStopping(broker_id=1, state="ACTIVE", global_state="Stopping", limit_ms=6000)
    )


def tell(h: HistoryBuilder, next_state: str = "SHUTDOWN") -> None:
    h.add(
        NEW,
        HeartbeatAnswered(
            client=BROKER,
            broker_id=1,
            incarnation="x",
            request_epoch=5,
            broker_epoch=5,
            error="NONE",
            next_state=next_state,
            lease_start_ms=0,
            lease_end_ms=3000,
            lease_period_ms=3000,
            controller_epoch=1,
            active_controller=102,
            active=True,
        ),
    )


def register(h: HistoryBuilder) -> None:
    h.add(
        BROKER,
        HeartbeatSent(
            broker_id=1,
            broker_epoch=-1,
            controller=102,
            correlation=1,
            target_state="ACTIVE",
            lease_start_ms=0,
            metadata_offset=-1,
        ),
    )
    h.add(
        NEW,
        HeartbeatAnswered(
            client=BROKER,
            broker_id=1,
            incarnation="x",
            request_epoch=-1,
            broker_epoch=5,
            error="NONE",
            next_state="FENCED",
            lease_start_ms=0,
            lease_end_ms=3000,
            lease_period_ms=3000,
            controller_epoch=1,
            active_controller=102,
            active=True,
        ),
    )
