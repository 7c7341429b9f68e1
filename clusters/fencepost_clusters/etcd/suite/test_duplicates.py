"""A second process with a member's id and a copy of its disk, as a restored snapshot would be."""

from __future__ import annotations

import pytest

from fencepost.testing import Faults
from fencepost_clusters.etcd.cluster import EtcdCluster

clause = pytest.mark.clause


@clause("ETCD-01")
def test_two_processes_of_one_member_elect_no_second_leader(
    cluster: EtcdCluster, faults: Faults
) -> None:
    leader, doubled = cluster.leader(), cluster.followers()[0]
    second = cluster.node(f"{doubled.name}-duplicate")
    # In touch with the leader, the second process would acknowledge entries in the member's name.
    # The first one, which lacks them, would end itself: "tocommit(9) is out of range".
    with faults.cut(leader, second) as apart, faults.duplicate_id(doubled, disk="copy"):
        cluster.eventually(second.standing)
        assert apart.await_receipt().true
    cluster.eventually(cluster.recovered)
