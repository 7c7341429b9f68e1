"""The size of a cluster, and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Spare:
    """A node with an id of its own that is laid out but not started; `Cluster.start` starts it."""

    role: str
    node_id: int


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a cluster, and its settings (names of the system, text values).

    `counts` overrides the system's default counts (`System.counts`, most often of nodes of a role).
    `own` holds settings of single nodes, by the names of their slots; they override those of all
    nodes. A name such as `broker-1#2` is that of one process; its settings override those of its
    slot. So a restart can be an upgrade.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    defects: tuple[str, ...] = ()
    spares: tuple[Spare, ...] = ()
    own: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def own_of(self, slot: str, process: str) -> Mapping[str, str]:
        """The settings of this process alone: those of its slot, overridden by its own."""
        return {**self.own.get(slot, {}), **self.own.get(process, {})}
