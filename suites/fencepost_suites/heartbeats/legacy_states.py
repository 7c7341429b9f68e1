"""The states of brokers that send no heartbeats yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    Event,
    Evidence,
    Exercised,
    Findings,
    Rule,
    RunEnd,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import BrokerDeclared, BrokerRegistered, broker_of
from fencepost_suites.heartbeats.accounts import HEARTBEAT_INFO, Registered
from fencepost_suites.heartbeats.departures import (
    DEPARTURE_KINDS,
    Departures,
    Left,
    wrongly_left,
)
from fencepost_suites.heartbeats.terms import LIVE, TERM_KINDS, Term, Terms


@dataclass(slots=True)
class _Legacy:
    """The controllers' terms, and the registrations."""

    terms: Terms = field(default_factory=Terms)
    registered: Registered = field(default_factory=Registered)
    departures: Departures = field(default_factory=Departures)
    left: list[Left] = field(default_factory=list)
    """The live legacy brokers of which a controller said that their registrations had ended."""

    def outlived(self, term: Term, at_ns: int) -> Findings:
        """A finding for each legacy registration that was live for longer than the timeout."""
        return tuple(
            Exercised(known.ref, Evidence.SELF)
            for broker, known in term.brokers.items()
            if self.registered.version(broker, known.incarnation, known.version) < HEARTBEAT_INFO
            and known.state in LIVE
            and at_ns >= known.since_ns + term.timeout_ns
        )


@final
class LegacyStaysActive(Rule[_Legacy]):
    """HB-23. The version of a registration is that which the broker has recorded; only without its
    event the controller's word counts. Exercised if a legacy registration stays live past the
    timeout in one term. It becomes absent only by its end, as others than the controller tell
    it."""

    clause = "HB-23"
    state = _Legacy

    @on(*TERM_KINDS, *DEPARTURE_KINDS)
    def step(self, state: _Legacy, event: Event, body: Struct) -> Findings:
        ending = state.terms.ending(event)
        known = None
        state.departures.take(event)
        if isinstance(body, BrokerRegistered):
            state.registered.take(event, body)
        if isinstance(body, BrokerDeclared) and event.process in state.terms.now:
            known = state.terms.now[event.process].brokers.get(body.broker_id)
        term = state.terms.take(event)
        if ending is not None:
            return state.outlived(ending.term, event.at_ns)
        if not isinstance(body, BrokerDeclared):
            return NOTHING
        of = (body.broker_id, body.incarnation_id)
        version = state.registered.version(*of, body.version)
        if version >= HEARTBEAT_INFO:
            return NOTHING
        if body.new in ("Initial", "Inactive"):
            one = state.registered.made.get(of)
            broken = violated(
                event.ref,
                Evidence.SELF if one is None else Evidence.PEER,
                "{process} declared broker {broker} {state} ({reason}), though its registration is "
                "of version {version}",
                () if one is None else (one.ref,),
                process=process_scope(event.process),
                broker=broker_of(body.broker_id),
                state=body.new,
                reason=body.reason,
                version=version,
                epoch=body.incarnation_id,
            )
            return (broken,)
        if body.new == "Absent" and known is not None and known.state in LIVE:
            state.left.append(Left.of(event, body, known, state.departures))
        if term is None or known is None or event.at_ns < known.since_ns + term.timeout_ns:
            return NOTHING
        return (Exercised(event.ref, Evidence.SELF),)

    def end(self, state: _Legacy, end: RunEnd) -> Findings:
        outlived = [
            found
            for term in state.terms.now.values()
            for found in state.outlived(term, end.ended_at_ns)
        ]
        return (*outlived, *wrongly_left(state.left, state.departures, end))
