"""A broker that bounces: no request for its former process harms the new one, and the controller
initialises the new one."""

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
    FaultHealed,
    FaultInjected,
    Finding,
    Key,
    NodeStarted,
    NodeStopped,
    ProcessExited,
    RunEnd,
    Violated,
)
from fencepost_kafka import (
    BrokerChangeHandled,
    BrokerDeclared,
    BrokerRegistered,
    BrokerStateChanged,
    BrokerStopping,
    ControllerBegan,
    ControllerElected,
    ControllerEnded,
    ControllerResigned,
    ControlRequestAnswered,
    PartitionCommitted,
    ReplicaStopped,
    SessionChanged,
    TopicCommitted,
    TopicMarked,
)
from fencepost_suites.brokers.leases import MS, Late, judge_late
from fencepost_suites.common.committed import Partitions
from fencepost_suites.common.keys import NOTHING, whole_run
from fencepost_suites.common.words import span
from fencepost_suites.control_requests.obeying import REQUEST_KINDS
from fencepost_suites.control_requests.requests import NO_EPOCH, Request, Requests

BOUND_NS = 6_000 * MS
"""How long a controller may take to handle a broker change, and to have a broker initialised. The
documents name no time; this is several times what either takes on a busy machine."""


@final
@dataclass(frozen=True, slots=True)
class FormerStopReplicaHarmsNot:
    """BE-03. A replica that stops names the request as its cause, and the controller says for which
    epoch it had sent that one. Exercised where a process refused such a request."""

    clause: str = "BE-03"
    kinds: frozenset[type[Struct]] = REQUEST_KINDS | {ReplicaStopped}
    keys = staticmethod(whole_run)

    def start(self, key: Key) -> Requests:
        return Requests()

    def step(self, state: Requests, event: Event) -> tuple[Requests, Sequence[Finding]]:
        body = event.body
        if isinstance(body, ReplicaStopped):
            return state, self._stopped(state, event, body)
        request = state.take(event)
        if request is None or request.answer.api != "StopReplica" or not request.former:
            return state, NOTHING
        if not request.obeyed:
            return state, (Exercised(event.ref, request.evidence),)
        message = f"{event.process} obeyed a StopReplica of its former process, {request.meant_for}"
        return state, (Violated(event.ref, request.evidence, message, request.because),)

    @staticmethod
    def _stopped(state: Requests, event: Event, body: ReplicaStopped) -> Sequence[Finding]:
        process = state.processes.get(event.process)
        cause = event.cause
        found = state.sent.get((cause.process, cause.seq)) if cause is not None else None
        asked = body.request_epoch if found is None else found[0].broker_epoch
        if process is None or asked == NO_EPOCH or asked >= process.own:
            return NOTHING
        evidence = Evidence.SELF if found is None else Evidence.PEER
        message = (
            f"{event.process} with broker epoch {process.own} took {body.topic}-{body.partition} "
            f"offline by a StopReplica for {asked}, of its former process"
        )
        because = (process.own_at,) if process.own_at is not None else ()
        return (Violated(event.ref, evidence, message, because),)

    def end(self, state: Requests, end: RunEnd) -> Sequence[Finding]:
        return NOTHING


@dataclass(slots=True)
class _Due:
    """What the controller owes to the newest process of a broker, since when."""

    process: str
    epoch: int
    at: Cause
    since_ns: int
    bounced: bool


@dataclass(slots=True)
class _Office:
    """The controller in office, and what it owes to brokers."""

    controller: str = ""
    began_ns: int = 0
    due: dict[int, _Due] = field(default_factory=dict)
    found: dict[int, tuple[int, bool]] = field(default_factory=dict)
    """broker -> the newest broker epoch that a controller has declared, and whether as bounced. It
    may read a registration before the broker has its answer from ZooKeeper."""
    compared: dict[int, bool] = field(default_factory=dict)
    """broker -> whether a controller found its newest process as bounced, by its log."""
    by_log: bool = False
    """Whether it is Apache Kafka's: a broker over ZooKeeper that the controller cannot reach stays
    in the cluster, so that nothing is due while a fault lasts."""
    faults: set[str] = field(default_factory=set)
    suspects: list[Late] = field(default_factory=list)

    def goes(self, process: str) -> None:
        """A process has ended, or is no broker any more: nothing is owed to it."""
        self.due = {b: one for b, one in self.due.items() if one.process != process}
        if process == self.controller:
            self.controller = ""

    def begins(self, event: Event) -> None:
        """A controller takes office: all it owes is due from now on."""
        self.controller, self.began_ns = event.process, event.at_ns

    def overdue(self, now_ns: int, message: str) -> None:
        """Remembers what is due for longer than the bound, as suspects."""
        if not self.controller:
            return
        if self.by_log and self.faults:
            self.began_ns = now_ns
        for broker, one in list(self.due.items()):
            from_ns = max(one.since_ns, self.began_ns)
            if now_ns - from_ns <= BOUND_NS:
                continue
            text = message.format(
                controller=self.controller,
                process=one.process,
                epoch=f" with broker epoch {one.epoch}" if one.epoch >= 0 else "",
                span=span(now_ns - from_ns),
            )
            violated = Violated(one.at, Evidence.PEER, text, ())
            due_ns = from_ns + BOUND_NS
            late = Late(
                violated, self.controller, from_ns, now_ns, period_ns=BOUND_NS, due_ns=due_ns
            )
            self.suspects.append(late)
            del self.due[broker]


OFFICE_KINDS: frozenset[type[Struct]] = frozenset(
    {
        *(BrokerRegistered, BrokerDeclared, ControllerBegan, ControllerEnded, SessionChanged),
        *(BrokerStateChanged, BrokerStopping, NodeStopped, ProcessExited),
        *(BrokerChangeHandled, ControllerElected, ControllerResigned),
        *(FaultInjected, FaultHealed, NodeStarted),
    }
)


def _office(state: _Office, event: Event) -> None:
    """Applies what says which controller is in office, and which processes are brokers."""
    body = event.body
    match body:
        case ControllerBegan():
            state.begins(event)
        case ControllerElected():
            state.begins(event)
            state.by_log = True
        case ControllerEnded() | ControllerResigned() if event.process == state.controller:
            state.controller = ""
        case FaultInjected():
            state.faults.add(body.fault_id)
        case FaultHealed():
            state.faults.discard(body.fault_id)
        case ProcessExited():
            state.goes(body.ended)
        case NodeStopped():
            state.goes(event.process)
        case SessionChanged(state="ended") | BrokerStateChanged(reason="taken_over"):
            state.goes(event.process)
        case BrokerStopping():
            state.due = {b: one for b, one in state.due.items() if one.process != event.process}
        case _:
            pass


@final
@dataclass(frozen=True, slots=True)
class BounceDetected:
    """BE-05. The broker says that it has registered, with ZooKeeper's czxid; the controller in
    office must declare that process. Exercised where it found it in place of another that it had
    not seen to be absent."""

    clause: str = "BE-05"
    kinds: frozenset[type[Struct]] = OFFICE_KINDS
    keys = staticmethod(whole_run)

    def start(self, key: Key) -> _Office:
        return _Office()

    def step(self, state: _Office, event: Event) -> tuple[_Office, Sequence[Finding]]:
        body = event.body
        state.overdue(
            event.at_ns,
            "{controller} did not find within {span} that {process} had registered{epoch}",
        )
        _office(state, event)
        match body:
            case BrokerRegistered():
                epoch, as_bounced = state.found.get(body.broker_id, (None, False))
                if body.broker_id in state.compared:
                    epoch, as_bounced = body.broker_epoch, state.compared[body.broker_id]
                if epoch == body.broker_epoch:
                    return state, (Exercised(event.ref, Evidence.PEER),) if as_bounced else NOTHING
                state.due[body.broker_id] = _Due(
                    event.process, body.broker_epoch, event.ref, event.at_ns, False
                )
            case BrokerDeclared() if body.new != "Absent" and event.process == state.controller:
                bounced = body.old == "Absent" and body.reason == "bounced"
                state.found[body.broker_id] = (body.incarnation_id, bounced)
                due = state.due.get(body.broker_id)
                if due is not None and due.epoch == body.incarnation_id:
                    del state.due[body.broker_id]
                    return state, (Exercised(event.ref, Evidence.PEER),) if bounced else NOTHING
            case NodeStarted(role="broker"):
                state.compared.pop(body.node_id, None)
            case BrokerChangeHandled() if event.process == state.controller:
                return state, self._compared(state, event, body)
        return state, NOTHING

    @staticmethod
    def _compared(state: _Office, event: Event, body: BrokerChangeHandled) -> Sequence[Finding]:
        for broker in body.deleted:
            state.compared.pop(broker, None)
        finding = NOTHING
        for broker in (*body.added, *body.bounced):
            state.compared[broker] = broker in body.bounced
            if state.due.pop(broker, None) is not None and broker in body.bounced:
                finding = (Exercised(event.ref, Evidence.PEER),)
        return finding

    def end(self, state: _Office, end: RunEnd) -> Sequence[Finding]:
        return judge_late(state.suspects, end)


@dataclass(slots=True)
class _Initialising:
    office: _Office = field(default_factory=_Office)
    epochs: dict[int, int] = field(default_factory=dict)
    """broker -> the newest broker epoch of which it is known."""
    got: dict[str, set[str]] = field(default_factory=dict)
    """process -> the APIs of the requests for its epoch that it has obeyed."""
    partitions: Partitions = field(default_factory=Partitions)

    def compared(self, body: BrokerChangeHandled, now_ns: int) -> None:
        """A controller has found brokers. Apache Kafka sends no LeaderAndIsr to one that has no
        replica."""
        hosts = {broker for one in self.partitions.newest.values() for broker in one.replicas}
        for broker in (*body.added, *body.bounced):
            due = self.office.due.get(broker)
            if due is not None and broker in hosts:
                due.since_ns = now_ns


@final
@dataclass(frozen=True, slots=True)
class BouncedIsInitialised:
    """BE-06. The controller has declared a process live; that process then says which metadata
    and partitions it received for its own broker epoch, or in a version without one. Exercised
    where it is not its broker's first process."""

    clause: str = "BE-06"
    kinds: frozenset[type[Struct]] = OFFICE_KINDS | {
        *(ControlRequestAnswered, PartitionCommitted, TopicCommitted)
    }
    keys = staticmethod(whole_run)

    def start(self, key: Key) -> _Initialising:
        return _Initialising()

    def step(self, state: _Initialising, event: Event) -> tuple[_Initialising, Sequence[Finding]]:
        body = event.body
        office = state.office
        office.overdue(
            event.at_ns,
            "{controller} declared {process} live and did not initialise it within {span}: it has "
            "not received metadata and partitions for its registration{epoch}",
        )
        _office(office, event)
        match body:
            case BrokerRegistered():
                known = state.epochs.get(body.broker_id)
                state.epochs[body.broker_id] = body.broker_epoch
                office.due[body.broker_id] = _Due(
                    event.process, body.broker_epoch, event.ref, 1 << 62, known is not None
                )
                state.got[event.process] = set()
            case BrokerDeclared() if event.process == office.controller:
                due = office.due.get(body.broker_id)
                if due is not None and due.epoch == body.incarnation_id:
                    live = body.new in ("Active", "Stopping")
                    due.since_ns = event.at_ns if live else 1 << 62
            case BrokerChangeHandled() if event.process == office.controller:
                state.compared(body, event.at_ns)
            case PartitionCommitted():
                state.partitions.take(body)
            case TopicCommitted():
                state.partitions.forget(body)
            case ControlRequestAnswered(error="NONE"):
                return state, self._answered(state, event, body)
        return state, NOTHING

    @staticmethod
    def _answered(
        state: _Initialising, event: Event, body: ControlRequestAnswered
    ) -> Sequence[Finding]:
        due = state.office.due.get(body.broker_id)
        meant = due is not None and body.request_epoch in (due.epoch, NO_EPOCH)
        if due is None or due.process != event.process or not meant:
            return NOTHING
        got = state.got.setdefault(event.process, set())
        got.add(body.api)
        if not {"LeaderAndIsr", "UpdateMetadata"} <= got:
            return NOTHING
        del state.office.due[body.broker_id]
        return (Exercised(event.ref, Evidence.PEER),) if due.bounced else NOTHING

    def end(self, state: _Initialising, end: RunEnd) -> Sequence[Finding]:
        return judge_late(state.office.suspects, end)


@dataclass(slots=True)
class _Hosting:
    """What each broker hosts by the stored assignments, and hosted as a controller declared it."""

    requests: Requests = field(default_factory=Requests)
    partitions: Partitions = field(default_factory=Partitions)
    marked: set[str] = field(default_factory=set)
    due: dict[tuple[str, int, int], tuple[frozenset[str], Cause]] = field(default_factory=dict)
    """(controller process, broker, broker epoch) -> what the broker hosted as that controller
    declared it live."""

    def hosted(self, broker: int) -> frozenset[str]:
        """The partitions of which a broker is a replica now."""
        return frozenset(
            f"{topic}-{index}"
            for (topic, index), one in self.partitions.newest.items()
            if broker in one.replicas and topic not in self.marked
        )


@final
@dataclass(frozen=True, slots=True)
class FirstLeaderAndIsrIsWhole:
    """BE-07. Which LeaderAndIsr is a process's first follows from its answers; for which epoch it
    was meant is the controller's account. It must name what the broker hosted as the controller
    declared it live, by the assignments stored before, and hosts still."""

    clause: str = "BE-07"
    kinds: frozenset[type[Struct]] = REQUEST_KINDS | {
        *(BrokerDeclared, PartitionCommitted, TopicCommitted, TopicMarked)
    }
    keys = staticmethod(whole_run)

    def start(self, key: Key) -> _Hosting:
        return _Hosting()

    def step(self, state: _Hosting, event: Event) -> tuple[_Hosting, Sequence[Finding]]:
        body = event.body
        request = state.requests.take(event)
        match body:
            case PartitionCommitted():
                state.partitions.take(body)
            case TopicCommitted():
                state.partitions.forget(body)
                state.marked.discard(body.topic)
            case TopicMarked():
                state.marked.add(body.topic)
            case BrokerDeclared(new="Active" | "Stopping"):
                due = (event.process, body.broker_id, body.incarnation_id)
                state.due[due] = (state.hosted(body.broker_id), event.ref)
            case _ if request is not None and request.answer.api == "LeaderAndIsr":
                return state, self._judged(state, event, request)
        return state, NOTHING

    @staticmethod
    def _judged(state: _Hosting, event: Event, request: Request) -> Sequence[Finding]:
        answer = request.answer
        if request.former:
            if not request.obeyed:
                return (Exercised(event.ref, request.evidence),)
            message = (
                f"{event.process} obeyed a LeaderAndIsr of its former process, {request.meant_for}"
            )
            return (Violated(event.ref, request.evidence, message, request.because),)
        due = state.due.get((answer.client, answer.broker_id, request.asked))
        if not request.first or due is None:
            return NOTHING
        hosted, at = due
        named = answer.partitions if request.sent is None else request.sent.partitions
        missing = sorted((hosted & state.hosted(answer.broker_id)) - set(named))
        if missing:
            message = (
                f"the first LeaderAndIsr that {event.process} obeyed lacks {len(missing)} of the "
                f"{len(hosted)} partitions that it hosts, such as {missing[0]}"
            )
            return (Violated(event.ref, request.evidence, message, (at, *request.because)),)
        return (Exercised(event.ref, request.evidence),) if hosted else NOTHING

    def end(self, state: _Hosting, end: RunEnd) -> Sequence[Finding]:
        return NOTHING
