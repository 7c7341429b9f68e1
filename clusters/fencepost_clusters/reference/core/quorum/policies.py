"""The policies of the quorum's nodes; see `reference/policies.py`."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost_clusters.reference.core.cluster.policies import ClusterPolicies
from fencepost_clusters.reference.core.quorum.broker.policies import BrokerPolicies
from fencepost_clusters.reference.core.quorum.controller.policies import ControllerPolicies
from fencepost_clusters.reference.core.quorum.metadata.policies import MetadataPolicies
from fencepost_clusters.reference.core.quorum.raft.policies import RaftPolicies
from fencepost_clusters.reference.core.replication.policies import ReplicationPolicies


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumPolicies:
    """See the module."""

    raft: RaftPolicies
    metadata: MetadataPolicies
    controller: ControllerPolicies
    broker: BrokerPolicies
    cluster: ClusterPolicies
    replication: ReplicationPolicies
