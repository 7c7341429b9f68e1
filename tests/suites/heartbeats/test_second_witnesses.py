"""Histories in which a node's word for itself stands alone, or another node's speaks against it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
from tests.suites.heartbeats.heartbeat_histories import (
    BROKER,
    CONTROLLER,
    Write,
    active_broker,
    answered,
    began,
    call,
    declared,
    heard,
    judged,
    killed,
    legacy,
    received,
    registered,
    sent,
    served,
    silence,
    steps,
    stored,
    verdict,
    wait,
    whole_verdict,
)

from fencepost import (
    Cause,
    Fact,
    FaultInjected,
    NodeStopped,
    ProcessExited,
    ProcessSpawned,
    process_scope,
)
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_clusters.zookeeper.events import SessionExpired, session_name
from fencepost_kafka import (
    ControllerBegan,
    ControlRequestAnswered,
    ControlRequestSent,
    IsrChangeAnswered,
    IsrChangeJudged,
    SessionChanged,
    broker_of,
)

HOLDS, VIOLATED, NOT_EXERCISED = Outcome.HOLDS, Outcome.VIOLATED, Outcome.NOT_EXERCISED
SECOND_CONTROLLER = "broker-3#1"


def judged_as(clause: str, *each: Write) -> Outcome:
    h = HistoryBuilder()
    steps(*each)(h)
    return verdict(h, clause)


def facts(clause: str, *each: Write) -> dict[str, Fact]:
    """The facts of the first violation of a clause in a history."""
    h = HistoryBuilder()
    steps(*each)(h)
    return dict(whole_verdict(h, clause).violations[0].facts)


def repeated(times: int, every_ms: int, *each: Callable[..., None]) -> Write:
    """A step that is made again and again, with the number of a heartbeat."""

    def write(h: HistoryBuilder) -> None:
        for number in range(times):
            h.after(every_ms)
            for one in each:
                one(h, number=100 + number)

    return write


def refuses(error: str) -> Callable[..., None]:
    """A step: the controller answers a heartbeat with an error."""

    def write(h: HistoryBuilder, number: int) -> None:
        answered(h, error=error, state="Inactive", cause=Cause(BROKER, number, request=True))
        received(h, error=error, state="Inactive")

    return write


# ------------------------------------------------------------------------------ HB-10 and HB-27

left_out = steps(heard, wait(2_500), silence)
one_more = repeated(8, 1_000, sent)


@pytest.mark.parametrize("error", ["UNKNOWN_SERVER_ERROR", "NOT_CONTROLLER"])
def test_an_inactive_broker_whose_heartbeats_get_errors_is_owed_its_return(error: str) -> None:
    history = (left_out, repeated(8, 1_000, sent, refuses(error)))
    found = facts("HB-10", *history)
    assert found["process"] == process_scope(CONTROLLER)
    assert found["broker"] == broker_of(2)


def test_an_inactive_broker_whose_heartbeats_are_not_answered_is_owed_its_return() -> None:
    assert judged_as("HB-10", left_out, one_more) is VIOLATED


@pytest.mark.parametrize(("every_ms", "expected"), [(3_500, VIOLATED), (7_000, NOT_EXERCISED)])
def test_two_heartbeats_show_no_duty_and_the_third_does(every_ms: int, expected: Outcome) -> None:
    """The controllers' timeout is longer than the pauses between the heartbeats."""
    slow = ControllerBegan(epoch=1, broker_id=1, first=True, heartbeat_timeout_ms=10_000)
    begin = steps(lambda h: h.add(CONTROLLER, slow), declared, active_broker, answered, received)
    asks = repeated(3 if expected is VIOLATED else 2, every_ms, sent)
    assert judged_as("HB-10", begin, wait(12_000), silence, asks) is expected


def test_an_inactive_broker_is_owed_nothing_within_six_seconds() -> None:
    assert judged_as("HB-10", left_out, repeated(6, 1_000, sent)) is NOT_EXERCISED


def test_a_former_registration_is_owed_nothing() -> None:
    newer = call(registered, epoch=90, process="broker-2-duplicate#1")
    assert judged_as("HB-10", left_out, newer, one_more) is NOT_EXERCISED


def test_a_broker_that_asks_a_former_controller_is_owed_nothing() -> None:
    assert judged_as("HB-10", left_out, next_began, one_more) is NOT_EXERCISED


@pytest.mark.parametrize("targets", [("broker-1", "broker-2"), ("broker-1", "zookeeper-1")])
def test_a_fault_upon_the_way_of_a_heartbeat_or_of_its_effect_excuses(
    targets: tuple[str, str],
) -> None:
    h = HistoryBuilder()
    steps(left_out, call(cut, targets=targets), one_more)(h)
    found = whole_verdict(h, "HB-10")
    assert (found.violated, found.excused) == (0, 1)


def test_a_fault_between_others_excuses_nothing() -> None:
    history = (left_out, call(cut, targets=("broker-2", "broker-3")), one_more)
    assert judged_as("HB-10", *history) is VIOLATED


def cut(h: HistoryBuilder, targets: tuple[str, str]) -> None:
    one, other = targets
    body = FaultInjected(
        fault_id="cut-1",
        fault="cut",
        targets=targets,
        receipt=True,
        evidence="",
        directions=(f"{one} -> {other}", f"{other} -> {one}"),
    )
    h.add("harness", body)


def next_began(h: HistoryBuilder, epoch: int = 2) -> None:
    body = ControllerBegan(epoch=epoch, broker_id=3, first=False, heartbeat_timeout_ms=2000)
    h.add(SECOND_CONTROLLER, body)


def test_the_controller_in_office_may_not_deny_that_it_is_one() -> None:
    history = (heard, repeated(1, 100, sent, refuses("NOT_CONTROLLER")))
    assert facts("HB-27", *history)["process"] == process_scope(CONTROLLER)


def test_a_controller_that_reads_what_is_stored_may_still_refuse() -> None:
    history = (began, repeated(1, 100, sent, refuses("NOT_CONTROLLER")))
    assert judged_as("HB-27", *history) is HOLDS


def test_a_second_controller_of_one_epoch_ends_the_first_ones_term() -> None:
    history = (heard, call(next_began, epoch=1), wait(1_500), answered)
    found = facts("HB-27", *history)
    assert found["process"] == process_scope(CONTROLLER)
    assert found["elected"] == process_scope(SECOND_CONTROLLER)


# ---------------------------------------------------------------------------------------- HB-09


GHOST = "ghost#1"


def haunted(h: HistoryBuilder) -> None:
    for _ in range(20):
        h.after(500)
        answered(h, client=GHOST)


def test_heartbeats_of_a_process_that_nobody_started_keep_no_broker_live() -> None:
    assert facts("HB-09", heard, killed, haunted)["broker"] == broker_of(2)


def test_heartbeats_of_a_process_of_another_broker_keep_no_broker_live() -> None:
    # It is there, and records no heartbeat; but it is not broker 2.
    h = HistoryBuilder()
    steps(heard, killed)(h)
    started(h)
    registered(h, 70, GHOST, broker=4)
    haunted(h)
    assert verdict(h, "HB-09") is VIOLATED


def test_a_process_that_was_started_may_keep_its_heartbeats_for_itself() -> None:
    assert judged_as("HB-09", heard, killed, started, haunted) is NOT_EXERCISED


def started(h: HistoryBuilder) -> None:
    h.add("harness", ProcessSpawned(started=GHOST, slot="ghost", role="broker", node_id=2, pid=7))


connected_heard = steps(began, active_broker, declared, answered, received)


@pytest.mark.parametrize(("reason", "expected"), [("bounced", HOLDS), ("silent", VIOLATED)])
def test_a_broker_that_sends_no_heartbeats_is_silent_for_no_time(
    reason: str, expected: Outcome
) -> None:
    """Of another reason HB-23 judges."""
    old = steps(began, call(registered, version=4, protocol=2), legacy)
    out = call(declared, new="Inactive", old="Active", reason=reason, version=4)
    found = judged_as("HB-09", old, wait(100), out)
    assert (found is VIOLATED) == (expected is VIOLATED)


@pytest.mark.parametrize("reason", ["registered", "bounced", "gone", "silent"])
def test_a_live_broker_becomes_inactive_by_silence_alone(reason: str) -> None:
    out = call(declared, new="Inactive", old="Active", reason=reason)
    found = facts("HB-09", connected_heard, wait(100), out)
    assert (found["process"], found["broker"]) == (process_scope(CONTROLLER), broker_of(2))


absent = call(declared, new="Absent", old="Active", reason="gone")


def expires(h: HistoryBuilder) -> None:
    h.add("zookeeper-1#1", SessionExpired(session=session_name(7), timeout_ms=6000))


def session(h: HistoryBuilder, state: Literal["connected", "suspended", "ended"]) -> None:
    h.add(BROKER, SessionChanged(session=7, state=state))


def says_that_it_stopped(h: HistoryBuilder) -> None:
    h.add(BROKER, NodeStopped(reason="asked"))


def test_a_live_broker_whose_registration_goes_on_is_not_absent() -> None:
    found = facts("HB-09", connected_heard, wait(100), absent)
    assert (found["process"], found["state"]) == (process_scope(CONTROLLER), "Absent")


@pytest.mark.parametrize(
    "end",
    [
        expires,
        call(session, state="ended"),
        call(session, state="suspended"),
        killed,
        says_that_it_stopped,
        call(registered, epoch=90, process="broker-2-duplicate#1"),
    ],
)
def test_a_registration_that_others_end_is_absent(end: Write) -> None:
    assert judged_as("HB-09", connected_heard, end, absent) is NOT_EXERCISED
    # It may be told later than the controller's declaration.
    assert judged_as("HB-09", connected_heard, absent, wait(500), end) is NOT_EXERCISED


def test_the_end_of_a_session_may_be_learnt_long_after_the_controller() -> None:
    history = (connected_heard, absent, wait(60_000), call(session, state="ended"))
    assert judged_as("HB-09", *history) is NOT_EXERCISED


def test_a_process_that_does_not_tell_of_its_session_may_have_lost_it() -> None:
    history = (began, registered, sent, declared, answered, wait(100), absent)
    assert judged_as("HB-09", *history) is NOT_EXERCISED


def test_a_legacy_registration_becomes_absent_only_by_its_end() -> None:
    old = steps(
        began, call(session, state="connected"), call(registered, version=4, protocol=2), legacy
    )
    gone = call(declared, new="Absent", old="Active", reason="gone", version=4)
    assert facts("HB-23", old, wait(5_000), gone)["broker"] == broker_of(2)
    assert judged_as("HB-23", old, wait(5_000), expires, gone) is HOLDS


# ---------------------------------------------------------------------------------------- HB-06


def hears(h: HistoryBuilder, number: int) -> None:
    answered(h, cause=Cause(BROKER, number, request=True))


def takes(h: HistoryBuilder, number: int) -> None:
    received(h)


proven = steps(connected_heard, repeated(1, 100, sent, hears, takes))


def test_answers_that_nobody_gave_do_not_keep_a_broker_active() -> None:
    found = facts("HB-06", proven, repeated(10, 500, sent, takes))
    assert found["process"] == process_scope(BROKER)


def test_answers_that_a_controller_tells_of_keep_a_broker_active() -> None:
    history = (proven, repeated(10, 500, sent, hears, takes), killed)
    assert judged_as("HB-06", *history) is NOT_EXERCISED


def test_where_controllers_tell_of_no_answer_a_broker_is_believed() -> None:
    history = (connected_heard, repeated(10, 500, sent, takes), killed)
    assert judged_as("HB-06", *history) is NOT_EXERCISED


def test_a_controller_that_died_may_not_have_told_of_its_last_answer() -> None:
    dies = call(exits, process=CONTROLLER)
    untold = steps(wait(2_000), call(sent, number=7), received)
    more = steps(wait(2_000), killed)
    assert judged_as("HB-06", proven, untold, dies, more) is NOT_EXERCISED
    assert judged_as("HB-06", proven, untold, more) is VIOLATED


def exits(h: HistoryBuilder, process: str) -> None:
    h.add("harness", ProcessExited(ended=process, exit_code=-1, signal=9, expected=True))


def test_a_broker_that_says_it_stopped_and_serves_on_must_be_fenced() -> None:
    history = (connected_heard, wait(500), says_that_it_stopped, wait(5_000))
    assert judged_as("HB-06", *history, served) is VIOLATED
    assert judged_as("HB-06", *history) is NOT_EXERCISED


# --------------------------------------------------------------------------------- HB-02, HB-13


def test_the_first_controller_takes_no_live_brokers_over_whoever_speaks_before_it() -> None:
    other = call(sent, incarnation=99)
    found = call(declared, reason="controller_elected")
    assert judged_as("HB-02", other, call(began, first=False), found) is VIOLATED
    assert judged_as("HB-02", next_began, call(began, first=False, epoch=3), found) is NOT_EXERCISED


adopted = steps(connected_heard, call(answered, incarnation=30))


def test_a_bounce_that_is_declared_with_the_old_id_is_none() -> None:
    old = call(declared, new="Active", old="Active", reason="bounced")
    found = facts("HB-13", adopted, old, wait(3_000))
    assert (found["epoch"], found["broker"]) == (30, broker_of(2))


def test_a_higher_id_for_a_live_broker_owes_a_bounce() -> None:
    newer = call(declared, new="Active", old="Active", incarnation=30)
    assert facts("HB-13", connected_heard, newer, wait(3_000))["epoch"] == 30
    bounce = (absent, call(declared, new="Initial", old="Absent", incarnation=30))
    assert judged_as("HB-13", connected_heard, *bounce, wait(3_000)) is NOT_EXERCISED


# ---------------------------------------------------------------------------------------- HB-03

led = steps(connected_heard, call(stored, offset=50), expires)
leaderless = call(stored, leader=-1, epoch=5, offset=51)
elected = steps(leaderless, call(stored, epoch=6, offset=52))


def test_an_absent_broker_is_not_elected() -> None:
    assert facts("HB-03", led, absent, elected)["leader"] == broker_of(2)


def test_a_broker_that_is_live_again_may_be_elected() -> None:
    again = steps(
        call(declared, new="Initial", old="Absent", reason="registered", incarnation=30),
        call(declared, incarnation=30),
    )
    assert judged_as("HB-03", led, absent, again, elected) is NOT_EXERCISED


def test_a_state_of_a_predecessor_may_name_a_broker_that_is_found_absent() -> None:
    found = call(declared, new="Absent", old="Absent", reason="controller_elected")
    assert judged_as("HB-03", began, found, stored) is NOT_EXERCISED


def metadata(h: HistoryBuilder, number: int = 77) -> None:
    """Broker 3 carries out an UpdateMetadata that names broker 2."""
    sent = ControlRequestSent(
        api="UpdateMetadata",
        broker_id=3,
        broker_epoch=33,
        controller_epoch=1,
        correlation=number,
        partitions=(),
        attempt=1,
        brokers=(2, 3),
    )
    h.add(CONTROLLER, sent)
    read = ControlRequestAnswered(
        api="UpdateMetadata",
        client=CONTROLLER,
        broker_id=3,
        controller_id=1,
        controller_epoch=1,
        seen_epoch=1,
        request_epoch=33,
        broker_epoch=33,
        error="NONE",
        partitions=(),
        brokers=(2, 3),
    )
    h.add("broker-3#1", read, cause=Cause(CONTROLLER, number, request=True))


def test_metadata_may_not_name_an_absent_broker_for_long() -> None:
    assert facts("HB-03", led, absent, wait(6_000), metadata)["broker"] == broker_of(2)
    assert judged_as("HB-03", led, absent, wait(5_900), metadata) is NOT_EXERCISED


def test_a_declaration_counts_whichever_epoch_it_names() -> None:
    out = call(declared, new="Inactive", old="Active", reason="silent")
    later = steps(call(began, epoch=4), connected_declared, out, elected)
    assert judged_as("HB-03", call(stored, offset=50), later) is VIOLATED


connected_declared = call(declared, old="Absent", reason="controller_elected")


# --------------------------------------------------------------------------------- HB-29, HB-08


def test_a_session_that_goes_on_ends_no_duty_of_a_refused_broker() -> None:
    refused = steps(sent, call(received, error="INVALID_INCARNATION_ID"))
    history = (connected_heard, refused, call(session, state="connected"), served)
    assert facts("HB-29", *history)["process"] == process_scope(BROKER)


# ------------------------------------------------------------------------- HB-18, HB-19, HB-20


def test_an_id_that_nobody_registered_changes_no_isr() -> None:
    body = IsrChangeJudged(
        client=BROKER,
        broker_id=2,
        incarnation_id=99,
        known=99,
        error="NONE",
        partitions=("orders-0",),
        isrs=("2,3",),
        leader_epochs=(4,),
        results=("NONE",),
        controller_epoch=1,
        active=True,
    )

    def judges(h: HistoryBuilder) -> None:
        h.add(CONTROLLER, body)

    assert facts("HB-18", connected_heard, judges)["epoch"] == 99
    # Its process may tell of its registration later than the controller of the id.
    later = call(registered, epoch=99, process="broker-2#2")
    assert judged_as("HB-18", connected_heard, judges, later) is NOT_EXERCISED


def test_one_unfit_isr_does_not_fail_a_whole_request() -> None:
    found = facts("HB-20", connected_heard, call(judged, error="INVALID_REQUEST"))
    assert found["error"] == "INVALID_REQUEST"
    for error in ("NOT_CONTROLLER", "INVALID_INCARNATION_ID"):
        assert judged_as("HB-20", connected_heard, call(judged, error=error)) is NOT_EXERCISED


def reads(h: HistoryBuilder, error: str) -> None:
    body = IsrChangeAnswered(topic="orders", partition=0, leader_epoch=4, error=error, isr=())
    h.add(BROKER, body)


def test_a_leader_reads_for_a_partition_what_was_written_for_it() -> None:
    history = (connected_heard, stored, judged)
    assert facts("HB-19", *history, call(reads, error="INVALID_REQUEST"))["expected"] == "NONE"
    assert judged_as("HB-19", *history, call(reads, error="NONE")) is NOT_EXERCISED
    # An answer to the whole request, to another attempt.
    refused = call(judged, error="NOT_CONTROLLER")
    again = call(reads, error="NOT_CONTROLLER")
    assert judged_as("HB-19", *history, refused, again) is NOT_EXERCISED


# ---------------------------------------------------------------------------------------- HB-15


def test_a_malformed_heartbeat_is_called_malformed() -> None:
    other = call(answered, target=9, error="UNKNOWN_SERVER_ERROR")
    assert facts("HB-15", connected_heard, other)["error"] == "UNKNOWN_SERVER_ERROR"
    old = call(answered, target=9, error="INVALID_INCARNATION_ID")
    assert judged_as("HB-15", connected_heard, old) is NOT_EXERCISED
