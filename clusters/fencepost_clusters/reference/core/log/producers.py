"""Idempotent producers: their newest batches, and whether a further batch is a duplicate
(KIP-98)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from fencepost_clusters.reference.core.log.entry import Entry
from fencepost_clusters.reference.wire.batch_header import BatchHeader
from fencepost_clusters.reference.wire.errors import Error

_SEQUENCES = 0x7FFFFFFF
PRODUCER_WINDOW: Final = 5
"""How many batches of a producer are remembered for deduplication, as Kafka's clients expect."""


class Producers:
    """The newest batches of each idempotent producer in a log."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._windows: dict[int, list[Entry]] = {}
        for one in entries:
            self.add(one)

    def add(self, one: Entry) -> None:
        """Remembers a batch that was appended."""
        if one.producer_id < 0:
            return
        window = self._windows.setdefault(one.producer_id, [])
        window.append(one)
        del window[:-PRODUCER_WINDOW]

    def window(self, producer_id: int) -> tuple[Entry, ...]:
        """The newest batches of a producer, oldest first."""
        return tuple(self._windows.get(producer_id, ()))


def check_sequence(window: Sequence[Entry], header: BatchHeader) -> Entry | Error | None:
    """The stored position of a duplicate, the reason for a refusal, or None for a batch to be
    stored.

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


def begins_late(header: BatchHeader, log_start: int, leader_epoch: int) -> bool:
    """Whether a producer without a batch in a log has sent earlier ones that may come again.

    A former leader has refused or lost them, and they would come too late after this one.
    librdkafka takes them for stored as soon as this one is, and reports them as acknowledged. A log
    without its first records does not tell, so any sequence number may follow there (KIP-360). Nor
    does one that has had no other leader: its topic may have been deleted and made again, and a
    producer goes on. What the leader itself has refused, `RefusedBatches` knows.
    """
    later = header.producer_id >= 0 and header.base_sequence > 0
    return later and log_start == 0 and leader_epoch > 0
