"""A second live process with a node's id, in that node's twin slot.

It has addresses and links of its own, as a second machine with a cloned configuration would; its
disk is empty, or a copy of the first one's as it is at that moment, like a restored snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, final, get_args

from fencepost import (
    Condition,
    FaultFactory,
    Holders,
    Process,
    Receipt,
    Runtime,
    Signal,
    Slot,
    Struck,
    UsageError,
    View,
    hookimpl,
    no_such,
)
from fencepost_plugins.targets import end, find_slot, named

Disk = Literal["empty", "copy"]
START_BOUND_MS = 60_000
END_BOUND_MS = 5_000


@final
@dataclass(frozen=True, slots=True)
class DuplicateId:
    """Starts the node's twin; `disk` is what it finds: nothing, or a copy of the node's data."""

    node: str
    disk: Disk = "empty"
    name: str = "duplicate_id"

    def strike(self, runtime: Runtime) -> Struck:
        """Returns once the twin has said who it is; the receipt names both processes.

        Raises UsageError when the node has no twin slot, or its twin lives already.
        """
        slot = find_slot(runtime.layout, self.node)
        twin_slot = find_slot(runtime.layout, f"{self.node}-twin")
        if runtime.living(twin_slot) is not None:
            raise UsageError(f"the twin of {self.node} lives already")
        first = runtime.living(slot)
        runtime.copy_disk(slot if self.disk == "copy" else None, twin_slot)
        twin = runtime.start(twin_slot)
        started = Condition(f"{twin.name} to start", lambda view: twin.name in view.node_of)
        runtime.advance(started, runtime.now_ns() + START_BOUND_MS * 1_000_000)
        receipt = _both_live(runtime.view, slot, first, twin)
        targets = tuple(p.name for p in (first, twin) if p is not None)
        return Struck(targets, receipt, lambda: _heal(runtime, slot, twin))

    def arguments(self) -> Mapping[str, object]:
        return {"node": self.node, "disk": self.disk}


def duplicate_id(node: str, disk: str = "empty") -> DuplicateId:
    """Starts a second process with the node's id, on a disk that is 'empty' or a 'copy'."""
    for known in get_args(Disk):
        if disk == known:
            return DuplicateId(node, known)
    raise no_such("disk", disk, get_args(Disk))


def _both_live(view: View, slot: Slot, first: Process | None, twin: Process) -> Receipt:
    if first is None or first.name not in view.alive:
        return Receipt(False, f"no process lives in {slot.name}, so its id is not doubled")
    if twin.name not in view.alive or view.node_of.get(twin.name, ("", -1))[1] != slot.node_id:
        return Receipt(False, f"{twin.name} did not start as node {slot.node_id}")
    return Receipt(
        True,
        f"{named(first)} and {named(twin)} are both node {slot.node_id}",
    )


def _heal(runtime: Runtime, slot: Slot, twin: Process) -> Receipt:
    """Ends the twin, and starts the first process anew if it is dead or was taken over.

    A process that was taken over never gets its id back, so leaving it would leave a broker less.
    """
    if runtime.living(twin.slot) == twin:
        end(runtime, twin, Signal.KILL, END_BOUND_MS)
    first = runtime.living(slot)
    if first is not None and runtime.view.of(Holders).holds_any(twin.name):
        end(runtime, first, Signal.KILL, END_BOUND_MS)
    first = runtime.living(slot) or runtime.start(slot)
    alone = twin.name not in runtime.view.alive
    return Receipt(alone, f"{named(first)} is the only node {slot.node_id}")


@hookimpl
def fencepost_faults() -> Mapping[str, FaultFactory]:
    return {"duplicate_id": duplicate_id}
