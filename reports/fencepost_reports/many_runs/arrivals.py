"""Which runs of a followed folder are to be read now. Pure: it is handed what was found, and when.

A run is to be read once it is judged. A run that is not judged is waited for; if nothing is written
into its folder for a stated time, it is read as it is, and again should it go on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import final

from fencepost_reports.one_run.run import RunSource


@final
@dataclass(frozen=True, slots=True)
class Arrival:
    """A run folder as it was found. `mark` is that of its history, if the run is not judged."""

    source: RunSource
    judged: bool
    mark: str = ""


@final
@dataclass(frozen=True, slots=True)
class _Waiting:
    """A run that is not judged: the mark of its history, since when it has it, and whether it was
    read in that state."""

    mark: str
    since_s: float
    was_read: bool = False


@final
class Arrivals:
    """A fold over what is found in a followed folder."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._waiting: dict[str, _Waiting] = {}
        self._done: set[str] = set()

    @property
    def done(self) -> Collection[str]:
        """The places of the judged runs that were given to be read: they need no further look."""
        return self._done

    @property
    def waiting(self) -> int:
        """How many runs are not judged yet, and were not read."""
        return sum(not one.was_read for one in self._waiting.values())

    def due(self, found: Iterable[Arrival], now_s: float) -> Sequence[RunSource]:
        """The runs that are to be read now, in the order in which they were found. A run that is
        not found any more is forgotten, unless it is done."""
        due = []
        waiting: dict[str, _Waiting] = {}
        for one in found:
            where = one.source.where
            if one.judged:
                if where not in self._done:
                    self._done.add(where)
                    due.append(one.source)
                continue
            before = self._waiting.get(where)
            if before is None or before.mark != one.mark:
                before = _Waiting(one.mark, now_s)
            if not before.was_read and now_s - before.since_s >= self._patience_s:
                before = _Waiting(one.mark, before.since_s, was_read=True)
                due.append(one.source)
            waiting[where] = before
        self._waiting = waiting
        return due
