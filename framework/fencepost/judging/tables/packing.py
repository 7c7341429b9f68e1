"""Tables as the bytes of a file: JSON that is compressed, since its words repeat."""

from __future__ import annotations

import gzip
import zlib

import msgspec

from fencepost.history.files import decoded
from fencepost.judging.tables.rows import Tables

MOST_BYTES = 1 << 30
"""The most bytes of JSON that are unpacked."""


def packed(tables: Tables) -> bytes:
    """The bytes of a file; the same for equal tables."""
    return gzip.compress(msgspec.json.encode(tables), 1, mtime=0)


def unpacked(data: bytes) -> Tables:
    """The tables of `packed`; raises msgspec.DecodeError for other bytes."""
    reading = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        text = reading.decompress(data, MOST_BYTES)
    except zlib.error as wrong:
        raise msgspec.DecodeError(f"the tables are not packed: {wrong}") from wrong
    if not reading.eof:
        raise msgspec.DecodeError(f"the tables are cut off, or have more than {MOST_BYTES} bytes")
    return decoded(text, Tables)
