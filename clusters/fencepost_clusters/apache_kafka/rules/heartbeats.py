"""Rules about heartbeats as controllers answer them (KR-18, KR-19, QC-16, QC-22, REG-04).

A controller logs an answer once it is sent, with the time when the heartbeat came in. So what the
broker does by the answer may be logged before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    MS,
    NOTHING,
    OBSERVERS,
    SECOND,
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
    ProcessExited,
    Rule,
    RunEnd,
    Undecided,
    judged,
    on,
    process_scope,
    violated,
)
from fencepost_clusters.apache_kafka.rules.keys import KRAFT
from fencepost_kafka import (
    BrokerCommitted,
    BrokerStateChanged,
    ControllerElected,
    ControllerResigned,
    HeartbeatAnswered,
    LeaseExpired,
    MetadataApplied,
    MetadataCommitted,
    broker_of,
)
from fencepost_kafka.judging.owed import HEARTBEATS, IMAGES, TERMS

LOGGED_WITHIN_NS = SECOND
"""A controller that lives on logs an answer this soon after it is sent."""
SLACK_NS = 100 * MS
"""What comes in is dated by the end of its answer: it may be this much older."""
DEPOSED_WITHIN_NS = 10 * SECOND
"""How long a controller may act on after another one was elected in a higher epoch. The new one
tells every voter, and asks again two seconds later (`quorum.request.timeout.ms`) if it has no
answer; one that hears from no majority resigns by itself within 1.5 fetch timeouts."""
_CONTROLLER = "controller-"


@dataclass(slots=True)
class _Unfenced:
    """The answers by which brokers may run, and the brokers that run without one so far."""

    unfencing: dict[tuple[int, int], HeartbeatAnswered] = field(default_factory=dict)
    """id and epoch of a broker -> the first answer that unfences it."""
    running: dict[tuple[int, int], Event] = field(default_factory=dict)
    ended: list[int] = field(default_factory=list)
    """When processes of controllers ended."""
    open: bool = False
    """Whether controllers log heartbeats: histories of before they did prove nothing."""


def _note(state: _Unfenced, event: Event, body: HeartbeatAnswered) -> Event | None:
    """Notes an answer that unfences a broker; returns the event of that broker, if it runs."""
    key = body.broker_id, body.request_epoch
    # The first answer counts: later ones only keep the broker as it is.
    if body.error != "NONE" or body.next_state != "ACTIVE" or key in state.unfencing:
        return None
    state.unfencing[key] = body
    return state.running.pop(key, None)


@final
class RunsOnceTold(Rule[_Unfenced]):
    """QC-16. The controller's evidence: an answer to a heartbeat of the broker's epoch unfenced it.
    Exercised by each process that begins to run. A heartbeat came in earlier than it is dated, by
    `SLACK_NS` at most. A controller that ends right before or after may not have logged its
    answer."""

    clause = "QC-16"
    planes = KRAFT
    absence = (HEARTBEATS,)
    state = _Unfenced

    @on(BrokerStateChanged, HeartbeatAnswered, ProcessExited)
    def step(self, state: _Unfenced, event: Event, body: Struct) -> Findings:
        match body:
            case HeartbeatAnswered():
                state.open = True
                runs = _note(state, event, body)
                if runs is not None:
                    return self._judge(runs, body)
            case BrokerStateChanged(new="ACTIVE", old=old) if old != "ACTIVE":
                key = body.broker_id, body.broker_epoch
                answer = state.unfencing.get(key)
                if answer is not None:
                    return self._judge(event, answer)
                state.running[key] = event
            case ProcessExited() if body.ended.startswith(_CONTROLLER):
                state.ended.append(event.at_ns)
        return NOTHING

    @staticmethod
    def _judge(runs: Event, answer: HeartbeatAnswered) -> Findings:
        if answer.received_at_ns <= runs.at_ns + SLACK_NS:
            return (Exercised(runs.ref, Evidence.PEER),)
        early = violated(
            runs.ref,
            Evidence.PEER,
            "{process} ran before the heartbeat came in that the controller answered with "
            "unfencing broker {broker}",
            process=process_scope(runs.process),
            broker=broker_of(answer.broker_id),
        )
        return (early,)

    def end(self, state: _Unfenced, end: RunEnd) -> Findings:
        found: list[Finding] = []
        for (broker, epoch), runs in state.running.items() if state.open else ():
            never = violated(
                runs.ref,
                Evidence.PEER,
                "{process} ran as broker {broker}, epoch {epoch}, and no controller had answered a "
                "heartbeat of it with unfencing it",
                process=process_scope(runs.process),
                broker=broker_of(broker),
                epoch=epoch,
            )
            # A controller that ended about then may have answered and ended before it logged that.
            lost = any(
                -LOGGED_WITHIN_NS <= at - runs.at_ns <= 2 * LOGGED_WITHIN_NS for at in state.ended
            )
            soon = end.ended_at_ns - runs.at_ns <= LOGGED_WITHIN_NS
            if lost or soon or not end.complete:
                found.append(Undecided.of(never))
            else:
                found.append(never)
        return found


@dataclass(slots=True)
class _CaughtUp:
    unfenced: _Unfenced = field(default_factory=_Unfenced)
    applied: dict[str, int] = field(default_factory=dict)
    """process -> the metadata offset that it has applied."""


@final
class RunsOnceCaughtUp(Rule[_CaughtUp]):
    """REG-04. A broker's epoch is the offset of its registration. The broker's word is what it has
    applied when it begins to run; the controller's is what the heartbeat named that it answered
    with unfencing. Exercised by each process that begins to run."""

    clause = "REG-04"
    planes = KRAFT
    absence = (IMAGES,)
    state = _CaughtUp

    @on(BrokerStateChanged, HeartbeatAnswered, MetadataApplied)
    def step(self, state: _CaughtUp, event: Event, body: Struct) -> Findings:
        match body:
            case MetadataApplied():
                state.applied[event.process] = body.offset
            case HeartbeatAnswered():
                if (body.broker_id, body.request_epoch) not in state.unfenced.unfencing:
                    runs = _note(state.unfenced, event, body)
                    return self._answered(event, body, runs)
            case BrokerStateChanged(new="ACTIVE", old=old) if old != "ACTIVE":
                key = body.broker_id, body.broker_epoch
                applied = state.applied.get(event.process, -1)
                if applied < body.broker_epoch:
                    behind = violated(
                        event.ref,
                        Evidence.SELF,
                        "{process} runs with the metadata up to offset {applied}, and its "
                        "registration is at offset {offset}",
                        process=process_scope(event.process),
                        applied=applied,
                        offset=body.broker_epoch,
                    )
                    return (behind,)
                if key in state.unfenced.unfencing:
                    return (Exercised(event.ref, Evidence.PEER),)
                state.unfenced.running[key] = event
        return NOTHING

    @staticmethod
    def _answered(event: Event, body: HeartbeatAnswered, runs: Event | None) -> Findings:
        if body.error != "NONE" or body.next_state != "ACTIVE":
            return NOTHING
        if body.metadata_offset < body.request_epoch:
            behind = violated(
                event.ref,
                Evidence.PEER,
                "{process} unfenced broker {broker}, which had the metadata up to offset "
                "{applied}; its registration is at {offset}",
                process=process_scope(event.process),
                broker=broker_of(body.broker_id),
                applied=body.metadata_offset,
                offset=body.request_epoch,
            )
            return (behind,)
        return (Exercised(runs.ref, Evidence.PEER),) if runs is not None else NOTHING


@dataclass(frozen=True, slots=True)
class _Begin:
    """What a session counts from."""

    at_ns: int
    ref: Cause
    session_ns: int = 0
    """How long it is, by the answer to the heartbeat (0: there was none)."""


@dataclass(slots=True)
class _Sessions:
    heard: dict[tuple[str, int], _Begin] = field(default_factory=dict)
    """controller process and broker -> the last heartbeat that it accepted in its term."""
    elected: dict[str, tuple[int, _Begin]] = field(default_factory=dict)
    """controller process -> the epoch of its newest term, and its election."""
    early: list[Deadline] = field(default_factory=list)


@final
class SessionLastsItsTime(Rule[_Sessions]):
    """KR-18. The end of a session is the controller's word, and so is the heartbeat; how long a
    session is, its answer says. A controller that has accepted none since its election counts from
    that. Exercised by each session that ends."""

    clause = "KR-18"
    state = _Sessions

    @on(HeartbeatAnswered, LeaseExpired, ControllerElected)
    def step(self, state: _Sessions, event: Event, body: Struct) -> Findings:
        match body:
            case ControllerElected(epoch=epoch):
                # A line about an earlier term, which is read late, begins no session.
                if epoch >= state.elected.get(event.process, (-1,))[0]:
                    state.elected[event.process] = epoch, _Begin(event.at_ns, event.ref)
                    # A new term counts every session from its own beginning.
                    state.heard = {k: v for k, v in state.heard.items() if k[0] != event.process}
            case HeartbeatAnswered(error="NONE"):
                heard = _Begin(body.received_at_ns, event.ref, body.lease_period_ms * MS)
                state.heard[event.process, body.broker_id] = heard
            case LeaseExpired():
                # Without a heartbeat or an election that is known, nothing says since when the
                # session counts.
                _, elected = state.elected.get(event.process, (-1, None))
                begun = state.heard.pop((event.process, body.broker_id), None) or elected
                if begun is not None:
                    return self._ended(state, event, body, begun)
        return NOTHING

    @staticmethod
    def _ended(state: _Sessions, event: Event, body: LeaseExpired, begun: _Begin) -> Findings:
        # The line of the end may name a shorter session than the one that was promised.
        session_ns = begun.session_ns or body.lease_period_ms * MS
        silent_ns = event.at_ns - begun.at_ns
        if silent_ns + SLACK_NS >= session_ns:
            return (Exercised(event.ref, Evidence.SELF),)
        since = "a heartbeat that it accepted" if begun.session_ns else "its election"
        early = violated(
            event.ref,
            Evidence.SELF,
            "{process} ended the session of broker {broker} {silent_ms} ms after "
            + since
            + "; a session is {session_ms} ms",
            (begun.ref,),
            process=process_scope(event.process),
            broker=broker_of(body.broker_id),
            silent_ms=silent_ns // MS,
            session_ms=session_ns // MS,
        )
        state.early.append(
            Deadline(
                early,
                (event.process, *OBSERVERS),
                begun.at_ns,
                event.at_ns,
                session_ns,
                omission=False,
            )
        )
        return NOTHING

    def end(self, state: _Sessions, end: RunEnd) -> Findings:
        return judged(state.early, end)


@dataclass(slots=True)
class _Registered:
    epochs: dict[str, tuple[int, int]] = field(default_factory=dict)
    """observer -> the offset and the controller epoch of the newest record that it read."""
    newest: dict[int, tuple[int, int, int, Cause]] = field(default_factory=dict)
    """broker -> the epoch of its newest registration, the controller epoch in which that was
    written, when it was read, and the event."""


@final
class FormerEpochRefused(Rule[_Registered]):
    """KR-19. The records, read by a peer, say which registration is the newest. A controller of an
    older epoch than the one that wrote it does not know it. Exercised by a refusal."""

    clause = "KR-19"
    state = _Registered

    @on(HeartbeatAnswered, BrokerCommitted, MetadataCommitted)
    def step(self, state: _Registered, event: Event, body: Struct) -> Findings:
        match body:
            case MetadataCommitted():
                state.epochs[event.process] = body.offset, body.epoch
            case BrokerCommitted():
                known = state.newest.get(body.broker_id)
                if known is None or body.broker_epoch > known[0]:
                    offset, epoch = state.epochs.get(event.process, (-1, -1))
                    writer = epoch if offset == body.offset else 1 << 62
                    state.newest[body.broker_id] = (
                        body.broker_epoch,
                        writer,
                        event.at_ns,
                        event.ref,
                    )
            case HeartbeatAnswered(active=True):
                return self._answered(state, event, body)
        return NOTHING

    @staticmethod
    def _answered(state: _Registered, event: Event, body: HeartbeatAnswered) -> Findings:
        known = state.newest.get(body.broker_id)
        if known is None or body.request_epoch >= known[0]:
            return NOTHING
        newest, writer, read_ns, ref = known
        if body.error == "STALE_BROKER_EPOCH":
            return (Exercised(event.ref, Evidence.PEER),)
        after = body.received_at_ns > read_ns and body.controller_epoch >= writer
        if body.error != "NONE" or not after:
            return NOTHING
        stale = violated(
            event.ref,
            Evidence.PEER,
            "{process} accepted a heartbeat of broker {broker} with epoch {epoch}, after epoch "
            "{newest} had been registered",
            (ref,),
            process=process_scope(event.process),
            broker=broker_of(body.broker_id),
            epoch=body.request_epoch,
            newest=newest,
        )
        return (stale,)


@dataclass(frozen=True, slots=True)
class _Term:
    epoch: int
    since_ns: int
    ref: Cause


@dataclass(slots=True)
class _Terms:
    active: dict[str, _Term] = field(default_factory=dict)
    """Each process that was elected, and has neither resigned nor ended -> its newest term."""
    resigned: dict[str, tuple[int, Cause]] = field(default_factory=dict)
    """process -> when it resigned last."""
    faults: Excuses = field(default_factory=Excuses)
    suspects: list[Deadline] = field(default_factory=list)

    def learn(self, event: Event) -> None:
        """Applies an event that begins or ends a term, or a fault."""
        process, body = event.process, event.body
        match body:
            # A line about a former term, which is read late, changes nothing in the present one.
            case ControllerElected(epoch=epoch) if epoch >= self._epoch(process):
                self.active[process] = _Term(epoch, event.at_ns, event.ref)
            case ControllerResigned(epoch=epoch) if epoch >= self._epoch(process):
                self.active.pop(process, None)
                self.resigned[process] = event.at_ns, event.ref
            case ProcessExited(ended=ended):
                self.active.pop(ended, None)
            case FaultInjected() | FaultHealed():
                self.faults.take(event)

    def _epoch(self, process: str) -> int:
        return self.active[process].epoch if process in self.active else -1

    def deposed(self, process: str) -> tuple[str, _Term, int] | None:
        """Another process that is active in a higher epoch than this one, its term, and since when
        it could tell this one; None: there is no such process, or a fault keeps the two apart."""
        own = self.active[process]
        other, newest = max(self.active.items(), key=lambda one: one[1].epoch)
        since_ns = max(own.since_ns, newest.since_ns)
        if newest.epoch <= own.epoch or self.faults.on(process, other):
            return None
        for fault in self.faults.since(since_ns):
            if fault.hits(process) or fault.hits(other) or fault.between(process, other):
                since_ns = max(since_ns, fault.ended_ns or 0)
        return other, newest, since_ns


@final
class OnlyActiveAccepts(Rule[_Terms]):
    """QC-22. A heartbeat that came in while the controller was active may be answered later. A
    controller that does not say that it resigned is judged, too, by the election of another one in
    a higher epoch: `DEPOSED_WITHIN_NS` later it must know, unless a fault acted upon either of
    them or upon their link since, or the other one has resigned or ended. Exercised by each
    heartbeat that a controller refuses because it is not active."""

    clause = "QC-22"
    planes = KRAFT
    absence = (TERMS,)
    state = _Terms

    @on(
        HeartbeatAnswered,
        ControllerElected,
        ControllerResigned,
        ProcessExited,
        FaultInjected,
        FaultHealed,
    )
    def step(self, state: _Terms, event: Event, body: Struct) -> Findings:
        if not isinstance(body, HeartbeatAnswered):
            state.learn(event)
        elif body.error == "NONE":
            if event.process in state.active:
                self._deposed(state, event, body)
            else:
                self._accepted(state, event, body)
        elif body.error == "NOT_CONTROLLER" and event.process not in state.active:
            return (Exercised(event.ref, Evidence.SELF),)
        return NOTHING

    @staticmethod
    def _accepted(state: _Terms, event: Event, body: HeartbeatAnswered) -> None:
        resigned_ns, ref = state.resigned.get(event.process, (0, None))
        if body.received_at_ns <= resigned_ns + SLACK_NS:
            return
        accepted = violated(
            event.ref,
            Evidence.SELF,
            "{process}, not the active controller, accepted a heartbeat of broker {broker}",
            () if ref is None else (ref,),
            process=process_scope(event.process),
            broker=broker_of(body.broker_id),
        )
        from_ns = body.received_at_ns - SECOND
        state.suspects.append(
            Deadline(accepted, (event.process, *OBSERVERS), from_ns, event.at_ns, SECOND)
        )

    @staticmethod
    def _deposed(state: _Terms, event: Event, body: HeartbeatAnswered) -> None:
        """By its own word it is active. Another one may have been elected since: one that logs no
        resignation would else accept heartbeats for good."""
        deposed = state.deposed(event.process)
        if deposed is None:
            return
        other, term, since_ns = deposed
        if body.received_at_ns <= since_ns + DEPOSED_WITHIN_NS + SLACK_NS:
            return
        accepted = violated(
            event.ref,
            Evidence.PEER,
            "{process} accepted a heartbeat of broker {broker} {after_ns} after {elected} was "
            "elected in epoch {epoch}",
            (term.ref,),
            process=process_scope(event.process),
            broker=broker_of(body.broker_id),
            after_ns=body.received_at_ns - term.since_ns,
            elected=process_scope(other),
            epoch=term.epoch,
        )
        actors = event.process, other, *OBSERVERS
        state.suspects.append(
            Deadline(accepted, actors, since_ns, body.received_at_ns, DEPOSED_WITHIN_NS)
        )

    def end(self, state: _Terms, end: RunEnd) -> Findings:
        return judged(state.suspects, end)
