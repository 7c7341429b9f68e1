"""The disks of the world of bare cores, in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from fencepost_clusters.reference.core.assembly import DiskContents
from fencepost_clusters.reference.core.log.entry import entry
from fencepost_clusters.reference.core.node.effects import Recovered
from fencepost_clusters.reference.core.quorum.raft.metadata_log import LOG_NAME, Snapshot
from fencepost_clusters.reference.core.quorum.raft.timing import Vote
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch


@dataclass
class FakeDisk:
    """What a slot's disk holds; kill keeps it."""

    logs: dict[str, list[bytes]] = field(default_factory=dict)
    watermarks: dict[str, int] = field(default_factory=dict)
    synced: dict[str, int] = field(default_factory=dict)
    """log -> how many of its batches survive the loss of power."""
    vote: tuple[int, int | None] = (0, None)
    snapshot: Snapshot | None = None

    def stored(self) -> DiskContents:
        return DiskContents(tuple(self.logs.get(LOG_NAME, ())), Vote(*self.vote), self.snapshot)

    def recover(self) -> Recovered:
        logs = {
            log: tuple(entry(record_batch.parse(b)) for b in batches)
            for log, batches in self.logs.items()
            if log != LOG_NAME
        }
        return Recovered(logs, self.watermarks)

    def store_snapshot(self, log: str, snapshot: Snapshot) -> None:
        kept = [
            b
            for b in self.logs.get(log, [])
            if record_batch.parse(b).last_offset >= snapshot.offset
        ]
        gone = len(self.logs.get(log, ())) - len(kept)
        self.logs[log] = kept
        self.synced[log] = max(0, self.synced.get(log, 0) - gone)
        self.snapshot = snapshot

    def truncate(self, log: str, to_offset: int) -> None:
        kept = [b for b in self.logs.get(log, []) if record_batch.parse(b).last_offset < to_offset]
        self.logs[log] = kept
        self.synced[log] = min(self.synced.get(log, 0), len(kept))

    def delete(self, log: str) -> None:
        self.logs.pop(log, None)
        self.synced.pop(log, None)
        if log == LOG_NAME:
            self.snapshot = None

    def sync(self, log: str) -> None:
        self.synced[log] = len(self.logs.get(log, ()))

    def lose_power(self) -> None:
        for log in self.logs:
            del self.logs[log][self.synced.get(log, 0) :]

    def read(self, wanted: m.LogSlice) -> bytes:
        return b"".join(
            b
            for b in self.logs[wanted.log]
            if wanted.start <= record_batch.parse(b).base_offset < wanted.end
        )


def filled(answer: m.FetchResponse, disk: FakeDisk) -> m.FetchResponse:
    """The same answer with the bytes that its slices name."""
    topics = []
    for topic in answer.responses:
        parts = []
        for part in topic.partitions:
            records = part.records
            if isinstance(records, m.LogSlice):
                records = disk.read(records)
            parts.append(replace(part, records=records))
        topics.append(
            m.FetchableTopicResponse(
                partitions=tuple(parts), topic=topic.topic, topic_id=topic.topic_id
            )
        )
    return replace(answer, responses=tuple(topics))
