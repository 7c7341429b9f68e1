"""The rules about failures of an active controller (KR-36), and faults of any node (KR-39)."""

from __future__ import annotations

import pytest
from msgspec import structs
from tests.clusters.apache_kafka.kraft_histories import CONTROLLER, FIRST, PEER, injected, verdict
from tests.suites.partition_histories import stated

from fencepost import Evidence, NodeStarted
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_clusters.apache_kafka.log_memory import ControllerFailed, FaultReported
from fencepost_kafka import ControllerElected, ControllerResigned, ResignReason

ERROR = "java.lang.RuntimeException: Topic ID x existed in isrMembers, but not in the topics map."


def failed(h: HistoryBuilder, process: str, epoch: int, doing: str = "registerBroker") -> None:
    """It is elected, fails, and gives its leadership up."""
    h.add(process, ControllerElected(epoch=epoch, log_end=9, last_epoch=-1))
    h.add(process, ControllerFailed(epoch=epoch, doing=doing, error=ERROR))
    h.add(process, ControllerResigned(epoch=epoch, reason="failed"))


def test_a_controller_that_gives_its_leadership_up_for_a_request_breaks_kr_36() -> None:
    h = HistoryBuilder()
    failed(h, CONTROLLER, 4)
    found = verdict(h, "KR-36")
    assert (found.verdict, found.evidence) == (Outcome.VIOLATED, Evidence.SELF)
    assert stated(found, "process", "epoch") == (CONTROLLER, 4)
    assert stated(found, "doing", "error") == ("registerBroker", ERROR)


def test_successors_that_fail_in_the_same_way_are_one_violation() -> None:
    h = HistoryBuilder()
    for epoch in (4, 5, 6):
        failed(h, f"controller-{1 + epoch % 2}#1", epoch)
    failed(h, CONTROLLER, 7, doing="createTopics")
    assert verdict(h, "KR-36").violated == 2


@pytest.mark.parametrize("reason", ["no_majority", "higher_epoch", "shutdown"])
def test_a_leadership_that_ends_for_another_reason_exercises_kr_36(reason: ResignReason) -> None:
    h = HistoryBuilder()
    h.add(CONTROLLER, ControllerElected(epoch=4, log_end=9, last_epoch=-1))
    h.add(CONTROLLER, ControllerResigned(epoch=4, reason=reason))
    found = verdict(h, "KR-36")
    assert (found.verdict, found.exercised) == (Outcome.HOLDS, 1)


def test_without_an_end_of_a_leadership_kr_36_is_not_exercised() -> None:
    h = HistoryBuilder()
    h.add(CONTROLLER, ControllerElected(epoch=4, log_end=9, last_epoch=-1))
    assert verdict(h, "KR-36").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ KR-39

FAULT = FaultReported(what="metadata application", error="Error applying topics delta")


def started(h: HistoryBuilder, process: str) -> None:
    h.add(process, NodeStarted(role="broker", node_id=int(process[7]), incarnation="", log_end=-1))


def test_a_node_that_reports_a_fault_breaks_kr_39_once_for_each_kind_of_fault() -> None:
    h = HistoryBuilder()
    for process in (FIRST, PEER):
        started(h, process)
        h.add(process, FAULT)
        h.add(process, structs.replace(FAULT, error="what follows from it"))
    h.add(PEER, structs.replace(FAULT, what="metadata loading"))
    found = verdict(h, "KR-39")
    assert (found.violated, found.evidence) == (3, Evidence.SELF)
    assert stated(found, "process", "what", "error") == (FIRST, FAULT.what, FAULT.error)


@pytest.mark.parametrize(
    ("fault", "target", "broken"),
    [
        ("damage_disk", FIRST, 0),
        ("wipe_disk", "broker-1", 0),
        ("damage_disk", PEER, 1),
        ("kill", FIRST, 1),
    ],
)
def test_a_node_whose_disk_lost_data_may_meet_a_fault(fault: str, target: str, broken: int) -> None:
    h = HistoryBuilder()
    started(h, FIRST)
    injected(h, fault, target)
    h.add("broker-1#2", FAULT)
    found = verdict(h, "KR-39")
    assert (found.violated, found.excused) == (broken, 1 - broken)


def test_a_disk_that_no_receipt_shows_to_be_harmed_excuses_no_fault() -> None:
    h = HistoryBuilder()
    started(h, FIRST)
    injected(h, "damage_disk", FIRST, receipt=False)
    h.add("broker-1#2", FAULT)
    assert verdict(h, "KR-39").violated == 1


def test_each_process_that_meets_no_fault_exercises_kr_39() -> None:
    h = HistoryBuilder()
    assert verdict(h, "KR-39").verdict is Outcome.NOT_EXERCISED
    for process in (FIRST, PEER):
        started(h, process)
    found = verdict(h, "KR-39")
    assert (found.verdict, found.exercised) == (Outcome.HOLDS, 2)


def test_whether_a_node_meets_a_fault_later_is_unknown_if_the_history_is_cut_short() -> None:
    h = HistoryBuilder()
    started(h, FIRST)
    assert verdict(h, "KR-39", complete=False).verdict is Outcome.UNKNOWN
