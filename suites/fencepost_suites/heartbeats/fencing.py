"""How a broker over ZooKeeper fences itself, and which side does so first (KIP-343)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final, final

from msgspec import Struct

from fencepost import (
    FAULT_KINDS,
    MS,
    NOTHING,
    Cause,
    Deadline,
    Event,
    Evidence,
    Excuses,
    Exercised,
    FaultHealed,
    FaultInjected,
    Finding,
    Findings,
    NodeStopped,
    ProcessExited,
    Rule,
    RunEnd,
    judged,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    BrokerRegistered,
    BrokerStateChanged,
    ControllerBegan,
    FetchServed,
    LogAppended,
    MetadataHeartbeatAnswered,
    MetadataHeartbeatReceived,
    MetadataHeartbeatSent,
    SessionChanged,
    broker_of,
)
from fencepost_suites.heartbeats.targets import TARGETS
from fencepost_suites.heartbeats.terms import LIVE, TERM_KINDS, Terms


@dataclass(slots=True)
class Contact:
    """A broker's process: its state, and its newest accepted heartbeat."""

    state: str = ""
    incarnation: int = -1
    sent_ns: int = 0
    sent: Cause | None = None
    contact_ns: int = 0
    contact: Cause | None = None
    timeout_ns: int = 0
    session: str = ""
    stopped: str = ""
    """Its state before it said that it stops."""
    active: Event | None = None
    """The event by which it became active, while no heartbeat of it was accepted."""
    judged: bool = False
    """Whether the fencing after the newest contact was found to be overdue."""
    suspects: list[Deadline] = field(default_factory=list)

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
                first = body.new == "ACTIVE" and self.contact is None
                self.active = event if first else None
            case MetadataHeartbeatSent():
                self.sent_ns, self.sent = event.at_ns, event.ref
            case MetadataHeartbeatReceived(error="NONE") if self.counts(body):
                self.active = None
                # From the sending: the controller's clock for this broker starts later, and ends
                # before.
                self.contact_ns, self.contact = self.sent_ns, self.sent
                self.timeout_ns = body.timeout_ms * MS
                self.judged = False

    def counts(self, body: MetadataHeartbeatReceived) -> bool:
        """Whether an answer confirms that this process is in the cluster."""
        return body.state in TARGETS and body.incarnation_id == self.incarnation


ANSWERS_KEPT: Final = 64
"""How many accepted heartbeats of one process are kept, to compare with what it received."""
LIFE_KINDS: frozenset[type[Struct]] = frozenset(
    {
        *(BrokerRegistered, SessionChanged, BrokerStateChanged, MetadataHeartbeatSent),
        *(MetadataHeartbeatReceived, ProcessExited, NodeStopped),
    }
)


@dataclass(slots=True)
class _Contacts:
    """The brokers' processes, and the timeout that each has named."""

    of: defaultdict[str, Contact] = field(default_factory=lambda: defaultdict(Contact))
    named: dict[str, int] = field(default_factory=dict)
    accepted: dict[str, dict[int, None]] = field(default_factory=dict)
    """process -> the numbers of its newest heartbeats that controllers accepted, by their events.
    A process has an entry once a controller told of an answer to it."""
    number: dict[str, int] = field(default_factory=dict)
    """process -> the number of its newest heartbeat."""
    process_of: dict[int, str] = field(default_factory=dict)
    """broker -> its process that was elected last."""
    unproven: dict[str, tuple[Event, str]] = field(default_factory=dict)
    """process -> the newest answer that it received and no controller has told of, and which
    controller's process it came from."""

    def answered(self, event: Event, body: MetadataHeartbeatAnswered) -> None:
        """A controller tells of an answer, before it sends it."""
        cause = event.cause
        if cause is None or not cause.request:
            return
        numbers = self.accepted.setdefault(cause.process, {})
        if body.error == "NONE":
            numbers[cause.seq] = None
            if len(numbers) > ANSWERS_KEPT:
                del numbers[next(iter(numbers))]

    def died(self, process: str) -> None:
        """A controller that was killed may have sent what it could not tell of any more."""
        for name, (event, controller) in list(self.unproven.items()):
            if controller == process:
                del self.unproven[name]
                self.of[name].take(event)

    def is_borne_out(self, event: Event, body: MetadataHeartbeatReceived) -> bool:
        """Whether a controller accepted the heartbeat that an answer is to. Nothing is known where
        controllers tell of no answers to this process."""
        numbers = self.accepted.get(event.process)
        number = self.number.get(event.process)
        if numbers is None or number is None or number in numbers:
            return True
        self.unproven[event.process] = event, self.process_of.get(body.controller, "")
        return False

    def take(self, event: Event, one: Contact) -> None:
        """Applies an event of a process."""
        body = event.body
        if isinstance(body, MetadataHeartbeatSent):
            self.number[event.process] = body.correlation
        # A broker that invented its answers once served for as long as it liked, cut off from the
        # controller.
        if not isinstance(body, MetadataHeartbeatReceived):
            one.take(event)
            return
        if body.error != "NONE" or self.is_borne_out(event, body):
            one.take(event)
        self.named[event.process] = body.timeout_ms * MS
        others = [ns for process, ns in self.named.items() if process != event.process]
        # A broker that names a longer timeout than all others would give itself more time.
        one.timeout_ns = min(one.timeout_ns, max(others, default=one.timeout_ns))

    def begin(self, process: str, one: Contact) -> None:
        """A process that asks, and is active though no heartbeat of it was accepted, is in contact
        from when it became active, and for as long as other brokers name. One that asks nobody
        follows an older protocol."""
        if one.active is None or one.sent is None:
            return
        timeout_ns = max((ns for name, ns in self.named.items() if name != process), default=0)
        if timeout_ns:
            one.contact_ns, one.contact = one.active.at_ns, one.active.ref
            one.timeout_ns, one.active = timeout_ns, None


@final
class SilenceFences(Rule[_Contacts]):
    """HB-06. The timeout begins when the broker sends its last accepted heartbeat, or when it
    became active before that. The broker must
    fence itself within 1.1 timeouts and 100 ms. Serving a client later breaks the promise, too. A
    cluster's brokers have one timeout: no broker has a longer one than all others have named. If no
    other has named one, the broker's own word counts. An accepted heartbeat counts if a controller
    told that it accepted it, once controllers tell of their answers to this process; a controller
    that died may not have told of its last one. A process that says that it has stopped, and serves
    a client, has not stopped."""

    clause = "HB-06"
    state = _Contacts

    @on(MetadataHeartbeatAnswered)
    def _answered(
        self, state: _Contacts, event: Event, body: MetadataHeartbeatAnswered
    ) -> Findings:
        state.answered(event, body)
        return NOTHING

    @on(ControllerBegan)
    def _elected(self, state: _Contacts, event: Event, body: ControllerBegan) -> Findings:
        state.process_of[body.broker_id] = event.process
        return NOTHING

    @on(LogAppended, FetchServed)
    def _serves(self, state: _Contacts, event: Event, body: Struct) -> Findings:
        one = state.of[event.process]
        state.begin(event.process, one)
        self._overdue(one, event.at_ns, event.ref)
        # That it has stopped is its own word. It goes on as it was if it serves a client.
        if one.stopped:
            one.state, one.stopped = one.stopped, ""
        return NOTHING

    @on(*LIFE_KINDS)
    def step(self, state: _Contacts, event: Event, body: Struct) -> Findings:
        if isinstance(body, ProcessExited):
            state.died(body.ended)
        name = body.ended if isinstance(body, ProcessExited) else event.process
        one = state.of[name]
        state.begin(name, one)
        self._overdue(one, event.at_ns, event.ref)
        if isinstance(body, ProcessExited):
            one.state = ""
            return NOTHING
        if isinstance(body, NodeStopped):
            one.stopped, one.state = one.state, ""
            return NOTHING
        was, connected = one.state, one.session == "connected"
        state.take(event, one)
        fenced = isinstance(body, BrokerStateChanged) and was == "ACTIVE" and body.new == "FENCED"
        due = event.at_ns >= one.due_ns - one.timeout_ns // 10
        late = due and one.contact is not None and not one.judged
        if fenced and late and connected:
            return (Exercised(event.ref, Evidence.SELF),)
        return NOTHING

    @staticmethod
    def _overdue(state: Contact, at_ns: int, at: Cause) -> None:
        if state.state != "ACTIVE" or state.contact is None or state.judged:
            return
        if at_ns <= state.due_ns + state.timeout_ns // 10 + 100 * MS:
            return
        # Once for each contact; the next accepted heartbeat begins anew.
        state.judged = True
        state.suspects.append(
            Deadline(
                violated=violated(
                    at,
                    Evidence.SELF,
                    "{process} was active {after_ns} after it had sent the last heartbeat that was "
                    "accepted; its timeout is {timeout_ns}",
                    (state.contact,),
                    process=process_scope(state.contact.process),
                    after_ns=at_ns - state.contact_ns,
                    timeout_ns=state.timeout_ns,
                    epoch=state.incarnation,
                ),
                actors=(state.contact.process,),
                from_ns=state.contact_ns,
                to_ns=at_ns,
                bound_ns=state.timeout_ns,
                due_ns=state.due_ns,
            )
        )

    def end(self, state: _Contacts, end: RunEnd) -> Findings:
        found: list[Finding] = []
        for name, one in state.of.items():
            state.begin(name, one)
            if one.contact is not None:
                self._overdue(one, end.ended_at_ns, one.contact)
            found.extend(judged(one.suspects, end))
        return found


class _Unheard(Struct, frozen=True):
    """A broker that fenced itself before its controller had declared it inactive, and the numbers
    of the heartbeats that it had sent since its last accepted one."""

    late: Deadline
    broker: str
    sent: frozenset[int]


@dataclass(slots=True)
class _Fences:
    """The controllers' terms, and the contacts of brokers with them."""

    terms: Terms = field(default_factory=Terms)
    contacts: defaultdict[str, Contact] = field(default_factory=lambda: defaultdict(Contact))
    accepted: dict[tuple[str, str], int] = field(default_factory=dict)
    """(controller, broker's process) -> when the controller last accepted its heartbeat."""
    received_ns: dict[str, int] = field(default_factory=dict)
    """broker's process -> when it last received an answer without an error."""
    refused: set[str] = field(default_factory=set)
    """The brokers' processes whose newest answer was a refusal."""
    sent: dict[str, set[int]] = field(default_factory=dict)
    """broker's process -> the numbers of its heartbeats since its last accepted one."""
    faults: Excuses = field(default_factory=Excuses)
    suspects: list[_Unheard] = field(default_factory=list)

    def parted(self, one: _Unheard) -> bool:
        """Whether a fault acted upon the link of broker and controller since the last contact: what
        the broker sent may have arrived after it had fenced itself."""
        pair = one.broker, one.late.actors[0]
        return any(fault.between(*pair) for fault in self.faults.since(one.late.from_ns))


@final
class ControllerIsFirst(Rule[_Fences]):
    """HB-11. Judged only if the newest controller's term has lasted since the broker's last
    accepted heartbeat, and that controller has accepted no later heartbeat of the broker. The term
    of an older controller, which may not have noticed its end, does not count. A controller that
    loses its session soon may have been without ZooKeeper, and could store no declaration. A broker
    is not cut off if its controller answers, in the end, a heartbeat that it had sent before it
    fenced itself, and no fault acted upon the link between them. One that says that its
    session has ended, or that it was refused, is believed if that is so. A controller that stood
    still from when it was to declare the broker is excused."""

    clause = "HB-11"
    state = _Fences

    @on(*TERM_KINDS, *LIFE_KINDS, *FAULT_KINDS, MetadataHeartbeatAnswered)
    def step(self, state: _Fences, event: Event, body: Struct) -> Findings:
        ending = state.terms.ending(event)
        if ending is not None:
            state.suspects = [
                one
                for one in state.suspects
                # The controller may have been without ZooKeeper from `reached_ns` on, and could
                # store no declaration.
                if one.late.actors[0] != ending.process or one.late.to_ns <= ending.reached_ns
            ]
        state.terms.take(event)
        match body:
            case FaultInjected() | FaultHealed():
                state.faults.take(event)
                return NOTHING
            case MetadataHeartbeatAnswered():
                self._answered(state, event, body)
                return NOTHING
            case MetadataHeartbeatSent():
                state.sent.setdefault(event.process, set()).add(body.correlation)
            case MetadataHeartbeatReceived(error="NONE"):
                state.received_ns[event.process] = event.at_ns
                state.sent.pop(event.process, None)
                state.refused.discard(event.process)
            case MetadataHeartbeatReceived():
                state.refused.add(event.process)
        contact = state.contacts[event.process]
        contact.take(event)
        if isinstance(body, BrokerStateChanged) and (body.old, body.new) == ("ACTIVE", "FENCED"):
            # Another reason counts with its own event, where the broker has it.
            untrue = {
                "controller_silent": True,
                "session_ended": contact.session == "connected",
                "refused": event.process not in state.refused,
            }
            if untrue.get(body.reason, False):
                return self._fenced(state, event, body, contact)
        return NOTHING

    @staticmethod
    def _answered(state: _Fences, event: Event, body: MetadataHeartbeatAnswered) -> None:
        if body.error != "NONE":
            return
        state.accepted[event.process, body.client] = event.at_ns
        # A heartbeat that was under way when the broker fenced itself: the broker was not cut off
        # from this controller, so the order of the two is not promised.
        number = -1 if event.cause is None else event.cause.seq
        state.suspects = [
            one
            for one in state.suspects
            if (one.late.actors[0], one.broker) != (event.process, body.client)
            or number not in one.sent
            or state.parted(one)
        ]

    @staticmethod
    def _fenced(
        state: _Fences, event: Event, body: BrokerStateChanged, contact: Contact
    ) -> Findings:
        if not state.terms.now or contact.contact is None:
            return NOTHING
        process, term = max(state.terms.now.items(), key=lambda one: one[1].epoch)
        known = term.brokers.get(body.broker_id)
        last_ns = state.accepted.get((process, event.process), 0)
        heard_later = last_ns > state.received_ns.get(event.process, 0)
        # The controller must have been the one of the last contact, and must not have heard the
        # broker later: then its clock started no later than the broker's own.
        if term.began_ns > contact.contact_ns or last_ns == 0 or heard_later or known is None:
            return NOTHING
        if known.incarnation != contact.incarnation:
            return NOTHING
        if known.state not in LIVE:
            return (Exercised(event.ref, Evidence.PEER),)
        late = Deadline(
            violated=violated(
                event.ref,
                Evidence.PEER,
                "{process} fenced itself {after_ns} after its last accepted heartbeat, before "
                "{other} had declared it inactive",
                (contact.contact,),
                process=process_scope(event.process),
                after_ns=event.at_ns - contact.contact_ns,
                other=process_scope(process),
                broker=broker_of(body.broker_id),
                epoch=contact.incarnation,
            ),
            actors=(process,),
            from_ns=contact.contact_ns,
            to_ns=event.at_ns,
            bound_ns=term.timeout_ns,
            due_ns=contact.contact_ns + term.timeout_ns,
            omission=False,
        )
        sent = frozenset(state.sent.get(event.process, ()))
        state.suspects.append(_Unheard(late, event.process, sent))
        return NOTHING

    def end(self, state: _Fences, end: RunEnd) -> Findings:
        return judged([one.late for one in state.suspects], end)
