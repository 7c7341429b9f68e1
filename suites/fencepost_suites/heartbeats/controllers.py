"""Which process over ZooKeeper is the controller, by its own events and by those of others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    MS,
    NOTHING,
    Cause,
    Deadline,
    Event,
    Evidence,
    Exercised,
    Facts,
    Findings,
    Rule,
    RunEnd,
    Violated,
    judged,
    on,
    process_scope,
    violated,
)
from fencepost_clusters.zookeeper.events import SessionExpired, session_name
from fencepost_kafka import (
    BrokerRegistered,
    ControllerBegan,
    IsrChangeJudged,
    MetadataHeartbeatAnswered,
    MetadataHeartbeatReceived,
    SessionChanged,
    broker_of,
)
from fencepost_suites.heartbeats.terms import TERM_KINDS, Term, Terms

KNOWN_WITHIN_NS = 1_000 * MS
"""How long a broker may take to react to a change in ZooKeeper that it watches."""
CONTROLLER_KINDS: frozenset[type[Struct]] = TERM_KINDS | {BrokerRegistered, SessionExpired}
"""The events that `Controllers.take` applies."""


class _Loss(Struct, frozen=True):
    """Why a process is no longer the controller, and since when."""

    why: str
    at_ns: int
    ref: Cause
    facts: Facts = {}


@final
@dataclass(slots=True)
class Deposed:
    """The controllers whose term has ended, by ZooKeeper's own events and by those of their
    successors."""

    session: dict[str, str] = field(default_factory=dict)
    """process -> its newest session."""
    epochs: dict[str, int] = field(default_factory=dict)
    """process -> the epoch of its newest term."""
    lost: dict[str, _Loss] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        """Applies an event."""
        body = event.body
        match body:
            case BrokerRegistered() | SessionChanged(state="connected"):
                self.session[event.process] = session_name(body.session)
            case SessionExpired():
                for process, session in self.session.items():
                    if session == body.session and process in self.epochs:
                        why = "ZooKeeper had ended its session"
                        self.lost.setdefault(process, _Loss(why, event.at_ns, event.ref))
            case ControllerBegan():
                self._began(event, body)

    def _began(self, event: Event, body: ControllerBegan) -> None:
        self.lost.pop(event.process, None)
        self.epochs[event.process] = body.epoch
        elected: Facts = {"elected": process_scope(event.process), "epoch": body.epoch}
        loss = _Loss(f"{event.process} was elected", event.at_ns, event.ref, elected)
        for process, epoch in self.epochs.items():
            # A controller that begins ends all earlier terms, whatever their processes know; that
            # of the same epoch, too, since the last one that began is the only one.
            if process != event.process and epoch <= body.epoch:
                self.lost.setdefault(process, loss)

    def acted(self, event: Event, did: str, facts: Facts) -> Deadline | None:
        """The suspicion that falls on a process which acts as the controller, if its term had
        ended long enough ago for it to know. `facts` are about what it `did`."""
        loss = self.lost.get(event.process)
        if loss is None or event.at_ns <= loss.at_ns + KNOWN_WITHIN_NS:
            return None
        return Deadline(
            violated=violated(
                event.ref,
                Evidence.PEER,
                "{process} {did} {after_ns} after {lost}",
                (loss.ref,),
                process=process_scope(event.process),
                did=did,
                after_ns=event.at_ns - loss.at_ns,
                lost=loss.why,
                **facts,
                **loss.facts,
            ),
            actors=(event.process,),
            from_ns=loss.at_ns,
            to_ns=event.at_ns,
            bound_ns=KNOWN_WITHIN_NS,
            due_ns=loss.at_ns,
            omission=False,
        )


@final
@dataclass(slots=True)
class Controllers:
    """The controllers' terms by their own events, and those that others have ended."""

    terms: Terms = field(default_factory=Terms)
    deposed: Deposed = field(default_factory=Deposed)
    suspects: list[Deadline] = field(default_factory=list)

    def take(self, event: Event) -> Term | None:
        """Applies an event; returns the current term of the process that wrote it, if any."""
        self.deposed.take(event)
        return self.terms.take(event)

    def in_office(self, broker: int) -> Term | None:
        """The current term of a broker's process, if it has declared a broker in it."""
        term = self.terms.now.get(self.terms.elected.get(broker, ""))
        return term if term is not None and term.brokers else None

    def judge(
        self, event: Event, term: Term | None, *, active: bool, did: str, facts: Facts
    ) -> Findings:
        """Judges a process that decided as the controller. It must have a current `term`, and say
        that it is active. `facts` are about what it `did`."""
        # Its own events agree. Those of others may still say that its term is over.
        if term is not None and active:
            self.acted(event, did, facts)
            return NOTHING
        over = self.terms.over.get(event.process)
        broken = violated(
            event.ref,
            Evidence.SELF,
            "{process}, which is not the controller, {did}",
            () if over is None else (over,),
            process=process_scope(event.process),
            did=did,
            **facts,
        )
        return (broken,)

    def acted(self, event: Event, did: str, facts: Facts) -> None:
        """Suspects a process that acts as the controller, if its term had ended."""
        late = self.deposed.acted(event, did, facts)
        if late is not None:
            self.suspects.append(late)


@final
class OnlyControllerAnswers(Rule[Controllers]):
    """HB-27. A process whose session with ZooKeeper is not connected is not the controller, even if
    its events say so. Nor is it a second after ZooKeeper has ended its session, or after another
    process was elected, by their events. The broker's evidence is the refusal that it received."""

    clause = "HB-27"
    state = Controllers

    @on(*CONTROLLER_KINDS, MetadataHeartbeatAnswered, MetadataHeartbeatReceived)
    def step(self, state: Controllers, event: Event, body: Struct) -> Findings:
        term = state.take(event)
        match body:
            case MetadataHeartbeatReceived(error="NOT_CONTROLLER"):
                # The controller in office keeps nothing of this promise by a refusal.
                if state.in_office(body.controller) is None:
                    return (Exercised(event.ref, Evidence.PEER),)
            case MetadataHeartbeatAnswered(error="NOT_CONTROLLER"):
                if term is None:
                    return (Exercised(event.ref, Evidence.SELF),)
                # Before it has declared anybody, a controller still reads what is stored.
                if term.brokers:
                    return (self._denied(event, body, term),)
            case MetadataHeartbeatAnswered():
                did = f"answered {body.client} with {body.error}, {body.state}"
                facts = answer_facts(body)
                return state.judge(event, term, active=body.active, did=did, facts=facts)
        return NOTHING

    @staticmethod
    def _denied(event: Event, body: MetadataHeartbeatAnswered, term: Term) -> Violated:
        newest = max(term.brokers.values(), key=lambda one: one.since_ns)
        return violated(
            event.ref,
            Evidence.SELF,
            "{process} answered {other} with {error}, though it declares states of brokers as the "
            "controller of epoch {epoch}",
            (newest.ref,),
            process=process_scope(event.process),
            epoch=term.epoch,
            **answer_facts(body),
        )

    def end(self, state: Controllers, end: RunEnd) -> Findings:
        return judged(state.suspects, end)


def answer_facts(body: MetadataHeartbeatAnswered | IsrChangeJudged) -> Facts:
    """The facts of an answer that a process gave as the controller."""
    return {
        "other": process_scope(body.client),
        "broker": broker_of(body.broker_id),
        "error": body.error,
    }
