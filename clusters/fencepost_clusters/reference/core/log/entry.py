"""The index entry of a stored batch."""

from __future__ import annotations

from msgspec import Struct

from fencepost_clusters.reference.wire.record_batch import BatchHeader


class Entry(Struct, frozen=True):
    """One stored batch; `end` is exclusive, `max_timestamp` in milliseconds."""

    base: int
    end: int
    epoch: int
    size: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int


def entry(header: BatchHeader) -> Entry:
    """The index entry of a stored batch."""
    return Entry(
        header.base_offset, header.last_offset + 1, header.leader_epoch, header.size,
        header.max_timestamp, header.producer_id, header.producer_epoch, header.base_sequence,
    )  # fmt: skip
