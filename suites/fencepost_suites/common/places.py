"""Which partition a test is about, on planes where the controller is one of the brokers."""

from __future__ import annotations

from fencepost_kafka.testing import KafkaCluster


def led_elsewhere(cluster: KafkaCluster, topic: str, partitions: int = 3) -> int:
    """The first partition whose leader is not the active controller.

    Elsewhere than over ZooKeeper this is partition 0: controllers have ids of their own.
    """
    controller = cluster.active_controller
    return next(
        index for index in range(partitions) if cluster.leader(topic, index).id != controller.id
    )
