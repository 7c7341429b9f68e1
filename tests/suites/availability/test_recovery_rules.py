"""AVAIL-recovered: the cluster is whole again within a bound of the last healing."""

from __future__ import annotations

import pytest
from tests.suites.availability.availability_histories import (
    CONTROLLER,
    FENCED_MS,
    HARNESS,
    RECOVERED_MS,
    Story,
    began,
    ended,
    recovered,
)
from tests.suites.partition_histories import stated, why

from fencepost import ClusterRecovered, NodeStarted, ProcessExited, Stalled
from fencepost.testing import Outcome
from fencepost_kafka import BrokerDeleted, HeartbeatRefused

LATE_MS = RECOVERED_MS + 500
IN_TIME_MS = RECOVERED_MS - 100


def healed(ms: int, story: Story | None = None) -> Story:
    """Broker 1 is cut off and leaves the ISR; then the cut heals."""
    story = story or Story()
    story.fault("cut-1", "broker-1", "broker-2", directions=("broker-1 -> broker-2",))
    story.partition(2, (2, 3))
    story.after(1_000).heal("cut-1")
    return story.after(ms)


# --------------------------------------------------------------------------- the three histories


def test_an_isr_that_is_not_full_long_after_the_last_healing_is_a_violation() -> None:
    found = recovered(healed(LATE_MS))
    assert (found.verdict, found.violated) == (Outcome.VIOLATED, 1)
    assert stated(found, "after_ns", "partition") == (20_501_000_000, "orders-0")
    assert stated(found, "isr", "replicas", "short") == ((2, 3), (1, 2, 3), ("orders-0",))
    assert found.violations[0].at.process == HARNESS


def test_a_cluster_that_is_whole_in_time_exercises_the_promise() -> None:
    story = healed(IN_TIME_MS)
    story.partition(2, (2, 3, 1))
    found = recovered(story.after(LATE_MS))
    assert (found.verdict, found.exercised) == (Outcome.HOLDS, 1)


@pytest.mark.parametrize(("shrinks_ms", "late"), [(LATE_MS, False), (IN_TIME_MS, True)])
def test_a_cluster_that_was_whole_when_its_bound_ended_may_break_later(
    shrinks_ms: int, late: bool
) -> None:
    """It was whole right after the healing, too soon to have noticed the fault, and nothing was
    told between that and the end of the bound."""
    story = Story()
    story.fault("cut-1", "broker-1", "broker-2", directions=("broker-1 -> broker-2",))
    story.after(1_000).heal("cut-1")
    story.after(shrinks_ms).partition(2, (2, 3))
    assert (recovered(story.after(LATE_MS)).verdict is Outcome.VIOLATED) is late


@pytest.mark.parametrize("process", [HARNESS, "broker-3#1", "controller-2#1"])
def test_a_bound_that_a_stall_ate_is_undecided(process: str) -> None:
    story = healed(LATE_MS)
    story.h.add(process, Stalled(stalled_ns=3_000_000_000))
    assert recovered(story).verdict is Outcome.UNKNOWN


def test_a_stall_before_the_healing_excuses_nothing() -> None:
    story = Story()
    story.after(9_000).h.add(HARNESS, Stalled(stalled_ns=9_000_000_000))
    assert recovered(healed(LATE_MS, story)).verdict is Outcome.VIOLATED


def test_an_incomplete_history_decides_nothing() -> None:
    assert recovered(healed(LATE_MS), complete=False).verdict is Outcome.UNKNOWN


# ------------------------------------------------------------------------------ what is lacking


def test_a_live_broker_that_stays_fenced_is_a_violation() -> None:
    story = Story()
    story.broker(1, fenced=True)
    story.fault("pause-1", "broker-1#1")
    story.after(1_000).heal("pause-1")
    assert stated(recovered(story.after(LATE_MS)), "fenced") == ("broker 1",)


@pytest.mark.parametrize(
    ("process", "named"), [("broker-1#1", True), ("broker-1-duplicate#1", False)]
)
def test_what_a_fenced_broker_is_refused_with_is_named(process: str, named: bool) -> None:
    story = Story()
    story.broker(1, fenced=True)
    story.fault("pause-1", "broker-1#1")
    story.after(1_000).heal("pause-1")
    for error in ("NOT_CONTROLLER", "UNKNOWN_SERVER_ERROR"):
        refused = HeartbeatRefused(broker_id=1, broker_epoch=-1, error=error, controller=-1)
        story.h.add(process, refused)
    violation = recovered(story.after(LATE_MS)).violations[0]
    assert stated(violation, "fenced") == ("broker 1",)
    assert violation.facts.get("error") == ("UNKNOWN_SERVER_ERROR" if named else None)
    last = story.h.events()[-1].ref
    assert violation.because == ((last,) if named else ())


def test_a_fenced_broker_that_was_registered_since_is_not_refused() -> None:
    story = Story()
    story.broker(1, fenced=True)
    story.fault("pause-1", "broker-1#1")
    story.after(1_000).heal("pause-1")
    refused = HeartbeatRefused(broker_id=1, broker_epoch=1, error="NOT_CONTROLLER", controller=-1)
    story.h.add("broker-1#1", refused)
    story.broker(1, fenced=True)
    violation = recovered(story.after(LATE_MS)).violations[0]
    assert stated(violation, "fenced") == ("broker 1",)
    assert "error" not in violation.facts


def test_a_fenced_broker_that_was_deleted_lacks_nothing() -> None:
    story = Story()
    story.broker(1, fenced=True)
    story.h.add(CONTROLLER, BrokerDeleted(offset=story.offset(), broker_id=1))
    story.fault("pause-1", "broker-1#1")
    story.after(1_000).heal("pause-1")
    assert recovered(story.after(LATE_MS)).verdict is Outcome.NOT_EXERCISED


def test_a_partition_without_a_leader_is_a_violation_that_names_the_record_which_took_it() -> None:
    story = Story()
    story.partition(-1)
    taken = story.h.events()[-1].ref
    story.partition(-1, ())
    story.fault("pause-1", "broker-1#1")
    story.after(1_000).heal("pause-1")
    found = recovered(story.after(LATE_MS))
    assert stated(found, "leaderless") == ("orders-0",)
    assert found.violations[0].because == (taken,)


def leaderless(*eligible: tuple[int, ...], moves: bool = False) -> object:
    """The record that left a partition without any candidate, if one is named. It has no leader,
    and its eligible leaders were these in turn."""
    story = Story()
    for some in eligible:
        story.partition(-1, (), eligible=some)
    if moves:
        story.partition(-1, (), replicas=(1, 2, 3, 4), adding=(4,), eligible=eligible[-1])
    story.fault("pause-1", "broker-1#1")
    story.after(1_000).heal("pause-1")
    violation = recovered(story.after(LATE_MS)).violations[0]
    assert stated(violation, "leaderless") == ("orders-0",)
    return violation.facts.get("cleared_at")


def test_a_record_that_left_a_partition_without_any_candidate_is_named() -> None:
    assert leaderless((2, 3), ()) == 6


@pytest.mark.parametrize("eligible", [[(2,)], [()], [(2,), (), (3,)]])
def test_a_partition_that_has_candidates_or_never_had_any_names_no_record(
    eligible: list[tuple[int, ...]],
) -> None:
    assert leaderless(*eligible) is None


def test_a_partition_that_moves_needs_a_leader_all_the_same() -> None:
    assert leaderless((2, 3), (), moves=True) == 6
    assert leaderless((2, 3), moves=True) is None


@pytest.mark.parametrize(("wiped", "excused"), [(1, True), (2, False)])
def test_a_partition_whose_last_disk_was_lost_need_not_have_a_leader(
    wiped: int, excused: bool
) -> None:
    """Broker 3 is eligible by the record, but a reassignment has taken it from the replicas."""
    story = Story()
    story.partition(-1, (), replicas=(1,), eligible=(3, 1))
    story.fault("wipe_disk-1", f"broker-{wiped}#1")
    story.after(1_000).heal("wipe_disk-1")
    story.after(1_000).fault("pause-2", "broker-2#1")
    story.after(1_000).heal("pause-2")
    found = recovered(story.after(LATE_MS))
    assert (found.violated, found.verdict is Outcome.VIOLATED) == (not excused, not excused)


def test_a_partition_that_has_all_of_it_again_needs_a_leader_again() -> None:
    story = Story()
    story.partition(-1, (), replicas=(1,), eligible=(1,))
    story.fault("wipe_disk-1", "broker-1#1")
    story.die("broker-1")
    story.after(1_000).spawn("broker-1")
    story.heal("wipe_disk-1")
    story.partition(2, (2,), replicas=(2, 1))
    story.partition(2, (2, 1), replicas=(2, 1))
    story.partition(1, (1,), replicas=(1,))
    story.fault("pause-2", "broker-2#1")
    story.after(1_000).partition(-1, (), replicas=(1,), eligible=(1,))
    story.heal("pause-2")
    assert recovered(story.after(LATE_MS)).verdict is Outcome.VIOLATED


def test_a_recovery_beside_a_partition_whose_last_disk_was_lost_is_excused_by_name() -> None:
    story = Story()
    story.partition(-1, (), replicas=(1,), eligible=(3, 1))
    story.fault("wipe_disk-1", "broker-1#1")
    story.partition(2, (2, 3), topic="payments")
    story.after(1_000).heal("wipe_disk-1")
    story.after(1_000).partition(2, (2, 3, 1), topic="payments")
    found = recovered(story.after(LATE_MS))
    assert why(found, "partition", "isr", "beside") == ("orders-0", (), ("broker 1",))


def test_the_order_of_replicas_does_not_matter() -> None:
    story = healed(IN_TIME_MS)
    story.partition(2, (3, 1, 2))
    assert recovered(story.after(LATE_MS)).verdict is Outcome.HOLDS


def test_a_partition_that_moves_is_not_judged() -> None:
    story = healed(1_000)
    story.partition(2, (2, 3), replicas=(1, 2, 3, 4), adding=(4,))
    assert recovered(story.after(LATE_MS)).verdict is Outcome.HOLDS


@pytest.mark.parametrize("how", ["delete", "mark"])
def test_a_deleted_topic_is_not_judged(how: str) -> None:
    story = healed(1_000)
    story.delete() if how == "delete" else story.mark()
    assert recovered(story.after(LATE_MS)).verdict is Outcome.HOLDS


def test_a_topic_that_was_made_again_is_judged() -> None:
    story = Story()
    story.mark()
    assert recovered(healed(LATE_MS, story)).verdict is Outcome.VIOLATED


def test_an_older_record_changes_nothing() -> None:
    story = healed(IN_TIME_MS)
    record = next(e.body for e in story.h.events() if e.kind == "metadata.partition")
    story.h.add("broker-2#1", record)
    assert recovered(story.after(LATE_MS)).verdict is Outcome.VIOLATED


def test_what_breaks_again_after_it_was_whole_is_another_matter() -> None:
    story = healed(FENCED_MS)
    story.partition(2, (2, 3, 1))
    story.partition(2, (2, 3))
    assert recovered(story.after(LATE_MS)).verdict is Outcome.HOLDS


def test_a_cluster_that_stayed_whole_exercises_nothing() -> None:
    story = Story()
    story.fault("slow-1", "broker-1", "broker-2", directions=("broker-1 -> broker-2",))
    story.after(1_000).heal("slow-1")
    assert recovered(story.after(LATE_MS)).verdict is Outcome.NOT_EXERCISED


def test_a_cluster_that_became_whole_before_the_healing_exercises_nothing_later() -> None:
    story = healed(1_000)
    story.partition(2, (2, 3, 1))
    story.fault("slow-2", "broker-1", "broker-2", directions=("broker-1 -> broker-2",))
    story.after(1_000).heal("slow-2")
    assert recovered(story.after(LATE_MS)).exercised == 1


# ----------------------------------------------------------------------------- when it is quiet


def test_another_fault_starts_the_bound_anew() -> None:
    story = healed(IN_TIME_MS)
    story.fault("slow-2", "broker-1", "broker-2", directions=("broker-1 -> broker-2",))
    story.heal("slow-2")
    story.after(IN_TIME_MS).partition(2, (2, 3, 1))
    assert recovered(story).verdict is Outcome.HOLDS


def test_what_was_late_when_a_fault_began_stays_so() -> None:
    story = healed(LATE_MS + 2_000)
    story.fault("cut-2", "broker-1", "broker-2", directions=("broker-1 -> broker-2",), ago_ms=2_000)
    assert recovered(story).verdict is Outcome.VIOLATED


def test_a_fault_that_began_in_time_starts_the_bound_anew() -> None:
    story = healed(LATE_MS)
    story.fault("cut-2", "broker-1", "broker-2", directions=("broker-1 -> broker-2",), ago_ms=2_000)
    assert recovered(story.after(LATE_MS)).verdict is Outcome.NOT_EXERCISED


def test_while_one_of_two_faults_acts_nothing_is_owed() -> None:
    story = Story()
    story.fault("pause-2", "broker-3#1")
    assert recovered(healed(LATE_MS, story)).verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize("slot", ["broker-3", "controller-2"])
def test_while_a_node_is_down_nothing_is_owed(slot: str) -> None:
    story = Story()
    story.die(slot)
    healed(LATE_MS, story)
    assert recovered(story).verdict is Outcome.NOT_EXERCISED
    story.spawn(slot)
    assert recovered(story.after(IN_TIME_MS)).verdict is Outcome.NOT_EXERCISED
    assert recovered(story.after(LATE_MS)).verdict is Outcome.VIOLATED


def four() -> Story:
    """A cluster of four brokers, of which the last one has no partition."""
    story = Story()
    story.spawn("broker-4")
    story.broker(4)
    return story


@pytest.mark.parametrize("deleted", [True, False])
def test_a_broker_that_was_removed_for_good_is_not_awaited(deleted: bool) -> None:
    story = four()
    story.remove(4)
    if deleted:
        story.h.add(CONTROLLER, BrokerDeleted(offset=story.offset(), broker_id=4))
    assert recovered(healed(LATE_MS, story)).verdict is Outcome.VIOLATED


def crash(story: Story, slot: str = "broker-3") -> Story:
    """A process ends by itself."""
    process = f"{slot}#{story.number(slot)}"
    story.h.add(HARNESS, ProcessExited(ended=process, exit_code=1, signal=0, expected=False))
    return story


def fenced_since_a_cut() -> Story:
    story = Story()
    cut = ("broker-2 -> controller-1", "controller-1 -> broker-2")
    story.fault("isolate-1", "broker-2", "controller-1", directions=cut)
    story.after(9_000).broker(2, fenced=True)
    story.partition(1, (1, 3))
    story.heal("isolate-1")
    return story.after(500)


@pytest.mark.parametrize("times", [1, 40])
def test_a_broker_that_ends_by_itself_excuses_its_own_places_only(times: int) -> None:
    story = fenced_since_a_cut()
    for number in range(times):
        crash(story)
        story.after(14_000)
        if number < times - 1:
            story.spawn("broker-3")
            story.after(1_000)
    story.partition(1, (1,))
    found = recovered(story.after(LATE_MS))
    assert stated(found, "fenced", "outside") == (("broker 2",), ("broker 2",))


def test_a_broker_that_was_started_again_after_its_crash_has_the_whole_time() -> None:
    story = crash(healed(1_000))
    story.after(10_000).spawn("broker-3")
    story.partition(2, (1, 2))
    assert recovered(story.after(RECOVERED_MS - 100)).verdict is Outcome.NOT_EXERCISED
    assert stated(recovered(story.after(600)), "outside") == ("broker 3",)


def test_a_controller_that_ends_by_itself_begins_the_time_anew() -> None:
    story = crash(healed(RECOVERED_MS - 500), "controller-2")
    assert recovered(story.after(LATE_MS)).verdict is Outcome.NOT_EXERCISED


def test_a_broker_that_was_removed_and_added_again_is_awaited_when_it_is_down() -> None:
    story = four()
    story.remove(4)
    story.spawn("broker-4")
    story.die("broker-4")
    assert recovered(healed(LATE_MS, story)).verdict is Outcome.NOT_EXERCISED
    story.spawn("broker-4")
    assert recovered(story.after(LATE_MS)).verdict is Outcome.VIOLATED


def test_a_replica_of_a_broker_that_was_removed_is_excused_and_no_other_one() -> None:
    """It may have been placed there while the broker was asked to stop."""
    story = four()
    story.remove(4)
    healed(100, story)
    story.partition(2, (2, 3), replicas=(2, 3, 4))
    found = recovered(story.after(LATE_MS))
    assert (found.verdict, found.excused) == (Outcome.NOT_EXERCISED, 1)
    story.partition(2, (2,), replicas=(2, 3, 4))
    story.fault("pause-2", "broker-3#1")
    story.heal("pause-2")
    assert recovered(story.after(LATE_MS)).verdict is Outcome.VIOLATED


def test_a_partition_whose_last_member_was_removed_has_no_leader_and_is_excused() -> None:
    story = four()
    story.remove(4)
    healed(100, story)
    story.partition(-1, (4,), replicas=(2, 3, 4))
    assert recovered(story.after(LATE_MS)).excused == 1
    story.partition(-1, (3,), replicas=(2, 3, 4))
    story.fault("pause-2", "broker-3#1")
    story.heal("pause-2")
    assert recovered(story.after(LATE_MS)).verdict is Outcome.VIOLATED


def test_while_a_duplicate_runs_nothing_is_owed() -> None:
    story = Story()
    story.spawn("broker-3-duplicate")
    healed(LATE_MS, story)
    assert recovered(story).verdict is Outcome.NOT_EXERCISED
    story.die("broker-3-duplicate")
    assert recovered(story.after(LATE_MS)).verdict is Outcome.VIOLATED


def test_the_end_of_a_client_starts_nothing_anew() -> None:
    story = healed(IN_TIME_MS)
    story.h.add(HARNESS, ended("clients/producer#1"))
    assert recovered(story.after(LATE_MS - IN_TIME_MS)).verdict is Outcome.VIOLATED


def test_a_nodes_own_word_starts_nothing_anew() -> None:
    story = healed(IN_TIME_MS)
    story.h.add("controller-2#1", NodeStarted(role="controller", node_id=102))
    story.h.add("broker-2#1", began(2))
    assert recovered(story.after(LATE_MS - IN_TIME_MS)).verdict is Outcome.VIOLATED


def test_a_cluster_that_starts_has_not_been_healed() -> None:
    story = Story()
    story.partition(2, (2, 3))
    assert recovered(story.after(LATE_MS)).verdict is Outcome.NOT_EXERCISED


def test_without_stated_bounds_nothing_is_judged() -> None:
    story = healed(LATE_MS, Story(stated=False))
    assert recovered(story).verdict is Outcome.NOT_EXERCISED
    story.partition(2, (2, 3, 1))
    assert recovered(story).verdict is Outcome.NOT_EXERCISED


def test_what_the_end_of_the_run_stops_is_not_judged() -> None:
    story = healed(1_000)
    story.phase("end")
    assert recovered(story.after(LATE_MS)).verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize("phase", ["read", "end"])
def test_what_was_late_when_a_phase_began_is_judged(phase: str) -> None:
    story = healed(LATE_MS)
    story.phase(phase)
    assert recovered(story).verdict is Outcome.VIOLATED


# ------------------------------------------------------------------------- the harness's own word


def reported(*missing: str) -> ClusterRecovered:
    return ClusterRecovered(
        recovered=not missing, took_ms=RECOVERED_MS, bound_ms=RECOVERED_MS, missing=missing
    )


def test_a_cluster_that_the_harness_did_not_see_recover_breaks_the_promise() -> None:
    story = healed(1_000)
    story.partition(2, (2, 3, 1))
    story.h.add(HARNESS, reported("broker-2 is FENCED"))
    found = recovered(story)
    assert (found.verdict, found.violated) == (Outcome.VIOLATED, 1)
    assert stated(found, "bound_ms", "missing") == (20_000, "broker-2 is FENCED")


def test_a_report_of_a_partition_without_any_candidate_names_the_record_that_left_it_so() -> None:
    story = Story()
    for some in ((2, 3), ()):
        story.partition(-1, (), eligible=some)
    story.fault("pause-1", "broker-1#1")
    story.after(1_000).heal("pause-1")
    story.h.add(HARNESS, reported("orders-0 has no leader"))
    (found,) = recovered(story).violations
    assert stated(found, "bound_ms", "partition", "cleared_at") == (20_000, "orders-0", 6)
    assert len(found.because) == 2, "the healing, and the record"


def test_both_words_about_one_recovery_are_one_violation() -> None:
    story = healed(IN_TIME_MS)
    story.h.add(HARNESS, reported("broker-2 is FENCED"))
    found = recovered(story.after(LATE_MS))
    assert found.violated == 1
    assert found.violations[0].because


def test_a_late_report_of_what_the_metadata_has_shown_is_no_second_violation() -> None:
    story = healed(LATE_MS)
    story.broker(1)  # any event after the bound
    story.h.add(HARNESS, reported("broker-2 is FENCED"))
    assert recovered(story).violated == 1


def test_the_harness_acquits_no_cluster_that_is_not_whole() -> None:
    story = healed(1_000)
    story.h.add(HARNESS, reported())
    assert recovered(story.after(LATE_MS)).verdict is Outcome.VIOLATED


def test_a_report_after_a_stall_is_undecided() -> None:
    story = Story()
    story.h.after(RECOVERED_MS).add(HARNESS, Stalled(stalled_ns=5_000_000_000))
    story.h.add(HARNESS, reported("broker-2 is FENCED"))
    assert recovered(story).verdict is Outcome.UNKNOWN


@pytest.mark.parametrize(("more_ms", "expected"), [(0, "holds"), (1, "violated")])
def test_the_bound_belongs_to_the_time_allowed(more_ms: int, expected: str) -> None:
    story = healed(RECOVERED_MS - 1 + more_ms)
    story.partition(2, (2, 3, 1))
    assert recovered(story).verdict == expected


def test_a_cluster_that_is_whole_while_a_fault_acts_has_not_recovered_from_it() -> None:
    story = Story()
    story.fault("pause-2", "broker-3#1")
    healed(1_000, story)
    story.partition(2, (2, 3, 1))
    assert recovered(story).verdict is Outcome.NOT_EXERCISED
    story.heal("pause-2")
    assert recovered(story).exercised == 1


def test_a_stall_before_the_bound_of_a_report_excuses_nothing() -> None:
    story = Story()
    story.after(9_000).h.add(HARNESS, Stalled(stalled_ns=9_000_000_000))
    story.after(RECOVERED_MS).h.add(HARNESS, reported("broker-2 is FENCED"))
    assert recovered(story).verdict is Outcome.VIOLATED
