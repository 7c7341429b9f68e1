"""Defects of partitions' elections, ISRs and leader epochs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from fencepost import Defect
from fencepost_clusters.reference.core.cluster.image import Image
from fencepost_clusters.reference.core.cluster.policies import Elected, elect
from fencepost_clusters.reference.core.replication.cluster_state import Partition
from fencepost_clusters.reference.policies import Policies, PolicyDefect
from fencepost_clusters.reference.wire.errors import Error


# The ISR that is stored is the one of the rule, so the leader is no member of its own ISR.
def _outside_first(partition: Partition, isr: tuple[int, ...], live: Collection[int]) -> Elected:
    outside = [r for r in partition.replicas if r in live and r not in partition.isr]
    return (outside[0], isr) if outside else elect(partition, isr, live)


def _elects_outside_isr(p: Policies) -> Policies:
    election = replace(p.cluster.election, elect=_outside_first)
    return replace(p, cluster=replace(p.cluster, election=election))


def _lowest_id(partition: Partition, isr: tuple[int, ...], live: Collection[int]) -> Elected:
    return min((r for r in isr if r in live), default=-1), isr


def _elects_lowest_id(p: Policies) -> Policies:
    election = replace(p.cluster.election, elect=_lowest_id)
    return replace(p, cluster=replace(p.cluster, election=election))


# While a member of the ISR lives, the election is the right one. So RP-06 is broken only together
# with RP-29: by a leader that is elected from outside once all members are dead.
def _any_live(partition: Partition, isr: tuple[int, ...], live: Collection[int]) -> Elected:
    leader, isr = elect(partition, isr, live)
    if leader < 0:
        leader = next((r for r in partition.replicas if r in live), -1)
        isr = (leader,) if leader >= 0 else isr
    return leader, isr


def _elects_any_live_replica(p: Policies) -> Policies:
    election = replace(p.cluster.election, elect=_any_live)
    return replace(p, cluster=replace(p.cluster, election=election))


def _none_affected(image: Image, broker: int) -> tuple[Partition, ...]:
    return ()


def _fenced_broker_keeps_leading(p: Policies) -> Policies:
    election = replace(p.cluster.election, affected_by_fencing=_none_affected)
    return replace(p, cluster=replace(p.cluster, election=election))


def _deleted_broker_stays_in_isr(p: Policies) -> Policies:
    election = replace(p.cluster.election, affected_by_deletion=_none_affected)
    return replace(p, cluster=replace(p.cluster, election=election))


# Brokers tell leaders of a partition apart by the leader epoch. So the former leader does not learn
# from an epoch that it was replaced, and may serve in the same one as its successor.
def _same_epoch(partition: Partition) -> int:
    return partition.leader_epoch


def _reuses_leader_epoch(p: Policies) -> Policies:
    election = replace(p.cluster.election, next_leader_epoch=_same_epoch)
    return replace(p, cluster=replace(p.cluster, election=election))


# Both the sender and the epoch go unchecked: a former leader's request that was under way while
# another one was elected is applied to the new leader's ISR.
def _refuses_no_isr_change(partition: Partition, broker: int, leader_epoch: int) -> Error:
    return Error.NONE


def _applies_stale_isr_change(p: Policies) -> Policies:
    rules = replace(p.controller.registration, isr_change_refusal=_refuses_no_isr_change)
    return replace(p, controller=replace(p.controller, registration=rules))


def _never_returns(partition: Partition, ready: Collection[int]) -> bool:
    return False


def _never_goes_back(p: Policies) -> Policies:
    election = replace(p.cluster.election, returns_to_preferred=_never_returns)
    return replace(p, cluster=replace(p.cluster, election=election))


DEFECTS = (
    PolicyDefect(
        Defect(
            "elects-outside-isr",
            ("RP-06",),
            "a replica outside the ISR is elected while an in-sync one lives",
        ),
        _elects_outside_isr,
    ),
    PolicyDefect(
        Defect("elects-lowest-id", ("RP-02",), "the election always picks the lowest id"),
        _elects_lowest_id,
    ),
    PolicyDefect(
        Defect(
            "elects-any-live-replica",
            ("RP-29", "RP-06"),
            "any live replica is elected once the ISR is dead",
        ),
        _elects_any_live_replica,
    ),
    PolicyDefect(
        Defect("fenced-broker-keeps-leading", ("QC-30",), "a fenced broker keeps its leaderships"),
        _fenced_broker_keeps_leading,
    ),
    PolicyDefect(
        Defect("deleted-broker-stays-in-isr", ("QC-26",), "a deleted broker stays in an ISR"),
        _deleted_broker_stays_in_isr,
    ),
    PolicyDefect(
        Defect("reuses-leader-epoch", ("RP-24", "QC-32"), "two leaders serve one epoch"),
        _reuses_leader_epoch,
    ),
    PolicyDefect(
        Defect("applies-stale-isr-change", ("QC-32",), "a stale AlterIsr is applied"),
        _applies_stale_isr_change,
    ),
    PolicyDefect(
        Defect(
            "never-goes-back",
            ("RP-21",),
            "leadership never goes back, and load piles up on one broker",
        ),
        _never_goes_back,
    ),
)
