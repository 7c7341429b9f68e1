"""The in-sync replicas: those that may return, and what guards their changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    Event,
    Evidence,
    Exercised,
    Finding,
    Findings,
    Key,
    Rule,
    Shared,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    FollowerFetched,
    HighWatermarkAdvanced,
    IsrChangeAnswered,
    IsrChangeAsked,
    LeadershipStarted,
    PartitionCommitted,
    TopicCommitted,
    broker_of,
    partition_of,
)
from fencepost_kafka.committed import Partitions
from fencepost_suites.common.keys import by_partition, by_topic
from fencepost_suites.replication.stored import StoredEnds


@dataclass(slots=True)
class _Outside:
    """How far each follower has stored, and what the leader has reported."""

    stored: StoredEnds
    marks: dict[str, int] = field(default_factory=dict)
    """leader -> the high watermark that it reported last."""
    leads: str = ""
    """The process that began to lead last."""
    record: PartitionCommitted | None = None

    def counted(self, replica: int) -> str:
        """The process for which a leader asks. A quorum's controller knows of the next one before
        the leader does, and refuses the request: `new_processes` judges the record by that.
        Elsewhere no rule holds a record to a process, so the request is held to it."""
        fetch = self.stored.fetched.get(replica)
        if fetch is not None and self.stored.controllers:
            assert isinstance(fetch.body, FollowerFetched)
            return fetch.body.client
        return self.stored.processes.get(replica, "")


@final
class ReturnsOnlyCaughtUp(Rule[_Outside]):
    """RP-10. The leader's evidence is the log end it assumes for the follower, and the high
    watermark that it reported; the follower's is what it has stored. A record by which members join
    beside their leader is judged likewise, by how many have stored that. Exercised by every return
    to the ISR."""

    clause = "RP-10"
    keys = staticmethod(by_partition)
    folds = (StoredEnds,)

    def start(self, key: Key, shared: Shared) -> _Outside:
        return _Outside(shared[StoredEnds])

    @on(LeadershipStarted)
    def _leads(self, state: _Outside, event: Event, body: LeadershipStarted) -> Findings:
        state.leads, state.marks[event.process] = event.process, body.high_watermark
        return NOTHING

    @on(HighWatermarkAdvanced)
    def _advanced(self, state: _Outside, event: Event, body: HighWatermarkAdvanced) -> Findings:
        if body.as_leader:
            state.marks[event.process] = body.high_watermark
        return NOTHING

    @on(PartitionCommitted)
    def _committed(self, state: _Outside, event: Event, body: PartitionCommitted) -> Findings:
        known = state.record
        if known is not None and body.offset <= known.offset:
            return NOTHING
        state.record = body
        # Another leader may store the ISR of replicas that it finds, and has reported nothing yet.
        if known is None or body.skipped or not body.leader == known.leader >= 0:
            return NOTHING
        joined = sorted({*body.isr} - {*known.isr})
        mark = state.marks.get(state.leads, 0)
        reached = state.stored.reached(state.leads, body, mark)
        if not joined or not reached.too_few:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.PEER,
            "brokers {joined} joined the ISR of {partition} by record {record}, while no more than "
            "{most} of its {needed} followers had stored up to the high watermark {high_watermark}",
            joined=tuple(map(broker_of, joined)),
            partition=partition_of(body),
            record=body.offset,
            most=reached.most,
            needed=len(reached.needed),
            high_watermark=mark,
        )
        return (broken,)

    @on(IsrChangeAsked)
    def _asked(self, state: _Outside, event: Event, body: IsrChangeAsked) -> Findings:
        found: list[Finding] = []
        # Reaching the high watermark is not enough for a new leader: its own is late, and below the
        # start of its epoch may be what its predecessor had acknowledged. And what it reported
        # before counts, whatever it names now.
        mark = max(body.high_watermark, state.marks.get(event.process, 0))
        needed = max(mark, body.epoch_start)
        for replica, end in zip_longest(body.new_isr, body.ends[: len(body.new_isr)]):
            if replica in body.old_isr:
                continue
            follower = state.counted(replica)
            own = state.stored.ends.get(follower)
            # Without its process or its end, nothing is known of one of the two.
            reached = min((one for one in (end, own) if one is not None), default=needed)
            if reached >= needed:
                if (end, own) != (None, None):
                    evidence = Evidence.SELF if own is None else Evidence.PEER
                    found.append(Exercised(event.ref, evidence))
                continue
            by_leader = end is not None and end < needed
            evidence = Evidence.SELF if by_leader else Evidence.PEER
            proof = state.stored.fetched.get(replica)
            proof = proof if by_leader else state.stored.said.get(follower, proof)
            broken = violated(
                event.ref,
                evidence,
                "{process} asked to take broker {broker} into the ISR of {partition} at offset "
                "{offset}; the high watermark was {high_watermark}, the start of its epoch "
                "{epoch_start}",
                () if proof is None else (proof.ref,),
                process=process_scope(event.process),
                broker=broker_of(replica),
                partition=partition_of(body),
                offset=end if by_leader and end is not None else reached,
                high_watermark=mark,
                epoch_start=body.epoch_start,
            )
            found.append(broken)
        return found


@dataclass(slots=True)
class _Asked:
    """The ISR by the newest record, and who is to join it."""

    record: PartitionCommitted | None = None
    joining: dict[int, int] = field(default_factory=dict)
    """The replicas that a leader has asked to take in, while no record has stored that, and its
    leader epoch: a record of an earlier one may be told late, and is not what it asked for."""


@final
class JoinsOnceAsked(Rule[_Asked]):
    """RP-10. A leader that kept silent about whom it takes in, or named others, was believed: only
    its request says where the follower's log ends. So a record by which a member joins beside its
    leader must follow a request to take it in. Without a controller a leader stores the ISR itself,
    and at an election whom it likes: there the record is the leader's own word, too."""

    clause = "RP-10"
    planes = ("quorum", "legacy")
    keys = staticmethod(by_partition)
    state = _Asked

    @on(IsrChangeAsked)
    def _asked(self, state: _Asked, event: Event, body: IsrChangeAsked) -> Findings:
        # Whom it takes in: those that its own ISR lacks, or the stored one. The answer to a request
        # may be lost: then the leader does not know that a member has left, and asks for it again.
        stored = {*body.old_isr} if state.record is None else {*state.record.isr}
        joining = {*body.new_isr} - ({*body.old_isr} & stored)
        state.joining |= dict.fromkeys(joining, body.leader_epoch)
        return NOTHING

    @on(PartitionCommitted)
    def _committed(self, state: _Asked, event: Event, body: PartitionCommitted) -> Findings:
        known = state.record
        if known is not None and body.offset <= known.offset:
            return NOTHING
        state.record = body
        asked = frozenset(state.joining)
        for member in asked & {*body.isr}:
            if state.joining[member] <= body.leader_epoch:
                del state.joining[member]
        # Of several changes at once it is not told which one took a member in.
        if known is None or body.skipped or not body.leader == known.leader >= 0:
            return NOTHING
        unasked = sorted({*body.isr} - {*known.isr} - asked)
        if not unasked:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.PEER,
            "brokers {joined} joined the ISR of {partition} by record {record}, though no leader "
            "had asked to take them in",
            joined=tuple(map(broker_of, unasked)),
            partition=partition_of(body),
            record=body.offset,
        )
        return (broken,)


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
        # A reassignment's record changes neither leader nor ISR, and needs no epoch of its own. But
        # no record goes back to an earlier one, or that would be used a second time.
        same = (body.leader, set(body.isr)) == (before.leader, set(before.isr))
        if same and body.leader_epoch == before.leader_epoch:
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
