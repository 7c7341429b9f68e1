"""A test of a promise that a system is known to break; `test_known_weakness.py` runs it."""

import pytest

from fencepost import Violation


@pytest.mark.clause("QC-17")
@pytest.mark.xfail(raises=Violation, strict=True, reason="it serves without a lease")
def test_a_cut_off_broker_serves_no_client(cluster, faults, clients):
    clients.produce("orders", acks="all")
    leader = cluster.leader("orders", 0)
    with faults.cut_from_controllers(leader):
        cluster.eventually(leader.fenced)
        clients.fetch_directly(leader, "orders", 0)
    cluster.eventually(leader.active)
