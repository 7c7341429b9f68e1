"""The first record of a time within a batch, also one that is compressed or no batch of records."""

from __future__ import annotations

import pytest
from batches import GZIP, NONE, SNAPPY, timed

from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire.record_times import first_from

TIMES = (5000, 5500, 5200, 7000, 6500)


@pytest.mark.parametrize("codec", [NONE, GZIP])
@pytest.mark.parametrize(
    ("wanted", "found"),
    [(0, 0), (5000, 0), (5001, 1), (5500, 1), (5501, 3), (7000, 3)],
)
def test_the_first_record_of_a_time_is_found(codec: int, wanted: int, found: int) -> None:
    batch = record_batch.stamp(timed(TIMES, codec), 40, 2)
    assert first_from(batch, wanted) == (40 + found, TIMES[found])


@pytest.mark.parametrize(
    "batch",
    [
        timed(TIMES, SNAPPY),
        timed(TIMES, GZIP, body=b"no gzip"),
        timed(TIMES, body=b"\x80" * 100_000),
        timed(TIMES, body=b""),
        timed(TIMES, body=b"\x01" * 50),
    ],
    ids=["snappy", "no gzip", "an endless number", "empty", "a negative size"],
)
def test_the_first_record_stands_for_a_batch_that_cannot_be_read(batch: bytes) -> None:
    assert first_from(record_batch.stamp(batch, 40, 2), 7000) == (40, 5000)
