"""The states of brokers at the controller: exact bounds, and what does not count (HB-02, HB-09,
HB-10, HB-14, HB-23)."""

from __future__ import annotations

import pytest
from tests.suites.heartbeats.heartbeat_histories import (
    BROKER,
    CONTROLLER,
    Write,
    answered,
    began,
    call,
    declared,
    legacy,
    received,
    registered,
    sent,
    silence,
    steps,
    suspended,
    term_began,
    wait,
    whole_verdict,
)
from tests.suites.heartbeats.test_false_accounts import (
    dies,
    long_term,
    lost_session,
    server,
    server_again,
    server_ended,
)

from fencepost import Cause, Evidence, ProcessSpawned, Stalled
from fencepost.testing import HistoryBuilder, Outcome, Verdict
from fencepost_kafka import ControllerBegan, MetadataHeartbeatReceived, SessionChanged

HOLDS, VIOLATED, NOT_EXERCISED = Outcome.HOLDS, Outcome.VIOLATED, Outcome.NOT_EXERCISED
beat = steps(wait(300), sent)
MS = 1_000_000
stateless = steps(beat, call(received, state="Initial"))


def judged(clause: str, *each: Write) -> Verdict:
    h = HistoryBuilder()
    steps(*each)(h)
    return whole_verdict(h, clause)


def judged_as(clause: str, *each: Write) -> Outcome:
    return judged(clause, *each).verdict


def in_session(h: HistoryBuilder) -> None:
    h.add(CONTROLLER, SessionChanged(session=5, state="connected"))


# ------------------------------------------------------------------------------------------ HB-02


@pytest.mark.parametrize(
    ("first", "epoch", "reason", "outcome"),
    [
        (False, 2, "controller_elected", NOT_EXERCISED),
        (True, 2, "controller_elected", VIOLATED),
        (False, 2, "heartbeat", VIOLATED),
        # Nobody was the controller before it, whatever it says.
        (False, 1, "controller_elected", VIOLATED),
    ],
)
def test_only_a_successor_may_find_a_broker_active_that_has_sent_no_heartbeat(
    first: bool, epoch: int, reason: str, outcome: Outcome
) -> None:
    found = call(declared, reason=reason)
    assert judged_as("HB-02", call(began, first=first, epoch=epoch), found) is outcome


# ------------------------------------------------------------------------------------------ HB-09


@pytest.mark.parametrize(("ms", "outcome"), [(3000, NOT_EXERCISED), (3001, VIOLATED)])
def test_a_silent_broker_is_inactive_after_five_quarters_of_the_timeout_and_500_ms(
    ms: int, outcome: Outcome
) -> None:
    assert judged_as("HB-09", term_began, answered, wait(ms - 1), answered) is outcome


@pytest.mark.parametrize(("ms", "outcome"), [(5000, NOT_EXERCISED), (5001, VIOLATED)])
def test_a_declaration_that_fell_due_without_zookeeper_is_not_judged(
    ms: int, outcome: Outcome
) -> None:
    assert judged_as("HB-09", long_term, answered, wait(ms - 1), lost_session) is outcome


@pytest.mark.parametrize("state", [legacy, call(declared, new="Inactive")])
def test_only_a_live_broker_that_sends_heartbeats_can_be_silent(state: Write) -> None:
    assert judged_as("HB-09", began, state, wait(60_000)) is NOT_EXERCISED


def test_a_dead_controller_owes_no_declaration() -> None:
    assert judged_as("HB-09", term_began, answered, dies, wait(60_000)) is NOT_EXERCISED


def test_a_declaration_for_a_heartbeat_counts_as_one_that_was_heard() -> None:
    stops = call(declared, new="Stopping", old="Active")
    history = (term_began, wait(2000), stops, wait(2000), answered)
    assert judged_as("HB-09", *history) is NOT_EXERCISED


def test_an_event_with_a_cause_that_is_no_answer_hears_nothing() -> None:
    h = HistoryBuilder()
    term_began(h)
    caused = Cause(BROKER, 5, request=True)
    h.add(CONTROLLER, SessionChanged(session=5, state="connected"), cause=caused)
    steps(answered, wait(2000), silence)(h)
    assert whole_verdict(h, "HB-09").verdict is HOLDS


def second_server(h: HistoryBuilder) -> None:
    body = ProcessSpawned(
        started="zookeeper-2#1", slot="zookeeper-2", role="zookeeper", node_id=202, pid=2
    )
    h.add("harness", body)


@pytest.mark.parametrize(
    "during",
    [
        (server, wait(10_000)),
        (wait(10_000), server),
        (wait(20_000), server_ended, server_again),
    ],
    ids=["a server joins", "the first server is seen late", "a server restarts at once"],
)
def test_a_late_declaration_is_judged_while_zookeeper_answers(during: tuple[Write, ...]) -> None:
    known = (second_server,) if during[0] is server else ()
    begin = (server,) if during[-1] is server_again else known
    history = (*begin, long_term, answered, wait(10_000), *during, lost_session)
    assert judged_as("HB-09", *history) is VIOLATED


@pytest.mark.parametrize(("ms", "outcome"), [(200, VIOLATED), (201, Outcome.UNKNOWN)])
def test_zookeeper_must_be_away_for_more_than_a_tenth_of_the_timeout(
    ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    steps(server, term_began, answered, wait(3000))(h)
    h.add("zookeeper-1#1", Stalled(stalled_ns=ms * 1_000_000))
    steps(wait(200), answered)(h)
    assert whole_verdict(h, "HB-09").verdict is outcome


# ------------------------------------------------------------------------------------------ HB-14


@pytest.mark.parametrize("not_accepted", [{"error": "NOT_CONTROLLER"}, {"active": False}])
def test_only_an_accepted_heartbeat_reaches_its_target(not_accepted: dict[str, object]) -> None:
    answer = call(answered, state="Inactive", **not_accepted)
    assert judged_as("HB-14", term_began, answer) is NOT_EXERCISED


def test_the_answer_that_a_broker_receives_is_its_evidence_that_it_reached_its_target() -> None:
    found = judged("HB-14", registered, term_began, beat, received)
    assert (found.verdict, found.evidence) == (HOLDS, Evidence.PEER)


def test_a_refusal_with_a_state_shows_no_target_reached() -> None:
    refused = call(received, error="NOT_CONTROLLER")
    assert judged_as("HB-14", registered, term_began, beat, refused) is NOT_EXERCISED


@pytest.mark.parametrize("between", [call(received, error="NOT_CONTROLLER"), steps(beat, received)])
def test_another_answer_ends_a_series_of_answers_without_a_state(between: Write) -> None:
    history = (registered, began, *[stateless] * 15, between, *[stateless] * 15)
    assert judged_as("HB-14", *history) is not VIOLATED


def test_two_controllers_have_each_its_time_to_read_a_registration() -> None:
    def other_began(h: HistoryBuilder) -> None:
        h.add(
            "broker-3#1",
            ControllerBegan(epoch=2, broker_id=3, first=False, heartbeat_timeout_ms=2000),
        )

    def from_other(h: HistoryBuilder) -> None:
        body = MetadataHeartbeatReceived(
            broker_id=2,
            incarnation_id=20,
            controller=3,
            error="NONE",
            state=0,
            sent_ns=0,
            timeout_ms=3000,
        )
        h.add(BROKER, body)

    second = steps(beat, from_other)
    history = (registered, began, *[stateless] * 15, other_began, *[second] * 15)
    assert judged_as("HB-14", *history) is NOT_EXERCISED


def test_an_answer_without_a_state_of_a_process_without_a_term_is_not_judged() -> None:
    history = (registered, began, suspended, *[stateless] * 40)
    assert judged_as("HB-14", *history) is NOT_EXERCISED


def stateless_at(*times_ms: int) -> Write:
    """Answers without a state that come at these times."""

    def write(h: HistoryBuilder) -> None:
        begin_ns = h.now_ns + MS
        for ms in times_ms:
            h.after((begin_ns - h.now_ns) // MS + ms - 1)
            steps(sent, call(received, state="Initial"))(h)

    return write


@pytest.mark.parametrize(("ms", "outcome"), [(2000, VIOLATED), (2001, NOT_EXERCISED)])
def test_answers_without_a_state_are_one_series_within_the_timeout(
    ms: int, outcome: Outcome
) -> None:
    series = stateless_at(*(ms * number for number in range(5)))
    assert judged_as("HB-14", registered, began, series) is outcome


@pytest.mark.parametrize(("last_ms", "outcome"), [(6000, NOT_EXERCISED), (6001, VIOLATED)])
def test_a_controller_reads_a_registration_within_six_seconds(
    last_ms: int, outcome: Outcome
) -> None:
    found = judged("HB-14", registered, began, stateless_at(0, 1500, 3000, 4500, last_ms))
    assert (found.verdict, found.excused) == (outcome, 0)


# ------------------------------------------------------------------------------------------ HB-23


def test_a_broker_that_sends_heartbeats_does_not_exercise_hb_23() -> None:
    assert judged_as("HB-23", term_began, wait(60_000), silence) is NOT_EXERCISED
    assert judged_as("HB-23", term_began, wait(60_000)) is NOT_EXERCISED


@pytest.mark.parametrize(("ms", "outcome"), [(1999, NOT_EXERCISED), (2000, HOLDS)])
def test_a_legacy_registration_exercises_hb_23_once_it_is_live_for_the_timeout(
    ms: int, outcome: Outcome
) -> None:
    assert judged_as("HB-23", began, legacy, wait(ms - 1)) is outcome


@pytest.mark.parametrize(("ms", "exercised"), [(1999, 0), (2000, 1)])
def test_a_legacy_registration_that_is_declared_again_was_live_until_then(
    ms: int, exercised: int
) -> None:
    again = call(declared, old="Active", reason="registered", version=4)
    assert judged("HB-23", began, legacy, wait(ms - 1), again).exercised == exercised


def test_other_events_of_a_controller_do_not_concern_legacy_registrations() -> None:
    assert judged_as("HB-23", began, legacy, in_session, wait(2500)) is HOLDS


def test_a_declaration_of_a_process_without_a_term_does_not_exercise_hb_23() -> None:
    assert judged_as("HB-23", legacy, wait(2500), legacy) is NOT_EXERCISED
