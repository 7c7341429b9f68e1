"""The index of a replica's log, without its bytes: for each batch its offsets, epoch and producer.

The shell stores the bytes. Offsets are those of Kafka: `end` is the next offset to be written, an
exclusive bound everywhere.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from fencepost_clusters.reference.core.log.entry import Entry
from fencepost_clusters.reference.core.log.producers import Producers


class LogIndex:
    """See the module. Batches are added and dropped at the end only."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._entries: list[Entry] = []
        self._bases: list[int] = []
        self._epochs: list[int] = []
        self._producers = Producers()
        self._begin, self._begin_epoch = 0, -1
        self.end = 0
        """The offset after the last batch."""
        self.last_epoch = -1
        """The leader epoch of the last batch; -1 in an empty log."""
        for one in entries:
            self.append(one)

    def begin_at(self, offset: int, epoch: int) -> None:
        """Begins an empty log at the end of another one, with that log's last epoch."""
        assert not self._entries, "only an empty log can be given a beginning"
        self._begin, self._begin_epoch = offset, epoch
        self._set_end()

    @property
    def start(self) -> int:
        return self._entries[0].base if self._entries else self._begin

    def _set_end(self) -> None:
        if self._entries:
            self.end, self.last_epoch = self._entries[-1].end, self._entries[-1].epoch
        else:
            self.end, self.last_epoch = self._begin, self._begin_epoch

    def append(self, one: Entry) -> None:
        """Adds a batch; it must not overlap earlier batches, and its epoch must not be lower than
        theirs."""
        assert one.end > one.base, one
        assert one.base >= self.end, f"append at {one.base}, log end {self.end}"
        assert one.epoch >= self.last_epoch, f"epoch {one.epoch} after {self.last_epoch}"
        self._entries.append(one)
        self._bases.append(one.base)
        self._epochs.append(one.epoch)
        self._producers.add(one)
        self.end, self.last_epoch = one.end, one.epoch

    def truncate(self, to_offset: int) -> int:
        """Drops every batch that reaches past `to_offset`; the new end."""
        while self._entries and self._entries[-1].end > to_offset:
            self._entries.pop()
            self._bases.pop()
            self._epochs.pop()
        # The windows are made anew: one that dropped its oldest batch to make room for a truncated
        # one must have it again.
        self._producers = Producers(self._entries)
        self._set_end()
        return self.end

    def end_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch at or below `epoch` and the offset after its last batch (KIP-101).

        (-1, 0) if the log has no epoch that old.
        """
        # Epochs never fall within a log, so the search may halve it.
        at = bisect_right(self._epochs, epoch)
        # The log begins where a snapshot ends: what the snapshot replaced ended with its epoch.
        if at == 0 and 0 <= self._begin_epoch <= epoch:
            return self._begin_epoch, self._begin
        return (self._entries[at - 1].epoch, self._entries[at - 1].end) if at else (-1, 0)

    def span(
        self, from_offset: int, below: int, max_bytes: int, at_least_one: bool = True
    ) -> tuple[int, int]:
        """The span of the whole batches to serve: from the batch that holds `from_offset`, below an
        offset.

        Up to `max_bytes`, but with `at_least_one` the first batch, of any size. (from, from) if
        there is none.
        """
        at = max(0, bisect_right(self._bases, from_offset) - 1)
        start = end = -1
        size = 0
        for one in self._entries[at:]:
            if one.end <= from_offset:
                continue
            first = start < 0 and at_least_one
            # A batch that reaches past the bound is not served in part: its bytes are served as
            # they are stored.
            if one.end > below or (not first and size + one.size > max_bytes):
                break
            start = one.base if start < 0 else start
            end = one.end
            size += one.size
        return (start, end) if start >= 0 else (from_offset, from_offset)

    def size(self, start: int, end: int) -> int:
        """The bytes of the batches of a span."""
        first, last = bisect_left(self._bases, start), bisect_left(self._bases, end)
        return sum(one.size for one in self._entries[first:last])

    def with_timestamp(self, timestamp_ms: int, below: int) -> Entry | None:
        """The first batch below an offset with a record of that time or a later one."""
        for one in self._entries:
            if one.end > below:
                break
            # Times may fall from batch to batch, so the batches are looked at in order, and not by
            # halves.
            if one.max_timestamp >= timestamp_ms:
                return one
        return None

    def newest(self, below: int) -> Entry | None:
        """The first batch below an offset with a record of the greatest time there."""
        whole = (one for one in self._entries if one.end <= below)
        return max(whole, key=lambda one: one.max_timestamp, default=None)

    def producer(self, producer_id: int) -> tuple[Entry, ...]:
        """The newest batches of an idempotent producer, oldest first."""
        return self._producers.window(producer_id)
