"""Why a promise was broken: the changes of authority that led to the offending event.

An event of authority (`AuthorityChange`) is part of an explanation for one of two reasons; nearness
in time is not one of them. Either it happened before the offending event: it is reached from there
by the numbers of a process, by causes, or by names that two events share (`Sourced`). Or it is
about the same scope or the same slot: then the offending process may not have known of it, and the
explanation says that.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import shorten
from typing import final

import msgspec
from msgspec import Struct

from fencepost.events import Event, FaultHealed, FaultInjected, NodeStarted, ProcessExited
from fencepost.events.traits import (
    OWN,
    Change,
    Nearest,
    changes_authority,
    has_concerns,
    is_sourced,
    shared_record,
)
from fencepost.judging.event_formatter import sentence
from fencepost.judging.verdicts import Broken, Outcome, Verdict

LINES = 12
"""The most lines of an explanation: a clause, its sentence, the violation and what led to it."""
STEPS = LINES - 3
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

Ref = tuple[str, int]

_PROCESS = "process "
_SLOT = "slot "
_OURS = (FaultInjected, FaultHealed, ProcessExited)
"""Events of the harness: an explanation does not ask whether a node knew of them."""
_RESTARTS = (ProcessExited, NodeStarted)


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
        seconds = (event.at_ns - self.began_ns) / 1e9
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
    """The process of a node -> the scope of its own id (`broker 2`)."""
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
                if len(self.named) == len(wanted):
                    break
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
            for name in body.source_of(event.process):
                self.first.setdefault(name, (event.process, event.node_seq))
        if isinstance(body, NodeStarted):
            self.nodes[event.process] = f"{body.role} {body.node_id}"

    def _forget(self) -> None:
        """Drops what lies beyond the horizon."""
        old = self.kept[: -self.horizon]
        holders: dict[str, int] = {}
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
        self.place.clear()
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
    own = (FaultInjected, FaultHealed, *_RESTARTS)
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
    subjects = _subjects(offending, because, before, chronicle)
    steps = _choose(offending, because, before, past, subjects)
    nodes = [one.process for one in (offending, *because) if one.process in chronicle.nodes]
    offender = next(iter(nodes), offending.process)
    return Explanation(chronicle.began_ns, tuple(steps), offending, offender)


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
        if cause is not None and cause.request:
            awaited.add(("request", cause.process, cause.seq))
        elif cause is not None:
            add(cause.process, cause.seq)
        if is_sourced(event.body):
            for origin in event.body.came_from(event.process):
                if origin.nearest is Nearest.LATEST:
                    awaited.add(origin.name)
                elif origin.name in chronicle.first:
                    add(*chronicle.first[origin.name])

    for event in (offending, *because):
        add(event.process, event.node_seq)
        follow(event)
    for event in reversed(before):
        if is_sourced(event.body):
            for name in event.body.source_of(event.process):
                if name in awaited:
                    awaited.discard(name)
                    add(event.process, event.node_seq)
        if event.node_seq <= past.get(event.process, -1):
            follow(event)
    return past


# --------------------------------------------------------------------------------------- subjects


@final
@dataclass(frozen=True, slots=True)
class _Subjects:
    """Scopes of authority, and `slot NAME`, that bear on a violation.

    `own`: the scopes that the violation is about. `holders`: the nodes that hold authority over
    these scopes. Of a holder only a loss matters: a node that loses its own authority also loses
    its authority over what it leads.
    """

    own: frozenset[str]
    holders: frozenset[str]

    def of_slot(self, process: str) -> bool:
        """Whether it is about the slot of a process."""
        return _SLOT + _slot(process) in self.own

    def affected(self, process: str) -> bool:
        """Whether an event that ends or hinders a process bears on the violation."""
        return self.of_slot(process) or _SLOT + _slot(process) in self.holders


def _subjects(
    offending: Event, because: Sequence[Event], before: Sequence[Event], chronicle: _Chronicle
) -> _Subjects:
    own: set[str] = set()
    processes: set[str] = set()
    for event in (offending, *because):
        concerned = list(_scopes(event))
        processes.update((event.process, *_named_processes(concerned)))
        own.update(scope for scope in concerned if not scope.startswith(_PROCESS))
    for process in processes & chronicle.nodes.keys():
        own.update((_SLOT + _slot(process), chronicle.nodes[process]))
    holders: set[str] = set()
    for process, node in _holders(own, before):
        holders.add(node or chronicle.nodes.get(process, ""))
        holders.add(_SLOT + _slot(process) if process else "")
    return _Subjects(frozenset(own), frozenset(holders - own - {""}))


def _holders(scopes: Iterable[str], before: Sequence[Event]) -> Iterable[tuple[str, str]]:
    """The newest holder of each scope, as a process, a node or both, where an event names one."""
    wanted = set(scopes)
    for event in reversed(before):
        if wanted and changes_authority(event.body):
            for one in event.body.authority():
                named = bool(one.node) or one.holder is not None
                if one.scope in wanted and one.change is Change.GAINED and named:
                    wanted.discard(one.scope)
                    yield (event.process if one.holder == "" else one.holder or ""), one.node


def _scopes(event: Event) -> Iterable[str]:
    body = event.body
    if changes_authority(body):
        yield from (one.scope for one in body.authority())
    if has_concerns(body):
        yield from body.concerns()


def _named_processes(scopes: Iterable[str]) -> Sequence[str]:
    return [scope.removeprefix(_PROCESS) for scope in scopes if scope.startswith(_PROCESS)]


def _slot(process: str) -> str:
    return process.partition("#")[0]


def _concerns(event: Event, subjects: _Subjects) -> bool:
    """Whether an event of authority is about the subject of the violation."""
    body = event.body
    if isinstance(body, FaultInjected):
        return any(subjects.affected(target) for target in body.targets)
    if isinstance(body, ProcessExited):
        return subjects.affected(body.ended)
    if isinstance(body, NodeStarted):
        return subjects.of_slot(event.process)
    if not changes_authority(body):
        return False
    return any(
        one.wide
        or one.scope in subjects.own
        or (one.change is Change.LOST and one.scope in subjects.holders)
        or (one.scope == OWN and subjects.of_slot(event.process))
        for one in body.authority()
    )


def _wide(event: Event) -> bool:
    body = event.body
    return changes_authority(body) and any(one.wide for one in body.authority())


# ----------------------------------------------------------------------------------------- choice


def _choose(
    offending: Event,
    because: Sequence[Event],
    before: Sequence[Event],
    past: Mapping[str, int],
    subjects: _Subjects,
) -> list[Step]:
    """The most relevant events before the offending one, in order: at most `STEPS`.

    Chosen first are the events that prove the violation, then the newest fault still active, then
    the newest other events: those about its own scopes before those about the cluster.
    """
    healed = {event.body.fault_id for event in before if isinstance(event.body, FaultHealed)}
    chosen: dict[Ref, Event] = {}

    def take(events: Iterable[Event], most: int) -> None:
        for event in events:
            if len(chosen) >= STEPS or most <= 0:
                return
            ref = (event.process, event.node_seq)
            if ref not in chosen and event is not offending:
                chosen[ref] = event
                most -= 1

    relevant = _newest_first(before, offending, past, subjects)
    faults = [event for event in relevant if isinstance(event.body, FaultInjected)]
    on = [f for f in faults if isinstance(f.body, FaultInjected) and f.body.fault_id not in healed]
    others = [event for event in relevant if not isinstance(event.body, FaultInjected)]
    close = [event for event in others if not _wide(event)]
    distant = [event for event in others if _wide(event)]
    take(because, STEPS)
    take(on or faults, 1)
    take(distant, 2)
    take(close, STEPS)
    take(distant, STEPS)
    ordered = sorted(chosen.values(), key=lambda event: (event.at_ns, event.node_seq))
    return [
        Step(event, isinstance(event.body, _OURS) or event.node_seq <= past.get(event.process, -1))
        for event in ordered
    ]


def _newest_first(
    before: Sequence[Event], offending: Event, past: Mapping[str, int], subjects: _Subjects
) -> list[Event]:
    """The events that concern the violation, newest first, each matter once.

    If several processes report one source (a replayed record), the first report is shown. Of
    consecutive changes with one matter, the newest is shown.
    """
    found: list[Event] = []
    shown: set[tuple[object, ...]] = set()
    records: dict[Hashable, int] = {}
    for event in reversed(before):
        if not _concerns(event, subjects):
            continue
        record = shared_record(event)
        if record is not None:
            # Going backwards, the first report comes last: it replaces the others.
            if record in records:
                found[records[record]] = event
            else:
                records[record] = len(found)
                found.append(event)
            continue
        matter = _matter(event)
        if matter not in shown:
            shown.add(matter)
            found.append(event)
    return found


def _matter(event: Event) -> tuple[object, ...]:
    body = event.body
    if changes_authority(body):
        for one in body.authority():
            if one.matter:
                return one.matter, event.process
    return event.process, event.node_seq
