"""Checkpoints: the offsets that a replica stores beside its log, and their state after a
restart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, final

from msgspec import Struct

from fencepost import (
    Cause,
    Event,
    Evidence,
    Exercised,
    FaultInjected,
    Finding,
    Key,
    RunEnd,
    Violated,
)
from fencepost_kafka import (
    FollowingStarted,
    HighWatermarkAdvanced,
    LeadershipStarted,
    LogAppended,
    LogTruncated,
    ReplicaCheckpointed,
    ReplicaRemoved,
)
from fencepost_kafka.active_faults import DUPLICATES, slot_of
from fencepost_suites.common.keys import NOTHING, by_disk, by_partition

Place = tuple[str, int]
"""A topic and the number of a partition."""


@dataclass(slots=True)
class _Marks:
    """The highest high watermark that the processes of each node reported, and the processes that
    began."""

    reported: dict[str, tuple[int, Cause]] = field(default_factory=dict)
    began: set[str] = field(default_factory=set)


@final
class RestartsFromCheckpoint(Struct, frozen=True):
    """RP-08. A checkpoint holds a high watermark that the replica had reported before. Exercised by
    a process that begins with a high watermark of a former process and a log that reaches beyond
    it."""

    clause: str = "RP-08"
    kinds: frozenset[type[Struct]] = frozenset(
        {HighWatermarkAdvanced, FollowingStarted, LeadershipStarted}
    )
    keys = staticmethod(by_partition)

    def start(self, key: Key) -> _Marks:
        return _Marks()

    def step(self, state: _Marks, event: Event) -> tuple[_Marks, Sequence[Finding]]:
        body = event.body
        if isinstance(body, HighWatermarkAdvanced):
            node = _node_of(event.process)
            if body.high_watermark > state.reported.get(node, (-1, None))[0]:
                state.reported[node] = (body.high_watermark, event.ref)
        elif event.process not in state.began:
            state.began.add(event.process)
            assert isinstance(body, FollowingStarted | LeadershipStarted)
            return state, self._began(state, event, body)
        return state, NOTHING

    @staticmethod
    def _began(
        state: _Marks, event: Event, body: FollowingStarted | LeadershipStarted
    ) -> Sequence[Finding]:
        place = f"{body.topic}-{body.partition}"
        if body.high_watermark > body.log_end:
            message = (
                f"{event.process} begins with a high watermark of {body.high_watermark} for "
                f"{place}, above its log end {body.log_end}"
            )
            return (Violated(event.ref, Evidence.SELF, message),)
        node = _node_of(event.process)
        reported, ref = state.reported.get(node, (0, None))
        if body.high_watermark > reported:
            message = (
                f"{event.process} begins with a high watermark of {body.high_watermark} for "
                f"{place}, though {node} never reported one above {reported}"
            )
            return (Violated(event.ref, Evidence.SELF, message, () if ref is None else (ref,)),)
        if 0 < body.high_watermark < body.log_end:
            return (Exercised(event.ref, Evidence.SELF),)
        return NOTHING

    def end(self, state: _Marks, end: RunEnd) -> Sequence[Finding]:
        return NOTHING


@dataclass(slots=True)
class _Disk:
    """The contents of a slot's disk for each partition, as its processes reported them."""

    flushed: dict[Place, tuple[int, Cause]] = field(default_factory=dict)
    ends: dict[Place, int] = field(default_factory=dict)
    began: set[tuple[str, Place]] = field(default_factory=set)


@final
class FlushedSurvives(Struct, frozen=True):
    """RP-26. Exercised by a process that finds less than the process before it had stored, because
    the machine lost unsynced data, and all that had been flushed. The disk of a duplicate may be
    empty. So may a disk that a fault has emptied, and one that it damaged may have lost its end."""

    clause: str = "RP-26"
    kinds: frozenset[type[Struct]] = frozenset(
        {
            *(LogAppended, LogTruncated, ReplicaCheckpointed, ReplicaRemoved),
            *(FollowingStarted, LeadershipStarted, FaultInjected),
        }
    )
    keys = staticmethod(by_disk)

    def start(self, key: Key) -> _Disk:
        return _Disk()

    def step(self, state: _Disk, event: Event) -> tuple[_Disk, Sequence[Finding]]:
        body: Any = event.body
        if isinstance(body, FaultInjected):
            state.flushed.clear()
            state.ends.clear()
            return state, NOTHING
        place = body.topic, body.partition
        if isinstance(body, LogAppended):
            state.ends[place] = body.log_end
        elif isinstance(body, ReplicaCheckpointed):
            state.flushed[place] = (body.flushed, event.ref)
        elif isinstance(body, LogTruncated):
            state.ends[place] = body.to_offset
            flushed, ref = state.flushed.get(place, (0, event.ref))
            state.flushed[place] = (min(flushed, body.to_offset), ref)
        elif isinstance(body, ReplicaRemoved):
            state.flushed.pop(place, None)
            state.ends.pop(place, None)
        elif (event.process, place) not in state.began:
            state.began.add((event.process, place))
            assert isinstance(body, FollowingStarted | LeadershipStarted)
            return state, self._began(state, event, body)
        return state, NOTHING

    @staticmethod
    def _began(
        state: _Disk, event: Event, body: FollowingStarted | LeadershipStarted
    ) -> Sequence[Finding]:
        place = body.topic, body.partition
        end = state.ends.get(place, body.log_end)
        state.ends[place] = body.log_end
        flushed, ref = state.flushed.pop(place, (0, None))
        if slot_of(event.process).endswith(DUPLICATES) or ref is None:
            return NOTHING
        if body.log_end < flushed:
            message = (
                f"{event.process} finds {body.topic}-{body.partition} up to offset {body.log_end}, "
                f"of which {flushed} had been flushed"
            )
            return (Violated(event.ref, Evidence.SELF, message, (ref,)),)
        if body.log_end < end:
            return (Exercised(event.ref, Evidence.SELF),)
        return NOTHING

    def end(self, state: _Disk, end: RunEnd) -> Sequence[Finding]:
        return NOTHING


def _node_of(process: str) -> str:
    """The slot of the node that a process claims to be."""
    slot = slot_of(process)
    for ending in DUPLICATES:
        slot = slot.removesuffix(ending)
    return slot
