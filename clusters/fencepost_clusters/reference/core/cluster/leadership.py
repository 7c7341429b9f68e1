"""Leaders and ISRs: computes from the image the changes that an event leads to."""

from __future__ import annotations

from collections.abc import Iterable

from fencepost_clusters.reference.core.cluster.image import Image, isr_change
from fencepost_clusters.reference.core.cluster.policies import ElectionPolicies
from fencepost_clusters.reference.core.replication.cluster_state import Partition
from fencepost_clusters.reference.wire.records import IsrChangeRecord, Record


def on_broker_gone(image: Image, broker: int, policies: ElectionPolicies) -> list[Record]:
    """The changes of partitions when a broker is fenced, or its id taken by a new process (QC-30).

    The broker leaves every ISR, unless it is the last member: then it stays, and the partition has
    no leader. A live member of the ISR becomes leader of each partition that the broker led.
    """
    return _without(image, broker, policies.affected_by_fencing(image, broker), policies)


def on_broker_deleted(image: Image, broker: int, policies: ElectionPolicies) -> list[Record]:
    """The changes of partitions when a broker is deleted: as for a fenced broker (QC-26)."""
    return _without(image, broker, policies.affected_by_deletion(image, broker), policies)


def _without(
    image: Image, broker: int, affected: Iterable[Partition], policies: ElectionPolicies
) -> list[Record]:
    live = [b for b in image.live() if b != broker]
    changes: list[Record] = []
    for one in affected:
        # The last member of the ISR stays in it, since nobody else has everything that was
        # committed.
        isr = tuple(r for r in one.isr if r != broker) or one.isr
        leader = one.leader
        if leader == broker:
            leader, isr = policies.elect(one, isr, live)
        # A partition that has only this member, and no leader already, needs no record and no new
        # epoch.
        if (isr, leader) != (one.isr, one.leader):
            changes.append(isr_change(one, isr, leader, policies.next_leader_epoch(one)))
    return changes


def on_broker_back(image: Image, broker: int, policies: ElectionPolicies) -> list[Record]:
    """The changes of partitions when a broker is active again: it leads the partitions that only it
    can lead."""
    return [
        isr_change(one, one.isr, broker, policies.next_leader_epoch(one))
        for one in image.all_partitions()
        # A partition without a leader has no live member in its ISR, so the broker is the only one
        # that can lead it.
        if one.leader < 0 and broker in one.isr
    ]


def on_handover(image: Image, broker: int, policies: ElectionPolicies) -> list[Record]:
    """The changes that move leaderships off a broker that wants to shut down; it stays in the
    ISRs."""
    live = [b for b in image.live() if b != broker]
    changes: list[Record] = []
    for one in image.all_partitions():
        if one.leader == broker:
            leader, isr = policies.elect(one, one.isr, live)
            # Where nobody else can lead, the broker goes on: it gets no grant to end as long as it
            # leads.
            if leader >= 0:
                changes.append(isr_change(one, isr, leader, policies.next_leader_epoch(one)))
    return changes


def to_preferred(one: Partition, policies: ElectionPolicies) -> IsrChangeRecord:
    """The change that makes the preferred replica the leader."""
    return isr_change(one, one.isr, one.replicas[0], policies.next_leader_epoch(one))
