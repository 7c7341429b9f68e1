"""Which record of a stored batch is the first of a time: the batch is read, and nothing is rebuilt.

A batch in the log index has one time, its newest. A record's own time is in the batch, after the
time of its first record, and compressed with the records.
"""

from __future__ import annotations

import zlib

from fencepost_clusters.reference.wire import record_batch

_CODEC = 0x07
_NONE, _GZIP = 0, 1
_GZIP_FORMAT = 16 + zlib.MAX_WBITS
MOST_BYTES = 64 * 1024 * 1024
"""How much of a compressed batch is unpacked, at most."""


def first_from(batch: bytes, timestamp_ms: int) -> tuple[int, int]:
    """(offset, time in ms) of the first record of a batch with that time or a later one.

    The batch's first record stands for a batch that cannot be read, so that no record of that time
    is left out: one compressed with snappy, lz4 or zstd, or with bytes that are no records.
    """
    header = record_batch.parse(batch, verify=False)
    first_ms = record_batch.first_timestamp(batch)
    body = _unpacked(batch[record_batch.HEADER_SIZE : header.size], header.attributes & _CODEC)
    at = 0
    try:
        for _ in range(header.count):
            size, at = record_batch.unzigzag(body, at)
            after_ms, behind = record_batch.unzigzag(body, at + 1)  # behind its attributes
            delta, _ = record_batch.unzigzag(body, behind)
            if size <= 0:
                break
            if first_ms + after_ms >= timestamp_ms:
                return header.base_offset + delta, first_ms + after_ms
            at += size
    except (IndexError, record_batch.CorruptBatch):
        pass
    return header.base_offset, first_ms


def _unpacked(body: bytes, codec: int) -> bytes:
    """The records as bytes; empty if they cannot be unpacked."""
    if codec == _NONE:
        return body
    if codec != _GZIP:
        return b""
    try:
        return zlib.decompressobj(_GZIP_FORMAT).decompress(body, MOST_BYTES)
    except zlib.error:
        return b""
