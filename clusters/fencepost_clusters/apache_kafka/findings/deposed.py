"""A consumer that a deposed leader sent back."""

from __future__ import annotations

from fencepost import Scene, slot_of
from fencepost_clusters.apache_kafka.findings.severing import SEVERING
from fencepost_kafka import ConsumerPositioned, PartitionCommitted, partition_of


def sent_back(scene: Scene, *, within_ms: int) -> bool:
    """Whether the leader was deposed by a record, refused the consumer's offset as out of range,
    and had been struck before, by any fault by which it loses its session or does not learn that
    another one leads: one that acts upon that broker or upon ZooKeeper."""
    former, leader, partition = (scene.name(one) for one in ("former", "leader", "partition"))
    if not former:
        return False
    for fault in scene.faults(*SEVERING, "hold", "pause", "slow_link", within_ms=within_ms):
        deposed = any(
            str(partition_of(record)) == partition and str(record.leader) == leader
            for _, record in scene.traces(PartitionCommitted, since=fault)
        )
        refused = any(
            event.process == scene.process
            and str(partition_of(position)) == partition
            and position.out_of_range
            and str(position.refused_by) == former
            for event, position in scene.traces(ConsumerPositioned, within_ms=10_000, since=fault)
        )
        slots = {slot_of(target) for target in fault.targets}
        near = f"broker-{former}" in slots or any(one.startswith("zookeeper-") for one in slots)
        if near and deposed and refused:
            return True
    return False
