"""How likely a difference is by chance."""

from __future__ import annotations

from itertools import combinations

import pyarrow as pa
import pytest

from fencepost_reports.many_runs.certainty import at_least, holm, with_significance


@pytest.mark.parametrize("both", range(4))
def test_a_tail_is_the_share_of_all_ways_to_choose(both: int) -> None:
    occurred, failed, windows = 3, 4, 9
    ways = list(combinations(range(windows), failed))
    many = sum(sum(n < occurred for n in way) >= both for way in ways)
    assert at_least(both, occurred, failed, of=windows) == pytest.approx(many / len(ways))


def test_many_comparisons_make_each_say_less() -> None:
    assert holm([0.01, 0.04, 0.03, 1.0]) == pytest.approx([0.04, 0.09, 0.09, 1.0])
    assert holm([]) == []


def rows(*counts: tuple[int, int]) -> pa.Table:
    """Rows of one clause that was violated in 20 of 200 windows."""
    return pa.Table.from_pylist(
        [{"both": both, "occurred": n, "failed": 20, "windows": 200} for both, n in counts]
    )


def test_a_row_differs_if_so_many_violations_are_unlikely_by_chance() -> None:
    found = with_significance(rows((15, 20), (2, 20), (0, 20))).to_pylist()
    assert [row["differs"] for row in found] == [True, False, False]
    assert found[0]["low"] > found[0]["high_elsewhere"]


def test_the_same_counts_say_less_among_many() -> None:
    (alone,) = with_significance(rows((6, 20))).to_pylist()
    among = with_significance(rows((6, 20), *[(2, 20)] * 99)).to_pylist()[0]
    assert (alone["differs"], among["differs"]) == (True, False)
    assert among["low"] < alone["low"] < alone["high"] < among["high"]
