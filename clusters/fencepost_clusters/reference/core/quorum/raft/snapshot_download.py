"""Fetching a leader's snapshot part by part (KIP-630)."""

from __future__ import annotations

from typing import final

from fencepost_clusters.reference.core.quorum.raft import messages
from fencepost_clusters.reference.core.quorum.raft.metadata_log import Snapshot
from fencepost_clusters.reference.wire import messages as m


@final
class Download:
    """The received parts of one snapshot; `wanted` is None if no snapshot is being fetched."""

    def __init__(self) -> None:
        self.wanted: m.SnapshotId | None = None
        self._data = bytearray()

    def request(self, wanted: m.SnapshotId, me: int, epoch: int) -> m.FetchSnapshotRequest:
        """Asks for the next part of a snapshot, or for the first of another one."""
        if wanted != self.wanted:
            self.wanted = wanted
            self._data = bytearray()
        return messages.fetch_snapshot(me, epoch, wanted, len(self._data))

    def take(self, part: m.PartitionSnapshotData) -> Snapshot | None:
        """Adds a part; returns the snapshot after the last part. A part that does not fit ends the
        download."""
        wanted = self.wanted
        if wanted is None or part.snapshot_id != wanted or part.position != len(self._data):
            self.wanted = None
            return None
        self._data += part.unaligned_records
        # More is to come. An empty part before the end would be asked for again and again, so it
        # ends the download.
        if len(self._data) < part.size and part.unaligned_records:
            return None
        self.wanted = None
        if len(self._data) != part.size:
            return None
        return Snapshot(wanted.end_offset, wanted.epoch, bytes(self._data))
