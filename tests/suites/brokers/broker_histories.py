"""Histories of one broker and its controllers, for the rules of a broker's life."""

from __future__ import annotations

from fencepost.testing import HistoryBuilder, Verdict, judge
from fencepost_kafka import BrokerCommitted, LeaseGranted
from fencepost_suites import rules
from fencepost_suites.plugin import DECLARED

CLAUSES = {clause.id: clause for clause in DECLARED.clauses}
OLD, NEW, PEER = "controller-1#1", "controller-2#1", "controller-3#1"
BROKER, OTHER, PROBE = "broker-1#1", "broker-2#1", "clients/probe-1#1"
MS = 1_000_000
LEASE_MS = 3000


def verdict(h: HistoryBuilder, clause: str, complete: bool = True) -> Verdict:
    chosen = [rule for rule in rules.ALL if rule.clause == clause]
    return judge(h.events(), chosen, CLAUSES, h.end(complete), "quorum").verdicts[clause]


def record(h: HistoryBuilder, offset: int, fenced: bool, process: str = PEER) -> None:
    h.add(
        process,
        BrokerCommitted(offset=offset, broker_id=1, broker_epoch=5, fenced=fenced, incarnation="x"),
    )


def grant(h: HistoryBuilder, epoch: int = 2, next_state: str = "ACTIVE") -> None:
    ends_ns = h.now_ns + LEASE_MS * MS
    h.add(
        BROKER,
        LeaseGranted(
            broker_id=1,
            broker_epoch=5,
            next_state=next_state,
            lease_start_ms=0,
            lease_end_ms=LEASE_MS,
            ends_at_ns=ends_ns,
            controller_epoch=epoch,
        ),
    )
