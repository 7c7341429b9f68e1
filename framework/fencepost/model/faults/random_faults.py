"""The next fault of a random schedule: a pure value, drawn from a seeded stream and the view of the
run.

A system that knows where its authority changes hands draws its own faults (`ChoosesFaults`). For
others `fencepost.runs.default_faults` draws, which knows only roles, links and holders of
authority.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from random import Random  # noqa: TID251 - a seeded stream is passed in
from typing import Protocol, runtime_checkable

from fencepost.model.system.shape import Shape
from fencepost.model.system.topology import Layout
from fencepost.model.view import View


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault by name with its arguments, to be healed after `for_ms`; `victims` are slot names.

    `alone`: inject it only while nothing else is affected, and start no other fault before it
    heals, nor for `mends_ms` after that: the cluster may not have noticed yet. Otherwise a disk
    that is copied, or loses data, may be the only one with committed data.
    `holding`: inject it only while its victims certainly hold their ids and so keep a second
    process out. `ends` are the slots between which it changes links. A receipt needs a link that
    answered before, so none of these slots may be starting. `then` is injected right after it, and
    brings about the message that it waits for.
    """

    fault: str
    arguments: Mapping[str, object]
    for_ms: int
    victims: frozenset[str]
    alone: bool = False
    mends_ms: int = 0
    ends: frozenset[str] = frozenset()
    holding: bool = False
    then: Planned | None = None


@dataclass(frozen=True, slots=True)
class Moment:
    """The facts that a fault is chosen from.

    `offered` are the names of the available faults, `affected` the slots that a fault affects now,
    `mending` the slots whose links were healed so recently that they may not be connected again.
    """

    view: View
    layout: Layout
    offered: Collection[str]
    affected: frozenset[str] = frozenset()
    mending: frozenset[str] = frozenset()


class FaultChooser(Protocol):
    """Chooses the next fault of a random schedule."""

    @property
    def mending_ms(self) -> int:
        """How long after its links were healed a slot may not be connected again."""
        ...

    def draw(self, random: Random, moment: Moment) -> Planned | None:
        """The next fault; None if the fault that was drawn would miss, or hit an affected slot."""
        ...


@runtime_checkable
class ChoosesFaults(Protocol):
    """A system that draws the faults of random schedules from its own state."""

    def fault_chooser(self, shape: Shape) -> FaultChooser:
        """The chooser for one run of a cluster of that shape."""
        ...
