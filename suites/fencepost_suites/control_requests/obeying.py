"""The control requests that a broker carries out, and their effects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    Cause,
    Event,
    Evidence,
    Exercised,
    Facts,
    Findings,
    NodeStarted,
    Reason,
    Rule,
    RunEnd,
    Scope,
    Undecided,
    Violated,
    judged,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    BrokerCommitted,
    BrokerRegistered,
    BrokerStateChanged,
    ControlledShutdownAnswered,
    ControlRequestAnswered,
    ControlRequestSent,
    ReplicaRemoved,
    ReplicaStopped,
    broker_of,
    partition_of,
)
from fencepost_suites.common.keys import by_broker
from fencepost_suites.control_requests.effects import DUE_KINDS, ROLE_KINDS, Effects, RefusedRoles
from fencepost_suites.control_requests.requests import (
    NO_EPOCH,
    STALE_CONTROLLER,
    STALE_EPOCH,
    Request,
    Requests,
)

HEARTBEAT_INFO = 5
"""The BrokerInfo version that implies an inter-broker protocol with broker epochs."""
BROKER_EPOCHS = 2
"""The inter.broker.protocol that brings broker epochs in control requests."""


ADDRESSED_KINDS: frozenset[type[Struct]] = frozenset(
    {BrokerRegistered, BrokerStateChanged, ControlRequestSent, ControlRequestAnswered}
)
"""The events about the requests to one broker."""
REQUEST_KINDS: frozenset[type[Struct]] = ADDRESSED_KINDS | {NodeStarted}
"""With the starts, which tell a process from its broker's former one."""


@dataclass(slots=True)
class _Refusals:
    requests: Requests = field(default_factory=Requests)
    roles: RefusedRoles = field(default_factory=RefusedRoles)


@final
class FormerGenerationRefused(Rule[_Refusals]):
    """BE-02. The controller's event says which broker epoch a request has; ZooKeeper's czxid is the
    process's own. Without epochs, the events of both say when the request was sent and when the
    process began. A process that has lost its id may refuse every request. A process that refuses
    a LeaderAndIsr must not take a role by it: the role's own event is the evidence. A request for a
    larger epoch must be accepted; but a process that has never registered has no epoch, and must
    not obey one for another process's. (What clients get after a refused UpdateMetadata, no event
    shows.)"""

    clause = "BE-02"
    state = _Refusals

    @on(*REQUEST_KINDS, *ROLE_KINDS)
    def step(self, state: _Refusals, event: Event, body: Struct) -> Findings:
        request = state.requests.take(event)
        taken = state.roles.take(event, request)
        if taken:
            return taken
        if request is None:
            return NOTHING
        if request.former and request.obeyed:
            broken = violated(
                event.ref,
                request.evidence,
                "{process} obeyed the {operation} of {sender}, {meant_for}",
                request.because,
                process=process_scope(event.process),
                **request.facts,
            )
        # The broker may find a request stale by its newest epoch, although it obeys by the one at
        # which it began the work. In between both answers are right.
        elif not request.stale and request.answer.error == STALE_EPOCH:
            if request.asked == NO_EPOCH:
                return NOTHING  # BE-10 judges it
            broken = violated(
                event.ref,
                request.evidence,
                "{process} refused the {operation} of {sender} for broker epoch {epoch} as stale; "
                "its own is {newest_epoch}",
                request.because,
                process=process_scope(event.process),
                newest_epoch=request.newest,
                **request.facts,
            )
            # Of a process that never told of a registration, its answer alone names its epoch.
            if request.newest == NO_EPOCH and request.asked < request.answer.broker_epoch:
                unknown = Reason("that it had registered is told by its answer only")
                return (Undecided.of(broken, unknown, "; but "),)
        elif request.former:
            return (Exercised(event.ref, request.evidence),)
        elif request.of_other is not None and request.obeyed:
            broken = violated(
                event.ref,
                request.evidence,
                "{process}, which has never registered, obeyed the {operation} of {sender} for "
                "broker epoch {epoch}, that of {holder}",
                request.because,
                process=process_scope(event.process),
                holder=process_scope(request.of_other),
                **request.facts,
            )
        elif request.newer and not request.obeyed and not request.deposed:
            broken = violated(
                event.ref,
                request.evidence,
                "{process} refused the {operation} of {sender} for broker epoch {epoch} with "
                "{error}, though its own is only {newest_epoch}",
                request.because,
                process=process_scope(event.process),
                error=request.answer.error,
                newest_epoch=request.newest,
                **request.facts,
            )
        else:
            return NOTHING
        return (broken,)

    def end(self, state: _Refusals, end: RunEnd) -> Findings:
        return state.roles.end(end)


@final
class DeposedControllerRefused(Rule[Requests]):
    """BE-08. The requests that a broker has carried out, by their senders' events, show the highest
    controller epoch that it has seen. A request that is also for a former process may be refused
    with STALE_BROKER_EPOCH."""

    clause = "BE-08"
    keys = staticmethod(by_broker)
    state = Requests

    @on(*ADDRESSED_KINDS)
    def step(self, state: Requests, event: Event, body: Struct) -> Findings:
        request = state.take(event)
        if request is None or not request.deposed:
            return NOTHING
        if not request.obeyed:
            if request.answer.error == STALE_CONTROLLER:
                return (Exercised(event.ref, request.evidence),)
            return NOTHING
        broken = violated(
            event.ref,
            request.evidence,
            "{process} obeyed the {operation} of {sender} with controller epoch "
            "{controller_epoch}, after a request with {seen_epoch}",
            tuple(at for at in (request.seen_at, request.sent_at) if at is not None),
            process=process_scope(event.process),
            controller_epoch=request.controller_epoch,
            seen_epoch=request.seen,
            authority=Scope("controller", ""),
            **request.facts,
        )
        return (broken,)


@final
class AcceptsNoEpoch(Rule[Requests]):
    """BE-10. Requests in versions before KIP-380 have no broker epoch."""

    clause = "BE-10"
    keys = staticmethod(by_broker)
    state = Requests

    @on(*ADDRESSED_KINDS, ControlledShutdownAnswered)
    def step(self, state: Requests, event: Event, body: Struct) -> Findings:
        if isinstance(body, ControlledShutdownAnswered):
            if body.request_epoch != NO_EPOCH or body.error not in ("NONE", STALE_EPOCH):
                return NOTHING
            shutdown: Facts = {
                "operation": "ControlledShutdown",
                "broker": broker_of(body.broker_id),
            }
            return self._judged(event, body.error, Evidence.SELF, (), shutdown)
        request = state.take(event)
        if request is None or request.asked != NO_EPOCH:
            return NOTHING
        answer = request.answer
        if answer.error not in ("NONE", STALE_EPOCH):
            return NOTHING
        because, asked = request.because, request.facts
        return self._judged(event, answer.error, request.evidence, because, asked)

    @staticmethod
    def _judged(
        event: Event, error: str, evidence: Evidence, because: tuple[Cause, ...], asked: Facts
    ) -> Findings:
        if error == "NONE":
            return (Exercised(event.ref, evidence),)
        broken = violated(
            event.ref,
            evidence,
            "{process} refused a {operation} without a broker epoch as stale",
            because,
            process=process_scope(event.process),
            **asked,
        )
        return (broken,)


@dataclass(slots=True)
class _Written:
    """The registrations of all processes, and the control requests."""

    requests: Requests = field(default_factory=Requests)
    epochs: dict[int, dict[str, set[int]]] = field(default_factory=dict)
    """broker -> process -> the broker epochs under which it has registered."""
    without_epochs: set[str] = field(default_factory=set)
    """The processes whose inter-broker protocol may lack broker epochs."""
    stored: set[tuple[int, int]] = field(default_factory=set)
    """The (broker, broker epoch) of every registration that an observer has read."""
    unregistered: dict[tuple[int, int], list[Violated]] = field(default_factory=dict)
    """(broker, broker epoch) -> the requests for that broker epoch. A broker may record its
    registration after the first request for it."""

    def store(self, body: BrokerCommitted) -> Findings:
        """Applies a znode, as an observer has read it. The broker may never have got the answer of
        its registration."""
        self.stored.add((body.broker_id, body.broker_epoch))
        return self._settled(body.broker_id, body.broker_epoch)

    def _settled(self, broker: int, epoch: int) -> Findings:
        """That the requests for a broker epoch were right, which was not known."""
        early = self.unregistered.pop((broker, epoch), ())
        return [Exercised(one.at, one.evidence) for one in early]

    def register(self, process: str, body: BrokerRegistered) -> Findings:
        """Applies a registration."""
        of_broker = self.epochs.setdefault(body.broker_id, {})
        of_broker.setdefault(process, set()).add(body.broker_epoch)
        known = body.protocol >= BROKER_EPOCHS or body.version >= HEARTBEAT_INFO
        if not known:
            self.without_epochs.add(process)
        return self._settled(body.broker_id, body.broker_epoch)


@final
class RequestsCarryEpoch(Rule[_Written]):
    """BE-01. The broker epoch in a control request must be one under which the broker has
    registered, and the broker must read the same value. A ControlledShutdown must have a broker
    epoch of its sender. Only a process with an inter-broker protocol before KIP-380 may send none.
    The broker must read whether a StopReplica deletes the data as it was sent, and must not remove
    a log by one that does not. Other tests check the bytes."""

    clause = "BE-01"
    state = _Written

    @on(*REQUEST_KINDS, ControlledShutdownAnswered, BrokerCommitted, ReplicaRemoved)
    def step(self, state: _Written, event: Event, body: Struct) -> Findings:
        request = state.requests.take(event)
        match body:
            case BrokerRegistered():
                return state.register(event.process, body)
            case BrokerCommitted():
                return state.store(body)
            case ControlledShutdownAnswered():
                return self._shutdown(state, event, body)
            case ReplicaRemoved():
                return self._removed(state, event, body)
            case _ if request is not None:
                return self._read(state, event, request)
        return NOTHING

    @staticmethod
    def _removed(state: _Written, event: Event, body: ReplicaRemoved) -> Findings:
        """Judges a broker that removes its log while it carries out a request."""
        cause = event.cause
        found = state.requests.sent.get((cause.process, cause.seq)) if cause is not None else None
        if found is None or found[0].api != "StopReplica" or found[0].deletes:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} removed its log of {partition} by a StopReplica that {sender} had sent "
            "without delete_partitions",
            (found[1],),
            process=process_scope(event.process),
            partition=partition_of(body),
            sender=found[1].process,
            other=process_scope(found[1].process),
            broker=broker_of(found[0].broker_id),
        )
        return (broken,)

    @staticmethod
    def _read(state: _Written, event: Event, request: Request) -> Findings:
        answer, sent = request.answer, request.sent
        if sent is None:
            return NOTHING
        known = {e for epochs in state.epochs.get(answer.broker_id, {}).values() for e in epochs}
        if answer.request_epoch != sent.broker_epoch:
            broken = violated(
                event.ref,
                Evidence.PEER,
                "{process} read broker epoch {read_epoch} in the {operation} that {sender} had "
                "sent with {epoch}",
                request.because,
                process=process_scope(event.process),
                read_epoch=answer.request_epoch,
                **request.facts,
            )
            return (broken,)
        # Apache Kafka, whose attempts are not known, logs the two ends in two formats.
        if answer.api == "StopReplica" and sent.attempt and answer.deletes != sent.deletes:
            broken = violated(
                event.ref,
                Evidence.PEER,
                "{process} read delete_partitions {read} in the StopReplica that {sender} had sent "
                "with {expected}",
                request.because,
                process=process_scope(event.process),
                read=str(answer.deletes),
                expected=str(sent.deletes),
                **request.facts,
            )
            return (broken,)
        if sent.broker_epoch == NO_EPOCH and request.sender in state.without_epochs:
            return NOTHING
        place = (answer.broker_id, sent.broker_epoch)
        if sent.broker_epoch in known or place in state.stored:
            return (Exercised(event.ref, Evidence.PEER),)
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{sender} sent {process} a {operation} with broker epoch {epoch}, under which broker "
            "{broker} never registered",
            request.because,
            process=process_scope(event.process),
            **request.facts,
        )
        # The broker records its registration after ZooKeeper has stored it, so a request for it may
        # come first. Judged at the end.
        state.unregistered.setdefault(place, []).append(broken)
        return NOTHING

    @staticmethod
    def _shutdown(state: _Written, event: Event, body: ControlledShutdownAnswered) -> Findings:
        known = state.epochs.get(body.broker_id, {}).get(body.client, set())
        without = body.request_epoch == NO_EPOCH and body.client in state.without_epochs
        if not known or without:
            return NOTHING
        if body.request_epoch in known:
            return (Exercised(event.ref, Evidence.PEER),)
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} sent a ControlledShutdown with broker epoch {epoch}, under which it never "
            "registered",
            process=process_scope(body.client),
            epoch=body.request_epoch,
            broker=broker_of(body.broker_id),
            other=process_scope(event.process),
        )
        return (broken,)

    def end(self, state: _Written, end: RunEnd) -> Findings:
        never = [one for several in state.unregistered.values() for one in several]
        if end.complete:
            return never
        return [Undecided.of(one) for one in never]


@dataclass(slots=True)
class _Effects:
    """The replicas of brokers' processes, and the replicas that they have just stopped."""

    requests: Requests = field(default_factory=Requests)
    hosted: dict[str, set[str]] = field(default_factory=dict)
    """process -> the partitions that a LeaderAndIsr assigned and no StopReplica stopped."""
    done: dict[str, set[str]] = field(default_factory=dict)
    """process -> the partitions that it has stopped or removed since its last answer."""
    registered: dict[int, tuple[str, int]] = field(default_factory=dict)
    """broker -> the process of its newest registration, and its broker epoch."""
    due: Effects = field(default_factory=Effects)


@final
class CurrentRequestsProcessed(Rule[_Effects]):
    """BE-09. A request for the broker's own epoch must not be refused, unless a deposed controller
    sent it. A StopReplica that is answered NONE must have stopped each of its replicas that the
    process had. A process that answers NONE to a LeaderAndIsr must begin the role that it has in
    ZooKeeper for each partition in it, and a process must answer what a controller has sent it:
    within ten seconds in which no fault names either. The controller must not refuse a
    ControlledShutdown of the broker's newest known process. (What clients get after an
    UpdateMetadata, no event shows.)"""

    clause = "BE-09"
    state = _Effects

    @on(*REQUEST_KINDS, *DUE_KINDS, ControlledShutdownAnswered)
    def step(self, state: _Effects, event: Event, body: Struct) -> Findings:
        request = state.requests.take(event)
        state.due.take(event)
        match body:
            case BrokerRegistered():
                known = state.registered.get(body.broker_id, ("", NO_EPOCH))
                if body.broker_epoch > known[1]:
                    state.registered[body.broker_id] = (event.process, body.broker_epoch)
            case ReplicaStopped() | ReplicaRemoved():
                name = f"{body.topic}-{body.partition}"
                state.done.setdefault(event.process, set()).add(name)
            case ControlledShutdownAnswered():
                return self._shutdown(state, event, body)
            case _ if request is not None:
                return self._answered(state, event, request)
        return NOTHING

    def _answered(self, state: _Effects, event: Event, request: Request) -> Findings:
        answer = request.answer
        done = state.done.pop(event.process, set())
        hosted = state.hosted.setdefault(event.process, set())
        if not request.obeyed:
            if request.asked != request.newest or request.deposed:
                return NOTHING
            broken = violated(
                event.ref,
                request.evidence,
                "{process} refused the {operation} of {asker} with {error}, though it was meant "
                "for its broker epoch {newest_epoch}",
                request.because,
                process=process_scope(event.process),
                asker=answer.client,
                error=answer.error,
                newest_epoch=request.newest,
                **request.facts,
            )
            return (broken,)
        # What the sender says that it named, if that is known.
        named = set(answer.partitions if request.sent is None else request.sent.partitions)
        # A replica that the process never had need not be stopped.
        missed = sorted((named & hosted) - done) if answer.api == "StopReplica" else []
        if answer.api == "LeaderAndIsr":
            hosted |= named
        elif answer.api == "StopReplica":
            hosted -= named
        if missed:
            broken = violated(
                event.ref,
                request.evidence,
                "{process} answered a StopReplica of {first} with NONE, but did not stop {missed} "
                "of its replicas",
                request.because,
                process=process_scope(event.process),
                first=", ".join(missed[:3]),
                missed=len(missed),
                places=tuple(Scope("partition", place) for place in missed),
                **request.facts,
            )
            return (broken,)
        return (Exercised(event.ref, request.evidence),)

    @staticmethod
    def _shutdown(state: _Effects, event: Event, body: ControlledShutdownAnswered) -> Findings:
        newest = state.registered.get(body.broker_id)
        if body.controller_epoch < 0 or newest != (body.client, body.request_epoch):
            return NOTHING
        process, epoch = newest
        if body.error == "NONE":
            return (Exercised(event.ref, Evidence.PEER),)
        if body.known_epoch != epoch:
            return NOTHING  # the controller has not read this registration yet
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} refused the ControlledShutdown of {other} with {error}, though {epoch} is "
            "its registered broker epoch",
            process=process_scope(event.process),
            other=process_scope(process),
            error=body.error,
            epoch=epoch,
            broker=broker_of(body.broker_id),
        )
        return (broken,)

    def end(self, state: _Effects, end: RunEnd) -> Findings:
        late = judged(state.due.end(end), end)
        return [*late, *state.due.excused]
