"""Random faults for any system: nodes are killed, stopped and cut off, most often those with
authority.

Which process holds authority is known by the system's events (`AuthorityChange`). With probability
0.7 a victim is a node that holds authority. Faults of links take links through which a process has
a connection open now, and nothing is drawn where there is none: a fault of an idle link has no
receipt, and its run no verdict. Two nodes may have a link each way, and use one: a server dials the
one that it copies, and is not dialled by it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from random import Random  # noqa: TID251 - a seeded stream is passed in
from typing import final

from fencepost.model.faults.random_faults import (
    Administration,
    FaultChooser,
    Moment,
    NamesDraws,
    Planned,
)
from fencepost.model.system.topology import CLIENT, Layout, Link
from fencepost.model.view import Holders

LEAST_MS = 50
AIMED = 0.7
SHARE = 0.3
"""How often a program of the user's is struck, if it may be, and not the cluster."""


@final
@dataclass(frozen=True, slots=True)
class DefaultFaultChooser:
    """See the module. A fault lasts at most half of the recovery bound. `apps` are the programs
    whose instances it strikes, instead of nodes; none: it strikes nodes."""

    recovery_bound_ms: int
    apps: tuple[str, ...] = ()

    @property
    def mending_ms(self) -> int:
        """A quarter of the recovery bound."""
        return self.recovery_bound_ms // 4

    @property
    def draws(self) -> Collection[str]:
        """See `NamesDraws`."""
        return [name for name, _ in _MENU]

    def draw(self, random: Random, moment: Moment) -> Planned | None:
        """See `FaultChooser.draw`."""
        menu = [make for name, make in _MENU if name in moment.offered]
        layout = moment.layout
        nodes = [slot.name for slot in layout.nodes()]
        if not menu or len(nodes) < 2:
            return None
        if self.apps:
            nodes = [slot.name for app in self.apps for slot in layout.instances(app)]
        victim = _victim(random, moment, nodes)
        for_ms = random.randint(LEAST_MS, max(LEAST_MS, self.recovery_bound_ms // 2))
        planned = menu[random.randrange(len(menu))](random, victim, moment, for_ms)
        if planned is None:
            return None
        # A fault of links needs links that answer, so none of a slot whose links were healed just
        # now. A fault of a process needs only that the slot is free.
        taken = moment.affected | (moment.mending if planned.ends else frozenset())
        if planned.alone and moment.affected:
            return None
        # A link has a receipt only if processes run at both ends.
        living = all(moment.view.newest.get(n) in moment.view.alive for n in planned.ends)
        return None if planned.victims & taken or not living else planned


@final
@dataclass(frozen=True, slots=True)
class WithApps:
    """Strikes the cluster by its own chooser, and in a part of its draws (`SHARE`) an app."""

    cluster: FaultChooser
    apps: DefaultFaultChooser

    @property
    def mending_ms(self) -> int:
        """The longer of both."""
        return max(self.cluster.mending_ms, self.apps.mending_ms)

    @property
    def draws(self) -> Collection[str]:
        """What either may draw; see `NamesDraws`."""
        own = self.cluster.draws if isinstance(self.cluster, NamesDraws) else ()
        return {*own, *self.apps.draws}

    def draw(self, random: Random, moment: Moment) -> Planned | Administration | None:
        """See `FaultChooser.draw`."""
        chooser = self.apps if random.random() < SHARE else self.cluster
        return chooser.draw(random, moment)


def _victim(random: Random, moment: Moment, nodes: Sequence[str]) -> str:
    held = moment.view.of(Holders).of.values()
    slots = {moment.view.slot_of.get(process, "") for _, process in held}
    holders = sorted(slots & set(nodes))
    # Most often a holder, since a fault of it takes something from the cluster.
    if holders and random.random() < AIMED:
        return holders[random.randrange(len(holders))]
    return nodes[random.randrange(len(nodes))]


def _links(layout: Layout, one: str, other: str) -> Sequence[Link]:
    """Every link between two slots, whichever of them dials."""
    both = {one, other}
    return [link for link in layout.links if {link.source, link.target} == both]


def _neighbours(layout: Layout, victim: str) -> Sequence[str]:
    """The other nodes that a link joins with a node, in the order of the layout. Where links join
    no two nodes, as before many a cluster that is attached to, the clients that reach it."""
    names = [slot.name for slot in layout.nodes()]
    near = [name for name in names if _links(layout, victim, name)]
    return near or [one.name for one in layout.of(CLIENT) if _links(layout, victim, one.name)]


def _used(random: Random, victim: str, moment: Moment) -> tuple[str, Sequence[Link]] | None:
    """A neighbour to which connections are open, and the links that they pass; None if there is
    none. Each link is asked for once: connections open and close, so the next answer may differ."""
    near = {
        name: [one for one in _links(moment.layout, victim, name) if moment.in_use([one])]
        for name in _neighbours(moment.layout, victim)
    }
    used = [(name, links) for name, links in near.items() if links]
    return used[random.randrange(len(used))] if used else None


def _kill(random: Random, victim: str, moment: Moment, for_ms: int) -> Planned:
    return Planned("kill", {"node": victim}, for_ms, frozenset([victim]))


def _terminate(random: Random, victim: str, moment: Moment, for_ms: int) -> Planned:
    return Planned("terminate", {"node": victim}, for_ms, frozenset([victim]))


def _pause(random: Random, victim: str, moment: Moment, for_ms: int) -> Planned:
    return Planned("pause", {"node": victim}, for_ms, frozenset([victim]))


def _isolate(random: Random, victim: str, moment: Moment, for_ms: int) -> Planned | None:
    near = _neighbours(moment.layout, victim)
    if not any(moment.in_use(_links(moment.layout, victim, name)) for name in near):
        return None
    ends = frozenset([victim, *near])
    return Planned("isolate", {"node": victim}, for_ms, frozenset([victim]), ends=ends)


def _cut_one_way(random: Random, victim: str, moment: Moment, for_ms: int) -> Planned | None:
    found = _used(random, victim, moment)
    if found is None:
        return None
    both = [victim, found[0]]
    if random.random() < 0.5:
        both.reverse()
    arguments = {"sources": both[0], "targets": both[1]}
    return Planned("cut", arguments, for_ms, frozenset([victim]), ends=frozenset(both))


def _slow(random: Random, victim: str, moment: Moment, for_ms: int) -> Planned | None:
    found = _used(random, victim, moment)
    if found is None:
        return None
    other, used = found
    link = used[random.randrange(len(used))]
    late_ms = random.randint(20, 200)
    arguments = {"sources": link.source, "targets": link.target, "latency_ms": late_ms}
    ends = frozenset([victim, other])
    return Planned("slow_link", arguments, for_ms, frozenset([victim]), ends=ends)


_MENU: Sequence[tuple[str, Callable[[Random, str, Moment, int], Planned | None]]] = (
    ("kill", _kill),
    ("terminate", _terminate),
    ("pause", _pause),
    ("isolate", _isolate),
    ("cut", _cut_one_way),
    ("slow_link", _slow),
)
