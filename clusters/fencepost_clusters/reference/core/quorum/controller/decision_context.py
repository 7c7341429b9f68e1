"""What the active controller decides about a change from."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from fencepost_clusters.reference.core.node.settings import Settings
from fencepost_clusters.reference.core.quorum.controller.policies import ControllerPolicies
from fencepost_clusters.reference.core.quorum.metadata.image import Image
from fencepost_clusters.reference.core.quorum.raft.electorate import Voters


class Quorum(Struct, frozen=True):
    """The quorum as its leader knows it; `ends` are the log ends of its voters.

    `settled`: the newest change of `voters`, and something of this epoch, is committed. `observed`
    is how far each other node has fetched, whether it votes or not.
    """

    leader: int
    epoch: int
    high_watermark: int
    ends: tuple[tuple[int, int], ...]
    voters: Voters
    settled: bool
    observed: Mapping[int, int]


class DecisionContext(Struct, frozen=True):
    """See the module. `end` is the offset of the first record of the decision; `ready` are the
    brokers that may get leaderships: active, with a heartbeat in this term, and not stopping."""

    image: Image
    end: int
    quorum: Quorum
    ready: frozenset[int]
    settings: Settings
    policies: ControllerPolicies
