"""A promise of every system: a node that is asked to end does so in time.

Of a system that it does not know, the framework cannot say which nodes another one must tell before
it ends. So the clock stands still while any fault acts, or any other node is dead (`AnyNode`). A
package that knows better has the same rule with surroundings of its own, as that of
Kafka's clusters does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from msgspec import Struct

from fencepost import (
    CLIENT,
    HARNESS,
    Cause,
    Clause,
    Deadline,
    Event,
    Evidence,
    Excused,
    Exercised,
    FaultHealed,
    FaultInjected,
    Finding,
    Findings,
    Key,
    ProcessAsked,
    ProcessExited,
    ProcessSpawned,
    Reason,
    Rule,
    RunEnd,
    Shared,
    Undecided,
    Violated,
    began_ns,
    hookimpl,
    judged,
    on,
    process_scope,
    slot_of,
    slot_scope,
    violated,
)

STOPPED = "AVAIL-stopped"
STOP_BOUND_NS = 20_000_000_000
"""How long a node may take, undisturbed. A node of any system here ends within two seconds; a
session that has to run out first takes 12 s at most in the suites."""
SIGKILL = 9


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
    why_not: Reason | None = None
    """What keeps it from ending now; None if nothing does."""
    kept: Reason | None = None
    """What did so last."""

    def passes(self, at_ns: int) -> None:
        """Counts the time until then."""
        if self.why_not is None:
            self.calm_ns += max(0, at_ns - self.seen_ns)
        self.seen_ns = max(self.seen_ns, at_ns)

    def look(self, why_not: Reason | None) -> None:
        """Notes what keeps it from ending from now on."""
        self.why_not, self.kept = why_not, why_not or self.kept

    def late(self, process: str, at_ns: int) -> Violated | Excused | None:
        """The finding if it has not ended by then; None if the bound is not over."""
        waited_ns = at_ns - self.asked_ns
        if waited_ns <= STOP_BOUND_NS:
            return None
        excuse = self.kept if self.calm_ns <= STOP_BOUND_NS else None
        late = "{process} was asked to end by {signal}, and had not {after_ns} later"
        calm = "; for {calm_ns} of that nothing kept it from those that it tells"
        broken = violated(
            self.asked,
            Evidence.PEER,
            late + calm if excuse is None else late,
            process=process_scope(process),
            signal=self.signal,
            after_ns=waited_ns,
            calm_ns=self.calm_ns,
        )
        return broken if excuse is None else Excused.of(broken, excuse)


def asked_by(event: Event, waiting: Mapping[str, Stop]) -> Iterable[str]:
    """The processes that a fault, whose injection ended just now, itself asked to end. It began no
    later than it asked them, and so is no excuse for them."""
    body = event.body
    if isinstance(body, FaultInjected) and not body.directions:
        began = began_ns(event)
        for one in body.targets:
            if one in waiting and waiting[one].asked_ns >= began:
                yield one


class Around(Protocol):
    """What is known of the nodes and the faults around a process that was asked to end."""

    def take(self, event: Event) -> object:
        """Applies an event."""
        ...

    def keeps(self, process: str) -> Reason | None:
        """What keeps a process from ending; None if nothing does."""
        ...

    def needs(self, process: str) -> Collection[str]:
        """The slots whose processes must run for it to end."""
        ...


@dataclass(slots=True)
class AnyNode:
    """What is around a node of which nothing is known: any fault, and any other node that is dead,
    may be the reason."""

    faults: set[str] = field(default_factory=set)
    """The ids of the faults that act."""
    newest: dict[str, str] = field(default_factory=dict)
    """The slot of a node -> its newest process."""
    dead: set[str] = field(default_factory=set)
    """Those of them that have ended."""

    def take(self, event: Event) -> None:
        """See `Around`."""
        match event.body:
            case ProcessSpawned(role=role, slot=slot, started=started) if role != CLIENT:
                self.newest[slot] = started
                self.dead.discard(slot)
            case ProcessExited(ended=ended) if self.newest.get(slot_of(ended)) == ended:
                self.dead.add(slot_of(ended))
            case FaultInjected(fault_id=fault_id):
                self.faults.add(fault_id)
            case FaultHealed(fault_id=fault_id):
                self.faults.discard(fault_id)

    def keeps(self, process: str) -> Reason | None:
        """See `Around`."""
        if self.faults:
            return Reason.of("{fault} acted", fault=min(self.faults))
        dead = min(self.dead - {slot_of(process)}, default="")
        return Reason.of("{slot} was dead", slot=slot_scope(dead)) if dead else None

    def needs(self, process: str) -> Collection[str]:
        """See `Around`."""
        return (slot_of(process),)


@dataclass(slots=True)
class Stops:
    """The processes that were asked to end, and what surrounds them."""

    around: Around
    waiting: dict[str, Stop] = field(default_factory=dict)
    suspects: list[Deadline] = field(default_factory=list)
    """Judged at the end, when all stalls are known."""

    def overdue(self, process: str, stop: Stop, at_ns: int) -> Findings:
        """Takes note of a process that has ended too late, or not; returns what is excused."""
        late = stop.late(process, at_ns)
        if isinstance(late, Violated):
            slots = (HARNESS, *self.around.needs(process))
            self.suspects.append(Deadline(late, slots, stop.asked_ns, at_ns, STOP_BOUND_NS))
            return ()
        return () if late is None else (late,)


class EndsWhenAsked(Rule[Stops]):
    """AVAIL-stopped. Judged by the harness: it asked a process to end, and saw its end, or had to
    kill it. Exercised by each process that ends within the bound."""

    clause = STOPPED
    around: Callable[[], Around] = AnyNode
    """Makes what knows the surroundings; `step` handles the events that it takes."""

    def start(self, key: Key, shared: Shared) -> Stops:
        return Stops(self.around())

    @on(ProcessAsked, ProcessExited, ProcessSpawned, FaultInjected, FaultHealed)
    def step(self, state: Stops, event: Event, body: Struct) -> Findings:
        since_ns = began_ns(event)
        for one in state.waiting.values():
            one.passes(min(since_ns, event.at_ns))
        found: Findings = ()
        if isinstance(body, ProcessAsked):
            asked = Stop(event.ref, body.signal, event.at_ns, seen_ns=event.at_ns)
            state.waiting.setdefault(body.asked, asked)
        else:
            if isinstance(body, ProcessExited) and body.ended in state.waiting:
                found = self._ended(state, event, body)
            if not any(asked_by(event, state.waiting)):
                state.around.take(event)
        for process, one in state.waiting.items():
            one.look(state.around.keeps(process))
        return found

    @staticmethod
    def _ended(state: Stops, event: Event, body: ProcessExited) -> Findings:
        stop = state.waiting.pop(body.ended)
        stop.passes(event.at_ns)
        if event.at_ns - stop.asked_ns > STOP_BOUND_NS:
            return state.overdue(body.ended, stop, event.at_ns)
        return () if body.signal == SIGKILL else (Exercised(stop.asked, Evidence.PEER),)

    def end(self, state: Stops, end: RunEnd) -> Findings:
        found: list[Finding] = []
        for process, stop in state.waiting.items():
            stop.passes(end.ended_at_ns)
            if end.ended_at_ns - stop.asked_ns > STOP_BOUND_NS:
                found += state.overdue(process, stop, end.ended_at_ns)
            else:
                words = "the run ended before {process}, which was asked to"
                open_ = Reason.of(words, process=process_scope(process))
                found.append(Undecided.since(open_))
        return (*found, *judged(state.suspects, end))


@hookimpl
def fencepost_clauses() -> Sequence[Clause]:
    return (
        Clause(
            id=STOPPED,
            source="availability",
            planes=(),
            says="A node that is asked to end does so within 20 s, not counting the time in which "
            "a fault keeps it from those that it must tell.",
            note="SIGTERM or SIGINT asks it",
        ),
    )


@hookimpl
def fencepost_rules() -> Sequence[Rule[Any]]:
    return (EndsWhenAsked(),)
