"""The states of brokers at the controller over ZooKeeper (KIP-343)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import final

from msgspec import Struct

from fencepost import (
    FAULT_KINDS,
    MS,
    NOTHING,
    Cause,
    Deadline,
    Event,
    Evidence,
    Excused,
    Excuses,
    Exercised,
    Finding,
    Findings,
    ProcessExited,
    Reason,
    Rule,
    RunEnd,
    Undecided,
    Violated,
    judged,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    BrokerDeclared,
    BrokerRegistered,
    ControllerBegan,
    MetadataHeartbeatAnswered,
    MetadataHeartbeatReceived,
    MetadataHeartbeatSent,
    broker_of,
)
from fencepost_suites.heartbeats.accounts import HEARTBEAT_INFO, Registered, SentHeartbeats
from fencepost_suites.heartbeats.departures import DEPARTURE_KINDS, Departures
from fencepost_suites.heartbeats.terms import LIVE, TERM_KINDS, Declared, Terms
from fencepost_suites.heartbeats.without_servers import ROLE, SERVER_KINDS, Away

TARGETS = {2: "Active", 3: "Stopping"}
STATE_NONE = 0
"""The state in the answer to a broker whose registration the controller has not read."""
SETTLED_WITHIN_NS = 6_000 * MS
"""How long a controller that reaches ZooKeeper may take to read a registration."""
RETURNS_BY = 3
"""How many heartbeats of an inactive broker must have come to nothing: one may be lost."""


@dataclass(slots=True)
class _Heartbeats:
    """The incarnations that have sent a heartbeat, by the brokers' own events."""

    terms: Terms = field(default_factory=Terms)
    sent: set[tuple[int, int]] = field(default_factory=set)
    began: Cause | None = None
    """The first controller of the run."""

    def succeeds(self, event: Event) -> bool:
        """Whether a controller may have had a predecessor. Its own word is not enough: the first
        one of a run that has the first epoch has none."""
        term = self.terms.now[event.process]
        alone = self.began is not None and self.began.process == event.process and term.epoch <= 1
        return not (term.first or alone)


@final
class ActiveByHeartbeat(Rule[_Heartbeats]):
    """HB-02. The broker's evidence is that it has sent a heartbeat. In the first nine tenths of the
    timeout after a term began, no broker may be declared inactive."""

    clause = "HB-02"
    state = _Heartbeats

    @on(*TERM_KINDS, MetadataHeartbeatSent)
    def step(self, state: _Heartbeats, event: Event, body: Struct) -> Findings:
        term = state.terms.take(event)
        if isinstance(body, ControllerBegan):
            state.began = state.began or event.ref
        if isinstance(body, MetadataHeartbeatSent):
            state.sent.add((body.broker_id, body.incarnation_id))
        if not isinstance(body, BrokerDeclared) or term is None or body.version < HEARTBEAT_INFO:
            return NOTHING
        # A successor finds brokers that its predecessor had active, and may go on from there: a
        # failover alone makes nobody inactive.
        found_by_successor = body.reason == "controller_elected" and state.succeeds(event)
        if body.new in LIVE and not found_by_successor:
            if (body.broker_id, body.incarnation_id) in state.sent:
                return (Exercised(event.ref, Evidence.PEER),)
            broken = violated(
                event.ref,
                Evidence.PEER,
                "{process} declared broker {broker} {state}, though its process with incarnation "
                "id {epoch} had sent no heartbeat",
                process=process_scope(event.process),
                broker=broker_of(body.broker_id),
                state=body.new,
                epoch=body.incarnation_id,
            )
            return (broken,)
        if body.new == "Inactive" and event.at_ns < term.began_ns + term.timeout_ns * 9 // 10:
            broken = violated(
                event.ref,
                Evidence.SELF,
                "{process} declared broker {broker} inactive {after_ns} after it became the "
                "controller; the timeout is {timeout_ns}",
                process=process_scope(event.process),
                broker=broker_of(body.broker_id),
                after_ns=event.at_ns - term.began_ns,
                timeout_ns=term.timeout_ns,
            )
            return (broken,)
        return NOTHING


class Left(Struct, frozen=True):
    """A controller said that the registration of a broker, which it had live, had ended."""

    violated: Violated
    broker: int
    epoch: int
    at_ns: int
    apart_ns: int | None
    """Since when the broker's process had ended by then, or had no connected session."""

    @staticmethod
    def of(event: Event, body: BrokerDeclared, known: Declared, departures: Departures) -> Left:
        """What a declaration says."""
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} declared broker {broker} {state} ({reason}), though its registration with "
            "broker epoch {epoch} had not ended",
            (known.ref,),
            process=process_scope(event.process),
            broker=broker_of(body.broker_id),
            state=body.new,
            reason=body.reason,
            epoch=known.incarnation,
        )
        apart_ns = departures.parted(body.broker_id, known.incarnation)
        return Left(broken, body.broker_id, known.incarnation, event.at_ns, apart_ns)


def wrongly_left(left: Sequence[Left], departures: Departures, end: RunEnd) -> Sequence[Finding]:
    """Those whose registrations went on, by all that was told until the end of the run."""
    wrong = [
        one.violated
        for one in left
        if departures.lived_on(one.broker, one.epoch, one.at_ns, one.apart_ns)
    ]
    # The event that would tell of the end may be among those that are missing.
    return wrong if end.complete else [Undecided.of(one) for one in wrong]


@dataclass(slots=True)
class _Silences:
    """The controllers' terms, and the declarations that are late in them."""

    terms: Terms = field(default_factory=Terms)
    registered: Registered = field(default_factory=Registered)
    heartbeats: SentHeartbeats = field(default_factory=SentHeartbeats)
    heard_by_broker: dict[tuple[int, int], int] = field(default_factory=dict)
    """(broker, incarnation) -> when the broker last got an answer without an error."""
    sent_ns: dict[Cause, int] = field(default_factory=dict)
    """heartbeat -> when its broker sent it, until it is answered."""
    delivered: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    """(controller process, broker) -> when the heartbeats were sent that it has answered."""
    came: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    """(controller process, broker) -> when its last heartbeat was answered, and when it was
    sent."""
    away: Away = field(default_factory=Away)
    faults: Excuses = field(default_factory=Excuses)
    departures: Departures = field(default_factory=Departures)
    left: list[Left] = field(default_factory=list)
    """The live brokers of which a controller said that their registrations had ended."""
    suspects: list[tuple[int, Deadline, Reason | None]] = field(default_factory=list)
    """A broker, why the controller was late to declare it inactive, and the fault upon its way to
    ZooKeeper then; empty if there was none."""

    def silent_ns(self, event: Event, broker: int, heard_ns: int) -> int:
        """For how long a broker may have been silent: an answer may wait for ZooKeeper, but the
        controller has heard the heartbeat when it came."""
        answered_ns, sent_ns = self.came.get((event.process, broker), (-1, -1))
        since_ns = sent_ns if answered_ns == heard_ns and sent_ns >= 0 else heard_ns
        return event.at_ns - since_ns


@final
class SilentBecomesInactive(Rule[_Silences]):
    """HB-09. The controller must declare a silent broker inactive no earlier than after 0.9
    timeouts, and no later than after 1.25 timeouts and 500 ms. The broker's evidence is that it got
    no answer meanwhile. An answer of the controller counts only if the broker's process can have
    sent the heartbeat, by its own events and by its end. The version of a registration is that
    which the broker has recorded. A controller that has to read a registration first answers late,
    and so does one that waits for ZooKeeper: a heartbeat counts from when it was sent once it is
    answered. A controller that loses its session may have been without ZooKeeper for the session
    timeout, and could store nothing: its successor has to make a declaration that fell due then. A
    declaration that was late while ZooKeeper answered nothing is undecided; one while a fault acted
    upon the controller's way to ZooKeeper is excused: over a slow link it stored one thing after
    the other, and a silent broker came last.

    A live broker becomes inactive only by silence, whatever reason the controller names, and absent
    only by the end of its registration, as others than the controller tell it."""

    clause = "HB-09"
    state = _Silences

    @on(
        *TERM_KINDS,
        *SERVER_KINDS,
        *FAULT_KINDS,
        *DEPARTURE_KINDS,
        MetadataHeartbeatSent,
        MetadataHeartbeatAnswered,
        MetadataHeartbeatReceived,
    )
    def step(self, state: _Silences, event: Event, body: Struct) -> Findings:
        # Before the event is applied: it may end the term in which something was due.
        self._ended(state, event)
        state.faults.take(event)
        state.heartbeats.take(event)
        state.away.take(event)
        state.departures.take(event)
        before = state.terms.now.get(event.process)
        found = NOTHING
        cause = event.cause
        if isinstance(body, MetadataHeartbeatAnswered) and cause is not None:
            sent_ns = state.sent_ns.pop(cause, -1)
            state.came[event.process, body.broker_id] = event.at_ns, sent_ns
            state.delivered.setdefault((event.process, body.broker_id), []).append(sent_ns)
        match body:
            case BrokerRegistered():
                state.registered.take(event, body)
            case MetadataHeartbeatSent():
                state.sent_ns[Cause(event.process, body.correlation, request=True)] = event.at_ns
            case MetadataHeartbeatReceived(error="NONE"):
                state.heard_by_broker[body.broker_id, body.incarnation_id] = event.at_ns
            case BrokerDeclared() if before is not None:
                found = self._declared(state, event, body, before.brokers.get(body.broker_id))
            case MetadataHeartbeatAnswered(error="NONE") if before is not None:
                known = before.brokers.get(body.broker_id)
                # A controller that invents heartbeats could keep a dead broker live for ever. So an
                # answer counts only to a heartbeat that the broker can have sent.
                if known is not None and state.heartbeats.was_sent(event, body):
                    self._overdue(state, event.process, body.broker_id, event.at_ns)
                    known.heard_ns = event.at_ns
        state.terms.take(event)
        return found

    def _ended(self, state: _Silences, event: Event) -> None:
        """Judges what was due when a term ends."""
        ending = state.terms.ending(event)
        if ending is None or isinstance(event.body, ControllerBegan):
            return
        term = ending.term
        lost_session = not isinstance(event.body, ProcessExited)
        for broker, known in term.brokers.items():
            # Due before the controller may have lost ZooKeeper, without which it can store no
            # declaration.
            if not lost_session or known.heard_ns + term.timeout_ns < ending.reached_ns:
                self._overdue(state, ending.process, broker, event.at_ns)

    def _declared(
        self, state: _Silences, event: Event, body: BrokerDeclared, known: Declared | None
    ) -> Findings:
        if known is None or known.state not in LIVE or body.new in LIVE:
            return NOTHING
        self._overdue(state, event.process, body.broker_id, event.at_ns)
        if body.new == "Absent" or body.incarnation_id != known.incarnation:
            state.left.append(Left.of(event, body, known, state.departures))
            return NOTHING
        version = state.registered.version(body.broker_id, known.incarnation, known.version)
        if body.reason != "silent" and version < HEARTBEAT_INFO:
            return NOTHING  # it sends no heartbeats: HB-23 judges it
        term = state.terms.now[event.process]
        silent_ns = state.silent_ns(event, body.broker_id, known.heard_ns)
        # A tenth for the way of the heartbeat. By the controller's own figure there is no such
        # slack.
        soon = body.reason == "silent" and body.silent_ms < body.timeout_ms
        if silent_ns < term.timeout_ns * 9 // 10 or soon:
            broken = violated(
                event.ref,
                Evidence.SELF,
                "{process} declared broker {broker} inactive {after_ns} after its last heartbeat; "
                "the timeout is {timeout_ns}",
                (known.ref,),
                process=process_scope(event.process),
                broker=broker_of(body.broker_id),
                after_ns=silent_ns,
                timeout_ns=term.timeout_ns,
            )
            return (broken,)
        heard = state.heard_by_broker.get((body.broker_id, known.incarnation), -1)
        peer = heard < event.at_ns - term.timeout_ns // 2
        return (Exercised(event.ref, Evidence.PEER if peer else Evidence.SELF),)

    @staticmethod
    def _overdue(state: _Silences, process: str, broker: int, at_ns: int) -> None:
        """Adds a suspect if a controller has left a silent broker live for too long."""
        term = state.terms.now[process]
        known = term.brokers[broker]
        # A broker below the protocol of heartbeats sends none, and is never silent.
        version = state.registered.version(broker, known.incarnation, known.version)
        if known.state not in LIVE or version < HEARTBEAT_INFO:
            return
        due_ns = known.heard_ns + term.timeout_ns
        if at_ns <= known.heard_ns + _latest_ns(term.timeout_ns):
            return
        late = Deadline(
            violated=violated(
                known.ref,
                Evidence.PEER,
                "{process} left broker {broker} {state} for {since_ns} without a heartbeat; the "
                "timeout is {timeout_ns}",
                process=process_scope(process),
                broker=broker_of(broker),
                state=known.state,
                since_ns=at_ns - known.heard_ns,
                timeout_ns=term.timeout_ns,
            ),
            actors=(process, *state.away.actors),
            from_ns=known.heard_ns,
            to_ns=at_ns,
            bound_ns=term.timeout_ns,
            due_ns=due_ns,
        )
        # Only while a fault acted upon that way as the declaration was due.
        way = [
            fault.upon_link(process, server)
            for fault in state.faults.since(due_ns)
            if fault.began_ns <= at_ns
            if (server := fault.parts(process, lambda slot: slot.startswith(ROLE)))
        ]
        state.suspects.append((broker, late, way[0] if way else None))

    def end(self, state: _Silences, end: RunEnd) -> Findings:
        for process, term in state.terms.now.items():
            for broker in term.brokers:
                self._overdue(state, process, broker, end.ended_at_ns)
        late = [
            (one, way)
            for broker, one, way in state.suspects
            # Answers may be recorded later than the suspicion: the controller waited for ZooKeeper,
            # and had heard the broker all the time.
            if not _was_heard(one, state.delivered.get((one.actors[0], broker), ()))
        ]
        excused = [Excused.of(one.violated, way) for one, way in late if way is not None]
        on_time = judged([one for one, way in late if way is None], state.away.told(end))
        return (*excused, *on_time, *wrongly_left(state.left, state.departures, end))


def _latest_ns(timeout_ns: int) -> int:
    """How long after its last heartbeat a broker may be live at the controller."""
    return timeout_ns + timeout_ns // 4 + 500 * MS


def _was_heard(one: Deadline, delivered: Sequence[int]) -> bool:
    """Whether heartbeats that were sent meanwhile, and delivered, leave no silence that is too
    long."""
    within = [min(max(one.from_ns, at), one.to_ns) for at in delivered]
    times = sorted((one.from_ns, *within, one.to_ns))
    return all(b - a <= _latest_ns(one.bound_ns) for a, b in pairwise(times))


@dataclass(slots=True)
class _Unsettled:
    """Answers without a state, one after the other. `newest_ns` is when the last one came."""

    since_ns: int
    newest_ns: int
    ref: Cause


@dataclass(slots=True)
class _Targets:
    """The controllers' terms, and the target states of brokers' processes."""

    terms: Terms = field(default_factory=Terms)
    registered: Registered = field(default_factory=Registered)
    target: dict[str, int] = field(default_factory=dict)
    """process -> the target state in its newest heartbeat."""
    inactive: dict[tuple[int, int], Cause] = field(default_factory=dict)
    """(broker, incarnation) -> the declaration that it is live again."""
    unsettled: dict[tuple[str, str], _Unsettled] = field(default_factory=dict)
    """(controller, broker's process) -> the answers without a state that the process gets."""
    process_of: dict[int, str] = field(default_factory=dict)
    """broker -> its process that was elected last."""
    suspects: list[Deadline] = field(default_factory=list)

    def take(self, event: Event) -> None:
        """Applies an event."""
        self.terms.take(event)
        body = event.body
        if isinstance(body, ControllerBegan):
            self.process_of[body.broker_id] = event.process
        elif isinstance(body, BrokerRegistered):
            self.registered.take(event, body)
        elif isinstance(body, MetadataHeartbeatSent):
            self.target[event.process] = body.target_state

    def wanted(self, event: Event, body: MetadataHeartbeatReceived) -> int | None:
        """The target state of the valid heartbeat that was answered, by the broker's events."""
        own = self.registered.newest_of.get(event.process)
        newest = self.registered.newest.get(body.broker_id)
        # Only the process with the newest registration is the broker, and only a heartbeat of that
        # registration asks for its state.
        if own is None or own is not newest or body.incarnation_id != own.epoch:
            return None
        target = self.target.get(event.process)
        return target if target in TARGETS else None


def _is_current(terms: Terms, event: Event, body: MetadataHeartbeatAnswered) -> Declared | None:
    """The broker's declared state, if the controller accepted its current process's heartbeat."""
    term = terms.now.get(event.process)
    known = term.brokers.get(body.broker_id) if term is not None else None
    current = known is not None and body.error == "NONE" and body.active
    if not current or known is None or known.incarnation != body.incarnation_id:
        return None
    return known if body.known == body.incarnation_id and body.target_state in TARGETS else None


@dataclass(slots=True)
class _Unreturned:
    """The heartbeats that an inactive broker has sent to one controller since it is owed a state,
    one after the other."""

    since_ns: int
    newest_ns: int
    ref: Cause
    times: int = 0
    excuse: Reason | None = None
    """Which fault kept them from their effect."""
    found: bool = False
    """Whether a suspicion or an excuse was kept already."""


@dataclass(slots=True)
class _Returns:
    """The target states, and what is owed to inactive brokers."""

    targets: _Targets = field(default_factory=_Targets)
    away: Away = field(default_factory=Away)
    faults: Excuses = field(default_factory=Excuses)
    owed: dict[tuple[str, str], _Unreturned] = field(default_factory=dict)
    """(controller, broker's process) -> the heartbeats without effect."""

    def take(self, event: Event) -> None:
        """Applies an event."""
        self.targets.take(event)
        self.away.take(event)
        self.faults.take(event)
        body = event.body
        if isinstance(body, ControllerBegan | BrokerDeclared):
            for of in [of for of in self.owed if of[0] == event.process]:
                declared = self._inactive(of)
                if declared is None:
                    del self.owed[of]

    def _inactive(self, of: tuple[str, str]) -> Declared | None:
        """The declaration by which a controller in office has a process's registration inactive."""
        term = self.targets.terms.now.get(of[0])
        own = self.targets.registered.newest_of.get(of[1])
        known = None if term is None or own is None else term.brokers.get(own.broker)
        if known is None or own is None or known.state != "Inactive":
            return None
        newest = self.targets.registered.newest.get(own.broker)
        return known if newest is own and known.incarnation == own.epoch else None

    def _hinders(self, controller: str, process: str) -> Reason | None:
        """Which fault may keep a heartbeat from its effect."""
        for fault in self.faults.now.values():
            servers = sorted(slot for slot in fault.slots if slot.startswith(ROLE))
            if servers and not fault.directions:
                return fault.upon(servers[0])
        among = self.faults.among((controller, process), lambda slot: slot.startswith(ROLE))
        return next((reason for _, reason in among), None)

    def sent(self, event: Event, body: MetadataHeartbeatSent) -> Findings:
        """An inactive broker sends a heartbeat: within a time, it must be declared live."""
        targets = self.targets
        controller = targets.process_of.get(body.controller, "")
        term = targets.terms.now.get(controller)
        of = (controller, event.process)
        known = self._inactive(of)
        newest = max((one.epoch for one in targets.terms.now.values()), default=-1)
        # A controller that does not know of its successor can store no declaration.
        if term is None or known is None or term.epoch < newest:
            self.owed.pop(of, None)
            return NOTHING
        if body.incarnation_id != known.incarnation or body.target_state not in TARGETS:
            return NOTHING
        one = self.owed.get(of)
        # A broker that sent nothing for a while had its reasons, and asks anew.
        if one is None or event.at_ns > one.newest_ns + term.timeout_ns:
            one = self.owed[of] = _Unreturned(event.at_ns, event.at_ns, event.ref)
        one.newest_ns, one.times = event.at_ns, one.times + 1
        bound_ns = term.session_ns + SETTLED_WITHIN_NS
        hindered = self._hinders(controller, event.process)
        if hindered is not None:
            one.excuse = hindered
        if one.found or one.times < RETURNS_BY or event.at_ns <= one.since_ns + bound_ns:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} left broker {broker} inactive for {since_ns}, though {other} sent it "
            "{times} heartbeats",
            (known.ref, one.ref),
            process=process_scope(controller),
            broker=broker_of(body.broker_id),
            since_ns=event.at_ns - one.since_ns,
            other=process_scope(event.process),
            times=one.times,
            epoch=body.incarnation_id,
        )
        if one.excuse is not None:
            excuse, one.excuse = one.excuse, hindered
            # What was hindered begins anew once nothing hinders it.
            one.since_ns, one.ref = event.at_ns, event.ref
            return (Excused.of(broken, excuse),)
        one.found = True
        targets.suspects.append(
            Deadline(
                violated=broken,
                actors=(controller, event.process, *self.away.actors),
                from_ns=one.since_ns,
                to_ns=event.at_ns,
                bound_ns=bound_ns,
                due_ns=one.since_ns + bound_ns,
            )
        )
        return NOTHING


@final
class InactiveReturns(Rule[_Returns]):
    """HB-10. The broker's evidence is its first answer after it was declared live again; and an
    answer without an error, to the newest registration's heartbeat, that calls it inactive.

    The duty begins with what the broker sends, and not with what the controller answers: one that
    answered each heartbeat with an error, or with NOT_CONTROLLER, or not at all, once left a broker
    out for good. The newest controller has the session timeout and six seconds in which the broker
    goes on asking; a fault that acts upon either, upon their link, or upon the way to ZooKeeper,
    excuses that time."""

    clause = "HB-10"
    state = _Returns

    @on(
        *TERM_KINDS,
        *SERVER_KINDS,
        *FAULT_KINDS,
        BrokerRegistered,
        MetadataHeartbeatSent,
        MetadataHeartbeatAnswered,
        MetadataHeartbeatReceived,
    )
    def step(self, returns: _Returns, event: Event, body: Struct) -> Findings:
        returns.take(event)
        state = returns.targets
        match body:
            case MetadataHeartbeatSent():
                return returns.sent(event, body)
            case BrokerDeclared(old="Inactive", reason="heartbeat") if body.new in LIVE:
                state.inactive[body.broker_id, body.incarnation_id] = event.ref
                return (Exercised(event.ref, Evidence.SELF),)
            case MetadataHeartbeatReceived(error="NONE") if body.state in TARGETS:
                ref = state.inactive.pop((body.broker_id, body.incarnation_id), None)
                if ref is not None:
                    return (Exercised(event.ref, Evidence.PEER),)
            case MetadataHeartbeatReceived(error="NONE", state=1):  # inactive
                if state.wanted(event, body) is not None:
                    broken = violated(
                        event.ref,
                        Evidence.PEER,
                        "controller {controller} accepted a heartbeat of {process}, but answered "
                        "that it is inactive",
                        controller=broker_of(body.controller),
                        process=process_scope(event.process),
                        broker=broker_of(body.broker_id),
                    )
                    return (broken,)
            case MetadataHeartbeatAnswered():
                known = _is_current(state.terms, event, body)
                if known is not None and known.state == "Inactive":
                    broken = violated(
                        event.ref,
                        Evidence.SELF,
                        "{process} accepted a heartbeat of {other}, but left broker {broker} "
                        "inactive",
                        (known.ref,),
                        process=process_scope(event.process),
                        other=process_scope(body.client),
                        broker=broker_of(body.broker_id),
                    )
                    return (broken,)
        return NOTHING

    def end(self, state: _Returns, end: RunEnd) -> Findings:
        return judged(state.targets.suspects, state.away.told(end))


@final
class TargetIsReached(Rule[_Targets]):
    """HB-14. The state in the answer must be the target state and the declared state. The broker's
    evidence is the answer to the target state that it sent last, in the heartbeat of its newest
    registration. A controller that has not read the registration answers without a state. It has
    the session timeout and six seconds to read it."""

    clause = "HB-14"
    state = _Targets

    @on(
        *TERM_KINDS,
        BrokerRegistered,
        MetadataHeartbeatSent,
        MetadataHeartbeatAnswered,
        MetadataHeartbeatReceived,
    )
    def step(self, state: _Targets, event: Event, body: Struct) -> Findings:
        state.take(event)
        match body:
            case MetadataHeartbeatReceived():
                return self._received(state, event, body)
            case MetadataHeartbeatAnswered():
                known = _is_current(state.terms, event, body)
                if known is None:
                    return NOTHING
                target = TARGETS[body.target_state]
                if body.state == target == known.state:
                    return (Exercised(event.ref, Evidence.SELF),)
                broken = violated(
                    event.ref,
                    Evidence.SELF,
                    "{process} answered {other}, which targets {expected}, with state {state}, "
                    "while broker {broker} is declared {declared}",
                    (known.ref,),
                    process=process_scope(event.process),
                    other=process_scope(body.client),
                    expected=target,
                    state=body.state,
                    broker=broker_of(body.broker_id),
                    declared=known.state,
                )
                return (broken,)
        return NOTHING

    @staticmethod
    def _received(state: _Targets, event: Event, body: MetadataHeartbeatReceived) -> Findings:
        found = state.process_of.get(body.controller)
        term = state.terms.now.get(found) if found is not None else None
        of = (found or "", event.process)
        if body.error != "NONE" or body.state != STATE_NONE or term is None or found is None:
            state.unsettled.pop(of, None)
        if body.error == "NONE" and body.state and body.state == state.target.get(event.process):
            return (Exercised(event.ref, Evidence.PEER),)
        wanted = state.wanted(event, body) if body.error == "NONE" else None
        if wanted is None:
            return NOTHING
        if body.state != STATE_NONE:
            broken = violated(
                event.ref,
                Evidence.PEER,
                "controller {controller} answered {process}, which targets {expected}, with state "
                "{state}",
                controller=broker_of(body.controller),
                process=process_scope(event.process),
                expected=TARGETS[wanted],
                state=body.state,
                broker=broker_of(body.broker_id),
            )
            return (broken,)
        if term is None or found is None:
            return NOTHING
        one = state.unsettled.get(of)
        # After a gap, a controller may have read the registration, and lost it with a session that
        # ended.
        if one is None or event.at_ns > one.newest_ns + term.timeout_ns:
            one = state.unsettled[of] = _Unsettled(event.at_ns, event.at_ns, event.ref)
        one.newest_ns = event.at_ns
        # The controller may have been without ZooKeeper for the session timeout, as far as others
        # know.
        bound_ns = term.session_ns + SETTLED_WITHIN_NS
        if event.at_ns > one.since_ns + bound_ns:
            broken = violated(
                event.ref,
                Evidence.PEER,
                "{process} answered the heartbeats of {other} without a state for {since_ns}",
                (one.ref,),
                process=process_scope(found),
                other=process_scope(event.process),
                since_ns=event.at_ns - one.since_ns,
                broker=broker_of(body.broker_id),
            )
            due_ns = one.since_ns + bound_ns
            late = Deadline(
                broken, (found,), one.since_ns, event.at_ns, bound_ns=bound_ns, due_ns=due_ns
            )
            state.suspects.append(late)
        return NOTHING

    def end(self, state: _Targets, end: RunEnd) -> Findings:
        return judged(state.suspects, end)
