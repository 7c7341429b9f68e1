"""Registrations and incarnation ids: exact bounds, and whose word counts (HB-01, HB-12, HB-13,
HB-18, HB-22)."""

from __future__ import annotations

import pytest
from tests.suites.heartbeats.heartbeat_histories import (
    SECOND,
    Write,
    answered,
    began,
    call,
    declared,
    registered,
    steps,
    term_began,
    wait,
    whole_verdict,
)
from tests.suites.heartbeats.test_false_accounts import adopts, in_session, long_term, lost_session
from tests.suites.heartbeats.test_independent_evidence import (
    ASKED,
    is_granted,
    long_session,
    taken_over,
)

from fencepost import NodeStarted
from fencepost.testing import HistoryBuilder, Outcome, Verdict
from fencepost_clusters.zookeeper.events import SessionExpired

HOLDS, VIOLATED, NOT_EXERCISED = Outcome.HOLDS, Outcome.VIOLATED, Outcome.NOT_EXERCISED
bounced = call(declared, new="Absent", old="Active", reason="bounced")


def judged(clause: str, *each: Write) -> Verdict:
    h = HistoryBuilder()
    steps(*each)(h)
    return whole_verdict(h, clause)


def judged_as(clause: str, *each: Write) -> Outcome:
    return judged(clause, *each).verdict


# ------------------------------------------------------------------------------------------ HB-01


def test_a_process_that_starts_later_registers_with_a_higher_czxid() -> None:
    def starts(h: HistoryBuilder) -> None:
        h.add(SECOND, NodeStarted(role="broker", node_id=2, incarnation="y", log_end=-1))

    lower = call(registered, epoch=15, process=SECOND)
    assert judged_as("HB-01", registered, starts, lower) is VIOLATED
    assert judged_as("HB-01", starts, registered, lower) is NOT_EXERCISED


def test_a_process_that_registers_twice_with_one_czxid_breaks_hb_01() -> None:
    assert judged_as("HB-01", registered, registered) is VIOLATED


@pytest.mark.parametrize(("ms", "outcome"), [(2000, NOT_EXERCISED), (2001, VIOLATED)])
def test_a_heartbeat_that_no_broker_recorded_may_be_under_way_for_two_seconds(
    ms: int, outcome: Outcome
) -> None:
    history = (registered, call(registered, epoch=40), wait(ms - 1), answered)
    assert judged_as("HB-01", *history) is outcome


# ---------------------------------------------------------------------------------- HB-12, HB-18


@pytest.mark.parametrize("clause", ASKED)
@pytest.mark.parametrize(("ms", "outcome"), [(9000, NOT_EXERCISED), (9001, VIOLATED)])
def test_a_newer_registration_is_found_within_the_session_timeout_and_six_seconds(
    clause: str, ms: int, outcome: Outcome
) -> None:
    history = (registered, long_session, taken_over, wait(ms - 1), *ASKED[clause])
    found = judged(clause, *history)
    assert (found.verdict, found.excused) == (outcome, 0)


@pytest.mark.parametrize("clause", ASKED)
def test_a_superseded_legacy_process_may_be_accepted(clause: str) -> None:
    """It sends no heartbeats: what it asks for is judged by the rules of its protocol."""
    old = call(registered, version=4, protocol=2)
    history = (old, long_session, taken_over, wait(60_000), *ASKED[clause])
    assert judged_as(clause, *history) is NOT_EXERCISED


@pytest.mark.parametrize("clause", ASKED)
def test_a_czxid_that_two_processes_record_supersedes_neither(clause: str) -> None:
    same = call(registered, process=SECOND)
    history = (registered, long_session, same, wait(60_000), *ASKED[clause])
    assert judged_as(clause, *history) is NOT_EXERCISED


def test_an_isr_that_a_process_has_not_asked_for_is_not_judged_by_hb_18() -> None:
    history = (registered, long_session, taken_over, wait(60_000), is_granted)
    assert judged_as("HB-18", *history) is NOT_EXERCISED


def test_a_new_term_begins_without_the_incarnations_of_the_former_one() -> None:
    again = call(began, epoch=2)
    assert (
        judged_as("HB-12", term_began, again, call(answered, incarnation=10, known=10))
        is NOT_EXERCISED
    )
    assert judged_as("HB-13", term_began, again, adopts, wait(60_000)) is NOT_EXERCISED


# ------------------------------------------------------------------------------------------ HB-13


@pytest.mark.parametrize(("ms", "outcome"), [(5500, NOT_EXERCISED), (5501, VIOLATED)])
def test_a_bounce_that_fell_due_without_zookeeper_is_not_judged(ms: int, outcome: Outcome) -> None:
    assert judged_as("HB-13", long_term, adopts, wait(ms - 1), lost_session) is outcome


@pytest.mark.parametrize(("ms", "outcome"), [(2500, HOLDS), (2501, VIOLATED)])
def test_a_bounce_is_declared_within_the_timeout_and_500_ms(ms: int, outcome: Outcome) -> None:
    found = judged("HB-13", *(term_began, adopts, wait(ms - 1), bounced, wait(60_000)))
    assert (found.verdict, found.excused) == (outcome, 0)


def test_an_incarnation_that_was_declared_as_a_bounce_is_known() -> None:
    new = call(declared, old="Absent", reason="bounced", incarnation=30)
    beat = call(answered, incarnation=30, known=30)
    assert judged_as("HB-13", *(term_began, adopts, new, beat, wait(60_000))) is HOLDS


def test_a_lower_incarnation_may_be_refused_as_old() -> None:
    old = call(answered, incarnation=10, error="INVALID_INCARNATION_ID")
    assert judged_as("HB-13", term_began, old) is NOT_EXERCISED


@pytest.mark.parametrize(("known", "outcome"), [(0, VIOLATED), (-1, NOT_EXERCISED)])
def test_an_incarnation_is_adopted_over_one_that_was_known(known: int, outcome: Outcome) -> None:
    found = call(declared, incarnation=known)
    assert judged_as("HB-13", began, found, adopts, wait(3000)) is outcome


@pytest.mark.parametrize(("known", "outcome"), [(0, HOLDS), (-1, NOT_EXERCISED)])
def test_an_answer_shows_the_adoption_if_it_names_the_incarnation_before(
    known: int, outcome: Outcome
) -> None:
    new = call(declared, incarnation=30)
    assert judged_as("HB-13", began, new, call(answered, incarnation=30, known=known)) is outcome


# ------------------------------------------------------------------------------------------ HB-22


@pytest.mark.parametrize(
    ("protocol", "outcome"), [(0, VIOLATED), (2, VIOLATED), (3, NOT_EXERCISED)]
)
def test_a_broker_below_the_protocol_of_heartbeats_sends_none(
    protocol: int, outcome: Outcome
) -> None:
    version = 5 if protocol == 3 else 4
    own = call(registered, version=version, protocol=protocol)
    assert judged_as("HB-22", own, answered) is outcome


@pytest.mark.parametrize(("protocol", "outcome"), [(-1, NOT_EXERCISED), (0, VIOLATED)])
def test_a_broker_whose_protocol_is_known_registers_with_its_version(
    protocol: int, outcome: Outcome
) -> None:
    assert judged_as("HB-22", call(registered, version=5, protocol=protocol)) is outcome


# ------------------------------------------------------------------------------------------ HB-27


def test_the_end_of_another_session_ends_no_term() -> None:
    def other_expires(h: HistoryBuilder) -> None:
        h.add("zookeeper-1#1", SessionExpired(session="0x9", timeout_ms=3000))

    history = (in_session, term_began, other_expires, wait(10_000), answered)
    assert judged_as("HB-27", *history) is NOT_EXERCISED


@pytest.mark.parametrize(("ms", "outcome"), [(1000, NOT_EXERCISED), (1001, VIOLATED)])
def test_a_controller_knows_the_end_of_its_session_within_a_second(
    ms: int, outcome: Outcome
) -> None:
    def expires(h: HistoryBuilder) -> None:
        h.add("zookeeper-1#1", SessionExpired(session="0x5", timeout_ms=3000))

    history = (in_session, term_began, expires, wait(ms - 1), answered)
    assert judged_as("HB-27", *history) is outcome
