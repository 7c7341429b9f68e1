"""The index entry of a stored batch."""

from __future__ import annotations

from msgspec import Struct

from fencepost_clusters.reference.wire.batch_header import BatchHeader


class Entry(Struct, frozen=True, gc=False, kw_only=True):
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
        base=header.base_offset,
        end=header.last_offset + 1,
        epoch=header.leader_epoch,
        size=header.size,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
