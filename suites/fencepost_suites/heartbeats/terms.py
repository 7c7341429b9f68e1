"""The terms of controllers over ZooKeeper, and the broker states that each has declared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import MS, Cause, Event, NodeStopped, ProcessExited
from fencepost_kafka import BrokerDeclared, ControllerBegan, ControllerEnded, SessionChanged

TERM_KINDS: frozenset[type[Struct]] = frozenset(
    {ControllerBegan, ControllerEnded, SessionChanged, ProcessExited, NodeStopped, BrokerDeclared}
)
"""The events that `Terms.take` applies."""
LIVE = ("Active", "Stopping")
"""The states in which a broker is in the cluster."""


@final
@dataclass(slots=True)
class Declared:
    """A broker's declared state. `since_ns` is when it was declared."""

    state: str
    incarnation: int
    version: int
    since_ns: int
    ref: Cause
    heard_ns: int
    """When the controller last accepted a heartbeat, or first read the registration."""


@final
@dataclass(slots=True)
class Term:
    """A controller's current term."""

    epoch: int
    first: bool
    began_ns: int
    timeout_ns: int
    session_ns: int = 0
    """How long its session with ZooKeeper outlives its connection."""
    brokers: dict[int, Declared] = field(default_factory=dict)


@final
class Ending(Struct, frozen=True):
    """The end of a process's term. `reached_ns` is until when the process surely reached ZooKeeper:
    a lost session, or a death, may have been preceded by the session timeout without it."""

    process: str
    term: Term
    reached_ns: int


@final
@dataclass(slots=True)
class Terms:
    """The current terms, by the controllers' processes. A term ends when the process's session with
    ZooKeeper is no longer connected, even if its events say otherwise."""

    now: dict[str, Term] = field(default_factory=dict)
    over: dict[str, Cause] = field(default_factory=dict)
    """process -> the event that ended its newest term."""
    elected: dict[int, str] = field(default_factory=dict)
    """broker -> its process that was elected last."""

    def ending(self, event: Event) -> Ending | None:
        """The term that an event ends; asked before `take`. A new term of a process ends its former
        one."""
        body = event.body
        process = body.ended if isinstance(body, ProcessExited) else event.process
        term = self.now.get(process)
        if term is None:
            return None
        match body:
            case SessionChanged(state="connected"):
                return None
            case ControllerEnded(reason="session") | SessionChanged() | ProcessExited():
                return Ending(process, term, event.at_ns - term.session_ns)
            case ControllerEnded() | NodeStopped() | ControllerBegan():
                return Ending(process, term, event.at_ns)
        return None

    def take(self, event: Event) -> Term | None:
        """Applies an event; returns the current term of the process that wrote it, if any."""
        body = event.body
        match body:
            case ControllerBegan():
                self.over.pop(event.process, None)
                self.elected[body.broker_id] = event.process
                self.now[event.process] = Term(
                    epoch=body.epoch,
                    first=body.first,
                    began_ns=event.at_ns,
                    timeout_ns=body.heartbeat_timeout_ms * MS,
                    session_ns=body.session_timeout_ms * MS,
                )
            case ControllerEnded():
                self._end(event.process, event.ref)
            case SessionChanged() if body.state != "connected":
                self._end(event.process, event.ref)
            case ProcessExited():
                self._end(body.ended, event.ref)
            case NodeStopped():
                self._end(event.process, event.ref)
            case BrokerDeclared():
                self._declared(event, body)
        return self.now.get(event.process)

    def _end(self, process: str, ref: Cause) -> None:
        if self.now.pop(process, None) is not None:
            self.over[process] = ref

    def _declared(self, event: Event, body: BrokerDeclared) -> None:
        term = self.now.get(event.process)
        if term is None:
            return
        if body.new == "Absent":
            term.brokers.pop(body.broker_id, None)
            return
        known = term.brokers.get(body.broker_id)
        # A declaration for silence says nothing of a heartbeat: the time since the last one goes
        # on.
        silent = body.reason not in ("heartbeat", "registered", "bounced", "controller_elected")
        term.brokers[body.broker_id] = Declared(
            state=body.new,
            incarnation=body.incarnation_id,
            version=body.version,
            since_ns=event.at_ns,
            ref=event.ref,
            heard_ns=known.heard_ns if known is not None and silent else event.at_ns,
        )
