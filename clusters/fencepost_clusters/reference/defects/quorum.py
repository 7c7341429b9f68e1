"""Defects of the quorum: votes, leaders that do not resign, voters that are not followed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from fencepost import Defect
from fencepost_clusters.reference.core.node.effects import NEVER_NS, Address
from fencepost_clusters.reference.core.quorum.raft.policies import LogEnd
from fencepost_clusters.reference.policies import Policies, PolicyDefect


# Votes are still stored, and refused to candidates whose log is shorter or whose epoch is past.
def _vote_never_taken(leader: int | None, voted_for: int | None, candidate: int) -> None:
    return None


def _votes_twice(p: Policies) -> Policies:
    return replace(p, raft=replace(p.raft, vote_taken=_vote_never_taken))


# The winner lacks committed records, and with its log the others cut theirs off: a record that was
# committed is lost, so a second clause is broken.
def _any_log_is_complete(candidate: LogEnd, voter: LogEnd) -> bool:
    return True


def _elects_shorter_log(p: Policies) -> Policies:
    return replace(p, raft=replace(p.raft, log_is_complete=_any_log_is_complete))


def _never_resigns(majority_seen_ns: int | None, resign_after_ns: int) -> int:
    return NEVER_NS


def _isolated_controller_stays(p: Policies) -> Policies:
    return replace(p, raft=replace(p.raft, resigns_at_ns=_never_resigns))


# Voters that were added later are in the log alone, and a broker that does not follow them is lost
# once the first ones are gone.
def _configured_voters(
    learned: Mapping[int, Address], bootstrap: Collection[Address]
) -> Mapping[int, Address]:
    return {node: address for node, address in learned.items() if address in bootstrap}


def _follows_bootstrap_only(p: Policies) -> Policies:
    return replace(p, raft=replace(p.raft, voters_to_follow=_configured_voters))


DEFECTS = (
    PolicyDefect(
        Defect("votes-twice", ("QC-07",), "a controller votes twice in one epoch"),
        _votes_twice,
    ),
    PolicyDefect(
        Defect(
            "elects-shorter-log",
            ("QC-28", "QC-07"),
            "a controller with a shorter log is voted for",
        ),
        _elects_shorter_log,
    ),
    PolicyDefect(
        Defect(
            "isolated-controller-stays",
            ("QC-36",),
            "an isolated controller renews leases for good",
        ),
        _isolated_controller_stays,
    ),
    PolicyDefect(
        Defect(
            "follows-bootstrap-only", ("QC-29",), "brokers follow only their bootstrap addresses"
        ),
        _follows_bootstrap_only,
    ),
)
