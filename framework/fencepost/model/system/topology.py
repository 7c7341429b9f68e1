"""Slots, the links between them, and cuts as pure data.

A slot is a place laid out at cluster start: addresses, links, a disk. A link is the dialled
connection from one slot to another, one proxy of the dialling slot's own toxiproxy. A cut is a set
of directions: `(a, b)` in it means that nothing a sends reaches b.

See docs/decisions/15-bootstrap.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Cut = frozenset[tuple[str, str]]
"""Directions between slot names that are cut."""


NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
"""The names of slots and of clients, which become those of files and hosts."""
CLIENT = "client"
"""The role of the slots in which clients run. A system names the roles of its nodes."""


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """A place for a node's processes, such as `node-2`, or for `clients`.

    `index` is unique in a cluster, from 1 to 250; addresses and ports derive from it. A slot with
    `duplicate` is for a second process with the id of another slot's node. A spare slot is laid out
    but not started with the cluster. `also` holds the role and the id of each further node in the
    same process. A client's slot with `app` is for one instance of a program of the user's, by the
    program's name (`fencepost.model.system.apps`).
    """

    name: str
    role: str
    node_id: int
    index: int
    duplicate: bool = False
    spare: bool = False
    also: tuple[tuple[str, int], ...] = ()
    app: str = ""

    def id_as(self, role: str) -> int | None:
        """The id of the node of that role in this slot; None if there is none."""
        for other, node_id in self.also:
            if other == role:
                return node_id
        return self.node_id if role == self.role else None


@dataclass(frozen=True, slots=True, order=True)
class Link:
    """The dialled connection from `source` to `target`'s listener on `port` (slot names)."""

    source: str
    target: str
    port: int

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}:{self.port}"


@dataclass(frozen=True, slots=True)
class Layout:
    """All slots of a cluster and every link between them: what a system asks a runtime to build.

    Nodes are started in the order of their slots. `bootstrap` names the slots, each with a port, to
    which clients connect first. Every node serves its metrics over HTTP on `metrics_port` of its
    own address (0: no node does). No link leads there, so faults do not affect an operator's view.

    `framed` are ports whose links carry messages: the source of such a link sends each message
    behind its length in four bytes, big-endian. So single messages can be held. `sealed` names what
    nobody can read messages in, such as TLS; empty: the links carry bytes as nodes mean them.
    `logs_in`: each connection begins with a login, so a message cannot be delivered over another.

    `unasked` are ports on which a node listens at some times only, such as while it leads. A link
    to such a port changes together with others, and the receipt is measured on the others.
    """

    slots: tuple[Slot, ...]
    links: tuple[Link, ...]
    metrics_port: int = 0
    bootstrap: tuple[tuple[str, int], ...] = ()
    framed: frozenset[int] = frozenset()
    unasked: frozenset[int] = frozenset()
    sealed: str = ""
    logs_in: bool = False

    def slot(self, name: str) -> Slot:
        """The slot of that name; raises KeyError."""
        for slot in self.slots:
            if slot.name == name:
                return slot
        raise KeyError(name)

    def client_port(self, name: str) -> int:
        """The first port of that slot that clients can reach; raises ValueError for none."""
        clients = {slot.name for slot in self.of(CLIENT)}
        return min(
            link.port for link in self.links if link.source in clients and link.target == name
        )

    def instances(self, app: str = "") -> tuple[Slot, ...]:
        """The slots of an app's instances, in order; of all apps, if none is named."""
        return tuple(s for s in self.slots if s.app and app in ("", s.app))

    def of(self, role: str, duplicates: bool = False, spares: bool = False) -> tuple[Slot, ...]:
        """The slots with a node of that role, in order; with duplicates and spares if asked for.

        A slot whose process is two nodes belongs to both roles.
        """
        return tuple(
            s
            for s in self.slots
            if s.id_as(role) is not None
            and (duplicates or not s.duplicate)
            and (spares or not s.spare)
        )

    def nodes(self, duplicates: bool = False, spares: bool = False) -> tuple[Slot, ...]:
        """The slots of all nodes, in order; with duplicates and spares if asked for."""
        return tuple(
            s
            for s in self.slots
            if s.role != CLIENT and (duplicates or not s.duplicate) and (spares or not s.spare)
        )

    def rivals(self, slot: Slot) -> tuple[Slot, ...]:
        """The other slots for a process with the id of that slot's node."""
        return tuple(
            s
            for s in self.slots
            # Ids are unique within a role: two nodes of different roles may have one number.
            if s != slot and s.role == slot.role != CLIENT and s.node_id == slot.node_id
        )

    def crossed(self, cut: Cut) -> Sequence[Link]:
        """The links that carry any of these directions, in order."""
        return [
            link
            for link in self.links
            # A link carries both directions: what the source sends, and the answers.
            if not cut.isdisjoint({(link.source, link.target), (link.target, link.source)})
        ]

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of nodes, in the order of their first slots."""
        named = ((s.role, *(role for role, _ in s.also)) for s in self.nodes(spares=True))
        return tuple(dict.fromkeys(role for roles in named for role in roles))


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
    """The smaller first half and the other names cannot reach each other."""
    middle = len(names) // 2
    return two_way(names[:middle], names[middle:])


def bridge(names: Sequence[str]) -> Cut:
    """Two halves that only the name in the middle can reach, in both directions."""
    middle = len(names) // 2
    return two_way(names[:middle], names[middle + 1 :])


def majorities_ring(names: Sequence[str]) -> Cut:
    """Each name reaches a majority, and no two the same one: a ring in which each reaches its
    neighbours.

    Every node reaches itself and the nearest `n // 2` others on the ring, rounded up to an even
    number, so that with three names nothing is cut.
    """
    n = len(names)
    # How far each reaches on either side: with five names one neighbour each, so three with itself.
    reach = (n // 2 + 1) // 2
    return frozenset(
        (a, b)
        for i, a in enumerate(names)
        for j, b in enumerate(names)
        if i != j and min((i - j) % n, (j - i) % n) > reach
    )
