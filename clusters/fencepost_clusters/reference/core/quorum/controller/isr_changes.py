"""Decides which ISR changes of leaders the active controller writes."""

from __future__ import annotations

from fencepost_clusters.reference.core.cluster.image import Image, isr_change
from fencepost_clusters.reference.core.cluster.policies import ElectionPolicies
from fencepost_clusters.reference.core.quorum.controller.policies import RegistrationPolicies
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error
from fencepost_clusters.reference.wire.records import IsrChangeRecord


def alter_isr(
    image: Image,
    broker: int,
    topic: m.AlterPartitionTopic,
    asked: m.AlterPartitionData,
    *,
    election: ElectionPolicies,
    registration: RegistrationPolicies,
) -> tuple[Error, IsrChangeRecord | None]:
    """Judges one AlterIsr of a leader whose broker epoch is current (QC-32, RP-19).

    A member must be a replica, unfenced, and of the incarnation that the leader saw.
    """
    parts = image.partitions.get(topic.topic_id) if topic.topic_id is not None else None
    one = parts.get(asked.partition_index) if parts is not None else None
    if one is None:
        return Error.UNKNOWN_TOPIC_ID, None
    # The leader epoch makes this a compare-and-set: each stored ISR begins another one, so of two
    # requests upon the same ISR only the first is granted.
    refusal = registration.isr_change_refusal(one, broker, asked.leader_epoch)
    if refusal is not Error.NONE:
        return refusal, None
    members = [member.broker_id for member in asked.new_isr_with_epochs]
    if broker not in members or len(set(members)) != len(members):
        return Error.INVALID_REQUEST, None
    if any(member not in one.replicas for member in members):
        return Error.INVALID_REQUEST, None
    # A leader learns late that a follower was fenced or replaced. The broker epoch of each member
    # says which process has caught up; the metadata says which process that is now.
    for member in asked.new_isr_with_epochs:
        known = image.brokers.get(member.broker_id)
        joins = member.broker_id not in one.isr
        if known is None or (joins and known.fenced) or member.broker_epoch < known.epoch:
            return Error.INELIGIBLE_REPLICA, None
    isr = tuple(r for r in one.replicas if r in members)
    return Error.NONE, isr_change(one, isr, one.leader, election.next_leader_epoch(one))
