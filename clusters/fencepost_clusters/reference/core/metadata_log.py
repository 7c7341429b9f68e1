"""The metadata log in memory: batches with their bytes and decoded records. Persisting is the
caller's: what changes here, an effect must store."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from fencepost_clusters.reference.core.log_index import LogIndex, entry
from fencepost_clusters.reference.wire import record_batch, records

LOG_NAME = "__kafka_metadata-0"


class Batch(Struct, frozen=True):
    """A stored batch; `records` is empty for a control batch (a change of leader)."""

    base: int
    end: int
    epoch: int
    data: bytes
    records: tuple[records.Record, ...]


class MetadataLog:
    """See the module."""

    def __init__(self, batches: Iterable[bytes] = ()) -> None:
        self._batches: list[Batch] = []
        self.index = LogIndex()
        for data in batches:
            self.append(data)

    @property
    def end(self) -> int:
        return self.index.end

    @property
    def last_epoch(self) -> int:
        return self.index.last_epoch

    def append(self, data: bytes) -> Batch:
        """Adds a whole batch, stamped already; raises CorruptBatch or UnknownRecord."""
        header = record_batch.parse(data)
        decoded: tuple[records.Record, ...] = ()
        if not header.control:
            decoded = tuple(records.decode(value) for value in record_batch.values(data))
        batch = Batch(
            header.base_offset, header.last_offset + 1, header.leader_epoch, data, decoded
        )
        self.index.append(entry(header))
        self._batches.append(batch)
        return batch

    def truncate(self, to_offset: int) -> int:
        """Drops every batch that reaches past `to_offset`; the new end."""
        end = self.index.truncate(to_offset)
        while self._batches and self._batches[-1].end > end:
            self._batches.pop()
        return end

    def batches(self, from_offset: int, below: int) -> tuple[Batch, ...]:
        """The whole batches from the one at `from_offset` that end at or before `below`."""
        start = len(self._batches)
        while start > 0 and self._batches[start - 1].base >= from_offset:
            start -= 1
        return tuple(b for b in self._batches[start:] if b.end <= below)

    def read(self, from_offset: int, max_bytes: int) -> bytes:
        """The bytes of whole batches from `from_offset` on; one at least, if there is one."""
        _, end = self.index.span(from_offset, self.end, max_bytes)
        return b"".join(b.data for b in self.batches(from_offset, end))
