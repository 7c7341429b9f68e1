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
    Finding,
    Key,
    NodeStopped,
    ProcessExited,
    RunEnd,
    Violated,
)
from fencepost_kafka import (
    BrokerDeclared,
    BrokerRegistered,
    BrokerStateChanged,
    BrokerStopping,
    ControlledShutdownAnswered,
    ControllerBegan,
    ControllerEnded,
    ControlRequestAnswered,
    ControlRequestSent,
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
        message = (
            f"{event.process} with broker epoch {request.own} obeyed a StopReplica for "
            f"{request.asked}, of its former process"
        )
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
class _Shutdowns:
    """Which process registered under which epoch, which of them were asked to stop, and what each
    controller has declared."""

    holders: dict[tuple[int, int], tuple[str, Cause]] = field(default_factory=dict)
    """(broker, broker epoch) -> the process that registered under it."""
    stopping: set[str] = field(default_factory=set)
    declared: dict[tuple[str, int], tuple[int, Cause]] = field(default_factory=dict)
    """(controller process, broker) -> the newest broker epoch that it has declared."""


@final
@dataclass(frozen=True, slots=True)
class FormerShutdownRejected:
    """BE-04. Which epoch the controller has cached shows in what it has declared before. A
    StopReplica that keeps the data is sent in a controlled shutdown only, so that it goes to a
    process that was asked to stop, by that process's own account."""

    clause: str = "BE-04"
    kinds: frozenset[type[Struct]] = frozenset(
        {
            *(BrokerRegistered, BrokerStopping, BrokerDeclared),
            *(ControlledShutdownAnswered, ControlRequestSent),
        }
    )
    keys = staticmethod(whole_run)

    def start(self, key: Key) -> _Shutdowns:
        return _Shutdowns()

    def step(self, state: _Shutdowns, event: Event) -> tuple[_Shutdowns, Sequence[Finding]]:
        body = event.body
        match body:
            case BrokerRegistered():
                holder = (event.process, event.ref)
                state.holders[body.broker_id, body.broker_epoch] = holder
            case BrokerStopping():
                state.stopping.add(event.process)
            case BrokerDeclared(new="Absent"):
                state.declared.pop((event.process, body.broker_id), None)
            case BrokerDeclared():
                cached = (body.incarnation_id, event.ref)
                state.declared[event.process, body.broker_id] = cached
            case ControlledShutdownAnswered() if body.request_epoch != NO_EPOCH:
                return state, self._answered(state, event, body)
            case ControlRequestSent(api="StopReplica", deletes=False):
                return state, self._sent(state, event, body)
        return state, NOTHING

    @staticmethod
    def _answered(
        state: _Shutdowns, event: Event, body: ControlledShutdownAnswered
    ) -> Sequence[Finding]:
        cached = state.declared.get((event.process, body.broker_id))
        if cached is None or body.request_epoch >= cached[0]:
            return NOTHING
        if body.error != "NONE":
            return (Exercised(event.ref, Evidence.PEER),)
        message = (
            f"{event.process} accepted a ControlledShutdown of broker {body.broker_id} with broker "
            f"epoch {body.request_epoch}, after it had declared {cached[0]}"
        )
        return (Violated(event.ref, Evidence.PEER, message, (cached[1],)),)

    @staticmethod
    def _sent(state: _Shutdowns, event: Event, body: ControlRequestSent) -> Sequence[Finding]:
        holder = state.holders.get((body.broker_id, body.broker_epoch))
        if holder is None or holder[0] in state.stopping:
            return NOTHING
        message = (
            f"{event.process} sent {holder[0]} a StopReplica of {len(body.partitions)} partitions "
            f"for its broker epoch {body.broker_epoch}, and that process was not asked to stop"
        )
        return (Violated(event.ref, Evidence.PEER, message, (holder[1],)),)

    def end(self, state: _Shutdowns, end: RunEnd) -> Sequence[Finding]:
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
        for broker, one in list(self.due.items()):
            from_ns = max(one.since_ns, self.began_ns)
            if now_ns - from_ns <= BOUND_NS:
                continue
            text = message.format(
                controller=self.controller,
                process=one.process,
                epoch=one.epoch,
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
    }
)


def _office(state: _Office, event: Event) -> None:
    """Applies what says which controller is in office, and which processes are brokers."""
    body = event.body
    match body:
        case ControllerBegan():
            state.begins(event)
        case ControllerEnded() if event.process == state.controller:
            state.controller = ""
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
            "{controller} did not find within {span} that {process} had registered with broker "
            "epoch {epoch}",
        )
        _office(state, event)
        match body:
            case BrokerRegistered():
                epoch, as_bounced = state.found.get(body.broker_id, (NO_EPOCH, False))
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
        return state, NOTHING

    def end(self, state: _Office, end: RunEnd) -> Sequence[Finding]:
        return judge_late(state.suspects, end)


@dataclass(slots=True)
class _Initialising:
    office: _Office = field(default_factory=_Office)
    epochs: dict[int, int] = field(default_factory=dict)
    """broker -> the newest broker epoch of which it is known."""
    got: dict[str, set[str]] = field(default_factory=dict)
    """process -> the APIs of the requests for its epoch that it has obeyed."""


@final
@dataclass(frozen=True, slots=True)
class BouncedIsInitialised:
    """BE-06. The controller has declared a process live; that process then says which metadata
    and partitions it received for its own broker epoch, or in a version without one. Exercised
    where it is not its broker's first process."""

    clause: str = "BE-06"
    kinds: frozenset[type[Struct]] = OFFICE_KINDS | {ControlRequestAnswered}
    keys = staticmethod(whole_run)

    def start(self, key: Key) -> _Initialising:
        return _Initialising()

    def step(self, state: _Initialising, event: Event) -> tuple[_Initialising, Sequence[Finding]]:
        body = event.body
        office = state.office
        office.overdue(
            event.at_ns,
            "{controller} declared {process} live and did not initialise it within {span}: it has "
            "not received metadata and partitions for broker epoch {epoch}",
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
                f"{event.process} with broker epoch {request.own} obeyed a LeaderAndIsr for "
                f"{request.asked}, sent to its former process"
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
