"""The rules of KIP-380 on a release before it: requests have no broker epochs, and what is known
comes from the logs of Apache Kafka's brokers. Each rule has a history that holds, one that breaks
it and one that does not decide."""

from __future__ import annotations

import pytest
from tests.suites.control_requests.control_request_histories import (
    CONTROLLER,
    NEW,
    OLD,
    OWN,
    outcome,
    register,
    shut_down,
    stop,
    verdict,
)
from tests.suites.control_requests.earlier_release_histories import (
    arrive,
    ask,
    begin,
    compare,
    heal,
    inject,
    late,
)
from tests.suites.partition_histories import stated, why

from fencepost import NodeStarted
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import BrokerRegistered, ControllerElected, ControllerResigned

APIS = [("BE-02", "UpdateMetadata"), ("BE-03", "StopReplica"), ("BE-07", "LeaderAndIsr")]


@pytest.mark.parametrize(("clause", "api"), APIS)
def test_a_request_that_was_sent_before_the_process_began_must_not_be_obeyed(
    clause: str, api: str
) -> None:
    h = begin()
    sent = ask(h, api)
    register(h, NEW, -1, version=4)
    arrive(h, sent)
    assert stated(verdict(h, clause), "early") is True


@pytest.mark.parametrize(("clause", "api"), APIS)
def test_a_request_that_was_sent_before_the_process_began_may_be_refused(
    clause: str, api: str
) -> None:
    h = begin()
    sent = ask(h, api)
    register(h, NEW, -1, version=4)
    arrive(h, sent, "STALE_BROKER_EPOCH")
    assert outcome(h, clause) is Outcome.HOLDS


@pytest.mark.parametrize(("clause", "api"), APIS)
def test_a_request_between_the_start_and_the_registration_decides_nothing(
    clause: str, api: str
) -> None:
    h = begin()
    h.add(NEW, NodeStarted(role="broker", node_id=1))
    sent = ask(h, api)
    arrive(h, sent)
    assert outcome(h, clause) is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("clause", "api"), APIS)
def test_a_number_that_a_later_request_has_too_decides_nothing(clause: str, api: str) -> None:
    h = begin()
    ask(h, api)
    register(h, NEW, -1, version=4)
    arrive(h, ask(h, api))
    assert outcome(h, clause) is Outcome.NOT_EXERCISED


@pytest.mark.parametrize("protocol", [0, 1])
@pytest.mark.parametrize(("clause", "api"), APIS)
def test_a_request_without_an_epoch_in_a_double_roll_may_be_obeyed(
    clause: str, api: str, protocol: int
) -> None:
    h = begin()
    sent = ask(h, api)
    register(h, NEW, OWN, version=4, protocol=protocol)
    arrive(h, sent)
    assert outcome(h, clause) is Outcome.NOT_EXERCISED


def test_a_number_joins_the_logs_of_both_processes() -> None:
    h = begin()
    register(h, NEW, OWN)
    arrive(h, ask(h, "UpdateMetadata", epoch=OWN))
    assert outcome(h, "BE-01") is Outcome.HOLDS
    arrive(h, ask(h, "UpdateMetadata", epoch=OWN + 1, number=2), correlation=2)
    (found,) = verdict(h, "BE-01").violations
    assert stated(found, "broker", "epoch") == ("broker 1", OWN + 1)
    assert "read_epoch" not in found.facts


def test_a_release_without_broker_epochs_carries_none() -> None:
    h = begin()
    register(h, CONTROLLER, -1, version=4, broker=3)
    arrive(h, ask(h, "UpdateMetadata"), process=OLD)
    assert outcome(h, "BE-01") is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ BE-04


def returned(found: bool = True) -> HistoryBuilder:
    """Broker 1 has stopped in order, and its next process is registered."""
    h = begin()
    stop(h, OLD)
    compare(h, deleted=(1,))
    register(h, NEW, -1, version=4)
    if found:
        compare(h, added=(1,))
    return h


def test_an_accepted_shutdown_breaks_be_04_if_the_process_found_was_not_asked_to_stop() -> None:
    h = returned()
    shut_down(h, -1, client="")
    assert stated(verdict(h, "BE-04"), "bounced") == NEW


def test_a_shutdown_of_a_process_that_stops_decides_nothing() -> None:
    h = returned()
    stop(h, NEW)
    shut_down(h, -1, client="")
    assert outcome(h, "BE-04") is Outcome.NOT_EXERCISED


def test_a_shutdown_before_the_new_process_is_found_decides_nothing() -> None:
    h = returned(found=False)
    shut_down(h, -1, client="")
    assert outcome(h, "BE-04") is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("error", "violated"), [("NONE", 1), ("STALE_BROKER_EPOCH", 0)])
def test_the_epoch_of_the_process_found_must_not_be_newer(error: str, violated: int) -> None:
    h = begin(epoch=10)
    register(h, NEW, OWN)
    compare(h, bounced=(1,))
    shut_down(h, 10, error, client="")
    expected = Outcome.VIOLATED if violated else Outcome.HOLDS
    assert outcome(h, "BE-04") is expected


# ----------------------------------------------------------------------------------- BE-05, BE-06


def test_a_bounce_that_the_controller_lists_holds_be_05() -> None:
    h = begin()
    register(h, NEW, -1, version=4)
    compare(h, bounced=(1,))
    assert outcome(late(h), "BE-05") is Outcome.HOLDS


def test_a_bounce_may_be_found_before_the_broker_logs_its_registration() -> None:
    h = begin()
    h.add(NEW, NodeStarted(role="broker", node_id=1))
    compare(h, bounced=(1,))
    h.add(
        NEW,
        BrokerRegistered(broker_id=1, broker_epoch=-1, session=0, version=4, overwrote=False),
    )
    assert outcome(late(h), "BE-05") is Outcome.HOLDS


def test_a_broker_that_was_seen_to_be_absent_did_not_bounce() -> None:
    h = begin()
    compare(h, deleted=(1,))
    register(h, NEW, -1, version=4)
    compare(h, added=(1,))
    assert outcome(late(h), "BE-05") is Outcome.NOT_EXERCISED


def test_a_bounce_that_no_comparison_shows_breaks_be_05() -> None:
    h = begin()
    register(h, NEW, -1, version=4)
    found = verdict(late(h), "BE-05")
    assert stated(found, "other", "epoch", "overlooked") == (NEW, -1, False)
    h = begin()
    register(h, NEW, -1, version=4)
    compare(h)
    found = verdict(late(h), "BE-05")
    assert stated(found, "other", "epoch", "overlooked") == (NEW, -1, True)


@pytest.mark.parametrize("target", ["broker-1", "broker-3#1", "zookeeper-1"])
def test_nothing_is_due_while_a_fault_names_the_broker_or_its_controller(target: str) -> None:
    h = begin()
    inject(h, target)
    register(h, NEW, -1, version=4)
    late(h)
    heal(h)
    found = verdict(h, "BE-05")
    assert found.verdict is Outcome.NOT_EXERCISED
    assert found.excused == 1
    assert why(found, "fault") == "f"
    assert outcome(late(h), "BE-05") is Outcome.VIOLATED


@pytest.mark.parametrize("targets", [("broker-2",), ("broker-2", "zookeeper-1")])
def test_a_fault_at_another_broker_excuses_no_missed_bounce(targets: tuple[str, ...]) -> None:
    h = begin()
    inject(h, *targets)
    register(h, NEW, -1, version=4)
    assert outcome(late(h), "BE-05") is Outcome.VIOLATED


def test_a_broker_that_registers_during_a_fault_is_found_after_a_session_timeout() -> None:
    """The fault isolates one node, and names all of its neighbours."""
    h = begin()
    inject(h, "broker-1", "broker-2", "broker-3", "zookeeper-1")
    register(h, NEW, -1, version=4)
    late(late(h))
    assert outcome(h, "BE-05") is Outcome.NOT_EXERCISED
    late(late(late(h)))
    assert outcome(h, "BE-05") is Outcome.VIOLATED


def test_a_fault_that_isolates_zookeeper_excuses_the_controller_while_it_lasts() -> None:
    h = begin()
    register(h, NEW, -1, version=4)
    inject(h, "broker-1", "broker-2", "broker-3", "zookeeper-1")
    for _ in range(10):
        late(h)
    assert outcome(h, "BE-05") is Outcome.NOT_EXERCISED


def test_nothing_is_due_while_there_is_no_controller() -> None:
    h = begin()
    h.add(CONTROLLER, ControllerResigned(epoch=1, reason="session_lost"))
    register(h, NEW, -1, version=4)
    assert outcome(late(h), "BE-05") is Outcome.NOT_EXERCISED


def found_again() -> HistoryBuilder:
    h = begin()
    register(h, NEW, -1, version=4)
    compare(h, bounced=(1,))
    return h


def test_a_broker_that_is_found_and_gets_all_holds_be_06() -> None:
    h = found_again()
    arrive(h, ask(h, "UpdateMetadata"))
    arrive(h, ask(h, "LeaderAndIsr", number=2), correlation=2)
    assert outcome(late(h), "BE-06") is Outcome.HOLDS


def test_a_broker_that_is_found_and_gets_no_partitions_breaks_be_06() -> None:
    h = found_again()
    arrive(h, ask(h, "UpdateMetadata"))
    assert stated(verdict(late(h), "BE-06"), "process", "other") == (CONTROLLER, NEW)


def test_a_broker_without_replicas_is_owed_nothing() -> None:
    h = HistoryBuilder()
    h.add(CONTROLLER, ControllerElected(epoch=1, log_end=-1, last_epoch=-1))
    register(h, OLD, -1, version=4)
    register(h, NEW, -1, version=4)
    compare(h, added=(1,))
    assert outcome(late(h), "BE-06") is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(
    ("target", "expected"),
    [("broker-1", Outcome.NOT_EXERCISED), ("broker-2", Outcome.VIOLATED)],
)
def test_only_a_fault_that_names_the_broker_excuses_that_it_got_no_partitions(
    target: str, expected: Outcome
) -> None:
    h = begin()
    inject(h, target)
    register(h, NEW, -1, version=4)
    compare(h, bounced=(1,))
    assert outcome(late(h), "BE-06") is expected
