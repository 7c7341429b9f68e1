"""RP-09 where a leader asks, and the follower stays: nothing is stored, no answer comes, or the
history just ends."""

from __future__ import annotations

import pytest
from tests.suites.partition_histories import stated
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

from fencepost import ProcessExited
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import LeaseGranted, TopicCommitted


def waiting() -> HistoryBuilder:
    h = HistoryBuilder()
    lead(h, keep_ms=2000)
    store(h, B1, 0)
    return h


def granted(h: HistoryBuilder) -> None:
    """The leader asks to drop broker 3, and is granted that."""
    ask(h.after(3_000), (1, 2))
    refuse(h, "NONE")


# ------------------------------------------------------------------------- granted and never stored


def test_a_drop_that_is_granted_again_and_again_and_never_stored_breaks_rp_09() -> None:
    h = waiting()
    for _ in range(4):
        granted(h)
        time_out(h)
    assert stated(verdict(h, "RP-09"), "tried", "times") == ("granted", 3)


def test_a_grant_gives_time_once_for_its_record_to_be_stored() -> None:
    h = waiting()
    for _ in range(2):
        granted(h)
    stored_isr(h, 5, 1, (1, 2))
    time_out(h.after(2_900))
    assert verdict(h, "RP-09").verdict is Outcome.NOT_EXERCISED
    time_out(h.after(200))
    assert verdict(h, "RP-09").verdict is Outcome.VIOLATED


@pytest.mark.parametrize("first", [True, False], ids=["before the answer", "after the answer"])
def test_a_drop_that_is_stored_may_be_granted_again_once_the_follower_is_back(first: bool) -> None:
    h = waiting()
    for number in range(6):
        ask(h.after(3_000), (1, 2))
        if first:
            stored_isr(h, 5 + 2 * number, 1, (1, 2))
        refuse(h, "NONE")
        if not first:
            stored_isr(h, 5 + 2 * number, 1, (1, 2))
        stored_isr(h, 6 + 2 * number, 1, ALL3)
    time_out(h)
    assert verdict(h, "RP-09").verdict is Outcome.NOT_EXERCISED


def test_a_grant_whose_record_is_told_before_its_answer_is_stored() -> None:
    h = waiting()
    ask(h.after(3_000), (1, 2))
    stored_isr(h, 5, 1, (1, 2))
    refuse(h, "NONE")
    stored_isr(h, 6, 1, ALL3)
    granted(h)
    time_out(h.after(3_500))
    assert verdict(h, "RP-09").verdict is Outcome.NOT_EXERCISED


def test_a_commit_ends_what_was_granted_before() -> None:
    h = waiting()
    for number in range(8):
        granted(h)
        mark(h, number, number + 1)
    assert verdict(h, "RP-09").verdict is Outcome.NOT_EXERCISED


# -------------------------------------------------------------------------------- without an answer


def heard(h: HistoryBuilder, seconds: int) -> None:
    """Controllers answer the leader's heartbeats; its clients write."""
    for _ in range(seconds):
        h.after(1_000)
        lease = LeaseGranted(
            broker_id=1,
            broker_epoch=5,
            next_state="ACTIVE",
            lease_start_ms=0,
            lease_end_ms=2_000,
            ends_at_ns=0,
            controller_epoch=1,
        )
        h.add(B1, lease)
        time_out(h)


REQUESTS = pytest.mark.parametrize(
    ("old", "new"), [((1, 2), ALL3), (ALL3, (1, 2))], ids=["to add", "to drop"]
)


@REQUESTS
def test_a_request_that_no_controller_answers_while_they_answer_the_leader_breaks_rp_09(
    old: tuple[int, ...], new: tuple[int, ...]
) -> None:
    h = waiting()
    ask(h, new, old=old)
    heard(h, 36)
    ask(h, new, old=old)
    assert verdict(h, "RP-09").verdict is Outcome.NOT_EXERCISED
    heard(h, 3)
    assert stated(verdict(h, "RP-09"), "tried") == "unanswered"


@REQUESTS
def test_a_leader_out_of_touch_with_the_controllers_has_no_answer(
    old: tuple[int, ...], new: tuple[int, ...]
) -> None:
    h = waiting()
    ask(h, new, old=old)
    for _ in range(5):
        heard(h, 30)
        h.after(10_000)
        time_out(h)
    assert verdict(h, "RP-09").verdict is Outcome.NOT_EXERCISED


# -------------------------------------------------------------------------------- as a history ends


def test_a_write_that_waits_until_the_end_breaks_rp_09() -> None:
    h = waiting()
    h.after(5_999)
    assert verdict(h, "RP-09").verdict is Outcome.NOT_EXERCISED
    h.after(2)
    assert stated(verdict(h, "RP-09"), "since_ns") == 6_002_000_000
    assert verdict(h, "RP-09", complete=False).violated == 0


@pytest.mark.parametrize(("more", "violated"), [(False, 1), (True, 0)])
def test_a_process_lets_no_write_wait_once_it_has_ended_before_the_run(
    more: bool, violated: int
) -> None:
    h = waiting()
    h.after(7_000)
    h.add("harness", ProcessExited(ended=B1, exit_code=0, signal=9, expected=True))
    if more:
        store(h, B2, 0)
    h.after(10_000)
    assert verdict(h, "RP-09").violated == violated


@pytest.mark.parametrize(("epoch", "violated"), [(1, 1), (2, 0)])
def test_a_leader_whose_epoch_is_over_lets_no_write_wait(epoch: int, violated: int) -> None:
    h = waiting()
    stored_isr(h, 5, epoch, (1, 2))
    h.after(10_000)
    assert verdict(h, "RP-09").violated == violated


@pytest.mark.parametrize(
    ("topic", "offset", "deleted", "violated"),
    [
        ("orders", 6, True, 0),
        ("orders", 4, True, 1),
        ("orders", 6, False, 1),
        ("bills", 6, True, 1),
    ],
)
def test_nothing_waits_in_a_deleted_topic(
    topic: str, offset: int, deleted: bool, violated: int
) -> None:
    h = waiting()
    stored_isr(h, 5, 1, (1, 2))
    body = TopicCommitted(offset=offset, topic=topic, topic_id="t", deleted=deleted)
    h.add("controller-1#1", body)
    h.after(10_000)
    assert verdict(h, "RP-09").violated == violated
