"""Keys stay linearizable while links between members are cut one way, both ways, or slow."""

from __future__ import annotations

import pytest

from fencepost.testing import Faults
from fencepost_clusters.etcd.cluster import EtcdCluster
from fencepost_clusters.etcd.workload import EtcdClients

clause = pytest.mark.clause


@clause("ETCD-02", "ETCD-03")
def test_a_follower_cut_off_from_the_leader_serves_no_stale_read(
    cluster: EtcdCluster, faults: Faults, clients: EtcdClients
) -> None:
    leader, deaf = cluster.leader(), cluster.followers()[0]
    asks_deaf = clients.registers(at=[deaf])
    asks_leader = clients.registers(at=[leader])
    cluster.eventually(asks_deaf.completed_at_least(20) & asks_leader.completed_at_least(20))
    with faults.cut(leader, deaf):
        cluster.eventually(deaf.leaderless)
        cluster.eventually(asks_leader.completed_at_least(60))
    cluster.eventually(cluster.recovered)


@clause("ETCD-01", "ETCD-02", "ETCD-03")
def test_the_larger_side_of_a_partition_goes_on(
    cluster: EtcdCluster, faults: Faults, clients: EtcdClients
) -> None:
    old, others = cluster.leader(), cluster.followers()
    writes = clients.registers(at=others)
    clients.registers(at=[old])
    cluster.eventually(writes.completed_at_least(20))
    with faults.partition(old, others):
        cluster.eventually(cluster.another_leader(old))
        cluster.eventually(writes.completed_at_least(60))
    cluster.eventually(cluster.recovered)


@clause("ETCD-02", "ETCD-03")
def test_slow_links_between_members_keep_the_order(
    cluster: EtcdCluster, faults: Faults, clients: EtcdClients
) -> None:
    leader, followers = cluster.leader(), cluster.followers()
    first = clients.registers("slow", at=[leader])
    second = clients.registers("slow", at=followers)
    with faults.slow_link(leader, followers, latency_ms=60):
        cluster.eventually(first.completed_at_least(20) & second.completed_at_least(20))
