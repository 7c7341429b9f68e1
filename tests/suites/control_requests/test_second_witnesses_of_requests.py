"""Control requests whose receiver or sender gives a false account: others speak against it."""

from __future__ import annotations

import pytest
from tests.suites.control_requests.control_request_histories import (
    CONTROLLER,
    FORMER,
    NEW,
    NEXT,
    OWN,
    answer,
    begin,
    bounced,
    declare,
    outcome,
    register,
    send,
    shut_down,
    stop,
    store,
    verdict,
)

from fencepost import Cause, Event, NodeStarted, process_scope
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import (
    BrokerStateChanged,
    ControllerBegan,
    PartitionCommitted,
    ReplicaRemoved,
    broker_of,
)

DUPLICATE = "broker-1-duplicate#1"


def removes(h: HistoryBuilder, sent: Event) -> None:
    cause = Cause(sent.process, 1, request=True)
    h.add(NEW, ReplicaRemoved(topic="orders", partition=0, topic_id="", reason="deleted"), cause)


@pytest.mark.parametrize(("deletes", "found"), [(False, 1), (True, 0)])
def test_a_stop_replica_that_keeps_the_data_removes_no_log(deletes: bool, found: int) -> None:
    h = bounced()
    sent = send(h, "StopReplica", OWN, deletes=deletes)
    removes(h, sent)
    answer(h, sent)
    broken = verdict(h, "BE-01").violations
    assert [one.facts["process"] for one in broken] == [process_scope(NEW)] * found


def test_a_broker_reads_whether_the_data_are_deleted_as_it_was_sent() -> None:
    h = bounced()
    answer(h, send(h, "StopReplica", OWN, deletes=False), deletes=True)
    assert verdict(h, "BE-01").violations[0].facts["expected"] == "False"


def says_taken_over(h: HistoryBuilder) -> None:
    body = BrokerStateChanged(
        broker_id=1,
        old="ACTIVE",
        new="FENCED",
        broker_epoch=OWN,
        reason="taken_over",
        global_state="",
    )
    h.add(NEW, body)


@pytest.mark.parametrize("clause", ["BE-02", "BE-07"])
def test_a_process_that_says_it_lost_its_id_may_refuse_but_not_obey(clause: str) -> None:
    h = bounced()
    says_taken_over(h)
    sent = send(h, "LeaderAndIsr", OWN)
    answer(h, sent, error="STALE_BROKER_EPOCH")
    assert outcome(h, clause) is Outcome.NOT_EXERCISED
    answer(h, send(h, "LeaderAndIsr", FORMER, 2))
    assert verdict(h, clause).violations[0].facts["process"] == process_scope(NEW)


@pytest.mark.parametrize("error", ["UNKNOWN_SERVER_ERROR", "STALE_BROKER_EPOCH"])
def test_a_larger_epoch_is_accepted(error: str) -> None:
    h = bounced()
    answer(h, send(h, "UpdateMetadata", 99), error=error)
    assert verdict(h, "BE-02").violations[0].facts["epoch"] == 99


def test_a_larger_epoch_of_a_deposed_controller_may_be_refused() -> None:
    h = bounced()
    answer(h, send(h, "UpdateMetadata", OWN, controller_epoch=7))
    answer(h, send(h, "UpdateMetadata", 99, 2), error="STALE_CONTROLLER_EPOCH")
    assert outcome(h, "BE-02") is Outcome.NOT_EXERCISED


def test_a_process_that_never_registered_obeys_no_request_for_another_ones_epoch() -> None:
    h = bounced()
    h.add(DUPLICATE, NodeStarted(role="broker", node_id=1))
    answer(h, send(h, "StopReplica", OWN), process=DUPLICATE)
    found = verdict(h, "BE-02").violations[0].facts
    assert (found["process"], found["holder"]) == (process_scope(DUPLICATE), process_scope(NEW))


def test_a_bounce_that_a_declaration_hides_is_still_owed() -> None:
    h = bounced()
    declare(h, "Active", "Active", OWN, "heartbeat")
    h.after(7_000)
    declare(h, "Active", "Stopping", OWN, "heartbeat")
    assert verdict(h, "BE-05").violations[0].facts["other"] == process_scope(NEW)


def moves(h: HistoryBuilder, isr: tuple[int, ...] = (2, 3)) -> None:
    body = PartitionCommitted(
        offset=60,
        topic="orders",
        partition=0,
        leader=3,
        leader_epoch=1,
        isr=isr,
        replicas=(1, 2, 3),
        role="controller",
    )
    h.add(CONTROLLER, body)


def refused_shutdown() -> HistoryBuilder:
    """The controller has refused a ControlledShutdown of broker 1's former process."""
    h = bounced()
    declare(h, "Active", "Absent", FORMER, "bounced")
    declare(h, "Absent", "Active", OWN, "bounced")
    store(h, 0)
    shut_down(h, FORMER, error="STALE_BROKER_EPOCH")
    return h


def test_a_refused_shutdown_moves_no_leadership_of_the_live_process() -> None:
    h = refused_shutdown()
    moves(h)
    found = verdict(h, "BE-04").violations[0].facts
    assert (found["process"], found["broker"]) == (process_scope(CONTROLLER), broker_of(1))


def test_other_reasons_may_move_a_leadership_after_a_refused_shutdown() -> None:
    # It keeps its place in the ISR: a preferred leader's return.
    h = refused_shutdown()
    moves(h, isr=(1, 2, 3))
    assert outcome(h, "BE-04") is Outcome.HOLDS
    # The live process stops, too.
    h = refused_shutdown()
    stop(h, NEW)
    moves(h)
    assert outcome(h, "BE-04") is Outcome.HOLDS
    # It has become inactive.
    h = refused_shutdown()
    declare(h, "Active", "Inactive", OWN, "silent")
    moves(h)
    assert outcome(h, "BE-04") is Outcome.HOLDS
    # Another cause, a second later.
    h = refused_shutdown()
    h.after(1_001)
    moves(h)
    assert outcome(h, "BE-04") is Outcome.HOLDS


def test_a_partial_first_leader_and_isr_before_the_declaration_counts_too() -> None:
    h = HistoryBuilder()
    begin(h)
    store(h, 0, 1)
    register(h, NEW, OWN)
    answer(h, send(h, "LeaderAndIsr", OWN, partitions=("orders-0",)))
    assert outcome(h, "BE-07") is Outcome.NOT_EXERCISED
    declare(h, "Absent", "Active", OWN, "registered")
    assert verdict(h, "BE-07").violations[0].facts["missing"] == 1


@pytest.mark.parametrize(("terms", "found"), [(5, 0), (7, 1)])
def test_all_controllers_together_have_half_a_minute_for_a_bounce(terms: int, found: int) -> None:
    h = bounced()
    for number in range(terms):
        h.after(5_000)
        process = (NEXT, CONTROLLER)[number % 2]
        body = ControllerBegan(
            epoch=2 + number, broker_id=2, first=False, heartbeat_timeout_ms=2000
        )
        h.add(process, body)
    assert verdict(h, "BE-05").violated == found
