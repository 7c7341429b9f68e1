"""The keys by which events are given to Kafka's own rules, and what stalls leave open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost import Event, Finding, Key, RunEnd, Undecided, Violated

MS = 1_000_000
SECOND = 1_000 * MS
NOTHING: Sequence[Finding] = ()
_STALL_SHARE = 10
"""A time proves nothing if stalls took more than a tenth of it."""


def whole_run(event: Event) -> Sequence[Key]:
    """One key for all."""
    return ((),)


def by_partition(event: Event) -> Sequence[Key]:
    """Topic and partition."""
    body: Any = event.body
    return ((body.topic, body.partition),)


def unless_stalled(
    end: RunEnd, violated: Violated, from_ns: int, to_ns: int, bound_ns: int
) -> Finding:
    """The violation between two moments, unless processes stalled for more than a tenth of the
    bound."""
    if end.stalled_ns(from_ns, to_ns) * _STALL_SHARE <= bound_ns:
        return violated
    return Undecided(f"{violated.message}, while processes stalled", violated.at)
