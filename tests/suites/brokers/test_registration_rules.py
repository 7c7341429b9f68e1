"""The rules of registration, each with a violation, a near miss and an undecided history."""

from __future__ import annotations

from typing import Any

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

from fencepost import MS, Evidence, NodeStarted, ProcessExited, ProcessSpawned
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import (
    ControllerElected,
    HeartbeatAnswered,
    HeartbeatRefused,
    HeartbeatSent,
)


def answer(
    h: HistoryBuilder,
    client: str,
    next_state: str = "ACTIVE",
    request_epoch: int = 5,
    incarnation: str = "old",
    error: str = "NONE",
    start_ms: int = 0,
    active: bool = True,
) -> None:
    h.add(
        CONTROLLER,
        HeartbeatAnswered(
            client=client,
            broker_id=1,
            incarnation=incarnation,
            request_epoch=request_epoch,
            broker_epoch=5,
            error=error,
            next_state=next_state,
            lease_start_ms=start_ms,
            lease_end_ms=start_ms + LEASE_MS,
            lease_period_ms=LEASE_MS,
            controller_epoch=1,
            active_controller=101,
            active=active,
        ),
    )


# ------------------------------------------------------------------------------------------ QC-16


def test_a_broker_that_unfences_itself_breaks_qc_16() -> None:
    h = HistoryBuilder()
    answer(h, OLD)
    grant(h, OLD)
    change(h, "FENCED", "ACTIVE")
    change(h, "ACTIVE", "FENCED")
    change(h, "FENCED", "ACTIVE")
    found = verdict(h, "QC-16")
    assert (found.verdict, found.violated) == (Outcome.VIOLATED, 1)
    assert found.violations[0].at.seq == 3


def test_an_answer_to_another_process_does_not_keep_qc_16() -> None:
    h = HistoryBuilder()
    answer(h, NEW)
    change(h, "FENCED", "ACTIVE")
    assert verdict(h, "QC-16").verdict is Outcome.VIOLATED


def test_a_broker_that_was_allowed_keeps_qc_16() -> None:
    h = HistoryBuilder()
    change(h, "INITIAL", "FENCED")
    answer(h, OLD)
    grant(h, OLD)
    change(h, "FENCED", "ACTIVE")
    found = verdict(h, "QC-16")
    assert (found.verdict, found.evidence) == (Outcome.HOLDS, Evidence.PEER)


@pytest.mark.parametrize("silent", [False, True])
def test_an_activity_after_a_fence_that_is_not_told_breaks_qc_16(silent: bool) -> None:
    """It says itself that it was fenced, by the state that it leaves."""
    h = HistoryBuilder()
    answer(h, OLD)
    if not silent:
        grant(h, OLD)
    change(h, "FENCED", "ACTIVE")
    change(h, "FENCED", "ACTIVE")
    found = verdict(h, "QC-16")
    assert [one.at.seq for one in found.violations] == [2 - silent]


def test_a_state_that_is_told_again_keeps_qc_16() -> None:
    h = HistoryBuilder()
    answer(h, OLD)
    grant(h, OLD)
    change(h, "FENCED", "ACTIVE")
    change(h, "ACTIVE", "ACTIVE")
    assert verdict(h, "QC-16").verdict is Outcome.HOLDS


def test_an_answer_in_flight_while_it_was_fenced_keeps_qc_16() -> None:
    h = HistoryBuilder()
    answer(h, OLD)
    change(h, "ACTIVE", "FENCED")
    grant(h, OLD)
    change(h, "FENCED", "ACTIVE")
    assert verdict(h, "QC-16").evidence is Evidence.SELF


def registered(h: HistoryBuilder) -> None:
    """A broker that is fenced, and tells of the leases that it takes."""
    answer(h, OLD, next_state="FENCED", request_epoch=-1)
    grant(h, OLD, next_state="FENCED")
    change(h, "INITIAL", "FENCED")


def test_an_answer_that_the_broker_did_not_take_does_not_keep_qc_16() -> None:
    h = HistoryBuilder()
    registered(h)
    answer(h, OLD, start_ms=50)
    change(h, "FENCED", "ACTIVE")
    assert stated(verdict(h, "QC-16"), "process", "former_state") == (OLD, "FENCED")
    # The grant may be among what is lost.
    assert verdict(h, "QC-16", complete=False).verdict is Outcome.UNKNOWN


@pytest.mark.parametrize("told", [{"next_state": "FENCED"}, {"active": False}])
def test_a_lease_that_says_more_than_its_answer_does_not_keep_qc_16(told: dict[str, Any]) -> None:
    h = HistoryBuilder()
    registered(h)
    answer(h, OLD, start_ms=7)  # to a heartbeat whose answer was lost
    answer(h, OLD, start_ms=50, **told)
    grant(h, OLD, start_ms=50)
    change(h, "FENCED", "ACTIVE")
    (found,) = verdict(h, "QC-16").violations
    assert (found.evidence, found.because) == (Evidence.PEER, (h.events()[4].ref,))


@pytest.mark.parametrize("order", ["twice", "late", "the one before", "after it was fenced"])
def test_a_lease_whose_answer_lets_the_broker_be_active_keeps_qc_16(order: str) -> None:
    h = HistoryBuilder()
    registered(h)
    if order == "twice":
        # The request came again, and the broker had caught up by then.
        answer(h, OLD, start_ms=50, next_state="FENCED")
    if order == "after it was fenced":
        change(h, "ACTIVE", "FENCED")
    if order != "late":
        answer(h, OLD, start_ms=50)
    grant(h, OLD, start_ms=50)
    if order == "the one before":
        answer(h, OLD, start_ms=60, next_state="FENCED")
        grant(h, OLD, start_ms=60)
    change(h, "FENCED", "ACTIVE")
    if order == "late":
        answer(h, OLD, start_ms=50)
    assert verdict(h, "QC-16").verdict is Outcome.HOLDS


def test_the_first_lease_of_a_broker_whose_answer_is_not_recorded_leaves_qc_16_undecided() -> None:
    """The controller may have been killed before it recorded its answer."""
    h = HistoryBuilder()
    registered(h)
    grant(h, OLD, start_ms=50)
    change(h, "FENCED", "ACTIVE")
    assert verdict(h, "QC-16").verdict is Outcome.UNKNOWN


@pytest.mark.parametrize(("by_controller", "evidence"), [(True, "peer"), (False, "self")])
def test_who_tells_of_no_answer_or_of_no_grant_keeps_qc_16(
    by_controller: bool, evidence: str
) -> None:
    h = HistoryBuilder()
    change(h, "INITIAL", "FENCED")
    if by_controller:
        answer(h, OLD)
    else:
        grant(h, OLD)
    change(h, "FENCED", "ACTIVE")
    found = verdict(h, "QC-16")
    assert (found.verdict, found.evidence) == (Outcome.HOLDS, evidence)


def test_qc_16_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    answer(h, OLD)
    change(h, "FENCED", "ACTIVE")
    assert verdict(h, "QC-16", complete=False).verdict is Outcome.UNKNOWN


# ------------------------------------------------------------------------------------------ QC-20


@pytest.mark.parametrize(
    ("old", "new"), [("INITIAL", "SHUTDOWN"), ("SHUTDOWN", "ACTIVE"), ("ACTIVE", "INITIAL")]
)
def test_a_move_that_the_diagram_lacks_breaks_qc_20(old: str, new: str) -> None:
    h = HistoryBuilder()
    change(h, old, new)
    assert verdict(h, "QC-20").verdict is Outcome.VIOLATED


def test_a_state_that_it_was_not_seen_to_enter_breaks_qc_20() -> None:
    h = HistoryBuilder()
    change(h, "INITIAL", "FENCED")
    change(h, "ACTIVE", "FENCED")
    assert verdict(h, "QC-20").verdict is Outcome.VIOLATED


def test_activity_regained_under_the_old_epoch_breaks_qc_20() -> None:
    h = HistoryBuilder()
    for old, new in (("INITIAL", "ACTIVE"), ("ACTIVE", "FENCED"), ("FENCED", "ACTIVE")):
        change(h, old, new, epoch=5)
    assert stated(verdict(h, "QC-20"), "process", "epoch") == (OLD, 5)


def test_a_record_that_restores_the_old_epoch_breaks_qc_20() -> None:
    h = HistoryBuilder()
    record(h, 3, 3, fenced=False)
    record(h, 4, 3, fenced=True)
    record(h, 5, 3, fenced=False)
    assert verdict(h, "QC-20").violations[0].evidence is Evidence.PEER


def test_a_violation_of_qc_20_names_the_record_that_fenced_the_broker() -> None:
    h = HistoryBuilder()
    record(h, 3, 3, fenced=False)
    record(h, 4, 3, fenced=True)
    record(h, 5, 3, fenced=True)
    record(h, 6, 3, fenced=False)
    (found,) = verdict(h, "QC-20").violations
    assert [str(ref) for ref in found.because] == [f"{CONTROLLER}@{n}" for n in (0, 1)]


def test_activity_regained_under_a_new_epoch_keeps_qc_20() -> None:
    h = HistoryBuilder()
    record(h, 3, 3, fenced=True)
    change(h, "INITIAL", "FENCED", epoch=3)
    record(h, 4, 3, fenced=False)  # the first activity may keep the registration's epoch
    change(h, "FENCED", "ACTIVE", epoch=3)
    change(h, "ACTIVE", "FENCED", epoch=3)
    record(h, 5, 3, fenced=True)
    record(h, 6, 6, fenced=False)
    change(h, "FENCED", "ACTIVE", epoch=6)
    change(h, "ACTIVE", "SHUTDOWN", epoch=6)
    found = verdict(h, "QC-20")
    assert (found.verdict, found.exercised, found.evidence) == (Outcome.HOLDS, 1, Evidence.PEER)


def test_qc_20_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    change(h, "INITIAL", "ACTIVE", epoch=3)
    change(h, "ACTIVE", "FENCED", epoch=3)
    change(h, "FENCED", "ACTIVE", epoch=6)
    assert verdict(h, "QC-20", complete=False).verdict is Outcome.UNKNOWN


# ------------------------------------------------------------------------------------------ QC-21


@pytest.mark.parametrize("epoch", [4, 5], ids=["smaller", "the same for another process"])
def test_an_epoch_that_does_not_grow_breaks_qc_21(epoch: int) -> None:
    h = HistoryBuilder()
    record(h, 5, 5, fenced=False, incarnation="old")
    record(h, 9, epoch, fenced=True, incarnation="new")
    assert verdict(h, "QC-21").verdict is Outcome.VIOLATED


def test_an_epoch_that_shrinks_after_a_larger_one_breaks_qc_21() -> None:
    h = HistoryBuilder()
    record(h, 5, 5, fenced=False)
    record(h, 9, 9, fenced=False, incarnation="new")
    record(h, 12, 7, fenced=False, incarnation="newest")
    assert stated(verdict(h, "QC-21"), "epoch", "offset", "other_epoch") == (7, 12, 9)


def test_an_epoch_given_twice_names_the_controller_that_gave_it_again() -> None:
    h = HistoryBuilder()
    h.add(CONTROLLER, ControllerElected(epoch=1, log_end=0, last_epoch=0))
    written(h, 5, term=1)
    record(h, 5, 5, fenced=False)
    elected = h.add(OTHER, ControllerElected(epoch=2, log_end=6, last_epoch=1))
    written(h, 9, term=2)
    record(h, 9, 4, fenced=True, incarnation="new")
    written(h, 10, term=2)
    record(h, 10, 5, fenced=True, incarnation="newest")
    for violation in verdict(h, "QC-21").violations:
        assert stated(violation, "other_epoch", "controller_epoch") == (5, 2)
        assert violation.because == (h.events()[2].ref, elected.ref)
    assert verdict(h, "QC-21").violated == 2


def test_a_controller_that_wrote_both_records_is_no_proof_of_qc_21() -> None:
    h = HistoryBuilder()
    elected = h.add(CONTROLLER, ControllerElected(epoch=1, log_end=0, last_epoch=0))
    for offset, epoch in ((5, 5), (9, 4)):
        written(h, offset, term=1)
        record(h, offset, epoch, fenced=True, incarnation=f"of {epoch}")
    assert elected.ref not in verdict(h, "QC-21").violations[0].because


def test_growing_epochs_keep_qc_21_and_a_replay_counts_for_nothing() -> None:
    h = HistoryBuilder()
    record(h, 5, 5, fenced=False)
    record(h, 7, 5, fenced=True)
    record(h, 9, 9, fenced=False)
    record(h, 5, 5, fenced=False, process="controller-2#2")
    found = verdict(h, "QC-21")
    assert (found.verdict, found.exercised) == (Outcome.HOLDS, 1)


def test_qc_21_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    record(h, 5, 5, fenced=False)
    record(h, 9, 9, fenced=False)
    assert verdict(h, "QC-21", complete=False).verdict is Outcome.UNKNOWN


# ----------------------------------------------------------------------------------------- REG-03


def test_a_registration_that_is_active_at_once_breaks_reg_03() -> None:
    h = HistoryBuilder()
    record(h, 5, 5, fenced=False, incarnation="old")
    record(h, 9, 9, fenced=False, incarnation="new")
    assert verdict(h, "REG-03").violated == 2


def test_an_answer_before_the_entry_breaks_reg_03() -> None:
    h = HistoryBuilder()
    record(h, 5, 5, fenced=True, incarnation="old", process=OTHER)
    answer(h, NEW, "FENCED", request_epoch=-1, incarnation="new")
    record(h, 9, 9, fenced=True, incarnation="new", process=OTHER)
    assert stated(verdict(h, "REG-03"), "process", "client") == (CONTROLLER, NEW)


def test_an_answer_by_a_controller_that_has_the_entry_from_a_snapshot_keeps_reg_03() -> None:
    """It does not report the entries of a snapshot; another controller reported this one."""
    h = HistoryBuilder()
    record(h, 9, 9, fenced=True, incarnation="new", process=OTHER)
    answer(h, NEW, "FENCED", request_epoch=-1, incarnation="new")
    assert verdict(h, "REG-03").verdict is not Outcome.VIOLATED


def test_an_active_entry_taken_over_fenced_keeps_reg_03() -> None:
    h = HistoryBuilder()
    for process in (CONTROLLER, OTHER):
        record(h, 5, 5, fenced=True, incarnation="old", process=process)
        record(h, 6, 6, fenced=False, incarnation="old", process=process)
        record(h, 9, 9, fenced=True, incarnation="new", process=process)
    answer(h, NEW, "FENCED", request_epoch=-1, incarnation="new")
    found = verdict(h, "REG-03")
    assert (found.verdict, found.exercised, found.evidence) == (Outcome.HOLDS, 1, Evidence.PEER)


def test_a_first_registration_does_not_exercise_reg_03() -> None:
    h = HistoryBuilder()
    for process in (CONTROLLER, OTHER):
        record(h, 5, 5, fenced=True, process=process)
    answer(h, OLD, "FENCED", request_epoch=-1)
    assert verdict(h, "REG-03").verdict is Outcome.NOT_EXERCISED


def test_reg_03_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    record(h, 5, 5, fenced=True)
    assert verdict(h, "REG-03", complete=False).verdict is Outcome.UNKNOWN


# ------------------------------------------------------------------------------------------ QC-35


def test_a_refusal_for_a_dead_process_breaks_qc_35() -> None:
    h = HistoryBuilder()
    bounced(h)
    h.add(
        NEW,
        HeartbeatRefused(
            broker_id=1, broker_epoch=-1, error="DUPLICATE_BROKER_REGISTRATION", controller=101
        ),
    )
    found = verdict(h, "QC-35").violations[0]
    assert found.evidence is Evidence.PEER
    assert stated(found, "left_ns") == 2_997_000_000


@pytest.mark.parametrize(
    ("ms", "outcome"), [(LEASE_MS - 4, Outcome.VIOLATED), (LEASE_MS - 3, Outcome.NOT_EXERCISED)]
)
def test_a_refusal_once_the_old_lease_has_ended_does_not_break_qc_35(
    ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    bounced(h)
    h.after(ms)
    refused = HeartbeatRefused(
        broker_id=1, broker_epoch=-1, error="DUPLICATE_BROKER_REGISTRATION", controller=101
    )
    h.add(NEW, refused)
    assert verdict(h, "QC-35").verdict is outcome


DUPLICATE = "DUPLICATE_BROKER_REGISTRATION"


def spawn(h: HistoryBuilder, process: str) -> None:
    body = ProcessSpawned(started=process, slot="broker-1", role="broker", node_id=1, pid=1)
    h.add("harness", body)


def restarted(h: HistoryBuilder, asked: int | None = 0) -> None:
    """A broker that keeps silent about its starts and its lease, is killed and started again.
    `asked`: the start of the lease in its newest heartbeat."""
    spawn(h, OLD)
    if asked is not None:
        body = HeartbeatSent(
            broker_id=1,
            broker_epoch=5,
            controller=101,
            correlation=1,
            target_state="ACTIVE",
            lease_start_ms=asked,
            metadata_offset=0,
        )
        h.add(OLD, body)
    answer(h, OLD, start_ms=0)
    h.add("harness", ProcessExited(ended=OLD, exit_code=-9, signal=9, expected=True))
    spawn(h, NEW)


def refused(h: HistoryBuilder) -> None:
    body = HeartbeatRefused(broker_id=1, broker_epoch=-1, error=DUPLICATE, controller=101)
    h.add(NEW, body)


def test_the_words_of_the_harness_and_the_controller_are_enough_for_qc_35() -> None:
    h = HistoryBuilder()
    restarted(h)
    answer(h, NEW, request_epoch=-1, error=DUPLICATE)
    (broken,) = verdict(h, "QC-35").violations
    # The lease began when its broker asked for it, 4 ms before.
    assert stated(broken, "process", "other", "left_ns") == (NEW, OLD, (LEASE_MS - 4) * MS)


def ask(h: HistoryBuilder, process: str, start_ms: int) -> None:
    body = HeartbeatSent(
        broker_id=1,
        broker_epoch=-1,
        controller=101,
        correlation=1,
        target_state="ACTIVE",
        lease_start_ms=start_ms,
        metadata_offset=0,
    )
    h.add(process, body)


@pytest.mark.parametrize(("ms", "outcome"), [(0, Outcome.HOLDS), (LEASE_MS, Outcome.NOT_EXERCISED)])
def test_a_lease_that_is_answered_before_it_is_taken_exercises_qc_35(
    ms: int, outcome: Outcome
) -> None:
    """The controller tells first that it gave the new process a lease."""
    h = HistoryBuilder()
    restarted(h)
    h.after(ms)
    ask(h, NEW, 4000)
    answer(h, NEW, start_ms=4000)
    grant(h, NEW, start_ms=4000)
    assert verdict(h, "QC-35").verdict is outcome


def test_a_refusal_that_both_sides_tell_breaks_qc_35_once() -> None:
    h = HistoryBuilder()
    restarted(h)
    answer(h, NEW, request_epoch=-1, error=DUPLICATE)
    refused(h)
    assert verdict(h, "QC-35").violated == 1


@pytest.mark.parametrize("asked", [None, 7], ids=["nothing", "something else"])
def test_a_lease_for_which_the_dead_process_had_not_asked_does_not_break_qc_35(
    asked: int | None,
) -> None:
    h = HistoryBuilder()
    restarted(h, asked)
    refused(h)
    assert verdict(h, "QC-35").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(
    ("ms", "outcome"), [(LEASE_MS - 5, Outcome.VIOLATED), (LEASE_MS - 4, Outcome.NOT_EXERCISED)]
)
def test_a_refusal_once_the_lease_that_was_given_has_ended_does_not_break_qc_35(
    ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    restarted(h)
    h.after(ms)
    refused(h)
    assert verdict(h, "QC-35").verdict is outcome


def test_a_process_that_tells_late_that_it_began_is_a_restart_of_none_that_ran_then() -> None:
    h = HistoryBuilder()
    spawn(h, OLD)
    grant(h, OLD)
    spawn(h, NEW)
    h.add("harness", ProcessExited(ended=OLD, exit_code=-9, signal=9, expected=True))
    h.add(NEW, NodeStarted(role="broker", node_id=1, incarnation="new", log_end=0))
    refused(h)
    assert verdict(h, "QC-35").verdict is Outcome.NOT_EXERCISED


def test_an_id_regained_within_the_old_lease_keeps_qc_35() -> None:
    h = HistoryBuilder()
    bounced(h)
    grant(h, NEW, "FENCED", epoch=9)
    found = verdict(h, "QC-35")
    assert (found.verdict, found.evidence) == (Outcome.HOLDS, Evidence.PEER)


def test_an_id_regained_after_the_old_lease_does_not_exercise_qc_35() -> None:
    h = HistoryBuilder()
    bounced(h)
    h.after(LEASE_MS)
    grant(h, NEW, "FENCED", epoch=9)
    assert verdict(h, "QC-35").verdict is Outcome.NOT_EXERCISED


def test_a_refusal_for_a_live_process_does_not_break_qc_35() -> None:
    h = HistoryBuilder()
    h.add(OLD, NodeStarted(role="broker", node_id=1, incarnation="old", log_end=0))
    grant(h, OLD)
    h.add(NEW, NodeStarted(role="broker", node_id=1, incarnation="new", log_end=0))
    h.add(
        NEW,
        HeartbeatRefused(
            broker_id=1, broker_epoch=-1, error="DUPLICATE_BROKER_REGISTRATION", controller=101
        ),
    )
    assert verdict(h, "QC-35").verdict is Outcome.NOT_EXERCISED


def test_qc_35_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    bounced(h)
    assert verdict(h, "QC-35", complete=False).verdict is Outcome.UNKNOWN
