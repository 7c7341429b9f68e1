"""HB-15 and HB-26, each with histories that keep it, break it, and do not exercise it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.suites.partition_histories import stated

from fencepost import Cause, Event, PromiseObserved
from fencepost.testing import HistoryBuilder, Outcome, Verdict, judge
from fencepost_kafka import (
    BrokerDeclared,
    BrokerRegistered,
    ControllerBegan,
    IsrChangeAsked,
    IsrChangeJudged,
    MetadataHeartbeatAnswered,
    MetadataHeartbeatReceived,
    MetadataHeartbeatSent,
)
from fencepost_suites import rules
from fencepost_suites.plugin import DECLARED

CLAUSES = {clause.id: clause for clause in DECLARED.clauses}
CONTROLLER, BROKER = "broker-3#1", "broker-1#1"
OWN = 20


def verdict(h: HistoryBuilder, clause: str) -> Verdict:
    chosen = [rule for rule in rules.ALL if rule.clause == clause]
    return judge(h.events(), chosen, CLAUSES, h.end(), "legacy").verdicts[clause]


def outcome(h: HistoryBuilder, clause: str) -> Outcome:
    return verdict(h, clause).verdict


def registered(reachable: bool = True) -> HistoryBuilder:
    """Broker 3 is the controller; it has read the registration of broker 1."""
    h = HistoryBuilder()
    h.add(CONTROLLER, ControllerBegan(epoch=1, broker_id=3, first=True, heartbeat_timeout_ms=2000))
    h.add(
        BROKER,
        BrokerRegistered(
            broker_id=1,
            broker_epoch=OWN,
            session=1,
            version=5,
            overwrote=False,
            reachable=reachable,
        ),
    )
    declare(h, "Absent", "Initial", "registered")
    return h


def declare(h: HistoryBuilder, old: Any, new: Any, reason: Any, broker: int = 1) -> None:
    h.add(
        CONTROLLER,
        BrokerDeclared(
            broker_id=broker,
            incarnation_id=OWN,
            old=old,
            new=new,
            reason=reason,
            version=5,
            silent_ms=0,
            timeout_ms=2000,
            controller_epoch=1,
        ),
    )


def send(h: HistoryBuilder, number: int = 7, target: int = 2) -> Event:
    return h.add(
        BROKER,
        MetadataHeartbeatSent(
            broker_id=1, incarnation_id=OWN, controller=3, correlation=number, target_state=target
        ),
    )


def answer(h: HistoryBuilder, error: str, number: int = 7, **changed: Any) -> None:
    body = {
        "client": BROKER,
        "broker_id": 1,
        "incarnation_id": OWN,
        "known": OWN,
        "target_state": 2,
        "error": error,
        "state": "Active",
        "controller_epoch": 1,
        "active": True,
        **changed,
    }
    cause = Cause(BROKER, number, request=True)
    h.add(CONTROLLER, MetadataHeartbeatAnswered(**body), cause=cause)


def receive(h: HistoryBuilder, error: str, state: int = 2) -> None:
    h.add(
        BROKER,
        MetadataHeartbeatReceived(
            broker_id=1,
            incarnation_id=OWN,
            controller=3,
            error=error,
            state=state,
            sent_ns=0,
            timeout_ms=3000,
        ),
    )


# ------------------------------------------------------------------------------------------ HB-15


@pytest.mark.parametrize("malformed", [{"broker_id": -1}, {"target_state": 0}, {"target_state": 9}])
def test_a_malformed_heartbeat_must_be_refused(malformed: dict[str, int]) -> None:
    for error, expected in (
        ("INVALID_REQUEST", Outcome.HOLDS),
        ("NONE", Outcome.VIOLATED),
        ("NOT_CONTROLLER", Outcome.NOT_EXERCISED),
    ):
        h = registered()
        answer(h, error, **malformed)
        assert outcome(h, "HB-15") is expected


def test_a_well_formed_heartbeat_exercises_nothing() -> None:
    h = registered()
    answer(h, "NONE")
    receive(h, "NONE")
    assert outcome(h, "HB-15") is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(
    ("error", "expected"), [("INVALID_REQUEST", Outcome.HOLDS), ("NONE", Outcome.VIOLATED)]
)
def test_a_heartbeat_for_a_registration_without_an_address_must_be_refused(
    error: str, expected: Outcome
) -> None:
    h = registered(reachable=False)
    answer(h, error)
    assert outcome(h, "HB-15") is expected


@pytest.mark.parametrize(
    ("error", "expected"), [("INVALID_REQUEST", Outcome.HOLDS), ("NONE", Outcome.VIOLATED)]
)
def test_the_answer_that_the_broker_received_is_evidence_against_the_controllers_event(
    error: str, expected: Outcome
) -> None:
    h = registered(reachable=False)
    receive(h, error)
    assert outcome(h, "HB-15") is expected


def test_a_heartbeat_before_the_controller_has_read_the_registration_is_not_judged() -> None:
    h = registered(reachable=False)
    declare(h, "Initial", "Absent", "gone")
    answer(h, "NONE", state="Absent", known=-1)
    receive(h, "NONE", state=0)
    assert outcome(h, "HB-15") is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(
    ("broker", "new", "reachable"),
    [(1, "Active", False), (-1, "Active", True), (1, "Initial", True)],
)
def test_a_declaration_for_a_malformed_heartbeat_breaks_hb_15(
    broker: int, new: str, reachable: bool
) -> None:
    h = registered(reachable=reachable)
    declare(h, "Initial", new, "heartbeat", broker=broker)
    assert verdict(h, "HB-15").violated == 1


# ------------------------------------------------------------------------------------------ HB-26


@pytest.mark.parametrize("clause", ["HB-15", "HB-18", "HB-19", "HB-20", "HB-26"])
def test_bytes_that_a_test_has_decoded_are_evidence(clause: str) -> None:
    for seen, held, expected in (
        (clause, True, Outcome.HOLDS),
        (clause, False, Outcome.VIOLATED),
        ("HB-01", True, Outcome.NOT_EXERCISED),
    ):
        h = registered()
        h.add(
            "harness",
            PromiseObserved(clause=seen, held=held, evidence="an answer", seen_by="client"),
        )
        assert outcome(h, clause) is expected


def test_equal_fields_at_both_ends_do_not_exercise_hb_26() -> None:
    """Both ends have the same codec, so equal fields do not show that the bytes are right."""
    h = registered()
    send(h)
    answer(h, "NONE")
    receive(h, "NONE")
    assert outcome(h, "HB-26") is Outcome.NOT_EXERCISED


@pytest.mark.parametrize("read", [{"incarnation_id": OWN + 1}, {"target_state": 3}])
def test_a_heartbeat_that_is_read_with_other_fields_breaks_hb_26(read: dict[str, int]) -> None:
    h = registered()
    send(h)
    answer(h, "NONE", **read)
    assert stated(verdict(h, "HB-26"), "expected") == f"(1, {OWN}, 2)"


@pytest.mark.parametrize(("error", "state"), [("NONE", 3), ("INVALID_INCARNATION_ID", 2)])
def test_an_answer_that_is_read_with_other_fields_breaks_hb_26(error: str, state: int) -> None:
    h = registered()
    send(h)
    answer(h, "NONE")
    receive(h, error, state)
    assert stated(verdict(h, "HB-26"), "error", "state") == (error, state)


def test_an_answer_to_an_earlier_heartbeat_is_not_compared() -> None:
    h = registered()
    send(h, number=7)
    answer(h, "NONE", number=7)
    send(h, number=8)
    receive(h, "NOT_CONTROLLER", 0)
    assert outcome(h, "HB-26") is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(
    ("isr", "epoch", "violated"), [("1,2", 4, 0), ("1,3", 4, 1), ("1,2", 0, 1)]
)
def test_an_isr_change_must_be_read_with_the_fields_that_were_sent(
    isr: str, epoch: int, violated: int
) -> None:
    h = registered()
    h.add(
        BROKER,
        IsrChangeAsked(
            topic="orders",
            partition=0,
            leader_epoch=4,
            broker_epoch=OWN,
            old_isr=(1, 2, 3),
            new_isr=(1, 2),
            ends=(0, 0),
            high_watermark=0,
            epoch_start=0,
            lag_ns=0,
        ),
    )
    h.add(
        CONTROLLER,
        IsrChangeJudged(
            client=BROKER,
            broker_id=1,
            incarnation_id=OWN,
            known=OWN,
            error="NONE",
            partitions=("orders-0",),
            isrs=(isr,),
            leader_epochs=(epoch,),
            results=("NONE",),
            controller_epoch=1,
            active=True,
        ),
    )
    assert verdict(h, "HB-26").violated == violated


# ------------------------------------------------------------------------- what does not count


@pytest.mark.parametrize(
    ("broker", "expected"), [(0, Outcome.NOT_EXERCISED), (-1, Outcome.VIOLATED)]
)
def test_only_a_negative_broker_id_is_malformed(broker: int, expected: Outcome) -> None:
    h = registered()
    answer(h, "NONE", broker_id=broker)
    assert outcome(h, "HB-15") is expected
    h = registered()
    declare(h, "Initial", "Active", "heartbeat", broker=broker)
    assert outcome(h, "HB-15") is expected


@pytest.mark.parametrize(("reachable", "new"), [(False, "Active"), (True, "Initial")])
def test_the_proof_of_hb_15_is_the_registration_without_an_address(
    reachable: bool, new: str
) -> None:
    h = registered(reachable=reachable)
    registration = h.events()[1].ref
    declare(h, "Initial", new, "heartbeat")
    (found,) = verdict(h, "HB-15").violations
    assert found.because == (() if reachable else (registration,))


def test_an_answer_is_compared_with_the_newest_heartbeat_only() -> None:
    h = registered()
    answer(h, "NONE", incarnation_id=OWN + 1)
    send(h, number=7)
    send(h, number=8)
    answer(h, "NONE", number=7, incarnation_id=OWN + 1)
    assert outcome(h, "HB-26") is Outcome.NOT_EXERCISED


@pytest.mark.parametrize("cause", [None, Cause(BROKER, 7)])
def test_an_answer_without_its_request_is_not_compared(cause: Cause | None) -> None:
    h = registered()
    send(h)
    body = MetadataHeartbeatAnswered(
        client=BROKER,
        broker_id=1,
        incarnation_id=OWN + 1,
        known=OWN,
        target_state=2,
        error="NONE",
        state="Active",
        controller_epoch=1,
        active=True,
    )
    h.add(CONTROLLER, body, cause=cause)
    receive(h, "NOT_CONTROLLER", 0)
    assert outcome(h, "HB-26") is Outcome.NOT_EXERCISED
