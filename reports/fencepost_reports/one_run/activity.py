"""The processes of a run, and the number of events in each part of its time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import final

from fencepost import slot_of
from fencepost_reports.one_run.history import CLIENTS, Seen
from fencepost_reports.one_run.tables import DensityRow, ProcessRow, SlotRow, Sort

CLIENT, HARNESS = "client", "harness"


@final
class Activity:
    """Counts the events of each process by sort and time: sums, so in any order."""

    def __init__(self) -> None:
        self._seen: dict[str, Seen] = {}
        self._counts: Counter[tuple[str, Sort, int]] = Counter()

    def see(self, new: Seen) -> None:
        """Takes that a process has events."""
        old = self._seen.get(new.process, new)
        events = new.events if old is new else old.events + new.events
        self._seen[new.process] = Seen(
            new.process,
            min(old.position, new.position),
            min(old.first_ns, new.first_ns),
            max(old.last_ns, new.last_ns),
            events,
        )

    def count(self, row: DensityRow) -> None:
        """Counts events."""
        self._counts[row.process, row.sort, row.bin] += row.count

    @property
    def seen(self) -> Sequence[Seen]:
        """The processes, in the order of appearance."""
        return sorted(self._seen.values(), key=lambda one: one.position)

    @property
    def density(self) -> Sequence[DensityRow]:
        """The counts that are not 0."""
        return [
            DensityRow(process=process, sort=sort, bin=place, count=count)
            for (process, sort, place), count in sorted(self._counts.items())
            if count
        ]


def processes(
    seen: Iterable[Seen], exited: Mapping[str, int], slots: Iterable[SlotRow]
) -> Sequence[ProcessRow]:
    """Each process that wrote an event, in the order of appearance; `exited` is when it ended."""
    by_name = {slot.name: slot for slot in slots}
    return [
        ProcessRow(
            process=one.process,
            slot=slot_of(one.process),
            role=_role(one.process, by_name),
            node_id=_node(one.process, by_name),
            from_ns=one.first_ns,
            to_ns=max(one.last_ns, exited.get(one.process, one.last_ns)),
            events=one.events,
        )
        for one in seen
    ]


def _role(process: str, slots: Mapping[str, SlotRow]) -> str:
    if process.startswith(CLIENTS):
        return CLIENT
    slot = slots.get(slot_of(process))
    return HARNESS if slot is None else slot.role


def _node(process: str, slots: Mapping[str, SlotRow]) -> int:
    slot = slots.get(slot_of(process))
    return -1 if slot is None else slot.node_id
