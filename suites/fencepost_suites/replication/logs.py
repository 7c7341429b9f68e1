"""Replication: what is committed or acknowledged is never lost."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import final

from fencepost import (
    NOTHING,
    Cause,
    Event,
    Evidence,
    Exercised,
    Facts,
    Findings,
    Key,
    Rule,
    Shared,
    Violated,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    FollowingStarted,
    HighWatermarkAdvanced,
    IsrChangeAnswered,
    IsrChangeAsked,
    LeadershipStarted,
    PartitionCommitted,
    ProduceAnswered,
    ProduceCompleted,
    ProduceInvoked,
    ReadCompleted,
    broker_of,
    partition_of,
)
from fencepost_kafka.committed import eligible_leaders, leader_joins
from fencepost_suites.common.keys import by_partition
from fencepost_suites.common.replica_logs import ReplicaLogs


@dataclass(slots=True)
class _Committed:
    """The highest committed offset of one partition, the event that reported it, and the leader."""

    logs: ReplicaLogs
    high_watermark: int = 0
    process: str = ""
    seq: int = -1
    at_ns: int = 0
    leader: str = ""
    epoch: int = -1
    leaders_watermark: int = 0
    moved: bool = False
    """Whether leadership has moved, so that a reading shows what the new leader has."""
    record: PartitionCommitted | None = None
    eligible: set[int] = field(default_factory=set)
    """Who may lead next, by the records."""
    while_led: set[int] = field(default_factory=set)
    """The same by the last record with a leader."""
    asked: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """leader epoch -> the newest ISR that its leader asked for in it."""
    start: int = -1
    """Where the log of the first leader that told it began; -1: none has."""
    terms: dict[int, str] = field(default_factory=dict)
    """leader epoch -> the process that led first in it."""
    telling: set[str] = field(default_factory=set)
    """The leaders that have said of a larger ISR that they ask for it."""

    def stored(self, body: PartitionCommitted, anew: bool) -> None:
        """A record is the newest one of the partition; `anew`: nothing is known of those before.

        A replica is eligible beside the ISR as it leaves that (KIP-966), or was so before: whoever
        was neither lacks what was committed, whatever a record calls it. Members join only beside a
        leader, which has seen them catch up, and those that were the last do not stop to have what
        was committed: else a record without a leader could empty the ISR, or put others there, and
        the next elect from these.
        """
        now = eligible_leaders(body)
        if not anew:
            now &= {*body.isr} | self.eligible | self.while_led
        if body.leader >= 0 or anew:
            self.while_led = now
        else:
            now = now & self.eligible or self.while_led
        self.eligible = now

    def reported(self, event: Event, high_watermark: int) -> None:
        """A replica reports a high watermark."""
        if high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
            self.process, self.seq, self.at_ns = event.process, event.node_seq, event.at_ns


@dataclass(slots=True)
class _Acknowledged:
    """The highest offsets of acks=all that were answered and that reached a client, and the leader
    since."""

    logs: ReplicaLogs
    answered: int = 0
    by: Event | None = None
    acked: int = -1
    acked_by: Event | None = None
    first: tuple[int, Cause, Evidence] | None = None
    """The lowest of those offsets, and who has its acknowledgement."""
    leader: str = ""
    epoch: int = -1
    before_change: int = -1
    """The highest offset that a client knew to be acknowledged when leadership last moved."""
    contents: dict[int, tuple[str, Cause]] = field(default_factory=dict)
    """base offset -> the digest of a batch that was acknowledged there, and the answer."""

    def note_first(self, offset: int, event: Event, evidence: Evidence) -> None:
        """An offset is acknowledged. What a client was told is the better evidence."""
        known = self.first
        better = evidence is Evidence.CLIENT and known is not None and offset == known[0]
        if known is None or offset < known[0] or better:
            self.first = offset, event.ref, evidence

    def note_contents(self, event: Event, body: ProduceAnswered) -> None:
        """The leader acknowledges what it has stored, whether that is committed or not."""
        base, end, ref = body.base_offset, body.log_end, event.ref
        for batch in self.logs.log(event.process):
            if base <= batch.base_offset < end:
                self.contents[batch.base_offset] = batch.digest, ref
        # Below the leader's high watermark a batch is no longer among the open ones.
        committed = self.logs.committed.get(base)
        if committed is not None:
            self.contents[base] = committed[0], ref

    def replaced(self, process: str) -> tuple[int, Cause] | None:
        """The first offset where a replica holds another batch than the acknowledged one."""
        for batch in self.logs.log(process):
            digest, at = self.contents.get(batch.base_offset, ("", None))
            if at is not None and digest != batch.digest:
                return batch.base_offset, at
        return None


_REFUSED = ("INELIGIBLE_REPLICA", "INVALID_REQUEST", "FENCED_LEADER_EPOCH")
"""Errors by which a controller says that it does not store what a leader asks for."""


@final
class CommittedIsNeverLost(Rule[_Committed]):
    """RP-06. A new leader's log must reach every high watermark reported before, including those
    reported when a replica began to lead or to follow, and must not begin behind where the first
    leader's did. Where replicas record what they store, it must also hold the committed messages,
    and not others. The leader must come from the ISR, or join it by a change that the leader before
    asked for: by its own word, if it is a node that writes its own events, or if its log has named
    such a change before. A reader's evidence is the end of what it read, exercised after a change
    of leader."""

    clause = "RP-06"
    keys = staticmethod(by_partition)
    folds = (ReplicaLogs,)

    def start(self, key: Key, shared: Shared) -> _Committed:
        return _Committed(shared[ReplicaLogs])

    @on(HighWatermarkAdvanced)
    def _commits(self, state: _Committed, event: Event, body: HighWatermarkAdvanced) -> Findings:
        process, high_watermark = event.process, body.high_watermark
        state.reported(event, high_watermark)
        if process == state.leader:
            state.leaders_watermark = high_watermark
        return NOTHING

    @on(FollowingStarted)
    def _follows(self, state: _Committed, event: Event, body: FollowingStarted) -> Findings:
        state.reported(event, body.high_watermark)
        return NOTHING

    @on(IsrChangeAsked)
    def _asked(self, state: _Committed, event: Event, body: IsrChangeAsked) -> Findings:
        # Only from the process that leads in that epoch: a request of any process excused a leader
        # that joined the ISR by its own election, its own request included.
        if state.terms.get(body.leader_epoch) == event.process:
            state.asked[body.leader_epoch] = body.new_isr
            # Some logs name only what shrinks. One that has named an addition names them all.
            if not set(body.new_isr) <= set(body.old_isr):
                state.telling.add(event.process)
        return NOTHING

    @on(ReadCompleted)
    def _read(self, state: _Committed, event: Event, body: ReadCompleted) -> Findings:
        # An incomplete reading proves nothing about the end of the log, and -1 is no end.
        if body.outcome != "ok" or body.end < 0:
            return NOTHING
        if body.end >= state.high_watermark:
            return (Exercised(event.ref, Evidence.CLIENT),) if state.moved else NOTHING
        # One leader may have committed more since the reading asked it for the end.
        if not state.moved and state.at_ns >= body.asked_ns:
            return NOTHING
        # The new leader's high watermark may lag for a while; that alone is no loss.
        if state.leaders_watermark < state.high_watermark:
            return NOTHING
        because = (Cause(state.process, state.seq),)
        broken = violated(
            event.ref,
            Evidence.CLIENT,
            "{client} read {partition} up to offset {offset}, though {committed} had been "
            "committed",
            because,
            client=process_scope(event.process),
            partition=partition_of(body),
            offset=body.end,
            committed=state.high_watermark,
            other=process_scope(state.process),
        )
        return (broken,)

    @on(IsrChangeAnswered)
    def _refused(self, state: _Committed, event: Event, body: IsrChangeAnswered) -> Findings:
        # What was refused is not to be stored. After other errors it may be, by an earlier sending.
        if body.error in _REFUSED and state.terms.get(body.leader_epoch) == event.process:
            state.asked.pop(body.leader_epoch, None)
        return NOTHING

    @on(LeadershipStarted)
    def _leads(self, state: _Committed, event: Event, body: LeadershipStarted) -> Findings:
        state.terms.setdefault(body.leader_epoch, event.process)
        found = self._led(state, event, body)
        state.reported(event, body.high_watermark)
        return found

    @staticmethod
    def _led(state: _Committed, event: Event, body: LeadershipStarted) -> Findings:
        if body.leader_epoch < state.epoch:
            return NOTHING  # an old record, replayed late: there is a newer leader
        state.epoch = body.leader_epoch
        before, state.leader = state.leader, event.process
        state.leaders_watermark = body.high_watermark
        # Four proofs: the log is too short; it begins behind what is committed; it has another
        # message at a committed offset; or, below, an election from outside the ISR.
        if body.log_end < state.high_watermark:
            because = (Cause(state.process, state.seq),)
            broken = violated(
                event.ref,
                Evidence.PEER,
                "{process} leads {partition} in epoch {epoch} with a log that ends at {log_end}, "
                "though {other} had committed up to {committed}",
                because,
                process=process_scope(event.process),
                partition=partition_of(body),
                epoch=body.leader_epoch,
                log_end=body.log_end,
                other=process_scope(state.process),
                committed=state.high_watermark,
            )
            return (broken,)
        if state.start < 0:
            state.start = body.log_start
        if 0 <= state.start < min(body.log_start, state.high_watermark):
            because = (Cause(state.process, state.seq),)
            broken = violated(
                event.ref,
                Evidence.PEER,
                "{process} leads {partition} in epoch {epoch} with a log that begins at "
                "{log_start}, though {other} had committed up to {committed} from offset {start} "
                "on",
                because,
                process=process_scope(event.process),
                partition=partition_of(body),
                epoch=body.leader_epoch,
                log_start=body.log_start,
                start=state.start,
                other=process_scope(state.process),
                committed=state.high_watermark,
            )
            return (broken,)
        conflict = state.logs.diverging(event.process, min(state.high_watermark, body.log_end))
        if conflict is not None:
            broken = violated(
                event.ref,
                Evidence.PEER,
                "{process} leads {partition} in epoch {epoch} with another message at offset "
                "{offset} than {other} had committed there",
                process=process_scope(event.process),
                partition=partition_of(body),
                epoch=body.leader_epoch,
                offset=conflict.batch.base_offset,
                other=process_scope(conflict.other),
            )
            return (broken,)
        # If no other process has reported a high watermark yet, only a reader can find a loss.
        if before in ("", event.process) or not (state.high_watermark or body.high_watermark):
            return NOTHING
        state.moved = True
        return (Exercised(event.ref, Evidence.PEER),) if state.high_watermark else NOTHING

    @on(PartitionCommitted)
    def _elected(self, state: _Committed, event: Event, body: PartitionCommitted) -> Findings:
        known = state.record
        if known is not None and body.offset <= known.offset:
            return NOTHING
        state.record = body
        eligible = state.eligible
        state.stored(body, anew=known is None or bool(body.skipped))
        if body.isr and body.leader >= 0 and body.leader not in eligible_leaders(body):
            return (_from_outside(event, body, body.isr, eligible_leaders(body), {}),)
        # Records between the two were not seen: the ISR may have changed in them.
        if known is None or body.skipped:
            return NOTHING
        # A first epoch after a later one is a topic that was made again.
        if body.leader < 0 or body.leader_epoch == 0 != known.leader_epoch:
            return NOTHING
        if not eligible or body.leader in eligible:
            return NOTHING
        # Nodes that write their own events, and so name their role, record what they ask for. Of
        # others, only some logs have that.
        silent = not body.role and state.terms.get(known.leader_epoch) not in state.telling
        asked = body.leader in state.asked.get(known.leader_epoch, ())
        # Kafka's controller may take in a member, as its leader asked, by the record that elects
        # it.
        if (asked or silent) and leader_joins(known, body):
            return NOTHING
        former: Facts = {"former": broker_of(known.leader)} if known.leader >= 0 else {}
        return (_from_outside(event, body, known.isr, eligible, former),)


def _from_outside(
    event: Event,
    body: PartitionCommitted,
    isr: Sequence[int],
    eligible: Set[int],
    former: Facts,
) -> Violated:
    """A record by which a broker leads that is not of an ISR: that of before, or its own."""
    return violated(
        event.ref,
        Evidence.PEER,
        "broker {leader} was made leader of {partition} in epoch {epoch} from outside the ISR "
        "{isr}",
        leader=broker_of(body.leader),
        partition=partition_of(body),
        epoch=body.leader_epoch,
        isr=tuple(isr),
        eligible=tuple(map(broker_of, sorted(eligible))),
        **former,
    )


@final
class NewLeaderHasTheAcknowledged(Rule[_Acknowledged]):
    """RP-13. The client's evidence is the acknowledgement it received before leadership moved; the
    former leader's, as a peer of the new one, is that it answered. Where replicas record what they
    store, the new leader must not hold other messages at those offsets. Its log must not begin
    behind one of them."""

    clause = "RP-13"
    reads = frozenset({ProduceInvoked})
    keys = staticmethod(by_partition)
    folds = (ReplicaLogs,)

    def start(self, key: Key, shared: Shared) -> _Acknowledged:
        return _Acknowledged(shared[ReplicaLogs])

    @on(ProduceAnswered)
    def _answered(self, state: _Acknowledged, event: Event, body: ProduceAnswered) -> Findings:
        if body.acks == -1 and body.error == "NONE":
            state.note_contents(event, body)
            if body.base_offset >= 0:
                state.note_first(body.base_offset, event, Evidence.PEER)
            if body.log_end > state.answered:
                state.answered, state.by = body.log_end, event
        return NOTHING

    @on(ProduceCompleted)
    def _completed(self, state: _Acknowledged, event: Event, body: ProduceCompleted) -> Findings:
        if body.offset >= 0 and body.acks == -1 and body.outcome == "ok":
            state.note_first(body.offset, event, Evidence.CLIENT)
            if body.offset > state.acked:
                state.acked, state.acked_by = body.offset, event
        return NOTHING

    @on(ReadCompleted)
    def _read(self, state: _Acknowledged, event: Event, body: ReadCompleted) -> Findings:
        if body.outcome == "ok" and 0 <= state.before_change < body.end:
            return (Exercised(event.ref, Evidence.CLIENT),)
        return NOTHING

    @on(LeadershipStarted)
    def _led(self, state: _Acknowledged, event: Event, body: LeadershipStarted) -> Findings:
        if body.leader_epoch < state.epoch:
            return NOTHING  # an old record, replayed late: there is a newer leader
        state.epoch = body.leader_epoch
        before, state.leader = state.leader, event.process
        # What a client was told is the better evidence, so it is named if it is enough.
        top, because, evidence = state.answered, state.by, Evidence.PEER
        if body.log_end <= state.acked:
            top, because, evidence = state.acked + 1, state.acked_by, Evidence.CLIENT
        if body.log_end < top and because is not None:
            broken = violated(
                event.ref,
                evidence,
                "{process} leads {partition} in epoch {epoch} with a log that ends at {log_end}, "
                "though acks=all was acknowledged up to {acknowledged}",
                (because.ref,),
                process=process_scope(event.process),
                partition=partition_of(body),
                epoch=body.leader_epoch,
                log_end=body.log_end,
                acknowledged=top,
            )
            return (broken,)
        if state.first is not None and state.first[0] < body.log_start:
            offset, answer, evidence = state.first
            broken = violated(
                event.ref,
                evidence,
                "{process} leads {partition} in epoch {epoch} with a log that begins at "
                "{log_start}, though acks=all was acknowledged at {offset}",
                (answer,),
                process=process_scope(event.process),
                partition=partition_of(body),
                epoch=body.leader_epoch,
                log_start=body.log_start,
                offset=offset,
            )
            return (broken,)
        replaced = state.replaced(event.process)
        if replaced is not None:
            offset, answer = replaced
            broken = violated(
                event.ref,
                Evidence.PEER,
                "{process} leads {partition} in epoch {epoch} with another message at offset "
                "{offset} than the one that was acknowledged there",
                (answer,),
                process=process_scope(event.process),
                partition=partition_of(body),
                epoch=body.leader_epoch,
                offset=offset,
            )
            return (broken,)
        if before in ("", event.process) or max(top, state.acked + 1) == 0:
            return NOTHING
        state.before_change = state.acked
        return (Exercised(event.ref, Evidence.PEER),)
