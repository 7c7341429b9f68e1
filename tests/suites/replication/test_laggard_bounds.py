"""RP-09 to the millisecond, and what gives a leader its time anew."""

from __future__ import annotations

import pytest
from tests.suites.replication.watermark_histories import (
    ALL3,
    B1,
    B2,
    ask,
    lead,
    mark,
    refuse,
    store,
    stored_isr,
    time_out,
    verdict,
)

from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import HighWatermarkAdvanced, LeadershipEnded

ALLOWED_MS = 6_000
"""Twice the time that the leader reports, and 2 s."""


def waiting(ms: int) -> HistoryBuilder:
    """A leader with a write that waits; the next event comes that much later than the write."""
    h = HistoryBuilder()
    lead(h)
    store(h, B1, 0)
    return h.after(ms - 1)


# ------------------------------------------------------------------------------- to the millisecond


@pytest.mark.parametrize(("more_ms", "violated"), [(0, 0), (1, 1)])
def test_a_write_may_wait_for_twice_the_time_and_two_seconds(more_ms: int, violated: int) -> None:
    h = waiting(ALLOWED_MS + more_ms)
    time_out(h)
    h.add(B1, LeadershipEnded(topic="orders", partition=0, leader_epoch=0, reason="metadata"))
    assert verdict(h, "RP-09").violated == violated


def test_the_next_write_shows_that_the_one_before_waits() -> None:
    h = waiting(ALLOWED_MS + 1)
    store(h, B1, 1)
    assert verdict(h, "RP-09").verdict is Outcome.VIOLATED


def test_while_all_is_committed_nothing_waits() -> None:
    h = waiting(1)
    mark(h, 1, 1)
    store(h.after(2 * ALLOWED_MS), B1, 1)
    assert verdict(h, "RP-09").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------- the words of other nodes


def test_a_former_leader_commits_nothing_for_the_present_one() -> None:
    h = waiting(ALLOWED_MS - 1_000)
    body = HighWatermarkAdvanced(
        topic="orders",
        partition=0,
        high_watermark=1,
        log_end=1,
        leader_epoch=0,
        as_leader=True,
        isr=ALL3,
        counted=ALL3,
    )
    h.add(B2, body)
    time_out(h.after(2_000))
    assert verdict(h, "RP-09").verdict is Outcome.VIOLATED


def test_a_former_leader_steps_down_for_itself() -> None:
    h = waiting(1_000)
    h.add(B2, LeadershipEnded(topic="orders", partition=0, leader_epoch=0, reason="metadata"))
    time_out(h.after(ALLOWED_MS))
    assert verdict(h, "RP-09").verdict is Outcome.VIOLATED


def test_an_answer_to_another_broker_is_none_to_the_leader() -> None:
    h = waiting(1_000)
    ask(h, (1, 2))
    refuse(h, "INVALID_REQUEST", B2)
    time_out(h.after(2 * ALLOWED_MS))
    assert verdict(h, "RP-09").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------ when the time begins anew


@pytest.mark.parametrize("asks", [False, True])
def test_a_record_of_the_same_epoch_gives_no_time_anew(asks: bool) -> None:
    h = waiting(1_000)
    if asks:
        ask(h, (1, 2))
        refuse(h, "INVALID_REQUEST")
    stored_isr(h.after(ALLOWED_MS - 2_000), 5, 1, ALL3)
    time_out(h.after(2_000))
    assert verdict(h, "RP-09").verdict is Outcome.VIOLATED


def test_a_leader_that_is_not_alone_any_more_has_its_time_anew() -> None:
    h = waiting(1_000)
    stored_isr(h, 4, 1, (1,))
    stored_isr(h.after(60_000), 5, 1, (1, 2))
    time_out(h.after(ALLOWED_MS - 1_000))
    assert verdict(h, "RP-09").verdict is Outcome.NOT_EXERCISED


def test_a_leader_that_asks_again_without_an_answer_has_its_time_anew() -> None:
    h = waiting(1_000)
    ask(h, (1, 2))
    ask(h.after(ALLOWED_MS - 2_000), (1, 2))
    refuse(h, "INVALID_REQUEST")
    time_out(h.after(2_000))
    assert verdict(h, "RP-09").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------- what exercises it


@pytest.mark.parametrize(
    ("epoch", "isr", "outcome"),
    [
        (1, (1, 2), Outcome.HOLDS),
        (2, (1, 2), Outcome.HOLDS),
        (2, ALL3, Outcome.NOT_EXERCISED),
        (0, (1, 2), Outcome.NOT_EXERCISED),
    ],
    ids=["the same epoch", "the next one", "with the laggard", "a former epoch"],
)
def test_the_stored_isr_without_the_laggard_exercises_rp_09(
    epoch: int, isr: tuple[int, ...], outcome: Outcome
) -> None:
    h = waiting(2_000)
    ask(h, (1, 2))
    stored_isr(h, 5, epoch, isr)
    mark(h, 1, 1, counted=isr, isr=isr, epoch=2)
    assert verdict(h, "RP-09").verdict is outcome


@pytest.mark.parametrize(("lag_ms", "exercised"), [(0, 0), (1, 1)])
def test_a_member_that_leaves_without_a_lag_does_not_exercise_rp_09(
    lag_ms: int, exercised: int
) -> None:
    """Such as a broker that is fenced, or shuts down."""
    h = waiting(2_000)
    ask(h, (1, 2), lag_ms=lag_ms)
    stored_isr(h, 5, 2, (1, 2))
    mark(h, 1, 1, counted=(1, 2), isr=(1, 2), epoch=2)
    assert verdict(h, "RP-09").exercised == exercised
