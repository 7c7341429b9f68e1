"""Promises with a time: what was not done in time, and what a stall leaves open.

A rule that finds a bound exceeded does not know yet whether somebody could have kept it. A process
that did not run reports that afterwards, and the harness reports it of one that never ran again. So
the rule keeps a `Deadline`, and `judged` makes a finding of it at the end, when all stalls are
known. Every rule uses this one judgement:

1. What was NOT done is not shown by a history that lacks events of that time: undecided. What was
   done, though too early or for too long, is shown by any history.
2. If somebody who had to act stood still for nine tenths of the delay, from the moment at which the
   act was due, nothing else was late: excused.
3. If those who had to act stood still for more than a tenth of the bound in all, nobody can tell
   what they would have done: undecided. But a stall explains no more than its own length, and what
   had to begin anew after it: two bounds, or half a minute. When 2 s of a standby left open why
   nobody could write for 600 s, nothing was promised on a busy machine.
4. Else it is the violation that it seemed.

Times are counted as a union: two processes that stood still at once stood still once. Faults are
not known here: a rule asks for its excuses before it keeps a deadline.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, final

from msgspec import Struct
from msgspec.structs import replace

from fencepost.events.names import slot_of
from fencepost.history.run_end import HARNESS, RunEnd
from fencepost.judging.about import Reason, process_scope
from fencepost.judging.findings import Excused, Finding, Undecided, Violated

OBSERVERS = (HARNESS, "clients")
"""By whom a stall of the machine is known where nodes report none of their own."""
STALL_SHARE = 10
"""A time proves nothing if stalls took more than this part of the bound: a tenth."""
ANEW_NS = 30_000_000_000
"""What has stood still finds its peers again by then: connections, an election, a session."""
_BUT = "; but "
"""What joins a violation with why it is none."""
_COVERED_PERCENT = 90
"""How much of the delay a stall must cover to be the reason for it."""


@final
class Deadline(Struct, frozen=True):
    """A bound that was exceeded: the violation that it is, unless stalls explain it.

    `actors` had to act: names of processes, slots, or groups of slots (`clients`). The harness is
    one of them where it measured the times, or where nodes report no stalls of their own. Times are
    those of the run's clock, in nanoseconds.
    """

    violated: Violated
    actors: tuple[str, ...]
    from_ns: int
    """When the duty began."""
    to_ns: int
    """When it was done at last, or seen not to be done."""
    bound_ns: int
    """How long it may take."""
    due_ns: int | None = None
    """When an actor had to act at last: a stall from then on is the reason for the delay."""
    omission: bool = True
    """Whether something was not done in time, and not done too early or for too long."""
    witnesses: tuple[str, ...] = ()
    """The processes that waited for it, if only they would have seen it done. Their stalls count
    once all of them stalled."""


def judged(deadlines: Iterable[Deadline], end: RunEnd) -> Sequence[Finding]:
    """A finding for each deadline, in order; a rule returns them at the end, when all stalls are
    known.

    Undecided: it is about what was not done, and the history lacks events of that time; or those
    who had to act stood still for more than a tenth of the bound, which explains the delay.
    Excused: one of them stood still for nine tenths of the delay, from when it was due. Else it is
    violated.
    """
    return [_judged(one, end) for one in deadlines]


def _judged(one: Deadline, end: RunEnd) -> Finding:
    broken = one.violated
    # 1. The event that would show that it was done may be among those that are missing.
    if one.omission and not end.whole_until(one.to_ns):
        return Undecided.of(broken, Reason("the history is not complete"), _BUT)
    nodes = _Stood.of(one.actors, one, end)
    # 2. From when it was due at last, an actor that stood still for nearly all of the delay is the
    # whole reason for it.
    if one.due_ns is not None:
        late = _Stood.of(one.actors, one, end, since_ns=one.due_ns)
        # `late.ns`: what is seen at the very moment at which it is due has a delay of 0, which a
        # stall of 0 would cover.
        if late.ns and 100 * late.ns >= _COVERED_PERCENT * (one.to_ns - one.due_ns):
            return Excused.of(broken, late.reason("when it was due"), _BUT)
    # 3. Of those who waited, the one that stood still least counts: if any of them ran, it would
    # have seen the act. Without such witnesses, the actors alone are asked.
    each = [_Stood.of((name,), one, end) for name in one.witnesses]
    saw = min(each, key=lambda stood: stood.ns, default=nodes)
    took_ns = one.to_ns - one.from_ns
    for stood in (nodes, saw):
        # A share of the bound, not of the delay: a bound of 10 s leaves room for a stall of a
        # second.
        notable = stood.ns * STALL_SHARE > one.bound_ns
        if notable and took_ns - stood.ns <= max(2 * one.bound_ns, ANEW_NS):
            return Undecided.of(broken, stood.reason("meanwhile"), _BUT)
    return replace(broken, certain_ns=one.to_ns)


class _Stood(NamedTuple):
    """For how long some processes stood still, as a union, and which did for longest."""

    ns: int
    longest: str

    @staticmethod
    def of(who: Sequence[str], one: Deadline, end: RunEnd, since_ns: int | None = None) -> _Stood:
        from_ns = one.from_ns if since_ns is None else since_ns
        each: dict[str, list[tuple[int, int]]] = {}
        for process, began_ns, ended_ns in end.stalls:
            slot = slot_of(process)
            # `clients` names all of `clients/probe-1#1` and the like.
            named = process in who or slot in who or slot.partition("/")[0] in who
            # A witness that is named by its group only does not count as an actor: it is asked for
            # by itself.
            if named and (process in who or process not in one.witnesses):
                within = max(began_ns, from_ns), min(ended_ns, one.to_ns)
                each.setdefault(process, []).append(within)
        together = _length([within for some in each.values() for within in some])
        return _Stood(together, max(each, key=lambda name: _length(each[name]), default=""))

    def reason(self, when: str) -> Reason:
        """That these processes stood still, by the name of the one that did so for longest."""
        return Reason.of(
            "{stalled} stalled for {stalled_ns} {when}",
            stalled=process_scope(self.longest),
            stalled_ns=self.ns,
            when=when,
        )


def _length(intervals: Sequence[tuple[int, int]]) -> int:
    """How long the union of the intervals is."""
    total_ns, reached_ns = 0, 0
    for from_ns, to_ns in sorted(intervals):
        # In the order of their beginnings, only what lies beyond what is counted already. An
        # interval that lies outside of the time in question ends before it begins, and adds
        # nothing.
        total_ns += max(0, to_ns - max(from_ns, reached_ns))
        reached_ns = max(reached_ns, to_ns)
    return total_ns
