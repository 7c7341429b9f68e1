"""The arguments that all nodes of one process share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from fencepost_clusters.reference.core.node.effects import Chance, Instant
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.quorum.policies import QuorumPolicies


@dataclass(frozen=True, slots=True)
class Process:
    """See the module. `calls` numbers the calls of all nodes of the process."""

    incarnation: UUID
    started: Instant
    chance: Chance
    policies: QuorumPolicies
    calls: Iterator[int]

    def outbox(self) -> Outbox:
        """The outbox of one node."""
        return Outbox(self.calls)
