"""KIP-631's metadata: its snapshots, its format, and brokers that lag behind it."""

from __future__ import annotations

import pytest

from fencepost import Spare
from fencepost.testing import Faults
from fencepost_kafka import Role, kafka_shape
from fencepost_kafka.testing import KafkaClients, KafkaCluster

clause = pytest.mark.clause
physical = pytest.mark.physical


def shape(**of: object) -> pytest.MarkDecorator:
    """A cluster with these settings, or more."""
    return pytest.mark.parametrize("fencepost_shape", [kafka_shape(**of)], ids=["set"])  # type: ignore[arg-type]


OFTEN = {"metadata.snapshot.interval.records": "30", "metadata.snapshot.slice.records": "1"}
OLDER = {"broker-4": {"metadata.format.max.level": "1"}}
LATE = {"first": 0, "action": "delay", "delay_ms": 600, "overtake": True, "outlives": False}
LATER = (Spare(Role.BROKER, 4),)


@shape(settings=OFTEN, spares=LATER)
@physical("disks")
@clause("QC-06", "QC-11", "QC-12")
def test_controllers_take_snapshots_in_turn_and_a_lagging_one_starts_from_one(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders", partitions=12)
    standby = next(c for c in cluster.controllers if c != cluster.active_controller)
    victim = cluster.brokers[2]
    with faults.isolate(standby):
        clients.create_topic("payments", partitions=24)
        with faults.kill(victim):
            cluster.eventually(victim.fenced_by_controller)
        cluster.eventually(cluster.recovered)
        clients.create_topic("returns", partitions=12)
    cluster.eventually(standby.from_snapshot)
    newcomer = cluster.node("broker-4")
    cluster.start(newcomer)
    cluster.eventually(newcomer.active)
    clients.create_topic("refunds", partitions=36)
    for _ in range(3):
        # Much changes in a short time while the older state is still being written.
        faults.bounce(victim, after_ms=0)
        cluster.eventually(victim.active)
    with faults.kill(cluster.active_controller):
        cluster.eventually(cluster.led_by_controllers)
    cluster.eventually(cluster.recovered)


@shape(settings={"metadata.format.level": "2"}, spares=LATER, own=OLDER)
@clause("QC-15", "QC-33", "REG-05")
def test_a_broker_of_older_software_is_refused_once_a_newer_format_is_enabled(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders")
    older = cluster.node("broker-4")
    cluster.start(older)
    cluster.eventually(older.refused_with("UNSUPPORTED_VERSION"))
    # It still follows the metadata, so it could answer clients.
    cluster.eventually(older.caught_up)
    assert not clients.ask_metadata(older, "orders").answered
    with faults.kill(cluster.active_controller):
        cluster.eventually(cluster.led_by_controllers)
    assert not cluster.holds(older.active)


@clause("QC-33")
def test_records_are_written_in_the_enabled_format(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders")
    faults.bounce(cluster.brokers[0], after_ms=0)
    cluster.eventually(cluster.recovered)


@shape(settings={"metadata.max.lag.records": "0", "registration.heartbeat.interval.ms": "50"})
@clause("QC-15")
def test_a_broker_far_behind_on_metadata_is_fenced_until_it_has_caught_up(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    victim = cluster.brokers[1]
    with faults.hold(victim, cluster.controllers, "Fetch", **LATE):
        # The answer to the fetch that waits has the first records. Its heartbeats overtake the next
        # fetch, so they name an offset of before the others.
        for number in range(3):
            clients.create_topic(f"orders-{number}", replication=2)
        cluster.eventually(victim.refused_with("STALE_BROKER_EPOCH"))
    cluster.eventually(victim.active)


@physical("sockets")
@clause("REG-04")
def test_a_broker_is_online_only_once_it_has_the_metadata(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders")
    victim = cluster.brokers[1]
    with faults.hold(victim, cluster.controllers, "Fetch", **LATE):
        # Its heartbeats are answered long before it has the metadata.
        faults.bounce(victim, after_ms=0)
        cluster.eventually(victim.active)
    cluster.eventually(cluster.recovered)
