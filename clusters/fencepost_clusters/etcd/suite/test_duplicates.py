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
    doubled = cluster.followers()[0]
    with faults.duplicate_id(doubled, disk="copy"):
        assert cluster.holds(cluster.node(f"{doubled.name}-duplicate").alive)
    cluster.eventually(cluster.recovered)
