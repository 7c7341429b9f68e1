"""KIP-343's two messages: malformed heartbeats, and the fields of both messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    Cause,
    Event,
    Evidence,
    Exercised,
    Findings,
    PromiseObserved,
    Rule,
    Scope,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    BrokerDeclared,
    BrokerRegistered,
    IsrChangeAsked,
    IsrChangeJudged,
    MetadataHeartbeatAnswered,
    MetadataHeartbeatReceived,
    MetadataHeartbeatSent,
    broker_of,
)
from fencepost_suites.common.surfaces import observed
from fencepost_suites.heartbeats.targets import TARGETS
from fencepost_suites.heartbeats.terms import LIVE, TERM_KINDS, Terms

STATES = {"Absent": 0, "Initial": 0, "Inactive": 1, "Active": 2, "Stopping": 3}
"""A broker's state at the controller -> its number in answers."""
INVALID = "INVALID_REQUEST"


@dataclass(slots=True)
class _Endpoints:
    """The controllers' terms, and the registrations without an address for other brokers."""

    terms: Terms = field(default_factory=Terms)
    without: dict[tuple[int, int], Cause] = field(default_factory=dict)
    """(broker, broker epoch) -> the registration without an address for other brokers."""


@final
class MalformedRefused(Rule[_Endpoints]):
    """HB-15. The broker's own events say that its registration has no address, and which answer it
    got. A controller that declares a broker live for a malformed heartbeat has accepted it. A
    heartbeat that arrives before the controller has read the registration is not judged."""

    clause = "HB-15"
    state = _Endpoints

    @on(
        *TERM_KINDS,
        BrokerRegistered,
        MetadataHeartbeatAnswered,
        MetadataHeartbeatReceived,
        PromiseObserved,
    )
    def step(self, state: _Endpoints, event: Event, body: Struct) -> Findings:
        term = state.terms.take(event)
        match body:
            case BrokerRegistered(reachable=False):
                state.without[body.broker_id, body.broker_epoch] = event.ref
            case BrokerDeclared(reason="heartbeat"):
                return self._declared(state, event, body)
            case MetadataHeartbeatReceived():
                return self._received(state, event, body)
            case MetadataHeartbeatAnswered() if term is not None:
                known = term.brokers.get(body.broker_id)
                met = known is not None and known.incarnation == body.incarnation_id
                return self._answered(state, event, body, met)
            case PromiseObserved():
                return observed(event, self.clause)
        return NOTHING

    @staticmethod
    def _declared(state: _Endpoints, event: Event, body: BrokerDeclared) -> Findings:
        registration = state.without.get((body.broker_id, body.incarnation_id))
        if registration is not None:
            wrong = "whose registration names no address"
        elif body.broker_id < 0 or body.new not in LIVE:
            wrong = "which no valid heartbeat can ask for"
        else:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} declared broker {broker} {state} for its heartbeat, {wrong}",
            () if registration is None else (registration,),
            process=process_scope(event.process),
            broker=broker_of(body.broker_id),
            state=body.new,
            wrong=wrong,
        )
        return (broken,)

    @staticmethod
    def _received(state: _Endpoints, event: Event, body: MetadataHeartbeatReceived) -> Findings:
        registration = state.without.get((body.broker_id, body.incarnation_id))
        if registration is None:
            return NOTHING
        if body.error == INVALID:
            return (Exercised(event.ref, Evidence.PEER),)
        if body.error != "NONE" or body.state not in TARGETS:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.PEER,
            "controller {controller} answered {process} with NONE and state {state}, though its "
            "registration names no address",
            (registration,),
            controller=broker_of(body.controller),
            process=process_scope(event.process),
            state=body.state,
            broker=broker_of(body.broker_id),
        )
        return (broken,)

    @staticmethod
    def _answered(
        state: _Endpoints, event: Event, body: MetadataHeartbeatAnswered, met: bool
    ) -> Findings:
        registration = state.without.get((body.broker_id, body.incarnation_id))
        if body.broker_id < 0 or body.target_state not in TARGETS:
            because: tuple[Cause, ...] = ()
        elif registration is not None and met:
            because = (registration,)
        else:
            return NOTHING
        if body.error == INVALID:
            return (Exercised(event.ref, Evidence.SELF),)
        # What concerns the office of the one, or the id of the other, may be found first.
        if body.error in ("NOT_CONTROLLER", "INVALID_INCARNATION_ID"):
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.SELF,
            "{process} answered {error} to a heartbeat of {other} as broker {broker} that targets "
            "state {state}, which is malformed",
            because,
            process=process_scope(event.process),
            error=body.error,
            other=process_scope(body.client),
            broker=broker_of(body.broker_id),
            state=body.target_state,
        )
        return (broken,)


@dataclass(slots=True)
class _Written:
    """The messages that brokers and controllers have sent, by their own events."""

    sent: dict[str, tuple[MetadataHeartbeatSent, Cause]] = field(default_factory=dict)
    """process -> its newest heartbeat."""
    answered: dict[tuple[str, int], set[tuple[str, int]]] = field(default_factory=dict)
    """(process, request) -> the errors and states in its answers."""
    asked: dict[str, set[tuple[str, int, int, frozenset[int]]]] = field(default_factory=dict)
    """process -> (partition, leader epoch, broker epoch, ISR) in its IsrChanges."""


@final
class FieldsAsWritten(Rule[_Written]):
    """HB-26. Tests encode and decode both messages by the document alone. In every run, each end
    must read the fields that the other end says it has written."""

    clause = "HB-26"
    state = _Written

    @on(
        MetadataHeartbeatSent,
        MetadataHeartbeatAnswered,
        MetadataHeartbeatReceived,
        IsrChangeAsked,
        IsrChangeJudged,
        PromiseObserved,
    )
    def step(self, state: _Written, event: Event, body: Struct) -> Findings:
        match body:
            case MetadataHeartbeatSent():
                state.sent[event.process] = (body, event.ref)
            case MetadataHeartbeatAnswered():
                return self._read(state, event, body)
            case MetadataHeartbeatReceived():
                return self._received(state, event, body)
            case IsrChangeAsked():
                place = f"{body.topic}-{body.partition}"
                wanted = (place, body.leader_epoch, body.broker_epoch, frozenset(body.new_isr))
                state.asked.setdefault(event.process, set()).add(wanted)
            case IsrChangeJudged(error="NONE"):
                return self._judged(state, event, body)
            case PromiseObserved():
                return observed(event, self.clause)
        return NOTHING

    @staticmethod
    def _read(state: _Written, event: Event, body: MetadataHeartbeatAnswered) -> Findings:
        """Judges the fields of a heartbeat that the controller has read."""
        cause = event.cause
        if cause is None or not cause.request:
            return NOTHING
        # A set of answers: a request that outlives its connection may be answered twice.
        answer = (body.error, STATES[body.state])
        state.answered.setdefault((cause.process, cause.seq), set()).add(answer)
        sent, at = state.sent.get(cause.process, (None, event.ref))
        if sent is None or sent.correlation != cause.seq:
            return NOTHING
        read = (body.broker_id, body.incarnation_id, body.target_state)
        written = (sent.broker_id, sent.incarnation_id, sent.target_state)
        if read == written:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} read broker, incarnation id and target {read} in the heartbeat that {other} "
            "had sent with {expected}",
            (at,),
            process=process_scope(event.process),
            read=str(read),
            other=process_scope(cause.process),
            expected=str(written),
            broker=broker_of(sent.broker_id),
        )
        return (broken,)

    @staticmethod
    def _received(state: _Written, event: Event, body: MetadataHeartbeatReceived) -> Findings:
        """Judges the fields of an answer that a broker has read, to its newest heartbeat."""
        sent, at = state.sent.get(event.process, (None, event.ref))
        if sent is None:
            return NOTHING
        answers = state.answered.get((event.process, sent.correlation))
        if answers is None or (body.error, body.state) in answers:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} read error {error} and state {state} in an answer that the controller had "
            "written as {expected}",
            (at,),
            process=process_scope(event.process),
            error=body.error,
            state=body.state,
            expected=str(sorted(answers)),
            broker=broker_of(body.broker_id),
            controller=broker_of(body.controller),
        )
        return (broken,)

    @staticmethod
    def _judged(state: _Written, event: Event, body: IsrChangeJudged) -> Findings:
        """Judges the fields of an IsrChange that the controller has read."""
        asked = state.asked.get(body.client)
        if asked is None:
            return NOTHING
        for place, isr, epoch in zip(body.partitions, body.isrs, body.leader_epochs, strict=False):
            members = frozenset(int(one) for one in isr.split(",") if one)
            if (place, epoch, body.incarnation_id, members) not in asked:
                broken = violated(
                    event.ref,
                    Evidence.PEER,
                    "{process} read the ISR [{read}] of {partition} in leader epoch {epoch}, which "
                    "{other} has not asked for",
                    process=process_scope(event.process),
                    read=isr,
                    partition=Scope("partition", place),
                    epoch=epoch,
                    other=process_scope(body.client),
                    isr=tuple(map(broker_of, sorted(members))),
                    leader=broker_of(body.broker_id),
                )
                return (broken,)
        return NOTHING
