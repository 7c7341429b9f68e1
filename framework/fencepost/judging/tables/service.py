"""What clients felt: the longest time in which none of their operations succeeded, and how long
operations took before, during and after each fault.

The times at which faults change anything cut the run into stretches, and an operation counts for
the stretch in which it began. A fault is reported only once injecting it was measured, and by then
operations have ended that began after it: so each stretch keeps when its operations began, and a
cut that comes late divides it (`Stretches.cut`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, final

from fencepost.judging.tables.rows import FaultRow, LatencyRow, OperationRow, Part, SilenceRow

OK = "ok"
"""The outcome of an operation that succeeded."""
NEVER = -1
"""The time that an operation took that did not succeed."""


class _Gap(NamedTuple):
    """A time without a success, and how many operations ended meanwhile that were none."""

    from_ns: int
    to_ns: int
    missed: int

    @property
    def length_ns(self) -> int:
        return self.to_ns - self.from_ns


@final
class _Served:
    """The operations of one client that do the same to one subject, and end one after another."""

    __slots__ = ("began_ns", "ended_ns", "first", "longest", "missed", "succeeded_ns")

    def __init__(self, began_ns: int) -> None:
        self.began_ns = self.ended_ns = began_ns
        """When the first of them began, and when the last one ended."""
        self.missed = 0
        """How many ended since the last success, or since the beginning if there was none."""
        self.succeeded_ns = NEVER
        """When the last one succeeded."""
        self.first: tuple[int, int] | None = None
        """When the first one succeeded, and how many had ended before."""
        self.longest = _Gap(0, 0, 0)
        """The longest gap between two successes; of equal ones the first."""

    def apply(self, row: OperationRow) -> None:
        """Applies the next one that ended, or was left open."""
        self.began_ns = min(self.began_ns, row.began_ns)
        ended_ns = self.ended_ns = row.ended_ns
        if row.outcome != OK:
            self.missed += 1
            return
        if self.first is None:
            self.first = ended_ns, self.missed
        elif ended_ns - self.succeeded_ns > self.longest.length_ns:
            self.longest = _Gap(self.succeeded_ns, ended_ns, self.missed)
        self.succeeded_ns, self.missed = ended_ns, 0

    def silence(self) -> _Gap:
        """The longest time without a success; of equal ones the first."""
        if self.first is None:
            return _Gap(self.began_ns, self.ended_ns, self.missed)
        before = _Gap(self.began_ns, *self.first)
        after = _Gap(self.succeeded_ns, self.ended_ns, self.missed)
        return max((before, self.longest, after), key=lambda gap: gap.length_ns)


@final
class ServiceFold:
    """A fold over the operations of clients, in the order in which they ended."""

    def __init__(self) -> None:
        self.stretches = Stretches()
        self._served: dict[tuple[str, str, str], _Served] = {}

    def apply(self, row: OperationRow) -> None:
        """Applies one operation, ended or left open at the run's end."""
        key = row.process, row.what, row.subject
        served = self._served.get(key)
        if served is None:
            served = self._served[key] = _Served(row.began_ns)
        served.apply(row)
        took = row.ended_ns - row.began_ns
        if took > 0:  # an operation may be a single event, which says nothing about its length
            self.stretches.add(row.what, row.began_ns, took if row.outcome == OK else NEVER)

    @property
    def silences(self) -> Sequence[SilenceRow]:
        """The longest time without a success of each client, by what it does and to what. First
        those in which operations were tried; of these the longest first."""
        rows = [
            SilenceRow(process=process, what=what, subject=subject, **served.silence()._asdict())
            for (process, what, subject), served in self._served.items()
        ]
        return sorted(rows, key=_rank)


def _rank(row: SilenceRow) -> tuple[bool, int, str, str, str]:
    return not row.missed, row.from_ns - row.to_ns, row.process, row.what, row.subject


class _Times(NamedTuple):
    """Operations: when each began, and how long it took."""

    began: array[int]
    took: array[int]


@final
class Stretches:
    """How long operations took, by what they do and by the stretch of the run in which they
    began."""

    def __init__(self) -> None:
        self._edges: list[int] = []
        """The times that divide the run, in order: at such a time a stretch begins."""
        self._stretches: list[dict[str, _Times]] = [{}]
        """One more than there are edges; each by what operations do."""

    def add(self, what: str, began_ns: int, took_ns: int) -> None:
        """Adds an operation."""
        stretch = self._stretches[bisect_right(self._edges, began_ns)]
        times = stretch.get(what)
        if times is None:
            times = stretch[what] = _Times(array("q"), array("q"))
        times.began.append(began_ns)
        times.took.append(took_ns)

    def cut(self, at_ns: int) -> None:
        """Divides the stretch in which a time lies. A cut that turns out to be none does no harm:
        what is asked for are times, and stretches are put together."""
        number = bisect_left(self._edges, at_ns)
        if self._edges[number : number + 1] == [at_ns]:
            return
        whole = self._stretches[number]
        self._edges.insert(number, at_ns)
        self._stretches[number : number + 1] = [{}, {}]
        for what, times in whole.items():
            for began_ns, took_ns in zip(*times, strict=True):
                self.add(what, began_ns, took_ns)

    def latencies(self, faults: Sequence[FaultRow]) -> Sequence[LatencyRow]:
        """How long operations took before, during and after each fault, by what they do."""
        if not faults:
            return []
        for ns in _changed(faults):
            self.cut(ns)
        kinds = sorted({what for one in self._stretches for what in one})
        ordered = [
            {what: array("q", sorted(times.took)) for what, times in one.items()}
            for one in self._stretches
        ]
        return [
            _row(fault.fault_id, part, what, chosen)
            for fault in faults
            for part, numbers in self._parts(fault, faults)
            for what in kinds
            if (chosen := [ordered[one][what] for one in numbers if what in ordered[one]])
        ]

    def _parts(self, fault: FaultRow, faults: Iterable[FaultRow]) -> Iterator[tuple[Part, range]]:
        """The time since another fault changed anything, the fault's own time, and the time until
        another fault changes anything: each as stretches."""
        edges = self._edges
        others = _changed(one for one in faults if one is not fault)
        before = others[: bisect_left(others, fault.from_ns)]
        after = others[bisect_left(others, fault.to_ns) :]
        began, ended = bisect_right(edges, fault.from_ns), bisect_right(edges, fault.to_ns)
        yield "before", range(bisect_right(edges, before[-1]) if before else 0, began)
        yield "during", range(began, ended)
        yield "after", range(ended, bisect_right(edges, after[0]) if after else len(edges) + 1)


def _changed(faults: Iterable[FaultRow]) -> Sequence[int]:
    """The times at which a fault changed anything, in order."""
    return sorted({ns for fault in faults for ns in (fault.from_ns, fault.to_ns)})


def _row(fault_id: str, part: Part, what: str, times: Sequence[array[int]]) -> LatencyRow:
    count = sum(map(len, times))
    missed = sum(bisect_left(one, 0) for one in times)
    succeeded = count - missed
    return LatencyRow(
        fault_id=fault_id,
        part=part,
        what=what,
        count=count,
        succeeded=succeeded,
        median_ns=_nth(times, missed + succeeded // 2) if succeeded else NEVER,
        slow_ns=_nth(times, missed + succeeded * 99 // 100) if succeeded else NEVER,
        longest_ns=max(one[-1] for one in times),
    )


def _nth(times: Sequence[array[int]], n: int) -> int:
    """The time with number n, from 0, of all times in order.

    It is searched by its value, so a fault that lasts for many stretches copies none of them.
    """
    low, high = min(one[0] for one in times), max(one[-1] for one in times)
    while low < high:
        middle = (low + high) // 2
        if sum(bisect_right(one, middle) for one in times) > n:
            high = middle
        else:
            low = middle + 1
    return low
