"""Histories of one broker that is fenced, and of a second process with its id."""

from __future__ import annotations

from tests.suites.replication import replication_histories

from fencepost import NodeStarted
from fencepost.testing import HistoryBuilder, Verdict, judge
from fencepost_kafka import (
    BrokerCommitted,
    BrokerStateChanged,
    FetchServed,
    FollowerFetched,
    HeartbeatAnswered,
    LeaseGranted,
    ProbeCompleted,
    RequestRefused,
)
from fencepost_suites import rules
from fencepost_suites.plugin import DECLARED

CLAUSES = {clause.id: clause for clause in DECLARED.clauses}
CONTROLLER, BROKER, DUPLICATE = "controller-1#1", "broker-1#1", "broker-1-duplicate#1"
LEADER, PROBE = "broker-2#1", "clients/probe#1"
MS = 1_000_000


def verdict(
    h: HistoryBuilder, clause: str, complete: bool = True, plane: str = "quorum"
) -> Verdict:
    chosen = [rule for rule in rules.ALL if rule.clause == clause]
    return judge(h.events(), chosen, CLAUSES, h.end(complete), plane).verdicts[clause]


def change(h: HistoryBuilder, old: str, new: str, process: str = BROKER) -> None:
    h.add(process, BrokerStateChanged(broker_id=1, old=old, new=new, broker_epoch=5, reason="x"))


def store(h: HistoryBuilder, as_leader: bool = True, process: str = BROKER) -> None:
    replication_histories.store(h, process, 7, as_leader=as_leader)


def serve(h: HistoryBuilder) -> None:
    h.add(
        BROKER,
        FetchServed(
            topic="orders",
            partition=0,
            client=PROBE,
            from_offset=0,
            to_offset=7,
            high_watermark=7,
            leader_epoch=1,
            state="FENCED",
        ),
    )


def refuse(h: HistoryBuilder, api: str = "Fetch", reason: str = "fenced") -> None:
    error = "NOT_LEADER_OR_FOLLOWER"
    h.add(
        BROKER,
        RequestRefused(
            api=api,
            topic="orders",
            partition=0,
            client=PROBE,
            requester=-1,
            error=error,
            reason=reason,
            state="FENCED",
        ),
    )


def probe(h: HistoryBuilder, outcome: str, sent_ms: int = 0, api: str = "Fetch") -> None:
    """A probe that ended now and was sent this many milliseconds after the history began."""
    error = "NOT_LEADER_OR_FOLLOWER" if outcome == "refused" else ""
    h.add(
        PROBE,
        ProbeCompleted(
            operation="p",
            api=api,
            broker=1,
            slot="broker-1",
            topic="orders",
            partition=0,
            outcome=outcome,
            error=error,
            records=0,
            base_offset=-1,
            sent_at_ns=(1000 + sent_ms) * MS,
        ),
    )


def active(h: HistoryBuilder, lease_ms: int = 3000) -> None:
    h.add(BROKER, NodeStarted(role="broker", node_id=1, incarnation="old", log_end=0))
    h.add(
        BROKER,
        LeaseGranted(
            broker_id=1,
            broker_epoch=5,
            next_state="ACTIVE",
            lease_start_ms=0,
            lease_end_ms=lease_ms,
            ends_at_ns=h.now_ns + lease_ms * MS,
            controller_epoch=1,
        ),
    )
    change(h, "FENCED", "ACTIVE")


def taken_over(h: HistoryBuilder, *informed: str) -> None:
    """Two processes with one id; the named nodes have replayed the newer registration."""
    h.add(BROKER, NodeStarted(role="broker", node_id=1, incarnation="old", log_end=0))
    h.add(DUPLICATE, NodeStarted(role="broker", node_id=1, incarnation="new", log_end=0))
    for process in (CONTROLLER, LEADER):
        h.add(
            process,
            BrokerCommitted(offset=5, broker_id=1, broker_epoch=5, fenced=False, incarnation="old"),
        )
    change(h, "FENCED", "ACTIVE")
    for process in informed:
        h.add(
            process,
            BrokerCommitted(offset=9, broker_id=1, broker_epoch=9, fenced=True, incarnation="new"),
        )


def beat(h: HistoryBuilder, incarnation: str, error: str = "NONE") -> None:
    client = BROKER if incarnation == "old" else DUPLICATE
    h.add(
        CONTROLLER,
        HeartbeatAnswered(
            client=client,
            broker_id=1,
            incarnation=incarnation,
            request_epoch=5,
            broker_epoch=5,
            error=error,
            next_state="ACTIVE",
            lease_start_ms=0,
            lease_end_ms=3000,
            lease_period_ms=3000,
            controller_epoch=1,
            active_controller=101,
            active=True,
        ),
    )


def count(h: HistoryBuilder, client: str, epoch: int = 5) -> None:
    h.add(
        LEADER,
        FollowerFetched(
            topic="orders",
            partition=0,
            leader_epoch=1,
            follower=1,
            client=client,
            broker_epoch=epoch,
            offset=7,
        ),
    )
