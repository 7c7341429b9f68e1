"""The metadata log in memory: batches with their bytes and decoded records, and the snapshot that
replaces the log before them. The caller must store each change by an effect."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from fencepost_clusters.reference.core.log.entry import entry
from fencepost_clusters.reference.core.log.index import LogIndex
from fencepost_clusters.reference.wire import record_batch, records

LOG_NAME = "__kafka_metadata-0"


class Batch(Struct, frozen=True, kw_only=True):
    """A stored batch; `records`, and the `versions` they were written in, are empty for a control
    batch (a change of leader)."""

    base: int
    end: int
    epoch: int
    data: bytes
    records: tuple[records.Record, ...]
    versions: tuple[int, ...]


class Snapshot(Struct, frozen=True):
    """The state below `offset` as batches of records; `epoch` is that of the last record below."""

    offset: int
    epoch: int
    data: bytes


class MetadataLog:
    """See the module. `start` is the first offset in it; below `start` there is only the snapshot,
    if any."""

    def __init__(self, batches: Iterable[bytes] = (), snapshot: Snapshot | None = None) -> None:
        """Batches that the snapshot covers are left out.

        Raises CorruptBatch if the other batches do not follow it, or UnknownRecord.
        """
        self._batches: list[Batch] = []
        self.index = LogIndex()
        self.snapshot = snapshot
        if snapshot is not None:
            self.index.begin_at(snapshot.offset, snapshot.epoch)
        for data in batches:
            header = record_batch.parse(data)
            # Left by a process that died after it had stored a snapshot, and before it cut the log.
            if header.base_offset < self.start or header.leader_epoch < self.start_epoch:
                continue
            # The state would lack the records of a gap, so nothing after it is read.
            if header.base_offset != self.end:
                raise record_batch.CorruptBatch(
                    f"the metadata log has nothing from {self.end} to {header.base_offset}"
                )
            self.append(data)

    @property
    def start(self) -> int:
        return self.index.start

    @property
    def start_epoch(self) -> int:
        """The epoch of the last record before the log's start; -1 if there is none."""
        return -1 if self.snapshot is None else self.snapshot.epoch

    @property
    def end(self) -> int:
        return self.index.end

    @property
    def last_epoch(self) -> int:
        return self.index.last_epoch

    def append(self, data: bytes) -> Batch:
        """Adds a whole batch that has its offset and epoch already; raises CorruptBatch or
        UnknownRecord."""
        header = record_batch.parse(data)
        values = () if header.control else record_batch.values(data)
        batch = Batch(
            base=header.base_offset,
            end=header.last_offset + 1,
            epoch=header.leader_epoch,
            data=data,
            records=tuple(records.decode(value) for value in values),
            versions=tuple(records.version_of(value) for value in values),
        )
        self.index.append(entry(header))
        self._batches.append(batch)
        return batch

    def truncate(self, to_offset: int) -> int:
        """Drops every batch that reaches past `to_offset`; the new end.

        If that is below the log's start, the log is empty then, without a snapshot.
        """
        if to_offset < self.start:
            self._begin(None)
        end = self.index.truncate(to_offset)
        # The index drops whole batches only, so its new end may be below `to_offset`.
        while self._batches and self._batches[-1].end > end:
            self._batches.pop()
        return end

    def compact(self, snapshot: Snapshot) -> None:
        """Replaces the batches below its own snapshot by the snapshot; later batches stay."""
        assert self.start <= snapshot.offset <= self.end, f"{snapshot.offset} is not in the log"
        kept = [b for b in self._batches if b.base >= snapshot.offset]
        self._begin(snapshot)
        for batch in kept:
            self.index.append(entry(record_batch.parse(batch.data, verify=False)))
        self._batches = kept

    def install(self, snapshot: Snapshot) -> None:
        """Replaces the whole log by a leader's snapshot."""
        self._begin(snapshot)

    def _begin(self, snapshot: Snapshot | None) -> None:
        self.snapshot = snapshot
        self._batches = []
        self.index = LogIndex()
        if snapshot is not None:
            self.index.begin_at(snapshot.offset, snapshot.epoch)

    def batches(self, from_offset: int, below: int) -> tuple[Batch, ...]:
        """The whole batches from the one at `from_offset` that end at or before `below`."""
        start = len(self._batches)
        # From the end backwards: nearly every reader wants the newest batches.
        while start > 0 and self._batches[start - 1].base >= from_offset:
            start -= 1
        return tuple(b for b in self._batches[start:] if b.end <= below)

    def epoch_before(self, offset: int) -> int:
        """The epoch of the last record below an offset; -1 if there is none."""
        epoch = self.start_epoch
        for batch in reversed(self._batches):
            if batch.base < offset:
                return batch.epoch
        return epoch

    def read(self, from_offset: int, max_bytes: int) -> bytes:
        """The bytes of whole batches from `from_offset` on; one at least, if there is one."""
        _, end = self.index.span(from_offset, self.end, max_bytes)
        return b"".join(b.data for b in self.batches(from_offset, end))
