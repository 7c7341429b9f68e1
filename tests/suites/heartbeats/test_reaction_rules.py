"""Histories in which a broker does not record the answers to its heartbeats, or does nothing more
after one: HB-08 and HB-29."""

from __future__ import annotations

import pytest
from tests.suites.heartbeats.heartbeat_histories import (
    Write,
    active_broker,
    answered,
    call,
    changed,
    killed,
    received,
    sent,
    steps,
    term_began,
    wait,
    whole_verdict,
)
from tests.suites.partition_histories import stated, why

from fencepost import FaultHealed, FaultInjected, Stalled
from fencepost.testing import HistoryBuilder, Outcome

VIOLATED, NOT_EXERCISED = Outcome.VIOLATED, Outcome.NOT_EXERCISED
beat = steps(wait(400), sent)
refuses = call(answered, error="INVALID_INCARNATION_ID")
fenced = steps(term_began, active_broker, call(changed, new="FENCED"))
active = steps(term_began, active_broker)
SILENT = {
    "HB-08": (fenced, steps(beat, answered)),
    "HB-29": (active, steps(beat, refuses)),
}
"""Clause -> how a history begins, and a heartbeat whose answer only the controller records."""
LEFT = {
    "HB-08": steps(fenced, sent, received),
    "HB-29": steps(active, sent, call(received, error="INVALID_INCARNATION_ID")),
}
"""Clause -> a history that ends with the answer to which the broker must react."""


def judged_as(clause: str, *each: Write) -> Outcome:
    h = HistoryBuilder()
    steps(*each)(h)
    return whole_verdict(h, clause).verdict


def fault(target: str) -> Write:
    body = FaultInjected(
        fault_id="f-1", fault="cut", targets=(target, "x"), receipt=True, evidence=""
    )

    def write(h: HistoryBuilder) -> None:
        h.add("harness", body)

    return write


def heals(h: HistoryBuilder) -> None:
    h.add("harness", FaultHealed(fault_id="f-1", receipt=True, evidence=""))


@pytest.mark.parametrize("clause", SILENT)
def test_a_broker_that_records_no_answer_is_judged_by_its_controller(clause: str) -> None:
    begin, once = SILENT[clause]
    assert judged_as(clause, begin, *[once] * 20) is VIOLATED
    assert judged_as(clause, begin, *[once] * 10) is NOT_EXERCISED


@pytest.mark.parametrize("clause", SILENT)
def test_an_answer_to_another_incarnation_is_none_that_a_broker_records(clause: str) -> None:
    begin, once = SILENT[clause]
    other = steps(once, call(received, incarnation=7))
    assert judged_as(clause, begin, *[other] * 20) is VIOLATED


@pytest.mark.parametrize("clause", SILENT)
@pytest.mark.parametrize("target", ["broker-1", "broker-2#1"])
def test_a_fault_at_either_may_have_lost_the_answers(clause: str, target: str) -> None:
    begin, once = SILENT[clause]
    h = HistoryBuilder()
    steps(begin, fault(target), *[once] * 20, heals, *[once] * 10)(h)
    found = whole_verdict(h, clause)
    assert found.verdict is NOT_EXERCISED
    assert found.excused == 1
    assert stated(found.excuses[0], "times") == 14
    assert why(found, "fault") == "f-1"


@pytest.mark.parametrize("clause", SILENT)
def test_a_fault_at_another_broker_excuses_nothing(clause: str) -> None:
    begin, once = SILENT[clause]
    assert judged_as(clause, begin, fault("broker-3"), *[once] * 20) is VIOLATED


@pytest.mark.parametrize("clause", LEFT)
def test_a_broker_that_does_nothing_after_an_answer_is_judged_at_the_end(clause: str) -> None:
    assert judged_as(clause, LEFT[clause], wait(60_000)) is VIOLATED
    assert judged_as(clause, LEFT[clause], wait(60_000), killed) is VIOLATED
    assert judged_as(clause, LEFT[clause], wait(900), killed) is NOT_EXERCISED
    died = (wait(900), killed, wait(60_000))
    assert judged_as(clause, LEFT[clause], *died) is NOT_EXERCISED, "a dead process does nothing"


@pytest.mark.parametrize("clause", LEFT)
def test_a_stall_of_the_broker_excuses_a_late_reaction(clause: str) -> None:
    h = HistoryBuilder()
    steps(LEFT[clause], wait(5000))(h)
    h.add("broker-2#1", Stalled(stalled_ns=5_000_000_000))
    found = whole_verdict(h, clause)
    assert found.verdict is NOT_EXERCISED
    assert found.excused == 1
    assert why(found, "stalled") == "broker-2#1"


def test_accepted_heartbeats_whose_answers_a_broker_does_not_record_demand_no_fence() -> None:
    assert judged_as("HB-29", active, *[steps(beat, answered)] * 20) is NOT_EXERCISED


def test_refusals_of_a_broker_that_is_fenced_already_demand_no_fence() -> None:
    assert judged_as("HB-29", fenced, *[steps(beat, refuses)] * 20) is NOT_EXERCISED


def test_accepted_heartbeats_of_a_broker_that_is_active_demand_no_reaction() -> None:
    """HB-08 is about a fenced broker, whether it records the answers or its controller does."""
    assert judged_as("HB-08", active, *[steps(beat, received)] * 3) is NOT_EXERCISED
    assert judged_as("HB-08", active, *[steps(beat, answered)] * 20) is NOT_EXERCISED


def test_a_broker_that_has_lost_its_id_stays_fenced_though_a_heartbeat_of_it_is_accepted() -> None:
    """HB-08: the controller may not know its successor yet."""
    lost = steps(active, call(changed, new="FENCED", reason="taken_over"))
    assert judged_as("HB-08", lost, *[steps(beat, received)] * 3) is NOT_EXERCISED
    assert judged_as("HB-08", fenced, *[steps(beat, received)] * 3) is VIOLATED
