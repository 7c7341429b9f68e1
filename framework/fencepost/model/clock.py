"""The clock of a run, and the one function that polls for what the kernel does not report."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

MS: Final = 1_000_000
"""Nanoseconds in a millisecond."""
SECOND: Final = 1_000_000_000
"""Nanoseconds in a second."""
BEAT_S: Final = 0.1
"""How often a process looks whether it ran."""
STALL_NS: Final = 250 * MS
"""How late such a look must be to be recorded as a stall (`Stalled`)."""


_UNITS = {"s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)([smh])")
NO_SPAN = "is no time such as 90s, 20m or 2h"
"""What a text is of which `span_ns` is None."""


def span_ns(text: str) -> int | None:
    """The nanoseconds of a time such as 90s, 20m or 2h; None for another text, and for no time."""
    found = _SPAN.fullmatch(text)
    return (round(float(found[1]) * _UNITS[found[2]]) or None) if found else None


def now_ns() -> int:
    """The host's CLOCK_MONOTONIC in nanoseconds: one clock for every process of a run, which no
    fault changes."""
    return time.monotonic_ns()


def from_wall_ns(wall_ns: int) -> int:
    """Converts a timestamp of the host's wall clock (nanoseconds since 1970) to `now_ns`.

    It is exact unless the wall clock was set between the timestamp and this call.
    """
    return wall_ns - (time.time_ns() - time.monotonic_ns())


def wall_clock() -> datetime:
    """The calendar time in UTC, for names and headings; never compare it with `now_ns`."""
    return datetime.now(UTC)  # noqa: TID251 the only place


def poll(holds: Callable[[], bool], limit_s: float, every_s: float = 0.002) -> bool:
    """Asks until the answer is true or the limit has passed; returns the last answer.

    Only for facts that the kernel does not report: that another process listens on a port, that a
    process has stopped, that a proxy has counted a connection.
    """
    deadline = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() >= deadline:
            return False
        time.sleep(every_s)  # noqa: TID251 the only place
    return True
