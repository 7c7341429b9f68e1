"""Defects of the plane without a controller, by the clauses of the replication design."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from fencepost import Defect
from fencepost_clusters.reference.classic.core.znodes import StateChange
from fencepost_clusters.reference.policies import Policies, PolicyDefect
from fencepost_clusters.zookeeper.client import port as zk


def _always(*_: object) -> bool:
    return True


def _never(*_: object) -> bool:
    return False


# A partition without an ISR is left alone: there the first replicas to stand are no violation.
def _outside_first(
    replicas: Sequence[int], isr: Collection[int], live: Collection[int]
) -> tuple[int, ...]:
    outside = tuple(r for r in replicas if r in live and isr and r not in isr)
    return (*outside, *(r for r in replicas if r in live and (not isr or r in isr)))


# While a member of the ISR lives, the members alone stand, as they should.
def _any_live(
    replicas: Sequence[int], isr: Collection[int], live: Collection[int]
) -> tuple[int, ...]:
    standing = tuple(r for r in replicas if r in live and (not isr or r in isr))
    return standing or tuple(r for r in replicas if r in live)


# A new partition has no ISR so far, so nobody stands for it.
def _only_members(
    replicas: Sequence[int], isr: Collection[int], live: Collection[int]
) -> tuple[int, ...]:
    return tuple(r for r in replicas if r in live and r in isr)


# Every broker still waits for its turn, so that one of them wins, but not by the order of the
# replicas.
def _lowest_id_first(me: int, replicas: Sequence[int], standing: Sequence[int], ns: int) -> int:
    return ns * (1 + sorted(standing).index(me))


# The znode still admits one leader. Only which replica it is has become a matter of chance.
def _at_once(me: int, replicas: Sequence[int], standing: Sequence[int], ns: int) -> int:
    return 0


def _same_epoch(epoch: int) -> int:
    return epoch


def _drops_unassigned_and_delete(change: StateChange) -> bool:
    return change not in (StateChange.UNASSIGNED, StateChange.DELETE)


# What is there at the start is read. Only later changes of the list of topics go unnoticed.
def _reads_lists_once(watched: str, known: bool) -> bool:
    return not known or watched != "Topics"


# ZooKeeper refuses the second znode, but the replica takes the refusal for its election.
def _any_answer(result: zk.WriteResult) -> bool:
    return True


def _with(**decisions: Callable[..., Any]) -> Callable[[Policies], Policies]:
    return lambda p: replace(p, classic=replace(p.classic, **decisions))


def _never_goes_back(p: Policies) -> Policies:
    election = replace(p.cluster.election, returns_to_preferred=_never)
    return replace(p, cluster=replace(p.cluster, election=election))


def _defect(
    name: str, breaks: str | tuple[str, ...], how: str, change: Callable[[Policies], Policies]
) -> PolicyDefect:
    clauses = (breaks,) if isinstance(breaks, str) else breaks
    return PolicyDefect(Defect(name, clauses, how), change)


DEFECTS = (
    _defect(
        "stands-by-lowest-id",
        "RP-02",
        "the broker with the lowest id wins each election",
        _with(waits_ns=_lowest_id_first),
    ),
    _defect(
        "stands-outside-isr",
        "RP-06",
        "a replica outside the ISR is elected while an in-sync one lives",
        _with(electors=_outside_first),
    ),
    _defect(
        "stands-without-isr",
        ("RP-29", "RP-06"),
        "any live replica is elected once the ISR is dead",
        _with(electors=_any_live),
    ),
    _defect(
        "two-leaders-elected",
        ("RP-14", "RP-24"),
        "a replica that finds a leader's znode becomes leader, too",
        _with(has_won=_any_answer),
    ),
    _defect(
        "no-head-start",
        "RP-14",
        "every replica stands at once, the preferred one among them",
        _with(waits_ns=_at_once),
    ),
    _defect(
        "serves-before-isr-stored",
        "RP-16",
        "a new leader serves before its ISR is stored",
        _with(prepares=_never),
    ),
    _defect(
        "waits-for-no-member",
        ("RP-16", "RP-34"),
        "a new leader does not wait for the live members of the ISR",
        _with(has_waited=_always),
    ),
    _defect(
        "only-members-stand",
        "RP-17",
        "a new partition never gets a leader",
        _with(electors=_only_members),
    ),
    _defect(
        "loses-state-requests",
        "RP-23",
        "an unassigned or delete request is lost",
        _with(carries_out=_drops_unassigned_and_delete),
    ),
    _defect(
        "keeps-elected-epoch",
        "RP-24",
        "two leaders serve one epoch",
        _with(next_leader_epoch=_same_epoch),
    ),
    _defect(
        "notices-no-new-topic",
        "RP-30",
        "a topic that is created after start-up is not noticed",
        _with(notices=_reads_lists_once),
    ),
    _defect(
        "leadership-never-returns",
        "RP-21",
        "leadership never goes back, and load piles up on one broker",
        _never_goes_back,
    ),
)
