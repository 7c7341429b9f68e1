"""The end of a run in words."""

from __future__ import annotations

import pytest

from fencepost.history.run_end import RunEnd

S = 1_000_000_000


@pytest.mark.parametrize(
    ("stalls", "says"),
    [
        ((), ""),
        ((("harness", 0, S - 1),), ""),
        ((("broker-1#1", 0, 10 * S),), ""),
        ((("harness", 0, 10 * S),), "stalled: the harness did not run for 10.0 s in all; what"),
        (
            (("a#1", 0, S // 2), ("harness", 0, 2 * S), ("harness", 4 * S, 9 * S // 2)),
            "the harness did not run for 2.5 s in all, 2 times; what came late",
        ),
    ],
)
def test_a_long_stall_is_named(stalls: tuple[tuple[str, int, int], ...], says: str) -> None:
    words = RunEnd(complete=True, ended_at_ns=10 * S, stalls=stalls).stalled_in_words
    assert bool(words) == bool(says)
    assert says in words


def test_a_run_without_known_damage_was_cut_short() -> None:
    assert RunEnd(complete=False, ended_at_ns=0).lacks == "the run was cut short"
