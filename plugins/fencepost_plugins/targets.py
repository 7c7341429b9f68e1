"""The targets of this package's faults: slots by name, and the processes in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from fencepost import (
    Condition,
    Layout,
    Link,
    Process,
    Receipt,
    Runtime,
    Signal,
    Slot,
    UsageError,
    no_such,
)

Names = str | Sequence[str]
"""One slot's name, or several."""


def as_names(given: Names) -> tuple[str, ...]:
    """The names; raises UsageError if there is none."""
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names:
        raise UsageError("a fault needs at least one node as its target")
    return names


def find_slot(layout: Layout, name: str) -> Slot:
    """The slot; raises UsageError with the nearest right name."""
    for slot in layout.slots:
        if slot.name == name:
            return slot
    raise no_such("slot", name, (slot.name for slot in layout.slots))


def find_slots(layout: Layout, names: Iterable[str]) -> tuple[Slot, ...]:
    """The slots, in the order of the names; raises UsageError for an unknown one."""
    return tuple(find_slot(layout, name) for name in names)


def find_role(layout: Layout, name: str) -> str:
    """The role; raises UsageError with the nearest right name."""
    if name not in layout.roles:
        raise no_such("role", name, layout.roles)
    return name


KILLED_WITHIN_MS = 5_000
"""How long a process may take to end after SIGKILL before that counts as missed."""


def once_in_use(
    runtime: Runtime, links: Sequence[Link], receipt: Receipt
) -> Callable[[], Receipt] | None:
    """`Injected.measure` of a fault whose links no process used when it began: one may connect
    through them later, while the fault is active. None if they were used."""
    return partial(runtime.in_use, links) if receipt.unused else None


def end(runtime: Runtime, process: Process, signal: Signal, limit_ms: int) -> bool:
    """Signals a process and waits for its end; returns whether it ended within the limit."""
    runtime.signal(process, signal)
    return ends(runtime, process, limit_ms)


def ends(runtime: Runtime, process: Process, limit_ms: int) -> bool:
    """Waits for the end of a process; returns whether it ended within the limit."""
    ended = Condition(f"{process.name} to end", lambda view: process.name not in view.alive)
    return runtime.advance(ended, runtime.now_ns() + limit_ms * 1_000_000) is not None


def ensure_living(runtime: Runtime, slot: Slot, *, asked_to_end: Process | None = None) -> Receipt:
    """Starts the slot's next process, unless one runs in it. A process that was asked to end, and
    has not, is killed first: it would end later, and leave the slot without a process."""
    living = runtime.living(slot)
    if living is None:
        return Receipt(True, f"{named(runtime.start(slot))} started")
    if living != asked_to_end:
        return Receipt(True, f"{named(living)} lives")
    if not end(runtime, living, Signal.KILL, KILLED_WITHIN_MS):
        return Receipt(False, f"{named(living)} did not end {KILLED_WITHIN_MS} ms after SIGKILL")
    began = named(runtime.start(slot))
    return Receipt(True, f"{named(living)} had not ended, and was killed; {began} started")


def named(process: Process) -> str:
    """`broker-2#1 (pid 71)`."""
    return f"{process.name} (pid {process.pid})"
