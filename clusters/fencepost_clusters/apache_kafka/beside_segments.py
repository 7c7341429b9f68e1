"""What a partition's folder holds beside its segments: the leader epochs of its log, and what a
replica knew of producers at some offsets.

A process that was killed may leave a snapshot of producers that is cut short. Kafka does not load
it, so it is not read here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from crc32c import crc32c
from msgspec import Struct

_HEADER = struct.Struct(">hIi")
"""The version, the CRC of what follows it, and the number of producers."""
_CHECKED = 6
"""Where the bytes begin that the CRC is of."""
_ENTRY = struct.Struct(">qhiqiqiq")
"""Producer id, producer epoch, last sequence, last offset, and four fields about time and
transactions."""
_VERSION = 1


class LeaderEpochsFound(Struct, frozen=True, gc=False, tag="disk.leader_epochs", kw_only=True):
    """The leader epochs that a slot's disk has beside the log of a partition (KIP-101): each epoch,
    and the offset where it starts. Both are empty if nothing is stored."""

    slot: str
    node_id: int
    topic: str
    partition: int
    epochs: tuple[int, ...]
    starts: tuple[int, ...]

    def sentence(self) -> str:
        return f"the disk of {self.slot} has {len(self.epochs)} leader epochs of {_name(self)}"

    def concerns(self) -> Sequence[str]:
        return (f"slot {self.slot}", f"partition {_name(self)}")


class ProducersFound(Struct, frozen=True, gc=False, tag="disk.producers", kw_only=True):
    """What a slot's disk says of the producers of a partition, as of an offset of its log: the
    epoch of each, and the sequence number and the offset of its last message."""

    slot: str
    node_id: int
    topic: str
    partition: int
    offset: int
    producer_ids: tuple[int, ...]
    producer_epochs: tuple[int, ...]
    last_sequences: tuple[int, ...]
    last_offsets: tuple[int, ...]

    def sentence(self) -> str:
        return (
            f"the disk of {self.slot} has {len(self.producer_ids)} producers of {_name(self)} at "
            f"offset {self.offset}"
        )

    def concerns(self) -> Sequence[str]:
        return (f"slot {self.slot}", f"partition {_name(self)}")


def _name(one: LeaderEpochsFound | ProducersFound) -> str:
    return f"{one.topic}-{one.partition}"


def leader_epochs(log: Path) -> Sequence[tuple[int, int]]:
    """Each leader epoch with its first offset, in the order of the file: a version, how many lines
    follow, and in each an epoch and an offset. A file that is missing has none."""
    try:
        lines = (log / "leader-epoch-checkpoint").read_text().splitlines()[2:]
    except (FileNotFoundError, UnicodeDecodeError):
        return ()
    words = [line.split() for line in lines]
    return [
        (int(line[0]), int(line[1]))
        for line in words
        if len(line) == 2 and all(word.isdecimal() for word in line)
    ]


def producers(data: bytes) -> Sequence[tuple[int, int, int, int]] | None:
    """The id, epoch, last sequence number and last offset of each producer in a snapshot. None for
    bytes that Kafka would not load, or whose version is another one."""
    if len(data) < _HEADER.size:
        return None
    version, checksum, count = _HEADER.unpack_from(data)
    size = _HEADER.size + count * _ENTRY.size
    if version != _VERSION or count < 0 or len(data) < size:
        return None
    if crc32c(data[_CHECKED:size]) != checksum:
        return None
    entries = (
        _ENTRY.unpack_from(data, _HEADER.size + number * _ENTRY.size) for number in range(count)
    )
    return [entry[:4] for entry in entries]


def found_beside(
    log: Path, *, slot: str, node_id: int, topic: str, partition: int
) -> Iterator[LeaderEpochsFound | ProducersFound]:
    """The leader epochs of a log, and each snapshot of its producers by its offset."""
    epochs = leader_epochs(log)
    yield LeaderEpochsFound(
        slot=slot,
        node_id=node_id,
        topic=topic,
        partition=partition,
        epochs=tuple(epoch for epoch, _ in epochs),
        starts=tuple(start for _, start in epochs),
    )
    for path in sorted(log.glob("*.snapshot")):
        known = producers(path.read_bytes()) if path.stem.isdecimal() else None
        if known is None:
            continue
        yield ProducersFound(
            slot=slot,
            node_id=node_id,
            topic=topic,
            partition=partition,
            offset=int(path.stem),
            producer_ids=tuple(one[0] for one in known),
            producer_epochs=tuple(one[1] for one in known),
            last_sequences=tuple(one[2] for one in known),
            last_offsets=tuple(one[3] for one in known),
        )
