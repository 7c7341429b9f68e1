"""One leader a term, and no acknowledged write lost, when leaders stop, die and are cut off."""

from __future__ import annotations

import pytest

from fencepost.testing import Faults
from fencepost_clusters.etcd.cluster import EtcdCluster
from fencepost_clusters.etcd.workload import EtcdClients

clause = pytest.mark.clause


@clause("ETCD-01", "ETCD-02")
def test_a_leader_that_is_killed_is_replaced_in_a_newer_term(
    cluster: EtcdCluster, faults: Faults, clients: EtcdClients
) -> None:
    writes = clients.registers()
    cluster.eventually(writes.completed_at_least(20))
    old = cluster.leader()
    with faults.kill(old):
        cluster.eventually(cluster.another_leader(old))
        cluster.eventually(writes.completed_at_least(60))
    cluster.eventually(cluster.recovered)


@clause("ETCD-01", "ETCD-02")
def test_a_leader_that_is_terminated_hands_over(
    cluster: EtcdCluster, faults: Faults, clients: EtcdClients
) -> None:
    writes = clients.registers()
    cluster.eventually(writes.completed_at_least(20))
    old = cluster.leader()
    with faults.terminate(old):
        cluster.eventually(cluster.another_leader(old))
        cluster.eventually(writes.completed_at_least(60))


@clause("ETCD-01", "ETCD-02")
def test_a_leader_that_restarts_at_once_does_not_lead_on_in_its_term(
    cluster: EtcdCluster, faults: Faults, clients: EtcdClients
) -> None:
    writes = clients.registers()
    cluster.eventually(writes.completed_at_least(20))
    faults.bounce(cluster.leader(), after_ms=0)
    cluster.eventually(cluster.recovered)
    cluster.eventually(writes.completed_at_least(60))


@clause("ETCD-01", "ETCD-03")
def test_a_leader_that_stalled_steps_down(
    cluster: EtcdCluster, faults: Faults, clients: EtcdClients
) -> None:
    old = cluster.leader()
    writes = clients.registers(at=cluster.followers())
    cluster.eventually(writes.completed_at_least(20))
    with faults.pause(old):
        cluster.eventually(cluster.another_leader(old))
    cluster.eventually(~old.leading)
    cluster.eventually(cluster.recovered)


@clause("ETCD-01", "ETCD-03")
def test_an_isolated_leader_steps_down_and_serves_no_stale_read(
    cluster: EtcdCluster, faults: Faults, clients: EtcdClients
) -> None:
    old = cluster.leader()
    asks_old = clients.registers(at=[old])
    asks_others = clients.registers(at=cluster.followers())
    cluster.eventually(asks_old.completed_at_least(20) & asks_others.completed_at_least(20))
    with faults.isolate(old):
        cluster.eventually(cluster.another_leader(old))
        cluster.eventually(old.leaderless)
        cluster.eventually(asks_others.completed_at_least(60))
    cluster.eventually(cluster.recovered)
