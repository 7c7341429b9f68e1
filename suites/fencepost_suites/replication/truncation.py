"""Replication: what a follower drops."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from fencepost import (
    NOTHING,
    Event,
    Evidence,
    Exercised,
    Findings,
    Key,
    Rule,
    Shared,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    FollowingStarted,
    HighWatermarkAdvanced,
    LeadershipStarted,
    LogAppended,
    LogTruncated,
    partition_of,
)
from fencepost_suites.common.keys import by_partition
from fencepost_suites.common.replica_logs import Batch, ReplicaLogs, Terms


@dataclass(slots=True)
class _Following:
    logs: ReplicaLogs
    terms: Terms = field(default_factory=Terms)
    began: dict[str, tuple[FollowingStarted, bool]] = field(default_factory=dict)
    """Processes that began to follow and have stored nothing since; and whether in a new epoch."""
    followed: dict[str, int] = field(default_factory=dict)
    """process -> the leader epoch in which it followed last."""
    dropped: dict[int, tuple[str, int, Batch, str]] = field(default_factory=dict)
    """base offset -> the process that last dropped that batch, in which leader epoch, and the
    process that led then, if it had the batch; until the offset is committed."""
    led: dict[int, str] = field(default_factory=dict)
    """leader epoch -> the process that began to lead in it last."""
    roles: set[str] = field(default_factory=set)
    """The processes that have led, followed or stored anything."""

    marks: dict[str, int] = field(default_factory=dict)
    """process -> the high watermark that it reported last."""

    def had_by(self, epoch: int, batch: Batch) -> str:
        """The leader of an epoch, if its log has that very batch."""
        leader = self.led.get(epoch, "")
        for one in self.logs.log(leader) if leader else ():
            if (one.base_offset, one.digest, one.batch_epoch) == (
                batch.base_offset,
                batch.digest,
                batch.batch_epoch,
            ):
                return leader
        return ""


@final
class FollowerTruncatesByEpoch(Rule[_Following]):
    """RP-15. A follower drops only messages that its leader does not have. So a dropped message is
    not committed, and that leader will not commit it: in the same epoch, or in a later one if it
    had the message by then, since each change of the ISR begins an epoch. Exercised by dropped
    messages that the new leader does not have, and by messages above the follower's high watermark
    that it kept: cutting the log there, as the seed literally says, would have lost them."""

    clause = "RP-15"
    keys = staticmethod(by_partition)
    folds = (ReplicaLogs,)

    def start(self, key: Key, shared: Shared) -> _Following:
        return _Following(shared[ReplicaLogs])

    @on(LogAppended)
    def _appended(self, state: _Following, event: Event, body: LogAppended) -> Findings:
        state.roles.add(event.process)
        return self._resumed(state, event, body) if event.process in state.began else NOTHING

    @on(HighWatermarkAdvanced)
    def _commits(self, state: _Following, event: Event, body: HighWatermarkAdvanced) -> Findings:
        state.marks[event.process] = body.high_watermark
        conflict = state.logs.moved.conflict
        if conflict is not None:
            because = state.terms.proof(event.process, conflict)
            broken = violated(
                event.ref,
                Evidence.PEER,
                "{process} kept, at offset {offset} of {partition}, a message that no leader "
                "confirmed: {other} has another one, of leader epochs {epoch} and {other_epoch}",
                because,
                process=process_scope(event.process),
                offset=conflict.batch.base_offset,
                partition=partition_of(body),
                other=process_scope(conflict.other),
                epoch=conflict.batch.batch_epoch,
                other_epoch=conflict.other_epoch,
            )
            return (broken,)
        if state.dropped and body.as_leader:
            return self._confirmed(state, event, body)
        return NOTHING

    @on(LeadershipStarted)
    def _leads(self, state: _Following, event: Event, body: LeadershipStarted) -> Findings:
        state.terms.begin(event, body.leader_epoch)
        state.led[body.leader_epoch] = event.process
        state.roles.add(event.process)
        return NOTHING

    @on(FollowingStarted)
    def _follows(self, state: _Following, event: Event, body: FollowingStarted) -> Findings:
        anew = state.followed.get(event.process) != body.leader_epoch
        state.followed[event.process] = body.leader_epoch
        state.roles.add(event.process)
        state.began[event.process] = (body, anew)
        return NOTHING

    @staticmethod
    def _resumed(state: _Following, event: Event, body: LogAppended) -> Findings:
        """Judges the first message stored in a new leader epoch: the follower must have truncated
        by now."""
        began, anew = state.began.pop(event.process)
        if body.as_leader:
            return NOTHING
        conflict = state.logs.diverging(event.process, body.base_offset)
        if conflict is not None:
            batch = conflict.batch
            because = state.terms.proof(event.process, conflict)
            broken = violated(
                event.ref,
                Evidence.PEER,
                "{process} fetches {partition} on from offset {offset} though its message at "
                "{other_offset} is not the committed one",
                because,
                process=process_scope(event.process),
                partition=partition_of(body),
                offset=body.base_offset,
                other_offset=batch.base_offset,
                other=process_scope(conflict.other),
            )
            return (broken,)
        kept = anew and body.base_offset >= began.log_end > began.high_watermark
        return (Exercised(event.ref, Evidence.SELF),) if kept else NOTHING

    @on(LogTruncated)
    def _truncated(self, state: _Following, event: Event, body: LogTruncated) -> Findings:
        lost = state.logs.cut
        # A torn end of the log is dropped before the replica follows anybody. What is lost by that
        # was not synced. A process that has a role drops nothing by that, whatever it says.
        if body.reason == "recovery" and event.process not in state.roles:
            return NOTHING
        committed = [batch for batch in lost if state.logs.is_committed(batch)]
        # By its own high watermark, that which it reported before as well, or by what any replica
        # has committed.
        mark = max(body.high_watermark, state.marks.get(event.process, 0))
        if committed or body.to_offset < mark:
            first = committed[-1].base_offset if committed else body.to_offset
            because = state.terms.of(body.leader_epoch)
            broken = violated(
                event.ref,
                Evidence.PEER,
                "{process} dropped {partition} from offset {offset} on ({reason}), though its "
                "message at {other_offset} is committed",
                because,
                process=process_scope(event.process),
                partition=partition_of(body),
                offset=body.to_offset,
                reason=body.reason,
                other_offset=first,
                epoch=body.leader_epoch,
            )
            return (broken,)
        for batch in lost:
            epoch = body.leader_epoch
            had_by = state.had_by(epoch, batch)
            state.dropped[batch.base_offset] = event.process, epoch, batch, had_by
        return (Exercised(event.ref, Evidence.SELF),)

    @staticmethod
    def _confirmed(state: _Following, event: Event, body: HighWatermarkAdvanced) -> Findings:
        """Whether a leader commits a message that was dropped in its epoch: if so, it had the
        message at the time."""
        decided = [offset for offset in state.dropped if offset < body.high_watermark]
        for offset in sorted(decided):
            process, epoch, batch, had_by = state.dropped.pop(offset)
            # The very batch, of its own epoch: a resend that the new leader has stored has equal
            # bytes, and is another one.
            led = epoch == body.leader_epoch or had_by == event.process
            if led and state.logs.is_committed(batch):
                broken = violated(
                    event.ref,
                    Evidence.PEER,
                    "{process} dropped {partition} from offset {offset} on, though the leader it "
                    "follows since epoch {epoch} has its message",
                    process=process_scope(process),
                    partition=partition_of(body),
                    offset=offset,
                    epoch=epoch,
                    leader=process_scope(event.process),
                )
                return (broken,)
        return NOTHING
