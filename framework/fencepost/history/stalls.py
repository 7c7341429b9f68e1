"""For how long processes stood still, by what they recorded, and by what others had of them.

A process that did not run says so afterwards, or the harness says it of one that never ran again
(`Stalled`). Of anybody else's process nobody knows that, so another node's word counts for nothing.
The word excuses what came late, so it is not simply believed either. A process that recorded events
in that time did run, and so did one that answered a client (`answered_by`). Of a claimed stall, the
longest time in which nothing shows that the process ran counts. A client of several threads may
record a delivery just before its beat finds the stall, so the last sign alone would cut too much
off.

An answer shows that the process ran at some moment after the request was sent and before the client
had the answer, and not at which. So a time is cut only by an answer of which both are inside it: a
process that stood still while the request lay in its socket loses nothing. That a peer had a
*request* of the process shows nothing, since a slow link may have carried it all that time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, final

from fencepost.events import Event, Stalled
from fencepost.events.names import is_client, slot_of
from fencepost.events.traits import tells_answers
from fencepost.history.run_end import HARNESS

_QUIET_NS: Final = 100_000_000
"""A shorter time without a sign is not remembered: stalls are recorded from 250 ms on."""


@final
@dataclass(slots=True)
class Stalls:
    """The stalls of a run, as a fold over its events. In a slot, one process runs at a time."""

    found: list[tuple[str, int, int]] = field(default_factory=list)
    """(process, from_ns, to_ns): the process did not run meanwhile."""
    _last_ns: dict[str, int] = field(default_factory=dict)
    """slot -> the latest time after which its process showed that it ran: that of an event of its
    own, or that at which a request was sent that it has answered."""
    _quiet: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """slot -> the longer times in which nothing shows that its process ran, in order."""

    def take(self, event: Event) -> None:
        """Applies one event."""
        process, at_ns, body = event.process, event.at_ns, event.body
        if isinstance(body, Stalled) and (process == HARNESS or body.of in ("", process)):
            self._claimed(body.of or process, at_ns - body.stalled_ns, at_ns)
        self._ran(slot_of(process), at_ns, at_ns)
        if tells_answers(body) and is_client(process):
            answered = body.answered_by()
            if answered is not None:
                self._ran(*answered, at_ns)

    def _ran(self, slot: str, since_ns: int, at_ns: int) -> None:
        """The process of a slot ran at some moment between two times."""
        last_ns = self._last_ns.get(slot)
        if last_ns is not None and at_ns - last_ns >= _QUIET_NS:
            self._quiet.setdefault(slot, []).append((last_ns, at_ns))
        self._last_ns[slot] = since_ns if last_ns is None else max(last_ns, since_ns)

    def _claimed(self, process: str, from_ns: int, to_ns: int) -> None:
        slot = slot_of(process)
        last_ns = self._last_ns.get(slot, from_ns)
        # The time from the last sign of the process to the claim: for one that never woke, this is
        # all there is.
        longest = max(from_ns, min(last_ns, to_ns)), to_ns
        # The newest first, until one ends before the claimed stall began.
        for began_ns, ended_ns in reversed(self._quiet.get(slot, ())):
            if ended_ns <= from_ns:
                break
            if ended_ns - max(began_ns, from_ns) > longest[1] - longest[0]:
                longest = max(began_ns, from_ns), ended_ns
        self.found.append((process, *longest))
