"""Chooses the partition that a test is about, on planes where the controller is one of the
brokers."""

from __future__ import annotations

from fencepost_kafka.testing import KafkaCluster


def led_elsewhere(cluster: KafkaCluster, topic: str, partitions: int = 3) -> int:
    """The first partition whose leader is not the active controller.

    In the quorum plane this is partition 0, since controllers have ids of their own, and so it is
    in a cluster without controllers.
    """
    if not cluster.controllers:
        return 0
    controller = cluster.active_controller
    return next(
        index for index in range(partitions) if cluster.leader(topic, index).id != controller.id
    )


def apart_from_controller(cluster: KafkaCluster, topic: str, partitions: int) -> int:
    """The first partition of which the active controller has no replica, by the same ids: the first
    one in a cluster without controllers."""
    if not cluster.controllers:
        return 0
    controller = cluster.active_controller

    def brokers(index: int) -> set[int]:
        followers = cluster.followers(topic, index)
        return {cluster.leader(topic, index).id, *(broker.id for broker in followers)}

    return next(index for index in range(partitions) if controller.id not in brokers(index))
