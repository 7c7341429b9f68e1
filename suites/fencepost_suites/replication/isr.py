"""The in-sync replicas: those that may return, and what guards their changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    Event,
    Evidence,
    Exercised,
    Finding,
    Findings,
    Rule,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    FollowerFetched,
    IsrChangeAnswered,
    IsrChangeAsked,
    LogAppended,
    PartitionCommitted,
    TopicCommitted,
    broker_of,
    partition_of,
)
from fencepost_kafka.committed import Partitions
from fencepost_suites.common.keys import by_partition, by_topic


@dataclass(slots=True)
class _Outside:
    """The end of each follower's own log, and the event that says so, for followers outside the
    ISR."""

    ends: dict[str, tuple[int, Event]] = field(default_factory=dict)
    fetched: dict[int, tuple[str, Event]] = field(default_factory=dict)
    """follower -> its process, and its newest fetch."""


@final
class ReturnsOnlyCaughtUp(Rule[_Outside]):
    """RP-10. The leader's evidence is the log end it assumes for the follower; the follower's is
    what it has stored. Exercised by every return to the ISR."""

    clause = "RP-10"
    keys = staticmethod(by_partition)
    state = _Outside

    @on(LogAppended)
    def _appended(self, state: _Outside, event: Event, body: LogAppended) -> Findings:
        state.ends[event.process] = (body.log_end, event)
        return NOTHING

    @on(FollowerFetched)
    def _fetched(self, state: _Outside, event: Event, body: FollowerFetched) -> Findings:
        state.fetched[body.follower] = (body.client, event)
        return NOTHING

    @on(IsrChangeAsked)
    def _asked(self, state: _Outside, event: Event, body: IsrChangeAsked) -> Findings:
        found: list[Finding] = []
        # Reaching the high watermark is not enough for a new leader: its own is late, and below the
        # start of its epoch may be what its predecessor had acknowledged.
        needed = max(body.high_watermark, body.epoch_start)
        for replica, end in zip(body.new_isr, body.ends, strict=True):
            if replica in body.old_isr:
                continue
            process, fetch = state.fetched.get(replica, ("", None))
            stored = state.ends.get(process)
            # A follower that has stored nothing since it began says nothing of its log.
            own = needed if stored is None else stored[0]
            if end >= needed and own >= needed:
                by_peer = stored is not None
                found.append(Exercised(event.ref, Evidence.PEER if by_peer else Evidence.SELF))
                continue
            evidence, reached = (Evidence.SELF, end) if end < needed else (Evidence.PEER, own)
            proof = fetch if end < needed or stored is None else stored[1]
            because = () if proof is None else (proof.ref,)
            broken = violated(
                event.ref,
                evidence,
                "{process} asked to take broker {broker} into the ISR of {partition} at offset "
                "{offset}; the high watermark was {high_watermark}, the start of its epoch "
                "{epoch_start}",
                because,
                process=process_scope(event.process),
                broker=broker_of(replica),
                partition=partition_of(body),
                offset=reached,
                high_watermark=body.high_watermark,
                epoch_start=body.epoch_start,
            )
            found.append(broken)
        return found


_STALE = ("FENCED_LEADER_EPOCH", "NOT_LEADER_OR_FOLLOWER", "STALE_BROKER_EPOCH")


@final
class EpochsGuardIsrChanges(Rule[Partitions]):
    """QC-32. The evidence is the leader's: the epoch in which it asked, and the epoch that the
    controller's grant led to. A change between the two should have caused a refusal. Exercised by a
    refusal."""

    clause = "QC-32"
    keys = staticmethod(by_topic)
    state = Partitions

    @on(TopicCommitted, PartitionCommitted, IsrChangeAnswered)
    def step(self, state: Partitions, event: Event, body: Struct) -> Findings:
        match body:
            case TopicCommitted():
                state.forget(body)
            case PartitionCommitted():
                return self._changed(state, event, body)
            # Each change begins the next leader epoch. A gap shows a change between the request and
            # its grant, which should have fenced the request.
            case IsrChangeAnswered(error="NONE") if body.granted_epoch > body.leader_epoch + 1:
                broken = violated(
                    event.ref,
                    Evidence.PEER,
                    "the controller applied an AlterIsr that {process} had asked for in leader "
                    "epoch {epoch} of {partition}, though the epoch was {other_epoch} by then",
                    process=process_scope(event.process),
                    epoch=body.leader_epoch,
                    partition=partition_of(body),
                    other_epoch=body.granted_epoch - 1,
                )
                return (broken,)
            case IsrChangeAnswered() if body.error in _STALE:
                return (Exercised(event.ref, Evidence.PEER),)
        return NOTHING

    @staticmethod
    def _changed(state: Partitions, event: Event, body: PartitionCommitted) -> Findings:
        news, before = state.take(body)
        if not news or before is None or body.leader_epoch > before.leader_epoch:
            return NOTHING
        # A reassignment's record changes neither leader nor ISR, and needs no epoch of its own.
        if (body.leader, set(body.isr)) == (before.leader, set(before.isr)):
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{partition} went from leader {former} and ISR {former_isr} to {leader} and {isr}, "
            "and its leader epoch from {other_epoch} to {epoch}",
            partition=partition_of(body),
            former=broker_of(before.leader),
            former_isr=tuple(before.isr),
            leader=broker_of(body.leader),
            isr=tuple(body.isr),
            other_epoch=before.leader_epoch,
            epoch=body.leader_epoch,
        )
        return (broken,)


@final
class IsrOfReplicas(Rule[Partitions]):
    """RP-19. Judged by the records: during a reassignment the replica list holds both the old and
    the new replicas. Exercised when a member of the ISR is no longer a replica and has left the
    ISR."""

    clause = "RP-19"
    keys = staticmethod(by_topic)
    state = Partitions

    @on(TopicCommitted, PartitionCommitted)
    def step(self, state: Partitions, event: Event, body: Struct) -> Findings:
        if isinstance(body, TopicCommitted):
            state.forget(body)
            return NOTHING
        assert isinstance(body, PartitionCommitted)
        news, before = state.take(body)
        if not news:
            return NOTHING
        if len(set(body.replicas)) != len(body.replicas):
            broken = violated(
                event.ref,
                Evidence.PEER,
                "a broker holds two replicas of {partition}: {replicas}",
                partition=partition_of(body),
                replicas=tuple(body.replicas),
            )
            return (broken,)
        outside = sorted(set(body.isr) - set(body.replicas))
        if outside:
            broken = violated(
                event.ref,
                Evidence.PEER,
                "{partition} has brokers {outside} in its ISR, which are not among its replicas "
                "{replicas}",
                partition=partition_of(body),
                outside=tuple(map(broker_of, outside)),
                replicas=tuple(body.replicas),
            )
            return (broken,)
        left = before is not None and set(before.isr) - set(body.replicas)
        return (Exercised(event.ref, Evidence.PEER),) if left else NOTHING
