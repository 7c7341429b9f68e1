"""The rules of registration: replays, epochs, and the processes that do not count."""

from __future__ import annotations

import pytest
from tests.suites.brokers.registration_histories import (
    CONTROLLER,
    LEASE_MS,
    NEW,
    OLD,
    OTHER,
    bounced,
    change,
    grant,
    record,
    verdict,
    written,
)
from tests.suites.partition_histories import stated

from fencepost import Evidence, NodeStarted, ProcessExited
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import ControllerElected, HeartbeatAnswered, HeartbeatRefused, LeaseGranted

THIRD = "controller-3#1"


def refuse(h: HistoryBuilder, process: str) -> None:
    h.add(
        process,
        HeartbeatRefused(
            broker_id=1, broker_epoch=-1, error="DUPLICATE_BROKER_REGISTRATION", controller=101
        ),
    )


# ------------------------------------------------------------------------------------------ QC-20


def test_a_first_activity_does_not_exercise_qc_20() -> None:
    h = HistoryBuilder()
    change(h, "INITIAL", "ACTIVE")
    assert verdict(h, "QC-20").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(
    ("recorded", "evidence"), [(0, Evidence.SELF), (6, Evidence.SELF), (7, Evidence.PEER)]
)
def test_a_new_epoch_has_a_peers_evidence_if_a_record_names_it(
    recorded: int, evidence: Evidence
) -> None:
    h = HistoryBuilder()
    change(h, "INITIAL", "ACTIVE", epoch=5)
    change(h, "ACTIVE", "FENCED", epoch=5)
    if recorded:
        record(h, recorded, recorded, fenced=False)
    change(h, "FENCED", "ACTIVE", epoch=7)
    found = verdict(h, "QC-20")
    assert (found.verdict, found.evidence) == (Outcome.HOLDS, evidence)


def test_a_violation_of_qc_20_names_the_event_that_came_first_about_a_record() -> None:
    h = HistoryBuilder()
    for process in (CONTROLLER, OTHER):
        record(h, 3, 3, fenced=False, process=process)
    record(h, 4, 3, fenced=True)
    record(h, 5, 3, fenced=False)
    (found,) = verdict(h, "QC-20").violations
    assert [str(ref) for ref in found.because] == [f"{CONTROLLER}@0", f"{CONTROLLER}@1"]


# ------------------------------------------------------------------------------------------ QC-21


def test_a_record_that_two_nodes_replay_breaks_qc_21_once() -> None:
    h = HistoryBuilder()
    record(h, 5, 5, fenced=False)
    for process in (CONTROLLER, OTHER):
        record(h, 9, 4, fenced=True, incarnation="new", process=process)
    assert verdict(h, "QC-21").violated == 1


def test_an_epoch_that_a_process_keeps_does_not_exercise_qc_21() -> None:
    h = HistoryBuilder()
    record(h, 5, 5, fenced=False)
    record(h, 7, 5, fenced=True)
    assert verdict(h, "QC-21").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize("first", [0, 1])
def test_an_epoch_was_given_by_the_first_record_that_has_it(first: int) -> None:
    h = HistoryBuilder()
    written(h, 5, term=first)
    record(h, 5, 5, fenced=False)
    elected = h.add(OTHER, ControllerElected(epoch=2, log_end=6, last_epoch=first))
    written(h, 7, term=2)
    record(h, 7, 5, fenced=True)  # the next controller fences it, and it keeps its epoch
    written(h, 9, term=2)
    record(h, 9, 4, fenced=True, incarnation="new")
    (found,) = verdict(h, "QC-21").violations
    assert found.because == (h.events()[1].ref, elected.ref)


# ----------------------------------------------------------------------------------------- REG-03


@pytest.mark.parametrize(
    ("request_epoch", "error", "active", "outcome"),
    [
        (-1, "NONE", True, Outcome.VIOLATED),
        (0, "NONE", True, Outcome.NOT_EXERCISED),
        (5, "NONE", True, Outcome.NOT_EXERCISED),
        (-1, "NOT_CONTROLLER", True, Outcome.NOT_EXERCISED),
        (-1, "NONE", False, Outcome.NOT_EXERCISED),
    ],
)
def test_only_the_answer_that_accepts_a_registration_must_wait_for_its_entry(
    request_epoch: int, error: str, active: bool, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    h.add(
        CONTROLLER,
        HeartbeatAnswered(
            client=NEW,
            broker_id=1,
            incarnation="new",
            request_epoch=request_epoch,
            broker_epoch=5,
            error=error,
            next_state="FENCED",
            lease_start_ms=0,
            lease_end_ms=LEASE_MS,
            lease_period_ms=LEASE_MS,
            controller_epoch=1,
            active_controller=101,
            active=active,
        ),
    )
    assert verdict(h, "REG-03").verdict is outcome


def taken_over(h: HistoryBuilder) -> None:
    """A registration that takes over an active entry, as the active controller replays it."""
    record(h, 5, 5, fenced=True, incarnation="old")
    record(h, 6, 6, fenced=False, incarnation="old")
    record(h, 9, 9, fenced=True, incarnation="new")


def test_a_takeover_that_no_second_node_has_replayed_does_not_exercise_reg_03() -> None:
    h = HistoryBuilder()
    taken_over(h)
    record(h, 5, 5, fenced=True, incarnation="old", process=OTHER)
    assert verdict(h, "REG-03").verdict is Outcome.NOT_EXERCISED


def test_a_takeover_exercises_reg_03_once_however_many_nodes_replay_it() -> None:
    h = HistoryBuilder()
    taken_over(h)
    for process in (OTHER, THIRD):
        record(h, 9, 9, fenced=True, incarnation="new", process=process)
    assert verdict(h, "REG-03").exercised == 1


# ------------------------------------------------------------------------------------------ QC-35


@pytest.mark.parametrize(
    ("error", "epoch", "outcome"),
    [
        ("DUPLICATE_BROKER_REGISTRATION", -1, Outcome.VIOLATED),
        ("BROKER_ID_NOT_REGISTERED", -1, Outcome.VIOLATED),
        ("UNSUPPORTED_VERSION", -1, Outcome.NOT_EXERCISED),
        ("NOT_CONTROLLER", -1, Outcome.NOT_EXERCISED),
        ("STALE_BROKER_EPOCH", 5, Outcome.NOT_EXERCISED),
    ],
)
def test_a_process_waits_for_the_old_lease_by_whatever_name(
    error: str, epoch: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    bounced(h)
    h.add(NEW, HeartbeatRefused(broker_id=1, broker_epoch=epoch, error=error, controller=101))
    assert verdict(h, "QC-35").verdict is outcome


def test_a_process_that_a_newer_one_replaced_may_be_refused() -> None:
    h = HistoryBuilder()
    bounced(h)
    h.add("broker-1#3", NodeStarted(role="broker", node_id=1, incarnation="third", log_end=0))
    refuse(h, NEW)
    assert verdict(h, "QC-35").verdict is Outcome.NOT_EXERCISED


def test_a_process_that_ran_beside_the_dead_one_is_not_its_restart() -> None:
    """Two processes waited for a controller with one id, and the older one registered last."""
    h = HistoryBuilder()
    h.add(OLD, NodeStarted(role="broker", node_id=1, incarnation="old", log_end=0))
    h.add(NEW, NodeStarted(role="broker", node_id=1, incarnation="new", log_end=0))
    grant(h, OLD)
    h.add("harness", ProcessExited(ended=OLD, exit_code=-9, signal=9, expected=True))
    refuse(h, NEW)
    assert verdict(h, "QC-35").verdict is Outcome.NOT_EXERCISED


def test_a_process_regains_its_id_once() -> None:
    """A lease that ends before the dead process's own does not make the process wait again."""
    h = HistoryBuilder()
    bounced(h)
    short = LeaseGranted(
        broker_id=1,
        broker_epoch=9,
        next_state="FENCED",
        lease_start_ms=0,
        lease_end_ms=10,
        ends_at_ns=h.now_ns + 10_000_000,
        controller_epoch=1,
    )
    h.add(NEW, short)
    h.add(NEW, short)
    refuse(h, NEW)
    found = verdict(h, "QC-35")
    assert (found.verdict, found.exercised) == (Outcome.HOLDS, 1)


def test_a_process_that_was_killed_later_counts_with_its_own_lease() -> None:
    h = HistoryBuilder()
    bounced(h)
    h.after(LEASE_MS - 100)
    grant(h, NEW, "FENCED", epoch=9)
    h.add("harness", ProcessExited(ended=NEW, exit_code=-9, signal=9, expected=True))
    h.add("broker-1#3", NodeStarted(role="broker", node_id=1, incarnation="third", log_end=0))
    h.after(200)
    refuse(h, "broker-1#3")
    (found,) = verdict(h, "QC-35").violations
    assert stated(found, "other") == NEW
