"""Replicas as the disks hold them once all processes have ended. It is evidence of systems whose
nodes do not say what they store, and it does not depend on the word of a process.

A replica is compared up to what is known to be committed. A member of the ISR has all that clients
have read, or had acknowledged with acks=all, if it was one when that was known, and is one by the
newest record. Any other replica may lag, so it is compared up to the high watermark that it has
stored.

The newest record that was read may not be the newest there is. With an incomplete ISR that
matters: it changes while brokers come and go, and one that left it and has come back may lack the
end. So it counts if it was read after the last word about what is committed, since records are
read in order, or if that word came so long before the end that a later record would have been read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

from msgspec import Struct

from fencepost import (
    HARMS_DISK,
    NOTHING,
    READ_WITHIN_NS,
    Cause,
    Event,
    Evidence,
    Exercised,
    FaultInjected,
    Finding,
    Findings,
    Key,
    Rule,
    RunEnd,
    Scope,
    Shared,
    Violated,
    is_second,
    slot_scope,
    violated,
)
from fencepost_kafka import (
    PartitionCommitted,
    ProduceCompleted,
    ProduceInvoked,
    ReadCompleted,
    SegmentFound,
    StoredBatch,
    broker_of,
    partition_of,
)
from fencepost_suites.common.keys import by_partition


@dataclass(slots=True)
class Copy:
    """The log of a partition on one disk."""

    partition: Scope
    slot: str
    node_id: int
    topic_id: str
    start: int
    high_watermark: int
    ref: Cause
    end: int = 0
    batches: list[StoredBatch] = field(default_factory=list)
    read: list[SegmentFound] = field(default_factory=list)
    """Its segments: one that is read again is there once."""

    def hole(self) -> tuple[int, int] | None:
        """The first offsets that are missing between two batches."""
        for before, after in zip(self.batches, self.batches[1:], strict=False):
            if before.end != after.base_offset:
                return before.end, after.base_offset
        return None

    def up_to(self, offset: int) -> Iterator[StoredBatch]:
        """The batches that end at or before an offset."""
        return (batch for batch in self.batches if batch.end <= offset)


@final
class Copies:
    """What the disks hold of a partition, what is known to be committed, and its newest record."""

    kinds: ClassVar[frozenset[type[Struct]]] = frozenset(
        {
            SegmentFound,
            PartitionCommitted,
            ReadCompleted,
            ProduceInvoked,
            ProduceCompleted,
            FaultInjected,
        }
    )

    def __init__(self) -> None:
        self.of: dict[str, Copy] = {}
        """slot -> its copy."""
        self.committed = 0
        self.known_by: Event | None = None
        """The word of a client by which that is known."""
        self.newest: PartitionCommitted | None = None
        self.newest_ns = -1
        """When that was read."""
        self.open: dict[str, bool] = {}
        """The writes that are under way, and whether the leader changed during each."""
        self.resent = -1
        """The highest offset at which such a write was acknowledged."""
        self.harmed: dict[str, int] = {}
        """slot -> when a fault last took something from its disk."""
        self.joined: dict[int, int] = {}
        """broker -> when a record was told by which it joined the ISR last."""

    def take(self, event: Event, body: Any) -> None:
        """Applies an event."""
        match body:
            case ProduceInvoked():
                self.open[body.operation] = False
            case ProduceCompleted():
                self._produced(event, body)
            case SegmentFound():
                self._found(event, body)
            case FaultInjected():
                # With or without a receipt: then nobody knows what is left.
                self.harmed |= dict.fromkeys(sorted(body.acts(*HARMS_DISK)), event.at_ns)
            case PartitionCommitted() if self._is_newer(body):
                former = () if self.newest is None else self.newest.isr
                for one in {*body.isr} - {*former}:
                    self.joined[one] = event.at_ns
                if self.newest is not None and body.leader_epoch > self.newest.leader_epoch:
                    # Each write that is under way now has seen two leaders, so it may have been
                    # sent to both.
                    self.open = dict.fromkeys(self.open, True)
                self.newest, self.newest_ns = body, event.at_ns
            case ReadCompleted(outcome="ok"):
                self._known(event, body.end)

    def _is_newer(self, body: PartitionCommitted) -> bool:
        return self.newest is None or body.offset > self.newest.offset

    def _known(self, event: Event, end: int) -> None:
        if end > self.committed:
            self.committed, self.known_by = end, event

    def _produced(self, event: Event, body: ProduceCompleted) -> None:
        moved = self.open.pop(body.operation, False)
        offset = body.offset
        if offset >= 0 and body.outcome == "ok" and body.acks == -1:
            self._known(event, offset + 1)
            if moved:
                self.resent = max(self.resent, offset)

    def _found(self, event: Event, body: SegmentFound) -> None:
        copy = self.of.get(body.slot)
        if copy is None:
            copy = self.of[body.slot] = Copy(
                partition=partition_of(body),
                slot=body.slot,
                node_id=body.node_id,
                topic_id=body.topic_id,
                start=body.log_start,
                high_watermark=body.high_watermark,
                ref=event.ref,
            )
        if body in copy.read:
            return
        copy.read.append(body)
        copy.batches += body.batches()
        copy.end = max(copy.end, body.log_end)

    @property
    def leader(self) -> int:
        """The leader by the newest record; -1: none is known."""
        return -1 if self.newest is None else self.newest.leader

    def is_harmed(self, slot: str, node_id: int) -> bool:
        """Whether a fault has harmed a disk since its broker joined the ISR. The run may end before
        the broker leaves it; one harmed disk loses nothing that the others have."""
        harmed_ns = self.harmed.get(slot)
        return harmed_ns is not None and harmed_ns >= self.joined.get(node_id, -1)

    def in_sync(self, end: RunEnd) -> Sequence[int]:
        """Those that were in the ISR when the last message was known to be committed, and are
        since; none if the ISR may have changed."""
        record = self.newest
        if record is None:
            return ()
        whole = set(record.isr) == set(record.replicas)
        known_ns = -1 if self.known_by is None else self.known_by.at_ns
        read_on = end.complete and end.ended_at_ns > known_ns + READ_WITHIN_NS
        if not whole and self.newest_ns < known_ns and not read_on:
            return ()
        # One that joined a part of the replicas later may lack what was committed before it.
        return [one for one in record.isr if whole or self.joined.get(one, -1) <= known_ns]

    def bare(self, end: RunEnd) -> Sequence[int]:
        """Those of them that have no log of the partition on their disk. All disks are read, or
        none: it counts if another one has the partition."""
        having = {copy.node_id for copy in self.of.values()}
        return [
            one
            for one in (self.in_sync(end) if having else ())
            if one not in having and not self.is_harmed(f"broker-{one}", one)
        ]

    def members(self, end: RunEnd) -> Sequence[Copy]:
        """The copies of those that are in sync (see `in_sync`). If a second process used the id of
        a member, its membership does not say which disk it is of."""
        in_sync = self.in_sync(end)
        disks = Counter(copy.node_id for copy in self.of.values())
        found = [
            copy
            for copy in self.of.values()
            if copy.node_id in in_sync
            and disks[copy.node_id] == 1
            and not self.is_harmed(copy.slot, copy.node_id)
        ]
        # A disk may still have the log of a former topic of this name. The id that most disks have
        # is the present one's.
        topic_ids = Counter(copy.topic_id for copy in found).most_common(1)
        return [copy for copy in found if copy.topic_id == topic_ids[0][0]]


class _OfCopies(Rule[Copies]):
    """A rule about what the disks hold of a partition, which all such rules read once."""

    keys = staticmethod(by_partition)
    folds = (Copies,)

    def start(self, key: Key, shared: Shared) -> Copies:
        copies: Copies = shared[Copies]
        return copies


def _compared(one: Copy, other: Copy, up_to: int) -> tuple[int, int]:
    """How many batches of `one` below an offset `other` holds too, and the offset of the first that
    it does not hold (-1: none). What either has deleted is not compared, nor what `other` does not
    reach."""
    known = {batch.base_offset: batch for batch in other.batches}
    # Retention deletes from the start, on each disk by itself.
    first = max(one.start, other.start, other.batches[0].base_offset if other.batches else 0)
    equal = 0
    for batch in one.up_to(min(up_to, other.end)):
        if batch.base_offset < first:
            continue
        if known.get(batch.base_offset) != batch:
            return equal, batch.base_offset
        equal += 1
    return equal, -1


@final
class DisksAgree(_OfCopies):
    """RP-05. Exercised by a partition whose leader epochs have changed, and of which two disks hold
    the same batches, byte for byte. The disk of a second process with a broker's id is left out: it
    is no replica's if the process was refused, whatever it took itself for."""

    clause = "RP-05"

    def end(self, state: Copies, end: RunEnd) -> Findings:
        if not state.of:
            return NOTHING
        members = state.members(end)
        found = [*_bare(state, end), *_lacking(state, members), *_holes(state)]
        copies = [one for one in state.of.values() if not is_second(one.slot)]
        # Compared with the longest copy of a member, which has all that is committed.
        longest = max(members or copies or state.of.values(), key=lambda copy: copy.end)
        equal = 0
        for copy in copies:
            if copy is longest or copy.topic_id != longest.topic_id:
                continue
            bound = state.committed if copy in members else copy.high_watermark
            same, differs = _compared(copy, longest, bound)
            equal += same
            if differs >= 0:
                broken = violated(
                    copy.ref,
                    Evidence.PEER,
                    "the disks of {slot} and {other} hold different batches at offset {offset} of "
                    "{partition}, though it was committed up to offset {committed}",
                    (longest.ref,),
                    slot=slot_scope(copy.slot),
                    other=slot_scope(longest.slot),
                    offset=differs,
                    partition=copy.partition,
                    committed=bound - 1,
                )
                found.append(broken)
        if found:
            return found
        epochs = {batch.leader_epoch for batch in longest.batches}
        exercised = equal > 0 and len(epochs) > 1
        return (Exercised(longest.ref, Evidence.PEER),) if exercised else NOTHING


def _lacking(state: Copies, members: Sequence[Copy]) -> Iterator[Violated]:
    for copy in members:
        if copy.end < state.committed and state.known_by is not None:
            yield violated(
                copy.ref,
                Evidence.CLIENT,
                "the disk of {slot} has {partition} up to offset {offset}, though its replica is "
                "in the ISR and offset {committed} was committed",
                (state.known_by.ref,),
                slot=slot_scope(copy.slot),
                partition=copy.partition,
                offset=copy.end - 1,
                committed=state.committed - 1,
                broker=broker_of(copy.node_id),
            )


def _bare(state: Copies, end: RunEnd) -> Iterator[Violated]:
    for broker in state.bare(end):
        if state.known_by is not None:
            known: Any = state.known_by.body
            yield violated(
                state.known_by.ref,
                Evidence.CLIENT,
                "the disk of {broker} has no log of {partition}, though its replica is in the ISR "
                "and offset {committed} was committed",
                partition=partition_of(known),
                committed=state.committed - 1,
                broker=broker_of(broker),
            )


def _holes(state: Copies) -> Iterator[Violated]:
    for copy in state.of.values():
        hole = copy.hole()
        if hole is not None:
            yield violated(
                copy.ref,
                Evidence.SELF,
                "the disk of {slot} has no batch at offset {offset} of {partition}, and goes on "
                "at offset {next_offset}",
                slot=slot_scope(copy.slot),
                offset=hole[0],
                partition=copy.partition,
                next_offset=hole[1],
            )


@final
class StoredOnce(_OfCopies):
    """RP-12. No disk of a member of the ISR holds two batches with one sequence number of one
    producer. Exercised by a write that was under way while the leader changed, and was acknowledged
    at an offset that those disks have."""

    clause = "RP-12"

    def end(self, state: Copies, end: RunEnd) -> Findings:
        members = state.members(end)
        for copy in members:
            twice = _twice(copy)
            if twice is not None:
                first, second = twice
                broken = violated(
                    copy.ref,
                    Evidence.SELF,
                    "the disk of {slot} holds sequence {sequence} of producer {producer} twice in "
                    "{partition}: at offsets {offset} and {other_offset}",
                    slot=slot_scope(copy.slot),
                    sequence=first.base_sequence,
                    producer=first.producer_id,
                    partition=copy.partition,
                    offset=first.base_offset,
                    other_offset=second.base_offset,
                )
                return (broken,)
        stored = [copy for copy in members if 0 <= state.resent < copy.end]
        return (Exercised(stored[0].ref, Evidence.PEER),) if len(stored) > 1 else NOTHING


def _twice(copy: Copy) -> tuple[StoredBatch, StoredBatch] | None:
    """Two batches with one sequence number of one producer in one epoch.

    A producer without an id is not idempotent, and its sequence numbers mean nothing: librdkafka
    and the Java client write -1 in each of its batches, sarama and aiokafka 0.
    """
    known: dict[tuple[int, int, int], StoredBatch] = {}
    for batch in copy.batches:
        if batch.producer_id < 0 or batch.base_sequence < 0:
            continue
        place = batch.producer_id, batch.producer_epoch, batch.base_sequence
        if place in known:
            return known[place], batch
        known[place] = batch
    return None


@final
class StoredWatermark(_OfCopies):
    """RP-27. No disk has a high watermark above the end of its log. Exercised by a follower's disk
    with one above 0. The disk of a second process with a broker's id is left out: it may begin as a
    copy of a running broker's disk, whose files are of different times. So is one that a fault has
    harmed."""

    clause = "RP-27"

    def end(self, state: Copies, end: RunEnd) -> Findings:
        found: list[Finding] = []
        for copy in state.of.values():
            if is_second(copy.slot) or state.is_harmed(copy.slot, copy.node_id):
                continue
            if copy.high_watermark > copy.end:
                broken = violated(
                    copy.ref,
                    Evidence.SELF,
                    "the disk of {slot} has the high watermark {high_watermark} of {partition}, "
                    "though its log ends at {log_end}",
                    slot=slot_scope(copy.slot),
                    high_watermark=copy.high_watermark,
                    partition=copy.partition,
                    log_end=copy.end,
                )
                found.append(broken)
            elif copy.high_watermark > 0 and copy.node_id != state.leader:
                found.append(Exercised(copy.ref, Evidence.SELF))
        return found
