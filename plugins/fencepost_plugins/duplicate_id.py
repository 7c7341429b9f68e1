"""A second live process with a node's id, in that node's duplicate slot.

It has addresses and links of its own, like a second machine with a cloned configuration. Its disk
is empty, or a copy of the first one's at that moment, like a restored snapshot. A node that has
started says so by the event `node.started`, with its role and its id: the receipt needs it.

Healing ends the duplicate. It also ends the original, and starts it again, if the duplicate held
authority then; an original that has ended meanwhile is started again, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, final, get_args

from fencepost import (
    Condition,
    FaultFactory,
    Handle,
    Holders,
    Injected,
    Process,
    Receipt,
    Runtime,
    Signal,
    Slot,
    UsageError,
    View,
    hookimpl,
    needs,
    no_such,
    second_of,
    slot_of,
)
from fencepost_plugins.targets import KILLED_WITHIN_MS, end, find_slot, named

Disk = Literal["empty", "copy"]
START_BOUND_MS = 60_000


@final
@dataclass(frozen=True, slots=True)
class DuplicateId:
    """Starts the node's duplicate; its `disk` is empty, or a copy of the node's data."""

    node: str
    disk: Disk = "empty"
    name: str = "duplicate_id"

    def inject(self, runtime: Runtime) -> Injected:
        """Returns once the duplicate has reported its id; the receipt names both processes.

        Raises UsageError if the node has no duplicate slot, if its duplicate runs already, or if no
        process of its role has recorded `node.started`: then no receipt could ever come.
        """
        slot, second = find_slot(runtime.layout, self.node), second_of(self.node)
        if all(one.name != second for one in runtime.layout.slots):
            raise UsageError(
                f"'duplicate_id' needs a slot for the second process, and {self.node} has none: "
                f"have `layout` add Slot({second!r}, ..., duplicate=True), with the links of "
                f"{self.node}"
            )
        duplicate_slot = find_slot(runtime.layout, second)
        if runtime.living(duplicate_slot) is not None:
            raise UsageError(f"the duplicate of {self.node} runs already")
        alike = {one.name for one in runtime.layout.of(slot.role)}
        if alike.isdisjoint(map(slot_of, runtime.view.node_of)):
            raise UsageError(
                f"'duplicate_id' needs the event node.started, and no {slot.role} of this run has "
                "recorded one: have the log parser make a fencepost.NodeStarted when a process "
                "has started"
            )
        first = runtime.living(slot)
        runtime.copy_disk(slot if self.disk == "copy" else None, duplicate_slot)
        duplicate = runtime.start(duplicate_slot)
        started = Condition(
            f"{duplicate.name} to start", lambda view: duplicate.name in view.node_of
        )
        runtime.advance(started, runtime.now_ns() + START_BOUND_MS * 1_000_000)
        receipt = _both_live(runtime.view, slot, first, duplicate)
        targets = tuple(p.name for p in (first, duplicate) if p is not None)
        return Injected(targets, receipt, lambda: _heal(runtime, slot, duplicate))

    def arguments(self) -> Mapping[str, object]:
        return {"node": self.node, "disk": self.disk}


@needs(Handle.SECOND)
def duplicate_id(node: str, disk: str = "empty") -> DuplicateId:
    """Starts a second process with the node's id, on a disk that is 'empty' or a 'copy'."""
    for known in get_args(Disk):
        if disk == known:
            return DuplicateId(node, known)
    raise no_such("disk", disk, get_args(Disk))


def _both_live(view: View, slot: Slot, first: Process | None, duplicate: Process) -> Receipt:
    if first is None or first.name not in view.alive:
        return Receipt(False, f"no process runs in {slot.name}, so its id is not duplicated")
    if (
        duplicate.name not in view.alive
        or view.node_of.get(duplicate.name, ("", -1))[1] != slot.node_id
    ):
        return Receipt(False, f"{duplicate.name} did not start as node {slot.node_id}")
    return Receipt(
        True,
        f"{named(first)} and {named(duplicate)} are both node {slot.node_id}",
    )


def _heal(runtime: Runtime, slot: Slot, duplicate: Process) -> Receipt:
    """Ends the duplicate, and starts the first process again if it is dead or was taken over.

    A process whose id was taken over never regains it, so without a restart the cluster would have
    one broker less.
    """
    if runtime.living(duplicate.slot) == duplicate:
        end(runtime, duplicate, Signal.KILL, KILLED_WITHIN_MS)
    first = runtime.living(slot)
    if first is not None and runtime.view.of(Holders).holds_any(duplicate.name):
        end(runtime, first, Signal.KILL, KILLED_WITHIN_MS)
    first = runtime.living(slot) or runtime.start(slot)
    alone = duplicate.name not in runtime.view.alive
    return Receipt(alone, f"{named(first)} is the only node {slot.node_id}")


@hookimpl
def fencepost_faults() -> Mapping[str, FaultFactory]:
    return {"duplicate_id": duplicate_id}
