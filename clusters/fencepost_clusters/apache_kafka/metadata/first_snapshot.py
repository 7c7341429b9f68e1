"""The snapshot with which the metadata log of a new quorum begins: its voters (KIP-853).

Kafka's StorageTool writes it to the disk of each controller that it formats with initial
controllers. A quorum that begins with it has kraft.version 1: its voters are records, so they can
be added and removed. From Kafka 4.4 on it also has the records with which the metadata begins, the
levels of the features, which were in `bootstrap.checkpoint` before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from typing import Any, final
from uuid import UUID

from kio.records.readers import read_batch
from kio.records.schema import NewRecordBatch, Record
from kio.records.writers import write_new_batch
from kio.schema.k_raft_version_record.v0 import KRaftVersionRecord
from kio.schema.snapshot_footer_record.v0 import SnapshotFooterRecord
from kio.schema.snapshot_header_record.v0 import SnapshotHeaderRecord
from kio.schema.voters_record.v0 import data as voters_record
from kio.serial import entity_writer

FILE = "00000000000000000000-0000000000.checkpoint"
"""Its name: a snapshot that ends at offset 0, in epoch 0."""
KRAFT_VERSION = 1
_CONTROL = 0x20
_BASE_OFFSET = 8
"""The length of the base offset, with which a batch begins."""
_HEADER, _FOOTER, _VERSION, _VOTERS = 3, 4, 5, 6
"""The types of control records that it has."""
_FORMATTED_MS = 1_577_836_800_000
_FORMATTED_AT = datetime.fromtimestamp(_FORMATTED_MS / 1000, UTC)
"""The same for all, so that all controllers begin with the same bytes."""
# kio's annotations give every number a type of its own: plain ints work.
_RECORDS: Any = voters_record


@final
@dataclass(frozen=True, slots=True)
class Voter:
    """A controller, the directory that it keeps the metadata in, and where others find it."""

    node_id: int
    directory: UUID
    host: str
    port: int


def first_snapshot(
    voters: Sequence[Voter], listener: str, formatted: bytes = b"", more: Sequence[bytes] = ()
) -> bytes:
    """The snapshot's bytes; voters listen on that listener.

    `formatted` is a snapshot that StorageTool wrote, whose records it takes over; `more` are the
    values of further ones.
    """
    entities: Sequence[tuple[int, Any]] = (
        (
            _HEADER,
            _build(SnapshotHeaderRecord, version=0, last_contained_log_timestamp=_FORMATTED_MS),
        ),
        (_VERSION, _build(KRaftVersionRecord, version=0, k_raft_version=KRAFT_VERSION)),
        (_VOTERS, _voters(voters, listener)),
    )
    return _snapshot(entities, formatted, more)


def with_records(formatted: bytes, more: Sequence[bytes]) -> bytes:
    """A `bootstrap.checkpoint` that StorageTool wrote, with the values of further records."""
    header = _build(SnapshotHeaderRecord, version=0, last_contained_log_timestamp=_FORMATTED_MS)
    return _snapshot([(_HEADER, header)], formatted, more)


def _snapshot(
    entities: Sequence[tuple[int, Any]], formatted: bytes, more: Sequence[bytes]
) -> bytes:
    """A snapshot that begins with these control records."""
    buffer = BytesIO()
    _write(buffer, 0, entities)
    end = len(entities)
    for batch, records in _batches(formatted):
        # A batch's checksum does not cover its base offset, so no other byte changes.
        buffer.write(end.to_bytes(_BASE_OFFSET, "big") + batch[_BASE_OFFSET:])
        end += records
    if more:
        _write_batch(buffer, end, [(None, value) for value in more], attributes=0)
        end += len(more)
    _write(buffer, end, [(_FOOTER, _build(SnapshotFooterRecord, version=0))])
    return buffer.getvalue()


def _batches(snapshot: bytes) -> Iterator[tuple[bytes, int]]:
    """Each batch of a snapshot that has other than control records, and how many it has."""
    at = 0
    while at < len(snapshot):
        batch, size = read_batch(snapshot, at)
        if not batch.attributes & _CONTROL:
            yield snapshot[at : at + size], len(batch.records)
        at += size


def _build(entity: Any, **fields: object) -> Any:
    return entity(**fields)


def _voters(voters: Sequence[Voter], listener: str) -> Any:
    supported = _RECORDS.KRaftVersionFeature(
        min_supported_version=0, max_supported_version=KRAFT_VERSION
    )
    return _RECORDS.VotersRecord(
        version=0,
        voters=tuple(
            _RECORDS.Voter(
                voter_id=voter.node_id,
                voter_directory_id=voter.directory,
                endpoints=(_RECORDS.Endpoint(name=listener, host=voter.host, port=voter.port),),
                k_raft_version_feature=supported,
            )
            for voter in voters
        ),
    )


def _write(buffer: BytesIO, offset: int, entities: Sequence[tuple[int, Any]]) -> None:
    """Adds a batch of control records, from that offset on."""
    keyed = [(b"\0\0" + kind.to_bytes(2, "big"), _bytes(entity)) for kind, entity in entities]
    _write_batch(buffer, offset, keyed, attributes=_CONTROL)


def _write_batch(
    buffer: BytesIO,
    offset: int,
    keyed: Sequence[tuple[bytes | None, bytes]],
    *,
    attributes: int,
) -> None:
    """Adds a batch of records, given by key and value, from that offset on."""
    new_record: Any = Record
    records = tuple(
        new_record(
            attributes=0,
            timestamp=_FORMATTED_AT,
            offset=offset + at,
            key=key,
            value=value,
            headers=(),
        )
        for at, (key, value) in enumerate(keyed)
    )
    batch: Any = NewRecordBatch
    write_new_batch(
        buffer,
        batch(
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            records=records,
            attributes=attributes,
        ),
    )


def _bytes(entity: Any) -> bytes:
    buffer = BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()
