"""Histories in which the answer to a control request differs from its effect, or never comes."""

from __future__ import annotations

import pytest
from tests.suites.control_requests.control_request_histories import (
    CONTROLLER,
    FORMER,
    NEW,
    OWN,
    answer,
    bounced,
    declare,
    outcome,
    send,
    store,
    verdict,
)
from tests.suites.control_requests.effect_histories import (
    current,
    healed,
    kill,
    lead,
    named_by_a_fault,
)
from tests.suites.partition_histories import why

from fencepost import Evidence, Stalled
from fencepost.testing import Outcome
from fencepost_kafka import ControllerEnded, FollowingStarted, PartitionCommitted, TopicMarked

HOLDS, VIOLATED, NOT_EXERCISED = Outcome.HOLDS, Outcome.VIOLATED, Outcome.NOT_EXERCISED
REFUSED = "STALE_BROKER_EPOCH"


# ------------------------------------------------------------------------------------ BE-02, BE-07


@pytest.mark.parametrize("clause", ["BE-02", "BE-07"])
def test_a_role_by_a_refused_request_breaks_the_promise(clause: str) -> None:
    h = bounced()
    asked = send(h, "LeaderAndIsr", FORMER)
    lead(h, by=asked)
    answer(h, asked, REFUSED)
    assert outcome(h, clause) is VIOLATED


def test_what_a_controller_says_that_it_requested_is_the_word_of_a_peer() -> None:
    h = bounced()
    answer(h, send(h, "StopReplica", FORMER), REFUSED)
    assert verdict(h, "BE-03").evidence is Evidence.PEER


@pytest.mark.parametrize("clause", ["BE-02", "BE-07"])
def test_a_role_that_no_carried_out_request_gave_breaks_the_promise(clause: str) -> None:
    h = bounced()
    answer(h, send(h, "LeaderAndIsr", FORMER), REFUSED)
    lead(h)
    assert outcome(h, clause) is VIOLATED


@pytest.mark.parametrize("clause", ["BE-02", "BE-07"])
def test_a_role_may_be_logged_before_the_request_that_gave_it(clause: str) -> None:
    """Apache Kafka's controller counts no attempts."""
    h = bounced()
    answer(h, send(h, "LeaderAndIsr", FORMER, attempt=0), REFUSED)
    lead(h)
    h.after(9000)
    assert outcome(h, clause) is HOLDS
    h.after(9000)
    assert outcome(h, clause) is VIOLATED


def test_a_role_by_a_later_request_keeps_the_promise() -> None:
    h = bounced()
    answer(h, send(h, "LeaderAndIsr", FORMER), REFUSED)
    asked = send(h, "LeaderAndIsr", OWN, number=2)
    lead(h)
    answer(h, asked)
    h.after(60_000)
    assert outcome(h, "BE-02") is HOLDS


def test_a_process_may_end_after_a_role_and_before_its_answer() -> None:
    h = bounced()
    answer(h, send(h, "LeaderAndIsr", FORMER), REFUSED)
    send(h, "LeaderAndIsr", OWN, number=2)
    lead(h)
    kill(h)
    h.after(60_000)
    assert outcome(h, "BE-02") is HOLDS


# ------------------------------------------------------------------------------------------ BE-09


def test_a_leadership_that_is_answered_and_does_not_begin_breaks_be_09() -> None:
    h = current()
    answer(h, send(h, "LeaderAndIsr", OWN))
    h.after(60_000)
    assert outcome(h, "BE-09") is VIOLATED


def test_a_partition_that_a_broker_does_not_begin_to_follow_breaks_be_09() -> None:
    h = current()
    moved = PartitionCommitted(
        offset=9,
        topic="orders",
        partition=0,
        leader=2,
        leader_epoch=1,
        isr=(2,),
        replicas=(1, 2),
        role="controller",
    )
    h.add(CONTROLLER, moved)
    answer(h, send(h, "LeaderAndIsr", OWN))
    lead(h, epoch=0)
    h.after(60_000)
    assert outcome(h, "BE-09") is VIOLATED
    follows = FollowingStarted(
        topic="orders", partition=0, leader=2, leader_epoch=1, log_end=0, high_watermark=0
    )
    h = current()
    h.add(CONTROLLER, moved)
    answer(h, send(h, "LeaderAndIsr", OWN))
    h.add(NEW, follows)
    h.after(60_000)
    assert outcome(h, "BE-09") is HOLDS


def test_a_leadership_may_begin_before_the_request_is_answered() -> None:
    h = current()
    asked = send(h, "LeaderAndIsr", OWN)
    lead(h)
    answer(h, asked)
    h.after(60_000)
    assert outcome(h, "BE-09") is HOLDS


def test_a_leadership_of_a_former_leader_epoch_does_not_count() -> None:
    h = current()
    lead(h, epoch=-1)
    answer(h, send(h, "LeaderAndIsr", OWN))
    h.after(60_000)
    assert outcome(h, "BE-09") is VIOLATED


def test_a_leadership_stays_due_when_another_partition_of_the_topic_is_stored() -> None:
    h = current()
    answer(h, send(h, "LeaderAndIsr", OWN))
    h.after(100)
    store(h, 1)
    h.after(60_000)
    assert outcome(h, "BE-09") is VIOLATED


@pytest.mark.parametrize(("topic", "verdict"), [("orders", HOLDS), ("invoices", VIOLATED)])
def test_a_leadership_is_no_longer_due_once_its_own_topic_is_marked(
    topic: str, verdict: Outcome
) -> None:
    h = current()
    answer(h, send(h, "LeaderAndIsr", OWN))
    h.after(100)
    h.add(CONTROLLER, TopicMarked(offset=8, topic=topic, topic_id=""))
    h.after(60_000)
    assert outcome(h, "BE-09") is verdict


@pytest.mark.parametrize("end", ["begins", "moves", "killed", "fault", "stalled"])
def test_a_leadership_that_begins_or_is_no_longer_due_keeps_be_09(end: str) -> None:
    h = current()
    answer(h, send(h, "LeaderAndIsr", OWN))
    if end == "begins":
        lead(h)
    elif end == "moves":
        moved = PartitionCommitted(
            offset=9,
            topic="orders",
            partition=0,
            leader=2,
            leader_epoch=1,
            isr=(2,),
            replicas=(1, 2),
            role="controller",
        )
        h.add(CONTROLLER, moved)
    elif end == "killed":
        kill(h)
    elif end == "fault":
        named_by_a_fault(h, NEW)
    h.after(60_000)
    if end == "stalled":
        h.add(NEW, Stalled(stalled_ns=60_000_000_000))
    assert outcome(h, "BE-09") is HOLDS


@pytest.mark.parametrize("api", ["StopReplica", "UpdateMetadata", "LeaderAndIsr"])
@pytest.mark.parametrize("end", ["", "deposed", "killed"])
def test_a_request_without_an_answer_breaks_be_09(api: str, end: str) -> None:
    h = current()
    for attempt in range(1, 31):
        send(h, api, OWN, number=attempt, attempt=attempt)
        h.after(2000)
    if end == "deposed":
        h.add(CONTROLLER, ControllerEnded(epoch=1, reason="deposed"))
    elif end == "killed":
        kill(h)
    assert outcome(h, "BE-09") is VIOLATED


@pytest.mark.parametrize("end", ["inactive", "killed", "broker-1", "broker-3#1"])
def test_a_request_without_an_answer_is_excused(end: str) -> None:
    h = current()
    send(h, "UpdateMetadata", OWN)
    h.after(5000)
    if end == "inactive":
        declare(h, "Active", "Inactive", OWN, "silent")
    elif end == "killed":
        kill(h)
    else:
        named_by_a_fault(h, end)
    for attempt in range(2, 31):
        if end == "killed":
            send(h, "UpdateMetadata", OWN, number=attempt, attempt=attempt)
        h.after(2000)
    if end.startswith("broker"):
        healed(h)
        h.after(9000)
    found = verdict(h, "BE-09")
    assert found.verdict is NOT_EXERCISED
    assert found.excused == end.startswith("broker")
    if end.startswith("broker"):
        assert why(found, "fault") == "f"
        assert str(why(found, "process")).startswith(end)


def test_a_fault_at_another_broker_excuses_no_missing_answer() -> None:
    h = current()
    named_by_a_fault(h, "broker-2")
    send(h, "StopReplica", OWN)
    h.after(60_000)
    assert outcome(h, "BE-09") is VIOLATED
