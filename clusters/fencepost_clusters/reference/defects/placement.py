"""Defects of placement and reassignment."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from fencepost import Defect
from fencepost_clusters.reference.core.cluster import placement
from fencepost_clusters.reference.core.cluster.image import Image
from fencepost_clusters.reference.core.cluster.policies import Moves
from fencepost_clusters.reference.policies import Policies, PolicyDefect


# The preferred replicas are placed as they should be. Only the other replicas do not take turns:
# RP-01 asks for both.
def _always_the_next(
    brokers: Sequence[int], partitions: int, replicas: int
) -> tuple[tuple[int, ...], ...]:
    ring = sorted(brokers) * 2
    starts = (number % len(brokers) for number in range(partitions))
    return tuple(tuple(ring[start : start + replicas]) for start in starts)


def _one_neighbour_holds_all(p: Policies) -> Policies:
    placement = replace(p.cluster.placement, place=_always_the_next)
    return replace(p, cluster=replace(p.cluster, placement=placement))


def _all_registered(image: Image) -> tuple[int, ...]:
    return tuple(sorted(image.brokers))


def _places_on_dead_broker(p: Policies) -> Policies:
    placement = replace(p.cluster.placement, brokers_for_replicas=_all_registered)
    return replace(p, cluster=replace(p.cluster, placement=placement))


def _places_anew(held: Moves, old: Sequence[int], new: Sequence[int]) -> Moves:
    return placement.rebalance(held, (*old, *new))


def _adding_moves_everything(p: Policies) -> Policies:
    placement = replace(p.cluster.placement, moves_for_new_brokers=_places_anew)
    return replace(p, cluster=replace(p.cluster, placement=placement))


# The new replicas become the ISR though they lack messages, and one of them may lead. So the leader
# comes from outside the ISR that was stored before, which RP-06 forbids.
def _always_caught_up(wanted: Collection[int], isr: Collection[int]) -> bool:
    return True


def _switches_before_caught_up(p: Policies) -> Policies:
    placement = replace(p.cluster.placement, has_caught_up=_always_caught_up)
    return replace(p, cluster=replace(p.cluster, placement=placement))


# The reassignment waits until the new replicas have caught up, so RP-20 holds: only the ISR names
# brokers that are no replicas any more.
def _keeps_former(wanted: tuple[int, ...], isr: tuple[int, ...]) -> tuple[int, ...]:
    return (*wanted, *(b for b in isr if b not in wanted))


def _former_replica_stays_in_isr(p: Policies) -> Policies:
    placement = replace(p.cluster.placement, isr_after_reassignment=_keeps_former)
    return replace(p, cluster=replace(p.cluster, placement=placement))


DEFECTS = (
    PolicyDefect(
        Defect(
            "one-neighbour-holds-all",
            ("RP-01",),
            "the other replicas of one broker's partitions all land on one neighbour",
        ),
        _one_neighbour_holds_all,
    ),
    PolicyDefect(
        Defect("places-on-dead-broker", ("RP-28",), "a replica is placed on a dead broker"),
        _places_on_dead_broker,
    ),
    PolicyDefect(
        Defect("adding-moves-everything", ("RP-03",), "adding a broker moves every partition"),
        _adding_moves_everything,
    ),
    PolicyDefect(
        Defect(
            "switches-before-caught-up",
            ("RP-20", "RP-06"),
            "a reassignment switches over before the new replicas have caught up",
        ),
        _switches_before_caught_up,
    ),
    PolicyDefect(
        Defect(
            "former-replica-stays-in-isr",
            ("RP-19",),
            "a broker that is no replica gets into the ISR",
        ),
        _former_replica_stays_in_isr,
    ),
)
