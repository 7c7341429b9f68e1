"""Replication: the meaning of an acknowledgement, and what a follower drops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import Cause, Event, Evidence, Exercised, Finding, Key, RunEnd, Violated
from fencepost_kafka import (
    FollowingStarted,
    HighWatermarkAdvanced,
    IsrChangeAsked,
    LeadershipStarted,
    LogAppended,
    LogTruncated,
    PartitionCommitted,
    ProduceAnswered,
    ProduceCompleted,
    ProduceInvoked,
    ReadCompleted,
)
from fencepost_kafka.committed import eligible_leaders, leader_joins
from fencepost_suites.common.keys import NOTHING, by_partition
from fencepost_suites.common.replica_logs import ReplicaLogs, Terms


@dataclass(slots=True)
class _Committed:
    """The highest committed offset of one partition, the event that reported it, and the leader."""

    high_watermark: int = 0
    process: str = ""
    seq: int = -1
    leader: str = ""
    epoch: int = -1
    leaders_watermark: int = 0
    moved: bool = False
    """Whether leadership has moved, so that a reading shows what the new leader has."""
    record: PartitionCommitted | None = None
    asked: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """leader epoch -> the newest ISR that a leader asked for in it."""
    logs: ReplicaLogs = field(default_factory=ReplicaLogs)


@final
class CommittedIsNeverLost(Struct, frozen=True):
    """RP-06. A new leader's log must reach every high watermark reported before, including those
    reported when a replica began to lead or to follow. Where replicas record what they store, it
    must also hold the committed messages, and not others. The leader must come from the ISR,
    or join it by a change that the leader before asked for, as nodes record it that write their own
    events. A reader's evidence is the end of what it read after a change of leader."""

    clause: str = "RP-06"
    kinds: frozenset[type[Struct]] = frozenset(
        {
            HighWatermarkAdvanced,
            LeadershipStarted,
            FollowingStarted,
            PartitionCommitted,
            ReadCompleted,
            IsrChangeAsked,
            LogAppended,
            LogTruncated,
        }
    )
    keys = staticmethod(by_partition)

    def start(self, key: Key) -> _Committed:
        return _Committed()

    def step(self, state: _Committed, event: Event) -> tuple[_Committed, Sequence[Finding]]:
        body = event.body
        if isinstance(body, LogAppended):
            state.logs.append(event.process, body)
            return state, NOTHING
        if isinstance(body, HighWatermarkAdvanced):
            state.logs.commit(event.process, body.high_watermark)
            self._reported(state, event, body.high_watermark)
            if event.process == state.leader:
                state.leaders_watermark = body.high_watermark
            return state, NOTHING
        match body:
            case FollowingStarted():
                self._reported(state, event, body.high_watermark)
            case LeadershipStarted():
                found = self._led(state, event, body)
                self._reported(state, event, body.high_watermark)
                return state, found
            case PartitionCommitted():
                return state, self._elected(state, event, body)
            case IsrChangeAsked():
                state.asked[body.leader_epoch] = body.new_isr
            case LogTruncated():
                state.logs.truncate(event.process, body.to_offset)
            case ReadCompleted(outcome="ok") if state.moved:
                if body.end >= state.high_watermark:
                    return state, (Exercised(event.ref, Evidence.CLIENT),)
                # The new leader's high watermark may lag for a while; that alone is no loss.
                if state.leaders_watermark >= state.high_watermark:
                    message = (
                        f"{event.process} read {body.topic}-{body.partition} up to offset "
                        f"{body.end}, though {state.high_watermark} had been committed"
                    )
                    because = (Cause(state.process, state.seq),)
                    return state, (Violated(event.ref, Evidence.CLIENT, message, because),)
        return state, NOTHING

    @staticmethod
    def _reported(state: _Committed, event: Event, high_watermark: int) -> None:
        if high_watermark > state.high_watermark:
            state.high_watermark = high_watermark
            state.process, state.seq = event.process, event.node_seq

    @staticmethod
    def _led(state: _Committed, event: Event, body: LeadershipStarted) -> Sequence[Finding]:
        if body.leader_epoch < state.epoch:
            return NOTHING  # an old record, replayed late: there is a newer leader
        state.epoch = body.leader_epoch
        before, state.leader = state.leader, event.process
        state.leaders_watermark = body.high_watermark
        if body.log_end < state.high_watermark:
            message = (
                f"{event.process} leads {body.topic}-{body.partition} in epoch {body.leader_epoch} "
                f"with a log that ends at {body.log_end}, though {state.process} had committed up "
                f"to {state.high_watermark}"
            )
            because = (Cause(state.process, state.seq),)
            return (Violated(event.ref, Evidence.PEER, message, because),)
        conflict = state.logs.diverging(event.process, min(state.high_watermark, body.log_end))
        if conflict is not None:
            message = (
                f"{event.process} leads {body.topic}-{body.partition} in epoch {body.leader_epoch} "
                f"with another message at offset {conflict.batch.base_offset} than "
                f"{conflict.other} had committed there"
            )
            return (Violated(event.ref, Evidence.PEER, message),)
        # If no other process has reported a high watermark yet, only a reader can find a loss.
        if before in ("", event.process) or not (state.high_watermark or body.high_watermark):
            return NOTHING
        state.moved = True
        return (Exercised(event.ref, Evidence.PEER),) if state.high_watermark else NOTHING

    @staticmethod
    def _elected(state: _Committed, event: Event, body: PartitionCommitted) -> Sequence[Finding]:
        known = state.record
        if known is not None and body.offset <= known.offset:
            return NOTHING
        state.record = body
        if known is None or body.skipped:
            return NOTHING
        if body.leader < 0 or body.leader_epoch == 0 != known.leader_epoch:
            return NOTHING
        eligible = eligible_leaders(known)
        if not eligible or body.leader in eligible:
            return NOTHING
        # Nodes that write their own events, and so name their role, record what they ask for.
        asked = not body.role or body.leader in state.asked.get(known.leader_epoch, ())
        if asked and leader_joins(known, body):
            return NOTHING
        message = (
            f"broker {body.leader} was made leader of {body.topic}-{body.partition} in epoch "
            f"{body.leader_epoch} from outside the ISR {list(known.isr)}"
        )
        return (Violated(event.ref, Evidence.PEER, message),)

    def end(self, state: _Committed, end: RunEnd) -> Sequence[Finding]:
        return NOTHING


@dataclass(slots=True)
class _Acknowledged:
    """The highest offsets of acks=all that were answered and that reached a client, and the leader
    since."""

    answered: int = 0
    by: Cause | None = None
    acked: int = -1
    acked_by: Cause | None = None
    leader: str = ""
    epoch: int = -1
    before_change: int = -1
    """The highest offset that a client knew to be acknowledged when leadership last moved."""
    logs: ReplicaLogs = field(default_factory=ReplicaLogs)
    contents: dict[int, tuple[str, Cause]] = field(default_factory=dict)
    """base offset -> the digest of a batch that was acknowledged there, and the answer."""

    def note_contents(self, event: Event, body: ProduceAnswered) -> None:
        """The leader acknowledges what it has stored, whether that is committed or not."""
        for batch in self.logs.of(event.process):
            if body.base_offset <= batch.base_offset < body.log_end:
                self.contents[batch.base_offset] = batch.digest, event.ref
        committed = self.logs.committed.get(body.base_offset)
        if committed is not None:
            self.contents[body.base_offset] = committed[0], event.ref

    def replaced(self, process: str) -> tuple[int, Cause] | None:
        """The first offset where a replica holds another batch than the acknowledged one."""
        for batch in self.logs.of(process):
            digest, at = self.contents.get(batch.base_offset, ("", None))
            if at is not None and digest != batch.digest:
                return batch.base_offset, at
        return None


@final
class NewLeaderHasTheAcknowledged(Struct, frozen=True):
    """RP-13. The client's evidence is the acknowledgement it received before leadership moved; the
    former leader's, as a peer of the new one, is that it answered. Where replicas record what they
    store, the new leader must not hold other messages at those offsets."""

    clause: str = "RP-13"
    kinds: frozenset[type[Struct]] = frozenset(
        {
            ProduceAnswered,
            HighWatermarkAdvanced,
            LogAppended,
            LogTruncated,
            ProduceInvoked,
            ProduceCompleted,
            LeadershipStarted,
            ReadCompleted,
        }
    )
    keys = staticmethod(by_partition)

    def start(self, key: Key) -> _Acknowledged:
        return _Acknowledged()

    def step(self, state: _Acknowledged, event: Event) -> tuple[_Acknowledged, Sequence[Finding]]:
        body = event.body
        if isinstance(body, LogAppended):
            state.logs.append(event.process, body)
        elif isinstance(body, HighWatermarkAdvanced):
            state.logs.commit(event.process, body.high_watermark)
        elif isinstance(body, LogTruncated):
            state.logs.truncate(event.process, body.to_offset)
        elif isinstance(body, ProduceAnswered):
            if body.acks == -1 and body.error == "NONE":
                state.note_contents(event, body)
                if body.log_end > state.answered:
                    state.answered, state.by = body.log_end, event.ref
        elif isinstance(body, ProduceCompleted):
            if body.offset > state.acked and body.acks == -1 and body.outcome == "ok":
                state.acked, state.acked_by = body.offset, event.ref
        elif isinstance(body, LeadershipStarted):
            return state, self._led(state, event, body)
        elif (
            isinstance(body, ReadCompleted)
            and body.outcome == "ok"
            and 0 <= state.before_change < body.end
        ):
            return state, (Exercised(event.ref, Evidence.CLIENT),)
        return state, NOTHING

    @staticmethod
    def _led(state: _Acknowledged, event: Event, body: LeadershipStarted) -> Sequence[Finding]:
        if body.leader_epoch < state.epoch:
            return NOTHING  # an old record, replayed late: there is a newer leader
        state.epoch = body.leader_epoch
        before, state.leader = state.leader, event.process
        top, because, evidence = state.answered, state.by, Evidence.PEER
        if body.log_end <= state.acked:
            top, because, evidence = state.acked + 1, state.acked_by, Evidence.CLIENT
        if body.log_end < top and because is not None:
            message = (
                f"{event.process} leads {body.topic}-{body.partition} in epoch {body.leader_epoch} "
                f"with a log that ends at {body.log_end}, though acks=all was acknowledged up to "
                f"{top}"
            )
            return (Violated(event.ref, evidence, message, (because,)),)
        replaced = state.replaced(event.process)
        if replaced is not None:
            offset, answer = replaced
            message = (
                f"{event.process} leads {body.topic}-{body.partition} in epoch {body.leader_epoch} "
                f"with another message at offset {offset} than the one that was acknowledged there"
            )
            return (Violated(event.ref, Evidence.PEER, message, (answer,)),)
        if before in ("", event.process) or max(top, state.acked + 1) == 0:
            return NOTHING
        state.before_change = state.acked
        return (Exercised(event.ref, Evidence.PEER),)

    def end(self, state: _Acknowledged, end: RunEnd) -> Sequence[Finding]:
        return NOTHING


@dataclass(slots=True)
class _Following:
    logs: ReplicaLogs = field(default_factory=ReplicaLogs)
    terms: Terms = field(default_factory=Terms)
    began: dict[str, tuple[FollowingStarted, bool]] = field(default_factory=dict)
    """Processes that began to follow and have stored nothing since; and whether in a new epoch."""
    followed: dict[str, int] = field(default_factory=dict)
    """process -> the leader epoch in which it followed last."""
    dropped: dict[int, tuple[str, int, LogAppended]] = field(default_factory=dict)
    """base offset -> the process that last dropped that batch, and in which leader epoch; until the
    offset is committed."""


@final
class FollowerTruncatesByEpoch(Struct, frozen=True):
    """RP-15. A follower drops only messages that its leader does not have. So a dropped message is
    not committed, and that leader will not commit it in the same epoch. Exercised by dropped
    messages that the new leader does not have, and by messages above the follower's high watermark
    that it kept: cutting the log there, as the seed literally says, would have lost them."""

    clause: str = "RP-15"
    kinds: frozenset[type[Struct]] = frozenset(
        {
            LogAppended,
            HighWatermarkAdvanced,
            LogTruncated,
            FollowingStarted,
            LeadershipStarted,
        }
    )
    keys = staticmethod(by_partition)

    def start(self, key: Key) -> _Following:
        return _Following()

    def step(self, state: _Following, event: Event) -> tuple[_Following, Sequence[Finding]]:
        body = event.body
        if isinstance(body, LogAppended):
            process = event.process
            found = NOTHING
            if process in state.began:
                found = self._resumed(state, event, body)
            state.logs.append(process, body)
            return state, found
        if isinstance(body, HighWatermarkAdvanced):
            _, conflict = state.logs.commit(event.process, body.high_watermark)
            if conflict is not None:
                message = (
                    f"{event.process} kept, at offset {conflict.batch.base_offset} of "
                    f"{body.topic}-{body.partition}, a message that no leader confirmed: "
                    f"{conflict.other} has another one, {conflict.epochs}"
                )
                because = state.terms.proof(event.process, conflict)
                return state, (Violated(event.ref, Evidence.PEER, message, because),)
            if body.as_leader and state.dropped:
                return state, self._confirmed(state, event, body)
        elif isinstance(body, LogTruncated):
            return state, self._truncated(state, event, body)
        elif isinstance(body, LeadershipStarted):
            state.terms.begin(event, body.leader_epoch)
        elif isinstance(body, FollowingStarted):
            anew = state.followed.get(event.process) != body.leader_epoch
            state.followed[event.process] = body.leader_epoch
            state.began[event.process] = (body, anew)
        return state, NOTHING

    @staticmethod
    def _resumed(state: _Following, event: Event, body: LogAppended) -> Sequence[Finding]:
        """Judges the first message stored in a new leader epoch: the follower must have truncated
        by now."""
        began, anew = state.began.pop(event.process)
        if body.as_leader:
            return NOTHING
        conflict = state.logs.diverging(event.process, body.base_offset)
        if conflict is not None:
            batch = conflict.batch
            message = (
                f"{event.process} fetches {body.topic}-{body.partition} on from offset "
                f"{body.base_offset} though its message at {batch.base_offset} is not the "
                f"committed one"
            )
            because = state.terms.proof(event.process, conflict)
            return (Violated(event.ref, Evidence.PEER, message, because),)
        kept = anew and body.base_offset >= began.log_end > began.high_watermark
        return (Exercised(event.ref, Evidence.SELF),) if kept else NOTHING

    @staticmethod
    def _truncated(state: _Following, event: Event, body: LogTruncated) -> Sequence[Finding]:
        lost = state.logs.truncate(event.process, body.to_offset)
        if body.reason == "recovery":
            return NOTHING
        committed = [batch for batch in lost if state.logs.is_committed(batch)]
        if committed or body.to_offset < body.high_watermark:
            first = committed[-1].base_offset if committed else body.to_offset
            message = (
                f"{event.process} dropped {body.topic}-{body.partition} from offset "
                f"{body.to_offset} on ({body.reason}), though its message at {first} is committed"
            )
            because = state.terms.of(body.leader_epoch)
            return (Violated(event.ref, Evidence.PEER, message, because),)
        for batch in lost:
            state.dropped[batch.base_offset] = event.process, body.leader_epoch, batch
        return (Exercised(event.ref, Evidence.SELF),)

    @staticmethod
    def _confirmed(
        state: _Following, event: Event, body: HighWatermarkAdvanced
    ) -> Sequence[Finding]:
        """Whether a leader commits a message that was dropped in its epoch: if so, it had the
        message at the time."""
        decided = [offset for offset in state.dropped if offset < body.high_watermark]
        for offset in sorted(decided):
            process, epoch, batch = state.dropped.pop(offset)
            if epoch == body.leader_epoch and state.logs.is_committed(batch):
                message = (
                    f"{process} dropped {body.topic}-{body.partition} from offset {offset} on, "
                    f"though the leader it follows since epoch {epoch} has its message"
                )
                return (Violated(event.ref, Evidence.PEER, message),)
        return NOTHING

    def end(self, state: _Following, end: RunEnd) -> Sequence[Finding]:
        return NOTHING
