"""Partitions: nodes that cannot reach each other.

A cut drops the bytes of open connections and of new ones. It does not imitate a lost packet (TCP
below it never notices), a lost SYN (the link still accepts a connection, which stays silent), UDP,
or a half-closed connection. A connection that was silent during the cut is closed when it heals.
Clients reach every node throughout, unless a cut names their slot.

Every process is a node of its own here, a second one with the same id too: it may be the replica
that lets an isolated master acknowledge. So "the other nodes" are those in all slots, also in the
slots of duplicates and of spares, which may be filled while the cut lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import final

import fencepost
from fencepost import (
    Cut,
    FaultFactory,
    Handle,
    Injected,
    Layout,
    Limited,
    Runtime,
    Slot,
    UsageError,
    hookimpl,
    needs,
    one_way,
    two_way,
)
from fencepost_plugins.targets import (
    Names,
    as_names,
    find_role,
    find_slots,
    once_in_use,
)


@final
@dataclass(frozen=True, slots=True)
class Partition:
    """A partition, by the fault's name and arguments; `shape` makes the cut of a layout from
    them."""

    name: str
    given: Mapping[str, tuple[str, ...]]
    shape: Callable[..., Cut] = field(compare=False, repr=False)

    def directions(self, layout: Layout) -> Cut:
        """The directions that are cut in this layout, as pure data; raises UsageError for an
        unknown slot or role.

        Pairs without a link are left out; if none remains, that is a UsageError too.
        """
        for argument, names in self.given.items():
            if argument == "role":
                find_role(layout, names[0])
            else:
                find_slots(layout, names)
        joined = {(link.source, link.target) for link in layout.links}
        wanted = self.shape(layout, **self.given)
        cut = frozenset((a, b) for a, b in wanted if (a, b) in joined or (b, a) in joined)
        if not cut:
            raise UsageError(f"the fault '{self.name}' cuts nothing: no link joins those nodes")
        return cut

    def inject(self, runtime: Runtime) -> Injected:
        """Cuts at once; the receipt is a probe through the links that were cut, of which one must
        be in use."""
        cut = self.directions(runtime.layout)
        if isinstance(runtime, Limited):
            # Among nodes of somebody else's, two without a proxy between them still reach each
            # other: an isolated node would not be isolated.
            runtime.check_links(sorted(self.shape(runtime.layout, **self.given)))
        targets = tuple(sorted({name for pair in cut for name in pair}))
        receipt = runtime.apply_cut(cut)
        measure = once_in_use(runtime, runtime.layout.crossed(cut), receipt)
        return Injected(targets, receipt, partial(runtime.lift_cut, cut), measure, cut)

    def arguments(self) -> Mapping[str, object]:
        return {n: names[0] if len(names) == 1 else list(names) for n, names in self.given.items()}


@needs(Handle.LINKS)
def cut(sources: Names, targets: Names) -> Partition:
    """No data that a source sends reaches a target; data of the targets still arrives."""
    given = {"sources": as_names(sources), "targets": as_names(targets)}
    return Partition("cut", given, lambda _, sources, targets: one_way(sources, targets))


@needs(Handle.LINKS)
def partition(left: Names, right: Names) -> Partition:
    """Nothing passes between left and right, in either direction."""
    given = {"left": as_names(left), "right": as_names(right)}
    return Partition("partition", given, lambda _, left, right: two_way(left, right))


@needs(Handle.PEERS)
def isolate(node: Names) -> Partition:
    """No other node reaches this one, nor does its own duplicate, and it reaches none; clients
    still do."""
    return Partition("isolate", {"node": as_names(node)}, _isolate)


@needs(Handle.PEERS)
def cut_from_role(node: Names, role: str) -> Partition:
    """Nothing passes between a node and the other nodes of a role, duplicates and spares too;
    clients still reach it."""
    given = {"node": as_names(node), "role": (str(role),)}
    return Partition("cut_from_role", given, between_node_and_role)


@needs(Handle.PEERS)
def isolate_role(role: str) -> Partition:
    """Nothing passes between the nodes of a role and all other nodes."""
    return Partition("isolate_role", {"role": (str(role),)}, _isolate_role)


@needs(Handle.PEERS)
def halves(nodes: Names) -> Partition:
    """The smaller first half of the nodes and the other nodes do not reach each other."""
    given = {"nodes": as_names(nodes)}
    return Partition("halves", given, lambda _, nodes: fencepost.halves(nodes))


@needs(Handle.PEERS)
def bridge(nodes: Names) -> Partition:
    """Two halves of the nodes that only the one in the middle reaches, both ways."""
    given = {"nodes": as_names(nodes)}
    return Partition("bridge", given, lambda _, nodes: fencepost.bridge(nodes))


@needs(Handle.PEERS)
def majorities_ring(nodes: Names) -> Partition:
    """Each node reaches a majority, and no two the same one; with fewer than five nodes nothing is
    cut."""
    given = {"nodes": as_names(nodes)}
    return Partition("majorities_ring", given, lambda _, nodes: fencepost.majorities_ring(nodes))


def _isolate(layout: Layout, node: tuple[str, ...]) -> Cut:
    return two_way(node, [one.name for one in _nodes(layout) if one.name not in node])


def between_node_and_role(layout: Layout, node: tuple[str, ...], role: tuple[str, ...]) -> Cut:
    """Both directions between the named slots and the other slots of a role."""
    return two_way(node, [one.name for one in _nodes(layout, role[0]) if one.name not in node])


def _isolate_role(layout: Layout, role: tuple[str, ...]) -> Cut:
    return _isolate(layout, tuple(one.name for one in _nodes(layout, role[0])))


def _nodes(layout: Layout, role: str = "") -> tuple[Slot, ...]:
    """Every slot with a node, of a role if one is named."""
    if role:
        return layout.of(role, duplicates=True, spares=True)
    return layout.nodes(duplicates=True, spares=True)


@hookimpl
def fencepost_faults() -> Mapping[str, FaultFactory]:
    return {
        "cut": cut,
        "partition": partition,
        "isolate": isolate,
        "cut_from_role": cut_from_role,
        "isolate_role": isolate_role,
        "halves": halves,
        "bridge": bridge,
        "majorities_ring": majorities_ring,
    }
