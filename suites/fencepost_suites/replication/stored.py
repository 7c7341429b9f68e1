"""What the followers of a partition have stored, by their own word (RP-04, RP-10, RP-32).

A leader's answers and its high watermark are its own words about others. They are held to what the
followers say themselves: each log end is that of a slot, since its disk outlives its processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

from msgspec import Struct

from fencepost import (
    HARMS_DISK,
    NOTHING,
    Event,
    FaultInjected,
    Findings,
    Reason,
    Undecided,
    Violated,
    is_second,
    slot_of,
)
from fencepost_kafka import (
    FollowerFetched,
    FollowingStarted,
    LeadershipStarted,
    LogAppended,
    LogTruncated,
    PartitionCommitted,
)

TOLD_LATE = Reason("the leader had read a newer ISR, and controllers told it after")
_CONTROLLERS = "controller-"
"""How the slots of a quorum's controllers begin."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What a process had stored when a fault took a part of its disk."""

    process: str
    end: int
    fault_id: str


class Reached(NamedTuple):
    """How many followers may have a log up to an offset, and which must, as members of an ISR."""

    most: int
    needed: Set[int]
    lost: Mapping[str, Loss]
    """The processes that had it, and from whose disks a fault has taken it since."""

    @property
    def too_few(self) -> bool:
        """Whether it was stored by too few, whatever faults have taken."""
        return self.most + len(self.lost) < len(self.needed)


@final
class StoredEnds:
    """The log end that each process reported, and the process of each replica."""

    kinds: ClassVar[frozenset[type[Struct]]] = frozenset(
        {
            FaultInjected,
            LogAppended,
            FollowerFetched,
            FollowingStarted,
            LeadershipStarted,
            LogTruncated,
            PartitionCommitted,
        }
    )

    def __init__(self) -> None:
        self.ends: dict[str, int] = {}
        self.processes: dict[int, str] = {}
        """follower's id -> the process that fetches as it, by a leader's word."""
        self.fetched: dict[int, Event] = {}
        """follower's id -> the newest such word."""
        self.said: dict[str, Event] = {}
        """process -> by which event it stored last."""
        self.farthest = 0
        """How far any replica has stored the partition, by what it told as it stored."""
        self.torn: set[str] = set()
        """The processes that have stored behind what they had told: a line is missing, or their
        logs have a hole."""
        self.slots: dict[str, str] = {}
        """slot -> its newest process that reported a log end."""
        self.following: dict[str, int] = {}
        """slot -> the leader that it follows, by its own word."""
        self.leaders: dict[int, int] = {}
        """leader epoch -> the leader's id."""
        self.words: dict[int, dict[str, PartitionCommitted]] = {}
        """leader epoch -> process -> the newest of the epoch's stored states, by its word."""
        self.newest: int | None = None
        """The leader epoch of the newest of all."""
        self.offset = -1
        """Its offset."""
        self.terms: dict[int, str] = {}
        """leader epoch -> the process that led first in it."""
        self.controllers = False
        """Whether controllers of a quorum say what is stored: then no broker knows it before they
        do. Over ZooKeeper a leader may store an ISR itself."""
        self.by_controllers: dict[int, tuple[int, ...]] = {}
        """offset of a stored state -> its ISR, by the word of a controller."""
        self.newest_of: dict[tuple[str, int], PartitionCommitted | None] = {}
        """process, leader epoch -> the answer of `stored`, until the next record; of no process,
        that of `newest_told`."""
        self.losses: dict[str, Loss] = {}
        """slot -> what it may have lost, until it has that again, or a leader has heard of the next
        process."""

    def take(self, event: Event, body: Any) -> None:
        """Applies an event."""
        kind = type(body)
        # Nearly all are of the first two kinds.
        if kind is LogAppended:
            self._appends(event, body)
        elif kind is FollowerFetched:
            self._fetches(event, body)
        else:
            self._moves(event, body)

    def _fetches(self, event: Event, body: FollowerFetched) -> None:
        """A leader counts a follower."""
        self.processes[body.follower], self.fetched[body.follower] = body.client, event
        loss = self.losses.get(slot_of(body.client)) if self.losses else None
        # The leader has heard of the follower's next process, and must not count on what the former
        # one had.
        if loss is not None and loss.process != body.client:
            del self.losses[slot_of(body.client)]

    def _moves(self, event: Event, body: Any) -> None:
        """A replica leads, follows or truncates; what is stored changes; or a fault acts."""
        match body:
            case FollowingStarted(leader=leader, log_end=log_end):
                self._begins(event.process, log_end, leader)
            case LeadershipStarted(leader_epoch=epoch, log_end=log_end):
                self._begins(event.process, log_end, -1)
                self.terms.setdefault(epoch, event.process)
            case LogTruncated(to_offset=to_offset):
                self.reports(event.process, to_offset)
            case PartitionCommitted():
                self._stores(event.process, body)
            case FaultInjected(receipt=True):
                # Without a receipt the disk may be whole, and the follower's loss its own.
                for slot in sorted(body.acts(*HARMS_DISK)):
                    self.loses(slot, body.fault_id)

    def _begins(self, process: str, log_end: int, leader: int) -> None:
        """A process leads (-1) or follows a leader from now on."""
        self.names(process, log_end)
        self.began(process)
        self.following[slot_of(process)] = leader

    def _stores(self, process: str, body: PartitionCommitted) -> None:
        self.newest_of.clear()
        if body.leader >= 0:  # an epoch may end before the next leader is elected
            self.leaders[body.leader_epoch] = body.leader
        words = self.words.setdefault(body.leader_epoch, {})
        known = words.get(process)
        if known is None or known.offset < body.offset:
            words[process] = body
        if body.offset > self.offset:
            self.newest, self.offset = body.leader_epoch, body.offset
        by_controller = body.role == "controller" and process.startswith(_CONTROLLERS)
        self.controllers = self.controllers or by_controller
        if by_controller:
            self.by_controllers[body.offset] = body.isr

    def names(self, process: str, log_end: int) -> None:
        """A process begins, and names the end of its log. It cannot have more than its slot has
        stored: else a process whose log has a hole is counted for what it lacks."""
        slot = slot_of(process)
        former = self.slots.get(slot)
        # A second process begins with another disk each time, which may be a copy of one.
        if former is not None and not is_second(slot):
            log_end = min(log_end, self.ends[former])
        self.reports(process, log_end)

    def _appends(self, event: Event, body: LogAppended) -> None:
        """A replica stores a batch; behind a hole it has nothing that counts."""
        process, log_end = event.process, body.log_end
        self.said[process] = event
        self.farthest = max(self.farthest, log_end)
        if body.base_offset <= self.ends.get(process, body.base_offset):
            self.reports(process, log_end)
        else:
            self.torn.add(process)

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
            self.losses[slot] = Loss(process, self.ends[process], fault_id)

    def lost(self, leader: str, end: int) -> dict[str, Loss]:
        """Each process but the leader that had a log up to there on a disk which a fault has harmed
        since, and what it lost."""
        if not self.losses:
            return {}
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

    def told(self, leader_epoch: int) -> Mapping[str, PartitionCommitted]:
        """process -> the newest of a leader epoch's stored states, by its word. If nobody knows of
        such an epoch it is that of the last one before: a leader that names epoch 99 does not
        choose its ISR."""
        words = self.words.get(leader_epoch)
        if words is None:
            before = max((one for one in self.words if one < leader_epoch), default=None)
            words = {} if before is None else self.words[before]
        return words

    def newest_told(self, leader_epoch: int) -> PartitionCommitted | None:
        """The newest stored state of a leader epoch (`told`), by the word of any process."""
        asked = "", leader_epoch
        if asked not in self.newest_of:
            told = self.told(leader_epoch).values()
            self.newest_of[asked] = max(told, key=lambda one: one.offset, default=None)
        return self.newest_of[asked]

    def stored(self, process: str, leader_epoch: int) -> PartitionCommitted | None:
        """The newest stored state of a leader epoch (`told`) by the word of another process."""
        # Asked at each commit and answer, and changed by records alone.
        asked = process, leader_epoch
        known = self.newest_of.get(asked)
        if known is None and asked not in self.newest_of:
            known = self.newest_of[asked] = self._newest(process, leader_epoch)
        return known

    def _newest(self, process: str, leader_epoch: int) -> PartitionCommitted | None:
        known = [
            (other, one)
            for other, one in self.told(leader_epoch).items()
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
        found: dict[str, int] = {}
        for one in isr:
            process = self.processes.get(one, "")
            end = self.ends.get(process)
            if end is not None and one != leader:
                found[process] = end
        return found

    def enough(self, process: str, leader: int, isr: Sequence[int], end: int) -> bool:
        """Whether as many others as an ISR has followers have told that they have a log up to
        there. It nearly always is so, and then nothing more need be asked."""
        own, missing = slot_of(process), len(isr) - (leader in isr)
        for slot, newest in self.slots.items():
            if self.ends[newest] >= end and slot != own:
                missing -= 1
        return missing <= 0

    def reached(self, process: str, stored: PartitionCommitted, end: int) -> Reached:
        """How many followers of a process that leads by a stored state may have a log up to
        there."""
        return self.reached_of(process, stored.leader, stored.isr, stored.replicas, end)

    def reached_of(
        self, process: str, leader: int, isr: Sequence[int], replicas: Sequence[int], end: int
    ) -> Reached:
        """The same of a process that leads as this broker, with this ISR and these replicas."""
        most = self.can_have(process, leader, {*replicas, *isr} - {leader}, end)
        return Reached(most, {*isr} - {leader}, self.lost(process, end))

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


@final
class Overtaken:
    """What a rule says against leaders by the stored ISR, where the leader has read a newer state
    of its epoch that no controller had told by then.

    It may just be the first that tells that state: so the end decides, by what controllers tell
    after. In a quorum each ISR has an epoch of its own, so this needs another broken promise.
    """

    def __init__(self, stored: StoredEnds) -> None:
        self._stored = stored
        self._waiting: list[tuple[Violated, PartitionCommitted]] = []
        """What is violated, unless controllers tell this state."""

    def unless(self, process: str, leader_epoch: int, broken: Violated) -> Findings:
        """What is violated now; nothing if it waits for the end."""
        own = self._stored.told(leader_epoch).get(process)
        known = self._stored.stored(process, leader_epoch)
        if own is None or known is None or own.offset <= known.offset:
            return (broken,)
        self._waiting.append((broken, own))
        return NOTHING

    def at_end(self) -> Findings:
        """What waited for the end."""
        return [
            Undecided.of(broken, TOLD_LATE, "; but ")
            if self._stored.by_controllers.get(own.offset) == own.isr
            else broken
            for broken, own in self._waiting
        ]
