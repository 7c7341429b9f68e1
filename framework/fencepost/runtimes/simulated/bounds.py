"""How large a simulated run may become: all its events are kept in memory."""

from __future__ import annotations

from typing import Final

from fencepost.model.clock import SECOND
from fencepost.model.errors import UsageError
from fencepost.runtimes.simulated.virtual_time import START_NS

MOST_EVENTS: Final = 4_000_000
"""The most events of a run: about 2 GB, or some two hours of a cluster of six nodes under load."""


def check_size(events: int, most: int, now_ns: int) -> None:
    """Raises UsageError for a run that has as many events as it may have.

    A schedule from anybody may ask for days of virtual time.
    """
    if events >= most:
        took_s = (now_ns - START_NS) // SECOND
        raise UsageError(
            f"a simulated run keeps its events in memory, at most {most} of them, which this one "
            f"had after {took_s} s of its time: use a shorter schedule, or real processes"
        )
