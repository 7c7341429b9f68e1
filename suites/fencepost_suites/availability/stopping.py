"""A node that is asked to stop ends soon, unless a fault keeps it from those that it must tell.

Before it ends, a broker hands its leaderships over, which takes the servers that decide about them.
So the clock of the bound stands still while a fault acts upon the node, upon its links with these
servers, or leaves no majority of them. It does not begin anew: many short disturbances excuse no
longer a stop than one that takes as long as all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    Cause,
    Event,
    Evidence,
    Excused,
    Exercised,
    FaultHealed,
    FaultInjected,
    Finding,
    Key,
    ProcessAsked,
    ProcessExited,
    RunEnd,
    Undecided,
    Violated,
)
from fencepost_kafka.active_faults import slot_of
from fencepost_suites.availability.overdue import Overdue, judged
from fencepost_suites.availability.surroundings import SURROUNDINGS, Surroundings
from fencepost_suites.common.keys import NOTHING, whole_run
from fencepost_suites.common.words import span

BOUND_NS = 20_000_000_000
"""How long a node may take, undisturbed. A node of any system here ends within two seconds; a
session that has to run out first takes 12 s at most in the suites."""


@dataclass(slots=True)
class _Stop:
    """A process that was asked to end and has not."""

    asked: Cause
    signal: str
    asked_ns: int
    calm_ns: int = 0
    """For how long nothing has kept it from ending."""
    seen_ns: int = 0
    """Up to when that is known."""
    why_not: str = ""
    """What keeps it from ending now; empty if nothing does."""
    kept: str = ""
    """What did so last."""

    def passes(self, at_ns: int) -> None:
        """Counts the time until then."""
        if not self.why_not:
            self.calm_ns += max(0, at_ns - self.seen_ns)
        self.seen_ns = max(self.seen_ns, at_ns)

    def look(self, why_not: str) -> None:
        """Notes what keeps it from ending from now on."""
        self.why_not, self.kept = why_not, why_not or self.kept


@dataclass(slots=True)
class _Stops:
    around: Surroundings = field(default_factory=Surroundings)
    waiting: dict[str, _Stop] = field(default_factory=dict)
    suspects: list[Overdue] = field(default_factory=list)

    def asks(self, event: Event) -> Iterator[str]:
        """The processes that a fault, whose injection ended just now, itself asked to end. It began
        no later than it asked them, and so is no excuse for them."""
        body = event.body
        if isinstance(body, FaultInjected) and not body.directions:
            began_ns = body.began_at_ns or event.at_ns
            yield from (
                one
                for one in body.targets
                if one in self.waiting and self.waiting[one].asked_ns >= began_ns
            )

    def keeps(self, process: str) -> str:
        """What keeps a process from ending, in words; empty if nothing does."""
        around, slot = self.around, slot_of(process)
        decides = slot in around.deciders()
        needed = frozenset() if decides else around.deciders()
        by_fault = next(
            (words for _, words in around.faults.among((process,), needed.__contains__)), ""
        )
        return by_fault or ("" if decides else around.undecided())


@final
class EndsWhenAsked(Struct, frozen=True):
    """AVAIL-stopped. Judged by the harness: it asked a process to end, and saw its end, or had to
    kill it. Exercised by each process that ends within the bound."""

    clause: str = "AVAIL-stopped"
    kinds: frozenset[type[Struct]] = SURROUNDINGS | {ProcessAsked}
    keys = staticmethod(whole_run)

    def start(self, key: Key) -> _Stops:
        return _Stops()

    def step(self, state: _Stops, event: Event) -> tuple[_Stops, Sequence[Finding]]:
        body, at_ns = event.body, event.at_ns
        if isinstance(body, FaultInjected | FaultHealed):
            at_ns = min(at_ns, body.began_at_ns or at_ns)
        for one in state.waiting.values():
            one.passes(at_ns)
        found: Sequence[Finding] = NOTHING
        if isinstance(body, ProcessAsked):
            asked = _Stop(event.ref, body.signal, event.at_ns, seen_ns=event.at_ns)
            state.waiting.setdefault(body.asked, asked)
        else:
            if isinstance(body, ProcessExited) and body.ended in state.waiting:
                found = self._ended(state, event, body)
            if not any(state.asks(event)):
                state.around.take(event)
        for process, one in state.waiting.items():
            one.look(state.keeps(process))
        return state, found

    def _ended(self, state: _Stops, event: Event, body: ProcessExited) -> Sequence[Finding]:
        stop = state.waiting.pop(body.ended)
        stop.passes(event.at_ns)
        if event.at_ns - stop.asked_ns <= BOUND_NS:
            killed = body.signal == _SIGKILL
            return NOTHING if killed else (Exercised(stop.asked, Evidence.PEER),)
        return self._late(state, body.ended, stop, event.at_ns)

    @staticmethod
    def _late(state: _Stops, process: str, stop: _Stop, at_ns: int) -> Sequence[Finding]:
        waited = span(at_ns - stop.asked_ns)
        message = f"{process} was asked to end by {stop.signal}, and had not {waited} later"
        if stop.calm_ns <= BOUND_NS:
            return (Excused(stop.asked, f"{message}; {stop.kept}"),)
        violated = Violated(
            stop.asked,
            Evidence.PEER,
            f"{message}; for {span(stop.calm_ns)} of that nothing kept it from those that it tells",
        )
        slots = frozenset({slot_of(process), *state.around.deciders()})
        state.suspects.append(Overdue(violated, stop.asked_ns, at_ns, BOUND_NS, slots))
        return NOTHING

    def end(self, state: _Stops, end: RunEnd) -> Sequence[Finding]:
        found: list[Finding] = []
        for process, stop in state.waiting.items():
            stop.passes(end.ended_at_ns)
            if end.ended_at_ns - stop.asked_ns > BOUND_NS:
                found += self._late(state, process, stop, end.ended_at_ns)
            else:
                found.append(Undecided(f"the run ended before {process}, which was asked to"))
        return (*found, *judged(state.suspects, end))


_SIGKILL = 9
