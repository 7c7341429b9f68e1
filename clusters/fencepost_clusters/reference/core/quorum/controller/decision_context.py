"""The context in which the active controller decides about a change."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from fencepost_clusters.reference.core.cluster.decisions import DecisionContext
from fencepost_clusters.reference.core.quorum.controller.policies import ControllerPolicies
from fencepost_clusters.reference.core.quorum.raft.electorate import Voters
from fencepost_clusters.reference.core.quorum.raft.serving import Fetched


class Quorum(Struct, frozen=True, kw_only=True):
    """The quorum as its leader knows it; `ends` are the log ends of its voters.

    `settled`: the newest change of `voters`, and a record of this epoch, are committed. `observed`
    is the newest fetch of each other node, whether it votes or not. `now_ms` is the leader's wall
    clock.
    """

    leader: int
    epoch: int
    high_watermark: int
    ends: tuple[tuple[int, int], ...]
    voters: Voters
    settled: bool
    observed: Mapping[int, Fetched]
    now_ms: int


class QuorumContext(Struct, frozen=True):
    """The context of decisions about the cluster, and the quorum itself."""

    cluster: DecisionContext
    quorum: Quorum
    policies: ControllerPolicies
