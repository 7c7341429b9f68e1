"""The rules of the plane without a controller, to the millisecond, and what ends a duty."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.suites.replication.classic_histories import (
    B1,
    B2,
    active,
    broker,
    carries_out,
    leads,
    partition,
    prepared,
    serves,
    stands,
    topic,
    verdict,
)

from fencepost import ProcessExited
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import ReplicaRemoved, SessionChanged

AT_THE_BOUND = pytest.mark.parametrize(
    ("more_ms", "outcome"), [(0, Outcome.NOT_EXERCISED), (1, Outcome.VIOLATED)]
)


def ends(h: HistoryBuilder, process: str) -> None:
    h.add("harness", ProcessExited(ended=process, exit_code=-9, signal=9, expected=True))


def session(h: HistoryBuilder, process: str) -> None:
    h.add(process, SessionChanged(session=5, state="suspended"))


# --------------------------------------------------------------------------------------- RP-14


def test_rp_14_a_leader_is_judged_by_its_log_in_the_epoch_that_it_serves_in() -> None:
    h = HistoryBuilder()
    leads(h, epoch=1)
    serves(h, 4)
    assert verdict(h, "RP-14") is Outcome.NOT_EXERCISED


# --------------------------------------------------------------------------------------- RP-34


@pytest.mark.parametrize("clause", ["RP-14", "RP-34"])
def test_a_replica_that_has_waited_for_its_whole_time_may_stand(clause: str) -> None:
    h = HistoryBuilder()
    stands(h, B2, waited_ms=200)
    assert verdict(h, clause) is Outcome.HOLDS


def test_rp_34_a_leader_that_has_waited_for_its_whole_time_may_leave_a_member_out() -> None:
    h = HistoryBuilder()
    prepared(h, isr=(2,), ends=(5,), waited_ms=1_500)
    assert verdict(h, "RP-34") is Outcome.HOLDS


@pytest.mark.parametrize(("before_ms", "outcome"), [(0, Outcome.HOLDS), (1, Outcome.VIOLATED)])
def test_rp_34_a_leader_may_wait_longer_if_its_session_has_changed_meanwhile(
    before_ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    session(h, B2)
    h.after(4_000 - 1 + before_ms)
    prepared(h, isr=(2,), ends=(5,), waited_ms=4_000)
    assert verdict(h, "RP-34") is outcome


# --------------------------------------------------------------------------------------- RP-17


@AT_THE_BOUND
def test_rp_17_a_new_partition_has_a_leader_within_ten_seconds(
    more_ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    partition(h, 10, -1, 0, isr=())
    h.after(10_000 - 1 + more_ms)
    assert verdict(h, "RP-17") is outcome


def test_rp_17_a_topic_that_is_deleted_needs_no_leader() -> None:
    h = HistoryBuilder()
    partition(h, 10, -1, 0, isr=())
    topic(h, B1, offset=11, deleted=True)
    h.after(20_000)
    assert verdict(h, "RP-17") is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("epoch", "isr"), [(0, (2,)), (3, ())])
def test_rp_17_is_about_partitions_of_which_no_isr_was_ever_stored(
    epoch: int, isr: tuple[int, ...]
) -> None:
    h = HistoryBuilder()
    partition(h, 10, -1, epoch, isr=isr)
    h.after(20_000)
    assert verdict(h, "RP-17") is Outcome.NOT_EXERCISED


# --------------------------------------------------------------------------------------- RP-23


@AT_THE_BOUND
@pytest.mark.parametrize("process_ends", [False, True])
def test_rp_23_a_replica_is_gone_two_seconds_after_the_request_if_its_process_lives(
    process_ends: bool, more_ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    leads(h)
    carries_out(h, "delete")
    h.after(2_000 - 1 + more_ms)
    if process_ends:
        ends(h, B2)
        h.after(20_000)
    assert verdict(h, "RP-23") is outcome


def test_rp_23_a_replica_that_is_gone_need_not_go_upon_another_request() -> None:
    h = HistoryBuilder()
    leads(h)
    carries_out(h, "unassigned")
    h.add(B2, ReplicaRemoved(topic="orders", partition=0, topic_id="t", reason="unassigned"))
    carries_out(h, "delete")
    h.after(20_000)
    assert verdict(h, "RP-23") is Outcome.HOLDS


# --------------------------------------------------------------------------------------- RP-30


@AT_THE_BOUND
@pytest.mark.parametrize("goes", [ends, session])
def test_rp_30_a_broker_reads_of_a_topic_within_ten_seconds_unless_it_goes(
    goes: Callable[[HistoryBuilder, str], None], more_ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    for process in (B1, B2):
        active(h, process)
    topic(h, B1)
    h.after(10_000 - 1 + more_ms)
    goes(h, B2)
    h.after(20_000)
    assert verdict(h, "RP-30") is outcome


def test_rp_30_a_topic_that_is_deleted_need_not_be_noticed() -> None:
    h = HistoryBuilder()
    for process in (B1, B2):
        active(h, process)
    topic(h, B1)
    topic(h, B1, offset=11, deleted=True)
    h.after(20_000)
    assert verdict(h, "RP-30") is Outcome.NOT_EXERCISED


def test_rp_30_a_broker_that_is_not_active_any_more_need_not_notice_a_topic() -> None:
    h = HistoryBuilder()
    for process in (B1, B2):
        active(h, process)
    session(h, B2)
    topic(h, B1)
    h.after(20_000)
    assert verdict(h, "RP-30") is Outcome.NOT_EXERCISED


# --------------------------------------------------------------------------------------- RP-21


@AT_THE_BOUND
def test_rp_21_leadership_is_back_after_twice_the_interval_and_two_seconds(
    more_ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    broker(h, 1, 1)
    prepared(h)
    partition(h, 10, 2, 2)
    h.after(4_000 - 1 + more_ms)
    assert verdict(h, "RP-21") is outcome
