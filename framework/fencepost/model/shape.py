"""How large a cluster is wanted, and with which settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Spare:
    """A node with an id of its own that is laid out and not started: `Cluster.start` does that."""

    role: str
    node_id: int


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a cluster is wanted, and with which settings (names of the system, text values).

    `counts` says how many of each thing that the system counts (`System.counts`: most often nodes
    of a role); what is not named has the system's default. `own` holds the settings of single
    nodes, by the names of their slots, over those of all.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    defects: tuple[str, ...] = ()
    spares: tuple[Spare, ...] = ()
    own: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
