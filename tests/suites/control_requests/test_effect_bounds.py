"""The effects of control requests at their exact bounds, and what does not count for them."""

from __future__ import annotations

import pytest
from tests.suites.control_requests.control_request_histories import (
    CONTROLLER,
    FORMER,
    NEW,
    OLD,
    OWN,
    again,
    answer,
    begin,
    bounced,
    outcome,
    register,
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
from tests.suites.partition_histories import stated

from fencepost import Cause
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import (
    FollowingStarted,
    LeadershipStarted,
    PartitionCommitted,
    ReplicaRemoved,
    ReplicaStopped,
    SessionChanged,
    TopicCommitted,
)

HOLDS, VIOLATED, NOT_EXERCISED = Outcome.HOLDS, Outcome.VIOLATED, Outcome.NOT_EXERCISED
REFUSED = "STALE_BROKER_EPOCH"


def session(h: HistoryBuilder, state: str) -> None:
    if state == "ended":
        h.add(NEW, SessionChanged(session=1, state="ended"))
    elif state == "suspended":
        h.add(NEW, SessionChanged(session=1, state="suspended"))
    else:
        h.add(NEW, SessionChanged(session=1, state="connected"))


def led_by(h: HistoryBuilder, leader: int) -> None:
    """Broker 1 is a replica of orders-0, which another broker leads."""
    h.add(
        CONTROLLER,
        PartitionCommitted(
            offset=9,
            topic="orders",
            partition=0,
            leader=leader,
            leader_epoch=1,
            isr=(1,),
            replicas=(leader, 1) if leader >= 0 else (1,),
            role="controller",
        ),
    )


# ------------------------------------------------------------------------------------ BE-02, BE-07


@pytest.mark.parametrize(("named", "kept"), [("orders-0", True), ("orders-1", False)])
def test_only_a_waiting_request_for_the_partition_may_have_given_its_role(
    named: str, kept: bool
) -> None:
    h = bounced()
    answer(h, send(h, "LeaderAndIsr", FORMER), REFUSED)
    send(h, "LeaderAndIsr", OWN, number=2, partitions=(named,))
    lead(h)
    assert (outcome(h, "BE-02") is HOLDS) == kept


def test_each_role_that_a_refused_request_gave_breaks_the_promise() -> None:
    h = bounced()
    both = ("orders-0", "orders-1")
    asked = send(h, "LeaderAndIsr", FORMER, partitions=both)
    for index in range(2):
        body = LeadershipStarted(
            topic="orders",
            partition=index,
            leader_epoch=0,
            isr=(1,),
            log_start=0,
            log_end=0,
            high_watermark=0,
        )
        h.add(NEW, body, cause=Cause(CONTROLLER, 1, request=True))
    answer(h, asked, REFUSED)
    found = verdict(h, "BE-02").violations
    assert [stated(one, "partition") for one in found] == list(both)


def test_the_controllers_word_says_which_partitions_a_refused_request_named() -> None:
    h = bounced()
    answer(h, send(h, "LeaderAndIsr", FORMER), REFUSED, partitions=())
    lead(h)
    assert outcome(h, "BE-02") is VIOLATED


def test_a_role_of_a_process_that_obeyed_a_request_for_the_partition_keeps_the_promise() -> None:
    h = bounced()
    answer(h, send(h, "LeaderAndIsr", OWN))
    answer(h, send(h, "LeaderAndIsr", FORMER, number=2), REFUSED)
    lead(h)
    assert outcome(h, "BE-02") is HOLDS


def test_a_refusal_of_another_request_does_not_concern_a_role() -> None:
    h = bounced()
    asked = send(h, "LeaderAndIsr", OWN)
    lead(h, by=asked)
    answer(h, send(h, "LeaderAndIsr", FORMER, number=2), REFUSED)
    answer(h, asked)
    assert outcome(h, "BE-02") is HOLDS


@pytest.mark.parametrize(("after_ms", "expected"), [(9_999, HOLDS), (10_000, VIOLATED)])
def test_a_role_waits_ten_seconds_for_the_request_that_gave_it(
    after_ms: int, expected: Outcome
) -> None:
    h = bounced()
    answer(h, send(h, "LeaderAndIsr", FORMER, attempt=0), REFUSED)
    lead(h)
    h.after(after_ms)
    assert outcome(h, "BE-02") is expected


# ------------------------------------------------------------------------------------------ BE-09


@pytest.mark.parametrize(
    ("state", "expected"), [("ended", HOLDS), ("suspended", HOLDS), ("connected", VIOLATED)]
)
def test_a_broker_whose_session_is_over_owes_no_role(state: str, expected: Outcome) -> None:
    h = current()
    answer(h, send(h, "LeaderAndIsr", OWN))
    session(h, state)
    h.after(60_000)
    assert outcome(h, "BE-09") is expected


@pytest.mark.parametrize(("state", "expected"), [("ended", NOT_EXERCISED), ("suspended", VIOLATED)])
def test_a_broker_keeps_its_epoch_while_its_session_is_suspended(
    state: str, expected: Outcome
) -> None:
    h = current()
    session(h, state)
    session(h, "connected")
    send(h, "UpdateMetadata", OWN)
    h.after(60_000)
    assert outcome(h, "BE-09") is expected


def test_a_role_that_began_as_the_other_one_does_not_count() -> None:
    h = current()
    answer(h, send(h, "LeaderAndIsr", OWN))
    h.add(
        NEW,
        FollowingStarted(
            topic="orders", partition=0, leader=2, leader_epoch=0, log_end=0, high_watermark=0
        ),
    )
    h.after(60_000)
    assert outcome(h, "BE-09") is VIOLATED


@pytest.mark.parametrize("end", ["registers anew", "stops it", "removes it", "topic deleted"])
def test_a_role_is_no_longer_due_once_its_ground_is_gone(end: str) -> None:
    h = current()
    answer(h, send(h, "LeaderAndIsr", OWN))
    if end == "registers anew":
        again(h, NEW, OWN + 10)
    elif end == "stops it":
        h.add(NEW, ReplicaStopped(topic="orders", partition=0, controller_epoch=1, request_epoch=1))
    elif end == "removes it":
        h.add(NEW, ReplicaRemoved(topic="orders", partition=0, topic_id="t", reason="unassigned"))
    else:
        h.add(CONTROLLER, TopicCommitted(offset=8, topic="orders", topic_id="t", deleted=True))
    h.after(60_000)
    assert outcome(h, "BE-09") is HOLDS


@pytest.mark.parametrize(("attempt", "epoch"), [(0, OWN), (1, -1)])
def test_no_answer_is_due_to_a_request_without_an_attempt_or_an_epoch(
    attempt: int, epoch: int
) -> None:
    h = HistoryBuilder()
    begin(h)
    register(h, NEW, epoch)
    send(h, "UpdateMetadata", epoch, attempt=attempt)
    h.after(60_000)
    assert outcome(h, "BE-09") is NOT_EXERCISED


def test_a_fault_that_has_healed_excuses_nothing_more() -> None:
    h = current()
    answer(h, send(h, "LeaderAndIsr", OWN))
    named_by_a_fault(h, NEW)
    healed(h)
    h.after(60_000)
    assert outcome(h, "BE-09") is VIOLATED


@pytest.mark.parametrize(("after_ms", "expected"), [(9_999, HOLDS), (10_000, VIOLATED)])
def test_a_role_is_due_ten_seconds_after_the_last_fault(after_ms: int, expected: Outcome) -> None:
    h = current()
    answer(h, send(h, "LeaderAndIsr", OWN))
    named_by_a_fault(h, NEW)
    h.after(20_000)
    healed(h)
    h.after(after_ms)
    kill(h)
    found = verdict(h, "BE-09")
    assert found.verdict is expected
    assert found.excused == (expected is HOLDS)


@pytest.mark.parametrize(("after_ms", "expected"), [(9_999, HOLDS), (10_000, VIOLATED)])
def test_a_role_is_due_ten_seconds_after_the_answer(after_ms: int, expected: Outcome) -> None:
    h = current()
    answer(h, send(h, "LeaderAndIsr", OWN))
    h.after(after_ms)
    kill(h)
    found = verdict(h, "BE-09")
    assert (found.verdict, found.excused) == (expected, 0)


@pytest.mark.parametrize(("leader", "expected"), [(0, VIOLATED), (2, VIOLATED), (-1, HOLDS)])
def test_a_broker_must_follow_a_leader_if_there_is_one(leader: int, expected: Outcome) -> None:
    h = current()
    led_by(h, leader)
    answer(h, send(h, "LeaderAndIsr", OWN))
    h.after(60_000)
    found = verdict(h, "BE-09")
    assert found.verdict is expected
    assert all(stated(one, "leads") is False for one in found.violations)


def test_a_broker_that_does_not_lead_is_said_not_to_lead() -> None:
    h = current()
    answer(h, send(h, "LeaderAndIsr", OWN))
    h.after(60_000)
    assert stated(verdict(h, "BE-09"), "partition", "leads") == ("orders-0", True)


def test_an_answer_of_the_former_process_answers_nothing_for_the_new_one() -> None:
    h = bounced()
    asked = send(h, "UpdateMetadata", OWN)
    answer(h, asked, process=OLD)
    h.after(60_000)
    assert outcome(h, "BE-09") is VIOLATED


def test_two_answers_to_one_request_are_enough() -> None:
    h = current()
    asked = send(h, "UpdateMetadata", OWN)
    answer(h, asked)
    answer(h, asked)
    store(h, 1)
    h.after(60_000)
    assert outcome(h, "BE-09") is HOLDS
