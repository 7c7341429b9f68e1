"""The history of one run, as a report reads it: from the run's columns, or from its events.

Most events tell nothing of authority, faults or operations: they are only counted, by process and
time. In columns they are counted without being made into events, which is most of the speed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, final

from msgspec import Struct

from fencepost import Codec, Event
from fencepost.reporting import (
    RunFolder,
    is_telling,
    read,
)

GRAIN_NS = 1_000_000
"""The resolution of counted times while the run's length is not known."""

Ref = tuple[str, int]
Placed = tuple[int, Event]
"""An event, and its position in the history."""


@final
@dataclass(frozen=True, slots=True)
class Counted:
    """How many events a process has in one part of the time, and where they are."""

    process: str
    moment: int
    """The time in units of `GRAIN_NS`."""
    events: int
    position: int
    """The position of the first of them."""
    first_ns: int
    last_ns: int


class History(Protocol):
    """A run's history, which can be read several times."""

    def telling(self, refs: Collection[Ref] = ()) -> Iterator[Placed]:
        """The events that may tell of authority, faults or operations, and those named, in
        order."""
        ...

    def others(self) -> Iterator[Counted]:
        """The events that `telling` leaves out, counted."""
        ...


def telling_kinds(kinds: Collection[type[Struct]]) -> frozenset[type[Struct]]:
    """The kinds of which each event is needed by itself."""
    of_every_run = frozenset(Codec().kinds.values())
    return frozenset(kind for kind in kinds if kind in of_every_run or is_telling(kind))


@final
@dataclass(frozen=True, slots=True)
class EventHistory:
    """A history that is read event by event: `telling` gives every event."""

    folder: Path
    kinds: tuple[type[Struct], ...]

    def telling(self, refs: Collection[Ref] = ()) -> Iterator[Placed]:
        return enumerate(read(RunFolder(self.folder), Codec(self.kinds)))

    def others(self) -> Iterator[Counted]:
        return iter(())
