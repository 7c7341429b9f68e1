"""The arguments that all nodes of one process share, in every plane."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from fencepost import NodeStarted
from fencepost_clusters.reference.core.node.effects import Chance, Instant
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.node.settings import NodeRole
from fencepost_clusters.reference.core.node.site import Site


@dataclass(frozen=True, slots=True)
class Process:
    """See the module. `calls` numbers the calls of all nodes of the process, and its requests to
    ZooKeeper."""

    incarnation: UUID
    started: Instant
    chance: Chance
    site: Site
    calls: Iterator[int]

    def start(self, role: NodeRole, node_id: int, log_end: int = -1) -> Outbox:
        """The outbox of a node that starts now, which is its first event; `log_end` is the end of
        its metadata log, -1 without one."""
        out = Outbox(self.calls)
        out.note(
            NodeStarted(
                role=role, node_id=node_id, incarnation=str(self.incarnation), log_end=log_end
            )
        )
        return out
