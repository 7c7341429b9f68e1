"""The demonstration of `reference/legacy`: one of the bounces that KIP-380 describes.

A broker's controlled shutdown makes the controller send it StopReplica. The link holds that request
until the broker has restarted. The new process must refuse it, since it was meant for the former
process.
"""

from __future__ import annotations

from fencepost.testing import Demonstration, Scene
from fencepost_kafka.clients.workers import KafkaClients
from fencepost_kafka.facade.cluster import KafkaCluster, kafka_cluster

PARTITIONS = 6
WRITES = 100


def demonstration() -> Demonstration:
    """The bounce, healthy and without the check of the broker epoch in StopReplica."""
    return Demonstration(load, (stop_replica_from_before_the_bounce,), "obeys-old-stop-replica")


def _kafka(scene: Scene) -> tuple[KafkaCluster, KafkaClients]:
    assert isinstance(scene.clients, KafkaClients), "the demonstration needs Kafka's clients"
    return kafka_cluster(scene.cluster), scene.clients


def load(scene: Scene) -> None:
    """A topic with six partitions, and a producer."""
    cluster, clients = _kafka(scene)
    clients.create_topic("orders", PARTITIONS)
    _write(cluster, clients)


def _write(cluster: KafkaCluster, clients: KafkaClients) -> None:
    writes = clients.produce("orders", acks="all", count=WRITES, rate=WRITES)
    cluster.eventually(writes.settled)


def stop_replica_from_before_the_bounce(scene: Scene) -> None:
    """a StopReplica of a controlled shutdown reaches the broker's next process"""
    cluster, clients = _kafka(scene)
    controller = cluster.active_controller
    victim = next(one for one in cluster.brokers if one.id != controller.id)
    with scene.faults.hold(controller, victim, "StopReplica"):
        scene.faults.bounce(victim, after_ms=0, signal="SIGTERM")
        cluster.eventually(victim.active)
    _write(cluster, clients)
    # A replica that was stopped by mistake begins again in the next process.
    scene.faults.bounce(victim, after_ms=0)
    cluster.eventually(victim.active)
