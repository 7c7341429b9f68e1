"""The rules of control requests: exact bounds, whose word counts, and what does not count."""

from __future__ import annotations

import pytest
from tests.suites.control_requests.control_request_histories import (
    CONTROLLER,
    FORMER,
    NEW,
    NEXT,
    OLD,
    OWN,
    again,
    answer,
    bounced,
    declare,
    outcome,
    send,
    shut_down,
    store,
    verdict,
)
from tests.suites.control_requests.earlier_release_histories import arrive, ask, begin, compare
from tests.suites.partition_histories import stated

from fencepost import Evidence, NodeStarted
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import (
    ControlledShutdownAnswered,
    ControlRequestSent,
    PartitionCommitted,
    ReplicaRemoved,
    ReplicaStopped,
    TopicCommitted,
    TopicMarked,
)

HOLDS, VIOLATED, NOT_EXERCISED = Outcome.HOLDS, Outcome.VIOLATED, Outcome.NOT_EXERCISED


def stopped(h: HistoryBuilder, epoch: int) -> None:
    """The broker stops a replica by a request that no controller is known to have sent."""
    h.add(NEW, ReplicaStopped(topic="orders", partition=0, controller_epoch=1, request_epoch=epoch))


# ------------------------------------------------------------------------------------------ BE-02


@pytest.mark.parametrize(("epoch", "result"), [(OWN, NOT_EXERCISED), (FORMER, VIOLATED)])
def test_a_process_that_tells_late_that_it_began_has_registered_all_the_same(
    epoch: int, result: Outcome
) -> None:
    h = HistoryBuilder()
    again(h, NEW, OWN)
    h.add(NEW, NodeStarted(role="broker", node_id=1, incarnation=NEW, log_end=-1))
    answer(h, send(h, "UpdateMetadata", epoch), broker_epoch=-1)
    assert outcome(h, "BE-02") is result


def test_a_request_that_no_controller_has_recorded_is_the_brokers_own_word() -> None:
    h = bounced()
    sent = ControlRequestSent(
        api="UpdateMetadata",
        broker_id=1,
        broker_epoch=FORMER,
        controller_epoch=1,
        correlation=1,
        partitions=(),
        attempt=1,
        deletes=False,
    )
    arrive(h, sent)
    (found,) = verdict(h, "BE-02").violations
    assert found.evidence is Evidence.SELF
    assert stated(found, "operation", "controller") == ("UpdateMetadata", "broker 3")


def test_the_proof_of_be_02_is_the_registration_and_the_request() -> None:
    h = bounced()
    registered = h.events()[-1]
    sent = send(h, "UpdateMetadata", FORMER)
    answer(h, sent)
    (found,) = verdict(h, "BE-02").violations
    assert found.because == (registered.ref, sent.ref)


# ------------------------------------------------------------------------------------------ BE-03


@pytest.mark.parametrize(
    ("epoch", "expected"), [(OWN, NOT_EXERCISED), (OWN - 1, VIOLATED), (-1, NOT_EXERCISED)]
)
def test_a_replica_may_be_stopped_for_the_own_epoch_or_without_one(
    epoch: int, expected: Outcome
) -> None:
    h = bounced()
    registered = h.events()[-1]
    stopped(h, epoch)
    found = verdict(h, "BE-03")
    assert found.verdict is expected
    wanted = [(Evidence.SELF, (registered.ref,))][: found.violated]
    assert [(one.evidence, one.because) for one in found.violations] == wanted


def test_a_replica_that_a_process_stops_before_it_is_known_decides_nothing() -> None:
    h = HistoryBuilder()
    stopped(h, FORMER)
    assert outcome(h, "BE-03") is NOT_EXERCISED


# ------------------------------------------------------------------------------------------ BE-04


@pytest.mark.parametrize(("gone", "expected"), [(True, NOT_EXERCISED), (False, VIOLATED)])
def test_a_process_that_the_controller_saw_go_is_not_the_one_it_has_found(
    gone: bool, expected: Outcome
) -> None:
    h = begin()
    if gone:
        compare(h, deleted=(1,))
    shut_down(h, -1, client="")
    assert outcome(h, "BE-04") is expected


@pytest.mark.parametrize(("absent", "expected"), [(True, NOT_EXERCISED), (False, VIOLATED)])
def test_a_broker_that_was_declared_absent_has_no_cached_epoch(
    absent: bool, expected: Outcome
) -> None:
    h = bounced()
    declare(h, "Absent", "Active", OWN, "bounced")
    if absent:
        declare(h, "Active", "Absent", OWN, "silent")
    shut_down(h, FORMER)
    assert outcome(h, "BE-04") is expected


# ------------------------------------------------------------------------------------------ BE-07


def hosted_elsewhere(h: HistoryBuilder) -> None:
    h.add(
        CONTROLLER,
        PartitionCommitted(
            offset=2,
            topic="orders",
            partition=1,
            leader=2,
            leader_epoch=0,
            isr=(2,),
            replicas=(2, 3),
            role="controller",
        ),
    )


def test_a_first_leader_and_isr_may_lack_what_other_brokers_host() -> None:
    h = bounced()
    store(h, 0)
    hosted_elsewhere(h)
    declare(h, "Absent", "Active", OWN, "bounced")
    answer(h, send(h, "LeaderAndIsr", OWN))
    assert outcome(h, "BE-07") is HOLDS


@pytest.mark.parametrize("how", ["marked", "deleted"])
def test_a_first_leader_and_isr_may_lack_a_topic_that_goes(how: str) -> None:
    h = bounced()
    store(h, 0)
    if how == "marked":
        h.add(CONTROLLER, TopicMarked(offset=8, topic="orders", topic_id=""))
    else:
        h.add(CONTROLLER, TopicCommitted(offset=8, topic="orders", topic_id="", deleted=True))
    declare(h, "Absent", "Active", OWN, "bounced")
    answer(h, send(h, "LeaderAndIsr", OWN, partitions=()))
    assert outcome(h, "BE-07") is NOT_EXERCISED


def test_a_first_leader_and_isr_may_not_lack_a_topic_made_anew() -> None:
    h = bounced()
    store(h, 0)
    h.add(CONTROLLER, TopicMarked(offset=8, topic="orders", topic_id=""))
    h.add(CONTROLLER, TopicCommitted(offset=8, topic="orders", topic_id="", deleted=True))
    store(h, 9)
    declare(h, "Absent", "Active", OWN, "bounced")
    answer(h, send(h, "LeaderAndIsr", OWN))
    assert outcome(h, "BE-07") is VIOLATED


@pytest.mark.parametrize(
    ("sent", "read", "expected"),
    [
        (("orders-0", "orders-1"), ("orders-0",), HOLDS),
        (("orders-0",), ("orders-0", "orders-1"), VIOLATED),
    ],
)
def test_the_controllers_word_says_what_a_first_leader_and_isr_named(
    sent: tuple[str, ...], read: tuple[str, ...], expected: Outcome
) -> None:
    h = bounced()
    store(h, 0, 1)
    declare(h, "Absent", "Active", OWN, "bounced")
    answer(h, send(h, "LeaderAndIsr", OWN, partitions=sent), partitions=read)
    assert outcome(h, "BE-07") is expected


# ------------------------------------------------------------------------------------------ BE-08


def test_a_controller_may_send_several_requests() -> None:
    h = bounced()
    for number in (1, 2):
        answer(h, send(h, "UpdateMetadata", OWN, number=number, controller_epoch=2))
    assert outcome(h, "BE-08") is NOT_EXERCISED


def test_the_proof_of_be_08_is_the_first_newer_request_and_the_late_one() -> None:
    h = bounced()
    late = send(h, "UpdateMetadata", OWN, controller_epoch=1)
    answer(h, send(h, "UpdateMetadata", OWN, controller_epoch=2, process=NEXT))
    first = h.events()[-1]
    answer(h, send(h, "UpdateMetadata", OWN, 2, controller_epoch=2, process=NEXT))
    answer(h, late)
    (found,) = verdict(h, "BE-08").violations
    assert found.because == (first.ref, late.ref)


# ------------------------------------------------------------------------------------------ BE-09


@pytest.mark.parametrize(
    ("sent", "read", "expected"),
    [(("orders-0",), (), VIOLATED), ((), ("orders-0",), HOLDS)],
)
def test_the_controllers_word_says_what_a_stop_replica_named(
    sent: tuple[str, ...], read: tuple[str, ...], expected: Outcome
) -> None:
    h = bounced()
    answer(h, send(h, "LeaderAndIsr", OWN))
    answer(h, send(h, "StopReplica", OWN, number=2, partitions=sent), partitions=read)
    assert outcome(h, "BE-09") is expected


def test_a_replica_that_was_stopped_need_not_be_stopped_again() -> None:
    h = bounced()
    answer(h, send(h, "LeaderAndIsr", OWN))
    asked = send(h, "StopReplica", OWN, number=2)
    h.add(NEW, ReplicaRemoved(topic="orders", partition=0, topic_id="t", reason="deleted"))
    answer(h, asked)
    answer(h, send(h, "StopReplica", OWN, number=3))
    assert outcome(h, "BE-09") is HOLDS


@pytest.mark.parametrize(
    ("client", "epoch", "by", "exercised"),
    [(NEW, OWN, 0, 1), (NEW, OWN, -1, 0), (OLD, OWN, 1, 0), (NEW, FORMER, 1, 0)],
)
def test_a_shutdown_counts_if_the_active_controller_got_it_from_the_newest_process(
    client: str, epoch: int, by: int, exercised: int
) -> None:
    h = bounced()
    h.add(
        CONTROLLER,
        ControlledShutdownAnswered(
            client=client,
            broker_id=1,
            request_epoch=epoch,
            known_epoch=OWN,
            error="NONE",
            remaining=(),
            controller_epoch=by,
        ),
    )
    assert verdict(h, "BE-09").exercised == exercised


@pytest.mark.parametrize("client", [OLD, ""])
@pytest.mark.parametrize("error", ["NONE", "BROKER_NOT_AVAILABLE"])
def test_a_shutdown_without_broker_epochs_decides_nothing_for_be_09(
    client: str, error: str
) -> None:
    h = begin()
    shut_down(h, -1, error, known=-1, client=client)
    assert outcome(h, "BE-09") is NOT_EXERCISED


# ------------------------------------------------------------------------------------------ BE-10


@pytest.mark.parametrize(
    ("epoch", "error", "expected"),
    [
        (-1, "NONE", HOLDS),
        (-1, "NOT_CONTROLLER", NOT_EXERCISED),
        (OWN, "NONE", NOT_EXERCISED),
        (OWN, "STALE_BROKER_EPOCH", NOT_EXERCISED),
    ],
)
def test_only_a_decided_shutdown_without_an_epoch_exercises_be_10(
    epoch: int, error: str, expected: Outcome
) -> None:
    h = bounced()
    shut_down(h, epoch, error)
    assert outcome(h, "BE-10") is expected


# ------------------------------------------------------------------------------------------ BE-01


def test_the_first_number_of_a_connection_is_zero() -> None:
    h = begin(OWN)
    arrive(h, ask(h, "UpdateMetadata", epoch=OWN, number=0), process=OLD, correlation=0)
    assert outcome(h, "BE-01") is HOLDS
