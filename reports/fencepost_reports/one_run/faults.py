"""The times when faults were active, and the windows into which they divide a run."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import final

from fencepost import Event, FaultHealed, FaultInjected, FaultTookEffect
from fencepost_reports.one_run.tables import AuthorityRow, Effect, FailureRow, FaultRow, WindowRow


@final
class FaultFold:
    """A fold over the events of faults, in order; `rows` are the faults of the run."""

    def __init__(self) -> None:
        self._injected: list[tuple[int, FaultInjected]] = []
        self._healed: dict[str, tuple[int, bool]] = {}
        """fault id -> (when it was healed last, whether any of its healings was measured)."""
        self._late: dict[str, str] = {}
        """fault id -> the evidence of a receipt that came after the injection."""
        self._active: list[tuple[int, tuple[str, ...]]] = [(-1, ())]
        """The ids of the faults that are active from a position on."""

    def apply(self, position: int, event: Event) -> None:
        """Applies one event."""
        body = event.body
        if isinstance(body, FaultInjected):
            self._injected.append((body.began_at_ns or event.at_ns, body))
            self._active.append((position, (*self._active[-1][1], body.fault_id)))
        elif isinstance(body, FaultTookEffect):
            self._late[body.fault_id] = body.evidence
        elif isinstance(body, FaultHealed):
            _, measured = self._healed.get(body.fault_id, (0, False))
            self._healed[body.fault_id] = (event.at_ns, measured or body.receipt)
            left = tuple(name for name in self._active[-1][1] if name != body.fault_id)
            self._active.append((position, left))

    def active(self, position: int) -> tuple[str, ...]:
        """The ids of the faults that were active at a position."""
        return self._active[bisect_right(self._active, position, key=lambda one: one[0]) - 1][1]

    def missed(self) -> tuple[str, ...]:
        """The faults without a receipt."""
        return tuple(f"{b.fault} ({b.fault_id})" for _, b in self._injected if not self._has(b))

    def _has(self, body: FaultInjected) -> bool:
        """Whether a fault has a receipt."""
        return body.receipt or body.fault_id in self._late

    def rows(self, ended_ns: int) -> Sequence[FaultRow]:
        """Each fault once; a fault that was not healed lasts until the run's end."""
        return [
            FaultRow(
                fault_id=body.fault_id,
                fault=body.fault,
                targets=body.targets,
                receipt=self._has(body),
                evidence=self._late.get(body.fault_id, body.evidence),
                from_ns=from_ns,
                to_ns=self._healed.get(body.fault_id, (ended_ns, False))[0],
                healed=body.fault_id in self._healed,
                heal_receipt=self._healed.get(body.fault_id, (0, False))[1],
                arguments=body.arguments,
            )
            for from_ns, body in self._injected
        ]


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
    types = [(row.at_ns, row.type) for row in authority if row.effect is Effect.TAKES]
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
