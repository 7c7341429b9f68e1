"""The parameters of a process over ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from fencepost_clusters.reference.core.cluster.policies import ClusterPolicies
from fencepost_clusters.reference.core.legacy.policies import LegacyPolicies
from fencepost_clusters.reference.core.node.effects import Address, Instant
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.replication.policies import ReplicationPolicies


@dataclass(frozen=True, slots=True)
class PlanePolicies:
    """The decisions of this plane's nodes; see `core/policies.py`."""

    cluster: ClusterPolicies
    replication: ReplicationPolicies
    legacy: LegacyPolicies


@dataclass(frozen=True, slots=True)
class LegacyProcess:
    """See the module.

    `name` is the name of the process, `address` where other nodes reach it, `endpoints` are its
    listeners with host and port. `calls` numbers its calls and its requests to ZooKeeper.
    """

    incarnation: UUID
    started: Instant
    policies: PlanePolicies
    name: str
    address: Address
    endpoints: tuple[tuple[str, str, int], ...]
    calls: Iterator[int]

    def outbox(self) -> Outbox:
        """The node's outbox."""
        return Outbox(self.calls)
