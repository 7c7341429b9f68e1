"""The identities of the quorum: ids are unique; brokers learn the voters and follow them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, final

from msgspec import Struct

from fencepost import (
    FAULT_KINDS,
    MS,
    NOTHING,
    Cause,
    Deadline,
    Event,
    Evidence,
    Excuses,
    Exercised,
    Fact,
    FaultHealed,
    FaultInjected,
    Findings,
    NodeStarted,
    ProcessExited,
    ProcessSpawned,
    Rule,
    RunEnd,
    Scope,
    Violated,
    is_second,
    judged,
    on,
    process_scope,
    slot_of,
    violated,
)
from fencepost_kafka import (
    BrokerCommitted,
    BrokerStateChanged,
    ControllerElected,
    HeartbeatAnswered,
    HeartbeatRefused,
    HeartbeatSent,
    LeaseGranted,
    QuorumLearned,
    broker_of,
)
from fencepost_suites.common.keys import by_process
from fencepost_suites.common.starts import process_begun


@dataclass(slots=True)
class _Ids:
    """The ids of controllers and of brokers."""

    controllers: dict[int, tuple[str, Cause]] = field(default_factory=dict)
    brokers: dict[int, Cause] = field(default_factory=dict)


@final
class OneSpaceOfIds(Rule[_Ids]):
    """QC-03. Each node that replays a registration under a controller's id, or under a negative
    one, reports it, and so does a controller that accepts a heartbeat under one. The broker itself
    reports the refusal it got."""

    clause = "QC-03"
    state = _Ids

    @on(ProcessSpawned, NodeStarted, BrokerCommitted, HeartbeatAnswered, HeartbeatRefused)
    def step(self, state: _Ids, event: Event, body: Struct) -> Findings:
        match body:
            case ProcessSpawned(role="controller") | NodeStarted(role="controller"):
                process = process_begun(event, body)
                if is_second(process):
                    return NOTHING
                known = state.controllers.setdefault(body.node_id, (process, event.ref))
                found = self._two(event, process, body.node_id, known)
                if body.node_id in state.brokers:
                    because = state.brokers[body.node_id]
                    found += self._shared(state, event, body.node_id, because)
                return found
            case BrokerCommitted():
                return self._admitted(state, event, body.broker_id, Evidence.PEER)
            case HeartbeatAnswered(error="NONE", active=True):
                return self._admitted(state, event, body.broker_id, Evidence.SELF)
            # A refusal for another reason shows nothing of the id.
            case HeartbeatRefused(error="INVALID_REQUEST") if body.broker_id in state.controllers:
                return (Exercised(event.ref, Evidence.PEER),)
        return NOTHING

    @staticmethod
    def _admitted(state: _Ids, event: Event, broker: int, by: Evidence) -> Findings:
        """A node takes a broker for one of the cluster, by its record or by its heartbeat."""
        if broker in state.brokers:
            return NOTHING
        state.brokers[broker] = event.ref
        if broker in state.controllers:
            because = state.controllers[broker][1]
            return OneSpaceOfIds._shared(state, event, broker, because, by)
        return (_negative(event, broker, by),) if broker < 0 else NOTHING

    @staticmethod
    def _two(
        event: Event, process: str, node: int, known: tuple[str, Cause]
    ) -> tuple[Violated, ...]:
        """Another slot has a controller with that id; nobody has started a second one on
        purpose."""
        other, because = known
        if slot_of(other) == slot_of(process):
            return ()
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} and {other} are both controller {controller}",
            (because,),
            process=process_scope(process),
            other=process_scope(other),
            controller=Scope("controller", str(node)),
        )
        return (broken,)

    @staticmethod
    def _shared(
        state: _Ids, event: Event, node: int, because: Cause, by: Evidence = Evidence.PEER
    ) -> tuple[Violated, ...]:
        broken = violated(
            event.ref,
            by,
            "broker {broker} is registered, and {process} is controller {controller}",
            (because,),
            broker=broker_of(node),
            process=process_scope(state.controllers[node][0]),
            controller=Scope("controller", str(node)),
        )
        return (broken,)


def _negative(event: Event, broker: int, by: Evidence) -> Violated:
    return violated(
        event.ref,
        by,
        "broker {broker} is registered, and no id is negative",
        broker=broker_of(broker),
        process=process_scope(event.process),
    )


@dataclass(slots=True)
class _Shared:
    """The nodes that began in one process, by role."""

    ids: dict[str, int] = field(default_factory=dict)
    admitted: bool = False


@final
class TwoNodesInOneProcess(Rule[_Shared]):
    """QC-02. Exercised when a controller accepts a broker whose process runs a controller as well,
    under different ids."""

    clause = "QC-02"
    keys = staticmethod(by_process)
    state = _Shared

    @on(NodeStarted, HeartbeatAnswered)
    def step(self, state: _Shared, event: Event, body: Struct) -> Findings:
        match body:
            case NodeStarted():
                other = {r: i for r, i in state.ids.items() if r != body.role}
                state.ids[body.role] = body.node_id
                if body.node_id in other.values():
                    broken = violated(
                        event.ref,
                        Evidence.SELF,
                        "{process} is broker and controller {controller}",
                        process=process_scope(event.process),
                        controller=Scope("controller", str(body.node_id)),
                        broker=broker_of(body.node_id),
                    )
                    return (broken,)
            case HeartbeatAnswered(error="NONE", next_state="ACTIVE", active=True):
                both = {"broker", "controller"} <= state.ids.keys()
                if both and state.ids["broker"] == body.broker_id and not state.admitted:
                    state.admitted = True
                    return (Exercised(event.ref, Evidence.PEER),)
        return NOTHING


Quorum = tuple[tuple[int, ...], tuple[str, ...]]
"""Voters, and their addresses."""
LEARNED_WITHIN_NS: Final = 30_000 * MS
"""How long a broker may have a quorum that was replaced: it reads former ones in the log first."""


@dataclass(slots=True)
class _Known:
    """The quorums that controllers know, and the ones that brokers were configured with and
    learned."""

    quorums: set[Quorum] = field(default_factory=set)
    """All that any controller ever had."""
    present: dict[str, Quorum] = field(default_factory=dict)
    """process of a controller -> what it has taken for the quorum last."""
    addresses: dict[int, str] = field(default_factory=dict)
    given: dict[str, tuple[frozenset[str], Cause]] = field(default_factory=dict)
    """broker process -> its bootstrap addresses, and the event that recorded them."""
    partial: set[str] = field(default_factory=set)
    """Brokers whose configured addresses differ from those of the quorum."""
    brokers: dict[tuple[int, str], str] = field(default_factory=dict)
    """id and incarnation -> broker process."""

    def learned(self, event: Event, body: QuorumLearned) -> bool:
        """Records the quorum that a node has learned; returns whether some controller has the
        same."""
        quorum = (body.voters, body.endpoints)
        # A controller's word: it is configured with voters, and brokers with bootstrap addresses.
        if not body.bootstrap:
            self.quorums.add(quorum)
            self.present[event.process] = quorum
            self.addresses.update(zip(body.voters, body.endpoints, strict=True))
            return True
        given = frozenset(body.bootstrap)
        self.given[event.process] = (given, event.ref)
        if given != set(body.endpoints):
            self.partial.add(event.process)
        return quorum in self.quorums


@dataclass(slots=True)
class _Learning:
    """The quorums that are known, and the brokers that have taken a former one for theirs."""

    known: _Known = field(default_factory=_Known)
    former: dict[str, Event] = field(default_factory=dict)
    """process of a broker -> the event of that."""
    excuses: Excuses = field(default_factory=Excuses)
    suspects: list[Deadline] = field(default_factory=list)

    def kept(self, process: str, at_ns: int) -> None:
        """A broker has had a former quorum until then."""
        event = self.former.pop(process, None)
        if event is None or at_ns - event.at_ns <= LEARNED_WITHIN_NS:
            return
        touched = any(one.touches(process) for one in self.excuses.since(event.at_ns))
        if not touched:
            broken = _no_quorum(event, "a former one, for {after_ns}", after_ns=at_ns - event.at_ns)
            late = Deadline(broken, (process,), event.at_ns, at_ns, LEARNED_WITHIN_NS)
            self.suspects.append(late)


@final
class LearnsTheQuorum(Rule[_Learning]):
    """QC-05. The quorum that a broker learned must be one that some controller has, or had until
    shortly before, unless a fault keeps the broker from learning the next one. Exercised when the
    registration of a broker is committed that was configured with other addresses than the
    quorum's."""

    clause = "QC-05"
    state = _Learning

    @on(QuorumLearned, NodeStarted, BrokerCommitted, ProcessExited, *FAULT_KINDS)
    def step(self, state: _Learning, event: Event, body: Struct) -> Findings:
        known = state.known
        match body:
            case QuorumLearned():
                state.kept(event.process, event.at_ns)
                if not known.learned(event, body):
                    return (_no_quorum(event, "but no controller does"),)
                if (body.voters, body.endpoints) not in known.present.values():
                    state.former[event.process] = event
            case ProcessExited():
                state.kept(body.ended, event.at_ns)
            case NodeStarted(role="broker"):
                known.brokers[body.node_id, body.incarnation] = event.process
            case BrokerCommitted():
                process = known.brokers.get((body.broker_id, body.incarnation), "")
                if process in known.partial:
                    known.partial.discard(process)
                    return (Exercised(event.ref, Evidence.PEER),)
            case FaultInjected() | FaultHealed():
                state.excuses.take(event)
        return NOTHING

    def end(self, state: _Learning, end: RunEnd) -> Findings:
        for process in [*state.former]:
            state.kept(process, end.ended_at_ns)
        return judged(state.suspects, end)


def _no_quorum(event: Event, why: str, **facts: Fact) -> Violated:
    """A broker takes for the quorum what is none."""
    body = event.body
    assert isinstance(body, QuorumLearned)
    return violated(
        event.ref,
        Evidence.PEER,
        "{process} takes {quorum} for the quorum, " + why,
        process=process_scope(event.process),
        quorum=str(list(body.endpoints)),
        endpoints=body.endpoints,
        **facts,
    )


@dataclass(slots=True)
class _Followed:
    """The active controller, the event of its election, and each broker's actions since."""

    known: _Known = field(default_factory=_Known)
    ids: dict[str, int] = field(default_factory=dict)
    epoch: int = -1
    active: int = -1
    elected: Cause | None = None
    asked: set[str] = field(default_factory=set)
    """Brokers that have sent it a heartbeat."""
    refused: dict[str, Cause] = field(default_factory=dict)
    """Brokers that learned from another controller that it is not the active one."""
    followed: set[str] = field(default_factory=set)


@final
class FollowsNewAddresses(Rule[_Followed]):
    """QC-29. Exercised by a lease from a controller at an address that the broker was not
    configured with. Broken by a lease that ran out while other controllers answered and the active
    one was never asked."""

    clause = "QC-29"
    state = _Followed

    @on(
        NodeStarted,
        QuorumLearned,
        ControllerElected,
        HeartbeatSent,
        HeartbeatRefused,
        LeaseGranted,
        BrokerStateChanged,
    )
    def step(self, state: _Followed, event: Event, body: Struct) -> Findings:
        match body:
            case NodeStarted(role="controller"):
                state.ids[event.process] = body.node_id
            case QuorumLearned():
                state.known.learned(event, body)
            case ControllerElected() if body.epoch > state.epoch:
                state.epoch, state.elected = body.epoch, event.ref
                state.active = state.ids.get(event.process, -1)
                state.asked, state.refused, state.followed = set(), {}, set()
            case HeartbeatSent() if body.controller == state.active:
                state.asked.add(event.process)
            case HeartbeatRefused(error="NOT_CONTROLLER") if body.controller != state.active:
                state.refused[event.process] = event.ref
            case LeaseGranted() if body.controller_epoch == state.epoch:
                return self._granted(state, event)
            case BrokerStateChanged(reason="lease_expired"):
                return self._expired(state, event)
        return NOTHING

    @staticmethod
    def _strange(state: _Followed, process: str) -> bool:
        """Whether a broker was not configured with the active controller's address."""
        given = state.known.given.get(process)
        address = state.known.addresses.get(state.active)
        return given is not None and address is not None and address not in given[0]

    def _granted(self, state: _Followed, event: Event) -> Findings:
        if event.process in state.followed or not self._strange(state, event.process):
            return NOTHING
        state.followed.add(event.process)
        return (Exercised(event.ref, Evidence.PEER),)

    def _expired(self, state: _Followed, event: Event) -> Findings:
        refused = state.refused.get(event.process)
        # A broker that nobody answers may be cut off. One that others answer, and that never asks
        # the active controller, does not follow the quorum.
        if refused is None or event.process in state.asked or state.elected is None:
            return NOTHING
        if not self._strange(state, event.process):
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} lost its lease without having asked controller {controller}, the active "
            "one, whose address it was not configured with, though others answered it",
            (state.elected, refused),
            process=process_scope(event.process),
            controller=Scope("controller", str(state.active)),
            epoch=state.epoch,
        )
        return (broken,)
