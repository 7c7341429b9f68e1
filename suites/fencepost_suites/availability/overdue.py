"""Promises with a time bound that were not kept in time: judged at the end, when all stalls are
known."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import final

from msgspec import Struct

from fencepost import Finding, RunEnd, Undecided, Violated
from fencepost_kafka.active_faults import slot_of
from fencepost_suites.common.words import span

HARNESS = "harness"
_STALL_SHARE = 10
"""A time proves nothing if stalls took more than a tenth of the bound."""


@final
class Overdue(Struct, frozen=True):
    """A promise that was not kept between two moments, the slots that had to keep it, and the
    client processes that would have seen it kept (none: nodes showed that it was not)."""

    violated: Violated
    from_ns: int
    to_ns: int
    bound_ns: int
    slots: frozenset[str]
    clients: frozenset[str] = frozenset()


def judged(suspects: Sequence[Overdue], end: RunEnd) -> Sequence[Finding]:
    """The suspects as findings. One is undecided if a process that it needs, the harness, or each
    client that waited stalled for more than a tenth of the bound. A history that lacks events shows
    no omission."""
    found: list[Finding] = []
    for one in suspects:
        why = _stalled(one, end) if end.complete else "the history is not complete"
        if why:
            found.append(Undecided(f"{one.violated.message}; but {why}", one.violated.at))
        else:
            found.append(one.violated)
    return found


def _stalled(one: Overdue, end: RunEnd) -> str:
    """Which process stalled, and for how long; empty if none did that matters."""
    stalled: dict[str, int] = {}
    for process in sorted({name for name, _, _ in end.stalls}):
        stalled_ns = end.stalled_ns(one.from_ns, one.to_ns, process)
        if stalled_ns * _STALL_SHARE > one.bound_ns:
            stalled[process] = stalled_ns
    saw = bool(one.clients - stalled.keys())
    """Whether a client ran that saw the promise broken."""
    for process, stalled_ns in stalled.items():
        counts = not saw if process in one.clients else _among(process, one.slots)
        if process == HARNESS or counts:
            return f"{process} stalled for {span(stalled_ns)} of that time"
    return ""


def _among(process: str, slots: Collection[str]) -> bool:
    slot = slot_of(process)
    return slot in slots or slot.partition("/")[0] in slots
