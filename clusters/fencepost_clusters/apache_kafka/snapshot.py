"""A snapshot of Kafka's metadata, as a controller hands it out piece by piece (FetchSnapshot).

Pure: what to ask for next, what an answer brings, and the records in the bytes once they are whole.
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

from fencepost_clusters.apache_kafka import schema

METADATA_TOPIC = "__cluster_metadata"
MOST_BYTES = 1 << 20
_CONTROL = 0x20
# kio marks every number with a type of its own, which its own coercion undoes: plain ints will do.
_SNAPSHOT: Any = snapshot_request


@final
@dataclass(slots=True)
class Snapshot:
    """One snapshot, and what has come of it: it stands for all records before `end`, the last of
    which is of `epoch`."""

    end: int
    epoch: int
    data: bytearray = field(default_factory=bytearray)
    whole: bool = False

    def request(self, leader_epoch: int) -> Any:
        """What to ask for next."""
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
        """Takes an answer's bytes in, without their length; False for one that is an error, such as
        that another one leads, or that this snapshot is no longer kept."""
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
        """What is in a whole one; raises Undecodable for records of no known kind."""
        for batch in batches(bytes(self.data)):
            for record in batch.records:
                yield schema.decode(schemas, record.value or b"")


def batches(data: bytes) -> Iterator[RecordBatch]:
    """The batches in a log's bytes; those with control records, which are not for us, are empty."""
    at = 0
    while at < len(data):
        batch, size = read_batch(data, at)
        at += size
        yield replace(batch, records=()) if batch.attributes & _CONTROL else batch
