"""Which side of a silence acts first, and until when it must (HB-06, HB-11): exact bounds."""

from __future__ import annotations

import pytest
from tests.suites.heartbeats.heartbeat_histories import (
    BROKER,
    CONTROLLER,
    Write,
    active_broker,
    answered,
    began,
    call,
    changed,
    declared,
    heard,
    received,
    registered,
    sent,
    served,
    steps,
    suspended,
    term_began,
    wait,
    whole_verdict,
)

from fencepost import Cause, FaultHealed, FaultInjected, Stalled
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import SessionChanged

HOLDS, VIOLATED, NOT_EXERCISED = Outcome.HOLDS, Outcome.VIOLATED, Outcome.NOT_EXERCISED
fenced = call(changed, new="FENCED")


def judged_as(clause: str, *each: Write) -> Outcome:
    h = HistoryBuilder()
    steps(*each)(h)
    return whole_verdict(h, clause).verdict


# ------------------------------------------------------------------------------------------ HB-06
# In `active_broker`, the broker has sent its heartbeat 3 ms before the next event.


@pytest.mark.parametrize(
    ("ms", "outcome"),
    [(2699, NOT_EXERCISED), (2700, HOLDS), (3400, HOLDS), (3401, VIOLATED)],
)
def test_a_silent_broker_fences_itself_about_one_timeout_after_its_last_heartbeat(
    ms: int, outcome: Outcome
) -> None:
    assert judged_as("HB-06", active_broker, wait(ms - 3), fenced) is outcome


def test_a_broker_that_serves_on_breaks_hb_06_once_a_silence() -> None:
    silence = steps(wait(5000), served, served)
    h = HistoryBuilder()
    steps(active_broker, silence, sent, received, silence)(h)
    assert whole_verdict(h, "HB-06").violated == 2


@pytest.mark.parametrize(
    ("state", "incarnation", "outcome"),
    [
        ("Active", 20, NOT_EXERCISED),
        ("Stopping", 20, NOT_EXERCISED),
        ("Inactive", 20, VIOLATED),
        ("Active", 10, VIOLATED),
    ],
)
def test_only_an_answer_that_the_process_is_in_the_cluster_ends_a_silence(
    state: str, incarnation: int, outcome: Outcome
) -> None:
    beat = steps(wait(1000), sent, call(received, state=state, incarnation=incarnation))
    assert judged_as("HB-06", active_broker, *[beat] * 5) is outcome


# ------------------------------------------------------------------------------------------ HB-11


def test_without_a_controller_no_side_is_first() -> None:
    assert judged_as("HB-11", active_broker, wait(3000), fenced) is NOT_EXERCISED


def test_a_broker_that_was_never_accepted_is_not_cut_off() -> None:
    assert judged_as("HB-11", term_began, answered, fenced) is NOT_EXERCISED


@pytest.mark.parametrize(("ms", "outcome"), [(0, NOT_EXERCISED), (1, VIOLATED)])
def test_a_controller_that_lost_its_session_may_have_been_away_for_the_session_timeout(
    ms: int, outcome: Outcome
) -> None:
    begins = call(began, session_timeout_ms=3000)
    accepted = (declared, active_broker, answered, received)
    early = (wait(700), fenced, wait(2998 + ms), suspended)
    assert judged_as("HB-11", begins, *accepted, *early) is outcome


@pytest.mark.parametrize(
    ("ms", "stalled_ms", "outcome", "excused"),
    [
        (3000, 903, NOT_EXERCISED, 1),
        (3000, 902, Outcome.UNKNOWN, 0),
        (1900, 1900, Outcome.UNKNOWN, 0),
    ],
)
def test_a_controller_that_stood_still_when_it_was_to_declare_a_broker_is_excused(
    ms: int, stalled_ms: int, outcome: Outcome, excused: int
) -> None:
    """It was due 2 s after the last heartbeat; for a broker that fenced itself before that, the
    stall is no reason."""
    h = HistoryBuilder()
    steps(heard, wait(ms - 3), fenced)(h)
    h.add(CONTROLLER, Stalled(stalled_ns=stalled_ms * 1_000_000))
    found = whole_verdict(h, "HB-11")
    assert (found.verdict, found.excused) == (outcome, excused)


@pytest.mark.parametrize(("number", "outcome"), [(5, VIOLATED), (6, NOT_EXERCISED)])
def test_only_a_heartbeat_since_the_last_accepted_one_shows_contact(
    number: int, outcome: Outcome
) -> None:
    beat = steps(wait(400), call(sent, number=6), wait(300), fenced)
    late = call(answered, cause=Cause(BROKER, number, request=True))
    assert judged_as("HB-11", heard, beat, late) is outcome


@pytest.mark.parametrize(("ms", "outcome"), [(-1, VIOLATED), (0, NOT_EXERCISED)])
def test_a_heartbeat_that_was_accepted_after_the_last_answer_came_was_heard(
    ms: int, outcome: Outcome
) -> None:
    """At `ms` after the broker received its last answer, but for the step of the history."""
    history = (term_began, active_broker, answered, received, wait(ms), answered)
    assert judged_as("HB-11", *history, wait(700), fenced) is outcome


@pytest.mark.parametrize(("ms", "outcome"), [(-1, VIOLATED), (0, NOT_EXERCISED)])
def test_a_term_that_began_after_the_last_contact_is_not_judged(ms: int, outcome: Outcome) -> None:
    connected = call(changed, new="ACTIVE", old="INITIAL", reason="unfenced")
    history = (registered, connected, sent, wait(ms), began, declared, answered, received)
    assert judged_as("HB-11", *history, wait(700), fenced) is outcome


@pytest.mark.parametrize(("ms", "outcome"), [(-2, NOT_EXERCISED), (-1, VIOLATED)])
def test_a_fault_counts_if_it_lasted_until_the_last_contact_or_longer(
    ms: int, outcome: Outcome
) -> None:
    ends = ("broker-2", "broker-1")

    def cut(h: HistoryBuilder) -> None:
        h.add(
            "harness",
            FaultInjected(fault_id="f", fault="cut", targets=ends, receipt=True, evidence=""),
        )

    def heal(h: HistoryBuilder) -> None:
        h.after(ms)
        h.add("harness", FaultHealed(fault_id="f", receipt=True, evidence=""))
        h.after(-ms - 1)

    def in_session(h: HistoryBuilder) -> None:
        h.add(BROKER, SessionChanged(session=7, state="connected"))

    online = call(changed, new="ACTIVE", old="INITIAL", reason="unfenced")
    accepted = (in_session, registered, online, sent, heal, answered, received)
    late = (wait(400), call(sent, number=6), wait(300), fenced)
    answer = call(answered, cause=Cause(BROKER, 6, request=True))
    assert judged_as("HB-11", *(term_began, cut, *accepted, *late, answer)) is outcome


# ------------------------------------------------------------------------------------------ HB-09


@pytest.mark.parametrize(
    ("cause", "ms", "outcome"),
    [
        (Cause(BROKER, 5, request=True), 1496, VIOLATED),
        (Cause(BROKER, 5, request=True), 1497, HOLDS),
        (Cause(BROKER, 6, request=True), 1797, VIOLATED),
        (None, 1798, VIOLATED),
        (None, 1799, HOLDS),
    ],
)
def test_a_heartbeat_whose_answer_waits_for_zookeeper_was_heard_when_it_came(
    cause: Cause | None, ms: int, outcome: Outcome
) -> None:
    """A broker that was fenced is declared active once ZooKeeper has stored it: 300 ms later."""
    active = steps(declared, call(answered, cause=cause))
    silent = call(declared, old="Active", new="Inactive", reason="silent")
    history = (began, registered, sent, wait(300), active, wait(ms), silent)
    assert judged_as("HB-09", *history) is outcome
