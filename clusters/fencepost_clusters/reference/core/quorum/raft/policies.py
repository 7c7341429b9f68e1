"""Raft's decisions that a defect can replace, as pure functions; see `quorum.policies`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from fencepost_clusters.reference.core.node.effects import NEVER_NS, Address

LogEnd = tuple[int, int]
"""The epoch of a log's last record, and the offset after it: the order in which Raft compares."""
VoteReason = Literal["granted", "old_epoch", "has_leader", "already_voted", "log_behind"]
"""Why a vote was granted or refused."""


def vote_taken(leader: int | None, voted_for: int | None, candidate: int) -> VoteReason | None:
    """Why this epoch's vote can no longer go to a candidate, or None (QC-07)."""
    if leader is not None:
        return "has_leader"
    return "already_voted" if voted_for not in (None, candidate) else None


def log_is_complete(candidate: LogEnd, voter: LogEnd) -> bool:
    """Whether a candidate's log holds at least what the voter's log holds (QC-28)."""
    return candidate >= voter


def resigns_at_ns(majority_seen_ns: int | None, resign_after_ns: int) -> int:
    """When a leader resigns: a set time after the last fetch that completed a majority (QC-36).

    `majority_seen_ns` is None for a leader that is a majority by itself.
    """
    return NEVER_NS if majority_seen_ns is None else majority_seen_ns + resign_after_ns


def voters_to_follow(
    learned: Mapping[int, Address], bootstrap: Collection[Address]
) -> Mapping[int, Address]:
    """The voters that a broker follows: all that it has learned, configured or not (QC-29)."""
    return learned


@dataclass(frozen=True, slots=True)
class RaftPolicies:
    """See the module."""

    vote_taken: Callable[[int | None, int | None, int], VoteReason | None] = vote_taken
    log_is_complete: Callable[[LogEnd, LogEnd], bool] = log_is_complete
    resigns_at_ns: Callable[[int | None, int], int] = resigns_at_ns
    voters_to_follow: Callable[
        [Mapping[int, Address], Collection[Address]], Mapping[int, Address]
    ] = voters_to_follow
