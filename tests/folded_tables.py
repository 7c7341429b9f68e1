"""The tables of a written history."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost import Event, RunEnd
from fencepost.judging.tables.fold import TablesFold
from fencepost.reporting import Tables


def folded(events: Sequence[Event], ended_ns: int | None = None) -> Tables:
    """They are those of a run that lasts from its first event to this time, or to its last."""
    fold = TablesFold()
    for event in events:
        fold.take(event)
    until_ns = events[-1].at_ns if ended_ns is None else ended_ns
    return fold.end(RunEnd(True, until_ns, began_at_ns=events[0].at_ns))
