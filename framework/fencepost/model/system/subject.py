"""The subject of a run, on any runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from fencepost.model.system.capabilities import System
from fencepost.model.system.shape import Shape


@dataclass(frozen=True, slots=True)
class Subject:
    """A system in one shape, the seed of all random choices, and the plugins' event kinds.

    `checks` are the user's own: id -> sentence.
    """

    system: System
    shape: Shape
    seed: int = 0
    kinds: tuple[type[Struct], ...] = ()
    checks: Mapping[str, str] = field(default_factory=dict)
