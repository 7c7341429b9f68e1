"""The high watermark to the offset and the millisecond: RP-07, RP-27 and RP-32."""

from __future__ import annotations

import pytest
from tests.suites.replication.watermark_histories import (
    ALL3,
    B1,
    B2,
    CONSUMER,
    ask,
    follow,
    lead,
    learn,
    mark,
    store,
    stored_isr,
    verdict,
)

from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import LeadershipEnded, LeadershipStarted, Polled

# ------------------------------------------------------------------------------------------ RP-07


def test_a_message_read_before_anything_was_committed_breaks_rp_07() -> None:
    h = HistoryBuilder()
    mark(h, 0, 1)
    h.add(
        CONSUMER,
        Polled(topic="orders", partition=0, offsets=(0,), operations=("op",), final=False),
    )
    assert verdict(h, "RP-07").verdict is Outcome.VIOLATED


# ------------------------------------------------------------------------------------------ RP-27


def unlearnt(later_ms: int) -> HistoryBuilder:
    """A follower stores a message that makes a high watermark of 1 due; the next event comes that
    much later."""
    h = HistoryBuilder()
    lead(h)
    follow(h)
    store(h, B2, 0)
    mark(h, 1, 9)
    store(h, B2, 1)
    return h.after(later_ms - 1)


@pytest.mark.parametrize(
    ("first_ms", "next_ms", "violated"),
    [(2_001, 500, 1), (2_001, 499, 0), (2_000, 500, 0)],
    ids=["both", "half a second", "two seconds"],
)
def test_a_follower_has_two_seconds_and_then_half_a_second(
    first_ms: int, next_ms: int, violated: int
) -> None:
    h = unlearnt(first_ms)
    store(h, B2, 2)
    store(h.after(next_ms - 1), B2, 3)
    assert verdict(h, "RP-27").violated == violated


def test_a_message_that_was_late_before_says_nothing_of_the_next_high_watermark() -> None:
    """It is late, the high watermark is learnt, and the next one becomes due in one moment."""
    h = unlearnt(2_001)
    store(h, B2, 2)
    mark(h, 3, 9)
    learn(h.after(-2), 1, 3)
    store(h.after(-1), B2, 3)
    store(h.after(2_000), B2, 4)
    assert verdict(h, "RP-27").verdict is Outcome.HOLDS


def test_a_lower_high_watermark_of_the_same_leader_takes_nothing_back() -> None:
    """It names the beginning of its term after its first high watermark."""
    h = HistoryBuilder()
    mark(h, 5, 9)
    lead(h)
    follow(h, log_end=5, own=4)
    for offset in (5, 6, 7, 8):
        store(h, B2, offset)
        h.after(2_000)
    assert verdict(h, "RP-27").violated == 1


def test_a_leader_learns_nothing_of_its_own_messages() -> None:
    h = HistoryBuilder()
    follow(h)
    mark(h, 1, 9)
    for offset in range(5):
        # Broker 2 has been elected, and says so when it has stored its first messages.
        store(h, B2, offset, as_leader=True)
        h.after(2_000)
    assert verdict(h, "RP-27").verdict is Outcome.NOT_EXERCISED


def test_a_replica_that_has_not_said_whom_it_follows_owes_nothing() -> None:
    h = HistoryBuilder()
    mark(h, 1, 9)
    for offset in range(5):
        store(h, B2, offset)
        h.after(2_000)
    assert verdict(h, "RP-27").verdict is Outcome.NOT_EXERCISED


def test_what_a_leader_says_of_its_time_as_a_follower_does_not_exercise_rp_27() -> None:
    h = HistoryBuilder()
    follow(h)
    mark(h, 9, 9)
    body = LeadershipStarted(
        topic="orders",
        partition=0,
        leader_epoch=2,
        isr=ALL3,
        log_start=0,
        log_end=5,
        high_watermark=3,
    )
    h.add(B2, body)
    learn(h, 3, 5)
    assert verdict(h, "RP-27").verdict is Outcome.NOT_EXERCISED


def test_a_high_watermark_that_is_the_leaders_own_is_capped_by_no_log() -> None:
    h = HistoryBuilder()
    follow(h)
    for end in (1, 2):
        mark(h, end, end)
        learn(h, end, end)
    assert verdict(h, "RP-27").exercised == 1


# ------------------------------------------------------------------------------------------ RP-32


def test_a_follower_counts_no_replicas() -> None:
    h = HistoryBuilder()
    stored_isr(h, 3, 1, ALL3)
    learn(h, 5, 6)
    assert verdict(h, "RP-32").verdict is Outcome.NOT_EXERCISED


def test_a_record_that_is_replayed_late_does_not_replace_a_newer_isr() -> None:
    h = HistoryBuilder()
    stored_isr(h, 4, 1, ALL3)
    stored_isr(h, 3, 1, (1, 2))
    mark(h, 5, 6, counted=(1, 2), isr=(1, 2))
    assert verdict(h, "RP-32").verdict is Outcome.VIOLATED


@pytest.mark.parametrize("stored", [True, False])
def test_a_member_that_joined_counts_from_then_on(stored: bool) -> None:
    """By the stored ISR, or by the one that the leader names where none is known."""
    h = HistoryBuilder()
    if stored:
        stored_isr(h, 3, 1, (1, 2))
    mark(h, 5, 6, counted=(1, 2), isr=(1, 2))
    if stored:
        stored_isr(h, 4, 1, ALL3)
    mark(h, 6, 6, counted=(1, 2), isr=ALL3)
    assert verdict(h, "RP-32").verdict is Outcome.VIOLATED


@pytest.mark.parametrize(("epoch", "exercised"), [(1, 0), (2, 1)])
def test_a_commit_in_the_epoch_of_the_request_does_not_exercise_rp_32(
    epoch: int, exercised: int
) -> None:
    h = HistoryBuilder()
    stored_isr(h, 3, 1, ALL3)
    ask(h, (1, 2))
    for end in (5, 6):
        mark(h, end, 6, epoch=epoch)
    assert verdict(h, "RP-32").exercised == exercised


def test_a_shrink_that_ended_with_its_leader_exercises_rp_32_once() -> None:
    h = HistoryBuilder()
    stored_isr(h, 3, 1, ALL3)
    ask(h, (1,))
    h.add(B1, LeadershipEnded(topic="orders", partition=0, leader_epoch=1, reason="metadata"))
    mark(h, 6, 6, epoch=2)
    assert verdict(h, "RP-32").exercised == 1
