"""Times and partitions in messages."""

from __future__ import annotations

import pytest

from fencepost import span
from fencepost_suites.common.words import named


@pytest.mark.parametrize(
    ("ns", "text"),
    [(999_999_999, "999 ms"), (1_000_000_000, "1.0 s"), (5_240_000_000, "5.2 s"), (0, "0 ms")],
)
def test_a_time_is_in_seconds_from_one_second_on(ns: int, text: str) -> None:
    assert span(ns) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, ""),
        (1, "t-0"),
        (2, "t-0 and t-1"),
        (3, "t-0, t-1 and t-2"),
        (4, "t-0, t-1, t-2 and 1 more"),
    ],
)
def test_up_to_three_partitions_are_named(count: int, text: str) -> None:
    assert named(("t", index) for index in range(count)) == text
