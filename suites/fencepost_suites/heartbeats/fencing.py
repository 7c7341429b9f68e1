"""How a broker over ZooKeeper fences itself, and what it does while it is fenced or stopping
(KIP-343)."""

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
    BrokerRegistered,
    BrokerStateChanged,
    BrokerStopping,
    FetchServed,
    LogAppended,
    MetadataHeartbeatAnswered,
    MetadataHeartbeatReceived,
    MetadataHeartbeatSent,
    PartitionCommitted,
    RequestRefused,
    SessionChanged,
    TopicCommitted,
)
from fencepost_suites.brokers.leases import MS, Late, judge_late
from fencepost_suites.common.committed import Partitions
from fencepost_suites.common.keys import NOTHING, by_life, whole_run
from fencepost_suites.common.words import span
from fencepost_suites.heartbeats.states import TARGETS
from fencepost_suites.heartbeats.terms import LIVE, TERM_KINDS, Terms


@dataclass(slots=True)
class _Contact:
    """A broker's process: its state, and its newest accepted heartbeat."""

    state: str = ""
    incarnation: int = -1
    sent_ns: int = 0
    sent: Cause | None = None
    contact_ns: int = 0
    contact: Cause | None = None
    timeout_ns: int = 0
    session: str = ""
    judged: bool = False
    """Whether the fencing after the newest contact was found to be overdue."""
    suspects: list[Late] = field(default_factory=list)

    @property
    def due_ns(self) -> int:
        """When the process has to fence itself."""
        return self.contact_ns + self.timeout_ns

    def take(self, event: Event) -> None:
        """Applies an event of the process."""
        body = event.body
        match body:
            case BrokerRegistered():
                self.incarnation = body.broker_epoch
            case SessionChanged():
                self.session = body.state
            case BrokerStateChanged():
                self.state = body.new
            case MetadataHeartbeatSent():
                self.sent_ns, self.sent = event.at_ns, event.ref
            case MetadataHeartbeatReceived(error="NONE") if self.counts(body):
                self.contact_ns, self.contact = self.sent_ns, self.sent
                self.timeout_ns = body.timeout_ms * MS
                self.judged = False

    def counts(self, body: MetadataHeartbeatReceived) -> bool:
        """Whether an answer confirms that this process is in the cluster."""
        return body.state in TARGETS and body.incarnation_id == self.incarnation


_LIFE: frozenset[type[Struct]] = frozenset(
    {
        *(BrokerRegistered, SessionChanged, BrokerStateChanged, MetadataHeartbeatSent),
        *(MetadataHeartbeatReceived, ProcessExited, NodeStopped),
    }
)


@final
@dataclass(frozen=True, slots=True)
class SilenceFences:
    """HB-06. The timeout begins when the broker sends its last accepted heartbeat. The broker must
    fence itself within 1.1 timeouts and 100 ms. Serving a client later breaks the promise, too."""

    clause: str = "HB-06"
    kinds: frozenset[type[Struct]] = _LIFE | {LogAppended, FetchServed}
    keys = staticmethod(by_life)

    def start(self, key: Key) -> _Contact:
        return _Contact()

    def step(self, state: _Contact, event: Event) -> tuple[_Contact, Sequence[Finding]]:
        body = event.body
        self._overdue(state, event.at_ns, event.ref)
        if isinstance(body, ProcessExited | NodeStopped):
            state.state = ""
            return state, NOTHING
        was, connected = state.state, state.session == "connected"
        state.take(event)
        fenced = isinstance(body, BrokerStateChanged) and was == "ACTIVE" and body.new == "FENCED"
        due = event.at_ns >= state.due_ns - state.timeout_ns // 10
        late = due and state.contact is not None and not state.judged
        if fenced and late and connected:
            return state, (Exercised(event.ref, Evidence.SELF),)
        return state, NOTHING

    @staticmethod
    def _overdue(state: _Contact, at_ns: int, at: Cause) -> None:
        if state.state != "ACTIVE" or state.contact is None or state.judged:
            return
        if at_ns <= state.due_ns + state.timeout_ns // 10 + 100 * MS:
            return
        state.judged = True
        message = (
            f"{at.process} was active {span(at_ns - state.contact_ns)} after it had sent the last "
            f"heartbeat that was accepted; its timeout is {span(state.timeout_ns)}"
        )
        state.suspects.append(
            Late(
                violated=Violated(at, Evidence.SELF, message, (state.contact,)),
                process=state.contact.process,
                from_ns=state.contact_ns,
                to_ns=at_ns,
                period_ns=state.timeout_ns,
                due_ns=state.due_ns,
            )
        )

    def end(self, state: _Contact, end: RunEnd) -> Sequence[Finding]:
        if state.contact is not None:
            self._overdue(state, end.ended_at_ns, state.contact)
        return judge_late(state.suspects, end)


@dataclass(slots=True)
class _Answer:
    """A broker's process, and an answer to which it has not reacted yet."""

    contact: _Contact = field(default_factory=_Contact)
    open: Cause | None = None
    disowned: bool = False
    """Whether the process has learnt that another process has its id."""


@final
@dataclass(frozen=True, slots=True)
class AcceptedUnfences:
    """HB-08. After an accepted heartbeat, a fenced broker must be active before it sends the next
    heartbeat. An answer that arrives after nine tenths of the timeout is not judged."""

    clause: str = "HB-08"
    kinds: frozenset[type[Struct]] = _LIFE
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
    kinds: frozenset[type[Struct]] = _LIFE | {LogAppended, FetchServed}
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


@dataclass(slots=True)
class _Serving:
    """process -> its global state, and the event of the change to that state."""

    state: dict[str, tuple[str, Cause]] = field(default_factory=dict)


@final
@dataclass(frozen=True, slots=True)
class StoppingServes:
    """HB-04. The broker's own events say when it is stopping, and when it is fenced."""

    clause: str = "HB-04"
    kinds: frozenset[type[Struct]] = frozenset(
        {BrokerStateChanged, LogAppended, FetchServed, RequestRefused}
    )
    keys = staticmethod(by_life)

    def start(self, key: Key) -> _Serving:
        return _Serving()

    def step(self, state: _Serving, event: Event) -> tuple[_Serving, Sequence[Finding]]:
        body = event.body
        if isinstance(body, BrokerStateChanged):
            state.state[event.process] = (body.global_state, event.ref)
            return state, NOTHING
        now, since = state.state.get(event.process, ("", event.ref))
        match body:
            case RequestRefused(reason="fenced") if body.requester < 0 and now in (
                "Online",
                "Stopping",
            ):
                message = f"{event.process} refused {body.client} a {body.api} while it was {now}"
                return state, (Violated(event.ref, Evidence.SELF, message, (since,)),)
            case LogAppended(as_leader=True) | FetchServed() if now == "Stopping":
                return state, (Exercised(event.ref, Evidence.SELF),)
        return state, NOTHING

    def end(self, state: _Serving, end: RunEnd) -> Sequence[Finding]:
        return NOTHING


@dataclass(frozen=True, slots=True)
class _Stop:
    """A broker was asked to stop: when, its time limit, and whether it led a partition."""

    at_ns: int
    limit_ns: int
    led: bool
    ref: Cause


@dataclass(slots=True)
class _Stops:
    """The stored partitions, and the processes that were asked to stop."""

    partitions: Partitions = field(default_factory=Partitions)
    stops: dict[str, _Stop] = field(default_factory=dict)


@final
@dataclass(frozen=True, slots=True)
class LeadershipsMoveFirst:
    """HB-05. The stored partitions show which leaderships a broker still has."""

    clause: str = "HB-05"
    kinds: frozenset[type[Struct]] = frozenset(
        {PartitionCommitted, TopicCommitted, BrokerStopping, BrokerStateChanged}
    )
    keys = staticmethod(whole_run)

    def start(self, key: Key) -> _Stops:
        return _Stops()

    def step(self, state: _Stops, event: Event) -> tuple[_Stops, Sequence[Finding]]:
        body = event.body
        match body:
            case PartitionCommitted():
                state.partitions.take(body)
            case TopicCommitted():
                state.partitions.forget(body)
            case BrokerStopping(state="ACTIVE"):
                led = any(True for _ in state.partitions.led_by(body.broker_id))
                stop = _Stop(event.at_ns, body.limit_ms * MS, led, event.ref)
                state.stops[event.process] = stop
            case BrokerStateChanged(new="SHUTDOWN"):
                return state, self._ended(state, event, body)
        return state, NOTHING

    @staticmethod
    def _ended(state: _Stops, event: Event, body: BrokerStateChanged) -> Sequence[Finding]:
        stop = state.stops.pop(event.process, None)
        if stop is None or body.old != "ACTIVE":
            return NOTHING
        left = list(state.partitions.led_by(body.broker_id))
        if not left:
            return (Exercised(event.ref, Evidence.PEER),) if stop.led else NOTHING
        took_ns = event.at_ns - stop.at_ns
        if took_ns >= stop.limit_ns * 9 // 10:
            return NOTHING
        topic, index = left[0]
        message = (
            f"{event.process} ended {span(took_ns)} after it was asked to stop, before its time "
            f"limit, though it still led {topic}-{index}"
        )
        return (Violated(event.ref, Evidence.PEER, message, (stop.ref,)),)

    def end(self, state: _Stops, end: RunEnd) -> Sequence[Finding]:
        return NOTHING


@dataclass(slots=True)
class _Fences:
    """The controllers' terms, and the contacts of brokers with them."""

    terms: Terms = field(default_factory=Terms)
    contacts: dict[str, _Contact] = field(default_factory=dict)
    accepted: dict[tuple[str, str], int] = field(default_factory=dict)
    """(controller, broker's process) -> when the controller last accepted its heartbeat."""
    received_ns: dict[str, int] = field(default_factory=dict)
    """broker's process -> when it last received an answer without an error."""
    suspects: list[Late] = field(default_factory=list)


@final
@dataclass(frozen=True, slots=True)
class ControllerIsFirst:
    """HB-11. Judged only if the same controller's term has lasted since the broker's last accepted
    heartbeat, and that controller has accepted no later heartbeat of the broker."""

    clause: str = "HB-11"
    kinds: frozenset[type[Struct]] = TERM_KINDS | _LIFE | {MetadataHeartbeatAnswered}
    keys = staticmethod(whole_run)

    def start(self, key: Key) -> _Fences:
        return _Fences()

    def step(self, state: _Fences, event: Event) -> tuple[_Fences, Sequence[Finding]]:
        body = event.body
        state.terms.take(event)
        if isinstance(body, MetadataHeartbeatAnswered):
            if body.error == "NONE":
                state.accepted[event.process, body.client] = event.at_ns
            return state, NOTHING
        contact = state.contacts.setdefault(event.process, _Contact())
        if isinstance(body, MetadataHeartbeatReceived) and body.error == "NONE":
            state.received_ns[event.process] = event.at_ns
        contact.take(event)
        silent = isinstance(body, BrokerStateChanged) and body.reason == "controller_silent"
        if isinstance(body, BrokerStateChanged) and silent and body.old == "ACTIVE":
            return state, self._fenced(state, event, body, contact)
        return state, NOTHING

    @staticmethod
    def _fenced(
        state: _Fences, event: Event, body: BrokerStateChanged, contact: _Contact
    ) -> Sequence[Finding]:
        if len(state.terms.now) != 1 or contact.contact is None:
            return NOTHING
        ((process, term),) = state.terms.now.items()
        known = term.brokers.get(body.broker_id)
        last_ns = state.accepted.get((process, event.process), 0)
        heard_later = last_ns > state.received_ns.get(event.process, 0)
        if term.began_ns > contact.contact_ns or last_ns == 0 or heard_later or known is None:
            return NOTHING
        if known.incarnation != contact.incarnation:
            return NOTHING
        if known.state not in LIVE:
            return (Exercised(event.ref, Evidence.PEER),)
        message = (
            f"{event.process} fenced itself {span(event.at_ns - contact.contact_ns)} after its "
            f"last accepted heartbeat, before {process} had declared it inactive"
        )
        state.suspects.append(
            Late(
                violated=Violated(event.ref, Evidence.PEER, message, (contact.contact,)),
                process=process,
                from_ns=contact.contact_ns,
                to_ns=event.at_ns,
                period_ns=term.timeout_ns,
            )
        )
        return NOTHING

    def end(self, state: _Fences, end: RunEnd) -> Sequence[Finding]:
        return judge_late(state.suspects, end)


@final
@dataclass(frozen=True, slots=True)
class OnlyControllerAnswers:
    """HB-27. A process whose session with ZooKeeper is not connected is not the controller, even if
    its events say so. The broker's evidence is the refusal that it received."""

    clause: str = "HB-27"
    kinds: frozenset[type[Struct]] = TERM_KINDS | {
        MetadataHeartbeatAnswered,
        MetadataHeartbeatReceived,
    }
    keys = staticmethod(whole_run)

    def start(self, key: Key) -> Terms:
        return Terms()

    def step(self, state: Terms, event: Event) -> tuple[Terms, Sequence[Finding]]:
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
                over = state.over.get(event.process)
                because = () if over is None else (over,)
                return state, (Violated(event.ref, Evidence.SELF, message, because),)
        return state, NOTHING

    def end(self, state: Terms, end: RunEnd) -> Sequence[Finding]:
        return NOTHING
