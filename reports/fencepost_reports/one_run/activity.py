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
from fencepost_reports.one_run.history import GRAIN_NS, Counted
from fencepost_reports.one_run.tables import BINS, DensityRow, ProcessRow, SlotRow, Sort

CLIENT, HARNESS = "client", "harness"
_CLIENTS = "clients/"
_SORTS: dict[OperationOutcome, Sort] = {
    OperationOutcome.OK: "ok",
    OperationOutcome.FAILED: "failed",
    OperationOutcome.UNKNOWN: "unknown",
}


@final
class ActivityFold:
    """A fold over events in order: counts those of each process by sort and time."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int, int, int]] = {}
        """process -> (its first position, first event, last event, number of events)."""
        self._exited: dict[str, int] = {}
        self._counts: Counter[tuple[str, Sort, int]] = Counter()

    def apply(self, position: int, event: Event) -> None:
        """Applies one event."""
        self._see(event.process, position, event.at_ns, event.at_ns, 1)
        if isinstance(event.body, ProcessExited):
            self._exited[event.body.ended] = event.at_ns

    def count(self, event: Event, sort: Sort) -> None:
        """Counts an event of a process."""
        self._counts[event.process, sort, event.at_ns // GRAIN_NS] += 1

    def apply_counted(self, some: Counted) -> None:
        """Applies events that are neither operations nor changes of authority."""
        self._see(some.process, some.position, some.first_ns, some.last_ns, some.events)
        if not some.process.startswith(_CLIENTS):
            self._counts[some.process, "other", some.moment] += some.events

    def _see(self, process: str, position: int, first_ns: int, last_ns: int, events: int) -> None:
        place, first, last, count = self._seen.get(process, (position, first_ns, last_ns, 0))
        self._seen[process] = (
            min(place, position), min(first, first_ns), max(last, last_ns), count + events
        )  # fmt: skip

    @property
    def events(self) -> int:
        """How many events were applied."""
        return sum(count for _, _, _, count in self._seen.values())

    @property
    def began_ns(self) -> int | None:
        """The time of the earliest event."""
        return min((first for _, first, _, _ in self._seen.values()), default=None)

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
            for process, (_, first, last, count) in sorted(self._seen.items(), key=_appeared)
        ]

    def density(self, began_ns: int, ended_ns: int) -> Sequence[DensityRow]:
        """The counts in `BINS` equal parts of the run."""
        length = max(ended_ns - began_ns, 1)
        binned: Counter[tuple[str, Sort, int]] = Counter()
        for (process, sort, moment), count in self._counts.items():
            place = (moment * GRAIN_NS - began_ns) * BINS // length
            binned[process, sort, min(max(place, 0), BINS - 1)] += count
        return [
            DensityRow(process=process, sort=sort, bin=place, count=count)
            for (process, sort, place), count in sorted(binned.items())
        ]


def _appeared(seen: tuple[str, tuple[int, int, int, int]]) -> int:
    return seen[1][0]


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
