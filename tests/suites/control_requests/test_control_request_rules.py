"""The rules of KIP-380, each with histories that keep it, break it, and do not exercise it."""

from __future__ import annotations

import pytest
from tests.suites.control_requests.control_request_histories import (
    ALL,
    CONTROLLER,
    FORMER,
    NEW,
    NEXT,
    OLD,
    OWN,
    again,
    answer,
    begin,
    bounced,
    declare,
    outcome,
    read_znode,
    register,
    send,
    shut_down,
    stop,
    store,
    verdict,
)
from tests.suites.partition_histories import stated, why

from fencepost import Cause, FaultHealed, FaultInjected, ProcessExited, Scope
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import BrokerStateChanged, ControllerBegan, ReplicaRemoved, ReplicaStopped


@pytest.mark.parametrize("clause", ALL)
def test_a_bounce_without_any_request_exercises_nothing(clause: str) -> None:
    assert outcome(bounced(), clause) is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ BE-01


def test_a_registered_epoch_that_is_read_as_it_was_sent_holds_be_01() -> None:
    h = bounced()
    answer(h, send(h, "UpdateMetadata", OWN))
    assert outcome(h, "BE-01") is Outcome.HOLDS


def test_an_epoch_that_is_not_read_as_it_was_sent_breaks_be_01() -> None:
    h = bounced()
    answer(h, send(h, "UpdateMetadata", OWN), request_epoch=OWN + 1)
    assert stated(verdict(h, "BE-01"), "read_epoch", "epoch") == (OWN + 1, OWN)


def test_an_epoch_under_which_no_process_registered_breaks_be_01() -> None:
    h = bounced()
    answer(h, send(h, "UpdateMetadata", OWN + 5))
    (found,) = verdict(h, "BE-01").violations
    assert stated(found, "broker", "epoch") == ("broker 1", OWN + 5)
    assert "read_epoch" not in found.facts


def test_a_broker_may_record_its_registration_after_the_first_request_for_it() -> None:
    h = bounced()
    answer(h, send(h, "UpdateMetadata", OWN + 5))
    assert verdict(h, "BE-01", complete=False).verdict is Outcome.UNKNOWN
    register(h, NEW, OWN + 5)
    assert outcome(h, "BE-01") is Outcome.HOLDS


@pytest.mark.parametrize("znode_first", [True, False])
def test_a_znode_shows_a_registration_whose_answer_the_broker_never_got(znode_first: bool) -> None:
    h = bounced()
    if znode_first:
        read_znode(h, OWN + 5)
    answer(h, send(h, "UpdateMetadata", OWN + 5))
    if not znode_first:
        read_znode(h, OWN + 5)
    assert outcome(h, "BE-01") is Outcome.HOLDS


def test_a_shutdown_with_the_epoch_of_another_process_breaks_be_01() -> None:
    h = bounced()
    shut_down(h, OWN, client=OLD)
    assert verdict(h, "BE-01").violated == 1


def test_a_controller_with_a_protocol_before_kip_380_may_send_no_epoch() -> None:
    h = bounced()
    register(h, CONTROLLER, 5, version=4, protocol=1, broker=3)
    answer(h, send(h, "UpdateMetadata", -1))
    assert outcome(h, "BE-01") is Outcome.NOT_EXERCISED


def test_a_controller_with_the_protocol_of_kip_380_that_sends_no_epoch_breaks_be_01() -> None:
    h = bounced()
    register(h, CONTROLLER, 5, version=4, protocol=2, broker=3)
    answer(h, send(h, "UpdateMetadata", -1))
    assert verdict(h, "BE-01").violated == 1


@pytest.mark.parametrize(("protocol", "violated"), [(1, 0), (2, 1)])
def test_only_an_earlier_protocol_may_send_a_shutdown_without_an_epoch(
    protocol: int, violated: int
) -> None:
    h = bounced()
    register(h, NEW, OWN + 1, version=4, protocol=protocol)
    shut_down(h, -1, client=NEW)
    assert verdict(h, "BE-01").violated == violated


# ------------------------------------------------------------------------------------------ BE-02


@pytest.mark.parametrize("api", ["LeaderAndIsr", "UpdateMetadata", "StopReplica"])
def test_a_refused_request_of_the_former_process_holds_be_02(api: str) -> None:
    h = bounced()
    answer(h, send(h, api, FORMER), "STALE_BROKER_EPOCH")
    assert outcome(h, "BE-02") is Outcome.HOLDS


@pytest.mark.parametrize("api", ["LeaderAndIsr", "UpdateMetadata", "StopReplica"])
def test_an_obeyed_request_of_the_former_process_breaks_be_02(api: str) -> None:
    h = bounced()
    answer(h, send(h, api, FORMER))
    assert verdict(h, "BE-02").violated == 1


def test_be_02_is_broken_even_if_the_broker_records_other_epochs() -> None:
    h = bounced()
    answer(h, send(h, "UpdateMetadata", FORMER), request_epoch=OWN, broker_epoch=FORMER)
    assert verdict(h, "BE-02").violated == 1


def test_a_current_request_refused_as_stale_breaks_be_02() -> None:
    h = bounced()
    answer(h, send(h, "UpdateMetadata", OWN), "STALE_BROKER_EPOCH")
    assert verdict(h, "BE-02").violated == 1


def test_a_process_that_lost_its_id_may_refuse_every_request() -> None:
    h = bounced()
    h.add(
        NEW,
        BrokerStateChanged(
            broker_id=1, old="ACTIVE", new="FENCED", broker_epoch=OWN, reason="taken_over"
        ),
    )
    answer(h, send(h, "UpdateMetadata", OWN), "STALE_BROKER_EPOCH")
    assert outcome(h, "BE-02") is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ BE-03


def test_a_refused_stop_replica_of_the_former_process_holds_be_03() -> None:
    h = bounced()
    answer(h, send(h, "StopReplica", FORMER), "STALE_BROKER_EPOCH")
    assert outcome(h, "BE-03") is Outcome.HOLDS


def test_a_replica_that_an_old_stop_replica_stops_breaks_be_03_even_if_it_is_refused() -> None:
    h = bounced()
    sent = send(h, "StopReplica", FORMER)
    h.add(
        NEW,
        ReplicaStopped(topic="orders", partition=0, controller_epoch=1, request_epoch=OWN),
        cause=Cause(CONTROLLER, 1, request=True),
    )
    answer(h, sent, "STALE_BROKER_EPOCH")
    assert stated(verdict(h, "BE-03"), "partition", "epoch") == ("orders-0", FORMER)


def test_an_obeyed_stop_replica_of_the_former_process_breaks_be_03() -> None:
    h = bounced()
    answer(h, send(h, "StopReplica", FORMER))
    assert verdict(h, "BE-03").violated == 1


# ------------------------------------------------------------------------------------------ BE-04


def test_a_rejected_shutdown_of_the_former_process_holds_be_04() -> None:
    h = bounced()
    declare(h, "Absent", "Active", OWN, "bounced")
    shut_down(h, FORMER, "STALE_BROKER_EPOCH")
    assert outcome(h, "BE-04") is Outcome.HOLDS


def test_an_accepted_shutdown_of_the_former_process_breaks_be_04_despite_its_known_epoch() -> None:
    h = bounced()
    declare(h, "Absent", "Active", OWN, "bounced")
    shut_down(h, FORMER, known=FORMER)
    assert stated(verdict(h, "BE-04"), "epoch", "other_epoch", "former") == (FORMER, OWN, OLD)


def test_a_shutdown_whose_sender_is_not_known_names_no_former_process() -> None:
    h = bounced()
    declare(h, "Absent", "Active", OWN, "bounced")
    shut_down(h, FORMER, client="")
    (broken,) = verdict(h, "BE-04").violations
    assert "former" not in broken.facts


def test_a_shutdown_before_the_bounce_is_handled_may_be_accepted() -> None:
    h = bounced()
    shut_down(h, FORMER, known=FORMER)
    assert outcome(h, "BE-04") is Outcome.NOT_EXERCISED


def test_a_stop_replica_to_a_process_that_was_not_asked_to_stop_breaks_be_04() -> None:
    h = bounced()
    stop(h, OLD)
    send(h, "StopReplica", OWN)
    assert stated(verdict(h, "BE-04"), "other", "count") == (NEW, 1)


def test_a_stop_replica_to_a_stopping_process_or_for_a_deletion_keeps_be_04() -> None:
    h = bounced()
    stop(h, OLD)
    send(h, "StopReplica", FORMER)
    send(h, "StopReplica", OWN, number=2, deletes=True)
    assert outcome(h, "BE-04") is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ BE-05


def test_a_bounce_that_is_declared_holds_be_05() -> None:
    h = bounced()
    declare(h, "Active", "Absent", FORMER, "bounced")
    declare(h, "Absent", "Initial", OWN, "bounced")
    h.after(60_000)
    send(h, "UpdateMetadata", OWN)
    h.add(NEXT, ControllerBegan(epoch=2, broker_id=2, first=False, heartbeat_timeout_ms=2000))
    assert outcome(h, "BE-05") is Outcome.HOLDS


def test_a_bounce_that_is_declared_before_the_registration_is_recorded_holds_be_05() -> None:
    h = HistoryBuilder()
    begin(h)
    register(h, OLD, FORMER)
    declare(h, "Absent", "Active", FORMER, "registered")
    declare(h, "Active", "Absent", FORMER, "bounced")
    declare(h, "Absent", "Active", OWN, "bounced")
    register(h, NEW, OWN)
    h.after(7_000)
    declare(h, "Active", "Stopping", OWN, "heartbeat")
    assert outcome(h, "BE-05") is Outcome.HOLDS


def test_a_bounce_that_is_not_declared_breaks_be_05() -> None:
    h = bounced()
    h.after(7_000)
    declare(h, "Active", "Stopping", FORMER, "heartbeat")
    assert stated(verdict(h, "BE-05"), "other", "epoch") == (NEW, OWN)


@pytest.mark.parametrize("ended", [NEW, CONTROLLER])
def test_no_declaration_is_due_once_either_process_has_ended(ended: str) -> None:
    h = bounced()
    h.add("harness", ProcessExited(ended=ended, exit_code=-9, signal=9, expected=True))
    h.after(7_000)
    declare(h, "Active", "Stopping", FORMER, "heartbeat", process=NEXT)
    assert outcome(h, "BE-05") is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ BE-06


def declared_live() -> HistoryBuilder:
    h = bounced()
    declare(h, "Active", "Absent", FORMER, "bounced")
    declare(h, "Absent", "Active", OWN, "bounced")
    return h


def test_a_bounced_broker_that_gets_metadata_and_partitions_holds_be_06() -> None:
    h = declared_live()
    answer(h, send(h, "UpdateMetadata", OWN))
    answer(h, send(h, "LeaderAndIsr", OWN, number=2))
    assert outcome(h, "BE-06") is Outcome.HOLDS


def test_requests_without_a_broker_epoch_initialise_a_bounced_broker() -> None:
    h = declared_live()
    answer(h, send(h, "UpdateMetadata", -1))
    answer(h, send(h, "LeaderAndIsr", -1, number=2))
    assert outcome(h, "BE-06") is Outcome.HOLDS


def test_a_bounced_broker_without_partitions_breaks_be_06() -> None:
    h = declared_live()
    answer(h, send(h, "UpdateMetadata", OWN))
    h.after(7_000)
    declare(h, "Active", "Stopping", OWN, "heartbeat")
    assert stated(verdict(h, "BE-06"), "process", "other") == (CONTROLLER, NEW)


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (("broker-1", "broker-3"), Outcome.NOT_EXERCISED),
        (("broker-1", "broker-2"), Outcome.VIOLATED),
        (("broker-3",), Outcome.VIOLATED),
    ],
)
def test_only_a_fault_between_the_controller_and_the_broker_excuses_be_06(
    targets: tuple[str, ...], expected: Outcome
) -> None:
    h = declared_live()
    held = FaultInjected(fault_id="f", fault="hold", targets=targets, receipt=True, evidence="")
    h.add("harness", held)
    h.after(7_000)
    declare(h, "Active", "Stopping", OWN, "heartbeat")
    found = verdict(h, "BE-06")
    assert found.verdict is expected
    assert found.excused == (expected is Outcome.NOT_EXERCISED)
    if found.excused:
        assert stated(found.excuses[0], "since_ns") == 7_002_000_000
        assert why(found, "fault", "process", "other") == ("f", "broker-1#2", "broker-3#1")


def test_a_broker_is_initialised_in_time_after_a_fault_between_it_and_the_controller() -> None:
    h = declared_live()
    ends = ("broker-1", "broker-3")
    held = FaultInjected(fault_id="f", fault="hold", targets=ends, receipt=True, evidence="")
    h.add("harness", held)
    h.after(7_000)
    h.add("harness", FaultHealed(fault_id="f", receipt=True, evidence=""))
    h.after(7_000)
    declare(h, "Active", "Stopping", OWN, "heartbeat")
    assert stated(verdict(h, "BE-06"), "process", "other") == (CONTROLLER, NEW)


def test_requests_for_the_former_process_do_not_initialise_the_new_one() -> None:
    h = declared_live()
    answer(h, send(h, "UpdateMetadata", FORMER))
    answer(h, send(h, "LeaderAndIsr", FORMER, number=2))
    assert outcome(h, "BE-06") is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ BE-07


def test_a_first_leader_and_isr_of_all_partitions_holds_be_07() -> None:
    h = bounced()
    store(h, 0, 1)
    declare(h, "Absent", "Active", OWN, "bounced")
    answer(h, send(h, "LeaderAndIsr", OWN, partitions=("orders-0", "orders-1")))
    assert outcome(h, "BE-07") is Outcome.HOLDS


def test_a_first_leader_and_isr_that_lacks_a_partition_breaks_be_07() -> None:
    h = bounced()
    store(h, 0, 1)
    declare(h, "Absent", "Active", OWN, "bounced")
    answer(h, send(h, "LeaderAndIsr", OWN))
    assert stated(verdict(h, "BE-07"), "places") == ("orders-1",)


def test_a_first_leader_and_isr_may_lack_a_partition_made_after_the_declaration() -> None:
    h = bounced()
    store(h, 0)
    declare(h, "Absent", "Active", OWN, "bounced")
    store(h, 1)
    answer(h, send(h, "LeaderAndIsr", OWN))
    assert outcome(h, "BE-07") is Outcome.HOLDS


def test_a_later_leader_and_isr_may_lack_partitions() -> None:
    h = bounced()
    store(h, 0, 1)
    declare(h, "Absent", "Active", OWN, "bounced")
    answer(h, send(h, "LeaderAndIsr", OWN, partitions=("orders-0", "orders-1")))
    answer(h, send(h, "LeaderAndIsr", OWN, number=2))
    assert outcome(h, "BE-07") is Outcome.HOLDS


@pytest.mark.parametrize("error", ["NONE", "STALE_BROKER_EPOCH"])
def test_a_leader_and_isr_for_the_former_process_must_be_refused(error: str) -> None:
    h = bounced()
    answer(h, send(h, "LeaderAndIsr", FORMER), error)
    assert outcome(h, "BE-07") is (Outcome.VIOLATED if error == "NONE" else Outcome.HOLDS)


@pytest.mark.parametrize("clause", ["BE-02", "BE-03", "BE-07", "BE-09"])
@pytest.mark.parametrize("error", ["NONE", "STALE_BROKER_EPOCH"])
@pytest.mark.parametrize(("handled_ms", "began_before"), [(0, False), (4, False), (5, True)])
def test_a_broker_may_register_anew_while_it_works_on_a_request(
    clause: str, error: str, handled_ms: int, began_before: bool
) -> None:
    """It decides by the epoch that it has then: by the former one if it had begun before."""
    h = bounced()
    api = {"BE-02": "UpdateMetadata", "BE-03": "StopReplica"}.get(clause, "LeaderAndIsr")
    request = send(h, api, OWN)
    again(h, NEW, OWN + 10)
    h.after(3)
    answer(h, request, error, handled_ns=handled_ms * 1_000_000)
    obeyed = error == "NONE" and not began_before and clause != "BE-09"
    assert (outcome(h, clause) is Outcome.VIOLATED) is obeyed


# ------------------------------------------------------------------------------------------ BE-08


@pytest.mark.parametrize("error", ["NONE", "STALE_CONTROLLER_EPOCH"])
def test_a_request_of_a_deposed_controller_must_be_refused(error: str) -> None:
    h = bounced()
    late = send(h, "UpdateMetadata", OWN, controller_epoch=1)
    answer(h, send(h, "UpdateMetadata", OWN, controller_epoch=2, process=NEXT))
    answer(h, late, error, controller_epoch=2)
    found = verdict(h, "BE-08")
    assert found.verdict is (Outcome.VIOLATED if error == "NONE" else Outcome.HOLDS)
    # The report looks for the loss of what the violation says that it is about.
    about = [one.facts["authority"] for one in found.violations]
    assert about == [Scope("controller", "")] * (error == "NONE")


@pytest.mark.parametrize(("handled_ms", "broken"), [(0, True), (1, True), (5, False)])
def test_a_broker_may_handle_the_requests_of_two_controllers_at_once(
    handled_ms: int, broken: bool
) -> None:
    """What it had begun before it answered the newer one was decided before."""
    h = bounced()
    late = send(h, "UpdateMetadata", OWN, controller_epoch=1)
    answer(h, send(h, "UpdateMetadata", OWN, controller_epoch=2, process=NEXT))
    h.after(3)
    answer(h, late, controller_epoch=2, handled_ns=handled_ms * 1_000_000)
    assert outcome(h, "BE-08") is (Outcome.VIOLATED if broken else Outcome.NOT_EXERCISED)


def test_a_refused_request_of_a_newer_controller_does_not_depose_the_older_one() -> None:
    h = bounced()
    newer = send(h, "UpdateMetadata", OWN, controller_epoch=2, process=NEXT)
    answer(h, newer, "STALE_BROKER_EPOCH")
    answer(h, send(h, "UpdateMetadata", OWN))
    assert outcome(h, "BE-08") is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ BE-09


def test_a_current_request_that_is_obeyed_holds_be_09() -> None:
    h = bounced()
    answer(h, send(h, "LeaderAndIsr", OWN))
    assert outcome(h, "BE-09") is Outcome.HOLDS


@pytest.mark.parametrize("error", ["STALE_BROKER_EPOCH", "STALE_CONTROLLER_EPOCH"])
def test_a_current_request_that_is_refused_breaks_be_09(error: str) -> None:
    h = bounced()
    answer(h, send(h, "LeaderAndIsr", OWN), error)
    assert verdict(h, "BE-09").violated == 1


@pytest.mark.parametrize("removed", [True, False])
def test_a_stop_replica_that_is_answered_must_have_stopped_the_replicas(removed: bool) -> None:
    h = bounced()
    answer(h, send(h, "LeaderAndIsr", OWN))
    sent = send(h, "StopReplica", OWN, number=2, deletes=True)
    if removed:
        h.add(NEW, ReplicaRemoved(topic="orders", partition=0, topic_id="t", reason="deleted"))
    answer(h, sent)
    assert outcome(h, "BE-09") is (Outcome.HOLDS if removed else Outcome.VIOLATED)


def test_a_stop_replica_of_a_replica_that_the_process_never_had_needs_no_effect() -> None:
    h = bounced()
    answer(h, send(h, "StopReplica", OWN))
    assert outcome(h, "BE-09") is Outcome.HOLDS


@pytest.mark.parametrize("error", ["NONE", "STALE_BROKER_EPOCH"])
def test_a_shutdown_of_the_newest_process_must_be_processed(error: str) -> None:
    h = bounced()
    shut_down(h, OWN, error, client=NEW)
    assert outcome(h, "BE-09") is (Outcome.HOLDS if error == "NONE" else Outcome.VIOLATED)


def test_a_shutdown_before_the_controller_has_read_the_registration_may_be_refused() -> None:
    h = bounced()
    shut_down(h, OWN, "BROKER_ID_NOT_REGISTERED", known=-1, client=NEW)
    assert outcome(h, "BE-09") is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ BE-10


@pytest.mark.parametrize("error", ["NONE", "STALE_BROKER_EPOCH"])
def test_a_request_without_a_broker_epoch_must_be_accepted(error: str) -> None:
    h = bounced()
    answer(h, send(h, "UpdateMetadata", -1), error)
    assert outcome(h, "BE-10") is (Outcome.HOLDS if error == "NONE" else Outcome.VIOLATED)


def test_a_shutdown_without_a_broker_epoch_must_be_accepted() -> None:
    h = bounced()
    shut_down(h, -1, "STALE_BROKER_EPOCH")
    assert verdict(h, "BE-10").violated == 1


def test_a_request_without_a_broker_epoch_of_a_deposed_controller_may_be_refused() -> None:
    h = bounced()
    answer(h, send(h, "UpdateMetadata", -1), "STALE_CONTROLLER_EPOCH")
    assert outcome(h, "BE-10") is Outcome.NOT_EXERCISED
