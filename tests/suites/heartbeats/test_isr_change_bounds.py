"""ISR changes over ZooKeeper: what refutes them, and what does not (HB-16, HB-19, HB-20, HB-21)."""

from __future__ import annotations

import pytest
from tests.suites.heartbeats.heartbeat_histories import (
    BROKER,
    CLAUSES,
    CONTROLLER,
    SECOND,
    Write,
    began,
    call,
    judged,
    registered,
    steps,
    stored,
    term_began,
    wait,
    whole_verdict,
)
from tests.suites.heartbeats.test_independent_evidence import (
    answered_for,
    deleted,
    next_controller,
    reads_older,
)
from tests.suites.partition_histories import stated

from fencepost import Evidence, ProcessExited
from fencepost.testing import HistoryBuilder, Outcome, Verdict, judge
from fencepost_kafka import ControllerEnded, IsrChangeAnswered, TopicCommitted
from fencepost_suites import rules

HOLDS, VIOLATED, NOT_EXERCISED = Outcome.HOLDS, Outcome.VIOLATED, Outcome.NOT_EXERCISED


def found(clause: str, *each: Write) -> Verdict:
    h = HistoryBuilder()
    steps(*each)(h)
    return whole_verdict(h, clause)


@pytest.mark.parametrize("clause", ["HB-19", "HB-21"])
def test_an_isr_that_was_replaced_in_the_same_leader_epoch_was_not_stored_at_its_answer(
    clause: str,
) -> None:
    """Only a later leader epoch shows that the answer may have come late."""
    read = call(stored, isr=(2, 3), leader=3, process=SECOND)
    replaced = call(stored, isr=(3,), leader=3, offset=60, process=SECOND)
    assert found(clause, term_began, read, replaced, judged).verdict is VIOLATED


def test_an_isr_of_a_deleted_topic_is_not_judged_by_hb_19() -> None:
    other = call(stored, leader=3)
    assert found("HB-19", term_began, other, judged).verdict is VIOLATED
    assert found("HB-19", term_began, other, deleted, judged).verdict is NOT_EXERCISED


@pytest.mark.parametrize(
    ("clause", "refusal"), [("HB-19", "NOT_LEADER_OR_FOLLOWER"), ("HB-20", "INVALID_REQUEST")]
)
def test_a_refusal_that_the_leader_received_is_its_evidence(clause: str, refusal: str) -> None:
    for error, expected in ((refusal, HOLDS), ("NONE", NOT_EXERCISED), ("OTHER", NOT_EXERCISED)):
        h = HistoryBuilder()
        body = IsrChangeAnswered(
            topic="orders", partition=0, leader_epoch=4, error=error, isr=(2, 3)
        )
        h.add(BROKER, body)
        got = whole_verdict(h, clause)
        assert got.verdict is expected
        assert got.exercised == 0 or got.evidence is Evidence.PEER


def test_an_isr_of_a_partition_that_no_node_has_read_is_not_judged_by_hb_20() -> None:
    assert found("HB-20", term_began, judged).verdict is NOT_EXERCISED


def test_an_isr_of_a_process_without_a_term_is_not_judged_by_hb_20() -> None:
    assert found("HB-20", stored, call(judged, isr="3")).verdict is NOT_EXERCISED


@pytest.mark.parametrize(("isr", "outcome"), [("1,2,3", NOT_EXERCISED), ("1,2,3,4", VIOLATED)])
def test_an_isr_may_have_all_replicas_and_no_other_broker(isr: str, outcome: Outcome) -> None:
    whole = call(stored, isr=(1, 2, 3))
    assert found("HB-20", term_began, whole, call(judged, isr=isr)).verdict is outcome


@pytest.mark.parametrize(("ms", "outcome"), [(-2, HOLDS), (-1, VIOLATED)])
def test_a_controller_is_a_later_one_if_its_term_began_when_the_answer_was_given_or_later(
    ms: int, outcome: Outcome
) -> None:
    history = (answered_for, wait(ms), next_controller, reads_older)
    assert found("HB-21", *history).verdict is outcome


# ------------------------------------------------------------------------------------------ HB-16

small = call(stored, isr=(2, 3))
grows = call(stored, isr=(2, 3, 1), offset=60)
grants = call(judged, isr="1,2,3")


def controller_ended(h: HistoryBuilder) -> None:
    h.add(CONTROLLER, ControllerEnded(epoch=1, reason="session"))


def exited(h: HistoryBuilder, process: str = CONTROLLER) -> None:
    h.add("harness", ProcessExited(ended=process, exit_code=-9, signal=9, expected=True))


@pytest.mark.parametrize(
    ("each", "violated"),
    [
        pytest.param((grows,), 1, id="nobody asked"),
        pytest.param((grows, call(judged, isr="1,2,3", result="INVALID_REQUEST")), 1, id="refused"),
        pytest.param((grows, call(judged, isr="2,3")), 1, id="another ISR was granted"),
        pytest.param((grows, grants), 0, id="granted"),
        pytest.param((grows, controller_ended), 0, id="the controller ended before it answered"),
        pytest.param((grows, exited), 0, id="its process did"),
        pytest.param((grows, call(exited, process="broker-3#1")), 1, id="another process did"),
        pytest.param((grows, wait(29_999), exited), 0, id="half a minute later"),
        pytest.param((grows, wait(30_000), exited), 1, id="later"),
        pytest.param((call(stored, isr=(2,), offset=60),), 0, id="a member leaves"),
        pytest.param(
            (call(stored, isr=(1, 2, 3), leader=3, offset=60),), 0, id="with another leader"
        ),
        pytest.param((call(registered, version=4), grows), 0, id="of a former protocol"),
    ],
)
def test_a_replica_that_joins_an_isr_without_a_grant_breaks_hb_16(
    each: tuple[Write, ...], violated: int
) -> None:
    """The leader tells nothing of what it wrote; the controller records what it finds."""
    h = HistoryBuilder()
    steps(began, registered, small, *each)(h)
    verdict = whole_verdict(h, "HB-16")
    assert verdict.violated == violated
    if violated:
        assert stated(verdict, "joined", "leader") == ((1,), "broker 2")


def test_a_topic_that_is_made_again_begins_with_a_new_isr_for_hb_16() -> None:
    h = HistoryBuilder()
    steps(began, registered, small)(h)
    h.add(CONTROLLER, TopicCommitted(offset=55, topic="orders", topic_id="", deleted=True))
    grows(h)
    assert whole_verdict(h, "HB-16").violated == 0


def test_hb_16_is_undecided_if_the_history_lacks_the_grant() -> None:
    h = HistoryBuilder()
    steps(began, registered, small, grows)(h)
    chosen = [rule for rule in rules.ALL if rule.clause == "HB-16"]
    judgement = judge(h.events(), chosen, CLAUSES, h.end(complete=False), "legacy")
    verdict = judgement.verdicts["HB-16"]
    assert (verdict.verdict, len(verdict.undecided)) == (Outcome.UNKNOWN, 1)
