"""The events of a judged run: few of them are needed, those that an explanation is made of and
those that a page shows."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Protocol, final

from fencepost import Codec, Event
from fencepost.reporting import JudgedRun, Promises, RunFolder, read

Ref = tuple[str, int]
Placed = tuple[int, Event]
"""An event, and its position in the history."""


class History(Protocol):
    """Where events are read from; several times."""

    def events(self, kinds: Collection[str], refs: Collection[Ref] = ()) -> Iterator[Placed]:
        """The events of these kinds, and those with these names, in order; maybe others too."""
        ...

    def at(self, positions: Collection[int]) -> Iterator[Placed]:
        """The events at these positions, in order."""
        ...


def history_of(folder: RunFolder, judged: JudgedRun, promises: Promises) -> History:
    """The columns of a judged run, if they are whole and can be read here; else its history."""
    if judged.columns and find_spec("pyarrow") is not None:
        # A plain installation has no pyarrow.
        from fencepost.columns import confirmed  # noqa: PLC0415

        columns = confirmed(folder.path, judged.columns, promises.kinds)
        if columns is not None:
            return columns
    return EventHistory(folder, promises)


@final
@dataclass(frozen=True, slots=True)
class EventHistory:
    """A history that is read event by event."""

    folder: RunFolder
    promises: Promises

    def events(self, kinds: Collection[str], refs: Collection[Ref] = ()) -> Iterator[Placed]:
        return enumerate(read(self.folder, Codec(self.promises.kinds)))

    def at(self, positions: Collection[int]) -> Iterator[Placed]:
        return (placed for placed in self.events(()) if placed[0] in positions)
