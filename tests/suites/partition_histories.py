"""Histories of the partition `orders-0` with three replicas, for the rules of several families."""

from __future__ import annotations

from typing import Literal

from fencepost import Excused, Fact, Facts, Scope, Undecided
from fencepost.testing import Broken, HistoryBuilder, Verdict, judge
from fencepost_kafka import (
    FollowingStarted,
    LeadershipStarted,
    MetadataCommitted,
    PartitionCommitted,
)
from fencepost_plugins import stopping
from fencepost_suites import rules
from fencepost_suites.plugin import DECLARED

CLAUSES = {clause.id: clause for clause in (*DECLARED.clauses, *stopping.fencepost_clauses())}
B1, B2, B3 = "broker-1#1", "broker-2#1", "broker-3#1"
CONTROLLER = "controller-1#1"
CLIENT = "clients/producer#1"
ALL3 = (1, 2, 3)


def verdict(h: HistoryBuilder, clause: str, complete: bool = True) -> Verdict:
    chosen = [rule for rule in rules.ALL if rule.clause == clause]
    return judge(h.events(), chosen, CLAUSES, h.end(complete), "quorum").verdicts[clause]


def lead(
    h: HistoryBuilder, process: str, epoch: int, log_end: int = 0, mark: int = 0, *, start: int = 0
) -> None:
    h.add(
        process,
        LeadershipStarted(
            topic="orders",
            partition=0,
            leader_epoch=epoch,
            isr=ALL3,
            log_start=start,
            log_end=log_end,
            high_watermark=mark,
        ),
    )


def follow(
    h: HistoryBuilder, process: str, log_end: int, mark: int, leader: int = 1, epoch: int = 1
) -> None:
    h.add(
        process,
        FollowingStarted(
            topic="orders",
            partition=0,
            leader=leader,
            leader_epoch=epoch,
            log_end=log_end,
            high_watermark=mark,
        ),
    )


def partition(
    h: HistoryBuilder,
    offset: int,
    *,
    leader: int,
    epoch: int,
    isr: tuple[int, ...] = ALL3,
    replicas: tuple[int, ...] = ALL3,
    adding: tuple[int, ...] = (),
    removing: tuple[int, ...] = (),
    eligible: tuple[int, ...] = (),
    skipped: int = 0,
    process: str = CONTROLLER,
    role: Literal["broker", "controller", ""] = "",
) -> None:
    """A record of the partition, as that process replayed it."""
    h.add(
        process,
        PartitionCommitted(
            offset=offset,
            topic="orders",
            partition=0,
            leader=leader,
            leader_epoch=epoch,
            isr=isr,
            replicas=replicas,
            adding=adding,
            removing=removing,
            eligible=eligible,
            skipped=skipped,
            role=role,
        ),
    )


def record(h: HistoryBuilder, offset: int, process: str = CONTROLLER) -> None:
    """That process names the next event as a record of the metadata log."""
    h.add(process, MetadataCommitted(offset=offset, epoch=1, kind="", digest=""))


def stated(found: Verdict | Broken | Excused | Undecided, *names: str) -> object:
    """These facts of a finding, or of a verdict's first violation: several as a tuple, one as
    itself. A scope is its name, with its kind where that is a number: `orders-0`, `broker 2`."""
    one = found.violations[0] if isinstance(found, Verdict) else found
    return _values(one.facts, names)


def why(found: Verdict, *names: str) -> object:
    """These facts of why the first finding that was excused or left undecided was, as `stated`."""
    return _values([*found.excuses, *found.undecided][0].why, names)


def _values(facts: Facts, names: tuple[str, ...]) -> object:
    values = tuple(_plain(facts[name]) for name in names)
    return values[0] if len(values) == 1 else values


def _plain(fact: Fact) -> object:
    if isinstance(fact, tuple):
        return tuple(map(_plain, fact))
    if isinstance(fact, Scope):
        return fact.name if any(map(str.isalpha, fact.name)) else fact.words
    return fact
