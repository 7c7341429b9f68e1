"""The end of a run, as its history shows it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from fencepost.events.words import because

DAMAGE_NAMED = 5
"""How many sentences of damage `RunEnd.lacks` quotes."""
NOTABLE_STALL_NS = 1_000_000_000
"""How long the harness must have stalled, in all, to be named by `RunEnd.stalled_in_words`."""
HARNESS = "harness"
"""The name of the process that conducts a run."""
DISKS = "disks"
"""The name of what writes the events that were read from disks after the run."""
NEVER_NS = 1 << 62
READ_WITHIN_NS = 5_000_000_000
"""How long after it happened an event may be read: from a log that is followed, or by an observer,
which may ask a node that was cut off from the others. What happened right before a run was cut
short may never have been."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The end of a run, as its history shows it.

    `complete` is false if the history is damaged or the run was cut short: then a promise that
    still waits for an event is undecided, not broken. `gaps` are (event kind, what is missing), if
    only events of that kind are missing. `began_at_ns` and `ended_at_ns` are the times of the first
    and of the last event (0: there is none).
    `stalls` are (process, from_ns, to_ns): during this time a process, or the machine, did not run.
    """

    complete: bool
    ended_at_ns: int
    damage: tuple[str, ...] = ()
    stalls: tuple[tuple[str, int, int], ...] = ()
    gaps: tuple[tuple[str, str], ...] = ()
    doubtful_from_ns: int = NEVER_NS
    """From when on a link may have failed without a fault: no violation is certain from then on."""
    began_at_ns: int = 0
    cut_short_by: str = ""
    """What cut the run short, if that is known."""
    lost_from_ns: int = 0
    """The time of the earliest event that the damage may have taken."""

    def as_read(self, kinds: Collection[str]) -> RunEnd:
        """The end for a rule that reads events of these kinds: if some are missing, the history is
        not complete."""
        missing = tuple(dict.fromkeys(what for kind, what in self.gaps if kind in kinds))
        if not missing:
            return self
        return replace(self, complete=False, damage=(*self.damage, *missing), lost_from_ns=0)

    def whole_until(self, at_ns: int) -> bool:
        """Whether the history has every event until then: what it does not have did not happen."""
        lost_ns = self.lost_from_ns if self.damage else NEVER_NS
        return self.complete or at_ns + READ_WITHIN_NS <= min(lost_ns, self.ended_at_ns)

    @property
    def lacks(self) -> str:
        """Why the history is not complete, in words: the first of its damage."""
        more = len(self.damage) - DAMAGE_NAMED
        cut_short = f"the run was cut short{because(self.cut_short_by)}"
        named = "; ".join(self.damage[:DAMAGE_NAMED]) or cut_short
        return f"{named}; and {more} more" if more > 0 else named

    @property
    def stalled_in_words(self) -> str:
        """How long the harness did not run, if that is worth a word; else empty.

        A node may have been paused by a fault; only its machine pauses the harness.
        """
        stalls = [until - since for process, since, until in self.stalls if process == HARNESS]
        if sum(stalls) < NOTABLE_STALL_NS:
            return ""
        times = f", {len(stalls)} times" if len(stalls) > 1 else ""
        return (
            f"this machine stalled: the harness did not run for {sum(stalls) / 1e9:.1f} s in all"
            f"{times}; what came late meanwhile is excused"
        )

    def stalled_ns(self, from_ns: int, to_ns: int, process: str | None = None) -> int:
        """How many nanoseconds of the interval were stalls, of one process or of any."""
        return sum(
            max(0, min(to_ns, end) - max(from_ns, start))
            for name, start, end in self.stalls
            if process is None or name == process
        )
