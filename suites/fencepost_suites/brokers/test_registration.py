"""The broker registration draft: a broker starts fenced, and answers no client until it is
unfenced.

The draft's states are KIP-631's under other names: Fenced is INITIAL or FENCED, Online is ACTIVE.
"""

from __future__ import annotations

import pytest

from fencepost.testing import Faults
from fencepost_kafka.testing import KafkaClients, KafkaCluster
from fencepost_suites.common.shapes import LONG_LEASE

clause = pytest.mark.clause
physical = pytest.mark.physical


@LONG_LEASE
@clause("REG-03")
def test_a_broker_that_registers_again_starts_fenced(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders")
    victim = cluster.leader("orders", 0)
    with faults.kill(victim):
        pass
    cluster.eventually(victim.active, within_ms=2 * cluster.timing.lease_ms)
    cluster.eventually(cluster.recovered)


@clause("REG-05", "QC-16")
def test_a_starting_broker_answers_no_client_before_it_is_online(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders")
    victim = cluster.brokers[0]
    with faults.cut_from_controllers(victim):
        faults.bounce(victim, after_ms=0)
        # Before it listens it cannot refuse requests, and no controller could have unfenced it.
        cluster.eventually(victim.started)
        assert not clients.fetch_directly(victim, "orders", 0).answered
        assert not clients.produce_directly(victim, "orders", 0).answered
        assert not clients.ask_metadata(victim, "orders").answered
    cluster.eventually(victim.active)
    assert clients.ask_metadata(victim, "orders").answered


@physical("disks")
@clause("REG-02")
def test_a_broker_registers_once_its_logs_are_recovered(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    writes = clients.produce("orders")
    cluster.eventually(writes.acked_at_least(50))
    victim = cluster.leader("orders", 0)
    with faults.kill(victim):
        pass
    cluster.eventually(victim.active)
    cluster.eventually(cluster.recovered)
