"""Writes in flight when a leader fails or steps down: each is stored once, and answered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, final

from msgspec import Struct

from fencepost import (
    NOTHING,
    Cause,
    Event,
    Evidence,
    Exercised,
    Finding,
    Findings,
    Key,
    Reason,
    Rule,
    RunEnd,
    Shared,
    Undecided,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    FollowingStarted,
    HeartbeatSent,
    HighWatermarkAdvanced,
    LeadershipEnded,
    LeadershipStarted,
    LogAppended,
    MetadataHeartbeatSent,
    ProduceAnswered,
    ProduceInvoked,
    partition_of,
)
from fencepost_suites.common.keys import by_partition
from fencepost_suites.common.replica_logs import ReplicaLogs

ANSWERED_WITHIN_NS = 5_000_000_000
"""A leader that steps down answers at once; an event later than this shows that it is alive."""


class _Stored(Struct, frozen=True):
    """The leader that stored a batch, and the event by which its leadership began."""

    leader: str
    began: Cause | None


@dataclass(slots=True)
class _Sequences:
    """The idempotent batches in each process's log, and which process stored each first."""

    logs: ReplicaLogs
    at: dict[tuple[int, int, str], dict[int, _Stored]] = field(default_factory=dict)
    """producer, sequence and content -> offset -> what stored it there."""
    leads: dict[str, Cause] = field(default_factory=dict)
    """process -> the newest event by which it began to lead."""


def _content(digest: str) -> str:
    """A batch's checksum, whatever the epoch in which a leader stored it."""
    return digest.partition(".")[0]


def _second_leadership(first: _Stored | None, second: _Stored | None) -> tuple[Cause, ...]:
    """The event by which another leader than the first began to lead, if it stored it again."""
    if second is None or second.began is None or second == first:
        return ()
    return (second.began,)


@final
class ResendIsStoredOnce(Rule[_Sequences]):
    """RP-12. A resend has the producer, sequence and bytes of the first request. It is stored
    again only if the first was not kept. Exercised by a resend that a later leader recognises as
    stored. If two leaders stored it, the second one's leadership explains that."""

    clause = "RP-12"
    keys = staticmethod(by_partition)
    folds = (ReplicaLogs,)

    def start(self, key: Key, shared: Shared) -> _Sequences:
        return _Sequences(shared[ReplicaLogs])

    @on(LogAppended)
    def _appended(self, state: _Sequences, event: Event, body: LogAppended) -> Findings:
        # Only the leader's append counts: a follower stores the same batch, and is no resend.
        if body.as_leader and body.producer_id >= 0:
            place = (body.producer_id, body.base_sequence, _content(body.digest))
            stored_by = _Stored(event.process, state.leads.get(event.process))
            state.at.setdefault(place, {})[body.base_offset] = stored_by
        return NOTHING

    @on(LeadershipStarted)
    def _led(self, state: _Sequences, event: Event, body: LeadershipStarted) -> Findings:
        state.leads[event.process] = event.ref
        return NOTHING

    @on(ProduceAnswered)
    def _answered(self, state: _Sequences, event: Event, body: ProduceAnswered) -> Findings:
        if not body.duplicate or body.error != "NONE":
            return NOTHING
        stored = [at for at in state.at.values() if body.base_offset in at]
        if any(at[body.base_offset].leader != event.process for at in stored):
            return (Exercised(event.ref, Evidence.PEER),)
        return NOTHING

    @on(HighWatermarkAdvanced)
    def _commits(self, state: _Sequences, event: Event, body: HighWatermarkAdvanced) -> Findings:
        """A batch that is committed twice in one log is stored twice, whatever is truncated
        elsewhere."""
        process, done = event.process, state.logs.moved
        conflict = done.conflict
        if conflict is not None:
            broken = violated(
                event.ref,
                Evidence.PEER,
                "after a failover {process} and {other} hold different writes at offset {offset} "
                "of {partition}",
                process=process_scope(event.process),
                other=process_scope(conflict.other),
                offset=conflict.batch.base_offset,
                partition=partition_of(body),
            )
            return (broken,)
        for batch in done.batches:
            stored = batch.body
            if stored.producer_id < 0:
                continue
            content = _content(batch.digest)
            at = state.at.get((stored.producer_id, stored.base_sequence, content), {})
            twice = [
                offset
                for offset in at
                if offset < batch.base_offset and offset in state.logs.committed
                and _content(state.logs.committed[offset][0]) == content
            ]  # fmt: skip
            if twice:
                because = _second_leadership(at.get(twice[0]), at.get(batch.base_offset))
                broken = violated(
                    event.ref,
                    Evidence.PEER,
                    "{process} holds one write of producer {producer}, sequence {sequence}, at "
                    "offset {offset} of {partition} and again at {other_offset}",
                    because,
                    process=process_scope(process),
                    producer=stored.producer_id,
                    sequence=stored.base_sequence,
                    offset=twice[0],
                    partition=partition_of(body),
                    other_offset=batch.base_offset,
                    former=process_scope(at[twice[0]].leader),
                )
                return (broken,)
        return NOTHING


@dataclass(slots=True)
class _Queue:
    """The writes of clients that each leader has stored and not answered."""

    waiting: dict[str, dict[Cause, Event]] = field(default_factory=dict)
    stopped: dict[str, tuple[Cause, int]] = field(default_factory=dict)
    """process -> when it stopped leading."""
    marks: dict[str, int] = field(default_factory=dict)
    """process -> the highest high watermark that it has reported."""
    acks: dict[str, set[int]] = field(default_factory=dict)
    """client -> the acknowledgements for which it has asked."""


@dataclass(slots=True)
class _Queues:
    """All partitions, since what a process says of another one shows, too, that it is alive."""

    of: dict[tuple[str, int], _Queue] = field(default_factory=dict)
    last_ns: dict[str, int] = field(default_factory=dict)
    """process -> when it said anything last."""

    def at(self, event: Event) -> _Queue:
        """The partition that an event is about."""
        body: Any = event.body
        self.last_ns[event.process] = event.at_ns
        place = body.topic, body.partition
        one = self.of.get(place)
        if one is None:
            one = self.of[place] = _Queue()
        return one


@final
class SteppingDownFailsWrites(Rule[_Queues]):
    """RP-31. Exercised by a write that was still waiting when its leader stepped down, and was
    answered with an error. Broken by a write that its leader leaves unanswered although it is
    alive. A leader that begins to follow has stopped leading, also if it does not say so; and an
    answer that names another end or a higher high watermark than its leader had reported is held to
    what was reported. For which acknowledgements a client had asked is the client's word."""

    clause = "RP-31"
    state = _Queues

    @on(LogAppended)
    def _appended(self, state: _Queues, event: Event, body: LogAppended) -> Findings:
        cause, one = event.cause, state.at(event)
        # A write of a client is known by the request that caused it, and so is its answer.
        if cause is not None and cause.request and body.as_leader:
            one.waiting.setdefault(event.process, {})[cause] = event
        return NOTHING

    @on(ProduceAnswered)
    def _answered(self, state: _Queues, event: Event, body: ProduceAnswered) -> Findings:
        process, one = event.process, state.at(event)
        waiting = one.waiting.get(process)
        stored = None if waiting is None or event.cause is None else waiting.pop(event.cause, None)
        stopped = one.stopped.get(process)
        if stopped is None:
            return NOTHING
        return self._late(one, event, stored, stopped[0])

    @on(LeadershipStarted)
    def _leads(self, state: _Queues, event: Event, body: LeadershipStarted) -> Findings:
        one = state.at(event)
        one.stopped.pop(event.process, None)
        one.marks[event.process] = max(body.high_watermark, one.marks.get(event.process, 0))
        return NOTHING

    @on(ProduceInvoked)
    def _invoked(self, state: _Queues, event: Event, body: ProduceInvoked) -> Findings:
        state.at(event).acks.setdefault(event.process, set()).add(body.acks)
        return NOTHING

    @on(HighWatermarkAdvanced)
    def _advanced(self, state: _Queues, event: Event, body: HighWatermarkAdvanced) -> Findings:
        marks = state.at(event).marks
        marks[event.process] = max(body.high_watermark, marks.get(event.process, 0))
        return NOTHING

    @on(LeadershipEnded)
    def _stops(self, state: _Queues, event: Event, body: LeadershipEnded) -> Findings:
        state.at(event).stopped[event.process] = (event.ref, event.at_ns)
        return NOTHING

    @on(FollowingStarted)
    def _follows(self, state: _Queues, event: Event, body: FollowingStarted) -> Findings:
        state.at(event).stopped.setdefault(event.process, (event.ref, event.at_ns))
        return NOTHING

    @on(HeartbeatSent, MetadataHeartbeatSent)
    def _lives(self, state: _Queues, event: Event, body: Struct) -> Findings:
        state.last_ns[event.process] = event.at_ns
        return NOTHING

    @staticmethod
    def _late(state: _Queue, event: Event, stored: Event | None, ref: Cause) -> Findings:
        """`stored` is None for a write of which its leader has not told that it stored it: its
        answer says where that would be."""
        body = event.body
        assert isinstance(body, ProduceAnswered)
        if body.error != "NONE":
            return NOTHING if stored is None else (Exercised(event.ref, Evidence.SELF),)
        # A write that was committed before may be acknowledged after.
        log_end = body.log_end
        if stored is not None:
            assert isinstance(stored.body, LogAppended)
            log_end = max(log_end, stored.body.log_end)
        # A process that has never reported one is believed.
        mark = min(body.high_watermark, state.marks.get(event.process, body.high_watermark))
        asked = state.acks.get(event.cause.process, set()) if event.cause else set()
        if (body.acks != -1 and asked != {-1}) or mark >= log_end:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.SELF,
            "{process} acknowledged {partition} up to offset {offset} after it had stopped "
            "leading, with a high watermark of {high_watermark}",
            (ref,),
            process=process_scope(event.process),
            partition=partition_of(body),
            offset=log_end,
            high_watermark=mark,
        )
        return (broken,)

    def end(self, state: _Queues, end: RunEnd) -> Findings:
        return [one for queue in state.of.values() for one in self._open(state, queue)]

    @staticmethod
    def _open(state: _Queues, queue: _Queue) -> Iterator[Finding]:
        for process, (ref, at_ns) in queue.stopped.items():
            waiting = queue.waiting.get(process)
            if not waiting:
                continue
            first: Any = next(iter(waiting.values())).body
            broken = violated(
                ref,
                Evidence.SELF,
                "{process} stopped leading with {writes} writes and never answered them",
                process=process_scope(process),
                writes=len(waiting),
                partition=partition_of(first),
            )
            # A process that ended soon after it stepped down may have had no time to answer.
            if state.last_ns[process] - at_ns > ANSWERED_WITHIN_NS:
                yield broken
            else:
                yield Undecided.of(broken, Reason("its events end soon after"))
