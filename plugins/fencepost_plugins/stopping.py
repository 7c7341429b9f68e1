"""A promise of every system: a node that is asked to end does so in time.

Of a system that it does not know, the framework cannot say which nodes another one must tell before
it ends. So the clock stands still here while any fault acts, or any other node is dead. A package
that knows better adds a rule of its own for the clause, as that of Kafka's clusters does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from msgspec import Struct

from fencepost import (
    CLIENT,
    Cause,
    Clause,
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
    ProcessSpawned,
    Rule,
    RunEnd,
    Undecided,
    Violated,
    hookimpl,
    span,
)

STOPPED = "AVAIL-stopped"
STOP_BOUND_NS = 20_000_000_000
"""How long a node may take, undisturbed. A node of any system here ends within two seconds; a
session that has to run out first takes 12 s at most in the suites."""
SIGKILL = 9
HARNESS = "harness"


@dataclass(slots=True)
class Stop:
    """A process that was asked to end and has not.

    The clock counts the time in which nothing kept it from ending. It does not begin anew: many
    short disturbances excuse no longer a stop than one that takes as long as all of them.
    """

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

    def late(self, process: str, at_ns: int) -> Violated | Excused | None:
        """The finding if it has not ended by then; None if the bound is not over."""
        waited_ns = at_ns - self.asked_ns
        if waited_ns <= STOP_BOUND_NS:
            return None
        waited = span(waited_ns)
        message = f"{process} was asked to end by {self.signal}, and had not {waited} later"
        if self.calm_ns <= STOP_BOUND_NS:
            return Excused(self.asked, f"{message}; {self.kept}")
        calm = f"for {span(self.calm_ns)} of that nothing kept it from those that it tells"
        return Violated(self.asked, Evidence.PEER, f"{message}; {calm}")


def asked_by(event: Event, waiting: Mapping[str, Stop]) -> Iterable[str]:
    """The processes that a fault, whose injection ended just now, itself asked to end. It began no
    later than it asked them, and so is no excuse for them."""
    body = event.body
    if isinstance(body, FaultInjected) and not body.directions:
        began_ns = body.began_at_ns or event.at_ns
        for one in body.targets:
            if one in waiting and waiting[one].asked_ns >= began_ns:
                yield one


@dataclass(slots=True)
class _Stops:
    waiting: dict[str, Stop] = field(default_factory=dict)
    faults: set[str] = field(default_factory=set)
    """The ids of the faults that act."""
    newest: dict[str, str] = field(default_factory=dict)
    """The slot of a node -> its newest process."""
    dead: set[str] = field(default_factory=set)
    """Those of them that have ended."""
    suspects: list[tuple[str, int, int, Violated]] = field(default_factory=list)
    """A process, when it was asked to end, when it did, and the violation: judged at the end, when
    all stalls are known."""

    def overdue(self, process: str, stop: Stop, at_ns: int) -> Sequence[Finding]:
        """Takes note of a process that has ended too late, or not; returns what is excused."""
        late = stop.late(process, at_ns)
        if isinstance(late, Violated):
            self.suspects.append((process, stop.asked_ns, at_ns, late))
            return ()
        return () if late is None else (late,)

    def keeps(self, process: str) -> str:
        """What may keep a process from ending, in words; empty if nothing does."""
        slot = process.partition("#")[0]
        others = sorted(self.dead - {slot})
        acting = [f"{one} acted" for one in sorted(self.faults)]
        return next(iter([*acting, *(f"{one} was dead" for one in others)]), "")


@final
class EndsWhenAsked(Struct, frozen=True):
    """AVAIL-stopped. Judged by the harness: it asked a process to end, and saw its end, or had to
    kill it. Exercised by each process that ends within the bound."""

    clause: str = STOPPED
    kinds: frozenset[type[Struct]] = frozenset(
        {ProcessAsked, ProcessExited, ProcessSpawned, FaultInjected, FaultHealed}
    )

    def keys(self, event: Event) -> Iterable[Key]:
        return ((),)

    def start(self, key: Key) -> _Stops:
        return _Stops()

    def step(self, state: _Stops, event: Event) -> tuple[_Stops, Sequence[Finding]]:
        at_ns = getattr(event.body, "began_at_ns", 0) or event.at_ns
        for one in state.waiting.values():
            one.passes(min(at_ns, event.at_ns))
        found: Sequence[Finding] = ()
        match event.body:
            case ProcessAsked(asked=asked, signal=signal):
                stop = Stop(event.ref, signal, event.at_ns, seen_ns=event.at_ns)
                state.waiting.setdefault(asked, stop)
            case ProcessSpawned(role=role, slot=slot, started=started) if role != CLIENT:
                state.newest[slot] = started
                state.dead.discard(slot)
            case ProcessExited() as body:
                found = self._ended(state, event, body)
            case FaultInjected(fault_id=fault_id) if not any(asked_by(event, state.waiting)):
                state.faults.add(fault_id)
            case FaultHealed(fault_id=fault_id):
                state.faults.discard(fault_id)
        for process, one in state.waiting.items():
            one.look(state.keeps(process))
        return state, found

    @staticmethod
    def _ended(state: _Stops, event: Event, body: ProcessExited) -> Sequence[Finding]:
        slot = body.ended.partition("#")[0]
        if state.newest.get(slot) == body.ended:
            state.dead.add(slot)
        stop = state.waiting.pop(body.ended, None)
        if stop is None:
            return ()
        stop.passes(event.at_ns)
        if event.at_ns - stop.asked_ns > STOP_BOUND_NS:
            return state.overdue(body.ended, stop, event.at_ns)
        return () if body.signal == SIGKILL else (Exercised(stop.asked, Evidence.PEER),)

    def end(self, state: _Stops, end: RunEnd) -> Sequence[Finding]:
        found: list[Finding] = []
        for process, stop in state.waiting.items():
            stop.passes(end.ended_at_ns)
            if end.ended_at_ns - stop.asked_ns > STOP_BOUND_NS:
                found += state.overdue(process, stop, end.ended_at_ns)
            else:
                found.append(Undecided(f"the run ended before {process}, which was asked to"))
        for process, from_ns, to_ns, violated in state.suspects:
            stalled_ns = max(end.stalled_ns(from_ns, to_ns, p) for p in (process, HARNESS))
            if end.complete and stalled_ns * 10 <= STOP_BOUND_NS:
                found.append(violated)
            else:
                why = f"stalled for {span(stalled_ns)}" if end.complete else "events are missing"
                found.append(Undecided(f"{violated.message}; but {why}", violated.at))
        return found


@hookimpl
def fencepost_clauses() -> Sequence[Clause]:
    return (
        Clause(
            id=STOPPED,
            source="availability",
            planes=(),
            says="A node that is asked to end does so within 20 s, not counting the time in which "
            "a fault keeps it from those that it must tell.",
            note="SIGTERM or SIGINT asks it; Kafka's own limit for a controlled shutdown is five "
            "minutes",
        ),
    )


@hookimpl
def fencepost_rules() -> Sequence[Rule[Any]]:
    return (EndsWhenAsked(),)
