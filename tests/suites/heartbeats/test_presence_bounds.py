"""The controller's metadata, and which process is a broker: exact bounds, and what does not count
(HB-03, HB-24, HB-25, HB-28)."""

from __future__ import annotations

import pytest
from tests.suites.heartbeats.test_presence_rules import (
    BROKER,
    CONTROLLER,
    answer,
    begin,
    declare,
    expire,
    fetch,
    send,
    take_over,
    verdict,
    whole_verdict,
)

from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import BrokerRegistered, ControllerBegan, ControllerEnded, ControllerState

HOLDS, VIOLATED, NOT_EXERCISED = Outcome.HOLDS, Outcome.VIOLATED, Outcome.NOT_EXERCISED


def elect(h: HistoryBuilder, epoch: int) -> None:
    h.add(
        CONTROLLER,
        ControllerBegan(epoch=epoch, broker_id=1, first=False, heartbeat_timeout_ms=2000),
    )


# ------------------------------------------------------------------------------------------ HB-03


@pytest.mark.parametrize(("epoch", "outcome"), [(1, VIOLATED), (2, NOT_EXERCISED)])
def test_only_a_newer_controller_begins_without_inactive_brokers(
    epoch: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    begin(h)
    declare(h, 2, "Inactive")
    elect(h, epoch)
    send(h, 1, (1, 2, 3))
    answer(h, 1, (1, 2, 3))
    assert verdict(h, "HB-03") is outcome


@pytest.mark.parametrize(("ms", "outcome"), [(100, HOLDS), (101, VIOLATED)])
def test_metadata_were_made_just_before_if_the_queue_was_empty_for_100_ms(
    ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    begin(h)
    declare(h, 2, "Inactive")
    send(h, 1, (1, 3))
    answer(h, 1, (1, 3))
    h.after(ms - 1)
    send(h, 2, (1, 2, 3))
    answer(h, 2, (1, 2, 3))
    assert verdict(h, "HB-03") is outcome


@pytest.mark.parametrize(("ms", "outcome"), [(272, HOLDS), (273, VIOLATED)])
def test_over_a_slow_link_the_queue_is_empty_once_the_answer_is_back(
    ms: int, outcome: Outcome
) -> None:
    """The request took 173 ms, and its answer may take as long."""
    h = HistoryBuilder()
    begin(h)
    declare(h, 2, "Inactive")
    send(h, 1, (1, 3))
    h.after(172)
    answer(h, 1, (1, 3))
    h.after(ms - 1)
    send(h, 2, (1, 2, 3))
    answer(h, 2, (1, 2, 3))
    assert verdict(h, "HB-03") is outcome


def test_metadata_behind_a_waiting_request_may_be_old() -> None:
    h = HistoryBuilder()
    begin(h)
    send(h, 1, (1, 2, 3))
    declare(h, 2, "Inactive")
    h.after(60_000)
    send(h, 2, (1, 2, 3))
    answer(h, 2, (1, 2, 3))
    assert verdict(h, "HB-03") is NOT_EXERCISED


# ------------------------------------------------------------------------------------------ HB-24


def test_a_registration_that_is_recorded_twice_gives_no_more_time() -> None:
    h = HistoryBuilder()
    begin(h)
    take_over(h)
    h.after(2000)
    take_over(h)
    fetch(h, 20)
    assert verdict(h, "HB-24") is VIOLATED


@pytest.mark.parametrize(("ms", "outcome"), [(1000, NOT_EXERCISED), (1001, VIOLATED)])
def test_a_fetch_of_the_former_process_may_count_for_a_second(ms: int, outcome: Outcome) -> None:
    h = HistoryBuilder()
    begin(h)
    take_over(h)
    h.after(ms - 1)
    fetch(h, 20)
    assert verdict(h, "HB-24") is outcome


# ------------------------------------------------------------------------------------------ HB-25


@pytest.mark.parametrize(("new", "outcome"), [("Inactive", NOT_EXERCISED), ("Active", VIOLATED)])
def test_a_queue_ends_when_its_broker_leaves_the_cluster(
    new: ControllerState, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    begin(h)
    send(h, 1)
    declare(h, 3, new)
    send(h, 2)
    assert verdict(h, "HB-25") is outcome


def test_an_answer_to_a_request_that_is_not_known_does_not_exercise_hb_25() -> None:
    h = HistoryBuilder()
    begin(h)
    answer(h, 9)
    assert verdict(h, "HB-25") is NOT_EXERCISED


def test_a_second_answer_to_a_former_request_answers_no_later_one() -> None:
    h = HistoryBuilder()
    begin(h)
    send(h, 1)
    answer(h, 1)
    send(h, 2, (1, 2, 3))
    answer(h, 1)
    send(h, 3)
    assert verdict(h, "HB-25") is VIOLATED


@pytest.mark.parametrize("then", ["answered", "sent again"])
@pytest.mark.parametrize(("ms", "late"), [(6000, False), (6001, True)])
def test_an_update_is_sent_again_within_six_seconds(then: str, ms: int, late: bool) -> None:
    h = HistoryBuilder()
    begin(h)
    send(h, 1)
    h.after(ms - 1)
    if then == "answered":
        answer(h, 1)
    else:
        send(h, 2, attempt=2)
        answer(h, 2)
    found = whole_verdict(h, "HB-25")
    assert (found.verdict is VIOLATED, found.excused) == (late, 0)


# ------------------------------------------------------------------------------------------ HB-28


def test_a_registration_that_is_recorded_after_the_end_of_its_session_has_no_znode() -> None:
    h = HistoryBuilder()
    begin(h)
    expire(h, "0x5a")
    h.add(
        BROKER,
        BrokerRegistered(broker_id=2, broker_epoch=90, session=90, version=5, overwrote=False),
    )
    declare(h, 2, "Active", epoch=90)
    h.after(5000)
    assert verdict(h, "HB-28") is VIOLATED


@pytest.mark.parametrize(("ms", "outcome"), [(4000, NOT_EXERCISED), (4001, VIOLATED)])
def test_hb_28_excuses_what_fell_due_within_the_session_timeout_before_the_end_of_a_term(
    ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    begin(h)
    expire(h, "0x14")
    h.after(ms - 1)
    h.add(CONTROLLER, ControllerEnded(epoch=1, reason="session"))
    assert verdict(h, "HB-28") is outcome
