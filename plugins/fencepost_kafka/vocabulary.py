"""Kafka's terms for a cluster: its roles, its shape, and the durations that its settings imply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from fencepost import Shape, Spare


class Role(StrEnum):
    """The roles of the processes in a slot."""

    CONTROLLER = "controller"
    BROKER = "broker"
    CLIENT = "client"


CLIENTS = "clients"
"""The slot of all clients, which is the end of their links."""
FOR_CLIENTS = frozenset({"Produce", "Fetch", "Metadata"})
"""The requests that a broker answers for its clients. A controller in the same process answers
others, whatever the broker's state is."""
COMBINED = "combined"
"""A count of `COUNTS`: that many of the first brokers' processes run a controller as well."""

COUNTS: Mapping[str, int] = {Role.CONTROLLER.value: 3, Role.BROKER.value: 3, COMBINED: 0}
"""The counts of a Kafka cluster's shape, with their defaults (`System.counts`)."""


def kafka_shape(
    controllers: int = COUNTS[Role.CONTROLLER],
    brokers: int = COUNTS[Role.BROKER],
    settings: Mapping[str, str] | None = None,
    *,
    defects: tuple[str, ...] = (),
    spares: Sequence[Spare] = (),
    combined: int = 0,
    own: Mapping[str, Mapping[str, str]] | None = None,
) -> Shape:
    """A shape by Kafka's counts; only counts that differ from the defaults are stored. `settings`
    have Kafka's dotted names."""
    given = {Role.CONTROLLER.value: controllers, Role.BROKER.value: brokers, COMBINED: combined}
    counts = {name: count for name, count in given.items() if count != COUNTS[name]}
    return Shape(counts, settings or {}, defects, tuple(spares), own or {})


def with_spare_broker(shape: Shape) -> Shape:
    """The shape with one more broker, which is not started at first; one that has spares stays as
    it is."""
    if shape.spares:
        return shape
    brokers = {**COUNTS, **shape.counts}[Role.BROKER]
    return replace(shape, spares=(Spare(Role.BROKER, brokers + 1),))


@dataclass(frozen=True, slots=True)
class Timing:
    """The bounds that tests and rules take from a cluster's configuration, all in milliseconds."""

    heartbeat_ms: int
    lease_ms: int
    election_ms: int
    recovery_bound_ms: int
    takeover_ms: int = 0
    """How long until others decide about brokers, after the one that did is gone (0: at once)."""
