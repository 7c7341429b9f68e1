"""The rules of writes that outlast their leader, to the millisecond: RP-11, RP-12 and RP-31."""

from __future__ import annotations

import pytest
from tests.suites.partition_histories import B1, B2, B3, CLIENT, follow, lead, stated, verdict
from tests.suites.replication.replication_histories import mark
from tests.suites.replication.resend_histories import (
    ASKED,
    answer,
    completed,
    sought,
    step_down,
    store,
)

from fencepost import Cause
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import HeartbeatSent, ProduceInvoked


def invoke(h: HistoryBuilder, operation: str = "op-1") -> None:
    h.add(CLIENT, ProduceInvoked(operation=operation, topic="orders", partition=0, acks=-1))


# ------------------------------------------------------------------------------------------ RP-11


@pytest.mark.parametrize(("more_ms", "violated"), [(0, 0), (1, 1)])
@pytest.mark.parametrize("how", ["fails", "is open"])
def test_a_client_has_eight_seconds_to_find_the_new_leader(
    how: str, more_ms: int, violated: int
) -> None:
    h = HistoryBuilder()
    sought(h)
    # The new leader began 1 ms ago.
    h.after(8_000 - 1 + more_ms)
    if how == "fails":
        completed(h, "unknown", -1)
    else:
        step_down(h, B2, 2)
    assert verdict(h, "RP-11").violated == violated


def test_the_write_that_was_open_longest_is_the_one_that_found_no_leader() -> None:
    h = HistoryBuilder()
    sought(h)
    h.after(9_000)
    invoke(h, "op-2")
    step_down(h, B2, 2)
    (violation,) = verdict(h, "RP-11").violations
    assert stated(violation, "operation") == "op-1"


@pytest.mark.parametrize(("more_ms", "violated"), [(0, 1), (1, 0)])
def test_a_leader_that_steps_down_a_second_after_its_successor_began_was_alive(
    more_ms: int, violated: int
) -> None:
    h = HistoryBuilder()
    sought(h)
    lead(h.after(11_000), B3, 3, log_end=3)
    step_down(h.after(1_000 - 1 + more_ms), B2, 2)
    assert verdict(h, "RP-11").violated == violated


def test_a_leader_that_says_twice_that_it_stepped_down_is_judged_once() -> None:
    h = HistoryBuilder()
    sought(h)
    lead(h.after(11_000), B3, 3, log_end=3)
    step_down(h, B2, 2)
    step_down(h, B2, 2)
    assert verdict(h, "RP-11").violated == 1


def test_a_client_that_reaches_a_third_broker_has_not_reached_the_former_leader() -> None:
    h = HistoryBuilder()
    sought(h)
    lead(h.after(11_000), B3, 3, log_end=3)
    answer(h, B1, 4, error="NOT_LEADER_OR_FOLLOWER")
    step_down(h, B2, 2)
    assert verdict(h, "RP-11").violated == 1


def test_a_write_that_fails_where_no_leader_is_known_does_not_break_rp_11() -> None:
    h = HistoryBuilder(start_ms=60_000)
    invoke(h)
    completed(h.after(11_000), "unknown", -1)
    assert verdict(h, "RP-11").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize("later_ms", [0, 1])
def test_a_write_that_is_invoked_under_its_leader_does_not_exercise_rp_11(later_ms: int) -> None:
    h = HistoryBuilder()
    lead(h, B1, 1)
    h.after(later_ms - 1)
    invoke(h)
    completed(h, "ok", 0)
    assert verdict(h, "RP-11").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("offset", "exercised"), [(2, 0), (3, 1)])
def test_a_write_that_the_leader_before_had_stored_does_not_exercise_rp_11(
    offset: int, exercised: int
) -> None:
    h = HistoryBuilder()
    sought(h)
    completed(h, "ok", offset)
    assert verdict(h, "RP-11").exercised == exercised


# ------------------------------------------------------------------------------------------ RP-12


@pytest.mark.parametrize("producer", [0, 7])
def test_one_write_committed_twice_breaks_rp_12_whatever_its_producers_id(producer: int) -> None:
    h = HistoryBuilder()
    store(h, B1, 0, sequence=0, producer=producer)
    store(h, B1, 1, sequence=0, producer=producer)
    mark(h, B1, 2)
    mark(h, B1, 2)
    assert stated(verdict(h, "RP-12"), "producer", "sequence", "offset") == (producer, 0, 0)


# ------------------------------------------------------------------------------------------ RP-31


def beat(h: HistoryBuilder, process: str) -> None:
    body = HeartbeatSent(
        broker_id=1,
        broker_epoch=5,
        controller=101,
        correlation=1,
        target_state="ACTIVE",
        lease_start_ms=0,
        metadata_offset=9,
    )
    h.add(process, body)


@pytest.mark.parametrize(("more_ms", "outcome"), [(0, Outcome.UNKNOWN), (1, Outcome.VIOLATED)])
@pytest.mark.parametrize("beats", [True, False])
def test_a_leader_that_stepped_down_answers_within_five_seconds(
    more_ms: int, outcome: Outcome, beats: bool
) -> None:
    """What it says of anything shows that it is alive."""
    h = HistoryBuilder()
    store(h, B1, 0, cause=ASKED)
    step_down(h, B1, 1)
    h.after(5_000 - 1 + more_ms)
    if beats:
        beat(h, B1)
    else:
        follow(h, B1, 1, 0, leader=2)
    assert verdict(h, "RP-31").verdict is outcome


@pytest.mark.parametrize(
    ("leads", "cause"),
    [(False, ASKED), (True, None), (True, Cause(CLIENT, 9, False))],
    ids=["a follower's", "of no request", "of another event"],
)
def test_only_a_write_that_a_client_asked_its_leader_for_waits(
    leads: bool, cause: Cause | None
) -> None:
    h = HistoryBuilder()
    store(h, B1, 0, cause=cause, leads=leads)
    step_down(h, B1, 1)
    follow(h.after(6_000), B1, 1, 0, leader=2)
    assert verdict(h, "RP-31").verdict is Outcome.NOT_EXERCISED


def test_a_write_that_was_never_stored_does_not_exercise_rp_31() -> None:
    h = HistoryBuilder()
    step_down(h, B1, 1)
    answer(h, B1, 1, error="NOT_LEADER_OR_FOLLOWER", cause=ASKED)
    assert verdict(h, "RP-31").verdict is Outcome.NOT_EXERCISED


def test_a_write_that_is_refused_by_a_leader_that_leads_again_does_not_exercise_rp_31() -> None:
    h = HistoryBuilder()
    step_down(h, B1, 1)
    lead(h, B1, 2)
    store(h, B1, 0, cause=ASKED)
    answer(h, B1, 1, error="NOT_ENOUGH_REPLICAS_AFTER_APPEND", cause=ASKED)
    assert verdict(h, "RP-31").verdict is Outcome.NOT_EXERCISED
