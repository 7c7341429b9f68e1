"""Which process over ZooKeeper is the controller, by its own events and by those of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import Cause, Event, Evidence, Exercised, Finding, Key, RunEnd, Violated
from fencepost_clusters.zookeeper.events import SessionExpired, session_name
from fencepost_kafka import (
    BrokerRegistered,
    ControllerBegan,
    MetadataHeartbeatAnswered,
    MetadataHeartbeatReceived,
    SessionChanged,
)
from fencepost_suites.brokers.leases import MS, Late, judge_late
from fencepost_suites.common.keys import NOTHING, whole_run
from fencepost_suites.common.words import span
from fencepost_suites.heartbeats.terms import TERM_KINDS, Term, Terms

KNOWN_WITHIN_NS = 1_000 * MS
"""How long a broker may take to react to a change in ZooKeeper that it watches."""
OFFICE_KINDS: frozenset[type[Struct]] = TERM_KINDS | {BrokerRegistered, SessionExpired}
"""The events that `Offices.take` applies."""


@dataclass(frozen=True, slots=True)
class _Loss:
    """Why a process is no longer the controller, and since when."""

    why: str
    at_ns: int
    ref: Cause


@final
@dataclass(slots=True)
class Ousted:
    """The controllers that have lost their office, by ZooKeeper's own events and by those of their
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
        loss = _Loss(f"{event.process} was elected", event.at_ns, event.ref)
        for process, epoch in self.epochs.items():
            if epoch < body.epoch:
                self.lost.setdefault(process, loss)

    def acted(self, event: Event, did: str) -> Late | None:
        """The suspicion that falls on a process which acts as the controller, if it had lost its
        office for long enough to know."""
        loss = self.lost.get(event.process)
        if loss is None or event.at_ns <= loss.at_ns + KNOWN_WITHIN_NS:
            return None
        message = f"{event.process} {did} {span(event.at_ns - loss.at_ns)} after {loss.why}"
        return Late(
            violated=Violated(event.ref, Evidence.PEER, message, (loss.ref,)),
            process=event.process,
            from_ns=loss.at_ns,
            to_ns=event.at_ns,
            period_ns=KNOWN_WITHIN_NS,
            due_ns=loss.at_ns,
        )


@final
@dataclass(slots=True)
class Offices:
    """The controllers' terms by their own events, and those that others have ended."""

    terms: Terms = field(default_factory=Terms)
    ousted: Ousted = field(default_factory=Ousted)
    suspects: list[Late] = field(default_factory=list)

    def take(self, event: Event) -> Term | None:
        """Applies an event; returns the current term of the process that wrote it, if any."""
        self.ousted.take(event)
        return self.terms.take(event)

    def acted(self, event: Event, did: str) -> None:
        """Suspects a process that acts as the controller, if it had lost its office."""
        late = self.ousted.acted(event, did)
        if late is not None:
            self.suspects.append(late)


@final
@dataclass(frozen=True, slots=True)
class OnlyControllerAnswers:
    """HB-27. A process whose session with ZooKeeper is not connected is not the controller, even if
    its events say so. Nor is it a second after ZooKeeper has ended its session, or after another
    process was elected, by their events. The broker's evidence is the refusal that it received."""

    clause: str = "HB-27"
    kinds: frozenset[type[Struct]] = OFFICE_KINDS | {
        MetadataHeartbeatAnswered,
        MetadataHeartbeatReceived,
    }
    keys = staticmethod(whole_run)

    def start(self, key: Key) -> Offices:
        return Offices()

    def step(self, state: Offices, event: Event) -> tuple[Offices, Sequence[Finding]]:
        body = event.body
        term = state.take(event)
        match body:
            case MetadataHeartbeatReceived(error="NOT_CONTROLLER"):
                return state, (Exercised(event.ref, Evidence.PEER),)
            case MetadataHeartbeatAnswered(error="NOT_CONTROLLER"):
                if term is None:
                    return state, (Exercised(event.ref, Evidence.SELF),)
            case MetadataHeartbeatAnswered() if term is None or not body.active:
                message = (
                    f"{event.process}, which is not the controller, answered {body.client} with "
                    f"{body.error}, {body.state}"
                )
                over = state.terms.over.get(event.process)
                because = () if over is None else (over,)
                return state, (Violated(event.ref, Evidence.SELF, message, because),)
            case MetadataHeartbeatAnswered():
                state.acted(event, f"answered a heartbeat of {body.client}")
        return state, NOTHING

    def end(self, state: Offices, end: RunEnd) -> Sequence[Finding]:
        return judge_late(state.suspects, end)
