"""A snapshot of Kafka's metadata, as a controller sends it in pieces (FetchSnapshot).

Pure: the next request, the effect of an answer, and the records in the bytes once they are
complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

from kio.records.readers import read_batch
from kio.records.schema import RecordBatch
from kio.schema.errors import ErrorCode
from kio.schema.fetch_snapshot.v0 import request as snapshot_request
from kio.schema.fetch_snapshot.v0.response import FetchSnapshotResponse
from kio.serial import entity_reader

from fencepost_clusters.apache_kafka.metadata import schema

METADATA_TOPIC = "__cluster_metadata"
MOST_BYTES = 1 << 20
_CONTROL = 0x20
# kio's annotations give every number a type of its own, which its own coercion undoes: plain ints
# work.
_SNAPSHOT: Any = snapshot_request


@final
@dataclass(slots=True)
class Snapshot:
    """One snapshot, and its bytes received so far. It replaces all records before `end`, the last
    of which is of `epoch`."""

    end: int
    epoch: int
    data: bytearray = field(default_factory=bytearray)
    whole: bool = False

    def request(self, leader_epoch: int) -> Any:
        """The next request."""
        wanted = _SNAPSHOT.PartitionSnapshot(
            partition=0,
            current_leader_epoch=leader_epoch,
            snapshot_id=_SNAPSHOT.SnapshotId(end_offset=self.end, epoch=self.epoch),
            position=len(self.data),
        )
        return _SNAPSHOT.FetchSnapshotRequest(
            max_bytes=MOST_BYTES,
            topics=(_SNAPSHOT.TopicSnapshot(name=METADATA_TOPIC, partitions=(wanted,)),),
        )

    def take(self, body: bytes) -> bool:
        """Takes an answer's bytes, without their length. Returns False for an error, such as that
        another controller leads, or that this snapshot no longer exists."""
        _, at = entity_reader(FetchSnapshotResponse.__header_schema__)(body, 0)
        answer, _ = entity_reader(FetchSnapshotResponse)(body, at)
        if answer.error_code is not ErrorCode.none or not answer.topics:
            return False
        part = answer.topics[0].partitions[0]
        if part.error_code is not ErrorCode.none or part.position != len(self.data):
            return False
        self.data += part.unaligned_records or b""
        self.whole = len(self.data) >= part.size
        return True

    def records(self, schemas: Mapping[int, schema.Schema]) -> Iterator[schema.Record]:
        """The records of a complete snapshot; raises Undecodable for records of an unknown kind."""
        for batch in batches(bytes(self.data)):
            for record in batch.records:
                yield schema.decode(schemas, record.value or b"")


def batches(data: bytes) -> Iterator[RecordBatch]:
    """The batches in a log's bytes; those with control records are left empty."""
    at = 0
    while at < len(data):
        batch, size = read_batch(data, at)
        at += size
        yield replace(batch, records=()) if batch.attributes & _CONTROL else batch
