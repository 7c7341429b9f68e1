import pytest


@pytest.mark.clause("QC-14", "QC-17")
def test_a_cut_off_broker_serves_no_client(cluster, faults, clients):
    clients.produce("orders", acks="all")
    leader = cluster.leader("orders", 0)
    with faults.cut_from_controllers(leader):
        cluster.eventually(leader.fenced)
        clients.fetch_directly(leader, "orders", 0)
    cluster.eventually(leader.active)
