"""The clock of a run, and the one place that waits for what gives no event to wait for."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

MS = 1_000_000
"""Nanoseconds in a millisecond."""
SECOND = 1_000_000_000
"""Nanoseconds in a second."""


def now_ns() -> int:
    """The host's CLOCK_MONOTONIC: one clock for every process of a run, touched by no fault."""
    return time.monotonic_ns()


def from_wall_ns(wall_ns: int) -> int:
    """A stamp of the host's wall clock, in nanoseconds since 1970, as `now_ns` had it then.

    It is exact as long as the wall clock was not set between the stamp and this call.
    """
    return wall_ns - (time.time_ns() - time.monotonic_ns())


def wall_clock() -> datetime:
    """The calendar's time, in UTC: for names and headings, never compared with `now_ns`."""
    return datetime.now(UTC)  # noqa: TID251 the one place


def poll(holds: Callable[[], bool], limit_s: float, every_s: float = 0.002) -> bool:
    """Asks until it holds, or the limit has passed; what it answered last.

    Only for what the kernel reports to no process: that another process listens on a port, that a
    stopped process has come to a stand, that a proxy has counted a connection.
    """
    deadline = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() >= deadline:
            return False
        time.sleep(every_s)  # noqa: TID251 the one place
    return True
