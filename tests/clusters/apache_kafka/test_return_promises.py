"""The rule about voters that return to the quorum (KR-11): violations, near misses and undecided
histories."""

from __future__ import annotations

import pytest
from tests.clusters.apache_kafka.kraft_histories import ended, verdict
from tests.clusters.apache_kafka.quorum_histories import (
    AWAY_MS,
    MS,
    ONE,
    TWO,
    around,
    cut,
    elected,
    healed,
    paused,
    quorum,
    resigned,
)
from tests.suites.partition_histories import stated

from fencepost import Administered, FaultInjected, ProcessExited, Stalled
from fencepost.testing import HistoryBuilder, Outcome


def away(h: HistoryBuilder, slot: str = "controller-3", for_ms: int = AWAY_MS) -> None:
    """A controller is cut off from the others, and returns."""
    cut(h, around(slot))
    h.after(for_ms)
    healed(h)


def test_a_return_that_deposes_the_active_controller_breaks_kr_11() -> None:
    h = quorum()
    away(h)
    h.after(200)
    resigned(h, "higher_epoch")
    (found,) = verdict(h, "KR-11").violations
    assert stated(found, "process", "epoch", "slot") == (ONE, 4, "controller-3")


def test_a_controller_that_is_deposed_before_the_healing_is_recorded_counts() -> None:
    for before_ms, broken in ((100, 1), (300, 0)):
        h = quorum()
        cut(h, around("controller-3"))
        h.after(AWAY_MS)
        began_ns = h.now_ns + 200 * MS
        h.after(300 - before_ms)
        resigned(h, "higher_epoch")
        h.after(before_ms)
        healed(h, began_ns=began_ns)
        assert verdict(h, "KR-11").violated == broken, before_ms


def test_a_controller_that_goes_on_after_a_return_exercises_kr_11() -> None:
    h = quorum()
    away(h)
    h.after(AWAY_MS + 1)
    elected(h, TWO, 9)
    assert verdict(h, "KR-11").verdict is Outcome.HOLDS


@pytest.mark.parametrize(("went_on_ms", "exercised"), [(AWAY_MS, 0), (AWAY_MS + 1, 1)])
def test_a_run_that_ends_after_two_fetch_timeouts_exercises_kr_11(
    went_on_ms: int, exercised: int
) -> None:
    h = quorum()
    away(h)
    h.after(went_on_ms - 1)
    assert verdict(h, "KR-11").exercised == exercised
    assert verdict(h, "KR-11", complete=False).exercised == 0


@pytest.mark.parametrize(("later_ms", "broken"), [(AWAY_MS, 1), (AWAY_MS + 1, 0)])
def test_a_controller_that_is_deposed_after_two_fetch_timeouts_exercises_kr_11(
    later_ms: int, broken: int
) -> None:
    h = quorum()
    away(h)
    resigned(h.after(later_ms - 1), "higher_epoch")
    found = verdict(h, "KR-11")
    assert (found.violated, found.exercised) == (broken, 1 - broken)


def test_a_controller_that_was_asked_to_end_was_not_deposed_by_a_return() -> None:
    """It names its successor. The harness records the signal once the process has ended."""
    for asked_ms, broken in ((100, 0), (300, 1)):
        h = quorum()
        away(h)
        asked_ns = h.now_ns + asked_ms * MS
        resigned(h.after(200), "higher_epoch")
        h.after(400).add("harness", ProcessExited(ended=ONE, exit_code=0, signal=0, expected=True))
        ending = FaultInjected(
            fault_id="terminate-1", fault="terminate", targets=(ONE,), receipt=True,
            evidence="seen", began_at_ns=asked_ns,
        )  # fmt: skip
        h.add("harness", ending)
        assert verdict(h, "KR-11").violated == broken, asked_ms


def test_a_change_of_voters_decides_nothing_for_kr_11() -> None:
    h = quorum()
    away(h)
    asked = Administered(operation="remove_voter", arguments="{}", targets=("controller-1",))
    h.add("harness", asked)
    resigned(h.after(200), "higher_epoch")
    assert verdict(h, "KR-11").verdict is Outcome.NOT_EXERCISED


def test_a_controller_that_lost_its_majority_was_not_deposed_by_a_return() -> None:
    h = quorum()
    away(h)
    h.after(200)
    resigned(h, "no_majority")
    assert verdict(h, "KR-11").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("away_ms", "broken"), [(AWAY_MS - 1, 0), (AWAY_MS, 1)])
def test_a_voter_that_was_away_for_less_than_two_fetch_timeouts_is_no_candidate(
    away_ms: int, broken: int
) -> None:
    h = quorum()
    away(h, for_ms=away_ms - 1)
    h.after(200)
    resigned(h, "higher_epoch")
    assert verdict(h, "KR-11").violated == broken


def test_the_return_of_the_active_controller_is_not_judged_by_kr_11() -> None:
    h = quorum()
    away(h, "controller-1")
    h.after(200)
    resigned(h, "higher_epoch")
    assert verdict(h, "KR-11").verdict is Outcome.NOT_EXERCISED


def test_a_voter_that_some_link_still_joined_did_not_return() -> None:
    h = quorum()
    cut(h, around("controller-3")[:3])
    h.after(AWAY_MS)
    healed(h)
    h.after(200)
    resigned(h, "higher_epoch")
    assert verdict(h, "KR-11").verdict is Outcome.NOT_EXERCISED


def test_what_else_acts_upon_the_quorum_leaves_kr_11_alone() -> None:
    for trouble in (
        lambda h: paused(h, TWO),
        lambda h: cut(h, [("controller-1", "controller-2")], "cut-2"),
        lambda h: ended(h, TWO),
    ):
        h = quorum()
        trouble(h)
        away(h)
        h.after(200)
        resigned(h, "higher_epoch")
        assert verdict(h, "KR-11").verdict is Outcome.NOT_EXERCISED
        h = quorum()
        away(h)
        trouble(h)
        h.after(200)
        resigned(h, "higher_epoch")
        assert verdict(h, "KR-11").verdict is Outcome.NOT_EXERCISED
    for unrelated in (
        lambda h: paused(h, "broker-1#1"),
        lambda h: cut(h, [("controller-1", "broker-2")], "cut-2"),
        lambda h: ended(h, "broker-1#1"),
    ):
        h = quorum()
        unrelated(h)
        away(h)
        unrelated(h)
        h.after(200)
        resigned(h, "higher_epoch")
        assert verdict(h, "KR-11").violated == 1


def test_a_stall_leaves_kr_11_open() -> None:
    h = quorum()
    away(h)
    h.after(200)
    h.add(TWO, Stalled(stalled_ns=200 * MS))
    resigned(h, "higher_epoch")
    assert verdict(h, "KR-11").verdict is Outcome.UNKNOWN


def test_a_run_that_is_cut_short_after_a_return_does_not_exercise_kr_11() -> None:
    h = quorum()
    away(h)
    assert verdict(h, "KR-11", complete=False).verdict is not Outcome.HOLDS
