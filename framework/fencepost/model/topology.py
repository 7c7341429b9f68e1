"""Where things are: slots, the links between them, and cuts as pure data.

A slot is a place laid out at cluster start: addresses, links, a disk. A link is the dialled
connection from one slot to another, one proxy of the dialling slot's own toxiproxy. A cut is a set
of directions: `(a, b)` in it means that nothing a sends reaches b.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

Cut = frozenset[tuple[str, str]]
"""Directions between slot names that are cut."""


class Role(StrEnum):
    """What a slot's processes do."""

    CONTROLLER = "controller"
    BROKER = "broker"
    CLIENT = "client"


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """A place: `broker-2`, its twin `broker-2-twin`, or `clients`.

    `index` is unique in a cluster, from 1 to 250; addresses and ports derive from it. A spare slot
    is laid out and not started with the cluster. `controller_id` is the id of the controller that
    shares a broker's process (-1: none does).
    """

    name: str
    role: Role
    node_id: int
    index: int
    twin: bool = False
    spare: bool = False
    controller_id: int = -1

    def id_as(self, role: Role) -> int | None:
        """The id of the node of that role in this slot; None if there is none."""
        if role is Role.CONTROLLER and self.controller_id >= 0:
            return self.controller_id
        return self.node_id if role is self.role else None


@dataclass(frozen=True, slots=True, order=True)
class Link:
    """The dialled connection from `source` to `target`'s listener on `port` (slot names)."""

    source: str
    target: str
    port: int


@dataclass(frozen=True, slots=True)
class Layout:
    """All slots of a cluster and every link between them: what a system asks a runtime to build.

    On `metrics_port` of its own address every node tells its metrics over HTTP (0: none does). No
    link leads there: an operator's window is no part of the traffic that faults meddle with.
    """

    slots: tuple[Slot, ...]
    links: tuple[Link, ...]
    metrics_port: int = 0

    def slot(self, name: str) -> Slot:
        """The slot of that name; raises KeyError."""
        for slot in self.slots:
            if slot.name == name:
                return slot
        raise KeyError(name)

    def client_port(self, name: str) -> int:
        """The port of that slot's listener that clients can reach: a broker's own, or a
        controller's; raises ValueError where there is none."""
        clients = {slot.name for slot in self.of(Role.CLIENT)}
        return min(
            link.port for link in self.links if link.source in clients and link.target == name
        )

    def of(self, role: Role, twins: bool = False, spares: bool = False) -> tuple[Slot, ...]:
        """The slots in which a node of that role lives, in order; twins and spares when asked for.

        A slot whose process is both broker and controller is among those of either role.
        """
        return tuple(
            s
            for s in self.slots
            if s.id_as(role) is not None and (twins or not s.twin) and (spares or not s.spare)
        )


def one_way(sources: Iterable[str], targets: Iterable[str]) -> Cut:
    """Nothing that any of `sources` sends reaches any of `targets`."""
    there = tuple(targets)
    return frozenset((a, b) for a in sources for b in there if a != b)


def two_way(left: Iterable[str], right: Iterable[str]) -> Cut:
    """Nothing passes between `left` and `right`, in either direction."""
    a, b = tuple(left), tuple(right)
    return one_way(a, b) | one_way(b, a)


def isolate(one: str, names: Sequence[str]) -> Cut:
    """`one` is cut off from every other name."""
    return two_way([one], [n for n in names if n != one])


def halves(names: Sequence[str]) -> Cut:
    """The first half, the smaller one, and the rest cannot hear each other."""
    middle = len(names) // 2
    return two_way(names[:middle], names[middle:])


def bridge(names: Sequence[str]) -> Cut:
    """Two halves that only the name in the middle can reach, both ways."""
    middle = len(names) // 2
    return two_way(names[:middle], names[middle + 1 :])


def majorities_ring(names: Sequence[str]) -> Cut:
    """Each name sees a majority, no two the same one: a ring in which each hears its neighbours.

    Every node hears itself and the nearest `n // 2` others round the ring, rounded up to an even
    number, so that with three names nothing is cut.
    """
    n = len(names)
    reach = (n // 2 + 1) // 2
    return frozenset(
        (a, b)
        for i, a in enumerate(names)
        for j, b in enumerate(names)
        if i != j and min((i - j) % n, (j - i) % n) > reach
    )
