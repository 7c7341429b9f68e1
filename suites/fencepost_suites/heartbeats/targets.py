"""The states that brokers ask the controller over ZooKeeper for, and those that they get
(KIP-343)."""

from __future__ import annotations

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
    Findings,
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
from fencepost_suites.heartbeats.accounts import Registered
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
    suspects: list[Deadline] = field(default_factory=list)

    def take(self, event: Event) -> None:
        """Applies an event."""
        self.terms.take(event)
        body = event.body
        if isinstance(body, BrokerRegistered):
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


def _against_itself(event: Event, body: MetadataHeartbeatAnswered) -> Findings:
    """What a controller answers is wrong by its answer alone, whatever it has declared: the live
    state that the broker does not target, for the incarnation that it says it has."""
    current = body.active and body.error == "NONE" and body.known == body.incarnation_id
    target = TARGETS.get(body.target_state)
    if not current or target in (None, body.state) or body.state not in LIVE:
        return NOTHING
    broken = violated(
        event.ref,
        Evidence.SELF,
        "{process} answered {other}, which targets {expected}, with state {state}",
        process=process_scope(event.process),
        other=process_scope(body.client),
        expected=target,
        state=body.state,
        broker=broker_of(body.broker_id),
    )
    return (broken,)


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
        controller = targets.terms.elected.get(body.controller, "")
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
                return self._answered(state, event, body)
        return NOTHING

    @staticmethod
    def _answered(state: _Targets, event: Event, body: MetadataHeartbeatAnswered) -> Findings:
        known = _is_current(state.terms, event, body)
        if known is None:
            return _against_itself(event, body)
        target = TARGETS[body.target_state]
        if body.state == target == known.state:
            return (Exercised(event.ref, Evidence.SELF),)
        broken = violated(
            event.ref,
            Evidence.SELF,
            "{process} answered {other}, which targets {expected}, with state {state}, while "
            "broker {broker} is declared {declared}",
            (known.ref,),
            process=process_scope(event.process),
            other=process_scope(body.client),
            expected=target,
            state=body.state,
            broker=broker_of(body.broker_id),
            declared=known.state,
        )
        return (broken,)

    @staticmethod
    def _received(state: _Targets, event: Event, body: MetadataHeartbeatReceived) -> Findings:
        found = state.terms.elected.get(body.controller)
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
