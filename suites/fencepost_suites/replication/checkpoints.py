"""Checkpoints: the offsets that a replica stores beside its log, and their state after a
restart."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import final

from fencepost import (
    HARMS_DISK,
    NOTHING,
    Cause,
    Event,
    Evidence,
    Exercised,
    FaultInjected,
    Findings,
    Rule,
    first_of,
    is_second,
    on,
    process_scope,
    slot_of,
    slot_scope,
    violated,
)
from fencepost_kafka import (
    FollowingStarted,
    HighWatermarkAdvanced,
    LeadershipStarted,
    LogAppended,
    LogTruncated,
    ReplicaCheckpointed,
    ReplicaRemoved,
    partition_of,
)
from fencepost_suites.common.keys import by_disk

Place = tuple[str, int]
"""A topic and the number of a partition."""


@dataclass(slots=True)
class _Marks:
    """The highest high watermark that the processes of each node reported, and the processes that
    began."""

    reported: dict[str, tuple[int, Event]] = field(default_factory=dict)
    began: set[str] = field(default_factory=set)
    stored: dict[str, tuple[int, int, Cause]] = field(default_factory=dict)
    """slot -> the high watermarks of its newest checkpoint and the one before, and the newest."""


@dataclass(slots=True)
class _Checkpoints:
    """What is known of each partition: a fault concerns all that are on a disk."""

    places: defaultdict[Place, _Marks] = field(default_factory=lambda: defaultdict(_Marks))


@final
class RestartsFromCheckpoint(Rule[_Checkpoints]):
    """RP-08. A checkpoint holds a high watermark that the replica had reported before. Exercised by
    a process that begins with a high watermark of a former process and a log that reaches beyond
    it."""

    clause = "RP-08"
    state = _Checkpoints

    @on(FaultInjected)
    def _harmed(self, of: _Checkpoints, event: Event, body: FaultInjected) -> Findings:
        slots = body.acts(*HARMS_DISK)
        for marks in of.places.values() if slots else ():
            for slot in slots:
                marks.stored.pop(slot, None)
        return NOTHING

    @on(HighWatermarkAdvanced)
    def _advanced(self, of: _Checkpoints, event: Event, body: HighWatermarkAdvanced) -> Findings:
        # By the node, and not by the slot: a second process may begin with a copy of the first
        # one's disk.
        state, node = of.places[body.topic, body.partition], first_of(event.process)
        known = state.reported.get(node)
        if body.high_watermark > (-1 if known is None else known[0]):
            state.reported[node] = (body.high_watermark, event)
        return NOTHING

    @on(ReplicaCheckpointed)
    def _checkpointed(self, of: _Checkpoints, event: Event, body: ReplicaCheckpointed) -> Findings:
        state, slot = of.places[body.topic, body.partition], slot_of(event.process)
        before = state.stored.get(slot, (0, 0, event.ref))[0]
        state.stored[slot] = body.high_watermark, before, event.ref
        return NOTHING

    @on(ReplicaRemoved)
    def _removed(self, of: _Checkpoints, event: Event, body: ReplicaRemoved) -> Findings:
        of.places[body.topic, body.partition].stored.pop(slot_of(event.process), None)
        return NOTHING

    @on(FollowingStarted, LeadershipStarted)
    def _began(
        self, of: _Checkpoints, event: Event, body: FollowingStarted | LeadershipStarted
    ) -> Findings:
        state = of.places[body.topic, body.partition]
        # Only the first role of a process shows what it found on its disk.
        if event.process in state.began:
            return NOTHING
        state.began.add(event.process)
        # -1: it does not say where its log ends.
        if body.high_watermark > body.log_end >= 0:
            broken = violated(
                event.ref,
                Evidence.SELF,
                "{process} begins with a high watermark of {high_watermark} for {partition}, "
                "above its log end {log_end}",
                process=process_scope(event.process),
                high_watermark=body.high_watermark,
                partition=partition_of(body),
                log_end=body.log_end,
            )
            return (broken,)
        node = first_of(event.process)
        reported, by = state.reported.get(node, (0, None))
        if body.high_watermark > reported:
            because = () if by is None else (by.ref,)
            broken = violated(
                event.ref,
                Evidence.SELF,
                "{process} begins with a high watermark of {high_watermark} for {partition}, "
                "though {slot} never reported one above {reported}",
                because,
                process=process_scope(event.process),
                high_watermark=body.high_watermark,
                partition=partition_of(body),
                slot=slot_scope(node),
                reported=reported,
            )
            return (broken,)
        # A process may end after it has told of a checkpoint, and before that is on its disk.
        newest, before, ref = state.stored.pop(slot_of(event.process), (0, 0, event.ref))
        least = min(newest, before, body.log_end)
        if body.high_watermark < least and not is_second(event.process):
            broken = violated(
                event.ref,
                Evidence.SELF,
                "{process} begins with a high watermark of {high_watermark} for {partition}, "
                "below its checkpoint {checkpoint} and its log end {log_end}",
                (ref,),
                process=process_scope(event.process),
                high_watermark=body.high_watermark,
                partition=partition_of(body),
                checkpoint=newest,
                log_end=body.log_end,
            )
            return (broken,)
        if 0 < body.high_watermark < body.log_end:
            return (Exercised(event.ref, Evidence.SELF),)
        return NOTHING


@dataclass(slots=True)
class _Disk:
    """The contents of a slot's disk for each partition, as its processes reported them."""

    flushed: dict[Place, tuple[int, Cause]] = field(default_factory=dict)
    ends: dict[Place, int] = field(default_factory=dict)
    began: set[tuple[str, Place]] = field(default_factory=set)


@final
class FlushedSurvives(Rule[_Disk]):
    """RP-26. Exercised by a process that finds less than the process before it had stored, because
    the machine lost unsynced data, and all that had been flushed. The disk of a duplicate may be
    empty. So may a disk that a fault has emptied, and one that it damaged may have lost its end."""

    clause = "RP-26"
    keys = staticmethod(by_disk)
    state = _Disk

    @on(LogAppended)
    def _appended(self, state: _Disk, event: Event, body: LogAppended) -> Findings:
        state.ends[body.topic, body.partition] = body.log_end
        return NOTHING

    @on(ReplicaCheckpointed)
    def _checkpointed(self, state: _Disk, event: Event, body: ReplicaCheckpointed) -> Findings:
        state.flushed[body.topic, body.partition] = (body.flushed, event.ref)
        return NOTHING

    @on(LogTruncated)
    def _truncated(self, state: _Disk, event: Event, body: LogTruncated) -> Findings:
        place = body.topic, body.partition
        state.ends[place] = body.to_offset
        # Recovery drops what was not synced: what it may not drop is judged as the process begins.
        if body.reason == "recovery":
            return NOTHING
        # Another truncation takes what was flushed, too.
        flushed, ref = state.flushed.get(place, (0, event.ref))
        state.flushed[place] = (min(flushed, body.to_offset), ref)
        return NOTHING

    @on(ReplicaRemoved)
    def _removed(self, state: _Disk, event: Event, body: ReplicaRemoved) -> Findings:
        place = body.topic, body.partition
        state.flushed.pop(place, None)
        state.ends.pop(place, None)
        return NOTHING

    @on(FaultInjected)
    def _harmed(self, state: _Disk, event: Event, body: FaultInjected) -> Findings:
        state.flushed.clear()
        state.ends.clear()
        return NOTHING

    @on(FollowingStarted, LeadershipStarted)
    def _began(
        self, state: _Disk, event: Event, body: FollowingStarted | LeadershipStarted
    ) -> Findings:
        place = body.topic, body.partition
        if (event.process, place) in state.began:
            return NOTHING
        state.began.add((event.process, place))
        end = state.ends.get(place, body.log_end)
        state.ends[place] = body.log_end
        # Popped: what this process has flushed itself comes with its own checkpoints.
        flushed, ref = state.flushed.pop(place, (0, None))
        if is_second(event.process) or ref is None:
            return NOTHING
        if body.log_end < flushed:
            broken = violated(
                event.ref,
                Evidence.SELF,
                "{process} finds {partition} up to offset {log_end}, of which {flushed} had been "
                "flushed",
                (ref,),
                process=process_scope(event.process),
                partition=partition_of(body),
                log_end=body.log_end,
                flushed=flushed,
            )
            return (broken,)
        # The machine had lost what was not synced, and the flushed part was there: the promise was
        # at work.
        if body.log_end < end:
            return (Exercised(event.ref, Evidence.SELF),)
        return NOTHING
