"""Which mutations' places each part of a program reaches, and how long the part takes.

A simulated run is the same again with the same seed. So a part that never reaches a place at which
a mutation changes a value or an effect cannot notice the mutation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import final

from msgspec import Struct

from fencepost.model.clock import SECOND, now_ns

IMPORTS = ""
"""The name of what runs before the first part: above all the imports. What they execute, every
part depends on."""


class Part(Struct, frozen=True):
    """A part of the program, how long it took, and the numbers of the mutations that it reached."""

    name: str
    seconds: float
    reached: Collection[int]


class Reach(Struct, frozen=True):
    """What each part of a program reached."""

    parts: Sequence[Part]

    def at_import(self, number: int) -> bool:
        """Whether the imports reached this mutation."""
        return any(one.name == IMPORTS and number in one.reached for one in self.parts)

    def of(self, number: int) -> Mapping[str, float]:
        """The parts that can notice this mutation, the shortest first, each with its seconds."""
        # What an import executes, every part depends on: so each of them may notice.
        every = self.at_import(number)
        found = [one for one in self.parts if every or number in one.reached]
        found.sort(key=lambda one: one.seconds)
        return {one.name: one.seconds for one in found if one.name != IMPORTS}


@final
class Recorder:
    """Records what is reached, part by part, beginning with `IMPORTS`."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._name = IMPORTS
        self._began_ns = now_ns()
        self._reached: set[int] = set()

    def reached(self, number: int, differs: Callable[[], object] | None = None) -> None:
        """Called by a probed source (`mutations.probed`)."""
        # Once is enough: a place is reached in millions of steps, and this is called in each.
        if number not in self._reached and (differs is None or _true_or_raises(differs)):
            self._reached.add(number)

    def begin(self, name: str) -> None:
        """Ends the current part, and begins the next one."""
        seconds = (now_ns() - self._began_ns) / SECOND
        self._parts.append(Part(self._name, seconds, tuple(sorted(self._reached))))
        self._name, self._reached, self._began_ns = name, set(), now_ns()

    def stop(self) -> Reach:
        """Ends the last part, and returns all."""
        self.begin(IMPORTS)
        return Reach(self._parts)


def _true_or_raises(differs: Callable[[], object]) -> bool:
    try:
        return bool(differs())
    except Exception:
        # Evaluated, it raises: that is a difference, too.
        return True
