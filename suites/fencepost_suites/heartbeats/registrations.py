"""Registrations of brokers in ZooKeeper, and their incarnation ids (KIP-343)."""

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
    NodeStarted,
    RunEnd,
    Violated,
)
from fencepost_kafka import (
    BrokerDeclared,
    BrokerRegistered,
    ControllerBegan,
    ControllerEnded,
    MetadataHeartbeatAnswered,
    MetadataHeartbeatReceived,
)
from fencepost_suites.brokers.leases import MS, Late, judge_late
from fencepost_suites.common.keys import NOTHING, whole_run

INVALID_INCARNATION = "INVALID_INCARNATION_ID"


@dataclass(slots=True)
class _Registrations:
    """The registrations of brokers' processes."""

    newest: dict[int, int] = field(default_factory=dict)
    """broker -> the highest czxid of its registrations."""
    at_start: dict[str, dict[int, int]] = field(default_factory=dict)
    """process -> `newest` at its start."""
    made: dict[str, dict[int, Cause]] = field(default_factory=dict)
    """process -> the czxids of its registrations, and their events."""
    maker: dict[tuple[int, int], str] = field(default_factory=dict)
    """(broker, czxid) -> the process that registered with it."""


@final
@dataclass(frozen=True, slots=True)
class IncarnationIsRegistration:
    """HB-01. The controller's event is the evidence of the incarnation id in a heartbeat. Two
    processes of a broker that run at once may record their registrations in either order. So a
    czxid must be higher only than all that were recorded before its process started."""

    clause: str = "HB-01"
    kinds: frozenset[type[Struct]] = frozenset(
        {NodeStarted, BrokerRegistered, MetadataHeartbeatAnswered}
    )
    keys = staticmethod(whole_run)

    def start(self, key: Key) -> _Registrations:
        return _Registrations()

    def step(self, state: _Registrations, event: Event) -> tuple[_Registrations, Sequence[Finding]]:
        body = event.body
        match body:
            case NodeStarted():
                state.at_start[event.process] = dict(state.newest)
            case BrokerRegistered():
                return state, self._registered(state, event, body)
            case MetadataHeartbeatAnswered():
                return state, self._answered(state, event, body)
        return state, NOTHING

    @staticmethod
    def _registered(
        state: _Registrations, event: Event, body: BrokerRegistered
    ) -> Sequence[Finding]:
        broker, czxid = body.broker_id, body.broker_epoch
        own = state.made.setdefault(event.process, {})
        before = state.at_start.get(event.process, {}).get(broker, -1)
        maker = state.maker.setdefault((broker, czxid), event.process)
        wrong = ""
        if maker != event.process:
            wrong = f"which is the czxid of {maker}"
        elif czxid <= max(before, *own, -1):
            wrong = f"though an earlier registration has {max(before, *own, -1)}"
        own[czxid] = event.ref
        state.newest[broker] = max(state.newest.get(broker, -1), czxid)
        if wrong:
            message = f"{event.process} registered as broker {broker} with czxid {czxid}, {wrong}"
            return (Violated(event.ref, Evidence.SELF, message),)
        return NOTHING

    @staticmethod
    def _answered(
        state: _Registrations, event: Event, body: MetadataHeartbeatAnswered
    ) -> Sequence[Finding]:
        own = state.made.get(body.client)
        if own is None:
            return NOTHING
        if body.incarnation_id in own:
            return (Exercised(event.ref, Evidence.PEER),)
        message = (
            f"{event.process} got a heartbeat of {body.client} with incarnation id "
            f"{body.incarnation_id}, though its registration has czxid {max(own)}"
        )
        return (Violated(event.ref, Evidence.PEER, message, (own[max(own)],)),)

    def end(self, state: _Registrations, end: RunEnd) -> Sequence[Finding]:
        return NOTHING


@dataclass(slots=True)
class _Known:
    """The incarnations of brokers that each controller's process has declared in its term."""

    declared: dict[tuple[str, int], tuple[int, Cause]] = field(default_factory=dict)

    def declare(self, event: Event, body: BrokerDeclared) -> None:
        """Applies a declaration."""
        self.declared[event.process, body.broker_id] = (body.incarnation_id, event.ref)

    def begin(self, process: str) -> None:
        """Drops what the process declared in its earlier terms."""
        for key in [key for key in self.declared if key[0] == process]:
            del self.declared[key]


@final
@dataclass(frozen=True, slots=True)
class OldIncarnationRefused:
    """HB-12. The controller knows the incarnation that it has declared; its answer does not count.
    The broker's evidence is the refusal that it received."""

    clause: str = "HB-12"
    kinds: frozenset[type[Struct]] = frozenset(
        {ControllerBegan, BrokerDeclared, MetadataHeartbeatAnswered, MetadataHeartbeatReceived}
    )
    keys = staticmethod(whole_run)

    def start(self, key: Key) -> _Known:
        return _Known()

    def step(self, state: _Known, event: Event) -> tuple[_Known, Sequence[Finding]]:
        body = event.body
        match body:
            case ControllerBegan():
                state.begin(event.process)
            case BrokerDeclared():
                state.declare(event, body)
            case MetadataHeartbeatReceived(error="INVALID_INCARNATION_ID"):
                return state, (Exercised(event.ref, Evidence.PEER),)
            case MetadataHeartbeatAnswered(active=True):
                return state, self._answered(state, event, body)
        return state, NOTHING

    @staticmethod
    def _answered(
        state: _Known, event: Event, body: MetadataHeartbeatAnswered
    ) -> Sequence[Finding]:
        known = state.declared.get((event.process, body.broker_id))
        if known is None or body.incarnation_id >= known[0]:
            return NOTHING
        if body.error == INVALID_INCARNATION:
            return (Exercised(event.ref, Evidence.SELF),)
        if body.error != "NONE":
            return NOTHING
        message = (
            f"{event.process} accepted a heartbeat of {body.client} with incarnation id "
            f"{body.incarnation_id}, after it had declared {known[0]} for broker {body.broker_id}"
        )
        return (Violated(event.ref, Evidence.SELF, message, (known[1],)),)

    def end(self, state: _Known, end: RunEnd) -> Sequence[Finding]:
        return NOTHING


@dataclass(frozen=True, slots=True)
class _Adopted:
    """An incarnation id that a controller's process took from a heartbeat."""

    incarnation: int
    at_ns: int
    ref: Cause


@dataclass(slots=True)
class _Adoptions:
    """The adopted incarnations that are not handled as a bounce yet."""

    timeout_ns: dict[str, int] = field(default_factory=dict)
    """controller's process -> its heartbeat timeout, during its term."""
    known: _Known = field(default_factory=_Known)
    open: dict[tuple[str, int], _Adopted] = field(default_factory=dict)
    suspects: list[Late] = field(default_factory=list)


@final
@dataclass(frozen=True, slots=True)
class NewIncarnationIsBounce:
    """HB-13. After it has adopted a new incarnation id, the controller must declare the bounce
    within its heartbeat timeout and 500 ms, unless its term ends before."""

    clause: str = "HB-13"
    kinds: frozenset[type[Struct]] = frozenset(
        {ControllerBegan, ControllerEnded, BrokerDeclared, MetadataHeartbeatAnswered}
    )
    keys = staticmethod(whole_run)

    def start(self, key: Key) -> _Adoptions:
        return _Adoptions()

    def step(self, state: _Adoptions, event: Event) -> tuple[_Adoptions, Sequence[Finding]]:
        body = event.body
        match body:
            case ControllerBegan():
                state.known.begin(event.process)
                state.timeout_ns[event.process] = body.heartbeat_timeout_ms * MS
            case ControllerEnded():
                self._leave(state, event.process)
            case BrokerDeclared():
                return state, self._declared(state, event, body)
            case MetadataHeartbeatAnswered(active=True):
                return state, self._answered(state, event, body)
        return state, NOTHING

    @staticmethod
    def _leave(state: _Adoptions, process: str) -> None:
        state.timeout_ns.pop(process, None)
        for key in [key for key in state.open if key[0] == process]:
            del state.open[key]

    def _declared(self, state: _Adoptions, event: Event, body: BrokerDeclared) -> Sequence[Finding]:
        key = (event.process, body.broker_id)
        adopted = state.open.get(key)
        if adopted is None:
            state.known.declare(event, body)
            return NOTHING
        if body.reason not in ("bounced", "gone", "registered"):
            return NOTHING
        self._overdue(state, key, event.at_ns)
        state.open.pop(key, None)
        state.known.declare(event, body)
        return (Exercised(event.ref, Evidence.SELF),)

    @staticmethod
    def _answered(
        state: _Adoptions, event: Event, body: MetadataHeartbeatAnswered
    ) -> Sequence[Finding]:
        key = (event.process, body.broker_id)
        known = state.known.declared.get(key)
        if known is None or known[0] < 0 or body.incarnation_id < known[0]:
            return NOTHING
        if body.incarnation_id == known[0]:
            # The answer was sent after the bounce was handled.
            adopted = body.error == "NONE" and 0 <= body.known < body.incarnation_id
            return (Exercised(event.ref, Evidence.SELF),) if adopted else NOTHING
        if body.error == INVALID_INCARNATION:
            message = (
                f"{event.process} refused incarnation id {body.incarnation_id} of {body.client} "
                f"as old, though it knows only {known[0]}"
            )
            return (Violated(event.ref, Evidence.SELF, message, (known[1],)),)
        if body.error == "NONE" and event.process in state.timeout_ns:
            state.open.setdefault(key, _Adopted(body.incarnation_id, event.at_ns, event.ref))
        return NOTHING

    @staticmethod
    def _overdue(state: _Adoptions, key: tuple[str, int], at_ns: int) -> None:
        adopted = state.open[key]
        period_ns = state.timeout_ns[key[0]]
        due_ns = adopted.at_ns + period_ns + 500 * MS
        if at_ns <= due_ns:
            return
        message = (
            f"{key[0]} adopted incarnation id {adopted.incarnation} of broker {key[1]} and did not "
            f"treat it as a bounce"
        )
        state.suspects.append(
            Late(
                violated=Violated(adopted.ref, Evidence.SELF, message),
                process=key[0],
                from_ns=adopted.at_ns,
                to_ns=at_ns,
                period_ns=period_ns,
                due_ns=due_ns,
            )
        )

    def end(self, state: _Adoptions, end: RunEnd) -> Sequence[Finding]:
        for key in state.open:
            self._overdue(state, key, end.ended_at_ns)
        return judge_late(state.suspects, end)
