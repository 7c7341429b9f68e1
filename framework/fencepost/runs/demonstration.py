"""A system's demonstration in `fencepost demo`: a load, a few steps, and a defect to be found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from fencepost.runs.faults import Faults


@dataclass(frozen=True, slots=True)
class Scene:
    """The objects that a demonstration acts on: the same as the fixtures of these names."""

    cluster: object
    clients: object
    faults: Faults


@dataclass(frozen=True, slots=True)
class Demonstration:
    """`load` starts clients; each step breaks something and heals it, named by its docstring's
    first line. `planted` is the name of the defect of the second run. `followed_by` names the
    system that a demo shows next, if it was asked for no system."""

    load: Callable[[Scene], None]
    steps: Sequence[Callable[[Scene], None]]
    planted: str
    followed_by: str = ""


@runtime_checkable
class Demonstrable(Protocol):
    """A system that can be shown by `fencepost demo`; it has defects as well."""

    def demonstration(self) -> Demonstration:
        """What the demo shows of this system."""
        ...
