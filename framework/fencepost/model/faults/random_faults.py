"""The next operation of a random schedule: a pure value, drawn from a seeded stream and the view of
the run. It is a fault (`Planned`) or what an administrator asks for (`Administration`).

A system that knows where its authority changes hands draws its own faults (`ChoosesFaults`). For
others `fencepost.runs.default_faults` draws, which knows only roles, links and holders of
authority.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random  # noqa: TID251 - a seeded stream is passed in
from typing import Protocol, runtime_checkable

from fencepost.model.system.shape import Shape
from fencepost.model.system.topology import Cut, Layout, Link, Slot
from fencepost.model.view import View


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault by name with its arguments, to be healed after `for_ms`; `victims` are slot names.

    `alone`: inject it only while nothing else is affected. Until it heals, no fault strikes another
    slot, and no administration is asked for.
    `ends` are the slots between which it changes links. A receipt needs a link that answered
    before, so none of these slots may be starting. `then` is injected right after it, and brings
    about the message that it waits for.
    """

    fault: str
    arguments: Mapping[str, object]
    for_ms: int
    victims: frozenset[str]
    alone: bool = False
    ends: frozenset[str] = frozenset()
    then: Planned | None = None
    after_ms: int = 0
    directions: Cut = frozenset()
    """The (source, target) pairs of slots between which it keeps data from arriving as it should.
    It need not name pairs that have no link, nor those of duplicates: no draw counts on their
    links."""


@dataclass(frozen=True, slots=True)
class Administration:
    """What an administrator asks the cluster for: the name of an operation that the clients of the
    run carry out (`Administers`), with plain data as its arguments. `victims` are the slots that it
    concerns. It has no end: what was asked for stays."""

    operation: str
    arguments: Mapping[str, object]
    victims: frozenset[str]


@dataclass(frozen=True, slots=True)
class Moment:
    """The facts that a fault is chosen from.

    `offered` are the names of the available operations, faults and others. `affected` are the slots
    that a fault affects now, `under` the names of these faults for each of them, and `mending` the
    slots whose links were healed so recently that they may not be connected again. `upon` are the
    names of the faults of links that act now, for each direction that they affect.
    """

    view: View
    layout: Layout
    offered: Collection[str]
    affected: frozenset[str] = frozenset()
    mending: frozenset[str] = frozenset()
    under: Mapping[str, Collection[str]] = field(default_factory=dict)
    upon: Mapping[tuple[str, str], Collection[str]] = field(default_factory=dict)
    in_use: Callable[[Sequence[Link]], bool] = lambda links: True
    """Whether a process has a connection open through any of these links, measured when it is
    called."""


class FaultChooser(Protocol):
    """Chooses the next operation of a random schedule."""

    @property
    def mending_ms(self) -> int:
        """How long after its links were healed a slot may not be connected again."""
        ...

    def draw(self, random: Random, moment: Moment) -> Planned | Administration | None:
        """The next operation; None if the one that was drawn would miss."""
        ...


@runtime_checkable
class NamesDraws(Protocol):
    """A chooser that says what it may draw, so that a weight of anything else is refused."""

    @property
    def draws(self) -> Collection[str]:
        """The names of the operations that it may draw: faults and administration."""
        ...


@runtime_checkable
class ChoosesFaults(Protocol):
    """A system that draws the operations of random schedules from its own state."""

    def fault_chooser(self, shape: Shape) -> FaultChooser:
        """The chooser for one run of a cluster of that shape."""
        ...


@runtime_checkable
class Grows(Protocol):
    """A system to whose cluster random schedules may add nodes."""

    def grown(self, shape: Shape) -> Shape:
        """The shape with the spares that an operation of a schedule may start."""
        ...


@runtime_checkable
class NamesStates(Protocol):
    """A system that names the state that a node is in. The coverage of random schedules counts in
    which states each operation met its victim."""

    @property
    def states(self) -> Sequence[str]:
        """Every name, in the order in which they are shown."""
        ...

    def states_of(self, slot: Slot, view: View, layout: Layout) -> Collection[str]:
        """The states of a slot now: one, several or none."""
        ...
