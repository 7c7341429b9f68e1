"""The life of a broker: its heartbeat session, its place in clients' metadata, and its orderly end.

The registration draft's states are KIP-631's under other names: Fenced is FENCED, Online is ACTIVE,
Stopping is ACTIVE with SHUTDOWN requested, Offline is before the registration and after the end.
"""

from __future__ import annotations

import pytest

from fencepost.testing import Faults
from fencepost_kafka.testing import KafkaClients, KafkaCluster
from fencepost_suites.common.shapes import OUTLASTING_LEASE, shaped

clause = pytest.mark.clause
physical = pytest.mark.physical


@OUTLASTING_LEASE
@clause("REG-06", "REG-01")
def test_a_broker_is_fenced_when_its_session_runs_out(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders")
    victim = cluster.brokers[0]
    assert clients.ask_metadata(victim, "orders").answered
    with faults.cut_from_controllers(victim):
        cluster.eventually(victim.fenced)
        assert not clients.ask_metadata(victim, "orders").answered
    cluster.eventually(victim.active)


@OUTLASTING_LEASE
@physical("sockets")
@clause("REG-07")
def test_a_fenced_broker_is_left_out_of_metadata_answers(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders")
    victim, *others = cluster.brokers
    cluster.eventually(others[0].caught_up)
    assert victim.id in clients.ask_metadata(others[0], "orders").brokers
    with faults.kill(victim):
        cluster.eventually(victim.fenced_by_controller)
        for broker in others:
            cluster.eventually(broker.caught_up)
            result = clients.ask_metadata(broker, "orders")
            assert result.answered
            assert victim.id not in result.brokers
    cluster.eventually(cluster.recovered)
    cluster.eventually(others[0].caught_up)
    assert victim.id in clients.ask_metadata(others[0], "orders").brokers


@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM"])
@physical("signals")
@clause("REG-08", "REG-01")
def test_a_broker_that_is_asked_to_stop_ends_once_its_leaderships_are_moved(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, signal: str
) -> None:
    writes = clients.produce("orders")
    victim = cluster.leader("orders", 0)
    with faults.terminate(victim, signal=signal) as stopped:
        assert stopped.receipt.true
        cluster.eventually(cluster.another_leader("orders", 0, victim))
        cluster.eventually(writes.acked_at_least(len(writes.acked) + 50))
    cluster.eventually(victim.active)


@clause("REG-08")
def test_a_request_to_stop_survives_a_controller_failover(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.produce("orders")
    victim = cluster.leader("orders", 0)
    old = cluster.active_controller
    others = [c for c in cluster.controllers if c != old]
    # The old controller receives the request but can commit nothing, so its successor must receive
    # it again.
    with faults.partition(old, others), faults.terminate(victim) as stopped:
        assert stopped.receipt.true
        cluster.eventually(cluster.another_leader("orders", 0, victim))
    cluster.eventually(cluster.recovered)


@shaped(controlled_shutdown_timeout_ms="3000")
@clause("REG-09")
def test_a_broker_whose_leaderships_cannot_be_moved_stops_all_the_same(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("alone", partitions=3, replication=1)
    victim = cluster.leader("alone", 0)
    with faults.terminate(victim) as stopped:
        assert stopped.receipt.true
    cluster.eventually(cluster.recovered)


@pytest.mark.only(
    "reference/quorum", reason="the leases that a broker of Kafka's holds are not visible"
)
@clause("QC-31")
def test_a_new_active_controller_gives_every_broker_a_full_period(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.produce("orders")
    old = cluster.active_controller
    with faults.kill(old):
        cluster.eventually(cluster.another_controller(old))
        for broker in cluster.brokers:
            cluster.eventually(broker.renewed)
    cluster.eventually(cluster.recovered)
