"""Acknowledgements: the replicas that must have stored a write before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import final

from fencepost import (
    HARMS_DISK,
    NOTHING,
    Event,
    Evidence,
    Excused,
    Exercised,
    FaultInjected,
    Findings,
    Reason,
    Rule,
    Violated,
    is_second,
    on,
    process_scope,
    slot_of,
    violated,
)
from fencepost_kafka import (
    FollowerFetched,
    FollowingStarted,
    LeadershipStarted,
    LogAppended,
    LogTruncated,
    PartitionCommitted,
    ProduceAnswered,
    broker_of,
    partition_of,
)
from fencepost_suites.common.keys import by_partition

_CONTROLLERS = "controller-"
"""How the slots of a quorum's controllers begin."""


@dataclass(frozen=True, slots=True)
class _Loss:
    """What a process had stored when a fault took a part of its disk."""

    process: str
    end: int
    fault_id: str


@dataclass(slots=True)
class _Ends:
    """The log end that each process reported, and the process of each replica."""

    ends: dict[str, int] = field(default_factory=dict)
    processes: dict[int, str] = field(default_factory=dict)
    """follower's id -> the process that fetches as it, by a leader's word."""
    slots: dict[str, str] = field(default_factory=dict)
    """slot -> its newest process that reported a log end."""
    following: dict[str, int] = field(default_factory=dict)
    """slot -> the leader that it follows, by its own word."""
    leaders: dict[int, int] = field(default_factory=dict)
    """leader epoch -> the leader's id."""
    words: dict[int, dict[str, PartitionCommitted]] = field(default_factory=dict)
    """leader epoch -> process -> the newest of the epoch's stored states, by its word."""
    controllers: bool = False
    """Whether controllers of a quorum say what is stored: then no broker knows it before they do.
    Over ZooKeeper a leader may store an ISR itself."""

    losses: dict[str, _Loss] = field(default_factory=dict)
    """slot -> what it may have lost, until it has that again, or a leader has heard of the next
    process."""

    def reports(self, process: str, log_end: int) -> None:
        """A replica has a log up to there."""
        slot = slot_of(process)
        self.ends[process] = log_end
        self.slots[slot] = process
        if self.losses:
            loss = self.losses.get(slot)
            # The next process has stored again what its predecessor had lost, so the loss explains
            # nothing any more.
            if loss is not None and loss.process != process and log_end >= loss.end:
                del self.losses[slot]

    def loses(self, slot: str, fault_id: str) -> None:
        """A fault takes a part of a node's disk."""
        process = self.slots.get(slot, "")
        known = self.losses.get(slot)
        # A disk that is struck twice has lost what it had at first: the smaller end of the second
        # time must not hide the larger one.
        if process and (known is None or self.ends[process] >= known.end):
            self.losses[slot] = _Loss(process, self.ends[process], fault_id)

    def lost(self, leader: str, end: int) -> dict[str, _Loss]:
        """Each process but the leader that had a log up to there on a disk which a fault has harmed
        since, and what it lost."""
        return {
            self.slots[slot]: loss
            for slot, loss in self.losses.items()
            # The process had the write, and its slot has it no more. The leader's own loss excuses
            # no follower.
            if loss.end >= end > self.ends[self.slots[slot]] and slot != slot_of(leader)
        }

    def began(self, process: str) -> None:
        """The next process of a node is its replica, though it may lead at first, and not fetch."""
        for replica, former in self.processes.items():
            # Before any leader has named the new process. Otherwise the dead one would count with
            # the log end that it had.
            if slot_of(former) == slot_of(process):
                self.processes[replica] = process

    def stored(self, process: str, leader_epoch: int) -> PartitionCommitted | None:
        """The newest stored state of a leader epoch by the word of another process."""
        words = self.words.get(leader_epoch, {})
        known = [
            (other, one)
            for other, one in words.items()
            # Brokers only repeat what controllers have stored, and later.
            if one.role == "controller" or not self.controllers
        ]
        newest = max((one.offset for _, one in known), default=-1)
        for other, one in known:
            # Another process than the leader: its own word about the ISR is in the answer already.
            if other != process and one.offset == newest:
                return one
        return None

    def followers(self, isr: Sequence[int], leader: int) -> dict[str, int]:
        """Each follower in an ISR whose process is known, by a leader's word, and its log end."""
        found = (self.processes.get(one, "") for one in isr if one != leader)
        return {process: self.ends[process] for process in found if process in self.ends}

    def can_have(self, process: str, leader: int, followers: Set[int], end: int) -> int:
        """How many followers may have a log up to there. Which process is which replica is only the
        leader's word, so every other process counts that says so, and every follower that says
        nothing."""
        own = slot_of(process)
        reached = sum(
            self.ends[newest] >= end for slot, newest in self.slots.items() if slot != own
        )
        # Of followers that say nothing, it cannot be known how far they are, so each is taken to
        # have the write. A process that follows this leader by its own word is not one of these.
        heard = [
            slot
            for slot, followed in self.following.items()
            if followed == leader and slot != own and not is_second(slot)
        ]
        return reached + max(0, len(followers) - len(heard))


def _behind(followers: Mapping[str, int], end: int, lost: Mapping[str, _Loss]) -> str:
    """The first follower whose log never reached that offset; empty if there is none."""
    for process, reaches in followers.items():
        if reaches < end and process not in lost:
            return process
    return ""


def _without(event: Event, body: ProduceAnswered, follower: str, reaches: int) -> Violated:
    """An answer before a follower in the ISR had stored the write."""
    return violated(
        event.ref,
        Evidence.PEER,
        "{process} acknowledged acks=all of {partition} up to offset {offset} while {other}, in "
        "the ISR, had stored up to {log_end}",
        process=process_scope(event.process),
        partition=partition_of(body),
        offset=body.log_end,
        other=process_scope(follower),
        log_end=reaches,
    )


def _too_few(event: Event, body: ProduceAnswered, most: int, followers: Set[int]) -> Violated:
    """An answer before so many followers had stored the write as are in the ISR."""
    return violated(
        event.ref,
        Evidence.PEER,
        "{process} acknowledged acks=all of {partition} up to offset {offset} while no more than "
        "{most} of the {needed} followers in the ISR had stored it",
        process=process_scope(event.process),
        partition=partition_of(body),
        offset=body.log_end,
        most=most,
        needed=len(followers),
        followers=tuple(map(broker_of, sorted(followers))),
    )


def _excused(
    event: Event, body: ProduceAnswered, process: str, stored: int, loss: _Loss
) -> Excused:
    behind = violated(
        event.ref,
        Evidence.PEER,
        "{other}, in the ISR, had stored up to {stored}",
        process=process_scope(event.process),
        other=process_scope(process),
        partition=partition_of(body),
        stored=stored,
    )
    taken = Reason.of(
        "{fault} had taken the rest, which {process} had",
        fault=loss.fault_id,
        process=process_scope(loss.process),
    )
    return Excused.of(behind, taken, ": ")


@final
class AcknowledgedByAllInSync(Rule[_Ends]):
    """RP-04. The ISR is the stored one, by the word of controllers if there are any, and what the
    leader names beside it: it may count more replicas than are stored, but none less. The leader's
    evidence is its high watermark, or the log ends it knows; the followers' is what they stored
    before: each that a leader has named, and as many as must have it, whatever a leader names.
    Exercised by every acks=all that had to wait for a follower. What a follower had stored before a
    fault took it from its disk counts, and is excused, until the leader hears of its next
    process."""

    clause = "RP-04"
    keys = staticmethod(by_partition)
    state = _Ends

    @on(FaultInjected)
    def _struck(self, state: _Ends, event: Event, body: FaultInjected) -> Findings:
        # Without a receipt the disk may be whole, and the follower's loss its own.
        for slot in sorted(body.acts(*HARMS_DISK)) if body.receipt else ():
            state.loses(slot, body.fault_id)
        return NOTHING

    @on(LogAppended)
    def _appended(self, state: _Ends, event: Event, body: LogAppended) -> Findings:
        state.reports(event.process, body.log_end)
        return NOTHING

    @on(FollowerFetched)
    def _fetched(self, state: _Ends, event: Event, body: FollowerFetched) -> Findings:
        state.processes[body.follower] = body.client
        if state.losses:
            loss = state.losses.get(slot_of(body.client))
            # The leader has heard of the follower's next process, and must not count on what the
            # former one had.
            if loss is not None and loss.process != body.client:
                del state.losses[slot_of(body.client)]
        return NOTHING

    @on(FollowingStarted, LeadershipStarted)
    def _began(
        self, state: _Ends, event: Event, body: FollowingStarted | LeadershipStarted
    ) -> Findings:
        state.reports(event.process, body.log_end)
        state.began(event.process)
        leader = body.leader if isinstance(body, FollowingStarted) else -1
        state.following[slot_of(event.process)] = leader
        return NOTHING

    @on(LogTruncated)
    def _truncated(self, state: _Ends, event: Event, body: LogTruncated) -> Findings:
        state.reports(event.process, body.to_offset)
        return NOTHING

    @on(PartitionCommitted)
    def _committed(self, state: _Ends, event: Event, body: PartitionCommitted) -> Findings:
        if body.leader >= 0:  # an epoch may end before the next leader is elected
            state.leaders[body.leader_epoch] = body.leader
        words = state.words.setdefault(body.leader_epoch, {})
        known = words.get(event.process)
        if known is None or known.offset < body.offset:
            words[event.process] = body
        by_controller = body.role == "controller" and event.process.startswith(_CONTROLLERS)
        state.controllers = state.controllers or by_controller
        return NOTHING

    @on(ProduceAnswered)
    def _answered(self, state: _Ends, event: Event, body: ProduceAnswered) -> Findings:
        end = body.log_end
        if body.error != "NONE" or body.base_offset < 0 or end < 0:
            return NOTHING
        # First the leader itself: whatever was asked, it cannot acknowledge what its own log does
        # not have.
        own = state.ends.get(event.process, end)
        if own < end:
            broken = violated(
                event.ref,
                Evidence.SELF,
                "{process} acknowledged {partition} up to offset {offset} with a log that ends at "
                "{log_end}",
                process=process_scope(event.process),
                partition=partition_of(body),
                offset=end,
                log_end=own,
            )
            return (broken,)
        if body.acks != -1:
            return NOTHING
        # The ISR is taken as a union: the leader may count more replicas than are stored, since it
        # waits for those that it adds. A replica that only the stored ISR has must be counted as
        # well.
        stored = state.stored(event.process, body.leader_epoch)
        isr = body.isr
        leader = state.leaders.get(body.leader_epoch, -1)
        if stored is not None:
            isr = (*isr, *(one for one in stored.isr if one not in isr))
            leader = stored.leader if stored.leader >= 0 else leader
        # The leader is alone in its ISR, and nobody else has to have the write.
        if len(isr) < 2:
            return NOTHING
        known = state.followers(isr, leader)
        lost = state.lost(event.process, end)
        excused = [process for process in known if process in lost]
        # Three proofs, from the surest on. A named follower has not stored the write; or fewer
        # processes have it, whoever they are, than the ISR has followers; or the leader's own words
        # contradict its answer.
        behind = _behind(known, end, lost)
        if behind:
            return (_without(event, body, behind, known[behind]),)
        if stored is not None and leader >= 0:
            followers = {*stored.replicas, *isr} - {leader}
            needed = {*isr} - {leader}
            most = state.can_have(event.process, leader, followers, end)
            # Which process is which replica is the leader's word alone. A count needs no names: it
            # holds for a leader that names a wrong process, too.
            if most + len(lost) < len(needed):
                return (_too_few(event, body, most, needed),)
            if most < len(needed):
                excused = list(lost)
        if body.high_watermark < end and min(body.ends, default=end) < end:
            broken = violated(
                event.ref,
                Evidence.SELF,
                "{process} acknowledged acks=all of {partition} up to offset {offset} knowing its "
                "ISR {isr} only to reach {ends}",
                process=process_scope(event.process),
                partition=partition_of(body),
                offset=end,
                isr=tuple(body.isr),
                ends=body.ends,
            )
            return (broken,)
        if excused:
            return [_excused(event, body, one, state.ends[one], lost[one]) for one in excused]
        # A duplicate is acknowledged for what was stored long ago: it had to wait for nobody.
        if body.duplicate:
            return NOTHING
        evidence = Evidence.PEER if len(known) == len(isr) - 1 else Evidence.SELF
        return (Exercised(event.ref, evidence),)
