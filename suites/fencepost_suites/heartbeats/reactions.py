"""What a broker over ZooKeeper does after an accepted or a refused heartbeat (KIP-343)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    Cause,
    Event,
    Evidence,
    Exercised,
    Finding,
    Key,
    NodeStopped,
    ProcessExited,
    RunEnd,
    Violated,
)
from fencepost_kafka import (
    BrokerStateChanged,
    FetchServed,
    LogAppended,
    MetadataHeartbeatReceived,
    MetadataHeartbeatSent,
    SessionChanged,
)
from fencepost_suites.brokers.leases import MS
from fencepost_suites.common.keys import NOTHING, by_life
from fencepost_suites.heartbeats.fencing import LIFE_KINDS, Contact
from fencepost_suites.heartbeats.states import TARGETS


@dataclass(slots=True)
class _Answer:
    """A broker's process, and an answer to which it has not reacted yet."""

    contact: Contact = field(default_factory=Contact)
    open: Cause | None = None
    disowned: bool = False
    """Whether the process has learnt that another process has its id."""


@final
@dataclass(frozen=True, slots=True)
class AcceptedUnfences:
    """HB-08. After an accepted heartbeat, a fenced broker must be active before it sends the next
    heartbeat. An answer that arrives after nine tenths of the timeout is not judged."""

    clause: str = "HB-08"
    kinds: frozenset[type[Struct]] = LIFE_KINDS
    keys = staticmethod(by_life)

    def start(self, key: Key) -> _Answer:
        return _Answer()

    def step(self, state: _Answer, event: Event) -> tuple[_Answer, Sequence[Finding]]:
        body = event.body
        match body:
            case BrokerStateChanged():
                answered, state.open = state.open, None
                state.disowned = state.disowned or body.reason == "taken_over"
                state.contact.take(event)
                if body.old == "FENCED" and body.new == "ACTIVE" and answered is not None:
                    return state, (Exercised(event.ref, Evidence.SELF),)
            case MetadataHeartbeatReceived(error="NONE"):
                fenced = state.contact.state == "FENCED" and not state.disowned
                in_time = event.at_ns < state.contact.sent_ns + body.timeout_ms * MS * 9 // 10
                if fenced and in_time and state.contact.counts(body):
                    state.open = event.ref
                state.contact.take(event)
            case MetadataHeartbeatSent() if state.open is not None:
                message = f"{event.process} stayed fenced, though a heartbeat of it was accepted"
                violated = Violated(event.ref, Evidence.SELF, message, (state.open,))
                state.open = None
                state.contact.take(event)
                return state, (violated,)
            case SessionChanged():
                state.open = None
                state.contact.take(event)
            case ProcessExited() | NodeStopped():
                state.open = None
            case _:
                state.contact.take(event)
        return state, NOTHING

    def end(self, state: _Answer, end: RunEnd) -> Sequence[Finding]:
        return NOTHING


@final
@dataclass(frozen=True, slots=True)
class RefusedFencesItself:
    """HB-29. After a refused heartbeat, an active broker must fence itself before it sends another
    heartbeat or serves a client."""

    clause: str = "HB-29"
    kinds: frozenset[type[Struct]] = LIFE_KINDS | {LogAppended, FetchServed}
    keys = staticmethod(by_life)

    def start(self, key: Key) -> _Answer:
        return _Answer()

    def step(self, state: _Answer, event: Event) -> tuple[_Answer, Sequence[Finding]]:
        body = event.body
        match body:
            case MetadataHeartbeatReceived():
                refused = body.error == "INVALID_INCARNATION_ID" or (
                    body.error == "NONE" and body.state not in TARGETS
                )
                own = body.incarnation_id == state.contact.incarnation
                if refused and own and state.contact.state == "ACTIVE":
                    state.open = event.ref
                state.contact.take(event)
            case BrokerStateChanged():
                refused_by, state.open = state.open, None
                state.contact.take(event)
                if refused_by is not None and body.new != "ACTIVE":
                    return state, (Exercised(event.ref, Evidence.SELF),)
            case ProcessExited() | NodeStopped() | SessionChanged():
                state.open = None
            case MetadataHeartbeatSent() | LogAppended() | FetchServed():
                refused_by, state.open = state.open, None
                state.contact.take(event)
                if refused_by is not None:
                    message = f"{event.process} went on as active after a heartbeat was refused"
                    violated = Violated(event.ref, Evidence.SELF, message, (refused_by,))
                    return state, (violated,)
            case _:
                state.contact.take(event)
        return state, NOTHING

    def end(self, state: _Answer, end: RunEnd) -> Sequence[Finding]:
        return NOTHING
