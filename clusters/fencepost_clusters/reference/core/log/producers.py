"""Deduplication: what the newest batches of an idempotent producer say of another one (KIP-98)."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost_clusters.reference.core.log.index import Entry
from fencepost_clusters.reference.wire.errors import Error
from fencepost_clusters.reference.wire.record_batch import BatchHeader

_SEQUENCES = 0x7FFFFFFF


def check_sequence(window: Sequence[Entry], header: BatchHeader) -> Entry | Error | None:
    """Where a batch is stored already, why it is refused, or None for a batch to be stored.

    `window` are the producer's newest batches in the log, oldest first.
    """
    if header.producer_id < 0 or not window:
        return None
    last = window[-1]
    if header.producer_epoch < last.producer_epoch:
        return Error.INVALID_PRODUCER_EPOCH
    for known in window:
        if (
            known.producer_epoch == header.producer_epoch
            and known.base_sequence == header.base_sequence
            and known.end - known.base == header.count
        ):
            return known
    if header.producer_epoch > last.producer_epoch:
        return None if header.base_sequence == 0 else Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    expected = (last.base_sequence + last.end - last.base) & _SEQUENCES
    return None if header.base_sequence == expected else Error.OUT_OF_ORDER_SEQUENCE_NUMBER
