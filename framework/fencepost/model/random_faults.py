"""What a random schedule may do next: a pure value, drawn from chance and the view of the run.

A system that knows where its authority changes hands draws its own (`ChoosesFaults`); others get
`fencepost.runs.default_faults`, which knows roles, links and holders of authority only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from random import Random  # noqa: TID251 - a seeded stream is passed in
from typing import Protocol, runtime_checkable

from fencepost.model.shape import Shape
from fencepost.model.topology import Layout
from fencepost.model.view import View


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault by name with its arguments, to be healed after `for_ms`; `victims` are slot names.

    `alone`: only while nothing else is affected, and no other fault starts before it heals. While
    others are out, a disk that is copied, or forgets, may be the only one that holds what was
    committed.

    `holding`: only while its victims hold their ids for certain, and so keep a second process out.

    `ends` are the slots between which it changes links. A receipt needs a link that answered
    before, so none of these may be still starting.
    """

    fault: str
    arguments: Mapping[str, object]
    for_ms: int
    victims: frozenset[str]
    alone: bool = False
    ends: frozenset[str] = frozenset()
    holding: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """What a fault is chosen from.

    `offered` are the names of the faults there are, `affected` the slots that a fault affects now,
    `mending` those whose links were healed so lately that they may not be in touch again.
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
        """How long after its links were healed a slot may not be in touch again."""
        ...

    def draw(self, random: Random, moment: Moment) -> Planned | None:
        """The next fault; None when the one that was drawn would miss, or hit an affected slot."""
        ...


@runtime_checkable
class ChoosesFaults(Protocol):
    """A system that draws the faults of random schedules by its own state."""

    def fault_chooser(self, shape: Shape) -> FaultChooser: ...
