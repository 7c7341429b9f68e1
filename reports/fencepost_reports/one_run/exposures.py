"""How often each loss, epoch transition, fault and pair of faults occurred in the windows of a run,
and in how many of these windows each clause was violated afterwards.

A violation follows if it comes in the same window, and not earlier. A window ends with the next
injection of a fault, so that a violation counts for the fault before it.

See docs/decisions/36-exposures.md.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from fencepost import Change
from fencepost.reporting import AuthorityRow, FaultRow, Move
from fencepost_reports.one_run.tables import Antecedent, Count, ExposureRow, FailureRow, WindowRow


class _Event(NamedTuple):
    """What occurred, so that it can be counted."""

    sort: Antecedent
    name: str
    other: str = ""


ANY = _Event("any", "")


def transition_of(row: AuthorityRow) -> str:
    """The epoch transition that a change of authority is, in words; empty: it is none.

    It names the sort of scope, whether the holder changed, and by how much the epoch grew.
    """
    family = row.scope.partition(" ")[0]
    if row.effect not in (Move.TAKES, Move.RENEWS) or row.epoch < 0:
        return ""
    if row.change == Change.LOST:
        return f"{family}: to no holder"
    grown = row.epoch - row.was
    steps = "in the same epoch" if grown == 0 else "one epoch on" if grown == 1 else "epochs on"
    if row.was < 0 or family == "broker":
        steps = "in a new epoch" if grown else steps  # its epochs are not counted one by one
    holder = "the same holder" if row.effect is Move.RENEWS else "another holder"
    return f"{family}: to {holder}, {steps}"


def exposures(
    windows: Iterable[WindowRow],
    faults: Sequence[FaultRow],
    authority: Sequence[AuthorityRow],
    failures: Iterable[FailureRow],
) -> Sequence[ExposureRow]:
    """One row for each thing that occurred, and one for any window."""
    occurred: Counter[_Event] = Counter()
    followed: dict[_Event, Counter[str]] = {}
    violations = [(row.at_ns, row.clause) for row in failures if row.what == "violation"]
    changes = sorted(_changes(authority), key=lambda one: one[1])
    for window in windows:
        last: dict[str, int] = {}
        for at_ns, clause in violations:
            if window.from_ns <= at_ns < window.until_ns:
                last[clause] = max(at_ns, last.get(clause, at_ns))
        for event, since_ns in _first(_events(window, faults, changes)).items():
            occurred[event] += 1
            counts = followed.setdefault(event, Counter())
            counts.update(clause for clause, at_ns in last.items() if at_ns >= since_ns)
    return [
        ExposureRow(
            sort=event.sort,
            name=event.name,
            other=event.other,
            occurred=occurred[event],
            followed=tuple(Count(name=c, count=n) for c, n in sorted(followed[event].items())),
        )
        for event in sorted(occurred)
    ]


def _first(events: Iterable[tuple[_Event, int]]) -> Mapping[_Event, int]:
    """When each occurred first."""
    found: dict[_Event, int] = {}
    for event, at_ns in events:
        found[event] = min(at_ns, found.get(event, at_ns))
    return found


def _changes(authority: Iterable[AuthorityRow]) -> Iterator[tuple[_Event, int]]:
    for row in authority:
        if row.effect is Move.TAKES:
            yield _Event("loss", row.type), row.at_ns
        transition = transition_of(row)
        if transition:
            yield _Event("transition", transition), row.at_ns


def _events(
    window: WindowRow, faults: Iterable[FaultRow], changes: Sequence[tuple[_Event, int]]
) -> Iterator[tuple[_Event, int]]:
    """What occurred in a window; the changes of authority are in the order of time."""
    since_ns = window.from_ns
    yield ANY, since_ns
    known = [row for row in faults if row.from_ns <= since_ns <= row.to_ns]
    injected = [row for row in known if row.from_ns == since_ns]
    for row in injected if window.fault else ():
        yield _Event("fault", row.fault), since_ns
        for other in known:
            if other is not row:
                yield _Event("two faults", *sorted((row.fault, other.fault))), since_ns
    first, end = (
        bisect_left(changes, at_ns, key=lambda one: one[1]) for at_ns in (since_ns, window.until_ns)
    )
    yield from changes[first:end]
