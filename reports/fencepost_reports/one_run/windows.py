"""The windows into which the injections of faults divide a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fencepost.reporting import AuthorityRow, FaultRow, Move
from fencepost_reports.one_run.tables import FailureRow, WindowRow


def windows(
    faults: Iterable[FaultRow],
    authority: Iterable[AuthorityRow],
    failures: Iterable[FailureRow],
    began_ns: int,
    ended_ns: int,
) -> Sequence[WindowRow]:
    """The run cut at each injection, so that each moment of it is in one window.

    The after-effects of a fault count for that fault, until the next fault is injected.
    """
    at: dict[int, set[str]] = {}
    for fault in faults:
        at.setdefault(fault.from_ns, set()).add(fault.fault)
    starts = [(began_ns, "")] + [
        (ns, " + ".join(sorted(names))) for ns, names in sorted(at.items())
    ]
    ends = [ns for ns, _ in starts[1:]] + [ended_ns + 1]
    types = [(row.at_ns, row.type) for row in authority if row.effect is Move.TAKES]
    failed = [(row.at_ns, row.what) for row in failures]
    return [
        WindowRow(
            from_ns=from_ns,
            until_ns=until_ns,
            fault=fault,
            types=_within(types, from_ns, until_ns),
            failed=_within(failed, from_ns, until_ns),
        )
        for (from_ns, fault), until_ns in zip(starts, ends, strict=True)
    ]


def _within(facts: Iterable[tuple[int, str]], from_ns: int, until_ns: int) -> tuple[str, ...]:
    return tuple(sorted({what for at_ns, what in facts if from_ns <= at_ns < until_ns}))
