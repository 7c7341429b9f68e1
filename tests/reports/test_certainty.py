"""How likely a difference is by chance."""

from __future__ import annotations

from itertools import combinations

import pyarrow as pa
import pytest

from fencepost_reports.many_runs.certainty import (
    ALPHA,
    at_least,
    comparable,
    holm,
    with_significance,
)


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


def test_rows_that_cannot_differ_do_not_make_the_others_say_less() -> None:
    alone = with_significance(rows((6, 20))).to_pylist()[0]
    found = with_significance(rows((6, 20), *[(1, 1)] * 99)).to_pylist()
    assert [row["compared"] for row in found] == [True, *[False] * 99]
    assert found[0]["p"] == pytest.approx(alone["p"])
    assert found[0]["differs"]
    # One window that a violation followed is nothing unlikely, however many rows there are.
    assert {(row["p"], row["differs"]) for row in found[1:]} == {(1.0, False)}


@pytest.mark.parametrize(
    ("least", "compared"),
    [
        ([], []),
        ([0.5], []),
        ([0.04], [0]),
        ([0.5, 0.001, 0.2], [1]),
        ([0.04, 0.04], []),
        # Three could be as unlikely as a half of the level, and so a third of it is needed.
        ([0.02, 0.024, 0.001, 0.9], [2]),
        ([0.0001] * 3, [0, 1, 2]),
    ],
)
def test_a_row_is_compared_if_it_can_be_unlikely_enough(
    least: list[float], compared: list[int]
) -> None:
    assert sorted(comparable(least)) == compared


def test_no_more_is_found_by_chance_for_rows_that_are_left_out() -> None:
    """Of all ways in which violations may lie, few give any row that differs."""
    occurred, failed, windows = (2, 3, 5, 1, 1, 1), 4, 12
    ways = list(combinations(range(windows), failed))
    wrong = 0
    for way in ways:
        table = pa.Table.from_pylist(
            [
                {"both": sum(n < of for n in way), "occurred": of, "failed": 4, "windows": windows}
                for of in occurred
            ]
        )
        wrong += any(row["differs"] for row in with_significance(table).to_pylist())
    assert 0 < wrong / len(ways) <= ALPHA
