"""Record batches (magic 2) as raw bytes: parsed by header, checked, stamped, never rebuilt.

`base_offset` (bytes 0-7) and `partition_leader_epoch` (12-15) are outside the checksum, so a leader
sets both without a change to the client's bytes. Only batches of metadata records are decoded; this
cluster writes them itself, uncompressed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from crc32c import crc32c

from fencepost_clusters.reference.wire.batch_header import CONTROL, BatchHeader

_HEADER = struct.Struct(">qiiBIhiqqqhii")
HEADER_SIZE = _HEADER.size
_STAMP = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
CRC_FROM = 21
"""The checksum covers the batch from its attributes on."""
FIRST_TIMESTAMP_AT = 27


class CorruptBatch(ValueError):
    """Bytes that are no whole, intact sequence of record batches of magic 2."""


def parse(data: bytes, at: int = 0, verify: bool = True) -> BatchHeader:
    """The header of the batch at `at`; raises CorruptBatch if it is cut short or altered."""
    if len(data) - at < HEADER_SIZE:
        raise CorruptBatch(f"{len(data) - at} bytes cannot hold a batch header")
    (
        base_offset, length, leader_epoch, magic, crc, attributes, last_delta, _first_timestamp,
        max_timestamp, producer_id, producer_epoch, base_sequence, count,
    ) = _HEADER.unpack_from(data, at)  # fmt: skip
    # The length in the header counts from behind itself: 8 bytes of base offset and 4 of length
    # come before.
    size = length + 12
    if magic != 2:
        raise CorruptBatch(f"magic {magic}, not 2")
    if size < HEADER_SIZE or at + size > len(data):
        raise CorruptBatch(f"a batch of {size} bytes in {len(data) - at}")
    # Offsets without gaps: the log's arithmetic counts one offset for each record.
    if count < 1 or last_delta != count - 1:
        raise CorruptBatch(f"{count} records with last offset delta {last_delta}")
    if verify and crc32c(memoryview(data)[at + CRC_FROM : at + size]) != crc:
        raise CorruptBatch("checksum mismatch")
    return BatchHeader(
        base_offset=base_offset,
        size=size,
        leader_epoch=leader_epoch,
        attributes=attributes,
        last_offset_delta=last_delta,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=count,
        crc=crc,
    )


def first_timestamp(batch: bytes) -> int:
    """The time of a batch's first record, in milliseconds; the other records' follow from it."""
    (found,) = _STAMP.unpack_from(batch, FIRST_TIMESTAMP_AT)
    return int(found)


def split(data: bytes, verify: bool = True) -> Iterator[tuple[BatchHeader, bytes]]:
    """The batches that `data` is made of, each with its bytes; raises CorruptBatch."""
    at = 0
    while at < len(data):
        header = parse(data, at, verify)
        yield header, data[at : at + header.size]
        at += header.size


def stamp(batch: bytes, base_offset: int, leader_epoch: int) -> bytes:
    """The same batch at another offset and leader epoch."""
    return b"".join((_STAMP.pack(base_offset), batch[8:12], _EPOCH.pack(leader_epoch), batch[16:]))


def build(
    values: Sequence[bytes],
    base_offset: int,
    leader_epoch: int,
    timestamp_ms: int,
    *,
    control: bool = False,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """A batch of records with null keys and these values.

    `producer` is an idempotent producer's id and epoch, and the batch's first sequence number.
    """
    assert values, "a batch holds at least one record"
    body = bytearray()
    for delta, value in enumerate(values):
        record = bytearray(b"\x00")  # attributes
        record += _zigzag(0) + _zigzag(delta) + _zigzag(-1)  # timestamp delta, offset delta, no key
        record += _zigzag(len(value)) + value + _zigzag(0)  # no headers
        body += _zigzag(len(record)) + record
    size = HEADER_SIZE + len(body)
    header = _HEADER.pack(
        base_offset, size - 12, leader_epoch, 2, 0, CONTROL if control else 0, len(values) - 1,
        timestamp_ms, timestamp_ms, *producer, len(values),
    )  # fmt: skip
    whole = bytearray(header + body)
    # The checksum comes last, since it covers the whole batch behind it.
    struct.pack_into(">I", whole, 17, crc32c(memoryview(whole)[CRC_FROM:]))
    return bytes(whole)


def values(batch: bytes) -> tuple[bytes, ...]:
    """The values of an uncompressed batch's records; raises CorruptBatch."""
    header = parse(batch, verify=False)
    found: list[bytes] = []
    at = HEADER_SIZE
    try:
        for _ in range(header.count):
            length, at = unzigzag(batch, at)
            end = at + length
            _, at = unzigzag(batch, at + 1)
            _, at = unzigzag(batch, at)
            key_length, at = unzigzag(batch, at)
            at += max(0, key_length)
            value_length, at = unzigzag(batch, at)
            if value_length < 0 or at + value_length > end > len(batch):
                raise CorruptBatch("a record's value does not fit into it")
            found.append(batch[at : at + value_length])
            # Headers of the record, if any, are skipped: its length tells where the next one
            # begins.
            at = end
    except IndexError:
        raise CorruptBatch("a record is cut short") from None
    return tuple(found)


def _zigzag(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def unzigzag(data: bytes, at: int) -> tuple[int, int]:
    """A signed number of a record, and where it ends. Raises IndexError behind the data, and
    CorruptBatch for a number of more than ten bytes."""
    rest = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        rest |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (rest >> 1) ^ -(rest & 1), at
        shift += 7
    raise CorruptBatch("a number of more than ten bytes")
