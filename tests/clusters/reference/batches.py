"""Batches as foreign clients build them: each record has a time, and the records are compressed."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Mapping, Sequence

import cramjam
from crc32c import crc32c

from fencepost_clusters.reference.wire import record_batch

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
PACK: Mapping[int, Callable[[bytes], bytes]] = {
    NONE: bytes,
    GZIP: gzip.compress,
    SNAPPY: lambda records: bytes(cramjam.snappy.compress_raw(records)),
    LZ4: lambda records: bytes(cramjam.lz4.compress(records)),
    ZSTD: lambda records: bytes(cramjam.zstd.compress(records)),
}
"""How a client compresses records, by its codec."""


def small(number: int) -> bytes:
    """A signed number of at most two bytes, as a record has it."""
    zigzag = (number << 1) ^ (number >> 63)
    return bytes([zigzag]) if zigzag < 0x80 else bytes([zigzag & 0x7F | 0x80, zigzag >> 7])


def timed(times_ms: Sequence[int], codec: int = NONE, body: bytes | None = None) -> bytes:
    """A batch of a record for each time, at most 8 s from the first; `body` in place of them."""
    records = b""
    for delta, time_ms in enumerate(times_ms):
        after = small(time_ms - times_ms[0])
        record = b"\0" + after + small(delta) + small(-1) + small(1) + b"x" + small(0)
        records += small(len(record)) + record
    records = PACK[codec](records) if body is None else body
    whole = bytearray(record_batch.build([b"x"], 0, -1, times_ms[0])[: record_batch.HEADER_SIZE])
    whole += records
    struct.pack_into(">i", whole, 8, len(whole) - 12)
    struct.pack_into(">hi", whole, 21, codec, len(times_ms) - 1)
    struct.pack_into(">q", whole, 35, max(times_ms))
    struct.pack_into(">i", whole, 57, len(times_ms))
    struct.pack_into(">I", whole, 17, crc32c(bytes(whole[record_batch.CRC_FROM :])))
    return bytes(whole)


def in_blocks(records: bytes, size: int) -> bytes:
    """Records as Java's library compresses them with snappy: in blocks, each after its length."""
    packed = [PACK[SNAPPY](records[at : at + size]) for at in range(0, len(records), size)]
    head = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    return head + b"".join(struct.pack(">i", len(one)) + one for one in packed)
