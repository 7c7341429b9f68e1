"""A rolling upgrade of brokers over ZooKeeper: each broker restarts with a newer inter-broker
protocol, so that meanwhile both protocols run in one cluster (KIP-343, KIP-380)."""

from __future__ import annotations

import pytest

from fencepost import Shape
from fencepost.testing import EventLog, Faults
from fencepost_kafka import BrokerRegistered
from fencepost_kafka.testing import KafkaClients, KafkaCluster, KafkaNode, Writes
from fencepost_suites.common.places import led_elsewhere

clause = pytest.mark.clause
pytestmark = [
    pytest.mark.only("reference/legacy", reason="inter-broker protocols are of that plane"),
    pytest.mark.physical("signals"),
]

BROKERS = ("broker-1", "broker-2", "broker-3")
WITHOUT_EPOCHS, WITH_EPOCHS, WITH_HEARTBEATS = (
    {"inter.broker.protocol": protocol} for protocol in ("1", "2", "3")
)


def upgraded(*protocols: dict[str, str]) -> Shape:
    """A shape in which process n of each broker has the n-th of these protocols."""
    return Shape(
        own={
            f"{broker}#{number}": protocol
            for broker in BROKERS
            for number, protocol in enumerate(protocols, 1)
        }
    )


def roll(cluster: KafkaCluster, faults: Faults) -> None:
    """Restarts one broker after the other by SIGTERM; the controller is the second.

    So the old controller commands a broker that is already upgraded, and a later controller
    commands a broker that is not.
    """
    controller = cluster.active_controller.name
    one, other = (broker for broker in cluster.brokers if broker.name != controller)
    middle = next(broker for broker in cluster.brokers if broker.name == controller)
    for broker in (one, middle, other):
        restart(cluster, faults, broker)


def outlive_heartbeat_timeout(cluster: KafkaCluster, writes: Writes) -> None:
    """Waits for 500 more writes, which take longer than the heartbeat timeout."""
    cluster.eventually(writes.acked_at_least(len(writes.acked) + 500))


def restart(cluster: KafkaCluster, faults: Faults, broker: KafkaNode) -> None:
    """Restarts a broker by SIGTERM, and waits until the cluster has recovered."""
    faults.bounce(broker, after_ms=0, signal="SIGTERM")
    cluster.eventually(broker.active)
    cluster.eventually(cluster.recovered)


def newest_protocols(history: EventLog) -> dict[int, int]:
    """Each broker's inter-broker protocol, by its newest registration."""
    return {one.broker_id: one.protocol for one in history.of(BrokerRegistered)}


@pytest.mark.parametrize(
    "fencepost_shape",
    [upgraded(WITHOUT_EPOCHS, WITHOUT_EPOCHS, WITH_HEARTBEATS)],
    ids=["to-heartbeats"],
)
@clause("BE-10", "HB-22", "HB-23")
def test_a_double_rolling_upgrade_under_load(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    clients.create_topic("orders", partitions=3)
    writes = clients.produce("orders", acks="all")
    cluster.eventually(writes.acked_at_least(50))
    roll(cluster, faults)  # the new software, with the old protocol
    assert set(newest_protocols(history).values()) == {1}
    outlive_heartbeat_timeout(cluster, writes)
    roll(cluster, faults)
    assert set(newest_protocols(history).values()) == {3}
    cluster.eventually(writes.acked_at_least(len(writes.acked) + 50))
    cluster.eventually(cluster.recovered)


@pytest.mark.parametrize(
    "fencepost_shape", [upgraded(WITHOUT_EPOCHS, WITH_EPOCHS)], ids=["to-broker-epochs"]
)
@clause("BE-10", "HB-22", "HB-23")
def test_brokers_without_broker_epochs_are_upgraded_under_load(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    clients.create_topic("orders", partitions=3)
    writes = clients.produce("orders", acks="all")
    outlive_heartbeat_timeout(cluster, writes)
    roll(cluster, faults)
    assert set(newest_protocols(history).values()) == {2}
    cluster.eventually(writes.acked_at_least(len(writes.acked) + 50))
    cluster.eventually(cluster.recovered)


@pytest.mark.parametrize(
    "fencepost_shape", [upgraded(WITH_HEARTBEATS, WITH_EPOCHS, WITH_HEARTBEATS)], ids=["and-back"]
)
@clause("HB-22", "HB-23")
def test_a_broker_returns_to_the_protocol_before_heartbeats(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    """The bounce of another broker makes it change the ISRs of the partitions that it leads."""
    clients.create_topic("orders", partitions=3)
    writes = clients.produce("orders", acks="all")
    victim = cluster.leader("orders", led_elsewhere(cluster, "orders"))
    controller = cluster.active_controller.name
    other = next(one for one in cluster.brokers if one.name not in (victim.name, controller))
    restart(cluster, faults, victim)
    assert newest_protocols(history)[victim.id] == 2
    outlive_heartbeat_timeout(cluster, writes)
    restart(cluster, faults, other)
    restart(cluster, faults, victim)
    assert newest_protocols(history)[victim.id] == 3
    cluster.eventually(cluster.recovered)
