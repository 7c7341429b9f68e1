"""Why a promise was broken: the epochs and fencing events that led to the event that broke it.

An event of authority belongs to an explanation for one of two reasons, and never for having
happened at about the same time. Either it happened before the offending event: reached from it by
the numbers of a process, by causes, or by what says itself where it comes from (a replayed record
by its offset, a lease by the answer that granted it, a follower by the controller it names). Or it
is about the same broker, partition or slot: then the offender may not have known of it, which is
often the very point, and the explanation says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import shorten
from typing import Any, final

import msgspec
from msgspec import Struct

from fencepost.events import kinds as e
from fencepost.events.kinds import Cause, Event
from fencepost.judging.event_formatter import sentence
from fencepost.judging.judge import Broken, Outcome, Verdict

LINES = 12
"""The most lines that a clause, its sentence, what broke it and what led to that may take."""
STEPS = LINES - 3
WORDS = 160
"""The most characters of one event's sentence; a fault's evidence may be longer."""
EXPLAINED = 3
"""How many violations of one clause are explained."""

Ref = tuple[str, int]

_ABOUT_CLUSTER = (e.ControllerElected, e.ControllerResigned)
_ABOUT_BROKER = (
    e.BrokerCommitted,
    e.BrokerStateChanged,
    e.BrokerStopping,
    e.LeaseGranted,
    e.LeaseExpired,
    e.HeartbeatAnswered,
    e.HeartbeatRefused,
)
_ABOUT_PARTITION = (
    e.PartitionCommitted,
    e.LeadershipStarted,
    e.LeadershipEnded,
    e.LogTruncated,
    e.IsrChangeAsked,
)
_ABOUT_PROCESS = (e.ProcessExited, e.NodeStarted, e.StateReverted, e.MetadataTruncated)
_ABOUT_VOTES = (e.VoteAnswered,)
_FAULTS = (e.FaultStruck, e.FaultHealed)
_OURS = (*_FAULTS, e.ProcessExited)
"""What the harness did: no node's knowledge of it is in question."""
_EDGES = (e.HeartbeatSent, e.ControllerFollowed)
_KEPT: frozenset[type[Struct]] = frozenset(
    {
        *(*_ABOUT_CLUSTER, *_ABOUT_BROKER, *_ABOUT_PARTITION, *_ABOUT_PROCESS),
        *(*_ABOUT_VOTES, *_FAULTS, *_EDGES),
    }
)


@final
@dataclass(frozen=True, slots=True)
class Step:
    """One event of an explanation. `known`: it happened before the offending event."""

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
    """The process whose doing it was: the offending event's own, but for what a client saw."""

    def lines(self) -> tuple[str, ...]:
        """One line an event, with its time since the run began; at most `STEPS` and one more."""
        told = [
            self._line(step.event, "" if step.known else f" [{self.offender} need not know]")
            for step in self.steps
        ]
        return (*told, self._line(self.offending, "  <- this broke it"))

    def _line(self, event: Event, remark: str) -> str:
        seconds = (event.at_ns - self.began_ns) / 1e9
        words = shorten(sentence(event), WORDS, placeholder=" ...")
        return f"{seconds:+9.3f} s  {event.process}: {words}{remark}"


@final
@dataclass(slots=True)
class _Chronicle:
    """What explanations are made of: authority events, faults, and the events that were named."""

    wanted: frozenset[Ref]
    began_ns: int | None = None
    kept: list[Event] = field(default_factory=list)
    place: dict[Ref, int] = field(default_factory=dict)
    """A named event -> how many were kept when it happened."""
    named: dict[Ref, Event] = field(default_factory=dict)
    sent: dict[Ref, int] = field(default_factory=dict)
    """(process, correlation) -> the number of the event that tells of the request."""
    first: dict[tuple[type[Struct], int], Ref] = field(default_factory=dict)
    """A record's kind and offset -> who replayed it first."""
    nodes: dict[str, int] = field(default_factory=dict)

    def take(self, events: Iterable[Event]) -> None:
        """Reads a history."""
        for event in events:
            if self.began_ns is None:
                self.began_ns = event.at_ns
            body = event.body
            if type(body) in _KEPT:
                self._keep(event, body)
            if (event.process, event.node_seq) in self.wanted:
                self.named[event.process, event.node_seq] = event
                self.place[event.process, event.node_seq] = len(self.kept)

    def _keep(self, event: Event, body: Struct) -> None:
        self.kept.append(event)
        match body:
            case e.HeartbeatSent():
                self.sent[event.process, body.correlation] = event.node_seq
            case e.BrokerCommitted() | e.PartitionCommitted():
                self.first.setdefault((type(body), body.offset), (event.process, event.node_seq))
            case e.NodeStarted():
                self.nodes[event.process] = body.node_id


def explain(violations: Sequence[Broken], events: Iterable[Event]) -> Sequence[Explanation | None]:
    """Explains each violation from its history, read once; None where its event is not in it."""
    wanted = {(c.process, c.seq) for one in violations for c in (one.at, *one.because)}
    chronicle = _Chronicle(frozenset(wanted))
    chronicle.take(events)
    return [_explain(one, chronicle) for one in violations]


def explained(verdicts: Mapping[str, Verdict], events: Iterable[Event]) -> Mapping[str, Verdict]:
    """The verdicts with the first violations of each clause explained; reads events only if any."""
    chosen = [
        (clause, number)
        for clause, verdict in verdicts.items()
        if verdict.verdict is Outcome.VIOLATED
        for number in range(min(EXPLAINED, len(verdict.violations)))
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


def _explain(violation: Broken, chronicle: _Chronicle) -> Explanation | None:
    at = (violation.at.process, violation.at.seq)
    offending = chronicle.named.get(at)
    if offending is None or chronicle.began_ns is None:
        return None
    because = [
        chronicle.named[c.process, c.seq]
        for c in violation.because
        if (c.process, c.seq) in chronicle.named
    ]
    before = chronicle.kept[: chronicle.place[at]]
    past = _past(offending, because, before, chronicle)
    subjects = _subjects(offending, because, chronicle)
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
    awaited: set[tuple[str, str]] = set()
    """What an event of the past says it came from: ("answer", client), ("epoch", number)."""

    def add(process: str, seq: int) -> None:
        past[process] = max(seq, past.get(process, -1))

    def follow(cause: Cause | None) -> None:
        if cause is None:
            return
        seq = chronicle.sent.get((cause.process, cause.seq)) if cause.request else cause.seq
        if seq is not None:
            add(cause.process, seq)

    for event in (offending, *because):
        add(event.process, event.node_seq)
        follow(event.cause)
    for event in reversed(before):
        body = event.body
        match body:
            case e.HeartbeatAnswered() if ("answer", body.client) in awaited:
                awaited.discard(("answer", body.client))
                add(event.process, event.node_seq)
            case e.ControllerElected() if ("epoch", str(body.epoch)) in awaited:
                add(event.process, event.node_seq)
        if event.node_seq > past.get(event.process, -1):
            continue
        follow(event.cause)
        match body:
            case e.BrokerCommitted() | e.PartitionCommitted():
                add(*chronicle.first[type(body), body.offset])
            case e.LeaseGranted() | e.HeartbeatRefused():
                awaited.add(("answer", event.process))
            case e.ControllerFollowed():
                awaited.add(("epoch", str(body.epoch)))
    return past


# --------------------------------------------------------------------------------------- subjects


@final
@dataclass(slots=True)
class _Subjects:
    """What a violation is about."""

    brokers: set[int] = field(default_factory=set)
    partitions: set[tuple[str, int]] = field(default_factory=set)
    slots: set[str] = field(default_factory=set)
    epochs: set[int] = field(default_factory=set)
    """Controller epochs."""


_PROCESS_FIELDS = ("client", "started", "ended")
_BROKER_FIELDS = ("broker_id", "follower", "requester", "broker")
_VOTED = (e.ElectionStarted, e.VoteAnswered, e.ControllerElected, e.ControllerResigned)


def _subjects(offending: Event, because: Sequence[Event], chronicle: _Chronicle) -> _Subjects:
    subjects = _Subjects()
    for event in (offending, *because):
        body: Any = event.body
        processes = [event.process, *(getattr(body, f, "") for f in _PROCESS_FIELDS)]
        if isinstance(body, e.ProbeCompleted):
            subjects.slots.add(body.slot)
        for process in processes:
            if process in chronicle.nodes:
                subjects.slots.add(_slot(process))
                subjects.brokers.add(chronicle.nodes[process])
        subjects.brokers |= {getattr(body, f, -1) for f in _BROKER_FIELDS} - {-1}
        if getattr(body, "partition", -1) >= 0:
            subjects.partitions.add((body.topic, body.partition))
        if isinstance(body, _VOTED):
            subjects.epochs.add(body.epoch)
    return subjects


def _slot(process: str) -> str:
    return process.partition("#")[0]


def _concerns(event: Event, subjects: _Subjects) -> bool:
    """Whether an event of authority is about what the violation is about."""
    body: Any = event.body
    kind = type(body)
    if kind in _ABOUT_CLUSTER:
        return True
    if kind is e.HeartbeatAnswered and body.error == "NONE" and body.request_epoch >= 0:
        return False  # a renewal: the broker's lease says it better
    if kind is e.HeartbeatAnswered and body.error == "NOT_CONTROLLER":
        return False
    if kind in _ABOUT_BROKER:
        return body.broker_id in subjects.brokers
    if kind in _ABOUT_PARTITION:
        return (body.topic, body.partition) in subjects.partitions
    if kind in _ABOUT_VOTES:
        return body.epoch in subjects.epochs
    if kind is e.ProcessExited:
        return _slot(body.ended) in subjects.slots
    if kind in _ABOUT_PROCESS:
        return _slot(event.process) in subjects.slots
    if kind is e.FaultStruck:
        return bool({_slot(target) for target in body.targets} & subjects.slots)
    return False


# ----------------------------------------------------------------------------------------- choice


def _choose(
    offending: Event,
    because: Sequence[Event],
    before: Sequence[Event],
    past: Mapping[str, int],
    subjects: _Subjects,
) -> list[Step]:
    """The most telling events before the offending one, in order: no more than `STEPS`.

    What makes it a violation comes first, then the newest fault still on, then the newest of the
    rest: what is about its broker or partition before what is about the cluster.
    """
    healed = {event.body.fault_id for event in before if isinstance(event.body, e.FaultHealed)}
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
    faults = [event for event in relevant if isinstance(event.body, e.FaultStruck)]
    on = [f for f in faults if isinstance(f.body, e.FaultStruck) and f.body.fault_id not in healed]
    others = [event for event in relevant if not isinstance(event.body, e.FaultStruck)]
    close = [event for event in others if type(event.body) not in _ABOUT_CLUSTER]
    distant = [event for event in others if type(event.body) in _ABOUT_CLUSTER]
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
    """What concerns the violation, each matter once: a record is told by whoever had it first, a
    lease by its last renewal in a row, an offender's own state by itself."""
    found: list[Event] = []
    told: set[tuple[object, ...]] = set()
    records: dict[tuple[type[Struct], int], int] = {}
    for event in reversed(before):
        if not _concerns(event, subjects):
            continue
        body = event.body
        match body:
            case e.LeaseGranted():
                matter: tuple[object, ...] = (
                    "lease", event.process, body.next_state, body.controller_epoch
                )  # fmt: skip
            case e.BrokerCommitted() | e.PartitionCommitted():
                # Going backwards the first teller comes last: it takes the others' place.
                record = (type(body), body.offset)
                if record in records:
                    found[records[record]] = event
                else:
                    records[record] = len(found)
                    found.append(event)
                continue
            case e.HeartbeatRefused():
                matter = ("refused", event.process, body.error)
            case e.IsrChangeAsked():
                matter = ("asked", event.process, body.new_isr)
            case e.HeartbeatAnswered():
                matter = ("answered", event.process, body.client, body.error)
            case _:
                matter = (event.process, event.node_seq)
        if matter not in told:
            told.add(matter)
            found.append(event)
    return found
