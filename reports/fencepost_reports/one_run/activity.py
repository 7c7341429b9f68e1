"""The processes of a run, and the number of events in each part of its time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import final

from fencepost import (
    Change,
    Event,
    OperationOutcome,
    ProcessExited,
)
from fencepost.reporting import changes_authority, tells_operations
from fencepost_reports.one_run.tables import BINS, DensityRow, ProcessRow, SlotRow, Sort

CLIENT, HARNESS = "client", "harness"
_CLIENTS = "clients/"
_SORTS: dict[OperationOutcome, Sort] = {
    OperationOutcome.OK: "ok",
    OperationOutcome.FAILED: "failed",
    OperationOutcome.UNKNOWN: "unknown",
}
_GRAIN_NS = 1_000_000
"""The resolution of counted times while the run's length is not known."""


@final
class ActivityFold:
    """A fold over events in order: counts those of each process by sort and time."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int, int]] = {}
        """process -> (first event, last event, number of events)."""
        self._exited: dict[str, int] = {}
        self._counts: Counter[tuple[str, Sort, int]] = Counter()

    def apply(self, event: Event) -> None:
        """Applies one event."""
        at = event.at_ns
        first, last, count = self._seen.get(event.process, (at, at, 0))
        self._seen[event.process] = (min(first, at), max(last, at), count + 1)
        if isinstance(event.body, ProcessExited):
            self._exited[event.body.ended] = at

    def count(self, event: Event, sort: Sort) -> None:
        """Counts an event of a process."""
        self._counts[event.process, sort, event.at_ns // _GRAIN_NS] += 1

    def processes(self, slots: Iterable[SlotRow]) -> Sequence[ProcessRow]:
        """Each process that wrote an event, in the order of appearance."""
        by_name = {slot.name: slot for slot in slots}
        return [
            ProcessRow(
                process=process,
                slot=process.partition("#")[0],
                role=_role(process, by_name),
                node_id=_node(process, by_name),
                from_ns=first,
                to_ns=max(last, self._exited.get(process, last)),
                events=count,
            )
            for process, (first, last, count) in self._seen.items()
        ]

    def density(self, began_ns: int, ended_ns: int) -> Sequence[DensityRow]:
        """The counts in `BINS` equal parts of the run."""
        length = max(ended_ns - began_ns, 1)
        binned: Counter[tuple[str, Sort, int]] = Counter()
        for (process, sort, moment), count in self._counts.items():
            place = (moment * _GRAIN_NS - began_ns) * BINS // length
            binned[process, sort, min(max(place, 0), BINS - 1)] += count
        return [
            DensityRow(process=process, sort=sort, bin=place, count=count)
            for (process, sort, place), count in sorted(binned.items())
        ]


def sort_of(event: Event) -> Sort | None:
    """The sort of an event; None for an event of a client that ends no operation."""
    body = event.body
    if tells_operations(body):
        ended = [one.outcome for one in body.client_operations() if one.outcome is not None]
        return _SORTS[ended[0]] if ended else None
    if event.process.startswith(_CLIENTS):
        return None
    changes = body.authority() if changes_authority(body) else ()
    if any(one.change is Change.REFUSED for one in changes):
        return "refused"
    return "other"


def _role(process: str, slots: dict[str, SlotRow]) -> str:
    if process.startswith(_CLIENTS):
        return CLIENT
    slot = slots.get(process.partition("#")[0])
    return HARNESS if slot is None else slot.role


def _node(process: str, slots: dict[str, SlotRow]) -> int:
    slot = slots.get(process.partition("#")[0])
    return -1 if slot is None else slot.node_id
