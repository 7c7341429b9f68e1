"""How long a partition had what writing and reading need, and nothing disturbed that."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import MS, Reason
from fencepost_kafka import BoundsStated, PartitionCommitted
from fencepost_suites.availability.surroundings import Disturbance, Surroundings

UNCOMMITTED = Reason("nothing is committed about it")


NEVER_NS = 1 << 62
RECOVERIES = 6
"""How many recoveries excuse, at most, what is not done all the while; see `Calm`."""


class _Piece(Struct, frozen=True):
    """A time that was calm, and then no more. It began with a recovery."""

    from_ns: int
    recovered_ns: int
    to_ns: int

    def within(self, from_ns: int, at_ns: int, *, whole: bool) -> int:
        """How much of it lies between these times, with its recovery or without."""
        began_ns = self.from_ns if whole else self.recovered_ns
        return max(0, min(self.to_ns, at_ns) - max(began_ns, from_ns))


@final
@dataclass(slots=True)
class Calm:
    """The time in which nothing disturbed what a promise needs.

    A disturbance begins a bound anew, since a recovery begins anew. But it takes no more than the
    time that it lasted and one recovery. When each began the whole bound anew, a fault of 0.1 s
    each 15 s excused ten minutes without a write. And those that come before the recovery from the
    one before is over take no more than `RECOVERIES` in all, beside the time that they lasted:
    otherwise one of 3 ms each 5 s excused everything for ever.
    """

    since_ns: int | None = None
    """Since when it is calm; None: it is not. In the future if it is not known to be before."""
    before: list[_Piece] = field(default_factory=list)
    """The earlier times."""
    recovery_ns: int = 0
    """How long a recovery is."""

    def end(self, at_ns: int, recovery_ns: int, *, anew: bool) -> None:
        """Something disturbs it; `anew`: what is needed is there all the same."""
        self.recovery_ns = recovery_ns
        if self.since_ns is not None and at_ns > self.since_ns:
            self.before.append(_Piece(self.since_ns, self.since_ns + recovery_ns, at_ns))
        self.since_ns = at_ns if anew else None

    def now(self, from_ns: int, at_ns: int) -> int:
        """For how long it has been calm without a break by the second of these times, in
        nanoseconds; since the first one at most."""
        return 0 if self.since_ns is None else max(0, at_ns - max(from_ns, self.since_ns))

    def within(self, from_ns: int, at_ns: int) -> int:
        """How long it was calm between these times, in nanoseconds."""
        now_ns = self.now(from_ns, at_ns)
        counted_ns, whole_ns = (
            now_ns + sum(one.within(from_ns, at_ns, whole=whole) for one in self.before)
            for whole in (False, True)
        )
        lasted_ns = at_ns - from_ns - whole_ns
        return max(counted_ns, whole_ns - lasted_ns - RECOVERIES * self.recovery_ns)

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
    """How long a partition has had a live, connected majority in its ISR, undisturbed.

    An ISR that lacks members which live, and which nothing keeps away, is the cluster's own doing:
    it excuses nothing once the bound has passed within which a cluster is whole after a fault.
    """

    calm: Calm = field(default_factory=Calm)
    why_not: Reason | None = None
    """What disturbed it last, or why it had none; None: nothing yet. It stays once the majority is
    back: it is the excuse until the bound is over."""
    small: bool = False
    """Whether it has none in its ISR, though nothing keeps its replicas away."""
    kept_away_ns: int | None = None
    """When something last kept its replicas from being in sync; at first, when it was first looked
    at."""
    seen: tuple[int, PartitionCommitted | None] = (-1, None)
    """How many changes of the surroundings there were when it was looked at last, and the record.
    While these are the same, so are the next two answers."""
    unfit: Reason | None = None
    """Why it had no majority then."""
    may_be_whole: bool = False
    """Whether nothing kept its ISR from having one."""

    def look(
        self,
        around: Surroundings,
        record: PartitionCommitted | None,
        bounds: BoundsStated | None,
        at_ns: int,
        disturbance: Disturbance | None,
    ) -> None:
        """Looks again whether it has a majority, and whether it was disturbed just now."""
        if self.seen[0] != around.changes or self.seen[1] is not record:
            self.seen = around.changes, record
            least = bounds.least_in_sync if bounds else 1
            self.unfit = UNCOMMITTED if record is None else around.unfit(record, least)
            self.may_be_whole = record is not None and around.may_be_whole(record, least)
        reason = self.unfit
        whole_ns = self._whole_ns(around, record, bounds, at_ns, disturbance)
        self.small = reason is not None
        if record is None or (reason is not None and whole_ns > at_ns):
            self.calm.end(at_ns, around.shortly_ns, anew=False)
            self.why_not = reason
            if whole_ns < NEVER_NS:
                self.calm.since_ns = whole_ns
        elif self.calm.since_ns is None or self.calm.since_ns > at_ns:
            self.calm.since_ns = at_ns
        # A replica outside of the ISR is needed for nothing: when it was paused each 15 s, that
        # excused ten minutes without a write.
        elif disturbance is not None and around.hinders(disturbance, record):
            self.calm.end(at_ns, around.shortly_ns, anew=True)
            self.why_not = disturbance.why

    def _whole_ns(
        self,
        around: Surroundings,
        record: PartitionCommitted | None,
        bounds: BoundsStated | None,
        at_ns: int,
        disturbance: Disturbance | None,
    ) -> int:
        """From when on its ISR has to have a majority; never, if something keeps that away."""
        if record is None or bounds is None or not self.may_be_whole:
            self.kept_away_ns = at_ns
            return NEVER_NS
        touched = around.disturbs(disturbance, record.replicas)
        if self.kept_away_ns is None or touched:
            self.kept_away_ns = at_ns
        return self.kept_away_ns + bounds.recovered_ms * MS
