"""The rules of heartbeats over ZooKeeper, each with a history that keeps the promise, one that
breaks it, and one in which its situation does not occur."""

from __future__ import annotations

import pytest
from msgspec import Struct
from tests.suites.heartbeats.heartbeat_histories import (
    BROKER,
    CONTROLLER,
    SECOND,
    Write,
    active_broker,
    answered,
    asked_to_stop,
    back,
    began,
    call,
    changed,
    declared,
    ended,
    heard,
    judged,
    killed,
    legacy,
    received,
    refused_client,
    registered,
    sent,
    served,
    silence,
    steps,
    stopping,
    stored,
    suspended,
    term_began,
    verdict,
    wait,
    whole_verdict,
    wrote,
)

from fencepost import Evidence, NodeStopped, ProcessExited, Stalled
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import ControllerEnded
from fencepost_suites import rules

KEPT: dict[str, Write] = {
    "HB-01": steps(
        registered, answered, call(registered, epoch=30), call(answered, incarnation=30)
    ),
    "HB-02": steps(began, sent, declared),
    "HB-04": steps(active_broker, stopping, served),
    "HB-05": steps(stored, asked_to_stop, call(stored, leader=3, epoch=5, offset=60), ended),
    "HB-06": steps(active_broker, wait(3000), call(changed, new="FENCED")),
    "HB-07": steps(active_broker, call(changed, new="FENCED"), refused_client),
    "HB-08": steps(
        active_broker,
        call(changed, new="FENCED"),
        sent,
        received,
        call(changed, new="ACTIVE", old="FENCED", reason="unfenced"),
    ),
    "HB-09": steps(term_began, answered, wait(2000), silence),
    "HB-10": steps(term_began, wait(2000), silence, back, answered),
    "HB-11": steps(heard, wait(2000), silence, wait(1000), call(changed, new="FENCED")),
    "HB-12": steps(term_began, call(answered, incarnation=10, error="INVALID_INCARNATION_ID")),
    "HB-13": steps(
        term_began,
        call(answered, incarnation=30),
        call(declared, new="Absent", old="Active", reason="bounced"),
    ),
    "HB-14": steps(term_began, answered),
    "HB-16": steps(registered, judged),
    "HB-17": steps(term_began, suspended, call(judged, error="NOT_CONTROLLER", active=False)),
    "HB-18": steps(term_began, call(judged, error="INVALID_INCARNATION_ID", incarnation=10)),
    "HB-19": steps(term_began, stored, call(judged, result="NOT_LEADER_OR_FOLLOWER", epoch=3)),
    "HB-20": steps(term_began, stored, call(judged, result="INVALID_REQUEST", isr="")),
    "HB-21": steps(term_began, stored, judged),
    "HB-22": steps(
        call(registered, version=4, protocol=2), call(stored, process=BROKER, role="broker")
    ),
    "HB-23": steps(began, legacy, wait(2500)),
    "HB-27": steps(term_began, suspended, call(answered, error="NOT_CONTROLLER", active=False)),
    "HB-29": steps(
        active_broker,
        sent,
        call(received, state="Inactive"),
        call(changed, new="FENCED", reason="refused"),
    ),
}  # fmt: skip
BROKEN: dict[str, Write] = {
    "HB-01": steps(
        call(registered, epoch=30, process=SECOND), registered, call(answered, incarnation=30)
    ),
    "HB-02": steps(began, call(declared, old="Absent", reason="registered")),
    "HB-04": steps(active_broker, stopping, refused_client),
    "HB-05": steps(stored, asked_to_stop, wait(100), ended),
    "HB-06": steps(active_broker, wait(3500), served),
    "HB-07": steps(active_broker, call(changed, new="FENCED"), wrote),
    "HB-08": steps(active_broker, call(changed, new="FENCED"), sent, received, sent),
    "HB-09": steps(term_began, answered, wait(3100), answered),
    "HB-10": steps(term_began, wait(2000), silence, call(answered, state="Inactive")),
    "HB-11": steps(heard, wait(700), call(changed, new="FENCED")),
    "HB-12": steps(term_began, call(answered, incarnation=10)),
    "HB-13": steps(term_began, call(answered, incarnation=30), wait(3000)),
    "HB-14": steps(term_began, call(answered, target=3)),
    "HB-16": steps(registered, call(stored, process=BROKER, role="broker")),
    "HB-17": steps(term_began, suspended, judged),
    "HB-18": steps(term_began, call(judged, incarnation=10)),
    "HB-19": steps(term_began, call(stored, leader=3), judged),
    "HB-20": steps(term_began, stored, call(judged, isr="")),
    "HB-21": steps(term_began, call(stored, isr=(1, 2, 3)), judged),
    "HB-22": steps(call(registered, version=5, protocol=2)),
    "HB-23": steps(
        began, legacy, call(declared, new="Inactive", old="Active", reason="silent", version=4)
    ),
    "HB-27": steps(term_began, suspended, answered),
    "HB-29": steps(active_broker, sent, call(received, error="INVALID_INCARNATION_ID"), sent),
}
UNTOUCHED: dict[str, Write] = {
    "HB-01": registered,
    "HB-02": steps(began, call(declared, new="Initial", old="Absent", reason="registered")),
    "HB-04": steps(active_broker, served),
    "HB-05": steps(call(stored, leader=3), asked_to_stop, ended),
    "HB-06": steps(active_broker, wait(2900), killed),
    "HB-07": steps(active_broker, served),
    "HB-08": steps(active_broker, call(changed, new="FENCED"), sent, call(received, error="OTHER")),
    "HB-09": steps(term_began, wait(1500), answered),
    "HB-10": steps(term_began, wait(2000), silence),
    "HB-11": steps(term_began, active_broker, answered, wait(3000)),
    "HB-12": steps(term_began, answered),
    "HB-13": steps(
        term_began,
        answered,
        lambda h: h.add(CONTROLLER, ControllerEnded(epoch=1, reason="session")),
    ),
    "HB-14": steps(term_began, call(answered, incarnation=30)),
    "HB-16": steps(call(registered, version=4), judged),
    "HB-17": steps(term_began, judged),
    "HB-18": steps(term_began, judged),
    "HB-19": steps(term_began, stored, judged),
    "HB-20": steps(term_began, call(stored, isr=(1, 2, 3)), stored, judged),
    "HB-21": steps(term_began, stored, call(judged, result="INVALID_REQUEST", isr="")),
    "HB-22": steps(registered, judged),
    "HB-23": steps(began, legacy, wait(1000)),
    "HB-27": steps(term_began, answered),
    "HB-29": steps(active_broker, sent, received),
}


@pytest.mark.parametrize("clause", sorted(KEPT))
def test_a_kept_promise_holds(clause: str) -> None:
    h = HistoryBuilder()
    KEPT[clause](h)
    assert verdict(h, clause) is Outcome.HOLDS


@pytest.mark.parametrize("clause", sorted(BROKEN))
def test_a_broken_promise_is_violated(clause: str) -> None:
    h = HistoryBuilder()
    BROKEN[clause](h)
    assert verdict(h, clause) is Outcome.VIOLATED


@pytest.mark.parametrize("clause", sorted(UNTOUCHED))
def test_a_promise_whose_situation_does_not_occur_is_not_exercised(clause: str) -> None:
    h = HistoryBuilder()
    UNTOUCHED[clause](h)
    assert verdict(h, clause) is Outcome.NOT_EXERCISED


ELSEWHERE = {"HB-03", "HB-15", "HB-24", "HB-25", "HB-26", "HB-28"}
"""Clauses with their histories in `test_presence_rules.py` and `test_message_rules.py`."""


def test_every_rule_of_heartbeats_has_its_three_histories() -> None:
    owed = {rule.clause for rule in rules.ALL if rule.clause.startswith("HB-")} - ELSEWHERE
    assert owed == set(KEPT) == set(BROKEN) == set(UNTOUCHED)


def test_a_late_declaration_is_undecided_if_the_controller_stalled() -> None:
    h = HistoryBuilder()
    term_began(h)
    answered(h)
    h.after(3100)
    h.add(CONTROLLER, Stalled(stalled_ns=500_000_000))
    answered(h)
    assert verdict(h, "HB-09") is Outcome.UNKNOWN


def test_a_declaration_that_is_overdue_when_the_controller_ends_breaks_hb_09() -> None:
    h = HistoryBuilder()
    term_began(h)
    answered(h)
    h.after(3100)
    h.add("harness", ProcessExited(ended=CONTROLLER, exit_code=-1, signal=9, expected=True))
    assert verdict(h, "HB-09") is Outcome.VIOLATED


def test_a_legacy_registration_that_outlives_the_timeout_exercises_hb_23_when_the_term_ends() -> (
    None
):
    h = HistoryBuilder()
    began(h)
    legacy(h)
    h.after(2500)
    h.add("harness", ProcessExited(ended=CONTROLLER, exit_code=-1, signal=9, expected=True))
    assert verdict(h, "HB-23") is Outcome.HOLDS


def test_two_registrations_with_one_czxid_break_hb_01() -> None:
    h = HistoryBuilder()
    registered(h)
    registered(h, process=SECOND)
    assert verdict(h, "HB-01") is Outcome.VIOLATED


def test_an_isr_change_that_adds_an_inactive_broker_breaks_hb_20() -> None:
    h = HistoryBuilder()
    term_began(h)
    stored(h, isr=(2,))
    stored(h, isr=(2, 3), offset=60)
    judged(h)
    assert verdict(h, "HB-20") is Outcome.VIOLATED


def test_a_broker_that_died_need_not_fence_itself() -> None:
    h = HistoryBuilder()
    steps(active_broker, wait(2900), killed, wait(60_000))(h)
    assert verdict(h, "HB-06") is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(
    "end", [ControllerEnded(epoch=1, reason="deposed"), NodeStopped(reason="asked to")]
)
def test_a_controller_whose_term_has_ended_declares_no_broker_inactive(end: Struct) -> None:
    h = HistoryBuilder()
    steps(term_began, answered)(h)
    h.add(CONTROLLER, end)
    h.after(60_000)
    assert verdict(h, "HB-09") is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("ms", "evidence"), [(999, Evidence.SELF), (1000, Evidence.PEER)])
def test_a_broker_that_heard_nothing_for_half_the_timeout_confirms_its_silence(
    ms: int, evidence: Evidence
) -> None:
    h = HistoryBuilder()
    steps(term_began, answered, wait(2000 - ms))(h)
    steps(received, wait(ms), silence)(h)
    found = whole_verdict(h, "HB-09")
    assert (found.verdict, found.evidence) == (Outcome.HOLDS, evidence)


def test_the_first_answer_after_the_return_is_the_brokers_evidence_of_hb_10() -> None:
    h = HistoryBuilder()
    steps(term_began, wait(2000), silence, back)(h)
    steps(received, received)(h)
    found = whole_verdict(h, "HB-10")
    assert (found.verdict, found.evidence, found.exercised) == (Outcome.HOLDS, Evidence.PEER, 2)


def test_a_broker_that_was_never_inactive_returns_from_nothing() -> None:
    h = HistoryBuilder()
    steps(term_began, active_broker, answered, received)(h)
    assert verdict(h, "HB-10") is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("target", "known"), [(7, 20), (2, 10)])
def test_a_heartbeat_with_another_target_or_incarnation_reaches_no_target(
    target: int, known: int
) -> None:
    """Other clauses judge that it was accepted."""
    h = HistoryBuilder()
    steps(term_began, call(answered, target=target, known=known))(h)
    assert verdict(h, "HB-14") is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("ms", "outcome"), [(1799, Outcome.HOLDS), (1798, Outcome.VIOLATED)])
def test_a_silent_broker_may_be_declared_inactive_after_nine_tenths_of_the_timeout(
    ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    steps(term_began, answered, wait(ms), silence)(h)
    assert verdict(h, "HB-09") is outcome


@pytest.mark.parametrize(
    ("ms", "outcome"), [(1799, Outcome.NOT_EXERCISED), (1798, Outcome.VIOLATED)]
)
def test_a_new_controller_declares_no_broker_inactive_before_nine_tenths_of_the_timeout(
    ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    steps(began, wait(ms), silence)(h)
    assert verdict(h, "HB-02") is outcome


def test_a_refused_heartbeat_of_a_newer_incarnation_is_no_bounce() -> None:
    h = HistoryBuilder()
    steps(term_began, call(answered, incarnation=30, error="INVALID_REQUEST"), wait(3000))(h)
    assert verdict(h, "HB-13") is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(
    ("state", "outcome"), [("Active", Outcome.NOT_EXERCISED), ("Inactive", Outcome.VIOLATED)]
)
def test_an_isr_change_may_add_a_broker_only_if_it_is_active(state: str, outcome: Outcome) -> None:
    h = HistoryBuilder()
    steps(term_began, call(stored, isr=(2,)), call(declared, new=state, broker=3))(h)
    steps(call(stored, offset=60), judged)(h)
    assert verdict(h, "HB-20") is outcome


def test_a_broken_hb_27_names_no_end_of_a_former_term() -> None:
    h = HistoryBuilder()
    steps(term_began, suspended, call(began, epoch=2), call(answered, active=False))(h)
    (violation,) = whole_verdict(h, "HB-27").violations
    assert violation.because == ()


def test_a_broken_hb_27_names_the_end_of_the_term() -> None:
    h = HistoryBuilder()
    steps(term_began, suspended)(h)
    end = h.events()[-1]
    answered(h)
    (violation,) = whole_verdict(h, "HB-27").violations
    assert violation.because == (end.ref,)
