"""Heartbeat sessions: a broker goes back to Fenced when its session has run out, and a new active
controller restarts every session."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct, structs

from fencepost import (
    HARNESS,
    MS,
    NOTHING,
    Cause,
    Deadline,
    Event,
    Evidence,
    Exercised,
    Findings,
    NodeStarted,
    ProcessExited,
    Rule,
    RunEnd,
    Violated,
    judged,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    BrokerCommitted,
    BrokerDeleted,
    BrokerStateChanged,
    BrokerStopping,
    ControllerElected,
    HeartbeatAnswered,
    HeartbeatSent,
    LeaseExpired,
    LeaseGranted,
    MetadataCommitted,
    ProbeCompleted,
    RequestRefused,
    VoteAnswered,
    broker_of,
)
from fencepost_kafka.committed import Brokers
from fencepost_kafka.vocabulary import FOR_CLIENTS
from fencepost_suites.brokers.exchanges import Exchanges
from fencepost_suites.brokers.fencing import Serving
from fencepost_suites.brokers.leases import period_ns_of
from fencepost_suites.common.keys import by_slot_living


@dataclass(slots=True)
class _Session:
    """A process of a slot, and its session by the answers it received."""

    serving: Serving
    period_ns: int = 0
    ran_out: bool = False
    """Whether the process is fenced because its session ran out."""

    @property
    def slack_ns(self) -> int:
        """How late a process on a busy machine may notice the end of its session."""
        return self.period_ns // 10 + 100 * MS

    def over_ns(self, at_ns: int) -> int:
        """How long the session was over at that time; 0 while the process may not have noticed
        yet."""
        over_ns = at_ns - self.serving.ends_ns
        return over_ns if self.serving.granted and over_ns > self.slack_ns else 0


@dataclass(slots=True)
class _Sessions:
    """The processes of a slot. A former one may still run when the next one has begun."""

    processes: dict[str, _Session] = field(default_factory=dict)
    newest: _Session = field(default_factory=lambda: _Session(Serving()))
    """That of the process which answers whoever asks the slot."""
    given_ns: int = 0
    """The period that a controller has named last, in an answer to one of them."""
    suspects: list[Deadline] = field(default_factory=list)

    def of(self, process: str) -> _Session:
        """The session of a process."""
        known = self.processes.get(process)
        if known is None:
            known = self.processes[process] = self.newest = _Session(Serving(process))
        return known


@final
class EndedSessionFences(Rule[_Sessions]):
    """REG-06. A session lasts one period from the answer that granted it; the period is the
    controllers' word, and not only that of the broker. The best evidence is a probe that was sent
    after the session ended, and whether it was answered. A tenth of the period and 100 ms are
    allowed for noticing the end; and a whole period to one that ended before it had."""

    clause = "REG-06"
    keys = staticmethod(by_slot_living)
    state = _Sessions

    @on(
        *(NodeStarted, HeartbeatAnswered, LeaseGranted, BrokerStateChanged),
        *(RequestRefused, ProbeCompleted, ProcessExited),
    )
    def step(self, state: _Sessions, event: Event, body: Struct) -> Findings:
        match body:
            case ProbeCompleted():
                return self._probed(state, event, body)
            case HeartbeatAnswered():
                if body.error == "NONE":
                    state.given_ns = body.lease_period_ms * MS
                return NOTHING
            case ProcessExited():
                self._ended(state, body.ended, event)
                return NOTHING
        session = state.of(event.process)
        serving = session.serving
        match body:
            case LeaseGranted(next_state="ACTIVE"):
                self._stayed(state, session, event.at_ns, event.ref)
                session.period_ns = period_ns_of(body, state.given_ns)
                # From the answer on, which is later than the lease that the broker itself counts
                # from its sending: this clause promises no more.
                serving.ends_ns, serving.granted = event.at_ns + session.period_ns, event.ref
            case BrokerStateChanged():
                stayed = self._stayed(state, session, event.at_ns, event.ref)
                serving.changed(event, body)
                session.ran_out = body.reason == "lease_expired"
                if session.ran_out and not stayed:
                    return (Exercised(event.ref, Evidence.SELF),)
            case RequestRefused():
                serving.refuses(event, body)
        return NOTHING

    def _ended(self, state: _Sessions, process: str, event: Event) -> None:
        session = state.processes.get(process)
        if session is None:
            return
        # It cannot say any more that it stood still: it is allowed a whole period.
        if event.at_ns > session.serving.ends_ns + session.period_ns:
            self._stayed(state, session, event.at_ns, event.ref, actors=(HARNESS,))
        session.serving.active = False

    @staticmethod
    def _stayed(
        state: _Sessions, session: _Session, at_ns: int, at: Cause, *, actors: tuple[str, ...] = ()
    ) -> bool:
        """Whether the process is Online although its session has been over for longer than
        allowed."""
        serving = session.serving
        over_ns = session.over_ns(at_ns)
        if not (serving.active and over_ns):
            return False
        broken = violated(
            at,
            Evidence.SELF,
            "{process} was active {after_ns} after its session ran out",
            (serving.granted,) if serving.granted else (),
            process=process_scope(serving.process),
            after_ns=over_ns,
        )
        state.suspects.append(
            Deadline(
                violated=broken,
                actors=(serving.process, *actors),
                from_ns=serving.ends_ns,
                to_ns=at_ns,
                # So that a stall of a tenth of this, nearly the whole delay, is needed to excuse
                # it.
                bound_ns=over_ns * 9,
                due_ns=serving.ends_ns,
            )
        )
        return True

    @staticmethod
    def _probed(state: _Sessions, event: Event, body: ProbeCompleted) -> Findings:
        session, serving = state.newest, state.newest.serving
        refused = serving.lost is not None and serving.refused_probe(event, body)
        if refused and session.ran_out and body.sent_at_ns > serving.lost_ns:
            return (Exercised(event.ref, Evidence.CLIENT),)
        over_ns = session.over_ns(body.sent_at_ns)
        if body.outcome != "answered" or not over_ns or body.api not in FOR_CLIENTS:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.CLIENT,
            "{process} answered a {api} of {client} sent {after_ns} after its session ran out",
            (serving.granted,) if serving.granted else (),
            process=process_scope(serving.process),
            api=body.api,
            client=process_scope(event.process),
            after_ns=over_ns,
        )
        state.suspects.append(
            Deadline(
                broken,
                (serving.process,),
                serving.ends_ns,
                body.sent_at_ns,
                over_ns * 9,
                omission=False,
            )
        )
        return NOTHING

    def end(self, state: _Sessions, end: RunEnd) -> Findings:
        for session in state.processes.values():
            granted = session.serving.granted
            if granted is not None:
                self._stayed(state, session, end.ended_at_ns, granted)
        return judged(state.suspects, end)


@dataclass(slots=True)
class _Takeover:
    """The newest active controller, and the brokers to which it owes a full period."""

    brokers: Brokers = field(default_factory=Brokers)
    process: str = ""
    epoch: int = -1
    elected_ns: int = 0
    elected: Cause | None = None
    owed: set[int] = field(default_factory=set)
    early: dict[int, Violated] = field(default_factory=dict)
    """broker -> what is wrong with the end of its lease, at the event of that end."""
    fenced_ns: dict[int, int] = field(default_factory=dict)
    """broker -> when the record was replayed that ended its lease, if no controller told that it
    expired."""
    by_record: list[tuple[int, int, Violated]] = field(default_factory=list)
    """Broker, time and violation of such records, unless a heartbeat of before is refused after."""
    written: dict[str, tuple[int, int]] = field(default_factory=dict)
    """process -> the record that it has named last: offset, and epoch of the writer."""
    voted: tuple[int, int, Cause | None] = (-1, 0, None)
    """The newest epoch in which a voter gave its vote, when the first one did, and that event."""
    incarnations: dict[int, str] = field(default_factory=dict)
    """broker -> the incarnation in its newest record."""
    stopping: set[int] = field(default_factory=set)
    exchanges: Exchanges = field(default_factory=Exchanges)
    periods: dict[str, int] = field(default_factory=dict)
    """process -> the longest lease that it has told."""

    def told(self, process: str, period_ms: int) -> None:
        """A controller names how long a lease is."""
        self.periods[process] = max(period_ms * MS, self.periods.get(process, 0))

    @property
    def period_ns(self) -> int:
        """How long a lease of the controller is: no shorter than it has ever told, nor than all
        others have, since a controller that names a short one would be free to fence at once."""
        own_ns = self.periods.get(self.process, 0)
        others = [ns for process, ns in self.periods.items() if process != self.process]
        return max(own_ns, min(others, default=0))

    def begin(self, epoch: int, process: str, elected_ns: int, elected: Cause | None) -> None:
        """Another controller took over: it owes a period to each broker that is not fenced."""
        self.epoch, self.process = epoch, process
        self.elected_ns, self.elected = elected_ns, elected
        self.owed = {b for b, one in self.brokers.newest.items() if not one.fenced}

    def accused(self, broker: int) -> str:
        """The process that is no witness of the end of that lease: the controller, or the one that
        showed the record first, where it is not known which process is the controller."""
        return self.process or self.early[broker].at.process

    def tell(self, broker: int, at: Cause | None, evidence: Evidence) -> Findings:
        """The finding about a lease that a controller ended too early. By a record alone it may
        still come out that the controller refused to renew the lease."""
        found = self._broken(broker, at, evidence)
        fenced_ns = self.fenced_ns.pop(broker, None)
        if fenced_ns is None:
            return (found,)
        self.by_record.append((broker, fenced_ns, found))
        return NOTHING

    def _broken(self, broker: int, at: Cause | None, evidence: Evidence) -> Violated:
        found = self.early.pop(broker)
        because = (self.elected,) if self.elected else ()
        if at is None or at == found.at:
            return structs.replace(found, evidence=evidence, because=because)
        because = (*because, found.at)
        return structs.replace(found, at=at, evidence=evidence, because=because)

    def refused(self, body: HeartbeatAnswered) -> None:
        """A controller refuses to renew a lease. One that fences a broker by that, as it is far
        behind or lacks a feature, answers once the record is stored."""
        asked = self.exchanges.of.get(body.client, {}).get(body.lease_start_ms)
        sent_ns = 0 if asked is None or asked.request is None else asked.request.at_ns
        came_ns, broker = max(sent_ns, body.received_at_ns), body.broker_id
        self.by_record = [one for one in self.by_record if one[0] != broker or came_ns > one[1]]
        if came_ns <= self.fenced_ns.get(broker, -1):
            del self.fenced_ns[broker], self.early[broker]

    def ended(self) -> Findings:
        """What nobody has explained by the end of a term, or of the run."""
        return tuple(one for b in sorted(self.early) for one in self.tell(b, None, Evidence.SELF))


@final
class FullPeriodAtTakeover(Rule[_Takeover]):
    """QC-31. The broker's evidence is the first lease from the new controller, if that gave it,
    and if it was not fenced in between. A peer's is the fencing record: the log names the epoch of
    its writer, so a record of the new controller for a process that neither stops nor has
    registered anew needs no further witness. Where a controller does not say that it was elected,
    a record of its epoch does: it was elected after the first vote in that epoch. A tenth of the
    period is allowed for clock differences. A lease that it refuses to renew has not run out."""

    clause = "QC-31"
    state = _Takeover

    @on(
        ControllerElected,
        LeaseExpired,
        LeaseGranted,
        BrokerCommitted,
        MetadataCommitted,
        HeartbeatAnswered,
        HeartbeatSent,
        BrokerStopping,
        BrokerDeleted,
        VoteAnswered,
    )
    def step(self, state: _Takeover, event: Event, body: Struct) -> Findings:
        match body:
            case ControllerElected() if body.epoch > state.epoch:
                found = state.ended()
                state.begin(body.epoch, event.process, event.at_ns, event.ref)
                return found
            case ControllerElected() if body.epoch == state.epoch and not state.process:
                state.process = event.process
            case VoteAnswered(granted=True) if body.epoch > state.voted[0]:
                state.voted = body.epoch, event.at_ns, event.ref
            case MetadataCommitted():
                state.written[event.process] = body.offset, body.epoch
                voted, voted_ns, vote = state.voted
                # A committed record of an epoch shows its controller, even one that does not say
                # that it was elected. It cannot have been elected before the first vote.
                if body.epoch == voted > state.epoch:
                    state.begin(voted, "", voted_ns, vote)
            case HeartbeatAnswered():
                state.told(event.process, body.lease_period_ms)
                if body.error == "NONE":
                    state.exchanges.answered(event, body)
                elif body.active and body.incarnation == state.incarnations.get(body.broker_id):
                    state.refused(body)
            case HeartbeatSent():
                state.exchanges.sent(event, body)
                if body.target_state == "SHUTDOWN":
                    state.stopping.add(body.broker_id)
            case BrokerStopping():
                state.stopping.add(body.broker_id)
            case LeaseExpired():
                state.told(event.process, body.lease_period_ms)
                if body.controller_epoch == state.epoch:
                    return self._expired(state, event, body)
            case BrokerCommitted():
                return self._committed(state, event, body)
            case BrokerDeleted() if state.brokers.forget(body):
                # Its process registers anew, and no record fences it before that.
                state.owed.discard(body.broker_id)
            case LeaseGranted(next_state="ACTIVE") if body.controller_epoch == state.epoch:
                if body.broker_id in state.owed and self._given(state, event, body):
                    state.owed.discard(body.broker_id)
                    return (Exercised(event.ref, Evidence.PEER),)
        return NOTHING

    @staticmethod
    def _given(state: _Takeover, event: Event, body: LeaseGranted) -> bool:
        """Whether a controller tells that it gave the lease, if any tells of answers."""
        taken = state.exchanges.granted(event, body)
        told = state.exchanges.is_borne_out(taken, event.process, body.lease_start_ms)
        return told or not state.exchanges.answering

    @staticmethod
    def _expired(state: _Takeover, event: Event, body: LeaseExpired) -> Findings:
        if body.broker_id not in state.owed or event.process != state.process:
            return NOTHING
        state.owed.discard(body.broker_id)
        after_ns = event.at_ns - state.elected_ns
        if after_ns >= state.period_ns * 9 // 10:
            return (Exercised(event.ref, Evidence.SELF),)
        state.early[body.broker_id] = violated(
            event.ref,
            Evidence.SELF,
            "{process} fenced broker {broker} {after_ns} after its election, though the lease is "
            "{bound_ns}",
            process=process_scope(event.process),
            broker=broker_of(body.broker_id),
            after_ns=after_ns,
            bound_ns=state.period_ns,
            epoch=state.epoch,
        )
        return NOTHING

    @staticmethod
    def _committed(state: _Takeover, event: Event, body: BrokerCommitted) -> Findings:
        news, _ = state.brokers.take(body)
        broker = body.broker_id
        if news:
            # The record of another process: the old one was replaced, and no lease of it was cut
            # short.
            anew = state.incarnations.get(broker) != body.incarnation
            state.incarnations[broker] = body.incarnation
            if anew:
                state.stopping.discard(broker)
        if not body.fenced:
            return NOTHING
        if news and broker in state.owed and not anew and broker not in state.stopping:
            FullPeriodAtTakeover._fenced(state, event, body)
        if news:
            state.owed.discard(broker)
        # Another node has replayed the fencing record, so the accusation does not rest on the
        # controller's own word.
        if broker in state.early and event.process != state.accused(broker):
            return state.tell(broker, event.ref, Evidence.PEER)
        return NOTHING

    @staticmethod
    def _fenced(state: _Takeover, event: Event, body: BrokerCommitted) -> None:
        """A record that the new controller has written fences a process that it owes a period."""
        after_ns = event.at_ns - state.elected_ns
        by_new = state.written.get(event.process) == (body.offset, state.epoch)
        if by_new and after_ns < state.period_ns * 9 // 10:
            state.fenced_ns[body.broker_id] = event.at_ns
            state.early[body.broker_id] = violated(
                event.ref,
                Evidence.PEER,
                "the record at {offset} of controller epoch {epoch} fences broker {broker} "
                "{after_ns} after the election, though the lease is {bound_ns}",
                offset=body.offset,
                epoch=state.epoch,
                broker=broker_of(body.broker_id),
                after_ns=after_ns,
                bound_ns=state.period_ns,
            )

    def end(self, state: _Takeover, end: RunEnd) -> Findings:
        told = state.ended()
        return (*told, *(one for _, _, one in state.by_record))
