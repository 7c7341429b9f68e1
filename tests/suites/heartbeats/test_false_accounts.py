"""Histories in which a node is silent, ends, or gives a false account. The rules of heartbeats
judge it by other evidence, and each bound when it is over."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.suites.heartbeats.heartbeat_histories import (
    BROKER,
    CONTROLLER,
    Write,
    active_broker,
    answered,
    asked_to_stop,
    began,
    call,
    changed,
    declared,
    heard,
    judged,
    killed,
    legacy,
    received,
    registered,
    sent,
    steps,
    stored,
    suspended,
    term_began,
    verdict,
    wait,
)

from fencepost import Cause, FaultHealed, FaultInjected, ProcessExited, ProcessSpawned, Stalled
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_clusters.zookeeper.events import SessionExpired
from fencepost_kafka import (
    ControllerBegan,
    ControllerEnded,
    MetadataHeartbeatReceived,
    SessionChanged,
)

HOLDS, VIOLATED, NOT_EXERCISED = Outcome.HOLDS, Outcome.VIOLATED, Outcome.NOT_EXERCISED


def judged_as(clause: str, *each: Write) -> Outcome:
    h = HistoryBuilder()
    steps(*each)(h)
    return verdict(h, clause)


def deposed(h: HistoryBuilder) -> None:
    h.add(CONTROLLER, ControllerEnded(epoch=1, reason="deposed"))


def lost_session(h: HistoryBuilder) -> None:
    """As a controller records it: first the session, then its term."""
    h.add(CONTROLLER, SessionChanged(session=1, state="suspended"))
    h.add(CONTROLLER, ControllerEnded(epoch=1, reason="session"))


def dies(h: HistoryBuilder, process: str = CONTROLLER) -> None:
    h.add("harness", ProcessExited(ended=process, exit_code=-1, signal=9, expected=True))


# ------------------------------------------------------------------------------------------ HB-13

adopts = call(answered, incarnation=30)
long_term = steps(call(began, session_timeout_ms=3000), declared)


@pytest.mark.parametrize("end", [deposed, lost_session, dies])
def test_an_adopted_incarnation_is_judged_when_the_term_ends(end: Write) -> None:
    assert judged_as("HB-13", long_term, adopts, wait(60_000), end) is VIOLATED


@pytest.mark.parametrize("end", [deposed, lost_session, dies])
def test_an_adopted_incarnation_is_not_due_after_the_end_of_the_term(end: Write) -> None:
    history = (long_term, adopts, wait(50), end, wait(10_000), call(began, epoch=2))
    assert judged_as("HB-13", *history) is NOT_EXERCISED


def test_a_controller_without_zookeeper_cannot_handle_a_bounce() -> None:
    assert judged_as("HB-13", long_term, adopts, wait(4000), lost_session) is NOT_EXERCISED


# ------------------------------------------------------------------------------------------ HB-01


def test_a_heartbeat_with_the_czxid_before_the_newest_breaks_hb_01() -> None:
    beat = steps(call(sent, incarnation=20), call(answered, incarnation=20), wait(300))
    history = (registered, call(registered, epoch=40), began, *[beat] * 10)
    assert judged_as("HB-01", *history) is VIOLATED
    assert judged_as("HB-28", *history) is VIOLATED


def test_a_heartbeat_that_was_sent_before_a_new_registration_may_arrive_after_it() -> None:
    h = HistoryBuilder()
    registered(h)
    began(h)
    sent(h)
    registered(h, epoch=40)
    h.after(5000)
    answered(h, cause=Cause(process=BROKER, seq=5, request=True))
    assert verdict(h, "HB-01") is NOT_EXERCISED
    assert verdict(h, "HB-28") is NOT_EXERCISED


# ------------------------------------------------------------------------------------------ HB-09


def test_a_silent_broker_is_judged_when_its_controller_loses_its_session() -> None:
    """The session's event comes first, and ends the term."""
    assert judged_as("HB-09", long_term, answered, wait(20_000), lost_session) is VIOLATED
    assert judged_as("HB-09", long_term, answered, wait(4500), lost_session) is NOT_EXERCISED


def server(h: HistoryBuilder, number: int = 1) -> None:
    process = f"zookeeper-1#{number}"
    body = ProcessSpawned(
        started=process, slot="zookeeper-1", role="zookeeper", node_id=201, pid=number
    )
    h.add("harness", body)


def server_ended(h: HistoryBuilder) -> None:
    body = ProcessExited(ended="zookeeper-1#1", exit_code=0, signal=9, expected=True)
    h.add("harness", body)


def server_stalled(h: HistoryBuilder) -> None:
    h.add("zookeeper-1#1", Stalled(stalled_ns=2_000_000_000))


def server_again(h: HistoryBuilder) -> None:
    server(h, 2)


def test_a_declaration_that_was_late_without_zookeeper_is_undecided() -> None:
    """A controller stores what it has decided before it decides the next thing."""
    late = (wait(20_000), lost_session)
    assert judged_as("HB-09", server, long_term, answered, *late) is VIOLATED
    stalled = (server, long_term, answered, wait(9_000), server_stalled, wait(9_000), lost_session)
    assert judged_as("HB-09", *stalled) is Outcome.UNKNOWN
    down = (wait(9_000), server_ended, wait(9_000), server_again, wait(2_000), lost_session)
    assert judged_as("HB-09", server, long_term, answered, *down) is Outcome.UNKNOWN
    early = (server, server_ended, wait(9_000), server_again, long_term, answered, *late)
    assert judged_as("HB-09", *early) is VIOLATED


@pytest.mark.parametrize(("server", "found"), [("zookeeper-1", NOT_EXERCISED), ("x-1", VIOLATED)])
def test_a_declaration_that_was_late_over_a_slow_way_to_zookeeper_is_excused(
    server: str, found: Outcome
) -> None:
    def slowed(h: HistoryBuilder) -> None:
        body = FaultInjected(
            fault_id="slow_link-1",
            fault="slow_link",
            targets=("broker-1", server),
            receipt=True,
            evidence="it took 300 ms",
            directions=(f"broker-1 -> {server}", f"{server} -> broker-1"),
        )
        h.add("harness", body)

    late = (slowed, wait(20_000), lost_session)
    assert judged_as("HB-09", long_term, answered, *late) is found


def test_a_controller_that_names_heartbeats_of_a_dead_broker_breaks_hb_09() -> None:
    answers = steps(wait(1000), answered)
    history = (term_began, sent, answered, killed, *[answers] * 10)
    assert judged_as("HB-09", *history) is VIOLATED


def test_a_controller_that_names_heartbeats_that_were_not_sent_breaks_hb_09() -> None:
    h = HistoryBuilder()
    term_began(h)
    sent(h)
    for number in range(5, 15):
        answered(h, cause=Cause(process=BROKER, seq=number, request=True))
        h.after(1000)
    assert verdict(h, "HB-09") is VIOLATED


def test_a_heartbeat_that_was_under_way_when_its_broker_died_counts_once() -> None:
    h = HistoryBuilder()
    term_began(h)
    sent(h)
    killed(h)
    h.after(1900)
    answered(h, cause=Cause(process=BROKER, seq=5, request=True))
    h.after(1900)
    assert verdict(h, "HB-09") is NOT_EXERCISED
    answered(h, cause=Cause(process=BROKER, seq=5, request=True))
    h.after(1900)
    assert verdict(h, "HB-09") is VIOLATED


@pytest.mark.parametrize(
    ("answers", "second_ms", "outcome"),
    [
        ((6, 7), 2200, NOT_EXERCISED),
        ((6,), 2200, VIOLATED),
        ((7,), 2200, VIOLATED),
        ((), 2200, VIOLATED),
        ((6, 7), 2999, NOT_EXERCISED),
        ((6, 7), 3000, VIOLATED),
    ],
    ids=["both", "first", "second", "none", "at the bound", "late"],
)
def test_heartbeats_that_wait_for_a_registration_to_be_read_were_heard(
    answers: tuple[int, ...], second_ms: int, outcome: Outcome
) -> None:
    """A new process has bounced; the controller reads its registration over a slow link."""
    h = HistoryBuilder()
    term_began(h)
    sent(h)
    answered(h, cause=Cause(BROKER, 5, request=True))
    new = "broker-2#2"
    for number in (6, 7):
        h.after(second_ms)
        sent(h, incarnation=40, process=new, number=number)
    h.after(1500)
    declared(h, "Absent", "Active", "bounced")
    for number in answers:
        cause = Cause(new, number, request=True)
        answered(h, 40, "INVALID_REQUEST", "Initial", client=new, cause=cause)
    assert verdict(h, "HB-09") is outcome


def test_a_heartbeating_broker_that_the_controller_calls_a_legacy_one_is_judged() -> None:
    history = (registered, began, call(declared, version=4), answered, wait(20_000))
    assert judged_as("HB-09", *history) is VIOLATED


# ------------------------------------------------------------------------------------------ HB-23


def test_a_legacy_broker_that_the_controller_calls_a_heartbeating_one_is_judged() -> None:
    history = (
        *(call(registered, version=4, protocol=2), began, legacy),
        call(declared, new="Inactive", old="Active", reason="silent", version=5),
    )
    assert judged_as("HB-23", *history) is VIOLATED


# ---------------------------------------------------------------------------------- HB-17, HB-27


def in_session(h: HistoryBuilder) -> None:
    h.add(CONTROLLER, SessionChanged(session=5, state="connected"))


def session_expires(h: HistoryBuilder) -> None:
    h.add("zookeeper-1#1", SessionExpired(session="0x5", timeout_ms=3000))


def other_is_elected(h: HistoryBuilder) -> None:
    body = ControllerBegan(epoch=2, broker_id=3, first=False, heartbeat_timeout_ms=2000)
    h.add("broker-3#1", body)


@pytest.mark.parametrize("deposed", [session_expires, other_is_elected])
@pytest.mark.parametrize(("clause", "act"), [("HB-27", answered), ("HB-17", judged)])
def test_a_controller_that_goes_on_silently_after_its_office_ended_is_judged(
    clause: str, act: Write, deposed: Write
) -> None:
    begin = (in_session, term_began, stored, deposed)
    assert judged_as(clause, *begin, wait(10_000), act) is VIOLATED
    assert judged_as(clause, *begin, wait(900), act) is NOT_EXERCISED


def test_a_stall_may_explain_an_answer_after_the_office_ended() -> None:
    h = HistoryBuilder()
    steps(in_session, term_began, session_expires, wait(10_000))(h)
    h.add(CONTROLLER, Stalled(stalled_ns=10_000_000_000))
    answered(h)
    assert verdict(h, "HB-27") is NOT_EXERCISED


def test_a_controller_that_is_elected_again_answers() -> None:
    again = (session_expires, wait(5000), lost_session, in_session, call(began, epoch=3))
    history = (in_session, term_began, *again, wait(5000), answered)
    assert judged_as("HB-27", *history) is NOT_EXERCISED


# ---------------------------------------------------------------------------------- HB-10, HB-14

beat = steps(wait(300), sent)


@pytest.mark.parametrize("clause", ["HB-10", "HB-14"])
def test_a_broker_that_is_answered_that_it_is_inactive_is_evidence(clause: str) -> None:
    """The controller records no answer."""
    history = (registered, term_began, beat, call(received, state="Inactive"))
    assert judged_as(clause, *history) is VIOLATED


def test_a_broker_that_is_answered_another_state_than_its_target_is_evidence() -> None:
    history = (registered, began, call(sent, target=3), received)
    assert judged_as("HB-14", *history) is VIOLATED


def test_a_process_that_has_lost_its_id_may_be_answered_that_it_is_inactive() -> None:
    taken = call(registered, epoch=90, process="broker-2-duplicate#1")
    history = (registered, taken, began, beat, call(received, state="Inactive"))
    assert judged_as("HB-10", *history) is NOT_EXERCISED
    assert judged_as("HB-14", *history) is NOT_EXERCISED


def test_a_broker_that_gets_answers_without_a_state_for_too_long_is_evidence() -> None:
    stateless = steps(beat, call(received, state="Initial"))
    few, many = [stateless] * 20, [stateless] * 40
    assert judged_as("HB-14", registered, began, *few) is NOT_EXERCISED
    assert judged_as("HB-14", *(registered, began, *few, wait(9000), *few)) is NOT_EXERCISED
    assert judged_as("HB-14", registered, began, *many) is VIOLATED


# ------------------------------------------------------------------------------------------ HB-05


def exits(h: HistoryBuilder) -> None:
    """The broker's process ends by itself, and records nothing."""
    h.add("harness", ProcessExited(ended=BROKER, exit_code=0, signal=0, expected=True))


def test_a_broker_that_exits_without_a_word_while_it_leads_breaks_hb_05() -> None:
    asked = (stored, active_broker, asked_to_stop)
    moved = call(stored, leader=3, epoch=5, offset=60)
    assert judged_as("HB-05", *asked, wait(100), exits) is VIOLATED
    assert judged_as("HB-05", *asked, wait(100), killed) is NOT_EXERCISED
    assert judged_as("HB-05", *asked, wait(5900), exits) is NOT_EXERCISED
    assert judged_as("HB-05", *asked, moved, wait(100), exits) is HOLDS


# ------------------------------------------------------------------------------------------ HB-06


def names_timeout(h: HistoryBuilder) -> None:
    """Broker 3 gets an answer, and names the cluster's timeout."""
    body = MetadataHeartbeatReceived(
        broker_id=3, incarnation_id=30, controller=1, error="NONE", state=2, sent_ns=0,
        timeout_ms=3000,
    )  # fmt: skip
    h.add("broker-3#1", body)


def test_a_broker_has_no_longer_timeout_than_all_others() -> None:
    alone = (active_broker, call(received, timeout_ms=10**9), wait(600_000))
    assert judged_as("HB-06", names_timeout, *alone) is VIOLATED
    assert judged_as("HB-06", *alone) is NOT_EXERCISED


online = call(changed, new="ACTIVE", old="INITIAL", reason="unfenced", state="Online")
HELD = 3_300 + 100
"""For how long a broker may be active without an accepted heartbeat, in milliseconds."""


@pytest.mark.parametrize(("ms", "outcome"), [(HELD, NOT_EXERCISED), (HELD + 1, VIOLATED)])
def test_a_broker_of_which_no_heartbeat_was_accepted_is_in_contact_since_it_was_active(
    ms: int, outcome: Outcome
) -> None:
    """A broker that withheld the answers that it got, or told them of another incarnation, was
    never in contact, and so never out of it."""
    other = call(received, incarnation=7)
    # The heartbeat and its answer take a millisecond each, and so does the event of its activity.
    end = steps(wait(ms - 3), killed)
    begin = steps(names_timeout, registered, online, sent)
    assert judged_as("HB-06", begin, other, end) is outcome


def test_a_broker_that_sends_no_heartbeat_or_knows_no_timeout_is_in_no_contact() -> None:
    late = wait(600_000)
    assert judged_as("HB-06", names_timeout, registered, online, late) is NOT_EXERCISED
    assert judged_as("HB-06", registered, online, sent, late) is NOT_EXERCISED


def test_an_accepted_heartbeat_counts_more_than_when_a_broker_was_active() -> None:
    history = (names_timeout, registered, online, sent, wait(3_000), sent, received)
    assert judged_as("HB-06", *history, wait(3_000), killed) is NOT_EXERCISED


# ------------------------------------------------------------------------------------------ HB-11


def former_controller(h: HistoryBuilder) -> None:
    """Broker 3 was the controller, and has not recorded its end."""
    body = ControllerBegan(epoch=1, broker_id=3, first=True, heartbeat_timeout_ms=2000)
    h.add("broker-3#1", body)


def test_a_former_controller_that_records_no_end_excuses_nothing() -> None:
    accepted = (declared, active_broker, answered, received)
    early = (wait(700), call(changed, new="FENCED"))
    history = (former_controller, call(began, epoch=2), *accepted, *early)
    assert judged_as("HB-11", *history) is VIOLATED


def session_lost(h: HistoryBuilder) -> None:
    h.add(BROKER, SessionChanged(session=7, state="suspended"))


def refusal(h: HistoryBuilder) -> None:
    sent(h)
    received(h, error="INVALID_INCARNATION_ID")


@pytest.mark.parametrize(
    ("reason", "before", "broken"),
    [
        ("session_ended", (), True),
        ("session_ended", (session_lost,), False),
        ("refused", (), True),
        ("refused", (refusal,), False),
        ("taken_over", (), False),
    ],
)
def test_a_broker_that_fences_itself_for_another_reason_has_lost_its_session_or_was_refused(
    reason: str, before: tuple[Callable[[HistoryBuilder], None], ...], broken: bool
) -> None:
    """HB-11: the reason alone is its own word."""
    accepted = (began, declared, active_broker, answered, received, wait(700))
    early = call(changed, new="FENCED", reason=reason)
    assert (judged_as("HB-11", *accepted, *before, early) is VIOLATED) is broken


def test_a_broker_that_fences_itself_while_a_new_controller_begins_is_not_judged() -> None:
    accepted = (declared, active_broker, answered, received)
    early = (wait(700), other_is_elected, call(changed, new="FENCED"))
    assert judged_as("HB-11", *(began, *accepted, *early)) is NOT_EXERCISED


@pytest.mark.parametrize(
    ("session_ms", "expected"), [(3_000, Outcome.NOT_EXERCISED), (0, Outcome.VIOLATED)]
)
def test_a_controller_that_soon_loses_its_session_may_have_declared_nothing(
    session_ms: int, expected: Outcome
) -> None:
    """HB-11: until its session is lost, it may have been without ZooKeeper for the timeout."""
    begins = call(began, session_timeout_ms=session_ms)
    history = (begins, declared, active_broker, answered, received)
    early = (wait(700), call(changed, new="FENCED"), wait(500), suspended)
    assert judged_as("HB-11", *history, *early) is expected


HEARTBEAT = Cause(BROKER, 5, request=True)
unheard = steps(heard, wait(400), sent, wait(300), call(changed, new="FENCED"))


@pytest.mark.parametrize(
    ("error", "number", "expected"),
    [("NONE", 5, NOT_EXERCISED), ("NONE", 4, VIOLATED), ("NOT_CONTROLLER", 5, VIOLATED)],
)
def test_a_broker_whose_controller_answers_late_was_not_cut_off(
    error: str, number: int, expected: Outcome
) -> None:
    """HB-11: the controller had the heartbeat, and stored something before it answered."""
    late = call(answered, error=error, cause=Cause(BROKER, number, request=True))
    assert judged_as("HB-11", unheard) is VIOLATED
    assert judged_as("HB-11", unheard, late) is expected


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (("broker-2", "broker-1"), VIOLATED),
        (("broker-2", "broker-3"), NOT_EXERCISED),
    ],
)
@pytest.mark.parametrize("heals", ["before", "after"])
def test_a_heartbeat_that_a_fault_delayed_shows_no_contact(
    ends: tuple[str, ...], heals: str, expected: Outcome
) -> None:
    """HB-11: what a cut held back arrives when it heals."""
    cut = FaultInjected(fault_id="f", fault="cut", targets=ends, receipt=True, evidence="")
    h = HistoryBuilder()
    steps(heard, wait(100))(h)
    h.add("harness", cut)
    steps(wait(300), sent)(h)
    heal = FaultHealed(fault_id="f", receipt=True, evidence="")
    if heals == "before":
        h.add("harness", heal)
    steps(wait(300), call(changed, new="FENCED"), call(answered, cause=HEARTBEAT))(h)
    if heals == "after":
        h.add("harness", heal)
    assert verdict(h, "HB-11") is expected
