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
    Findings,
    ProcessExited,
    Reason,
    Rule,
    RunEnd,
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
from fencepost_suites.heartbeats.departures import (
    DEPARTURE_KINDS,
    Departures,
    Left,
    wrongly_left,
)
from fencepost_suites.heartbeats.terms import LIVE, TERM_KINDS, Declared, Terms
from fencepost_suites.heartbeats.without_servers import ROLE, SERVER_KINDS, Away


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
