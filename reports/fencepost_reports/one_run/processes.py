"""The processes of a run, as rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fencepost import slot_of
from fencepost.reporting import SeenRow, is_client
from fencepost_reports.one_run.tables import ProcessRow, SlotRow

CLIENT, HARNESS = "client", "harness"


def processes(
    seen: Iterable[SeenRow], exited: Mapping[str, int], slots: Iterable[SlotRow]
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
    if is_client(process):
        return CLIENT
    slot = slots.get(slot_of(process))
    return HARNESS if slot is None else slot.role


def _node(process: str, slots: Mapping[str, SlotRow]) -> int:
    slot = slots.get(slot_of(process))
    return -1 if slot is None else slot.node_id
