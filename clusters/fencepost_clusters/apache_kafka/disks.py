"""What the disks of Kafka's nodes hold once all processes have ended: their logs, batch by batch.

The formats are Kafka's own: a folder `<topic>-<partition>` with segments of record batches of
format 2 (from Kafka 0.11 on), and text files of checkpoints. A process that was killed leaves at
most an incomplete batch at the end of a segment: what follows the last whole batch is not read.

Internal topics, and logs that the cleaner has rewritten, are left out: each broker compacts its own
copy, so they differ by design.

See docs/decisions/07-logs-on-disks.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from zlib import crc32

from msgspec import Struct

from fencepost import Layout, Remains, Slot, Supplied
from fencepost_clusters.apache_kafka.beside_segments import found_beside
from fencepost_clusters.apache_kafka.metadata.on_disk import metadata_states
from fencepost_clusters.apache_kafka.metadata.schema import Schema
from fencepost_clusters.apache_kafka.metadata.snapshot import METADATA_TOPIC
from fencepost_kafka import Role, SegmentFound, StoredBatch

_HEADER = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length of what follows, leader epoch, format, CRC, attributes, last offset delta,
two timestamps, producer id, producer epoch, base sequence, number of records."""
_LENGTH_ENDS = 12
"""Where the bytes begin that the length counts."""
_FORMAT = 2
_CLEANED, _STARTS, _WATERMARKS = (
    "cleaner-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
)

_Place = tuple[str, int]


def stored_batches(data: bytes) -> Iterator[StoredBatch]:
    """The whole batches at the beginning of a segment's bytes, in order."""
    at = 0
    while at + _HEADER.size <= len(data):
        base, length, epoch, form, _, _, last, _, _, producer, generation, sequence, _ = (
            _HEADER.unpack_from(data, at)
        )
        until = at + _LENGTH_ENDS + length
        if form != _FORMAT or length < _HEADER.size - _LENGTH_ENDS or until > len(data):
            return
        yield StoredBatch(
            base_offset=base,
            end=base + last + 1,
            leader_epoch=epoch,
            digest=f"{crc32(memoryview(data)[at:until]):08x}",
            producer_id=producer,
            producer_epoch=generation,
            base_sequence=sequence,
        )
        at = until


def logs(disks: Mapping[str, Path], slots: Sequence[Slot]) -> Iterator[tuple[Slot, _Place, Path]]:
    """The folders of logs on the disks of these slots, by slot and partition."""
    cleaned = {place for disk in disks.values() for place in _checkpoint(disk / _CLEANED)}
    for slot in slots:
        for log in sorted(disks[slot.name].glob("*-*")):
            place = _place(log)
            if place is not None and place not in cleaned:
                yield slot, place, log


def segments(disks: Mapping[str, Path], slots: Sequence[Slot]) -> Iterator[SegmentFound]:
    """The segments on the disks of these slots, by slot, partition and offset."""
    for slot, of_slot in groupby(logs(disks, slots), key=lambda one: one[0]):
        disk = disks[slot.name]
        starts, watermarks = _checkpoint(disk / _STARTS), _checkpoint(disk / _WATERMARKS)
        for _, place, log in of_slot:
            topic_id = _topic_id(log / "partition.metadata")
            for path in sorted(log.glob("*.log")):
                first = int(path.stem)
                found = tuple(stored_batches(path.read_bytes()))
                yield SegmentFound(
                    slot=slot.name,
                    node_id=slot.node_id,
                    topic=place[0],
                    topic_id=topic_id,
                    partition=place[1],
                    log_start=starts.get(place, -1),
                    log_end=found[-1].end if found else first,
                    high_watermark=watermarks.get(place, -1),
                    base_offsets=tuple(batch.base_offset for batch in found),
                    ends=tuple(batch.end for batch in found),
                    leader_epochs=tuple(batch.leader_epoch for batch in found),
                    digests=tuple(batch.digest for batch in found),
                    producer_ids=tuple(batch.producer_id for batch in found),
                    producer_epochs=tuple(batch.producer_epoch for batch in found),
                    base_sequences=tuple(batch.base_sequence for batch in found),
                )


def supplied(
    remains: Remains, layout: Layout, schemas: Mapping[int, Schema] | None = None
) -> Sequence[Supplied]:
    """The segments, what is beside them, and with schemas the states of the metadata, as events at
    the end of the run.

    Raises Undecodable for metadata records that no schema describes.
    """
    ended_ns = max((event.at_ns for event in remains.events), default=0)
    slots = [slot for slot in layout.slots if slot.role in (Role.CONTROLLER, Role.BROKER)]
    found: list[Struct] = list(segments(remains.disks, slots))
    for slot, (topic, partition), log in logs(remains.disks, slots):
        found += found_beside(
            log, slot=slot.name, node_id=slot.node_id, topic=topic, partition=partition
        )
    if schemas is not None:
        found += metadata_states(remains.disks, slots, schemas)
    return [Supplied(ended_ns, one) for one in found]


def _place(log: Path) -> _Place | None:
    """The partition that a folder is the log of; None if it is none that can be compared. The name
    of a log that is being deleted or moved does not end in a number."""
    topic, _, number = log.name.rpartition("-")
    internal = topic.startswith("__") and topic != METADATA_TOPIC
    if internal or not topic or not number.isdecimal() or not log.is_dir():
        return None
    return topic, int(number)


def _checkpoint(path: Path) -> Mapping[_Place, int]:
    """The offsets in a checkpoint file: its format, how many lines follow, and in each a partition
    and its offset. A file that is missing, or cut short, has the lines it has."""
    try:
        lines = path.read_text().splitlines()[2:]
    except (FileNotFoundError, UnicodeDecodeError):
        return {}
    words = [line.split() for line in lines]
    return {
        (topic, int(partition)): int(offset)
        for topic, partition, offset in (line for line in words if len(line) == 3)
        if partition.isdecimal() and offset.isdecimal()
    }


def _topic_id(path: Path) -> str:
    try:
        fields = dict(line.split(": ", 1) for line in path.read_text().splitlines() if ": " in line)
    except (FileNotFoundError, UnicodeDecodeError):
        return ""
    return fields.get("topic_id", "")
