"""How long several runs may take."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from warm_start import fencepost

from fencepost.model.budget import Budget, in_rounds
from fencepost.model.errors import EXIT_CLEAN, EXIT_USAGE

ROUNDS = in_rounds(7, 2)


def begun(limit: int | None, took: Iterable[int]) -> tuple[list[range], bool]:
    """The rounds that begin, if they take so long one after the other; whether the time was
    spent."""
    now, lengths = 0, iter(took)
    budget = Budget(limit, lambda: now)
    rounds = []
    for one in budget.rounds(ROUNDS):
        rounds.append(one)
        now += next(lengths)
    return rounds, budget.spent


def test_runs_take_place_in_rounds_of_as_many_as_there_are_jobs() -> None:
    assert [range(0, 2), range(2, 4), range(4, 6), range(6, 7)] == ROUNDS
    assert in_rounds(0, 3) == []


@pytest.mark.parametrize(
    ("limit", "took", "rounds", "spent"),
    [
        (None, [9, 9, 9, 9], 4, False),
        (100, [9, 9, 9, 9], 4, False),
        (5, [9], 1, True),  # the first always begins
        (21, [10], 2, True),  # 10 and 11 at most
        (20, [10], 1, True),
        (100, [10, 40, 10], 3, True),  # as long as the longest
        (104, [10, 40, 10, 10], 4, False),
    ],
)
def test_no_round_begins_that_may_not_end_in_time(
    limit: int | None, took: list[int], rounds: int, spent: bool
) -> None:
    assert begun(limit, [*took, *[took[-1]] * 4]) == (list(ROUNDS[:rounds]), spent)


SOAK = ("soak", "--runtime", "simulated", "--jobs=1", "--minutes=0.05")


@pytest.mark.tool
def test_a_soak_stops_in_time_with_what_it_has(tmp_path: Path) -> None:
    done = fencepost(*SOAK, "--runs=500", "--budget=4s", f"--out={tmp_path}")
    assert done.returncode == EXIT_CLEAN, done.stdout + done.stderr
    assert "no time was left for more of the 500 that were asked for" in done.stdout
    asked = fencepost(*SOAK, "--runs=1", "--budget=2h", f"--out={tmp_path}", "--json")
    assert json.loads(asked.stdout)["stopped_by_budget"] is False


@pytest.mark.tool
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("20", "is no time such as 90s, 20m or 2h"),
        ("0m", "is no time such as 90s, 20m or 2h"),
        ("1d", "is no time such as 90s, 20m or 2h"),
        ("3s", "--budget has no time for one run, which injects faults for 0.05 minutes"),
    ],
)
def test_a_time_that_is_none_or_too_short_is_refused(text: str, says: str) -> None:
    done = fencepost(*SOAK, f"--budget={text}")
    assert done.returncode == EXIT_USAGE
    assert says in " ".join(done.stderr.split())
