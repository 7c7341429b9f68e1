"""The effects of control requests, by what their receivers and ZooKeeper record beside the answer:
roles that a refused LeaderAndIsr gave, roles that an accepted one did not give, and requests
without any answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    FAULT_KINDS,
    MS,
    Cause,
    Deadline,
    Event,
    Evidence,
    Excused,
    Excuses,
    FaultHealed,
    FaultInjected,
    NodeStopped,
    ProcessExited,
    Reason,
    RunEnd,
    Scope,
    Violated,
    process_scope,
    violated,
)
from fencepost_kafka import (
    BrokerDeclared,
    BrokerRegistered,
    BrokerStateChanged,
    ControllerBegan,
    ControllerEnded,
    ControlRequestAnswered,
    ControlRequestSent,
    FollowingStarted,
    LeadershipStarted,
    PartitionCommitted,
    ReplicaRemoved,
    ReplicaStopped,
    SessionChanged,
    TopicCommitted,
    TopicMarked,
)
from fencepost_kafka.committed import Partitions
from fencepost_suites.control_requests.requests import NO_EPOCH, Request

EFFECT_WITHIN_NS = 10_000 * MS
"""How long a request may be without an answer, and an answer without its effect, while no fault
names either end. The documents name no time; our request timeout is two seconds."""
ROLE_KINDS: frozenset[type[Struct]] = frozenset(
    {LeadershipStarted, FollowingStarted, ProcessExited, NodeStopped}
)
"""The events that `RefusedRoles.take` applies, beside those of control requests."""
DUE_KINDS: frozenset[type[Struct]] = FAULT_KINDS | {
    *(LeadershipStarted, FollowingStarted),
    *(PartitionCommitted, TopicCommitted, TopicMarked),
    *(ReplicaStopped, ReplicaRemoved, BrokerDeclared, BrokerStateChanged),
    *(ControllerBegan, ControllerEnded, SessionChanged, ProcessExited, NodeStopped),
}
"""The events that `Effects.take` applies, beside those of control requests."""


def ended(event: Event) -> str:
    """The process that is no longer a broker, or whose session with ZooKeeper is not connected."""
    body = event.body
    match body:
        case ProcessExited():
            return body.ended
        case NodeStopped() | BrokerStateChanged(reason="taken_over"):
            return event.process
        case SessionChanged() if body.state != "connected":
            return event.process
    return ""


class _Role(Struct, frozen=True):
    """A process began to lead or to follow a partition."""

    partition: str
    at_ns: int
    ref: Cause


@final
@dataclass(slots=True)
class RefusedRoles:
    """The roles that processes took without a LeaderAndIsr that they carried out."""

    refused: dict[tuple[str, str], tuple[Cause, int]] = field(default_factory=dict)
    """(process, partition) -> the answer by which it refused a LeaderAndIsr, and its broker id."""
    waiting: dict[tuple[str, int], ControlRequestSent] = field(default_factory=dict)
    """(controller, request) -> a LeaderAndIsr without an answer, from a controller that counts its
    attempts: then its event comes before all effects of the request."""
    obeyed: set[tuple[str, str]] = field(default_factory=set)
    exact: bool = False
    """Whether a controller counts its attempts."""
    open: dict[tuple[str, str], _Role] = field(default_factory=dict)
    """(process, partition) -> its role, until a LeaderAndIsr is answered that gave it."""
    newest: dict[str, tuple[Cause, list[_Role]]] = field(default_factory=dict)
    """process -> the newest request that gave it roles, and these."""

    def take(self, event: Event, request: Request | None) -> Sequence[Violated]:
        """Applies an event; `request` is the one that it answers."""
        body = event.body
        match body:
            case ControlRequestSent(api="LeaderAndIsr") if body.attempt:
                self.exact = True
                self.waiting[event.process, body.correlation] = body
            case LeadershipStarted() | FollowingStarted():
                return self._began(event, f"{body.topic}-{body.partition}")
            case ProcessExited() | NodeStopped():
                return list(self._close(ended(event), event.at_ns))
            case _ if request is not None and request.answer.api == "LeaderAndIsr":
                return self._answered(event, request)
        return ()

    def _began(self, event: Event, partition: str) -> Sequence[Violated]:
        place, role = (event.process, partition), _Role(partition, event.at_ns, event.ref)
        refusal, broker = self.refused.get(place, (None, -1))
        if place not in self.obeyed:
            # A LeaderAndIsr that is under way may have given the role, and its answer come later.
            # Where a controller does not count its attempts, that can never be ruled out.
            may_come = not self.exact or any(
                one.broker_id == broker and partition in one.partitions
                for one in self.waiting.values()
            )
            if refusal is not None and not may_come:
                return [self._taken(event.process, role, refusal)]
            self.open.setdefault(place, role)
        cause = event.cause
        # Roles that one request gives: if it is refused after all, each of them was taken by a
        # refused request.
        if cause is not None and cause.request:
            newest, roles = self.newest.get(event.process, (None, []))
            self.newest[event.process] = (cause, [*(roles if newest == cause else ()), role])
        return ()

    def _answered(self, event: Event, request: Request) -> Sequence[Violated]:
        named = request.answer.partitions if request.sent is None else request.sent.partitions
        places = [(event.process, partition) for partition in named]
        if event.cause is not None:
            self.waiting.pop((event.cause.process, event.cause.seq), None)
        if request.obeyed:
            self.obeyed.update(places)
            for place in places:
                self.open.pop(place, None)
            return ()
        for place in places:
            self.refused.setdefault(place, (event.ref, request.answer.broker_id))
        cause, roles = self.newest.get(event.process, (None, []))
        if cause is None or cause != event.cause:
            return ()
        return [self._taken(event.process, one, event.ref) for one in roles]

    def _close(self, process: str, at_ns: int) -> Iterator[Violated]:
        """The roles that a refused request alone can have given, when their process ends. A process
        that has just taken a role may end before its answer."""
        for place in [place for place in self.open if place[0] == process]:
            role = self.open.pop(place)
            if place in self.refused and at_ns > role.at_ns + EFFECT_WITHIN_NS:
                yield self._taken(process, role, self.refused[place][0])

    @staticmethod
    def _taken(process: str, role: _Role, refusal: Cause) -> Violated:
        return violated(
            role.ref,
            Evidence.PEER,
            "{process} took a role for {partition} by a LeaderAndIsr that it refused",
            (refusal,),
            process=process_scope(process),
            partition=Scope("partition", role.partition),
        )

    def end(self, end: RunEnd) -> Sequence[Violated]:
        """The roles that are left when the run ends."""
        processes = sorted({process for process, _ in self.open})
        return [one for p in processes for one in self._close(p, end.ended_at_ns)]


@dataclass(slots=True)
class _Due:
    """What a broker's process owes to a controller. A fault that names one of the two moves
    `since_ns`."""

    controller: str
    process: str
    began_ns: int
    ref: Cause
    api: str
    """The request of the controller."""
    partition: str = ""
    duty: _Duty | None = None
    """The role that is due; None: an answer is."""
    since_ns: int = 0
    """Since when no fault excuses it."""
    excuse: Reason | None = None
    """What the newest fault that did so acted upon."""

    def missed(self, waited_ns: int) -> Violated:
        """A violation: it was not done within that time."""
        if self.duty is None:
            return violated(
                self.ref,
                Evidence.PEER,
                "{process} did not answer the {operation} of {other} within {since_ns}",
                process=process_scope(self.process),
                operation=self.api,
                other=process_scope(self.controller),
                since_ns=waited_ns,
            )
        return violated(
            self.ref,
            Evidence.PEER,
            "{process} answered a {operation} with NONE, but did not begin to lead {partition} in "
            "leader epoch {epoch} within {since_ns}"
            if self.duty.leads
            else "{process} answered a {operation} with NONE, but did not begin to follow "
            "{partition} in leader epoch {epoch} within {since_ns}",
            process=process_scope(self.process),
            operation=self.api,
            partition=Scope("partition", self.partition),
            epoch=self.duty.epoch,
            since_ns=waited_ns,
            other=process_scope(self.controller),
            leads=self.duty.leads,
        )


class _Duty(Struct, frozen=True):
    """To lead or to follow a partition in a leader epoch."""

    leads: bool
    epoch: int

    def done_by(self, begun: _Duty | None) -> bool:
        """Whether a role that has begun is this one, or one of a later leader epoch."""
        if begun is None or begun.epoch < self.epoch:
            return False
        return begun.epoch > self.epoch or begun.leads == self.leads


Queue = tuple[str, int, int]
"""A controller's process, a broker and its broker epoch."""


@final
@dataclass(slots=True)
class Effects:
    """The requests that have no answer, and the roles that a broker has in ZooKeeper, that an
    accepted LeaderAndIsr named, and that the broker has not begun."""

    partitions: Partitions = field(default_factory=Partitions)
    faults: Excuses = field(default_factory=Excuses)
    holders: dict[tuple[int, int], str] = field(default_factory=dict)
    """(broker, broker epoch) -> the process that registered under it."""
    queues: dict[Queue, _Due] = field(default_factory=dict)
    """Queue -> the answer that is due to its first request."""
    named: dict[tuple[str, int], tuple[Queue, dict[str, _Duty]]] = field(default_factory=dict)
    """(controller, request) -> its queue, and the partitions of which the receiver was then a
    replica in ZooKeeper, with its roles."""
    begun: dict[tuple[str, str], _Duty] = field(default_factory=dict)
    """(process, partition) -> the newest role that it has begun."""
    roles: dict[tuple[str, str], tuple[_Due, _Duty]] = field(default_factory=dict)
    """(process, partition) -> the role that is due."""
    suspects: list[Deadline] = field(default_factory=list)
    excused: list[Excused] = field(default_factory=list)
    """What would have been overdue, but for a fault."""

    def take(self, event: Event) -> None:
        """Applies an event."""
        body = event.body
        self._excuse(event)
        gone = ended(event)
        # A suspended session may go on: the process is still the broker of its epoch, and owes
        # nothing meanwhile.
        if gone and not (isinstance(body, SessionChanged) and body.state == "suspended"):
            self.holders = {of: holder for of, holder in self.holders.items() if holder != gone}
        if gone or isinstance(body, ControllerBegan | ControllerEnded):
            self._leave(gone or event.process, event.at_ns)
        match body:
            case BrokerRegistered():
                self._leave(event.process, event.at_ns)
                self.holders[body.broker_id, body.broker_epoch] = event.process
            # The controller closes its queue to a broker that is not live, so no answer is due any
            # more.
            case BrokerDeclared() if body.new not in ("Active", "Stopping"):
                for queue in [q for q in self.queues if q[:2] == (event.process, body.broker_id)]:
                    self._close_queue(queue, event.at_ns)
            case ControlRequestSent() if body.attempt and body.broker_epoch != NO_EPOCH:
                self._sent(event, body)
            case ControlRequestAnswered() if event.cause is not None:
                self._answered(event, body, event.cause)
            case LeadershipStarted() | FollowingStarted():
                self._began(event, body)
            case PartitionCommitted() | TopicCommitted() | TopicMarked():
                self._stored(event, body)
            case ReplicaStopped() | ReplicaRemoved():
                self._close_role((event.process, f"{body.topic}-{body.partition}"), event.at_ns)

    def _excuse(self, event: Event) -> None:
        if isinstance(event.body, FaultInjected):
            self.faults.take(event)
        if isinstance(event.body, FaultInjected | FaultHealed):
            for one in (*self.queues.values(), *(due for due, _ in self.roles.values())):
                excuse = self.faults.on(one.process, one.controller)
                if excuse is not None:
                    one.since_ns, one.excuse = event.at_ns, excuse
        if isinstance(event.body, FaultHealed):
            self.faults.take(event)

    def _leave(self, process: str, at_ns: int) -> None:
        """A process has ended, or is no longer a broker or the controller."""
        for queue in [q for q, one in self.queues.items() if process in (q[0], one.process)]:
            self._close_queue(queue, at_ns)
        for place in [place for place in self.roles if place[0] == process]:
            self._close_role(place, at_ns)

    def _sent(self, event: Event, body: ControlRequestSent) -> None:
        queue = (event.process, body.broker_id, body.broker_epoch)
        process = self.holders.get(queue[1:])
        if process is None:
            return
        given: dict[str, _Duty] = {}
        for name in body.partitions if body.api == "LeaderAndIsr" else ():
            topic, _, index = name.rpartition("-")
            one = self.partitions.newest.get((topic, int(index)))
            # The role in ZooKeeper, and not the one in the request: the request may be wrong, which
            # other clauses judge.
            if one is not None and one.leader >= 0 and body.broker_id in one.replicas:
                given[name] = _Duty(one.leader == body.broker_id, one.leader_epoch)
        self.named[event.process, body.correlation] = (queue, given)
        # The first request without an answer stands for its queue: the next one is sent only after
        # it.
        if queue not in self.queues:
            self.queues[queue] = _Due(event.process, process, event.at_ns, event.ref, body.api)

    def _answered(self, event: Event, body: ControlRequestAnswered, cause: Cause) -> None:
        queue, given = self.named.get((cause.process, cause.seq), (None, {}))
        if queue is None:
            return
        if queue in self.queues and self.queues[queue].process == event.process:
            self._close_queue(queue, event.at_ns)
        for partition, duty in given.items() if body.error == "NONE" else ():
            place = (event.process, partition)
            if not duty.done_by(self.begun.get(place)) and place not in self.roles:
                due = _Due(
                    controller=cause.process,
                    process=event.process,
                    began_ns=event.at_ns,
                    ref=event.ref,
                    api="LeaderAndIsr",
                    partition=partition,
                    duty=duty,
                )
                self.roles[place] = (due, duty)

    def _began(self, event: Event, body: LeadershipStarted | FollowingStarted) -> None:
        place = (event.process, f"{body.topic}-{body.partition}")
        duty = _Duty(isinstance(body, LeadershipStarted), body.leader_epoch)
        self.begun[place] = duty
        if place in self.roles and self.roles[place][1].done_by(duty):
            self._close_role(place, event.at_ns)

    def _stored(
        self, event: Event, body: PartitionCommitted | TopicCommitted | TopicMarked
    ) -> None:
        """A partition is stored anew, or goes: what was due for it may no longer be."""
        if isinstance(body, PartitionCommitted):
            self.partitions.take(body)
        elif isinstance(body, TopicCommitted):
            self.partitions.forget(body)
        for place, (_, duty) in list(self.roles.items()):
            topic, _, index = place[1].rpartition("-")
            known = self.partitions.newest.get((topic, int(index)))
            marked = isinstance(body, TopicMarked) and body.topic == topic
            # A later leader epoch gives another role, so this one need not be begun.
            if marked or known is None or known.leader_epoch != duty.epoch:
                self._close_role(place, event.at_ns)

    def _close_queue(self, queue: Queue, at_ns: int) -> None:
        self._judge(self.queues.pop(queue), at_ns)

    def _close_role(self, place: tuple[str, str], at_ns: int) -> None:
        if place in self.roles:
            self._judge(self.roles.pop(place)[0], at_ns)

    def _judge(self, one: _Due, at_ns: int) -> None:
        """Adds a suspect if what was due until now came too late, or not at all."""
        if at_ns <= one.began_ns + EFFECT_WITHIN_NS:
            return
        since_ns = max(one.began_ns, one.since_ns)
        due_ns = since_ns + EFFECT_WITHIN_NS
        # A fault that still names either end excuses it, however long it has lasted.
        lasting = self.faults.on(one.process, one.controller)
        excuse = lasting or (one.excuse if at_ns <= due_ns else None)
        if excuse is not None:
            broken = one.missed(at_ns - one.began_ns)
            self.excused.append(Excused.of(broken, excuse, "; but "))
            return
        self.suspects.append(
            Deadline(
                violated=one.missed(at_ns - since_ns),
                actors=(one.process,),
                from_ns=since_ns,
                to_ns=at_ns,
                bound_ns=EFFECT_WITHIN_NS,
                due_ns=due_ns,
            )
        )

    def end(self, end: RunEnd) -> Sequence[Deadline]:
        """What was suspected, or is still due when the run ends."""
        for queue in list(self.queues):
            self._close_queue(queue, end.ended_at_ns)
        for place in list(self.roles):
            self._close_role(place, end.ended_at_ns)
        return self.suspects
