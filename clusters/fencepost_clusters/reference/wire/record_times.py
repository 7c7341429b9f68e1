"""Which record of a stored batch is the first of a time: the batch is read, and nothing is rebuilt.

A batch in the log index has one time, its newest. A record's own time is in the batch, after the
time of its first record, and compressed with the records.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping

import cramjam

from fencepost_clusters.reference.wire import record_batch

_CODEC = 0x07
_NONE, _GZIP, _SNAPPY, _LZ4, _ZSTD = range(5)
_GZIP_FORMAT = 16 + zlib.MAX_WBITS
_IN_BLOCKS = b"\x82SNAPPY\0"
"""What a batch begins with that Java's library compressed: blocks, each after its length."""
_BLOCKS_AT = 16
MOST_BYTES = 64 * 1024 * 1024
"""How much of a compressed batch is unpacked, at most."""
_LEAST_ROOM = 64 * 1024
_EXPECTED = 8
"""A batch is expected to have at most that many times its compressed size."""
Into = Callable[[bytes, bytearray], int]
_INTO: Mapping[int, Into] = {_LZ4: cramjam.lz4.decompress_into, _ZSTD: cramjam.zstd.decompress_into}
"""The functions that unpack into given room, and fail if it is too small."""


def first_from(batch: bytes, timestamp_ms: int) -> tuple[int, int]:
    """(offset, time in ms) of the first record of a batch with that time or a later one.

    The batch's first record stands for a batch that cannot be read, so that no record of that time
    is left out: bytes that are no records, or too many of them.
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
    """The records as bytes; empty if they cannot be unpacked, or are more than the limit. Of gzip
    it is what is below the limit."""
    try:
        if codec == _NONE:
            return body
        if codec == _GZIP:
            return zlib.decompressobj(_GZIP_FORMAT).decompress(body, MOST_BYTES)
        if codec == _SNAPPY:
            return _unsnapped(body)
        return _with_room(_INTO[codec], body) if codec in _INTO else b""
    except (zlib.error, cramjam.DecompressionError):
        return b""


def _with_room(into: Into, body: bytes) -> bytes:
    """Raises DecompressionError for bytes that cannot be unpacked."""
    room = max(_LEAST_ROOM, _EXPECTED * len(body))
    while True:
        found = bytearray(min(room, MOST_BYTES))
        try:
            return bytes(found[: into(body, found)])
        except cramjam.DecompressionError:
            if room >= MOST_BYTES:
                raise
        room *= _EXPECTED


def _unsnapped(body: bytes) -> bytes:
    """Raises DecompressionError for bytes that cannot be unpacked."""
    if not body.startswith(_IN_BLOCKS):
        return _unsnapped_block(body, MOST_BYTES)
    found, at = b"", _BLOCKS_AT
    while at < len(body):
        size = int.from_bytes(body[at : at + 4], "big")
        found += _unsnapped_block(body[at + 4 : at + 4 + size], MOST_BYTES - len(found))
        at += 4 + size
    return found


def _unsnapped_block(body: bytes, most: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(body) > most:
        return b""
    return bytes(cramjam.snappy.decompress_raw(body))
