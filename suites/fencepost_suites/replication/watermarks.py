"""The high watermark: the readable offsets, how followers learn it, and the replicas that it
counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from fencepost import (
    NOTHING,
    Event,
    Evidence,
    Excused,
    Exercised,
    Finding,
    Findings,
    Key,
    Reason,
    Rule,
    RunEnd,
    Shared,
    Violated,
    on,
    process_scope,
    violated,
)
from fencepost_kafka import (
    ConsumerPositioned,
    FetchServed,
    FollowingStarted,
    HighWatermarkAdvanced,
    IsrChangeAsked,
    LeadershipEnded,
    LeadershipStarted,
    LogAppended,
    Polled,
    ProduceInvoked,
    broker_of,
    partition_of,
)
from fencepost_kafka.judging.owed import APPENDS, HIGH_WATERMARKS
from fencepost_suites.common.keys import by_partition
from fencepost_suites.replication.stored import Overtaken, StoredEnds

LEARNT_WITH_NS = 500_000_000
"""How much later than the first message after a silence the high watermark may be reported."""
LEARNT_WITHIN_NS = 2_000_000_000
"""A follower that stores what it fetches has received several answers by then, each with the high
watermark."""


@dataclass(slots=True)
class _Readable:
    """How far any replica has committed the partition, and the batches beyond."""

    high_watermark: int = -1
    begun: int = -1
    """The highest high watermark with which a replica began to lead or to follow: more than its
    events have reported, if these are not all in the history."""
    log_end: int = -1
    withheld: bool = False


@final
class ReadsStayBelowWatermark(Rule[_Readable]):
    """RP-07. The consumer's evidence: a replica had declared everything it received committed
    before. A broker is held to that, too: a high watermark that only its answer names is its word
    for itself. Exercised when the leader held more than it served."""

    clause = "RP-07"
    reads = frozenset({ConsumerPositioned, ProduceInvoked})
    keys = staticmethod(by_partition)
    state = _Readable

    @on(HighWatermarkAdvanced)
    def _advanced(self, state: _Readable, event: Event, body: HighWatermarkAdvanced) -> Findings:
        high_watermark = body.high_watermark
        state.high_watermark = max(state.high_watermark, high_watermark)
        if body.as_leader:
            state.log_end = body.log_end
        return NOTHING

    @on(LeadershipStarted, FollowingStarted)
    def _begun(
        self, state: _Readable, event: Event, body: LeadershipStarted | FollowingStarted
    ) -> Findings:
        state.begun = max(state.begun, body.high_watermark)
        return NOTHING

    @on(FetchServed)
    def _served(self, state: _Readable, event: Event, body: FetchServed) -> Findings:
        committed = body.high_watermark
        if state.high_watermark >= 0:
            committed = min(committed, max(state.high_watermark, state.begun))
        if body.to_offset > committed:
            broken = violated(
                event.ref,
                Evidence.SELF,
                "{process} served {partition} up to offset {offset} with a high watermark of "
                "{high_watermark}",
                process=process_scope(event.process),
                partition=partition_of(body),
                offset=body.to_offset,
                high_watermark=committed,
            )
            return (broken,)
        # The leader had more, and kept it back: this is where the promise was at work.
        if body.to_offset == body.high_watermark < max(state.log_end, body.log_end):
            state.withheld = True
            return (Exercised(event.ref, Evidence.SELF),)
        return NOTHING

    @on(Polled)
    def _polled(self, state: _Readable, event: Event, body: Polled) -> Findings:
        if body.offsets and body.offsets[-1] >= state.high_watermark >= 0:
            broken = violated(
                event.ref,
                Evidence.CLIENT,
                "{client} read offset {offset} of {partition}, of which only {high_watermark} was "
                "committed",
                client=process_scope(event.process),
                offset=body.offsets[-1],
                partition=partition_of(body),
                high_watermark=state.high_watermark,
            )
            return (broken,)
        if state.withheld:
            state.withheld = False
            return (Exercised(event.ref, Evidence.CLIENT),)
        return NOTHING


@dataclass(slots=True)
class _Learner:
    """One follower: its own high watermark, and the one it must have learned by now."""

    own: int
    due: int = 0
    """What its leader had reported; not what it held itself when it began to follow, which may be
    more (KIP-207)."""
    due_since_ns: int = 0
    late_ns: int = -1
    """When it first stored a message later than allowed without the high watermark."""
    learnt: bool = False


@dataclass(slots=True)
class _Marks:
    epoch: int = -1
    leaders: int = 0
    """The highest high watermark that the leader of the newest epoch has reported. A new leader may
    have a lower one than its predecessor (KIP-207)."""
    followers: dict[str, _Learner] = field(default_factory=dict)

    def reported(self, epoch: int, high_watermark: int) -> None:
        """A leader reports a high watermark."""
        if epoch > self.epoch:
            self.epoch, self.leaders = epoch, high_watermark
        elif epoch == self.epoch:
            self.leaders = max(self.leaders, high_watermark)


@final
class FollowersLearnWatermark(Rule[_Marks]):
    """RP-27. Exercised when a follower that is new to its leader has learned a high watermark from
    it, and when the follower's own log end caps it. A follower that stores fetched messages for two
    seconds without learning the high watermark of that time never will."""

    clause = "RP-27"
    absence = (APPENDS, HIGH_WATERMARKS)
    keys = staticmethod(by_partition)
    state = _Marks

    @on(LogAppended)
    def _appended(self, state: _Marks, event: Event, body: LogAppended) -> Findings:
        one = state.followers.get(event.process)
        if one is None or body.as_leader:
            return NOTHING
        if one.own < one.due:
            return self._late(event, body, one)
        # The follower has caught up with what was due. The next mark is what the leader has
        # reported by now, up to the follower's end before this batch: each answer has had it.
        one.due, one.due_since_ns = min(state.leaders, body.expected_base), event.at_ns
        return NOTHING

    @on(FollowingStarted)
    def _follows(self, state: _Marks, event: Event, body: FollowingStarted) -> Findings:
        own = body.high_watermark
        state.followers[event.process] = _Learner(own, due_since_ns=event.at_ns)
        return NOTHING

    @on(LeadershipStarted)
    def _leads(self, state: _Marks, event: Event, body: LeadershipStarted) -> Findings:
        state.followers.pop(event.process, None)
        state.reported(body.leader_epoch, body.high_watermark)
        return NOTHING

    @on(HighWatermarkAdvanced)
    def _advanced(self, state: _Marks, event: Event, body: HighWatermarkAdvanced) -> Findings:
        high_watermark, log_end = body.high_watermark, body.log_end
        if high_watermark > log_end:
            broken = violated(
                event.ref,
                Evidence.SELF,
                "{process} holds a high watermark of {high_watermark} for {partition}, above its "
                "log end {log_end}",
                process=process_scope(event.process),
                high_watermark=high_watermark,
                partition=partition_of(body),
                log_end=log_end,
            )
            return (broken,)
        if body.as_leader:
            state.reported(body.leader_epoch, high_watermark)
            return NOTHING
        one = state.followers.get(event.process)
        if one is None:
            return NOTHING
        one.own = high_watermark
        capped = high_watermark == log_end < state.leaders
        if capped or not one.learnt:
            one.learnt = True
            return (Exercised(event.ref, Evidence.PEER),)
        return NOTHING

    @staticmethod
    def _late(event: Event, body: LogAppended, one: _Learner) -> Findings:
        if event.at_ns - one.due_since_ns <= LEARNT_WITHIN_NS:
            return NOTHING
        if one.late_ns <= one.due_since_ns:
            # After a silence, the first message that is stored brings the high watermark.
            one.late_ns = event.at_ns
        if event.at_ns - one.late_ns < LEARNT_WITH_NS:
            return NOTHING
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} has stored {partition} from its leader for {since_ns} and still has a high "
            "watermark of {high_watermark}, though the leader had reported {reported}",
            process=process_scope(event.process),
            partition=partition_of(body),
            since_ns=event.at_ns - one.due_since_ns,
            high_watermark=one.own,
            reported=one.due,
        )
        one.own = one.due  # reported once
        return (broken,)


@dataclass(slots=True)
class _Counted:
    """What is stored of a partition, and a requested shrink that is not stored yet."""

    stored: StoredEnds
    overtaken: Overtaken
    shrink: tuple[str, int] | None = None
    """The leader that asked for a smaller ISR, and its epoch then."""


@final
class StoredIsrCounts(Rule[_Counted]):
    """RP-32. The stored ISR is what the committed records say for the leader's epoch. As many
    followers as it has must say that they stored what is committed. Exercised by the first commit
    after a requested shrink was stored, and by a leader that steps down with its
    shrink not stored."""

    clause = "RP-32"
    keys = staticmethod(by_partition)
    folds = (StoredEnds,)

    def start(self, key: Key, shared: Shared) -> _Counted:
        stored: StoredEnds = shared[StoredEnds]
        return _Counted(stored, Overtaken(stored))

    @on(IsrChangeAsked)
    def _asked(self, state: _Counted, event: Event, body: IsrChangeAsked) -> Findings:
        if set(body.old_isr) - set(body.new_isr):
            state.shrink = (event.process, body.leader_epoch)
        return NOTHING

    @on(LeadershipEnded)
    def _ended(self, state: _Counted, event: Event, body: LeadershipEnded) -> Findings:
        if state.shrink == (event.process, body.leader_epoch):
            state.shrink = None
            return (Exercised(event.ref, Evidence.SELF),)
        return NOTHING

    @on(HighWatermarkAdvanced)
    def _advanced(self, state: _Counted, event: Event, body: HighWatermarkAdvanced) -> Findings:
        if not body.as_leader:
            return NOTHING
        # Of the same leader epoch only: a record of a later one may be replayed before this
        # leader's commit is reported.
        known = state.stored.newest_told(body.leader_epoch)
        counted, isr = body.counted, body.isr if known is None else known.isr
        evidence = Evidence.SELF if known is None else Evidence.PEER
        # More may be counted than are stored, and none less.
        if isr != counted and (missing := {*isr} - {*counted}):
            broken = violated(
                event.ref,
                evidence,
                "{process} committed {partition} up to offset {high_watermark} over {counted}, "
                "without {missing} of the stored ISR",
                process=process_scope(event.process),
                partition=partition_of(body),
                high_watermark=body.high_watermark,
                counted=tuple(sorted({*counted})),
                missing=tuple(sorted(missing)),
            )
            return (broken,)
        lacking = self._lacking(state, event, body)
        if isinstance(lacking, Violated):
            return state.overtaken.unless(event.process, body.leader_epoch, lacking)
        if lacking is not None:
            return (lacking,)
        if state.shrink is not None and body.leader_epoch > state.shrink[1]:
            state.shrink = None
            return (Exercised(event.ref, evidence),)
        return NOTHING

    @staticmethod
    def _lacking(state: _Counted, event: Event, body: HighWatermarkAdvanced) -> Finding | None:
        """A commit that too few followers have stored. Which process is which replica is the
        leader's word alone, so they are counted."""
        stored, end = state.stored.stored(event.process, body.leader_epoch), body.high_watermark
        if stored is None or stored.leader < 0:
            return None
        if state.stored.enough(event.process, stored.leader, stored.isr, end):
            return None
        reached = state.stored.reached(event.process, stored, end)
        most, needed, lost = reached
        if most >= len(needed):
            return None
        broken = violated(
            event.ref,
            Evidence.PEER,
            "{process} committed {partition} up to offset {high_watermark} while no more than "
            "{most} of the {needed} followers in the ISR had stored that",
            process=process_scope(event.process),
            partition=partition_of(body),
            high_watermark=end,
            most=most,
            needed=len(needed),
            followers=tuple(map(broker_of, sorted(needed))),
        )
        if reached.too_few:
            return broken
        faults = ", ".join(sorted(loss.fault_id for loss in lost.values()))
        return Excused.of(broken, Reason.of("{faults} had taken the rest", faults=faults), ": ")

    def end(self, state: _Counted, end: RunEnd) -> Findings:
        return state.overtaken.at_end()
