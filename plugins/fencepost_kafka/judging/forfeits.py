"""Partitions whose messages no promise covers any more: each replica that had them lost its disk.

The problem. Faults empty, damage and roll back disks. If all copies of a message are gone, its loss
is no fault of the cluster; if one copy was left, it is. So somebody must know, at each moment,
which disks still have what was committed. If that is too generous, a cluster that loses messages
goes free.

The rules:

* A committed message is kept while one member of the ISR keeps its disk, or one replica that is
  eligible beside the ISR (KIP-966). A partition is forfeited once the disk of each of them was
  harmed since it joined, by the committed records: emptied, damaged, or without what was not
  synced. An id that a second process took over has another disk, too (`takeovers`).
* A harmed member has the messages again once it has joined the ISR anew, by a record.
* It may never leave: over ZooKeeper a broker can return before its old session is over. Then it has
  them once a client's write is acknowledged with acks=all that was invoked after its next process
  began: that promises that each member has stored the write, and all before it. Or once a leader
  counts its next process as far as it has counted any follower: nothing is committed that lies
  behind that.
* Over ZooKeeper the partition is also forfeited if one member lost its disk and all others have
  failed. Any of them may lead when it returns, and the replication design tolerates n-1 failures of
  n replicas. Where controllers keep the metadata, the member that failed last is on record. A
  process that the harness ends at the end of a run has not failed: its disk is read next.
* A topic that is deleted takes all that with it, by the offset of the record.
* What is lost does not come back, but what is written later is promised again. A partition begins
  anew with the record of which a member has its messages: one that joined by it, or one that has
  caught up (`again`).

Whose word counts: the harness's, the committed records' and the clients', and a leader's that
another broker has the messages. No word of a broker about itself does: a broker that lies about its
disk must not acquit itself.

Counterexamples:

* Without the rule about acknowledged writes, a broker that had returned early kept its mark
  although it had caught up. So what was lost later with the *other* disks was excused.
* Without a leader's word, brokers that were bounced one after the other, and had caught up, kept
  their marks while nobody wrote: one emptied disk excused the loss of all.
* A node replays a record of a deleted topic after the deletion, or one by which a member joined
  before its disk was harmed. Records count by their offset; and a broker that was harmed and has
  had no process since can have joined only before (`_down`).
* An ISR that shrinks to harmed members forfeits the partition, though a healthy replica left it: no
  promise says that a leader waits for that.
* A harmed member that leaves the ISR and becomes eligible beside it has no messages. It has them
  only once it joins the ISR again.

What is not done. Nothing is known of single messages, nor of when a disk was synced: a disk that
lost what was not synced counts as harmed. A second process that controllers refuse is no excuse.

See docs/decisions/22-forfeits.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Final, final

from msgspec import Struct

from fencepost import (
    HARMS_DISK,
    Event,
    FaultInjected,
    PhaseStarted,
    ProcessExited,
    ProcessSpawned,
    Reason,
    is_second,
    slot_of,
)
from fencepost_kafka import (
    FollowerFetched,
    PartitionCommitted,
    ProduceCompleted,
    ProduceInvoked,
    TopicCommitted,
    broker_of,
    partition_at,
)
from fencepost_kafka.committed import eligible_leaders
from fencepost_kafka.judging.takeovers import TAKING, Takeovers
from fencepost_kafka.judging.tellers import Tellers

Place = tuple[str, int]
"""A topic and a partition."""
RESTORING: Final[frozenset[type[Struct]]] = frozenset(
    {ProduceInvoked, ProduceCompleted, FollowerFetched}
)
"""The events that may show that a member of an ISR has its messages again. They are frequent, and
none forfeits anything."""
FORFEITING: Final[frozenset[type[Struct]]] = TAKING | {
    *(FaultInjected, PhaseStarted, PartitionCommitted, TopicCommitted)
}
"""The events that may forfeit a partition, or end that."""
_KEEPS_SESSIONS = "zookeeper"


@final
class Forfeits:
    """Which partitions are forfeited, and why."""

    kinds: ClassVar[frozenset[type[Struct]]] = FORFEITING | RESTORING

    def __init__(self) -> None:
        self.found: Sequence[tuple[Place, Reason]] = ()
        """The partitions that the newest event of `FORFEITING` forfeits."""
        self.told = True
        """Whether the newest record of a topic counts, by who has told it."""
        self.tellers = Tellers()
        self.gone: dict[Place, Reason] = {}
        """The partitions of present topics that are forfeited, each with the first reason. Only the
        deletion of the topic takes one out: what is lost does not come back."""
        self.again: set[Place] = set()
        """Those of them of which a member of the ISR has again what is committed."""
        self.lost: Mapping[Place, Reason] = {}
        """The others, of which nobody has. A change makes a new mapping of it, so whoever keeps
        this one knows what was lost before."""
        self._ids: dict[str, int] = {}
        """slot -> the id of its broker."""
        self._records: dict[Place, PartitionCommitted] = {}
        """The newest record of each partition, by its offset: a later event may be of an older
        one."""
        self._harmed: dict[Place, dict[int, str]] = {}
        """partition -> the members of its ISR, or those eligible beside it, whose disk was harmed
        since they joined, and what did it."""
        self._failed: dict[Place, set[int]] = {}
        """partition -> the members of its ISR whose process ended since they joined; only over
        ZooKeeper."""
        self._counted: dict[Place, int] = {}
        """The highest offset up to which a leader has counted a follower. All that is committed
        while the ISR has a follower lies below it."""
        self._processes: dict[int, str] = {}
        """broker -> its process that runs, by the harness."""
        self._down: dict[int, str] = {}
        """The brokers whose disk was harmed and that have had no process since, and the fault. One
        joins an ISR only by a record of before, which a node replays late."""
        self._takeovers = Takeovers()
        self._by_session = False
        """Whether a broker's id is held by a session with ZooKeeper."""
        self._over = False
        """Whether the harness ends all processes."""
        self._harms: dict[int, int] = {}
        """How often each broker failed, and its disk was harmed or became another one. If a member
        was harmed again since a write was invoked, the acknowledgement shows nothing of it."""
        self._writes: dict[str, dict[int, int]] = {}
        """The open writes with acks=all that may show that members have caught up: of each member
        whose next process had begun, how often it had been harmed."""
        self._deleted_at: dict[str, int] = {}
        """topic -> the offset of the newest record of a deletion: an older record of a partition is
        of the former topic."""

    def take(self, event: Event, body: Any) -> None:
        """Applies an event."""
        kind = type(body)
        # Most events are writes of clients, and most of these are of no interest.
        if kind is FollowerFetched:
            self._fetched(body, event.process)
        elif kind is ProduceInvoked:
            if body.acks == -1 and (self._harmed or self._failed):
                self._written(body)
        elif kind is ProduceCompleted:
            if self._writes:
                self._acknowledged(body)
        else:
            self.found = self._decided(body, event.process)

    def _decided(self, body: Any, process: str) -> Sequence[tuple[Place, Reason]]:
        """Applies an event of `FORFEITING`. Returns the partitions that it forfeits."""
        kind = type(body)
        if kind is TopicCommitted:
            self.told = self.tellers.counts(process, body)
        elif kind is ProcessSpawned:
            self.tellers.spawned(body)
        if kind in TAKING:
            taken = self._takeovers.take(body, process)
            if taken is not None:
                return self._harm(frozenset({taken[0]}), f"{taken[1]} had its id")
        match body:
            case PartitionCommitted():
                return self._committed(body)
            case FaultInjected() if slots := body.acts(*HARMS_DISK):
                # A slot that has run no broker so far has no replica, and so nothing that could be
                # lost.
                brokers = frozenset(self._ids[slot] for slot in slots if slot in self._ids)
                self._down |= dict.fromkeys(sorted(brokers), body.fault_id)
                return self._harm(brokers, body.fault_id)
            case ProcessExited() if not self._over:
                return self._ended(slot_of(body.ended))
            case PhaseStarted():
                self._over = body.phase == "end"
            case ProcessSpawned(role=role) if role == _KEEPS_SESSIONS:
                self._by_session = True
            case ProcessSpawned(role=role) if "broker" in role:
                self._ids[body.slot] = body.node_id
                # A second process has another disk. So its start does not show that the process
                # whose disk was harmed has begun anew.
                if not is_second(body.slot):
                    self._down.pop(body.node_id, None)
                    self._processes[body.node_id] = body.started
            case TopicCommitted(deleted=True) if self.told:
                self._forget(body)
        return ()

    def _changed(self) -> None:
        """What is lost has changed."""
        self.lost = {place: why for place, why in self.gone.items() if place not in self.again}

    def _written(self, body: ProduceInvoked) -> None:
        """A write is invoked that each member of the ISR is to store."""
        place = body.topic, body.partition
        marked = self._marked(place)
        if marked:
            isr = self._records[place].isr
            # A member whose next process has not begun when the write is invoked is left out: the
            # old process may have stored the write, and what it stored went with its disk.
            back = {one: self._harms[one] for one in marked if one in isr and one not in self._down}
            if back:
                self._writes[body.operation] = back

    def _acknowledged(self, body: ProduceCompleted) -> None:
        """Each member of the ISR has stored a write, if it succeeded, and all before it."""
        place = body.topic, body.partition
        # The operation is taken out with any outcome: each is completed once.
        back = self._writes.pop(body.operation, None)
        # The member must be in the ISR still. If it had left and joined again meanwhile, the record
        # of its joining has decided about its mark already.
        if back and self._marked(place) and body.outcome == "ok":
            isr = self._records[place].isr
            for one, harms in back.items():
                if one in isr and self._harms[one] == harms:
                    self._harmed.get(place, {}).pop(one, None)
                    self._failed.get(place, set()).discard(one)

    def _fetched(self, body: FollowerFetched, leader: str) -> None:
        """A leader counts a follower up to an offset."""
        place, one = (body.topic, body.partition), body.follower
        if body.offset < self._counted.get(place, 0):
            return
        self._counted[place] = body.offset
        marked = self._marked(place)
        if not marked:
            return
        # The process that runs began after the failure. A leader does not count itself.
        caught_up = body.client == self._processes.get(one) != leader
        if caught_up and one in marked and one not in self._down:
            self._harmed.get(place, {}).pop(one, None)
            self._failed.get(place, set()).discard(one)

    def _marked(self, place: Place) -> Collection[int]:
        """The members of an ISR that have failed or lost their disks."""
        harmed, failed = self._harmed.get(place), self._failed.get(place)
        if not harmed and not failed:  # nearly always
            return ()
        return {*(harmed or ()), *(failed or ())}

    def _ended(self, slot: str) -> Sequence[tuple[Place, Reason]]:
        """A broker's process ended. The end of a second process counts as its takeover did."""
        broker = self._ids.get(slot, -1)
        if not is_second(slot):
            self._processes.pop(broker, None)
        # With controllers the ISR of the last record tells which member failed last, so a process
        # that ends takes nothing away while its disk is kept.
        if broker < 0 or is_second(slot) or not self._by_session:
            return ()
        self._harms[broker] = self._harms.get(broker, 0) + 1
        found: list[tuple[Place, Reason]] = []
        for place, record in self._records.items():
            if broker in record.isr:
                self._failed.setdefault(place, set()).add(broker)
                found += self._forfeited(place)
        return found

    def _forget(self, body: TopicCommitted) -> None:
        """A topic is deleted, with what was recorded of it before."""
        known = self._deleted_at.get(body.topic, -1)
        self._deleted_at[body.topic] = max(known, body.offset)
        for place in [one for one in self._records if one[0] == body.topic]:
            # A record of a later topic of the same name may have been read before this deletion; it
            # stays.
            if body.offset > self._records[place].offset:
                del self._records[place]
                self._harmed.pop(place, None)
                self._failed.pop(place, None)
                self._counted.pop(place, None)
                if self.gone.pop(place, None) is not None:
                    self.again.discard(place)
                    self._changed()

    def _committed(self, body: PartitionCommitted) -> Sequence[tuple[Place, Reason]]:
        place = body.topic, body.partition
        known = self._records.get(place)
        newest = self._deleted_at.get(body.topic, -1) if known is None else known.offset
        # For a partition that is not known, the deletion is the bound: otherwise a late record of
        # the deleted topic would stand for the next one, and its ISR would be judged there.
        if body.offset <= newest:
            return ()
        self._records[place] = body
        # The first record makes the partition: nothing was committed before it that could be lost.
        if known is None:
            return ()
        # A mark stays with a broker that was in the ISR already, and with an eligible replica that
        # does not join the ISR by this record. A broker that joins has caught up.
        stayed = {
            one: fault
            for one, fault in self._harmed.get(place, {}).items()
            if one in known.isr or (one in known.eligible and one not in body.isr)
        }
        members = eligible_leaders(body)
        harmed = {one: by for one, by in (self._down | stayed).items() if one in members}
        self._harmed[place] = harmed
        # A member that failed and left the ISR by a record is not waited for any more; one that
        # joins by this record has caught up.
        self._failed[place] = self._failed.get(place, set()).intersection(known.isr, body.isr)
        found = self._forfeited(place) if harmed else ()
        if (
            place in self.gone
            and not members.issubset(self._marked(place))
            and not self._takeovers.doubtful(members)
        ):
            self.again.add(place)
            self._changed()
        return found

    def _harm(self, brokers: frozenset[int], fault_id: str) -> Sequence[tuple[Place, Reason]]:
        found: list[tuple[Place, Reason]] = []
        for one in brokers:
            self._harms[one] = self._harms.get(one, 0) + 1
        for place, record in self._records.items():
            members = brokers & eligible_leaders(record)
            if members:
                harmed = self._harmed.setdefault(place, {})
                harmed |= dict.fromkeys(sorted(members), fault_id)
                found += self._forfeited(place)
        return found

    def _forfeited(self, place: Place) -> Sequence[tuple[Place, Reason]]:
        record, harmed = self._records[place], self._harmed.get(place, {})
        members = eligible_leaders(record)
        lost = members & harmed.keys()
        # Failures alone forfeit nothing: each of those disks is still there. At least one member
        # must have lost its disk.
        if not lost or not members.issubset(self._marked(place)):
            return ()
        harms = ", ".join(sorted({harmed[one] for one in lost}))
        beside = sorted(members.difference(record.isr))
        also = ", and of {beside}, which are eligible beside it," if beside else ""
        failed = "" if lost == members else " had failed, and {lost}"
        reason = Reason.of(
            "each member of the ISR {isr} of {partition}"
            + also
            + failed
            + " had lost its disk, or a part ({harms})",
            isr=tuple(map(broker_of, record.isr)),
            partition=partition_at(*place),
            beside=tuple(map(broker_of, beside)),
            harms=harms,
            lost=tuple(map(broker_of, sorted(lost))),
        )
        self.gone.setdefault(place, reason)
        self.again.discard(place)
        self._changed()
        return ((place, reason),)
