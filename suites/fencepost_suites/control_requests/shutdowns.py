"""How a controller answers a ControlledShutdown that arrives after its sender has ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    MS,
    NOTHING,
    Cause,
    Event,
    Evidence,
    Exercised,
    Facts,
    Findings,
    NodeStarted,
    Rule,
    Scope,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    BrokerChangeHandled,
    BrokerDeclared,
    BrokerRegistered,
    BrokerStopping,
    ControlledShutdownAnswered,
    ControlRequestSent,
    PartitionCommitted,
    TopicCommitted,
    broker_of,
    partition_of,
)
from fencepost_kafka.committed import Partitions
from fencepost_suites.control_requests.requests import NO_EPOCH

EFFECT_NS = 1_000 * MS
"""How long after a refusal a move of leadership is taken for its effect."""


@dataclass(slots=True)
class _Shutdowns:
    """The processes that registered under each broker epoch, those that were asked to stop, and the
    controllers' declarations."""

    holders: dict[tuple[int, int], tuple[str, Cause]] = field(default_factory=dict)
    """(broker, broker epoch) -> the process that registered under that epoch."""
    stopping: set[str] = field(default_factory=set)
    declared: dict[tuple[str, int], tuple[int, Cause]] = field(default_factory=dict)
    """(controller process, broker) -> the broker epoch in the newest declaration."""
    newest: dict[int, str] = field(default_factory=dict)
    """broker -> its process that began last."""
    epochs: dict[str, tuple[int, Cause]] = field(default_factory=dict)
    """process -> the broker epoch of its newest registration."""
    found: dict[tuple[str, int], str] = field(default_factory=dict)
    """(controller process, broker) -> the process whose registration it has found."""
    partitions: Partitions = field(default_factory=Partitions)
    refused: dict[tuple[str, int], tuple[int, Cause]] = field(default_factory=dict)
    """(controller process, broker) -> when it last refused a ControlledShutdown of a former process
    of a broker that it had live; until the broker's state changes."""

    def moved(self, event: Event, body: PartitionCommitted) -> int | None:
        """The broker that lost both leadership and ISR membership by what a controller wrote, right
        after it had refused a ControlledShutdown of its former process."""
        news, before = self.partitions.take(body)
        if not news or before is None or before.leader < 0:
            return None
        refused_ns, _ = self.refused.get((event.process, before.leader), (-1 << 62, None))
        kept = body.leader == before.leader or before.leader in body.isr
        if kept or before.leader not in body.replicas or event.at_ns > refused_ns + EFFECT_NS:
            return None
        holder = self.holders.get((before.leader, self.declared[event.process, before.leader][0]))
        return None if holder is None or holder[0] in self.stopping else before.leader

    def compare(self, controller: str, body: BrokerChangeHandled) -> None:
        """Applies a broker change."""
        for broker in body.deleted:
            self.found.pop((controller, broker), None)
        for broker in (*body.added, *body.bounced):
            if broker in self.newest:
                self.found[controller, broker] = self.newest[broker]


@final
class FormerShutdownRejected(Rule[_Shutdowns]):
    """BE-04. The controller's declarations show which broker epoch it has cached. A
    ControlledShutdown without an epoch comes from a former process if the controller has found the
    current process, and that process was not asked to stop, by its own event. Only a controlled
    shutdown sends a StopReplica that keeps the data, so the receiving process must have been asked
    to stop. Nor may a broker that it has live lose leadership and its place in the ISR at once, in
    the second after such a refusal, unless its state changes. (Apache Kafka, whose attempts are not
    known, also sends one before it deletes or moves a replica.)"""

    clause = "BE-04"
    state = _Shutdowns

    @on(
        NodeStarted,
        BrokerRegistered,
        BrokerStopping,
        BrokerDeclared,
        BrokerChangeHandled,
        ControlledShutdownAnswered,
        ControlRequestSent,
        PartitionCommitted,
        TopicCommitted,
    )
    def step(self, state: _Shutdowns, event: Event, body: Struct) -> Findings:
        match body:
            case NodeStarted(role="broker"):
                state.newest[body.node_id] = event.process
            case BrokerChangeHandled():
                state.compare(event.process, body)
            case BrokerRegistered():
                state.epochs[event.process] = (body.broker_epoch, event.ref)
                holder = (event.process, event.ref)
                state.holders[body.broker_id, body.broker_epoch] = holder
            case BrokerStopping():
                state.stopping.add(event.process)
            case BrokerDeclared(new="Absent"):
                state.declared.pop((event.process, body.broker_id), None)
                state.refused.pop((event.process, body.broker_id), None)
            case BrokerDeclared():
                state.refused.pop((event.process, body.broker_id), None)
                cached = (body.incarnation_id, event.ref)
                state.declared[event.process, body.broker_id] = cached
            case PartitionCommitted():
                return self._moved(state, event, body)
            case TopicCommitted():
                state.partitions.forget(body)
            case ControlledShutdownAnswered():
                return self._answered(state, event, body)
            case ControlRequestSent(api="StopReplica", deletes=False) if body.attempt:
                return self._sent(state, event, body)
        return NOTHING

    @staticmethod
    def _answered(state: _Shutdowns, event: Event, body: ControlledShutdownAnswered) -> Findings:
        found = state.found.get((event.process, body.broker_id), "")
        # By the controller's own declarations; of Apache Kafka's controller, by the registration of
        # the process that its broker change has found.
        cached = state.declared.get((event.process, body.broker_id)) or state.epochs.get(found)
        if cached is None:
            return NOTHING
        if body.request_epoch == NO_EPOCH:
            # Without an epoch the request could be of either process. It is of the former one only
            # if the present one never asked to stop.
            if not found or found in state.stopping or body.error != "NONE":
                return NOTHING
            broken = violated(
                event.ref,
                Evidence.PEER,
                "{process} accepted a ControlledShutdown of broker {broker}, after it had found "
                "{other}, which was not asked to stop",
                (cached[1],),
                process=process_scope(event.process),
                broker=broker_of(body.broker_id),
                other=process_scope(found),
                bounced=process_scope(found),
            )
            return (broken,)
        if body.request_epoch >= cached[0]:
            return NOTHING
        if body.error != "NONE":
            if (event.process, body.broker_id) in state.declared:
                state.refused[event.process, body.broker_id] = event.at_ns, event.ref
            return (Exercised(event.ref, Evidence.PEER),)
        former: Facts = {"former": process_scope(body.client)} if body.client else {}
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} accepted a ControlledShutdown of broker {broker} with broker epoch {epoch}, "
            "after it had declared {other_epoch}",
            (cached[1],),
            process=process_scope(event.process),
            broker=broker_of(body.broker_id),
            epoch=body.request_epoch,
            other_epoch=cached[0],
            **former,
        )
        return (broken,)

    @staticmethod
    def _moved(state: _Shutdowns, event: Event, body: PartitionCommitted) -> Findings:
        broker = state.moved(event, body)
        if broker is None:
            return NOTHING
        refused_ns, refusal = state.refused[event.process, broker]
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} took the leadership of {partition} and its place in the ISR from broker "
            "{broker} {after_ns} after it had refused the ControlledShutdown of its former process",
            (refusal,),
            process=process_scope(event.process),
            partition=partition_of(body),
            broker=broker_of(broker),
            after_ns=event.at_ns - refused_ns,
        )
        return (broken,)

    @staticmethod
    def _sent(state: _Shutdowns, event: Event, body: ControlRequestSent) -> Findings:
        holder = state.holders.get((body.broker_id, body.broker_epoch))
        if holder is None or holder[0] in state.stopping:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} sent {other} a StopReplica of {count} partitions for its broker epoch "
            "{epoch}, but that process was not asked to stop",
            (holder[1],),
            process=process_scope(event.process),
            other=process_scope(holder[0]),
            count=len(body.partitions),
            epoch=body.broker_epoch,
            broker=broker_of(body.broker_id),
            places=tuple(Scope("partition", place) for place in body.partitions),
        )
        return (broken,)
