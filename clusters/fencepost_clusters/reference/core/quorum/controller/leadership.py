"""Who leads, who is in sync, who holds replicas: arithmetic over the image, changing nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fencepost_clusters.reference.core.node.effects import Protections
from fencepost_clusters.reference.core.quorum.metadata.image import Image, Partition, isr_change
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error
from fencepost_clusters.reference.wire.records import IsrChangeRecord, Record


def _next_epoch(partition: Partition, protections: Protections) -> int:
    return partition.leader_epoch + (1 if protections.holds("epoch-grows") else 0)


def _elect(
    partition: Partition, isr: Sequence[int], live: Sequence[int], protections: Protections
) -> int:
    """The first live member of the ISR in replica order; -1 if none lives (RP-29)."""
    if not protections.holds("elect-from-isr"):
        outside = [r for r in partition.replicas if r in live and r not in partition.isr]
        if outside:
            return outside[0]
    heirs = [r for r in partition.replicas if r in isr and r in live]
    if heirs and not protections.holds("heirs-in-replica-order"):
        return min(heirs)
    found = heirs[0] if heirs else -1
    if found < 0 and not protections.holds("dead-isr-leads-nobody"):
        return next((r for r in partition.replicas if r in live), -1)
    return found


def on_broker_gone(image: Image, broker: int, protections: Protections) -> list[Record]:
    """What fencing a broker, or its new incarnation, does to its partitions (QC-30).

    It leaves every ISR, but as the last member, which stays, without a leader; what it led goes to
    a live member of the ISR.
    """
    if not protections.holds("fenced-leaves-isr"):
        return []
    live = [b for b in image.live() if b != broker]
    changes: list[Record] = []
    for one in image.all_partitions():
        if broker not in one.isr and one.leader != broker:
            continue
        isr = tuple(r for r in one.isr if r != broker) or one.isr
        leader = one.leader if one.leader != broker else _elect(one, isr, live, protections)
        if leader >= 0 and not set(isr) & set(live):
            isr = (leader,)  # nobody of the ISR lives: elected all the same, by the defect of RP-29
        if (isr, leader) != (one.isr, one.leader):
            changes.append(isr_change(one, isr, leader, _next_epoch(one, protections)))
    return changes


def on_broker_back(image: Image, broker: int, protections: Protections) -> list[Record]:
    """What a broker's regained activity does: it leads what only it can lead."""
    return [
        isr_change(one, one.isr, broker, _next_epoch(one, protections))
        for one in image.all_partitions()
        if one.leader < 0 and broker in one.isr
    ]


def on_handover(image: Image, broker: int, protections: Protections) -> list[Record]:
    """What moves leaderships off a broker that wants to shut down; it stays in the ISRs."""
    live = [b for b in image.live() if b != broker]
    changes: list[Record] = []
    for one in image.all_partitions():
        leader = _elect(one, one.isr, live, protections) if one.leader == broker else -1
        if leader >= 0:
            changes.append(isr_change(one, one.isr, leader, _next_epoch(one, protections)))
    return changes


def to_preferred(
    one: Partition, ready: Collection[int], protections: Protections
) -> IsrChangeRecord | None:
    """What gives leadership back to the preferred replica, if that is in the ISR and ready."""
    preferred = one.replicas[0]
    if one.leader in (preferred, -1) or preferred not in one.isr or preferred not in ready:
        return None
    return isr_change(one, one.isr, preferred, _next_epoch(one, protections))


def leads_any(image: Image, broker: int) -> bool:
    """Whether a broker still leads a partition."""
    return any(one.leader == broker for one in image.all_partitions())


def alter_isr(
    image: Image,
    broker: int,
    topic: m.AlterPartitionTopic,
    asked: m.AlterPartitionData,
    protections: Protections,
) -> tuple[Error, IsrChangeRecord | None]:
    """Judges one AlterIsr of a leader whose broker epoch is current already (QC-32, RP-19).

    A member must be a replica, unfenced, and of the incarnation that the leader saw.
    """
    parts = image.partitions.get(topic.topic_id) if topic.topic_id is not None else None
    one = parts.get(asked.partition_index) if parts is not None else None
    if one is None:
        return Error.UNKNOWN_TOPIC_ID, None
    if protections.holds("current-isr-change"):
        if one.leader != broker:
            return Error.NOT_LEADER_OR_FOLLOWER, None
        if asked.leader_epoch != one.leader_epoch:
            return Error.FENCED_LEADER_EPOCH, None
    members = [member.broker_id for member in asked.new_isr_with_epochs]
    if broker not in members or len(set(members)) != len(members):
        return Error.INVALID_REQUEST, None
    if any(member not in one.replicas for member in members):
        return Error.INVALID_REQUEST, None
    for member in asked.new_isr_with_epochs:
        known = image.brokers.get(member.broker_id)
        joins = member.broker_id not in one.isr
        if known is None or (joins and known.fenced) or member.broker_epoch < known.epoch:
            return Error.INELIGIBLE_REPLICA, None
    isr = tuple(r for r in one.replicas if r in members)
    return Error.NONE, isr_change(one, isr, one.leader, _next_epoch(one, protections))
