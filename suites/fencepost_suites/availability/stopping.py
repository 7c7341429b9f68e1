"""A node that is asked to stop ends soon, unless a fault keeps it from those that it must tell.

Before it ends, a broker hands its leaderships over, which takes the servers that decide about them.
So the clock of the bound stands still while a fault acts upon the node, upon its links with these
servers, or leaves no majority of them. The rule of any system (`fencepost_plugins.stopping`) knows
no such servers, and excuses more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    Event,
    Evidence,
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
from fencepost_plugins.stopping import SIGKILL, STOP_BOUND_NS, STOPPED, Stop, asked_by
from fencepost_suites.availability.overdue import Overdue, judged
from fencepost_suites.availability.surroundings import SURROUNDINGS, Surroundings
from fencepost_suites.common.keys import NOTHING, whole_run


@dataclass(slots=True)
class _Stops:
    around: Surroundings = field(default_factory=Surroundings)
    waiting: dict[str, Stop] = field(default_factory=dict)
    suspects: list[Overdue] = field(default_factory=list)

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

    clause: str = STOPPED
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
            asked = Stop(event.ref, body.signal, event.at_ns, seen_ns=event.at_ns)
            state.waiting.setdefault(body.asked, asked)
        else:
            if isinstance(body, ProcessExited) and body.ended in state.waiting:
                found = self._ended(state, event, body)
            if not any(asked_by(event, state.waiting)):
                state.around.take(event)
        for process, one in state.waiting.items():
            one.look(state.keeps(process))
        return state, found

    def _ended(self, state: _Stops, event: Event, body: ProcessExited) -> Sequence[Finding]:
        stop = state.waiting.pop(body.ended)
        stop.passes(event.at_ns)
        if event.at_ns - stop.asked_ns <= STOP_BOUND_NS:
            killed = body.signal == SIGKILL
            return NOTHING if killed else (Exercised(stop.asked, Evidence.PEER),)
        return self._late(state, body.ended, stop, event.at_ns)

    @staticmethod
    def _late(state: _Stops, process: str, stop: Stop, at_ns: int) -> Sequence[Finding]:
        late = stop.late(process, at_ns)
        if not isinstance(late, Violated):
            return NOTHING if late is None else (late,)
        slots = frozenset({slot_of(process), *state.around.deciders()})
        state.suspects.append(Overdue(late, stop.asked_ns, at_ns, STOP_BOUND_NS, slots))
        return NOTHING

    def end(self, state: _Stops, end: RunEnd) -> Sequence[Finding]:
        found: list[Finding] = []
        for process, stop in state.waiting.items():
            stop.passes(end.ended_at_ns)
            if end.ended_at_ns - stop.asked_ns > STOP_BOUND_NS:
                found += self._late(state, process, stop, end.ended_at_ns)
            else:
                found.append(Undecided(f"the run ended before {process}, which was asked to"))
        return (*found, *judged(state.suspects, end))
