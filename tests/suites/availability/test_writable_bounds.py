"""AVAIL-writable to the millisecond, and what of a cluster it needs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.suites.availability.availability_histories import (
    HARNESS,
    PRODUCER,
    STUCK_MS,
    WRITABLE_MS,
    Story,
    ended,
    stuck,
    writable,
)
from tests.suites.partition_histories import stated, why

from fencepost import NodeStarted
from fencepost.testing import Outcome

# ------------------------------------------------------------------------------- to the millisecond


@pytest.mark.parametrize(("more_ms", "expected"), [(0, "not-exercised"), (1, "violated")])
def test_the_bound_belongs_to_the_time_allowed(more_ms: int, expected: str) -> None:
    story = Story()
    story.write("first")
    story.invoke("next")
    # The first write was acknowledged 2 ms ago.
    story.after(WRITABLE_MS - 2 + more_ms).complete("next")
    found = writable(story)
    assert (found.verdict, found.excused) == (expected, 0)


@pytest.mark.parametrize(("more_ms", "expected"), [(0, "not-exercised"), (1, "violated")])
def test_so_it_does_after_a_disturbance(more_ms: int, expected: str) -> None:
    story = stuck(Story(), 10_000)
    story.fault("pause-2", "broker-2#1")
    story.heal("pause-2")
    story.after(WRITABLE_MS - 1 + more_ms).complete("next")
    assert writable(story).verdict == expected


@pytest.mark.parametrize(("pause_ms", "expected"), [(1_000, "violated"), (1_001, "not-exercised")])
def test_a_pause_is_longer_than_a_second(pause_ms: int, expected: str) -> None:
    story = Story()
    story.invoke("one")
    story.after(WRITABLE_MS - 500).complete("one", "unknown")
    story.after(pause_ms - 1).invoke("two")
    story.after(400)
    assert writable(story).verdict == expected


def attempts(story: Story, number: int, *, taking_ms: int, pause_ms: int) -> Story:
    """Writes that fail, with pauses between them."""
    story.write("first")
    for one in range(number):
        story.after(pause_ms - 1).invoke(f"op-{one}")
        story.after(taking_ms - 1).complete(f"op-{one}", "failed", error="NOT_ENOUGH_REPLICAS")
    return story


@pytest.mark.parametrize(
    ("number", "taking_ms", "pause_ms", "verdict"),
    [
        (300, 800, 2_000, Outcome.VIOLATED),
        (22, 800, 2_000, Outcome.VIOLATED),
        (11, 800, 2_000, Outcome.NOT_EXERCISED),
        (300, 2, 2_000, Outcome.VIOLATED),
        (300, 2, 5_000, Outcome.VIOLATED),
        (300, 2, 5_001, Outcome.VIOLATED),
        (3, 7_000, 60_000, Outcome.VIOLATED),
        (2, 7_000, 60_000, Outcome.NOT_EXERCISED),
    ],
)
def test_attempts_that_fail_with_pauses_between_them_are_one_want(
    number: int, taking_ms: int, pause_ms: int, verdict: Outcome
) -> None:
    story = attempts(Story(), number, taking_ms=taking_ms, pause_ms=pause_ms)
    found = writable(story)
    assert (found.verdict, found.excused) == (verdict, 0)


def test_an_attempt_that_succeeds_after_a_pause_ends_the_want() -> None:
    story = attempts(Story(), 6, taking_ms=2_700, pause_ms=2_000)
    story.after(5_000).write("good")
    assert writable(story).verdict is Outcome.NOT_EXERCISED


def test_pauses_before_a_disturbance_shorten_no_time_after_it() -> None:
    story = attempts(Story(), 3, taking_ms=1_000, pause_ms=30_000)
    story.invoke("next")
    story.fault("pause-2", "broker-2#1")
    story.heal("pause-2")
    assert writable(story.after(STUCK_MS)).verdict is Outcome.VIOLATED


def test_a_write_at_the_very_time_of_the_death_may_have_been_answered_before_it() -> None:
    story = Story()
    story.write("first")
    story.die("broker-1")
    story.after(-1).invoke("same")
    story.complete("same")
    assert writable(story).exercised == 0


def test_the_time_of_a_majority_is_stated() -> None:
    story = stuck(Story(), 10_000)
    story.fault("pause-2", "broker-2#1")
    story.heal("pause-2")
    story.after(STUCK_MS).complete("next")
    assert stated(writable(story), "fit_ns") == 19_001_000_000


# ------------------------------------------------------------------------------------ odds and ends


def test_a_death_is_exercised_once() -> None:
    story = stuck(Story(), 100)
    story.complete("next")
    story.write("more")
    assert writable(story).exercised == 1


def test_an_answer_to_an_unknown_write_is_no_evidence() -> None:
    story = Story()
    story.complete("unknown")
    story.write("known")
    story.complete("unknown")
    assert writable(story).verdict is Outcome.NOT_EXERCISED


def test_an_id_of_which_another_process_lives_has_not_died() -> None:
    story = Story()
    story.write("first")
    story.spawn("broker-1-duplicate")
    story.die("broker-1")
    story.write("next")
    assert writable(story).exercised == 0


def test_a_phase_before_the_end_ends_nothing() -> None:
    story = stuck(Story(), 1_000)
    story.phase("drain")
    story.after(STUCK_MS)
    assert writable(story).verdict is Outcome.VIOLATED


def test_a_broker_that_is_a_controller_too_is_needed() -> None:
    story = Story()
    story.spawn("broker-4")
    story.h.add("broker-4#1", NodeStarted(role="controller", node_id=104))
    story.die("controller-3")
    stuck(story, 1_000)
    story.fault("pause-2", "broker-4#1")
    story.after(STUCK_MS)
    assert why(writable(story), "fault", "process") == ("pause-2", "broker-4")


def test_half_of_the_controllers_are_no_majority() -> None:
    story = stuck(Story(controllers=4), 1_000)
    story.die("controller-1")
    story.die("controller-2")
    story.after(STUCK_MS)
    assert why(writable(story), "running", "voting", "role") == (2, 4, "controller")


def follower_left_out(story: Story) -> None:
    """The leader does not reach one of two followers."""
    story.fault("cut-2", "broker-1", "broker-3", directions=("broker-3 -> broker-1",))


def follower_paused(story: Story) -> None:
    story.fault("pause-2", "broker-3#1")


@pytest.mark.parametrize(
    ("disturb", "fault"), [(follower_left_out, "cut-2"), (follower_paused, "pause-2")]
)
def test_a_fault_upon_what_is_needed_starts_the_bound_anew_though_a_majority_is_left(
    disturb: Callable[[Story], None], fault: str
) -> None:
    story = Story()
    story.write("first")
    story.invoke("next")
    story.after(WRITABLE_MS // 2)
    disturb(story)
    story.after(STUCK_MS - WRITABLE_MS // 2)
    found = writable(story)
    assert (found.verdict, found.excused) == (Outcome.NOT_EXERCISED, 1)
    assert why(found, "fault") == fault


def test_a_refusal_for_good_says_nothing_of_writes_that_are_open() -> None:
    story = Story()
    story.invoke("small")
    story.invoke("large")
    story.after(WRITABLE_MS - 100).complete("large", "failed", error="MESSAGE_TOO_LARGE")
    story.after(1_000)
    assert writable(story).verdict is Outcome.VIOLATED


def test_a_wish_that_no_cluster_would_fulfil_is_forgotten() -> None:
    story = Story()
    story.invoke("large")
    story.after(WRITABLE_MS - 100).complete("large", "failed", error="MESSAGE_TOO_LARGE")
    story.after(100).invoke("small")
    story.after(1_000).complete("small", "unknown")
    assert writable(story).verdict is Outcome.NOT_EXERCISED


def test_after_a_client_has_ended_the_next_wish_is_another_one() -> None:
    story = Story()
    story.invoke("open")
    story.after(WRITABLE_MS - 100).h.add(HARNESS, ended(PRODUCER))
    story.invoke("other", client="clients/other#1")
    story.after(1_000).complete("other", "unknown", client="clients/other#1")
    assert writable(story).verdict is Outcome.NOT_EXERCISED


def test_what_was_disturbed_before_the_last_write_is_no_excuse_at_the_bound() -> None:
    story = Story()
    story.write("first")
    story.fault("pause-2", "controller-2#1")
    story.heal("pause-2")
    story.write("second")
    story.invoke("next")
    story.after(WRITABLE_MS - 2).complete("next")
    assert writable(story).excused == 0
