"""Decisions about the cluster that a defect can replace, as pure functions, for every plane that
has a controller: elections, placement, and the metadata that clients get."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fencepost_clusters.reference.core.cluster import placement
from fencepost_clusters.reference.core.cluster.image import Image
from fencepost_clusters.reference.core.replication.cluster_state import Partition

# ------------------------------------------------------------------------------------ elections

Elected = tuple[int, tuple[int, ...]]
"""A leader, -1 for none, and the ISR with which it starts."""


def first_live(replicas: Sequence[int], isr: Collection[int], live: Collection[int]) -> int:
    """The first live member of the ISR in replica order; -1 if none is live."""
    return next((r for r in replicas if r in isr and r in live), -1)


def elect(partition: Partition, isr: tuple[int, ...], live: Collection[int]) -> Elected:
    """The leader is the first live member of the ISR in replica order (RP-02, RP-06, RP-29)."""
    return first_live(partition.replicas, isr, live), isr


def next_leader_epoch(partition: Partition) -> int:
    """Each change of a partition's leader or ISR has an epoch of its own (RP-24)."""
    return partition.leader_epoch + 1


def affected_partitions(image: Image, broker: int) -> list[Partition]:
    """The partitions that a broker leads or that have it in their ISR."""
    return [one for one in image.all_partitions() if broker in one.isr or one.leader == broker]


def preferred_can_lead(partition: Partition, ready: Collection[int]) -> bool:
    """Whether the preferred replica does not lead, but could (RP-21)."""
    preferred = partition.replicas[0]
    if partition.leader in (preferred, -1):
        return False
    return preferred in partition.isr and preferred in ready


@dataclass(frozen=True, slots=True)
class ElectionPolicies:
    """Leaders, ISRs and their epochs."""

    elect: Callable[[Partition, tuple[int, ...], Collection[int]], Elected] = elect
    next_leader_epoch: Callable[[Partition], int] = next_leader_epoch
    affected_by_fencing: Callable[[Image, int], Iterable[Partition]] = affected_partitions
    affected_by_deletion: Callable[[Image, int], Iterable[Partition]] = affected_partitions
    returns_to_preferred: Callable[[Partition, Collection[int]], bool] = preferred_can_lead


# ------------------------------------------------------------------------------------ placement

Moves = Mapping[tuple[str, int], tuple[int, ...]]
"""(topic, partition) -> replicas."""


def brokers_for_replicas(image: Image) -> tuple[int, ...]:
    """The brokers on which a new topic's replicas may be placed: the live ones (RP-28)."""
    return image.live()


def moves_for_new_brokers(held: Moves, old: Sequence[int], new: Sequence[int]) -> Moves:
    """The partitions that move when brokers are added: as few as possible (RP-03)."""
    return placement.add_brokers(held, old, new)


def has_caught_up(wanted: Collection[int], isr: Collection[int]) -> bool:
    """Whether a reassignment can end: all its new replicas are in the ISR (RP-20)."""
    return set(wanted) <= set(isr)


def isr_after_reassignment(wanted: tuple[int, ...], isr: tuple[int, ...]) -> tuple[int, ...]:
    """The ISR at the end of a reassignment: its new replicas and no other (RP-19)."""
    return wanted


@dataclass(frozen=True, slots=True)
class PlacementPolicies:
    """Where replicas are placed, and when they are moved."""

    brokers_for_replicas: Callable[[Image], tuple[int, ...]] = brokers_for_replicas
    place: Callable[[Sequence[int], int, int], tuple[tuple[int, ...], ...]] = placement.place
    moves_for_new_brokers: Callable[[Moves, Sequence[int], Sequence[int]], Moves] = (
        moves_for_new_brokers
    )
    has_caught_up: Callable[[Collection[int], Collection[int]], bool] = has_caught_up
    isr_after_reassignment: Callable[[tuple[int, ...], tuple[int, ...]], tuple[int, ...]] = (
        isr_after_reassignment
    )


# ------------------------------------------------------------------------- metadata for clients


def named_brokers(image: Image) -> tuple[int, ...]:
    """The brokers in metadata answers to clients: those that are not fenced (REG-07)."""
    return image.live()


def named_leader(partition: Partition) -> int:
    """The leader in metadata answers to clients: the committed one (RP-11)."""
    return partition.leader


@dataclass(frozen=True, slots=True)
class ServingPolicies:
    """What clients learn of the cluster."""

    named_brokers: Callable[[Image], tuple[int, ...]] = named_brokers
    named_leader: Callable[[Partition], int] = named_leader


@dataclass(frozen=True, slots=True)
class ClusterPolicies:
    """All groups of the module."""

    election: ElectionPolicies = field(default_factory=ElectionPolicies)
    placement: PlacementPolicies = field(default_factory=PlacementPolicies)
    serving: ServingPolicies = field(default_factory=ServingPolicies)
