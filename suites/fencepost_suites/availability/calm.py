"""How long a partition had what writing and reading need, and nothing disturbed that."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from fencepost import Reason
from fencepost_kafka import PartitionCommitted
from fencepost_suites.availability.surroundings import Disturbance, Surroundings

UNCOMMITTED = Reason("nothing is committed about it")


@final
@dataclass(slots=True)
class Calm:
    """The time in which nothing disturbed what a promise needs.

    A disturbance begins a bound anew, since a recovery begins anew. But it takes no more than the
    time that it lasted and one recovery. When each began the whole bound anew, a fault of 0.1 s
    each 15 s excused ten minutes without a write.
    """

    since_ns: int | None = None
    """Since when it is calm; None: it is not."""
    before: list[tuple[int, int]] = field(default_factory=list)
    """The begin and the end of each earlier time, without the recovery that it began with."""

    def end(self, at_ns: int, recovery_ns: int, *, anew: bool) -> None:
        """Something disturbs it; `anew`: what is needed is there all the same."""
        if self.since_ns is not None and at_ns - self.since_ns > recovery_ns:
            self.before.append((self.since_ns + recovery_ns, at_ns))
        self.since_ns = at_ns if anew else None

    def now(self, from_ns: int, at_ns: int) -> int:
        """For how long it has been calm without a break by the second of these times, in
        nanoseconds; since the first one at most."""
        return 0 if self.since_ns is None else at_ns - max(from_ns, self.since_ns)

    def within(self, from_ns: int, at_ns: int) -> int:
        """How long it was calm between these times, in nanoseconds."""
        earlier = (min(to_ns, at_ns) - max(one_ns, from_ns) for one_ns, to_ns in self.before)
        return self.now(from_ns, at_ns) + sum(one for one in earlier if one > 0)

    def over(self, from_ns: int, at_ns: int, bound_ns: int) -> int:
        """For how long it was calm, if that is too long for what is still not done: the bound in
        one piece, or twice the bound in all. Else 0."""
        now_ns = self.now(from_ns, at_ns)
        if now_ns > bound_ns:
            return now_ns
        in_all_ns = self.within(from_ns, at_ns)
        return in_all_ns if in_all_ns > 2 * bound_ns else 0


@final
@dataclass(slots=True)
class Fit:
    """How long a partition has had a live, connected majority in its ISR, undisturbed."""

    calm: Calm = field(default_factory=Calm)
    why_not: Reason | None = None
    """What disturbed it last, or why it had none; None: nothing yet. It stays once the majority is
    back: it is the excuse until the bound is over."""

    def look(
        self,
        around: Surroundings,
        record: PartitionCommitted | None,
        least: int,
        at_ns: int,
        disturbance: Disturbance | None,
    ) -> None:
        """Looks again whether it has a majority, of at least that size, and whether it was
        disturbed just now."""
        reason = UNCOMMITTED if record is None else around.unfit(record, least)
        if reason is not None or record is None:
            self.calm.end(at_ns, around.shortly_ns, anew=False)
            self.why_not = reason
        elif self.calm.since_ns is None:
            self.calm.since_ns = at_ns
        # A replica outside of the ISR is needed for nothing: when it was paused each 15 s, that
        # excused ten minutes without a write.
        elif disturbance is not None and around.disturbs(disturbance, {*record.isr, record.leader}):
            self.calm.end(at_ns, around.shortly_ns, anew=True)
            self.why_not = disturbance.why
