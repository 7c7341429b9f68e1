"""For how long processes stood still, by what they recorded.

A process that did not run says so afterwards, or the harness says it of one that never ran again
(`Stalled`). The word excuses what came late, so it is not simply believed: a process that recorded
events in that time did run. Of a claimed stall, the longest time without an event of the process
counts. A client of several threads may record a delivery just before its beat finds the stall, so
the last event alone would cut too much off.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, final

from fencepost.events import Event, Stalled

_QUIET_NS: Final = 100_000_000
"""A shorter time without an event is not remembered: stalls are recorded from 250 ms on."""


@final
@dataclass(slots=True)
class Stalls:
    """The stalls of a run, as a fold over its events."""

    found: list[tuple[str, int, int]] = field(default_factory=list)
    """(process, from_ns, to_ns): the process did not run meanwhile."""
    _last_ns: dict[str, int] = field(default_factory=dict)
    """process -> the time of its last event."""
    _quiet: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """process -> the longer times between two events of it, in order."""

    def take(self, event: Event) -> None:
        """Applies one event."""
        process, at_ns = event.process, event.at_ns
        if isinstance(event.body, Stalled):
            self._claimed(event.body.of or process, at_ns - event.body.stalled_ns, at_ns)
        last_ns = self._last_ns.get(process)
        if last_ns is not None and at_ns - last_ns >= _QUIET_NS:
            self._quiet.setdefault(process, []).append((last_ns, at_ns))
        self._last_ns[process] = at_ns

    def _claimed(self, process: str, from_ns: int, to_ns: int) -> None:
        last_ns = self._last_ns.get(process, from_ns)
        # The time from the process's last event to the claim: for one that never woke, this is all
        # there is.
        longest = max(from_ns, min(last_ns, to_ns)), to_ns
        # The newest first, until one ends before the claimed stall began.
        for began_ns, ended_ns in reversed(self._quiet.get(process, ())):
            if ended_ns <= from_ns:
                break
            if ended_ns - max(began_ns, from_ns) > longest[1] - longest[0]:
                longest = max(began_ns, from_ns), ended_ns
        self.found.append((process, *longest))
