"""A node's part in the quorum: its id, its times, its random source and its policies."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost_clusters.reference.core.node.effects import Chance
from fencepost_clusters.reference.core.node.settings import Settings
from fencepost_clusters.reference.core.quorum.raft.policies import RaftPolicies


@dataclass(frozen=True, slots=True)
class RaftTiming:
    """All in nanoseconds. An election timeout is drawn between one and two `election_ns`."""

    election_ns: int
    fetch_timeout_ns: int
    fetch_wait_ns: int

    @property
    def resign_after_ns(self) -> int:
        """Shorter than any follower waits before it stands for election, by a fifth for a slow
        machine."""
        return self.fetch_timeout_ns - self.fetch_timeout_ns // 5


def raft_timing(settings: Settings) -> RaftTiming:
    """The quorum's times from a node's settings."""
    fetch_timeout_ns = settings.ns("controller.quorum.fetch.timeout.ms")
    return RaftTiming(
        settings.ns("controller.quorum.election.timeout.ms"),
        fetch_timeout_ns,
        min(settings.ns("replica.fetch.wait.max.ms"), fetch_timeout_ns // 4),
    )


@dataclass(frozen=True, slots=True)
class Member:
    """One node of the quorum, voter or observer."""

    node_id: int
    timing: RaftTiming
    chance: Chance
    policies: RaftPolicies


@dataclass(frozen=True, slots=True)
class Vote:
    """The state that a voter must store: the newest epoch that it was in, and its vote there."""

    epoch: int = 0
    voted_for: int | None = None
