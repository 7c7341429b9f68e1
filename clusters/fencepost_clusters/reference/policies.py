"""The policies of a node: every decision that a defect of the reference cluster can replace.

A policy is a pure function with a name. The modules of the core call it to decide, and get their
group of policies when they are constructed. The defaults are the protocol. A defect is a `Policies`
with one decision replaced. The defects are in `reference/defects`, and those of the planes over
ZooKeeper with these.

See docs/decisions/29-defects.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fencepost import Defect
from fencepost_clusters.reference.classic.core.policies import ClassicPolicies
from fencepost_clusters.reference.classic.core.policies import PlanePolicies as ClassicPlane
from fencepost_clusters.reference.core.cluster.policies import ClusterPolicies
from fencepost_clusters.reference.core.quorum.broker.policies import BrokerPolicies
from fencepost_clusters.reference.core.quorum.controller.policies import ControllerPolicies
from fencepost_clusters.reference.core.quorum.metadata.policies import MetadataPolicies
from fencepost_clusters.reference.core.quorum.policies import QuorumPolicies
from fencepost_clusters.reference.core.quorum.raft.policies import RaftPolicies
from fencepost_clusters.reference.core.replication.policies import ReplicationPolicies
from fencepost_clusters.reference.legacy.core.policies import LegacyPolicies
from fencepost_clusters.reference.legacy.core.policies import PlanePolicies as LegacyPlane


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies of every plane (`cluster`, `replication`), of the planes over ZooKeeper
    (`legacy`, `classic`), and of the quorum."""

    cluster: ClusterPolicies = field(default_factory=ClusterPolicies)
    replication: ReplicationPolicies = field(default_factory=ReplicationPolicies)
    raft: RaftPolicies = field(default_factory=RaftPolicies)
    metadata: MetadataPolicies = field(default_factory=MetadataPolicies)
    controller: ControllerPolicies = field(default_factory=ControllerPolicies)
    broker: BrokerPolicies = field(default_factory=BrokerPolicies)
    legacy: LegacyPolicies = field(default_factory=LegacyPolicies)
    classic: ClassicPolicies = field(default_factory=ClassicPolicies)

    def of_quorum(self) -> QuorumPolicies:
        """The policies for nodes of the quorum."""
        return QuorumPolicies(
            raft=self.raft,
            metadata=self.metadata,
            controller=self.controller,
            broker=self.broker,
            cluster=self.cluster,
            replication=self.replication,
        )

    def of_legacy(self) -> LegacyPlane:
        """The policies for a node of the plane with a controller over ZooKeeper."""
        return LegacyPlane(self.cluster, self.replication, self.legacy)

    def of_classic(self) -> ClassicPlane:
        """The policies for a node of the plane without a controller."""
        return ClassicPlane(self.cluster, self.replication, self.classic)


@dataclass(frozen=True, slots=True)
class PolicyDefect:
    """A defect as the framework describes it, and the policies of a node that has it."""

    defect: Defect
    replace: Callable[[Policies], Policies]
