"""The life of a broker: its heartbeat session, what clients are told of it, its end in good order.

The registration draft's states are KIP-631's under other names: Fenced is FENCED, Online is ACTIVE,
Stopping is ACTIVE that wants SHUTDOWN, Offline is before the registration and after the end.
"""

from __future__ import annotations

import pytest

from fencepost.testing import Faults
from fencepost_kafka.testing import KafkaClients, KafkaCluster
from fencepost_suites.shapes import OUTLASTING_LEASE, shaped

clause = pytest.mark.clause


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
@clause("REG-07")
def test_a_fenced_broker_is_named_to_no_client(
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
            told = clients.ask_metadata(broker, "orders")
            assert told.answered
            assert victim.id not in told.brokers
    cluster.eventually(cluster.recovered)
    cluster.eventually(others[0].caught_up)
    assert victim.id in clients.ask_metadata(others[0], "orders").brokers


@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM"])
@clause("REG-08", "REG-01")
def test_a_broker_that_is_asked_to_stop_goes_once_its_leaderships_are_elsewhere(
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
def test_the_wish_to_stop_survives_the_controller_it_was_told(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.produce("orders")
    victim = cluster.leader("orders", 0)
    old = cluster.active_controller
    others = [c for c in cluster.controllers if c != old]
    # The old one hears the wish and can commit nothing; its successor must hear it again.
    with faults.partition(old, others), faults.terminate(victim) as stopped:
        assert stopped.receipt.true
        cluster.eventually(cluster.another_leader("orders", 0, victim))
    cluster.eventually(cluster.recovered)


@shaped(controlled_shutdown_timeout_ms="3000")
@clause("REG-09")
def test_a_broker_whose_leaderships_nobody_can_take_stops_all_the_same(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("alone", partitions=3, replication=1)
    victim = cluster.leader("alone", 0)
    with faults.terminate(victim) as stopped:
        assert stopped.receipt.true
    cluster.eventually(cluster.recovered)


@pytest.mark.only("reference/quorum", reason="which leases a broker of Kafka's holds is not told")
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
