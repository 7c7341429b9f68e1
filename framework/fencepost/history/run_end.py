"""What is known once a run is over."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunEnd:
    """What is known once a run is over.

    `complete` is false when the history is damaged or the run was cut short: what a rule still
    waits for is then undecided, not broken. `ended_at_ns` is the time of the last event.
    `stalls` are (process, from_ns, to_ns) during which a process or the machine stood still.
    """

    complete: bool
    ended_at_ns: int
    damage: tuple[str, ...] = ()
    stalls: tuple[tuple[str, int, int], ...] = ()

    def stalled_ns(self, from_ns: int, to_ns: int, process: str | None = None) -> int:
        """How much of the interval was eaten by stalls (of one process, or of any)."""
        return sum(
            max(0, min(to_ns, end) - max(from_ns, start))
            for name, start, end in self.stalls
            if process is None or name == process
        )
