"""Rules about the nodes' metrics pages (KR-07, KR-08).

A page is not a snapshot: its figures are read one after the other, a little after they were true.
So a page is judged only after it has been stable for some time, against every state in that time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, final

from msgspec import Struct

from fencepost import (
    NOTHING,
    OBSERVERS,
    SECOND,
    Deadline,
    Event,
    Evidence,
    Exercised,
    Findings,
    NodeStarted,
    Rule,
    RunEnd,
    Undecided,
    Violated,
    judged,
    on,
    process_scope,
    slot_of,
    violated,
)
from fencepost_clusters.apache_kafka.metrics import MetricsObserved
from fencepost_clusters.apache_kafka.rules.news import Newest
from fencepost_kafka import (
    BrokerCommitted,
    BrokerDeleted,
    ControllerElected,
    ControllerResigned,
    MetadataApplied,
    PartitionCommitted,
    TopicCommitted,
)
from fencepost_kafka.committed import Partitions
from fencepost_kafka.judging.owed import TERMS

SETTLED_NS = 2 * SECOND
"""How long a page must have been readable and unchanged before it is judged. A node that answered
all that time did not stall, so its figures include what it had applied before."""
RUNNING = 3
"""Kafka's BrokerState of a broker that serves."""


@dataclass(slots=True)
class _Answering:
    """For each slot the process that answers: the newest one, and since when."""

    newest: dict[str, tuple[str, int]] = field(default_factory=dict)

    def learn(self, event: Event) -> None:
        """Applies a node's start."""
        self.newest[slot_of(event.process)] = event.process, event.at_ns

    def process(self, page: MetricsObserved) -> str:
        """The process that wrote these pages; empty if it is not known."""
        process, since_ns = self.newest.get(page.slot, ("", 0))
        return process if page.since_ns > since_ns else ""


def _settled(event: Event, page: MetricsObserved) -> bool:
    return event.at_ns - page.since_ns >= SETTLED_NS


def _shown(wrong: Violated, at_ns: int) -> Deadline:
    """A page that shows something wrong, though all was settled for long."""
    return Deadline(wrong, OBSERVERS, at_ns - SETTLED_NS, at_ns, SETTLED_NS)


class _Counts(NamedTuple):
    """A controller's counts of the metadata."""

    active: int = 0
    fenced: int = 0
    offline: int = 0


class _Suspect(NamedTuple):
    """A page that matches no count so far; while it was shown, its controller had applied offsets
    from `low` to `high`."""

    low: int
    high: int
    counts: _Counts
    shown: Deadline


@dataclass(slots=True)
class _Counting:
    answering: _Answering = field(default_factory=_Answering)
    applied: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """process -> the offsets that it applied and when, as far back as a page has to be stable."""
    brokers: dict[int, bool] = field(default_factory=dict)
    """broker -> whether it is fenced."""
    about: Newest = field(default_factory=Newest)
    """The newest record about each broker."""
    partitions: Partitions = field(default_factory=Partitions)
    counts: list[tuple[int, _Counts]] = field(default_factory=lambda: [(-1, _Counts())])
    """The first offset of each count, oldest first."""
    agreed: dict[str, _Counts] = field(default_factory=dict)
    """process -> the counts of its page when it last agreed."""
    suspects: dict[tuple[str, _Counts], _Suspect] = field(default_factory=dict)
    """The newest suspect of each process with the same counts."""

    def count(self, offset: int) -> None:
        """Applies the change of the record at this offset."""
        fenced = sum(self.brokers.values())
        offline = sum(one.leader < 0 for one in self.partitions.newest.values())
        now = _Counts(len(self.brokers) - fenced, fenced, offline)
        if now != self.counts[-1][1]:
            self.counts.append((offset, now))

    def within(self, low: int, high: int) -> set[_Counts]:
        """The counts between two offsets, by the records so far."""
        before = next(counts for offset, counts in reversed(self.counts) if offset <= low)
        return {before} | {counts for offset, counts in self.counts if low < offset <= high}


@final
class CountsTheMetadata(Rule[_Counting]):
    """KR-07. Judged by a page that a client has read for two seconds: its counts must be those of
    the log at some offset between the one that the controller had applied at the beginning and its
    newest one."""

    clause = "KR-07"
    state = _Counting

    @on(
        NodeStarted,
        MetadataApplied,
        MetricsObserved,
        BrokerCommitted,
        BrokerDeleted,
        PartitionCommitted,
        TopicCommitted,
    )
    def step(self, state: _Counting, event: Event, body: Struct) -> Findings:
        match body:
            case NodeStarted():
                state.answering.learn(event)
            case MetadataApplied():
                recent = state.applied.setdefault(event.process, [])
                recent.append((event.at_ns, body.offset))
                while len(recent) > 1 and recent[1][0] <= event.at_ns - SETTLED_NS:
                    del recent[0]
            case BrokerCommitted() if state.about.take(body.broker_id, body.offset):
                state.brokers[body.broker_id] = body.fenced
                state.count(body.offset)
            case BrokerDeleted() if state.about.take(body.broker_id, body.offset):
                state.brokers.pop(body.broker_id, None)
                state.count(body.offset)
            case PartitionCommitted() if state.partitions.take(body)[0]:
                state.count(body.offset)
            case TopicCommitted() if state.partitions.forget(body):
                state.count(body.offset)
            case MetricsObserved() if _settled(event, body):
                return self._observed(state, event, body)
        return NOTHING

    @staticmethod
    def _observed(state: _Counting, event: Event, body: MetricsObserved) -> Findings:
        counts = _Counts(body.active_brokers, body.fenced_brokers, body.offline_partitions)
        process = state.answering.process(body)
        recent = state.applied.get(process, [])
        before = [offset for at_ns, offset in recent if at_ns <= event.at_ns - SETTLED_NS]
        if min(counts) < 0 or not before:
            return NOTHING
        low, high = before[-1], recent[-1][1]
        known = state.within(low, high)
        if counts not in known:
            suspect = violated(
                event.ref,
                Evidence.CLIENT,
                "{process} counts {active} active and {fenced} fenced brokers and {offline} "
                "partitions without a leader, as the metadata has them at no offset from {low} to "
                "{high}",
                process=process_scope(process),
                active=counts.active,
                fenced=counts.fenced,
                offline=counts.offline,
                low=low,
                high=high,
            )
            state.suspects[process, counts] = _Suspect(
                low, high, counts, _shown(suspect, event.at_ns)
            )
        elif len(known) == 1 and state.agreed.get(process) != counts:
            state.agreed[process] = counts
            return (Exercised(event.ref, Evidence.CLIENT),)
        return NOTHING

    def end(self, state: _Counting, end: RunEnd) -> Findings:
        # A record that is recorded late may show that the page was right.
        wrong = [
            one.shown
            for one in state.suspects.values()
            if one.counts not in state.within(one.low, one.high)
        ]
        return judged(wrong, end)


@dataclass(slots=True)
class _States:
    answering: _Answering = field(default_factory=_Answering)
    terms: dict[str, tuple[int, int]] = field(default_factory=dict)
    """process -> when it was last elected, and when it resigned (0: it has not)."""
    confirmed: dict[str, int] = field(default_factory=dict)
    """process -> the term in which its page showed that it is the active controller."""
    incarnations: dict[str, str] = field(default_factory=dict)
    """process -> its incarnation, of brokers."""
    unfenced: set[str] = field(default_factory=set)
    running: dict[str, Event] = field(default_factory=dict)
    """process -> the first page that shows RUNNING."""
    suspects: dict[str, Deadline] = field(default_factory=dict)
    """process -> the contradiction between its page and its log, and when."""


@final
class ReportsItsState(Rule[_States]):
    """KR-08. A controller's page that a client has read for two seconds is compared with the
    controller's log of that time. A broker's first page that shows RUNNING is compared with the
    records of its incarnation, even those recorded later."""

    clause = "KR-08"
    absence = (TERMS,)
    state = _States

    @on(NodeStarted, ControllerElected, ControllerResigned, BrokerCommitted, MetricsObserved)
    def step(self, state: _States, event: Event, body: Struct) -> Findings:
        match body:
            case NodeStarted():
                state.answering.learn(event)
                if body.role == "broker":
                    state.incarnations[event.process] = body.incarnation
            case ControllerElected():
                state.terms[event.process] = event.at_ns, 0
            case ControllerResigned():
                began_ns, _ = state.terms.get(event.process, (0, 0))
                state.terms[event.process] = began_ns, event.at_ns
            case BrokerCommitted(fenced=False):
                state.unfenced.add(body.incarnation)
            case MetricsObserved(broker_state=says) if says == RUNNING:
                process = state.answering.process(body)
                if process in state.incarnations:
                    state.running.setdefault(process, event)
            case MetricsObserved() if body.active_controllers >= 0 and _settled(event, body):
                return self._observed(state, event, body)
        return NOTHING

    @staticmethod
    def _observed(state: _States, event: Event, body: MetricsObserved) -> Findings:
        process = state.answering.process(body)
        began_ns, left_ns = state.terms.get(process, (0, 0))
        from_ns = event.at_ns - SETTLED_NS
        ever = began_ns > 0 and (not left_ns or left_ns > from_ns)
        throughout = 0 < began_ns < from_ns and not left_ns
        if not process:
            return NOTHING
        if (body.active_controllers and not ever) or (not body.active_controllers and throughout):
            is_in = "is the active controller" if throughout else "is not the active controller"
            wrong = violated(
                event.ref,
                Evidence.CLIENT,
                "{process} {state}, and its ActiveControllerCount is {count}",
                process=process_scope(process),
                state=is_in,
                count=body.active_controllers,
            )
            state.suspects.setdefault(process, _shown(wrong, event.at_ns))
        elif throughout and state.confirmed.get(process) != began_ns:
            state.confirmed[process] = began_ns
            return (Exercised(event.ref, Evidence.CLIENT),)
        return NOTHING

    def end(self, state: _States, end: RunEnd) -> Findings:
        found = [*judged(state.suspects.values(), end)]
        for process, event in state.running.items():
            if state.incarnations[process] in state.unfenced:
                found.append(Exercised(event.ref, Evidence.CLIENT))
            else:
                never = violated(
                    event.ref,
                    Evidence.CLIENT,
                    "{process} reports that it is RUNNING, and was never unfenced",
                    process=process_scope(process),
                )
                found.append(never if end.complete else Undecided.of(never))
        return found
