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
        ((("harness", 0, 10 * S),), "this machine stalled: harness for 10.0 s did not run; "),
        (
            (("a#1", 0, S // 2), ("harness", 0, 2 * S), ("a#1", S, 2 * S)),
            "this machine stalled: harness for 2.0 s, a#1 for 1.5 s did not run; ",
        ),
        (
            tuple((f"n-{n}#1", 0, (9 - n) * S) for n in range(5)),
            "n-1#1 for 8.0 s, n-2#1 for 7.0 s and 2 more processes did not run",
        ),
    ],
)
def test_a_long_stall_is_named(stalls: tuple[tuple[str, int, int], ...], says: str) -> None:
    words = RunEnd(complete=True, ended_at_ns=10 * S, stalls=stalls).stalled_in_words
    assert bool(words) == bool(says)
    assert says in words


def test_a_run_without_known_damage_was_cut_short() -> None:
    assert RunEnd(complete=False, ended_at_ns=0).lacks == "the run was cut short"
