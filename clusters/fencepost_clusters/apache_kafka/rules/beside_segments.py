"""Rules about what a replica's folder holds beside the segments of its log (KR-37, KR-38).

Both are files of one process, and are compared with the batches that the same disk has: a process
that wrote one of them wrongly would truncate by it, or refuse a producer, after its next start.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import msgspec
from msgspec import Struct

from fencepost import (
    HARMS_DISK,
    NOTHING,
    Cause,
    Effect,
    Event,
    Evidence,
    Excused,
    Exercised,
    Facts,
    FaultInjected,
    Finding,
    Findings,
    Key,
    Reason,
    Rule,
    RunEnd,
    on,
    process_scope,
    second_of,
    slot_of,
    slot_scope,
    violated,
)
from fencepost_clusters.apache_kafka.beside_segments import LeaderEpochsFound, ProducersFound
from fencepost_clusters.apache_kafka.metadata.snapshot import METADATA_TOPIC
from fencepost_kafka import SegmentFound, StoredBatch, partition_of
from fencepost_kafka.judging.takeovers import TAKING, Takeovers

SEQUENCES = 1 << 31
"""How many sequence numbers there are: the one after the highest is 0."""


def by_log(event: Event) -> Sequence[Key]:
    """The slot, the topic and the partition of a log on a disk."""
    body: Any = event.body
    return ((body.slot, body.topic, body.partition),)


@dataclass(slots=True)
class _Folder:
    batches: list[StoredBatch] = field(default_factory=list)
    start: int = 0
    end: int = 0
    epochs: tuple[LeaderEpochsFound, Cause] | None = None
    snapshots: list[tuple[ProducersFound, Cause]] = field(default_factory=list)

    def take(self, event: Event) -> None:
        match event.body:
            case SegmentFound() as body:
                self.batches += body.batches()
                self.start = body.log_start
                self.end = max(self.end, body.log_end)
            case LeaderEpochsFound() as body:
                self.epochs = body, event.ref
            case ProducersFound() as body:
                self.snapshots.append((body, event.ref))


@dataclass(slots=True)
class _Disks:
    folders: dict[Key, _Folder] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)
    """The slots whose disks have lost the ends of logs, and the fault."""
    takeovers: Takeovers = field(default_factory=Takeovers)
    taken: dict[int, str] = field(default_factory=dict)
    """The brokers whose ids a second process has had, and the process."""

    def strike(self, body: FaultInjected) -> None:
        """Keeps what a fault does to disks. An emptied disk gets all of each log anew, in order."""
        slots = {slot_of(target) for target in body.targets}
        if body.acts(Effect.DOUBLES):
            copied = msgspec.json.decode(body.arguments).get("disk") == "copy"
            for one in slots:
                if second_of(one) in slots:
                    self._is(second_of(one), self.damaged.get(one, "") if copied else "")
        for one in sorted(body.acts(*HARMS_DISK)):
            self._is(one, "" if one in body.acts(Effect.EMPTIES_DISK) else body.fault_id)

    def excuse(self, body: LeaderEpochsFound) -> Reason | None:
        """Why a disk may have other leader epochs than its batches; None: it may not."""
        fault = self.damaged.get(body.slot)
        if fault:
            return Reason.of("{fault} had damaged that disk", fault=fault)
        process = self.taken.get(body.node_id)
        return (
            Reason.of("{process} had its id", process=process_scope(process)) if process else None
        )

    def _is(self, slot: str, damaged_by: str) -> None:
        if damaged_by:
            self.damaged[slot] = damaged_by
        else:
            self.damaged.pop(slot, None)


@final
class EpochsAreThoseOfBatches(Rule[_Disks]):
    """KR-37. What the log has dropped is not judged, though a segment may still hold it: the
    metadata's log begins where its first epoch does, at a snapshot. Exercised by a log whose
    batches are of two epochs or more.

    A disk that was damaged is excused, and so is a copy of it. Its broker may lead once more in the
    epoch that it has led, with a log that ends earlier than before. That epoch begins at this end
    then. The batches of older epochs that the broker fetches later contradict it. The same happens
    to a broker whose id a second process has had: by the records, it leads where that one led.
    """

    clause = "KR-37"
    state = _Disks

    @on(*TAKING, SegmentFound, LeaderEpochsFound, FaultInjected)
    def step(self, state: _Disks, event: Event, body: Struct) -> Findings:
        match body:
            case FaultInjected():
                state.strike(body)
            case SegmentFound() | LeaderEpochsFound():
                for log in by_log(event):
                    state.folders.setdefault(log, _Folder()).take(event)
            case _:
                taken = state.takeovers.take(event.body, event.process)
                if taken is not None:
                    state.taken[taken[0]] = taken[1]
        return NOTHING

    def end(self, state: _Disks, end: RunEnd) -> Findings:
        return [one for folder in state.folders.values() for one in _judged(folder, state)]


def _judged(folder: _Folder, disks: _Disks) -> Iterator[Finding]:
    if folder.epochs is None:
        return
    body, ref = folder.epochs
    by_snapshot = body.starts[0] if body.topic == METADATA_TOPIC and body.starts else 0
    for batch in folder.batches:
        dropped = batch.base_offset < max(folder.start, by_snapshot)
        if dropped or batch.leader_epoch < 0:
            continue  # -1: of a format without epochs
        stored = _epoch_at(body, batch.base_offset)
        if stored != batch.leader_epoch:
            differs = violated(
                ref,
                Evidence.SELF,
                "the disk of {slot} has a batch of epoch {epoch} at offset {offset} of "
                "{partition}, and beside it {beside} for that offset",
                slot=slot_scope(body.slot),
                epoch=batch.leader_epoch,
                offset=batch.base_offset,
                partition=partition_of(body),
                beside=f"epoch {stored}" if stored >= 0 else "no epoch",
                stored=stored,
            )
            excuse = disks.excuse(body)
            yield differs if excuse is None else Excused.of(differs, excuse)
            return
    if len({batch.leader_epoch for batch in folder.batches}) > 1:
        yield Exercised(ref, Evidence.SELF)


def _epoch_at(body: LeaderEpochsFound, offset: int) -> int:
    """The last epoch that starts at or before an offset; -1 if none does."""
    place = bisect_right(body.starts, offset)
    return body.epochs[place - 1] if place else -1


@final
class ProducersAreThoseOfBatches(Rule[_Folder]):
    """KR-38. A producer of which the log has no batch any more is not judged. Exercised by each
    snapshot that has a producer of one of the log's batches."""

    clause = "KR-38"
    keys = staticmethod(by_log)
    state = _Folder

    @on(SegmentFound, ProducersFound)
    def step(self, state: _Folder, event: Event, body: Struct) -> Findings:
        state.take(event)
        return NOTHING

    def end(self, state: _Folder, end: RunEnd) -> Findings:
        found: list[Finding] = []
        for body, ref in state.snapshots:
            if body.offset > state.end:
                continue  # the log has been cut below it
            last = {
                batch.producer_id: batch
                for batch in state.batches
                if batch.producer_id >= 0 <= batch.base_sequence and batch.end <= body.offset
            }
            wrong = next(_differences(body, last), None)
            if wrong is not None:
                differs = violated(
                    ref,
                    Evidence.SELF,
                    "the disk of {slot} says at offset {offset} of {partition} that {wrong}",
                    slot=slot_scope(body.slot),
                    offset=body.offset,
                    partition=partition_of(body),
                    **wrong,
                )
                found.append(differs)
            elif last:
                found.append(Exercised(ref, Evidence.SELF))
        return found


def _differences(body: ProducersFound, last: dict[int, StoredBatch]) -> Iterator[Facts]:
    """How a snapshot differs from the last batch of each producer; `wrong` has that in words."""
    columns = (body.producer_ids, body.producer_epochs, body.last_sequences, body.last_offsets)
    known = {row[0]: row[1:] for row in zip(*columns, strict=True)}
    for producer, batch in last.items():
        sequence = (batch.base_sequence + batch.end - batch.base_offset - 1) % SEQUENCES
        stored = batch.producer_epoch, sequence, batch.end - 1
        named = known.get(producer, ())
        if named == stored:
            continue
        wrong = f"producer {producer} is unknown, which wrote offset {batch.end - 1}"
        if named:
            wrong = (
                f"producer {producer} wrote last, as (epoch, sequence, offset), "
                f"{named}, and its last batch has {stored}"
            )
        yield {"wrong": wrong, "producer": producer, "named": named, "stored": stored}
