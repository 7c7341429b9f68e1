"""What a broker over ZooKeeper does after an accepted or a refused heartbeat (KIP-343)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
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
    FaultHealed,
    FaultInjected,
    Findings,
    NodeStopped,
    ProcessExited,
    Reason,
    Rule,
    RunEnd,
    Violated,
    judged,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    BrokerStateChanged,
    FetchServed,
    LogAppended,
    MetadataHeartbeatAnswered,
    MetadataHeartbeatReceived,
    MetadataHeartbeatSent,
    SessionChanged,
    broker_of,
)
from fencepost_suites.heartbeats.fencing import LIFE_KINDS, Contact
from fencepost_suites.heartbeats.targets import TARGETS
from fencepost_suites.heartbeats.terms import LIVE

STAYED_FENCED = "had a heartbeat accepted, but stayed fenced for"
WENT_ON = "had a heartbeat refused, but went on as active for"
REACTS_WITHIN_NS = 1_000 * MS
"""How long a broker may take to react to an answer that it has received."""
UNRECORDED_FOR_NS = 5_000 * MS
UNRECORDED_TIMES = 3
"""For how long, and how often, a controller must have answered a broker that records no answer.
Without a fault at either, an answer is lost only by chance."""


@dataclass(slots=True)
class _Unrecorded:
    """A controller's answers to a broker's process, by the controller's events alone."""

    since_ns: int
    ref: Cause
    excuse: Reason | None
    """Which fault may have lost the answers; None: none."""
    times: int = 1


@dataclass(slots=True)
class _Reaction:
    """A broker's process, and an answer to which it has not reacted yet."""

    contact: Contact = field(default_factory=Contact)
    open: Cause | None = None
    open_ns: int = 0
    disowned: bool = False
    """Whether the process has learnt that another process has its id."""
    unrecorded: _Unrecorded | None = None

    def hold(self, event: Event) -> None:
        """The process has received an answer to which it must react."""
        self.open, self.open_ns = event.ref, event.at_ns


@dataclass(slots=True)
class _Reactions:
    """The brokers' processes."""

    of: defaultdict[str, _Reaction] = field(default_factory=lambda: defaultdict(_Reaction))
    faults: Excuses = field(default_factory=Excuses)
    suspects: list[Deadline] = field(default_factory=list)

    def process(self, event: Event) -> tuple[str, _Reaction]:
        """The broker's process that an event concerns."""
        body = event.body
        name = event.process
        if isinstance(body, ProcessExited):
            name = body.ended
        elif isinstance(body, MetadataHeartbeatAnswered):
            name = body.client
        return name, self.of[name]

    def close(self, name: str, one: _Reaction, at_ns: int, did: str) -> Cause | None:
        """Ends the wait for a reaction, and judges how long it took; returns the answer that it was
        about. `did` is what the process did instead."""
        answer, one.open, one.unrecorded = one.open, None, None
        if answer is not None and at_ns > one.open_ns + REACTS_WITHIN_NS:
            broken = violated(
                answer,
                Evidence.SELF,
                "{process} {did} {since_ns}",
                process=process_scope(name),
                did=did,
                since_ns=at_ns - one.open_ns,
            )
            self._suspect(broken, name, one.open_ns, at_ns, REACTS_WITHIN_NS)
        return answer

    def note_answer(self, event: Event, name: str, one: _Reaction, did: str) -> Findings:
        """The controller has answered a process that records no answer."""
        excuse = self.faults.on(name, event.process)
        known = one.unrecorded
        # The answers are counted anew once no fault can have lost them.
        if known is None or (known.excuse and not excuse):
            one.unrecorded = _Unrecorded(event.at_ns, event.ref, excuse)
            return NOTHING
        known.times, known.excuse = known.times + 1, known.excuse or excuse
        if known.times < UNRECORDED_TIMES or event.at_ns <= known.since_ns + UNRECORDED_FOR_NS:
            return NOTHING
        one.unrecorded = None
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} {did} at {times} heartbeats, and recorded no answer",
            (known.ref,),
            process=process_scope(name),
            did=did,
            times=known.times,
            other=process_scope(event.process),
        )
        if known.excuse:
            return (Excused.of(broken, known.excuse, ", while "),)
        self._suspect(broken, name, known.since_ns, event.at_ns, UNRECORDED_FOR_NS)
        return NOTHING

    def _suspect(
        self, broken: Violated, process: str, from_ns: int, to_ns: int, period_ns: int
    ) -> None:
        self.suspects.append(
            Deadline(broken, (process,), from_ns, to_ns, bound_ns=period_ns, due_ns=from_ns)
        )


@final
class AcceptedUnfences(Rule[_Reactions]):
    """HB-08. After an accepted heartbeat, a fenced broker must be active within a second, and
    before it sends the next heartbeat. An answer that arrives after nine tenths of the timeout is
    not judged. If the broker records no answer, the controller's own events are the evidence: it
    answers that the broker is live, for five seconds in which no fault names either of them."""

    clause = "HB-08"
    state = _Reactions

    @on(*LIFE_KINDS, *FAULT_KINDS, MetadataHeartbeatAnswered)
    def step(self, state: _Reactions, event: Event, body: Struct) -> Findings:
        if isinstance(body, FaultInjected | FaultHealed):
            state.faults.take(event)
            return NOTHING
        name, one = state.process(event)
        fenced = one.contact.state == "FENCED" and not one.disowned
        found: Findings = NOTHING
        match body:
            case BrokerStateChanged():
                answer = state.close(name, one, event.at_ns, STAYED_FENCED)
                one.disowned = one.disowned or body.reason == "taken_over"
                if body.old == "FENCED" and body.new == "ACTIVE" and answer is not None:
                    found = (Exercised(event.ref, Evidence.SELF),)
            case MetadataHeartbeatReceived():
                # An answer to another incarnation is none to it.
                if body.incarnation_id == one.contact.incarnation:
                    one.unrecorded = None
                # Later, the timeout may be over before the broker can react, and it rightly stays
                # fenced.
                in_time = event.at_ns < one.contact.sent_ns + body.timeout_ms * MS * 9 // 10
                if body.error == "NONE" and fenced and in_time and one.contact.counts(body):
                    one.hold(event)
            case MetadataHeartbeatSent() if one.open is not None:
                broken = violated(
                    event.ref,
                    Evidence.SELF,
                    "{process} stayed fenced, though a heartbeat of it was accepted",
                    (one.open,),
                    process=process_scope(event.process),
                    broker=broker_of(body.broker_id),
                )
                found = (broken,)
                one.open = None
            case MetadataHeartbeatAnswered():
                own = body.incarnation_id == one.contact.incarnation
                if fenced and own and body.error == "NONE" and body.state in LIVE:
                    did = "stayed fenced, though it was accepted"
                    found = state.note_answer(event, name, one, did)
                return found
            case SessionChanged(state="connected"):
                pass  # its session goes on, and what it has to do, too
            case SessionChanged() | ProcessExited() | NodeStopped():
                state.close(name, one, event.at_ns, STAYED_FENCED)
        one.contact.take(event)
        return found

    def end(self, state: _Reactions, end: RunEnd) -> Findings:
        for name, one in state.of.items():
            state.close(name, one, end.ended_at_ns, STAYED_FENCED)
        return judged(state.suspects, end)


@final
class RefusedFencesItself(Rule[_Reactions]):
    """HB-29. After a refused heartbeat, an active broker must fence itself within a second, and
    before it sends another heartbeat or serves a client. If the broker records no answer, the
    controller's own events are the evidence: it refuses the broker, for five seconds in which no
    fault names either of them."""

    clause = "HB-29"
    state = _Reactions

    @on(*LIFE_KINDS, *FAULT_KINDS, MetadataHeartbeatAnswered, LogAppended, FetchServed)
    def step(self, state: _Reactions, event: Event, body: Struct) -> Findings:
        if isinstance(body, FaultInjected | FaultHealed):
            state.faults.take(event)
            return NOTHING
        name, one = state.process(event)
        active = one.contact.state == "ACTIVE"
        found: Findings = NOTHING
        match body:
            case MetadataHeartbeatReceived():
                own = body.incarnation_id == one.contact.incarnation
                one.unrecorded = None if own else one.unrecorded
                if own and active and _refuses(body.error, body.state in TARGETS):
                    one.hold(event)
            case BrokerStateChanged():
                answer = state.close(name, one, event.at_ns, WENT_ON)
                if answer is not None and body.new != "ACTIVE":
                    found = (Exercised(event.ref, Evidence.SELF),)
            case SessionChanged(state="connected"):
                pass  # a broker once ended each duty by saying so
            case ProcessExited() | NodeStopped() | SessionChanged():
                state.close(name, one, event.at_ns, WENT_ON)
            case MetadataHeartbeatAnswered():
                own = body.incarnation_id == one.contact.incarnation
                if own and active and body.active and _refuses(body.error, body.state in LIVE):
                    did = "went on as active, though it was refused"
                    found = state.note_answer(event, name, one, did)
                elif own:
                    one.unrecorded = None
                return found
            case MetadataHeartbeatSent() | LogAppended() | FetchServed() if one.open is not None:
                broken = violated(
                    event.ref,
                    Evidence.SELF,
                    "{process} went on as active after a heartbeat was refused",
                    (one.open,),
                    process=process_scope(event.process),
                )
                found = (broken,)
                one.open = None
        one.contact.take(event)
        return found

    def end(self, state: _Reactions, end: RunEnd) -> Findings:
        for name, one in state.of.items():
            state.close(name, one, end.ended_at_ns, WENT_ON)
        return judged(state.suspects, end)


def _refuses(error: str, live: bool) -> bool:
    """Whether an answer refuses a heartbeat."""
    return error == "INVALID_INCARNATION_ID" or (error == "NONE" and not live)
