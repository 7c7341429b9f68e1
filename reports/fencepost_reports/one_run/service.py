"""What clients felt: the longest time in which none of their operations succeeded, and how long
operations took before, during and after each fault.

Both are taken in pieces: of one operation, or of many at once. Pieces are joined exactly, so a run
that is folded in shares has the tables of the whole one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, final

from msgspec import Struct, structs

from fencepost.reporting import OperationRow
from fencepost_reports.one_run.tables import FaultRow, LatencyRow, Part, SilenceRow

OK = "ok"
"""The outcome of an operation that succeeded."""
NEVER = -1
"""The time that an operation took that did not succeed."""


class Gap(NamedTuple):
    """A time without a success, and how many operations ended meanwhile that were none."""

    from_ns: int
    to_ns: int
    missed: int

    @property
    def length_ns(self) -> int:
        return self.to_ns - self.from_ns


NO_GAP = Gap(0, 0, 0)


@final
class Served(Struct, frozen=True, kw_only=True):
    """Operations of one client that do the same to one subject, and end one after another.

    `began_ns` is when the first of them began, `ended_ns` when the last one ended. `missed` counts
    those before the first success, or all if there is none; `since` those after the last success.
    `longest` is the longest gap between two successes.
    """

    process: str
    what: str
    subject: str
    began_ns: int
    ended_ns: int
    missed: int
    first_ns: int = NEVER
    last_ns: int = NEVER
    since: int = 0
    longest: Gap = NO_GAP

    def then(self, later: Served) -> Served:
        """These operations, and the later ones."""
        began_ns = min(self.began_ns, later.began_ns)
        if self.first_ns == NEVER:
            return structs.replace(later, began_ns=began_ns, missed=self.missed + later.missed)
        if later.first_ns == NEVER:
            since = self.since + later.missed
            return structs.replace(self, began_ns=began_ns, ended_ns=later.ended_ns, since=since)
        between = Gap(self.last_ns, later.first_ns, self.since + later.missed)
        return structs.replace(
            later,
            began_ns=began_ns,
            missed=self.missed,
            first_ns=self.first_ns,
            longest=_longest((self.longest, between, later.longest)),
        )

    def silence(self) -> SilenceRow:
        """The longest time without a success; of equal ones the first."""
        if self.first_ns == NEVER:
            longest = Gap(self.began_ns, self.ended_ns, self.missed)
        else:
            before = Gap(self.began_ns, self.first_ns, self.missed)
            after = Gap(self.last_ns, self.ended_ns, self.since)
            longest = _longest((before, self.longest, after))
        return SilenceRow(
            process=self.process,
            what=self.what,
            subject=self.subject,
            from_ns=longest.from_ns,
            to_ns=longest.to_ns,
            missed=longest.missed,
        )


def _longest(gaps: Iterable[Gap]) -> Gap:
    return max(gaps, key=lambda gap: gap.length_ns)


class Took(Struct, frozen=True, kw_only=True):
    """How long the operations of one kind took that began in one stretch of the run.

    `took` has the times in order, as 64-bit integers of this machine. Stretches are the times
    between `cuts`.
    """

    what: str
    stretch: int
    took: bytes


def cuts(faults: Iterable[FaultRow]) -> Sequence[int]:
    """The times at which a fault changed anything, in order: they cut the run into stretches."""
    return sorted({ns for fault in faults for ns in (fault.from_ns, fault.to_ns)})


@final
class ServiceFold:
    """A fold over the operations of clients; those of one client in order."""

    def __init__(self, cuts: Sequence[int]) -> None:
        self._cuts = cuts
        self._served: dict[tuple[str, str, str], Served] = {}
        self._took: dict[tuple[str, int], array[int]] = {}

    def operation(self, row: OperationRow) -> None:
        """Takes one operation, ended or left open at the run's end."""
        ok = row.outcome == OK
        ended_ns = row.ended_ns if ok else NEVER
        self.served(
            Served(
                process=row.process,
                what=row.what,
                subject=row.subject,
                began_ns=row.began_ns,
                ended_ns=row.ended_ns,
                missed=int(not ok),
                first_ns=ended_ns,
                last_ns=ended_ns,
            )
        )
        took = row.ended_ns - row.began_ns
        if took > 0:  # an operation may be a single event, which says nothing about its length
            self.took(row.what, (row.began_ns,), (took if ok else NEVER,))

    def served(self, some: Served) -> None:
        """Takes operations that ended after all others of their kind."""
        key = some.process, some.what, some.subject
        former = self._served.get(key)
        self._served[key] = some if former is None else former.then(some)

    def took(self, what: str, began: Sequence[int], took: Sequence[int]) -> None:
        """Takes how long operations took, in the order in which they began."""
        if not self._cuts:
            return
        first = 0
        while first < len(began):
            stretch = bisect_right(self._cuts, began[first])
            last = stretch == len(self._cuts)
            end = len(began) if last else bisect_left(began, self._cuts[stretch], first)
            self._took.setdefault((what, stretch), array("q")).extend(took[first:end])
            first = end

    @property
    def silences(self) -> Sequence[SilenceRow]:
        """The longest time without a success of each client, by what it does and to what."""
        return ranked(one.silence() for one in self._served.values())

    @property
    def taken(self) -> Sequence[Took]:
        """How long operations took, if there was a fault."""
        return _in_order(self._took)


def ranked(silences: Iterable[SilenceRow]) -> Sequence[SilenceRow]:
    """First those in which operations were tried; of these the longest first."""

    def rank(row: SilenceRow) -> tuple[bool, int, str, str, str]:
        return not row.missed, row.from_ns - row.to_ns, row.process, row.what, row.subject

    return sorted(silences, key=rank)


def together(taken: Iterable[Took]) -> Sequence[Took]:
    """The times of all shares."""
    found: dict[tuple[str, int], array[int]] = {}
    for one in taken:
        found.setdefault((one.what, one.stretch), array("q")).frombytes(one.took)
    return _in_order(found)


def _in_order(took: Mapping[tuple[str, int], array[int]]) -> Sequence[Took]:
    return [
        Took(what=what, stretch=stretch, took=array("q", sorted(times)).tobytes())
        for (what, stretch), times in sorted(took.items())
    ]


def latencies(faults: Sequence[FaultRow], taken: Iterable[Took]) -> Sequence[LatencyRow]:
    """How long operations took before, during and after each fault, by what they do."""
    edges = cuts(faults)
    found: dict[str, dict[int, array[int]]] = {}
    for one in taken:
        times = array("q")
        times.frombytes(one.took)
        found.setdefault(one.what, {})[one.stretch] = times
    return [
        _row(fault.fault_id, part, what, chosen)
        for fault in faults
        for part, stretches in _parts(fault, faults, edges)
        for what, by_stretch in found.items()
        if (chosen := [by_stretch[one] for one in stretches if one in by_stretch])
    ]


def _parts(
    fault: FaultRow, faults: Iterable[FaultRow], edges: Sequence[int]
) -> Iterator[tuple[Part, range]]:
    """The time since another fault changed anything, the fault's own time, and the time until
    another fault changes anything: each as stretches."""
    others = cuts(one for one in faults if one is not fault)
    before = others[: bisect_left(others, fault.from_ns)]
    after = others[bisect_left(others, fault.to_ns) :]
    began, ended = bisect_right(edges, fault.from_ns), bisect_right(edges, fault.to_ns)
    yield "before", range(bisect_right(edges, before[-1]) if before else 0, began)
    yield "during", range(began, ended)
    yield "after", range(ended, bisect_right(edges, after[0]) if after else len(edges) + 1)


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
