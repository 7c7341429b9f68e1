"""The processes of a run, and how many events each has in each part of the run's time."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import final

from fencepost.events import Event
from fencepost.judging.tables.rows import BINS, DensityRow, SeenRow, Sort


@final
class _Process:
    """What is known of one process so far."""

    __slots__ = ("events", "first_ns", "last_ns", "name", "times")

    def __init__(self, name: str, at_ns: int) -> None:
        self.name = name
        self.first_ns = self.last_ns = at_ns
        self.events = 0
        self.times: dict[Sort, array[int]] = {}
        """sort -> the time of each event: which part of the run's time it lies in is known only at
        the end of the run."""


@final
class ActivityFold:
    """Counts the events of each process."""

    def __init__(self) -> None:
        self._processes: dict[str, _Process] = {}

    def apply(self, event: Event, sort: Sort | None) -> None:
        """Counts one event; with no sort, as an event of its process only."""
        at_ns = event.at_ns
        one = self._processes.get(event.process)
        if one is None:
            one = self._processes[event.process] = _Process(event.process, at_ns)
        one.events += 1
        if at_ns > one.last_ns:
            one.last_ns = at_ns
        elif at_ns < one.first_ns:
            one.first_ns = at_ns
        if sort is not None:
            times = one.times.get(sort)
            if times is None:
                times = one.times[sort] = array("q")
            times.append(at_ns)

    def seen(self) -> Sequence[SeenRow]:
        """The processes, in the order of appearance."""
        return [
            SeenRow(process=p.name, first_ns=p.first_ns, last_ns=p.last_ns, events=p.events)
            for p in self._processes.values()
        ]

    def density(self, began_ns: int, ended_ns: int) -> Iterator[DensityRow]:
        """The counts that are not 0, of a run from its first event to its last."""
        length_ns = max(ended_ns - began_ns, 1)
        for name, one in sorted(self._processes.items()):
            for sort, times in sorted(one.times.items()):
                counts = Counter((ns - began_ns) * BINS // length_ns for ns in times)
                last = counts.pop(BINS, 0)  # the run's last instant belongs to its last part
                if last:
                    counts[BINS - 1] += last
                for place, count in sorted(counts.items()):
                    yield DensityRow(process=name, sort=sort, bin=place, count=count)
