"""Histories of one broker id: its processes, its records and its leases."""

from __future__ import annotations

from fencepost import NodeStarted, ProcessExited
from fencepost.testing import HistoryBuilder, Verdict, judge
from fencepost_kafka import BrokerCommitted, BrokerStateChanged, LeaseGranted, MetadataCommitted
from fencepost_suites import rules
from fencepost_suites.plugin import DECLARED

CLAUSES = {clause.id: clause for clause in DECLARED.clauses}
CONTROLLER, OTHER = "controller-1#1", "controller-2#1"
OLD, NEW = "broker-1#1", "broker-1#2"
LEASE_MS = 3000


def verdict(h: HistoryBuilder, clause: str, complete: bool = True) -> Verdict:
    chosen = [rule for rule in rules.ALL if rule.clause == clause]
    return judge(h.events(), chosen, CLAUSES, h.end(complete), "quorum").verdicts[clause]


def grant(
    h: HistoryBuilder,
    process: str,
    next_state: str = "ACTIVE",
    epoch: int = 5,
    start_ms: int = 0,
) -> None:
    ends_ns = h.now_ns + LEASE_MS * 1_000_000
    h.add(
        process,
        LeaseGranted(
            broker_id=1,
            broker_epoch=epoch,
            next_state=next_state,
            lease_start_ms=start_ms,
            lease_end_ms=start_ms + LEASE_MS,
            ends_at_ns=ends_ns,
            controller_epoch=1,
        ),
    )


def change(
    h: HistoryBuilder, old: str, new: str, epoch: int = 5, process: str = OLD, why: str = "x"
) -> None:
    h.add(
        process, BrokerStateChanged(broker_id=1, old=old, new=new, broker_epoch=epoch, reason=why)
    )


def record(
    h: HistoryBuilder,
    offset: int,
    epoch: int,
    fenced: bool,
    incarnation: str = "old",
    process: str = CONTROLLER,
) -> None:
    h.add(
        process,
        BrokerCommitted(
            offset=offset, broker_id=1, broker_epoch=epoch, fenced=fenced, incarnation=incarnation
        ),
    )


def written(h: HistoryBuilder, offset: int, term: int) -> None:
    """An entry that is committed: the record itself follows."""
    h.add(
        CONTROLLER,
        MetadataCommitted(offset=offset, epoch=term, kind="BrokerRecord", digest=""),
    )


def bounced(h: HistoryBuilder) -> None:
    """A broker killed while its lease runs, and its next process."""
    h.add(OLD, NodeStarted(role="broker", node_id=1, incarnation="old", log_end=0))
    grant(h, OLD)
    h.add("harness", ProcessExited(ended=OLD, exit_code=-9, signal=9, expected=True))
    h.add(NEW, NodeStarted(role="broker", node_id=1, incarnation="new", log_end=0))
