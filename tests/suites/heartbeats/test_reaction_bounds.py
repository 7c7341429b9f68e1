"""How soon a broker reacts to an answer, and which answers it need not react to (HB-08, HB-29)."""

from __future__ import annotations

import pytest
from tests.suites.heartbeats.heartbeat_histories import (
    Write,
    answered,
    call,
    killed,
    received,
    sent,
    steps,
    wait,
    whole_verdict,
)
from tests.suites.heartbeats.test_reaction_rules import LEFT, SILENT, active, fault, fenced, refuses

from fencepost.testing import HistoryBuilder, Outcome, Verdict

VIOLATED, NOT_EXERCISED = Outcome.VIOLATED, Outcome.NOT_EXERCISED


def judged(clause: str, *each: Write) -> Verdict:
    h = HistoryBuilder()
    steps(*each)(h)
    return whole_verdict(h, clause)


@pytest.mark.parametrize("clause", LEFT)
@pytest.mark.parametrize(("ms", "outcome"), [(1000, NOT_EXERCISED), (1001, VIOLATED)])
def test_a_broker_reacts_within_a_second(clause: str, ms: int, outcome: Outcome) -> None:
    assert judged(clause, LEFT[clause], wait(ms - 1), killed).verdict is outcome


@pytest.mark.parametrize("clause", LEFT)
def test_a_broker_that_goes_on_after_an_answer_breaks_the_promise_once(clause: str) -> None:
    assert judged(clause, *(LEFT[clause], sent, sent, wait(5000), sent)).violated == 1


@pytest.mark.parametrize("clause", SILENT)
@pytest.mark.parametrize(("ms", "outcome"), [(5000, NOT_EXERCISED), (5001, VIOLATED)])
def test_three_answers_within_five_seconds_may_be_lost(
    clause: str, ms: int, outcome: Outcome
) -> None:
    begin, once = SILENT[clause]
    answer = answered if clause == "HB-08" else refuses
    history = (begin, answer, once, wait(ms - 403), answer)
    assert judged(clause, *history).verdict is outcome


@pytest.mark.parametrize("clause", SILENT)
@pytest.mark.parametrize(("times", "outcome"), [(2, NOT_EXERCISED), (3, VIOLATED)])
def test_two_lost_answers_show_nothing(clause: str, times: int, outcome: Outcome) -> None:
    begin, once = SILENT[clause]
    assert judged(clause, begin, *[steps(wait(9000), once)] * times).verdict is outcome


@pytest.mark.parametrize("clause", SILENT)
def test_a_fault_that_begins_meanwhile_may_have_lost_the_answers(clause: str) -> None:
    begin, once = SILENT[clause]
    found = judged(clause, begin, *[once] * 5, fault("broker-2#1"), *[once] * 10)
    assert (found.verdict, found.excused) == (NOT_EXERCISED, 1)


@pytest.mark.parametrize("clause", SILENT)
def test_an_answer_that_a_broker_records_begins_the_count_anew(clause: str) -> None:
    begin, once = SILENT[clause]
    got = call(received, error="NOT_CONTROLLER")
    assert judged(clause, begin, *[once] * 10, got, *[once] * 10).verdict is NOT_EXERCISED


def test_an_accepted_heartbeat_begins_the_count_of_refusals_anew() -> None:
    begin, once = SILENT["HB-29"]
    history = (begin, *[once] * 10, answered, *[once] * 10)
    assert judged("HB-29", *history).verdict is NOT_EXERCISED


def test_an_active_broker_whose_heartbeat_is_accepted_goes_on() -> None:
    assert judged("HB-29", active, sent, received, sent).verdict is NOT_EXERCISED


def test_a_refusal_of_another_incarnation_does_not_concern_a_broker() -> None:
    other = call(received, error="INVALID_INCARNATION_ID", incarnation=10)
    assert judged("HB-29", active, sent, other, sent).verdict is NOT_EXERCISED


@pytest.mark.parametrize(("ms", "outcome"), [(2699, VIOLATED), (2700, NOT_EXERCISED)])
def test_an_answer_that_comes_near_the_end_of_the_timeout_unfences_no_broker(
    ms: int, outcome: Outcome
) -> None:
    history = (fenced, sent, wait(ms - 1), received, wait(2000))
    assert judged("HB-08", *history).verdict is outcome
