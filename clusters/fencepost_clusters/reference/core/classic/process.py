"""The parameters of a process of the plane without a controller."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from fencepost_clusters.reference.core.classic.policies import ClassicPolicies
from fencepost_clusters.reference.core.cluster.policies import ClusterPolicies
from fencepost_clusters.reference.core.node.effects import Instant
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.replication.policies import ReplicationPolicies


@dataclass(frozen=True, slots=True)
class PlanePolicies:
    """The decisions of this plane's nodes; see `core/policies.py`."""

    cluster: ClusterPolicies
    replication: ReplicationPolicies
    classic: ClassicPolicies


@dataclass(frozen=True, slots=True)
class ClassicProcess:
    """See the module. `endpoints` are its listeners with host and port. `calls` numbers its calls
    and its requests to ZooKeeper."""

    incarnation: UUID
    started: Instant
    policies: PlanePolicies
    endpoints: tuple[tuple[str, str, int], ...]
    calls: Iterator[int]

    def outbox(self) -> Outbox:
        """The node's outbox."""
        return Outbox(self.calls)
