"""RP-04 where the leader withholds which process is which follower, or says what is stored."""

from __future__ import annotations

from typing import Literal

import pytest
from tests.suites.partition_histories import (
    ALL3,
    B1,
    B2,
    B3,
    CONTROLLER,
    follow,
    partition,
    stated,
    verdict,
    why,
)
from tests.suites.replication.replication_histories import acknowledge, fetched, store

from fencepost import FaultInjected
from fencepost.testing import HistoryBuilder, Outcome


def led(
    isr: tuple[int, ...] = ALL3, followers: tuple[str, ...] = (B2, B3), leader: int = 1
) -> HistoryBuilder:
    """Broker 1 leads and has a message; others begin to follow with empty logs."""
    h = HistoryBuilder()
    partition(h, 3, leader=1, epoch=1, isr=isr, role="controller")
    for process in followers:
        follow(h, process, log_end=0, mark=0, leader=leader)
    store(h, B1, 0, as_leader=True)
    return h


def all_say_one(h: HistoryBuilder) -> Outcome:
    """The leader acknowledges the message: every log reaches it, it says."""
    acknowledge(h, 1, ends=(1, 1, 1), mark=1)
    return verdict(h, "RP-04").verdict


# ------------------------------------------------------------------- which process is which replica


def test_a_leader_that_names_no_process_is_not_believed_that_followers_have_stored_it() -> None:
    h = led()
    store(h, B2, 0)
    assert all_say_one(h) is Outcome.VIOLATED
    assert stated(verdict(h, "RP-04"), "most", "needed") == (1, 2)


@pytest.mark.parametrize("named", [B1, B2])
def test_nor_is_one_that_names_another_process_for_a_follower(named: str) -> None:
    h = led()
    store(h, B2, 0)
    for replica in (2, 3):
        fetched(h, replica, named, 1)
    assert all_say_one(h) is Outcome.VIOLATED


def test_a_follower_outside_the_isr_need_not_have_stored_it() -> None:
    h = led(isr=(1, 2))
    store(h, B2, 0)
    acknowledge(h, 1, ends=(1, 1), mark=1)
    assert verdict(h, "RP-04").verdict is Outcome.HOLDS


@pytest.mark.parametrize(
    ("followers", "leader"),
    [((B2,), 1), ((B2, "broker-3-duplicate#1"), 1), ((B2, B3), 2)],
    ids=["silent", "a second process of an id", "the follower of another"],
)
def test_a_follower_that_says_nothing_may_have_stored_it(
    followers: tuple[str, ...], leader: int
) -> None:
    h = led(followers=followers, leader=leader)
    store(h, B2, 0)
    assert all_say_one(h) is Outcome.HOLDS


@pytest.mark.parametrize(("log_end", "expected"), [(0, Outcome.VIOLATED), (1, Outcome.HOLDS)])
def test_the_next_process_of_a_follower_speaks_for_it(log_end: int, expected: Outcome) -> None:
    h = led()
    for process in (B2, B3):
        store(h, process, 0)
    follow(h, "broker-3#2", log_end=log_end, mark=0)
    assert all_say_one(h) is expected


def test_a_follower_that_a_leader_has_named_has_no_more_than_its_next_process() -> None:
    h = led()
    for process in (B2, B3):
        store(h, process, 0)
        fetched(h, int(process[7]), process, 1)
    follow(h, "broker-3#2", log_end=0, mark=0)
    assert all_say_one(h) is Outcome.VIOLATED
    assert stated(verdict(h, "RP-04"), "other") == "broker-3#2"


def bounced(
    fault: str = "lose_power", victim: str = B3, *, named: bool = True, receipt: bool = True
) -> HistoryBuilder:
    """Both followers have the message. Then the next process of the third one begins without it."""
    h = led()
    for process in (B2, B3):
        store(h, process, 0)
        if named:
            fetched(h, int(process[7]), process, 1)
    strike(h, fault, victim, receipt=receipt)
    follow(h, "broker-3#2", log_end=0, mark=0)
    return h


def strike(h: HistoryBuilder, fault: str, victim: str, *, receipt: bool = True) -> None:
    injected = FaultInjected(
        fault_id=f"{fault}-1", fault=fault, targets=(victim,), receipt=receipt, evidence=""
    )
    h.add("harness", injected)


@pytest.mark.parametrize("named", [True, False])
def test_a_disk_that_lost_what_a_follower_had_stored_is_excused(named: bool) -> None:
    h = bounced(named=named)
    assert all_say_one(h) is Outcome.NOT_EXERCISED
    found = verdict(h, "RP-04")
    assert found.excused == 1
    assert stated(found.excuses[0], "other", "stored") == ("broker-3#2", 0)
    assert why(found, "fault") == "lose_power-1"


@pytest.mark.parametrize(
    ("fault", "victim", "receipt"),
    [("kill", B3, True), ("lose_power", B2, True), ("lose_power", B3, False)],
)
def test_a_follower_whose_disk_was_left_whole_is_not_excused(
    fault: str, victim: str, receipt: bool
) -> None:
    assert all_say_one(bounced(fault, victim, receipt=receipt)) is Outcome.VIOLATED


def test_a_lost_disk_excuses_nothing_that_was_not_on_it() -> None:
    h = bounced()
    store(h, B1, 1, as_leader=True)
    store(h, B2, 1)
    acknowledge(h, 2, ends=(2, 2, 2), mark=2)
    assert verdict(h, "RP-04").verdict is Outcome.VIOLATED


def test_a_disk_that_is_struck_twice_has_lost_what_it_had_at_first() -> None:
    h = bounced()
    strike(h, "wipe_disk", "broker-3#2")
    follow(h, "broker-3#3", log_end=0, mark=0)
    assert all_say_one(h) is Outcome.NOT_EXERCISED
    found = verdict(h, "RP-04")
    assert stated(found.excuses[0], "other", "stored") == ("broker-3#3", 0)


def test_the_lost_disk_of_the_leader_excuses_no_follower() -> None:
    h = led()
    store(h, B2, 0)
    strike(h, "lose_power", B1)
    follow(h, "broker-1#2", log_end=0, mark=0)
    assert all_say_one(h) is Outcome.VIOLATED


def test_a_leader_that_has_heard_of_the_next_process_is_not_excused() -> None:
    h = bounced()
    fetched(h, 3, "broker-3#2", 0)
    assert all_say_one(h) is Outcome.VIOLATED


def test_a_fetch_of_the_former_process_tells_a_leader_of_no_next_one() -> None:
    h = bounced()
    fetched(h, 3, B3, 1)
    assert all_say_one(h) is Outcome.NOT_EXERCISED


def test_a_follower_that_has_it_all_again_has_lost_nothing() -> None:
    h = bounced()
    store(h, "broker-3#2", 0)
    follow(h, "broker-3#3", log_end=0, mark=0)
    assert all_say_one(h) is Outcome.VIOLATED


def test_the_log_of_the_leader_is_no_followers() -> None:
    h = led(followers=(B1, B2, B3))
    store(h, "broker-1#0", 0)
    store(h, B1, 0, as_leader=True)
    store(h, B2, 0)
    assert all_say_one(h) is Outcome.VIOLATED


# --------------------------------------------------------------------------------- what is stored


def smaller(process: str, role: Literal["broker", "controller"]) -> HistoryBuilder:
    """Broker 2, in the ISR by the controller, has stored nothing; someone says it has left."""
    h = led(isr=(1, 2), followers=())
    follow(h, B2, log_end=0, mark=0)
    fetched(h, 2, B2, 0)
    partition(h, 999, leader=1, epoch=1, isr=(1,), process=process, role=role)
    acknowledge(h, 1, ends=(1,), mark=1)
    return h


@pytest.mark.parametrize(
    ("process", "role", "expected"),
    [
        (B1, "broker", Outcome.VIOLATED),
        (B3, "broker", Outcome.VIOLATED),
        (CONTROLLER, "controller", Outcome.NOT_EXERCISED),
        ("controller-2#1", "controller", Outcome.NOT_EXERCISED),
    ],
)
def test_what_brokers_say_is_stored_before_controllers_do_is_no_smaller_isr(
    process: str, role: Literal["broker", "controller"], expected: Outcome
) -> None:
    assert verdict(smaller(process, role), "RP-04").verdict is expected
