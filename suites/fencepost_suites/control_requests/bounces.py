"""Bounces of brokers: a request for a broker's former process does not harm its new process, and
the controller initialises the new process."""

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
    Rule,
    RunEnd,
    Scope,
    judged,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    BrokerChangeHandled,
    BrokerDeclared,
    BrokerRegistered,
    ControlRequestAnswered,
    PartitionCommitted,
    ReplicaStopped,
    TopicCommitted,
    TopicMarked,
    partition_of,
)
from fencepost_kafka.committed import Partitions
from fencepost_suites.control_requests.effects import ROLE_KINDS, RefusedRoles
from fencepost_suites.control_requests.obeying import REQUEST_KINDS
from fencepost_suites.control_requests.owed import CONTROLLER_KINDS, Due, Owed, apply_term
from fencepost_suites.control_requests.requests import NO_EPOCH, Request, Requests


@final
class FormerStopReplicaHarmsNot(Rule[Requests]):
    """BE-03. The cause of a replica's stop is a request, and the controller's event says for which
    broker epoch it was sent. Exercised if a process refuses a StopReplica for its former
    process."""

    clause = "BE-03"
    state = Requests

    @on(*REQUEST_KINDS, ReplicaStopped)
    def step(self, state: Requests, event: Event, body: Struct) -> Findings:
        if isinstance(body, ReplicaStopped):
            return self._stopped(state, event, body)
        request = state.take(event)
        if request is None or request.answer.api != "StopReplica" or not request.former:
            return NOTHING
        if not request.obeyed:
            return (Exercised(event.ref, request.evidence),)
        broken = violated(
            event.ref,
            request.evidence,
            "{process} obeyed a StopReplica of its former process, {meant_for}",
            request.because,
            process=process_scope(event.process),
            **request.facts,
        )
        return (broken,)

    @staticmethod
    def _stopped(state: Requests, event: Event, body: ReplicaStopped) -> Findings:
        process = state.processes.get(event.process)
        cause = event.cause
        found = state.sent.get((cause.process, cause.seq)) if cause is not None else None
        asked = body.request_epoch if found is None else found[0].broker_epoch
        if process is None or asked == NO_EPOCH or asked >= process.own.epoch:
            return NOTHING
        evidence = Evidence.SELF if found is None else Evidence.PEER
        sender: Facts = {} if found is None else {"other": process_scope(found[1].process)}
        broken = violated(
            event.ref,
            evidence,
            "{process} with broker epoch {own_epoch} took {partition} offline by a StopReplica for "
            "{epoch}, the epoch of a former process",
            (process.own.at,) if process.own.at is not None else (),
            process=process_scope(event.process),
            own_epoch=process.own.epoch,
            partition=partition_of(body),
            epoch=asked,
            **sender,
        )
        return (broken,)


@final
class BounceDetected(Rule[Owed]):
    """BE-05. The broker's event says that it has registered, and with which czxid. The current
    controller must declare that process, and the former one absent before, if it had declared that
    one. Exercised if it declares a bounce: it had not seen that
    the former process was absent. Apache Kafka's controller is excused by a fault that names it or
    the broker. If the broker registered during the fault, both reach ZooKeeper again after a
    session timeout at the latest."""

    clause = "BE-05"
    state = Owed

    @on(*CONTROLLER_KINDS)
    def step(self, state: Owed, event: Event, body: Struct) -> Findings:
        excused = state.overdue(
            event.at_ns,
            "{process} did not detect within {since_ns} that {other} had registered{with_epoch}"
            "{mistook}",
            needs_broker=False,
        )
        apply_term(state, event)
        return (*excused, *self._applied(state, event))

    def _applied(self, state: Owed, event: Event) -> Findings:
        body = event.body
        match body:
            case BrokerRegistered():
                epoch, as_bounced = state.found.get(body.broker_id, (None, False))
                # The controller's declaration, or its log of a broker change, may come before the
                # broker's own event of its registration.
                if body.broker_id in state.compared:
                    epoch, as_bounced = body.broker_epoch, state.compared[body.broker_id]
                if epoch == body.broker_epoch:
                    return (Exercised(event.ref, Evidence.PEER),) if as_bounced else NOTHING
                state.due[body.broker_id] = Due(
                    process=event.process,
                    epoch=body.broker_epoch,
                    at=event.ref,
                    since_ns=event.at_ns,
                    bounced=False,
                    registered_ns=event.at_ns,
                )
            case BrokerDeclared() if body.new != "Absent" and event.process == state.controller:
                # The former process was not treated as failed: its bounce is hidden.
                if state.held.setdefault(body.broker_id, body.incarnation_id) < body.incarnation_id:
                    return NOTHING
                bounced = body.old == "Absent" and body.reason == "bounced"
                state.found[body.broker_id] = (body.incarnation_id, bounced)
                due = state.due.get(body.broker_id)
                if due is not None and due.epoch == body.incarnation_id:
                    del state.due[body.broker_id]
                    return (Exercised(event.ref, Evidence.PEER),) if bounced else NOTHING
            case BrokerDeclared() if event.process == state.controller:
                state.held.pop(body.broker_id, None)
                state.gone(body.broker_id)
            case NodeStarted(role="broker"):
                state.compared.pop(body.node_id, None)
            case BrokerChangeHandled() if event.process == state.controller:
                return self._compared(state, event, body)
        return NOTHING

    @staticmethod
    def _compared(state: Owed, event: Event, body: BrokerChangeHandled) -> Findings:
        for broker in body.deleted:
            state.compared.pop(broker, None)
        # Compared, and found to be the same: the bounce was overlooked, which the message will say.
        for broker in {*body.live} - {*body.added, *body.bounced}:
            if broker in state.due:
                state.due[broker].overlooked = True
        finding = NOTHING
        for broker in (*body.added, *body.bounced):
            state.compared[broker] = broker in body.bounced
            if state.due.pop(broker, None) is not None and broker in body.bounced:
                finding = (Exercised(event.ref, Evidence.PEER),)
        return finding

    def end(self, state: Owed, end: RunEnd) -> Findings:
        return judged(state.suspects, end)


@dataclass(slots=True)
class _Initialising:
    term: Owed = field(default_factory=Owed)
    epochs: dict[int, int] = field(default_factory=dict)
    """broker -> its newest broker epoch."""
    got: dict[str, set[str]] = field(default_factory=dict)
    """process -> the APIs of the requests for its broker epoch that it has carried out."""
    partitions: Partitions = field(default_factory=Partitions)

    def compared(self, body: BrokerChangeHandled, now_ns: int) -> None:
        """Applies a broker change. Apache Kafka sends no LeaderAndIsr to a broker without a
        replica."""
        hosts = {broker for one in self.partitions.newest.values() for broker in one.replicas}
        for broker in (*body.added, *body.bounced):
            due = self.term.due.get(broker)
            if due is not None and broker in hosts:
                due.since_ns = now_ns


@final
class BouncedIsInitialised(Rule[_Initialising]):
    """BE-06. Once the controller has declared a process live, that process must receive metadata
    and partitions for its broker epoch, or in a version without one. The process is the evidence.
    Exercised if the process is not its broker's first one. A fault between the controller and the
    broker excuses a delay, since it may hold each attempt to send a request. Apache Kafka's
    controller is excused by a fault that names it or the broker."""

    clause = "BE-06"
    state = _Initialising

    @on(*CONTROLLER_KINDS, ControlRequestAnswered, PartitionCommitted, TopicCommitted)
    def step(self, state: _Initialising, event: Event, body: Struct) -> Findings:
        term = state.term
        excused = term.overdue(
            event.at_ns,
            "{process} declared {other} live, but did not initialise it within {since_ns}: it has "
            "not received metadata and partitions for its registration{with_epoch}",
        )
        apply_term(term, event)
        return (*excused, *self._applied(state, event))

    def _applied(self, state: _Initialising, event: Event) -> Findings:
        body, term = event.body, state.term
        match body:
            case BrokerRegistered():
                known = state.epochs.get(body.broker_id)
                state.epochs[body.broker_id] = body.broker_epoch
                term.due[body.broker_id] = Due(
                    process=event.process,
                    epoch=body.broker_epoch,
                    at=event.ref,
                    # Nothing is due before the controller has declared the process live.
                    since_ns=1 << 62,
                    bounced=known is not None,
                    registered_ns=event.at_ns,
                )
                state.got[event.process] = set()
            case BrokerDeclared() if event.process == term.controller:
                due = term.due.get(body.broker_id)
                if due is not None and due.epoch == body.incarnation_id:
                    live = body.new in ("Active", "Stopping")
                    due.since_ns = event.at_ns if live else 1 << 62
            case BrokerChangeHandled() if event.process == term.controller:
                state.compared(body, event.at_ns)
            case PartitionCommitted():
                state.partitions.take(body)
            case TopicCommitted():
                state.partitions.forget(body)
            case ControlRequestAnswered(error="NONE"):
                return self._answered(state, event, body)
        return NOTHING

    @staticmethod
    def _answered(state: _Initialising, event: Event, body: ControlRequestAnswered) -> Findings:
        due = state.term.due.get(body.broker_id)
        meant = due is not None and body.request_epoch in (due.epoch, NO_EPOCH)
        if due is None or due.process != event.process or not meant:
            return NOTHING
        got = state.got.setdefault(event.process, set())
        got.add(body.api)
        if not {"LeaderAndIsr", "UpdateMetadata"} <= got:
            return NOTHING
        del state.term.due[body.broker_id]
        return (Exercised(event.ref, Evidence.PEER),) if due.bounced else NOTHING

    def end(self, state: _Initialising, end: RunEnd) -> Findings:
        return judged(state.term.suspects, end)


@dataclass(slots=True)
class _Hosting:
    """The partitions that each broker hosts now, and hosted when a controller declared it live."""

    requests: Requests = field(default_factory=Requests)
    roles: RefusedRoles = field(default_factory=RefusedRoles)
    partitions: Partitions = field(default_factory=Partitions)
    marked: set[str] = field(default_factory=set)
    due: dict[tuple[str, int, int], tuple[frozenset[str], Cause]] = field(default_factory=dict)
    """(controller process, broker, broker epoch) -> the partitions that the broker hosted when that
    controller declared it live."""
    at_first: dict[tuple[int, int], frozenset[str]] = field(default_factory=dict)
    """(broker, broker epoch) -> the partitions that the broker hosted when it registered."""
    early: dict[tuple[str, int, int], tuple[Request, frozenset[str], Cause]] = field(
        default_factory=dict
    )
    """As `due` -> a first LeaderAndIsr that came before that declaration, and what the broker
    hosted from its registration until then."""

    def hosted(self, broker: int) -> frozenset[str]:
        """The partitions of which a broker is a replica now."""
        return frozenset(
            f"{topic}-{index}"
            for (topic, index), one in self.partitions.newest.items()
            if broker in one.replicas and topic not in self.marked
        )


@final
class FirstLeaderAndIsrIsWhole(Rule[_Hosting]):
    """BE-07. A process's answers show which LeaderAndIsr is its first; the controller's event says
    for which broker epoch it was sent. It must name all partitions that the broker hosted when the
    controller declared it live, and still hosts, by the stored assignments; or since it registered,
    if the controller declares it later. A process must not take
    a role by a LeaderAndIsr that it refuses: the role's own event is the evidence."""

    clause = "BE-07"
    state = _Hosting

    @on(
        *REQUEST_KINDS, *ROLE_KINDS, BrokerDeclared, PartitionCommitted, TopicCommitted, TopicMarked
    )
    def step(self, state: _Hosting, event: Event, body: Struct) -> Findings:
        request = state.requests.take(event)
        taken = state.roles.take(event, request)
        if taken:
            return taken
        match body:
            case PartitionCommitted():
                state.partitions.take(body)
            case TopicCommitted():
                state.partitions.forget(body)
                state.marked.discard(body.topic)
            case TopicMarked():
                state.marked.add(body.topic)
            case BrokerRegistered():
                first = (body.broker_id, body.broker_epoch)
                state.at_first.setdefault(first, state.hosted(body.broker_id))
            case BrokerDeclared(new="Active" | "Stopping"):
                due = (event.process, body.broker_id, body.incarnation_id)
                state.due[due] = (state.hosted(body.broker_id), event.ref)
                if due in state.early:
                    early, hosted, at = state.early.pop(due)
                    return self._whole(early, hosted, at, event.ref)
            case _ if request is not None and request.answer.api == "LeaderAndIsr":
                return self._judged(state, event, request)
        return NOTHING

    def _judged(self, state: _Hosting, event: Event, request: Request) -> Findings:
        answer = request.answer
        if request.former:
            if not request.obeyed:
                return (Exercised(event.ref, request.evidence),)
            broken = violated(
                event.ref,
                request.evidence,
                "{process} obeyed a LeaderAndIsr of its former process, {meant_for}",
                request.because,
                process=process_scope(event.process),
                **request.facts,
            )
            return (broken,)
        place = (answer.client, answer.broker_id, request.asked)
        due = state.due.get(place)
        if not request.first:
            return NOTHING
        now = state.hosted(answer.broker_id)
        if due is None:
            # A controller may declare the process only later, if it ever does.
            before = state.at_first.get(place[1:], frozenset())
            state.early[place] = (request, before & now, event.ref)
            return NOTHING
        hosted, at = due
        # What it hosted when it was declared live and still hosts: a partition that was given or
        # taken in between may be missing, or come later.
        return self._whole(request, hosted & now, event.ref, at)

    @staticmethod
    def _whole(request: Request, hosted: frozenset[str], ref: Cause, at: Cause) -> Findings:
        """Judges the first LeaderAndIsr that a process obeyed, at `ref`."""
        answer = request.answer
        named = answer.partitions if request.sent is None else request.sent.partitions
        missing = sorted(hosted - set(named))
        if missing:
            broken = violated(
                ref,
                request.evidence,
                "the first LeaderAndIsr that {process} obeyed lacks {missing} of the {hosted} "
                "partitions that it hosts, such as {partition}",
                (at, *request.because),
                process=process_scope(ref.process),
                missing=len(missing),
                hosted=len(hosted),
                partition=Scope("partition", missing[0]),
                places=tuple(Scope("partition", place) for place in missing),
                **request.facts,
            )
            return (broken,)
        return (Exercised(ref, request.evidence),) if hosted else NOTHING

    def end(self, state: _Hosting, end: RunEnd) -> Findings:
        return state.roles.end(end)
