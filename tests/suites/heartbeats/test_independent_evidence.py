"""Histories in which a controller's own account is right, and another node's shows that it is not:
HB-12, HB-18, HB-21 and HB-22."""

from __future__ import annotations

import pytest
from tests.suites.heartbeats.heartbeat_histories import (
    BROKER,
    CONTROLLER,
    Write,
    began,
    call,
    declared,
    judged,
    received,
    registered,
    sent,
    steps,
    stored,
    term_began,
    verdict,
    wait,
    whole_verdict,
)

from fencepost import Stalled
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import ControllerBegan, IsrChangeAnswered, IsrChangeAsked, TopicCommitted

HOLDS, VIOLATED, NOT_EXERCISED = Outcome.HOLDS, Outcome.VIOLATED, Outcome.NOT_EXERCISED


def judged_as(clause: str, *each: Write) -> Outcome:
    h = HistoryBuilder()
    steps(*each)(h)
    return verdict(h, clause)


# ---------------------------------------------------------------------------------- HB-12, HB-18

taken_over = call(registered, epoch=90, process="broker-2-duplicate#1")
long_session = call(began, session_timeout_ms=3000)


def asks_isr(h: HistoryBuilder) -> None:
    body = IsrChangeAsked(
        topic="orders",
        partition=0,
        leader_epoch=4,
        broker_epoch=20,
        old_isr=(2, 3),
        new_isr=(2,),
        ends=(5,),
        high_watermark=5,
        epoch_start=0,
        lag_ns=0,
    )
    h.add(BROKER, body)


def is_granted(h: HistoryBuilder) -> None:
    body = IsrChangeAnswered(topic="orders", partition=0, leader_epoch=4, error="NONE", isr=(2,))
    h.add(BROKER, body)


ASKED = {"HB-12": (sent, received), "HB-18": (asks_isr, is_granted)}
"""Clause -> what a process asks of the controller, and that it was accepted."""


@pytest.mark.parametrize("clause", ASKED)
def test_a_superseded_process_that_is_accepted_is_evidence(clause: str) -> None:
    asks, accepted = ASKED[clause]
    begin = (registered, long_session, taken_over)
    assert judged_as(clause, *begin, wait(9500), steps(asks, accepted)) is VIOLATED
    assert judged_as(clause, *begin, wait(8500), steps(asks, accepted)) is NOT_EXERCISED


@pytest.mark.parametrize("clause", ASKED)
@pytest.mark.parametrize("elected", [True, False])
def test_it_names_the_controller_if_one_is_known(clause: str, elected: bool) -> None:
    asks, accepted = ASKED[clause]
    begin = (registered, long_session, taken_over) if elected else (registered, taken_over)
    h = HistoryBuilder()
    steps(*begin, wait(60_000), asks, accepted)(h)
    (broken,) = whole_verdict(h, clause).violations
    assert ("controller" in broken.facts) is elected


@pytest.mark.parametrize("clause", ASKED)
def test_an_answer_may_reach_a_superseded_process_late(clause: str) -> None:
    asks, accepted = ASKED[clause]
    history = (registered, long_session, asks, taken_over)
    assert judged_as(clause, *history, wait(60_000), accepted) is NOT_EXERCISED


@pytest.mark.parametrize("clause", ASKED)
def test_a_process_that_registered_last_is_accepted(clause: str) -> None:
    asks, accepted = ASKED[clause]
    again = call(registered, epoch=100)
    history = (registered, long_session, taken_over, again, wait(60_000))
    assert judged_as(clause, *history, steps(asks, accepted)) is NOT_EXERCISED


def test_a_stalled_controller_may_not_have_found_the_newer_process() -> None:
    h = HistoryBuilder()
    steps(registered, long_session, taken_over, wait(60_000))(h)
    h.add(CONTROLLER, Stalled(stalled_ns=60_000_000_000))
    steps(sent, received)(h)
    assert verdict(h, "HB-12") is NOT_EXERCISED


# ------------------------------------------------------------------------------------------ HB-21

NEXT = "broker-3#1"


def next_controller(h: HistoryBuilder) -> None:
    body = ControllerBegan(epoch=2, broker_id=3, first=False, heartbeat_timeout_ms=2000)
    h.add(NEXT, body)


def deleted(h: HistoryBuilder) -> None:
    body = TopicCommitted(offset=70, topic="orders", topic_id="", deleted=True, role="controller")
    h.add(CONTROLLER, body)


answered_for = steps(term_began, call(stored, isr=(1, 2, 3)), call(stored, offset=60), judged)
reads_older = call(stored, isr=(1, 2, 3), process=NEXT)
reads_same = call(stored, offset=60, process=NEXT)


def test_a_later_controller_that_reads_an_older_state_breaks_hb_21() -> None:
    assert judged_as("HB-21", answered_for, next_controller, reads_older) is VIOLATED


def test_a_later_controller_that_reads_what_was_answered_keeps_hb_21() -> None:
    assert judged_as("HB-21", answered_for, next_controller, reads_same) is HOLDS


def test_a_controller_whose_term_began_before_the_answer_may_have_read_an_older_state() -> None:
    history = (next_controller, answered_for, reads_older)
    assert judged_as("HB-21", *history) is HOLDS


def test_the_states_of_a_deleted_topic_are_gone() -> None:
    assert judged_as("HB-21", *(answered_for, deleted, next_controller, reads_older)) is HOLDS


# ------------------------------------------------------------------------------------------ HB-22


def test_another_version_in_the_znode_than_its_process_recorded_breaks_hb_22() -> None:
    old = call(registered, version=4, protocol=2)
    assert judged_as("HB-22", old, began, call(declared, version=5)) is VIOLATED
    assert judged_as("HB-22", old, began, call(declared, version=4)) is NOT_EXERCISED
