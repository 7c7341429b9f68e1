"""A replay says what was violated then, and what is now."""

from __future__ import annotations

from fencepost.judging.verdicts import Outcome
from fencepost.runs.replay import then_and_now

HELD, BROKEN, OPEN = Outcome.HOLDS, Outcome.VIOLATED, Outcome.UNKNOWN


def test_what_was_violated_then_is_counted_now() -> None:
    then = {"SENT-03": BROKEN, "SENT-04": HELD, "SENT-05": HELD}
    now = [
        {"SENT-03": HELD, "SENT-04": BROKEN, "SENT-05": HELD},
        {"SENT-03": BROKEN, "SENT-04": HELD, "SENT-05": HELD},
        {"SENT-03": OPEN, "SENT-04": HELD, "SENT-05": HELD},
    ]
    assert then_and_now(then, now) == [
        "SENT-03: violated then, violated in 1 of 3 now; 1 decide nothing",
        "SENT-04: holds then, violated in 1 of 3 now",
    ]


def test_nothing_then_and_nothing_now_is_said() -> None:
    assert then_and_now({"A": HELD}, [{"A": HELD}]) == [
        "nothing was violated then, and nothing is now"
    ]


def test_what_a_run_without_a_whole_history_violated_is_not_known() -> None:
    now = [{"A": HELD, "B": BROKEN}]
    assert then_and_now({}, [{"A": HELD}], whole=False) == [
        "what was violated then is not known (the history of that run is not complete), and "
        "nothing is now"
    ]
    assert then_and_now({"A": BROKEN, "B": OPEN}, now, whole=False) == [
        "A: violated then, violated in 0 of 1 now",
        "B: not known then, violated in 1 of 1 now",
        "what else was violated then is not known: the history of that run is not complete",
    ]
