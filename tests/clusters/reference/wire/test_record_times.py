"""The first record of a time within a batch, also one that is compressed or no batch of records."""

from __future__ import annotations

import pytest
from batches import GZIP, LZ4, NONE, PACK, SNAPPY, ZSTD, in_blocks, timed

from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire.record_times import MOST_BYTES, first_from

TIMES = (5000, 5500, 5200, 7000, 6500)


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize(
    ("wanted", "found"),
    [(0, 0), (5000, 0), (5001, 1), (5500, 1), (5501, 3), (7000, 3)],
)
def test_the_first_record_of_a_time_is_found(codec: int, wanted: int, found: int) -> None:
    batch = record_batch.stamp(timed(TIMES, codec), 40, 2)
    assert first_from(batch, wanted) == (40 + found, TIMES[found])


def test_the_blocks_of_javas_snappy_are_read() -> None:
    plain = timed(TIMES)[record_batch.HEADER_SIZE :]
    batch = timed(TIMES, SNAPPY, body=in_blocks(plain, 7))
    assert first_from(record_batch.stamp(batch, 40, 2), 5501) == (43, 7000)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_batch_that_unpacks_to_a_thousand_times_its_size_is_read(codec: int) -> None:
    plain = timed(TIMES)[record_batch.HEADER_SIZE :] + bytes(MOST_BYTES // 2)
    batch = record_batch.stamp(timed(TIMES, codec, body=PACK[codec](plain)), 40, 2)
    assert first_from(batch, 7000) == (43, 7000)


@pytest.mark.parametrize("codec", [SNAPPY, LZ4, ZSTD])
def test_the_first_record_stands_for_a_batch_beyond_the_limit(codec: int) -> None:
    plain = timed(TIMES)[record_batch.HEADER_SIZE :] + bytes(MOST_BYTES)
    batch = record_batch.stamp(timed(TIMES, codec, body=PACK[codec](plain)), 40, 2)
    assert first_from(batch, 7000) == (40, 5000)


@pytest.mark.parametrize(
    "batch",
    [
        *(timed(TIMES, codec, body=b"not packed") for codec in (GZIP, SNAPPY, LZ4, ZSTD, 5, 7)),
        timed(TIMES, SNAPPY, body=in_blocks(b"records", 3)[:-1]),
        timed(TIMES, SNAPPY, body=in_blocks(b"", 3) + b"\xff\xff\xff\xff"),
        timed(TIMES, body=b"\x80" * 100_000),
        timed(TIMES, body=b""),
        timed(TIMES, body=b"\x01" * 50),
    ],
    ids=[
        *("gzip", "snappy", "lz4", "zstd", "codec 5", "codec 7", "half a block", "no block"),
        *["an endless number", "empty", "a negative size"],
    ],
)
def test_the_first_record_stands_for_a_batch_that_cannot_be_read(batch: bytes) -> None:
    assert first_from(record_batch.stamp(batch, 40, 2), 7000) == (40, 5000)
