"""Why a promise was broken: the changes of authority that led to the offending event.

An event of authority (`AuthorityChange`) is part of an explanation for one of two reasons; nearness
in time is not one of them. Either it happened before the offending event: it is reached from there
by the numbers of a process, by causes, or by names that two events share (`Sourced`). Or it is
about the same scope or the same slot: then the offending process may not have known of it, and the
explanation says that, unless no event of the run says what it came from: then nothing can tell.

A fault is shown if it acts still, and also if it struck a process of a slot that the violation is
about: what a killed process had not written, or a paused one does once it goes on, comes after the
healing, which is shown, too.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import shorten
from typing import final

import msgspec
from msgspec import Struct

from fencepost.events import (
    Event,
    FaultHealed,
    FaultInjected,
    NodeStarted,
    ProcessExited,
    ProcessResumed,
    ProcessSpawned,
    began_ns,
)
from fencepost.events.traits import Change, Nearest, changes_authority, is_sourced
from fencepost.judging.event_formatter import sentence
from fencepost.judging.relevance import Ref, choose, subjects_of
from fencepost.judging.verdicts import Broken, Outcome, Verdict
from fencepost.model.system.topology import CLIENT

WORDS = 160
"""The most characters of one event's sentence; a fault's evidence may be longer."""
BROKE = "this broke it"
"""The remark behind the offending event of an explanation."""
EXPLAINED = 3
"""How many violations of one clause are explained."""
HORIZON = 30_000
"""How many changes of authority, and events with shared names, an explanation looks back over at
least. Before them it knows faults, restarts, and the last holder of each scope, so that memory does
not grow with the run."""

_OURS = (FaultInjected, FaultHealed, ProcessExited, ProcessResumed)
"""Events of the harness: an explanation does not ask whether a node knew of them."""
_RESTARTS = (ProcessExited, NodeStarted, ProcessResumed)


@final
@dataclass(frozen=True, slots=True)
class Step:
    """One event of an explanation. `known` is true if it happened before the offending event."""

    event: Event
    known: bool


@final
@dataclass(frozen=True, slots=True)
class Explanation:
    """What led to one violation, in the order of the history; the offending event comes last."""

    began_ns: int
    steps: tuple[Step, ...]
    offending: Event
    offender: str
    """The process that acted: the writer of the offending event, or, if a client observed it, the
    process that the client observed."""

    def lines(self, remark: str = BROKE) -> tuple[str, ...]:
        """One line per event, with its time since the run began; at most `STEPS` and one more.

        `remark` says what the offending event did.
        """
        led = [
            self._line(step.event, "" if step.known else f" [{self.offender} may not have known]")
            for step in self.steps
        ]
        return (*led, self._line(self.offending, f"  <- {remark}"))

    def _line(self, event: Event, remark: str) -> str:
        seconds = (began_ns(event) - self.began_ns) / 1e9
        words = shorten(sentence(event), WORDS, placeholder=" ...")
        return f"{seconds:+9.3f} s  {event.process}: {words}{remark}"


@final
@dataclass(slots=True)
class _Chronicle:
    """The events that explanations are made of: changes of authority, faults, and named origins.

    About twice the horizon of them is kept. Before older ones are dropped, the violations whose
    events were read are explained.
    """

    violations: Sequence[Broken]
    horizon: int
    most: int
    """How many events are kept before older ones are dropped."""
    began_ns: int = 0
    kept: list[Event] = field(default_factory=list)
    place: dict[Ref, int] = field(default_factory=dict)
    """A named event -> how many events had been kept when it happened."""
    named: dict[Ref, Event] = field(default_factory=dict)
    first: dict[Hashable, Ref] = field(default_factory=dict)
    """A shared name -> its first source."""
    nodes: dict[str, str] = field(default_factory=dict)
    """The process of a node -> the scope of its own id (`broker 2`), once it has given it."""
    linked: bool = False
    """Whether any event says what other process's event it came from."""
    found: dict[int, Explanation] = field(default_factory=dict)

    def take(self, events: Iterable[Event]) -> None:
        """Reads a history, up to the last event that a violation names."""
        wanted = {(c.process, c.seq) for one in self.violations for c in (one.at, *one.because)}
        for number, event in enumerate(events):
            if number == 0:
                self.began_ns = event.at_ns
            self._keep(event, event.body)
            ref = (event.process, event.node_seq)
            if ref in wanted:
                self.named[ref] = event
                self.place[ref] = len(self.kept)
                # Nothing behind the last event that a violation names can explain it.
                if len(self.named) == len(wanted):
                    break
            # Violations whose event was read are explained now, while what led to them is still
            # kept.
            if len(self.kept) >= self.most:
                self.explain()
                self._forget()
        self.explain()

    def explain(self) -> None:
        """Explains each violation whose event was read since this was called before."""
        for number, one in enumerate(self.violations):
            if (one.at.process, one.at.seq) in self.place:
                self.found[number] = _explain(one, self)

    def _keep(self, event: Event, body: Struct) -> None:
        sourced = is_sourced(body)
        changes = changes_authority(body) and bool(body.authority())
        if sourced or changes or isinstance(body, (FaultInjected, FaultHealed, *_RESTARTS)):
            self.kept.append(event)
        if is_sourced(body):
            self.linked = True
            for name in body.source_of(event.process):
                # The first source stays the source: a record that is replayed has the name of the
                # one that was written.
                self.first.setdefault(name, (event.process, event.node_seq))
        if event.cause is not None and event.cause.process != event.process:
            self.linked = True
        if isinstance(body, NodeStarted):
            self.nodes[event.process] = f"{body.role} {body.node_id}"
        # A node that has not said its id so far, and perhaps never will: a program that is observed
        # by its log alone.
        elif isinstance(body, ProcessSpawned) and body.role != CLIENT:
            self.nodes.setdefault(body.started, "")

    def _forget(self) -> None:
        """Drops what lies beyond the horizon."""
        old = self.kept[: -self.horizon]
        holders: dict[str, int] = {}
        # Of each scope the last gain beyond the horizon: who holds it now may have got it long ago.
        for number, event in enumerate(old):
            holders.update((scope, number) for scope in _gained(event))
        last = set(holders.values())
        always = (FaultInjected, FaultHealed, *_RESTARTS)
        self.kept = [
            *(e for n, e in enumerate(old) if n in last or isinstance(e.body, always)),
            *self.kept[-self.horizon :],
        ]
        names = {name for event in self.kept for name in _names(event)}
        self.first = {name: ref for name, ref in self.first.items() if name in names}
        # All that were in it are explained; what is read later gets places in the shortened list.
        self.place.clear()
        # A horizon further, whatever was kept for good: with a fixed bound, a run of many faults
        # would be shortened at each event.
        self.most = len(self.kept) + self.horizon


def _gained(event: Event) -> Iterable[str]:
    """The scopes of which an event names the new holder."""
    if changes_authority(event.body):
        for one in event.body.authority():
            if one.change is Change.GAINED and (one.node or one.holder is not None):
                yield one.scope


def _names(event: Event) -> Iterable[Hashable]:
    """The names that an event shares with others."""
    if is_sourced(event.body):
        yield from event.body.source_of(event.process)
        yield from (origin.name for origin in event.body.came_from(event.process))


def bears_on_explanations(kind: type[Struct]) -> bool:
    """Whether `explain` needs all events of this kind."""
    own = (FaultInjected, FaultHealed, ProcessSpawned, *_RESTARTS)
    return issubclass(kind, own) or hasattr(kind, "authority") or hasattr(kind, "source_of")


def explain(
    violations: Sequence[Broken], events: Iterable[Event], horizon: int = HORIZON
) -> Sequence[Explanation | None]:
    """Explains each violation from its history, read at most once, and no further than needed; None
    if its event is not in the history.

    Memory holds about twice as many events as the `horizon` says, and those that violations name.
    """
    chronicle = _Chronicle(violations, horizon, 2 * horizon)
    chronicle.take(events)
    return [chronicle.found.get(number) for number in range(len(violations))]


def explained(verdicts: Mapping[str, Verdict], events: Iterable[Event]) -> Mapping[str, Verdict]:
    """The verdicts with the first violations of each clause explained, new ones before known ones;
    reads the events only if there is a violation."""
    chosen = [
        (clause, number)
        for clause, verdict in verdicts.items()
        if verdict.verdict is Outcome.VIOLATED
        for number in _to_explain(verdict)
    ]
    if not chosen:
        return verdicts
    found = explain([verdicts[c].violations[n] for c, n in chosen], events)
    result = dict(verdicts)
    for (clause, number), explanation in zip(chosen, found, strict=True):
        if explanation is None:
            continue
        violations = list(result[clause].violations)
        violations[number] = msgspec.structs.replace(
            violations[number], explanation=explanation.lines()
        )
        result[clause] = msgspec.structs.replace(result[clause], violations=tuple(violations))
    return result


def _to_explain(verdict: Verdict) -> Sequence[int]:
    """The numbers of the violations of a clause that are explained."""
    numbers = range(len(verdict.violations))
    chosen = sorted(numbers, key=lambda number: bool(verdict.violations[number].known))
    return sorted(chosen[:EXPLAINED])


def _explain(violation: Broken, chronicle: _Chronicle) -> Explanation:
    at = (violation.at.process, violation.at.seq)
    offending = chronicle.named[at]
    because = [
        chronicle.named[c.process, c.seq]
        for c in violation.because
        if (c.process, c.seq) in chronicle.named
    ]
    before = chronicle.kept[: chronicle.place[at]]
    past = _past(offending, because, before, chronicle)
    subjects = subjects_of(offending, because, before, chronicle.nodes, violation.facts)
    # The offender is the first node among the writers, the violation's own event before its proof.
    nodes = [one.process for one in (offending, *because) if one.process in chronicle.nodes]
    offender = next(iter(nodes), offending.process)
    steps = [
        # Where no event of the run says what it came from, nothing can tell who knew what, so
        # nothing is said.
        Step(one, not chronicle.linked or _knew(one, offender, past))
        for one in choose(
            offending, because, before, past, subjects=subjects, nodes=chronicle.nodes
        )
    ]
    return Explanation(chronicle.began_ns, tuple(steps), offending, offender)


def _knew(event: Event, offender: str, past: Mapping[str, int]) -> bool:
    """Whether an event is the offender's own or happened before what it did, or is one that the
    question is not asked of."""
    # Within a process everything before is known. Of the harness's events the question has no
    # sense.
    own = event.process == offender or isinstance(event.body, _OURS)
    return own or event.node_seq <= past.get(event.process, -1)


# -------------------------------------------------------------------------------- happens-before


def _past(
    offending: Event, because: Sequence[Event], before: Sequence[Event], chronicle: _Chronicle
) -> Mapping[str, int]:
    """process -> the number of its last event that happened before the offending one."""
    past: dict[str, int] = {}
    awaited: set[Hashable] = set()
    """Names whose latest earlier source is still to be found, going backwards."""

    def add(process: str, seq: int) -> None:
        past[process] = max(seq, past.get(process, -1))

    def follow(event: Event) -> None:
        cause = event.cause
        # A request has no number at its receiver: it is found by its name, going backwards.
        if cause is not None and cause.request:
            awaited.add(("request", cause.process, cause.seq))
        elif cause is not None:
            add(cause.process, cause.seq)
        if is_sourced(event.body):
            for origin in event.body.came_from(event.process):
                # The latest source lies behind us in the list, and is found on the way back; the
                # first one was noted when it happened.
                if origin.nearest is Nearest.LATEST:
                    awaited.add(origin.name)
                elif origin.name in chronicle.first:
                    add(*chronicle.first[origin.name])

    for event in (offending, *because):
        add(event.process, event.node_seq)
        follow(event)
    # One pass backwards is enough, since `before` is in happens-before order: when an event is
    # reached, all that it may have led to was seen.
    for event in reversed(before):
        if is_sourced(event.body):
            for name in event.body.source_of(event.process):
                if name in awaited:
                    awaited.discard(name)
                    add(event.process, event.node_seq)
        # It happened before the offending event, and so did whatever it came from.
        if event.node_seq <= past.get(event.process, -1):
            follow(event)
    return past
