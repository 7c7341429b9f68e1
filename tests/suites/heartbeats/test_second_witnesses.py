"""Histories in which a node's word for itself stands alone, or another node's speaks against it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.suites.heartbeats.heartbeat_histories import (
    BROKER,
    CONTROLLER,
    Write,
    answered,
    began,
    call,
    heard,
    killed,
    received,
    registered,
    sent,
    silence,
    steps,
    verdict,
    wait,
    whole_verdict,
)

from fencepost import Cause, Fact, FaultInjected, ProcessSpawned, process_scope
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import ControllerBegan, broker_of

HOLDS, VIOLATED, NOT_EXERCISED = Outcome.HOLDS, Outcome.VIOLATED, Outcome.NOT_EXERCISED
SECOND_CONTROLLER = "broker-3#1"


def judged_as(clause: str, *each: Write) -> Outcome:
    h = HistoryBuilder()
    steps(*each)(h)
    return verdict(h, clause)


def facts(clause: str, *each: Write) -> dict[str, Fact]:
    """The facts of the first violation of a clause in a history."""
    h = HistoryBuilder()
    steps(*each)(h)
    return dict(whole_verdict(h, clause).violations[0].facts)


def repeated(times: int, every_ms: int, *each: Callable[..., None]) -> Write:
    """A step that is made again and again, with the number of a heartbeat."""

    def write(h: HistoryBuilder) -> None:
        for number in range(times):
            h.after(every_ms)
            for one in each:
                one(h, number=100 + number)

    return write


def refuses(error: str) -> Callable[..., None]:
    """A step: the controller answers a heartbeat with an error."""

    def write(h: HistoryBuilder, number: int) -> None:
        answered(h, error=error, state="Inactive", cause=Cause(BROKER, number, request=True))
        received(h, error=error, state="Inactive")

    return write


# ------------------------------------------------------------------------------ HB-10 and HB-27

left_out = steps(heard, wait(2_500), silence)
one_more = repeated(8, 1_000, sent)


@pytest.mark.parametrize("error", ["UNKNOWN_SERVER_ERROR", "NOT_CONTROLLER"])
def test_an_inactive_broker_whose_heartbeats_get_errors_is_owed_its_return(error: str) -> None:
    history = (left_out, repeated(8, 1_000, sent, refuses(error)))
    found = facts("HB-10", *history)
    assert found["process"] == process_scope(CONTROLLER)
    assert found["broker"] == broker_of(2)


def test_an_inactive_broker_whose_heartbeats_are_not_answered_is_owed_its_return() -> None:
    assert judged_as("HB-10", left_out, one_more) is VIOLATED


def test_an_inactive_broker_is_owed_nothing_within_six_seconds() -> None:
    assert judged_as("HB-10", left_out, repeated(6, 1_000, sent)) is NOT_EXERCISED


def test_a_former_registration_is_owed_nothing() -> None:
    newer = call(registered, epoch=90, process="broker-2-duplicate#1")
    assert judged_as("HB-10", left_out, newer, one_more) is NOT_EXERCISED


def test_a_broker_that_asks_a_former_controller_is_owed_nothing() -> None:
    assert judged_as("HB-10", left_out, next_began, one_more) is NOT_EXERCISED


@pytest.mark.parametrize("targets", [("broker-1", "broker-2"), ("broker-1", "zookeeper-1")])
def test_a_fault_upon_the_way_of_a_heartbeat_or_of_its_effect_excuses(
    targets: tuple[str, str],
) -> None:
    h = HistoryBuilder()
    steps(left_out, call(cut, targets=targets), one_more)(h)
    found = whole_verdict(h, "HB-10")
    assert (found.violated, found.excused) == (0, 1)


def test_a_fault_between_others_excuses_nothing() -> None:
    history = (left_out, call(cut, targets=("broker-2", "broker-3")), one_more)
    assert judged_as("HB-10", *history) is VIOLATED


def cut(h: HistoryBuilder, targets: tuple[str, str]) -> None:
    one, other = targets
    body = FaultInjected(
        fault_id="cut-1",
        fault="cut",
        targets=targets,
        receipt=True,
        evidence="",
        directions=(f"{one} -> {other}", f"{other} -> {one}"),
    )
    h.add("harness", body)


def next_began(h: HistoryBuilder, epoch: int = 2) -> None:
    body = ControllerBegan(epoch=epoch, broker_id=3, first=False, heartbeat_timeout_ms=2000)
    h.add(SECOND_CONTROLLER, body)


def test_the_controller_in_office_may_not_deny_that_it_is_one() -> None:
    history = (heard, repeated(1, 100, sent, refuses("NOT_CONTROLLER")))
    assert facts("HB-27", *history)["process"] == process_scope(CONTROLLER)


def test_a_controller_that_reads_what_is_stored_may_still_refuse() -> None:
    history = (began, repeated(1, 100, sent, refuses("NOT_CONTROLLER")))
    assert judged_as("HB-27", *history) is HOLDS


def test_a_second_controller_of_one_epoch_ends_the_first_ones_term() -> None:
    history = (heard, call(next_began, epoch=1), wait(1_500), answered)
    found = facts("HB-27", *history)
    assert found["process"] == process_scope(CONTROLLER)
    assert found["elected"] == process_scope(SECOND_CONTROLLER)


# ---------------------------------------------------------------------------------------- HB-09


GHOST = "ghost#1"


def haunted(h: HistoryBuilder) -> None:
    for _ in range(20):
        h.after(500)
        answered(h, client=GHOST)


def test_heartbeats_of_a_process_that_nobody_started_keep_no_broker_live() -> None:
    assert facts("HB-09", heard, killed, haunted)["broker"] == broker_of(2)


def test_heartbeats_of_a_process_of_another_broker_keep_no_broker_live() -> None:
    # It is there, and records no heartbeat; but it is not broker 2.
    h = HistoryBuilder()
    steps(heard, killed)(h)
    started(h)
    registered(h, 70, GHOST, broker=4)
    haunted(h)
    assert verdict(h, "HB-09") is VIOLATED


def test_a_process_that_was_started_may_keep_its_heartbeats_for_itself() -> None:
    assert judged_as("HB-09", heard, killed, started, haunted) is NOT_EXERCISED


def started(h: HistoryBuilder) -> None:
    h.add("harness", ProcessSpawned(started=GHOST, slot="ghost", role="broker", node_id=2, pid=7))
