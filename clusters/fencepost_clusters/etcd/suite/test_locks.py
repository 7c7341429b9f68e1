"""After a holder's lease ran out, another client gets the lock, and the store refuses the old
holder."""

from __future__ import annotations

import pytest

from fencepost.testing import Faults
from fencepost_clusters.etcd.cluster import EtcdCluster
from fencepost_clusters.etcd.workload import EtcdClients

clause = pytest.mark.clause


@clause("ETCD-04", "ETCD-05", "ETCD-06")
def test_a_client_that_goes_on_after_its_lease_ran_out_is_refused(
    cluster: EtcdCluster, clients: EtcdClients
) -> None:
    heedless = clients.locker(ttl_s=2, renew_every=0, writes=1_000)
    cluster.eventually(heedless.written_at_least(5))
    newer = clients.locker(writes=1_000)
    cluster.eventually(newer.written_at_least(1))
    # If the store refuses nothing, the rule of ETCD-06 reports it, not this line.
    cluster.comes_to(heedless.refused, within_ms=3_000)


@clause("ETCD-05", "ETCD-06")
def test_a_holder_behind_a_cut_member_loses_the_lock_and_is_refused(
    cluster: EtcdCluster, faults: Faults, clients: EtcdClients
) -> None:
    old = cluster.leader()
    cut_off = clients.locker(at=[old], renew_every=0, writes=1_000)
    cluster.eventually(cut_off.written_at_least(5))
    with faults.isolate(old):
        newer = clients.locker(at=cluster.followers(), writes=1_000)
        cluster.eventually(newer.written_at_least(1))
    cluster.comes_to(cut_off.refused, within_ms=10_000)


@clause("ETCD-05")
def test_tokens_grow_across_a_change_of_leader(
    cluster: EtcdCluster, faults: Faults, clients: EtcdClients
) -> None:
    one, other = clients.locker(writes=2), clients.locker(writes=2)
    cluster.eventually(one.taken_at_least(2) & other.taken_at_least(2))
    old = cluster.leader()
    with faults.kill(old):
        cluster.eventually(cluster.another_leader(old))
        cluster.eventually(one.taken_at_least(4) & other.taken_at_least(4))
