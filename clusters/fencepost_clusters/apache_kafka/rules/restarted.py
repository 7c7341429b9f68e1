"""Rules about replicas that restart, and that follow another leader (RP-08, RP-15)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    NOTHING,
    Cause,
    Event,
    Evidence,
    Exercised,
    Findings,
    Rule,
    on,
    process_scope,
    slot_of,
    violated,
)
from fencepost_clusters.apache_kafka.rules.keys import KRAFT, by_partition
from fencepost_kafka import (
    FollowingStarted,
    HighWatermarkAdvanced,
    LeadershipStarted,
    LogTruncated,
    partition_of,
)


@dataclass(slots=True)
class _Marks:
    highest: int = -1
    """The highest high watermark that any replica has logged (-1: none logs its own)."""
    began: set[str] = field(default_factory=set)
    slots: set[str] = field(default_factory=set)
    """The slots of those that began."""


@final
class RestartsCommitted(Rule[_Marks]):
    """RP-08. What is checkpointed is not logged, but it was a high watermark: so the one that a new
    process begins with is one that a replica had, unlike its log end. Exercised by a process of
    a slot that had one before, with a log that reaches beyond its high watermark."""

    clause = "RP-08"
    planes = KRAFT
    keys = staticmethod(by_partition)
    state = _Marks

    @on(HighWatermarkAdvanced, FollowingStarted, LeadershipStarted)
    def step(self, state: _Marks, event: Event, body: Struct) -> Findings:
        if isinstance(body, HighWatermarkAdvanced):
            state.highest = max(state.highest, body.high_watermark)
            return NOTHING
        assert isinstance(body, FollowingStarted | LeadershipStarted)
        if event.process in state.began:
            return NOTHING
        state.began.add(event.process)
        slot = slot_of(event.process)
        again = slot in state.slots
        state.slots.add(slot)
        mark = body.high_watermark
        if mark > body.log_end:
            above = violated(
                event.ref,
                Evidence.SELF,
                "{process} begins with a high watermark of {high_watermark} for {partition}, above "
                "its log end {log_end}",
                process=process_scope(event.process),
                high_watermark=mark,
                partition=partition_of(body),
                log_end=body.log_end,
            )
            return (above,)
        if 0 <= state.highest < mark:
            higher = violated(
                event.ref,
                Evidence.PEER,
                "{process} begins with a high watermark of {high_watermark} for {partition}, and "
                "no replica had one above {highest}",
                process=process_scope(event.process),
                high_watermark=mark,
                partition=partition_of(body),
                highest=state.highest,
            )
            return (higher,)
        beyond = again and 0 < mark <= state.highest and mark < body.log_end
        return (Exercised(event.ref, Evidence.PEER),) if beyond else NOTHING


@dataclass(slots=True)
class _Truncating:
    marks: dict[str, int] = field(default_factory=dict)
    """process -> its high watermark."""
    open: bool = False
    """Whether replicas log their high watermarks: histories of before they did prove nothing."""
    terms: dict[int, Cause] = field(default_factory=dict)
    """leader epoch -> the event by which its leader began."""


@final
class DropsNothingCommitted(Rule[_Truncating]):
    """RP-15. By the follower's own words: where it truncates, and its high watermark before. What
    replicas hold below it is compared on the disks (RP-05). The leader to whose log it truncates
    proves nothing of that, but explains it. Exercised by each truncation."""

    clause = "RP-15"
    planes = KRAFT
    keys = staticmethod(by_partition)
    state = _Truncating

    @on(HighWatermarkAdvanced, FollowingStarted, LeadershipStarted, LogTruncated)
    def step(self, state: _Truncating, event: Event, body: Struct) -> Findings:
        match body:
            case HighWatermarkAdvanced():
                state.open = True
                state.marks[event.process] = body.high_watermark
            case FollowingStarted() | LeadershipStarted():
                state.marks[event.process] = body.high_watermark
                if isinstance(body, LeadershipStarted):
                    state.terms.setdefault(body.leader_epoch, event.ref)
            case LogTruncated() if state.open:
                mark = state.marks.get(event.process, 0)
                if body.to_offset >= mark:
                    return (Exercised(event.ref, Evidence.SELF),)
                term = state.terms.get(body.leader_epoch)
                dropped = violated(
                    event.ref,
                    Evidence.SELF,
                    "{process} dropped {partition} from offset {offset} on, below its high "
                    "watermark {high_watermark}",
                    () if term is None else (term,),
                    process=process_scope(event.process),
                    partition=partition_of(body),
                    offset=body.to_offset,
                    high_watermark=mark,
                )
                return (dropped,)
        return NOTHING
