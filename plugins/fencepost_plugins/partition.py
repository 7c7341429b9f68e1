"""Partitions: which nodes cannot hear which.

A cut drops the bytes of open connections and of new ones. It does not imitate a lost packet (TCP
below it never notices), a lost SYN (a connection is still accepted, by the link, and stays mute),
UDP, or a half-closed connection; and a connection that was mute while the cut lasted is closed when
it heals. Clients reach every node throughout, unless a cut names their slot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

import fencepost
from fencepost import (
    Cut,
    FaultFactory,
    Layout,
    Role,
    Runtime,
    Struck,
    UsageError,
    hookimpl,
    one_way,
    two_way,
)
from fencepost_plugins.targets import Names, as_names, find_slots, node_names


@final
@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of one of the shapes below; `given` are the shape's arguments."""

    name: str
    given: Mapping[str, tuple[str, ...]]

    def directions(self, layout: Layout) -> Cut:
        """What is cut in this layout, as pure data; raises UsageError for an unknown slot.

        Pairs that no link joins are left out; when none remains, that is a UsageError too.
        """
        for names in self.given.values():
            if self.name != "isolate_role":
                find_slots(layout, names)
        joined = {(link.source, link.target) for link in layout.links}
        wanted = _SHAPES[self.name](layout, **self.given)
        cut = frozenset((a, b) for a, b in wanted if (a, b) in joined or (b, a) in joined)
        if not cut:
            raise UsageError(f"the fault '{self.name}' cuts nothing: no link joins those nodes")
        return cut

    def strike(self, runtime: Runtime) -> Struck:
        """Cuts at once; the receipt is a probe through what was cut."""
        cut = self.directions(runtime.layout)
        targets = tuple(sorted({name for pair in cut for name in pair}))
        return Struck(targets, runtime.apply_cut(cut), lambda: runtime.lift_cut(cut))

    def arguments(self) -> Mapping[str, object]:
        return {n: names[0] if len(names) == 1 else list(names) for n, names in self.given.items()}


def cut(sources: Names, targets: Names) -> Partition:
    """Nothing that a source sends reaches a target; what targets send still arrives."""
    return Partition("cut", {"sources": as_names(sources), "targets": as_names(targets)})


def partition(left: Names, right: Names) -> Partition:
    """Nothing passes between left and right, in either direction."""
    return Partition("partition", {"left": as_names(left), "right": as_names(right)})


def isolate(node: Names) -> Partition:
    """No other node hears this one, and it hears none; clients still reach it."""
    return Partition("isolate", {"node": as_names(node)})


def cut_from_controllers(broker: Names) -> Partition:
    """Nothing passes between a broker and any controller; brokers and clients still reach it."""
    return Partition("cut_from_controllers", {"broker": as_names(broker)})


def isolate_role(role: str) -> Partition:
    """Nothing passes between the nodes of a role (controller or broker) and the other nodes."""
    if role not in (Role.CONTROLLER, Role.BROKER):
        raise fencepost.no_such("role", role, (Role.CONTROLLER, Role.BROKER))
    return Partition("isolate_role", {"role": (str(role),)})


def halves(nodes: Names) -> Partition:
    """The first half of the nodes, the smaller one, and the rest do not hear each other."""
    return Partition("halves", {"nodes": as_names(nodes)})


def bridge(nodes: Names) -> Partition:
    """Two halves of the nodes that only the one in the middle reaches, both ways."""
    return Partition("bridge", {"nodes": as_names(nodes)})


def majorities_ring(nodes: Names) -> Partition:
    """Each node hears a majority, no two the same one; it takes five nodes to cut anything."""
    return Partition("majorities_ring", {"nodes": as_names(nodes)})


def _isolate(layout: Layout, node: tuple[str, ...]) -> Cut:
    return two_way(node, [name for name in node_names(layout) if name not in node])


def _from_controllers(layout: Layout, broker: tuple[str, ...]) -> Cut:
    return two_way(broker, [slot.name for slot in layout.of(Role.CONTROLLER)])


def _isolate_role(layout: Layout, role: tuple[str, ...]) -> Cut:
    return _isolate(layout, tuple(slot.name for slot in layout.of(Role(role[0]))))


_SHAPES: Mapping[str, Callable[..., Cut]] = {
    "cut": lambda _, sources, targets: one_way(sources, targets),
    "partition": lambda _, left, right: two_way(left, right),
    "isolate": _isolate,
    "cut_from_controllers": _from_controllers,
    "isolate_role": _isolate_role,
    "halves": lambda _, nodes: fencepost.halves(nodes),
    "bridge": lambda _, nodes: fencepost.bridge(nodes),
    "majorities_ring": lambda _, nodes: fencepost.majorities_ring(nodes),
}


@hookimpl
def fencepost_faults() -> Mapping[str, FaultFactory]:
    return {
        "cut": cut,
        "partition": partition,
        "isolate": isolate,
        "cut_from_controllers": cut_from_controllers,
        "isolate_role": isolate_role,
        "halves": halves,
        "bridge": bridge,
        "majorities_ring": majorities_ring,
    }
