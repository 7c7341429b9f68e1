"""AVAIL-fenced: a dead broker leads nothing and is fenced within a bound."""

from __future__ import annotations

import pytest
from tests.suites.availability.availability_histories import (
    CONTROLLER,
    FENCED_MS,
    HARNESS,
    Story,
    began,
    fenced,
)
from tests.suites.partition_histories import stated, why

from fencepost import NodeStarted, ProcessExited, Stalled
from fencepost.testing import Outcome
from fencepost_kafka import BrokerDeleted, BrokersListed

LATE_MS = FENCED_MS + 500


def dead(ms: int, story: Story | None = None) -> Story:
    """Broker 1, which leads `orders-0`, dies."""
    story = story or Story()
    story.die("broker-1")
    story.fault("kill-1", "broker-1#1")
    return story.after(ms)


def fence(story: Story) -> Story:
    story.broker(1, fenced=True)
    story.partition(2, (2, 3))
    return story


# --------------------------------------------------------------------------- the three histories


def test_a_dead_broker_that_stays_unfenced_and_leads_is_a_violation() -> None:
    found = fenced(fence(dead(LATE_MS)))
    assert (found.verdict, found.violated, found.exercised) == (Outcome.VIOLATED, 1, 0)
    assert stated(found, "after_ns", "calm_ns") == (8_502_000_000, 8_502_000_000)
    assert stated(found, "broker", "unfenced", "places") == ("broker 1", True, ("orders-0",))
    assert found.violations[0].because


def test_a_violation_names_the_election_since_which_the_bound_counts() -> None:
    story = Story()
    for controller in (1, 2):
        story.die(f"controller-{controller}")
    dead(1_000, story)
    death = next(e.ref for e in reversed(story.h.events()) if isinstance(e.body, ProcessExited))
    story.spawn("controller-2")
    story.elect(2)
    election = story.h.events()[-1].ref
    story.after(30_000)
    (broken,) = fenced(fence(story)).violations
    assert broken.because == (death, election)


def test_a_dead_broker_that_is_fenced_in_time_exercises_the_promise() -> None:
    found = fenced(fence(dead(FENCED_MS - 100)))
    assert (found.verdict, found.exercised) == (Outcome.HOLDS, 1)


@pytest.mark.parametrize("process", [HARNESS, CONTROLLER])
def test_a_bound_that_a_stall_ate_is_undecided(process: str) -> None:
    story = dead(LATE_MS)
    story.h.add(process, Stalled(stalled_ns=2_000_000_000))
    assert fenced(fence(story)).verdict is Outcome.UNKNOWN


def test_an_incomplete_history_decides_nothing() -> None:
    assert fenced(fence(dead(LATE_MS)), complete=False).verdict is Outcome.UNKNOWN


def test_a_stall_of_a_tenth_of_the_bound_decides_nothing_else() -> None:
    story = dead(LATE_MS)
    story.h.add(HARNESS, Stalled(stalled_ns=FENCED_MS * 100_000))
    assert fenced(fence(story)).verdict is Outcome.VIOLATED


# ---------------------------------------------------------------------- what a dead broker still is


def test_a_fenced_broker_that_goes_on_leading_is_a_violation() -> None:
    story = dead(1_000)
    story.broker(1, fenced=True)
    found = fenced(story.after(LATE_MS))
    assert stated(found, "broker", "unfenced", "places") == ("broker 1", False, ("orders-0",))


@pytest.mark.parametrize("again", [True, False])
def test_a_dead_broker_that_is_unfenced_again_and_stays_so_is_a_violation(again: bool) -> None:
    story = fence(dead(1_000))
    story.after(1_000).broker(1, fenced=False)
    if not again:
        story.after(1_000).broker(1, fenced=True)
    found = fenced(story.after(LATE_MS))
    assert found.verdict is (Outcome.VIOLATED if again else Outcome.HOLDS)


def test_a_broker_that_leads_nothing_and_is_not_fenced_is_a_violation() -> None:
    story = dead(1_000)
    story.partition(2, (2, 3))
    found = fenced(story.after(LATE_MS))
    assert stated(found, "broker", "unfenced", "places") == ("broker 1", True, ())


def test_a_partition_without_any_leader_is_not_led_by_the_dead_one() -> None:
    story = dead(1_000)
    story.broker(1, fenced=True)
    story.partition(-1, (1,))
    assert fenced(story.after(LATE_MS)).verdict is Outcome.HOLDS


def test_a_dead_broker_that_is_elected_again_is_a_violation() -> None:
    story = fence(dead(1_000))
    story.after(LATE_MS).partition(1, (2, 3, 1))
    found = fenced(story.after(10))
    assert (found.verdict, found.violated) == (Outcome.VIOLATED, 1)


def test_a_dead_broker_that_was_out_of_the_cluster_before_may_not_be_elected() -> None:
    story = Story()
    fence(story)
    dead(LATE_MS, story)
    story.partition(1, (2, 3, 1))
    assert fenced(story.after(10)).verdict is Outcome.VIOLATED


def test_a_broker_that_had_left_the_cluster_before_its_end_exercises_nothing() -> None:
    story = fence(Story())
    dead(LATE_MS, story)
    assert fenced(story).verdict is Outcome.NOT_EXERCISED


def test_one_death_is_one_violation() -> None:
    story = dead(LATE_MS)
    for _ in range(3):
        story.partition(1, (1, 2))
        story.after(LATE_MS)
    assert fenced(story).violated == 1


def test_each_death_is_judged_by_itself() -> None:
    story = dead(LATE_MS)
    story.spawn("broker-1")
    story.broker(1, incarnation="j")
    dead(LATE_MS, story)
    assert fenced(fence(story)).violated == 2


def test_a_broker_that_came_back_owes_nothing_once_it_is_registered() -> None:
    story = dead(1_000)
    story.spawn("broker-1")
    story.broker(1, incarnation="j")
    assert fenced(story.after(LATE_MS)).verdict is Outcome.NOT_EXERCISED


def test_a_broker_that_came_back_too_late_was_left_unfenced() -> None:
    story = dead(LATE_MS)
    story.spawn("broker-1")
    assert fenced(story).verdict is Outcome.VIOLATED


def test_an_id_of_which_another_process_lives_is_not_dead() -> None:
    story = Story()
    story.spawn("broker-1-duplicate")
    dead(LATE_MS, story)
    assert fenced(story).verdict is Outcome.NOT_EXERCISED
    story.die("broker-1-duplicate")
    assert fenced(story.after(LATE_MS)).verdict is Outcome.VIOLATED


def test_a_deleted_broker_is_not_in_the_cluster() -> None:
    story = dead(1_000)
    story.partition(2, (2, 3))
    story.h.add(CONTROLLER, BrokerDeleted(offset=story.offset(), broker_id=1))
    assert fenced(story.after(LATE_MS)).verdict is Outcome.HOLDS


@pytest.mark.parametrize(
    ("live", "later", "outcome"),
    [((2, 3), 1, Outcome.HOLDS), ((1, 2, 3), 1, Outcome.VIOLATED), ((2, 3), -9, Outcome.VIOLATED)],
    ids=["not in the list", "still in the list", "an older list"],
)
def test_a_broker_that_a_new_process_does_not_find_registered_is_out(
    live: tuple[int, ...], later: int, outcome: Outcome
) -> None:
    """No process may be left that had seen the registration."""
    story = dead(1_000)
    story.partition(2, (2, 3))
    story.h.add("broker-2#2", BrokersListed(offset=story.offset() + later, live=live))
    assert fenced(story.after(LATE_MS)).verdict is outcome


@pytest.mark.parametrize("how", ["delete", "mark"])
def test_a_deleted_topic_is_led_by_no_broker(how: str) -> None:
    story = dead(1_000)
    story.broker(1, fenced=True)
    story.delete() if how == "delete" else story.mark()
    assert fenced(story.after(LATE_MS)).verdict is Outcome.HOLDS


def test_a_topic_that_was_made_again_counts() -> None:
    story = Story()
    story.mark()
    story.partition(1, (1, 2, 3))
    dead(1_000, story).broker(1, fenced=True)
    assert fenced(story.after(LATE_MS)).verdict is Outcome.VIOLATED


def test_an_older_record_changes_nothing() -> None:
    story = fence(dead(1_000))
    early = Story()
    record = next(e.body for e in early.h.events() if e.kind == "metadata.partition")
    story.h.add("broker-2#1", record)
    assert fenced(story.after(LATE_MS)).verdict is Outcome.HOLDS


def test_a_controller_over_zookeeper_declares_a_broker_dead() -> None:
    story = Story(controllers=0)
    story.spawn("zookeeper-1")
    story.declare(1, "Active")
    dead(1_000, story)
    story.partition(2, (2, 3))
    assert fenced(story.after(LATE_MS)).verdict is Outcome.VIOLATED
    story = Story(controllers=0)
    story.spawn("zookeeper-1")
    story.declare(1, "Active")
    dead(1_000, story)
    story.partition(2, (2, 3))
    story.declare(1, "Inactive")
    assert fenced(story.after(LATE_MS)).verdict is Outcome.HOLDS


# ------------------------------------------------------------------------- what starts it anew


def test_a_chain_of_controllers_that_no_fault_explains_is_no_excuse() -> None:
    story = dead(3_000)
    for number in (1, 2, 3, 1):
        story.h.add(f"controller-{number}#1", NodeStarted(role="controller", node_id=100 + number))
        story.after(FENCED_MS // 4)
    assert fenced(fence(story)).verdict is Outcome.VIOLATED


def test_the_end_of_a_controller_starts_the_bound_anew_and_is_the_excuse() -> None:
    story = dead(FENCED_MS - 1_000)
    story.die("controller-1")
    fence(story.after(FENCED_MS - 1_000))
    found = fenced(story)
    assert (found.verdict, found.excused) == (Outcome.NOT_EXERCISED, 1)
    assert why(found, "process") == "controller-1#1"


def test_after_the_end_of_a_controller_the_bound_is_the_same() -> None:
    story = dead(FENCED_MS - 1_000)
    story.die("controller-1")
    assert fenced(fence(story.after(LATE_MS))).verdict is Outcome.VIOLATED


def test_without_a_majority_of_controllers_nothing_is_owed() -> None:
    story = dead(1_000)
    story.die("controller-1")
    story.die("controller-2")
    found = fenced(fence(story.after(2 * LATE_MS)))
    assert (found.verdict, found.excused) == (Outcome.NOT_EXERCISED, 1)
    assert why(found, "running", "voting", "role") == (1, 3, "controller")


def test_a_broker_that_dies_without_a_majority_of_controllers_is_owed_nothing() -> None:
    story = Story()
    story.die("controller-1")
    story.die("controller-2")
    found = fenced(dead(LATE_MS, story))
    assert (found.verdict, found.excused) == (Outcome.NOT_EXERCISED, 1)


def test_once_the_majority_is_back_the_bound_begins() -> None:
    story = Story()
    story.die("controller-1")
    story.die("controller-2")
    dead(LATE_MS, story).spawn("controller-1")
    assert fenced(fence(story.after(FENCED_MS - 100))).verdict is Outcome.NOT_EXERCISED
    story = Story()
    story.die("controller-1")
    story.die("controller-2")
    dead(LATE_MS, story).spawn("controller-1")
    assert fenced(fence(story.after(LATE_MS))).verdict is Outcome.VIOLATED


def test_a_fault_upon_the_link_of_clients_and_controllers_hides_what_is_decided() -> None:
    story = dead(1_000)
    story.fault("cut-2", "clients", "controller-1", directions=("controller-1 -> clients",))
    found = fenced(story.after(2 * LATE_MS))
    assert (found.verdict, found.excused) == (Outcome.NOT_EXERCISED, 1)
    assert why(found, "fault", "process", "other") == ("cut-2", "controller-1", "clients")


@pytest.mark.parametrize(
    "directions", [(), ("broker-2 -> controller-1",), ("broker-2 -> broker-3",)]
)
def test_a_fault_upon_other_brokers_is_no_excuse(directions: tuple[str, ...]) -> None:
    story = dead(1_000)
    story.fault("fault-2", "broker-2#1", directions=directions)
    assert fenced(fence(story.after(LATE_MS))).verdict is Outcome.VIOLATED


def test_the_healing_of_such_a_fault_is_no_excuse_either() -> None:
    story = dead(1_000)
    story.fault("fault-2", "broker-2#1")
    story.after(FENCED_MS - 2_000).heal("fault-2")
    assert fenced(fence(story.after(2_000))).verdict is Outcome.VIOLATED


def test_the_healing_of_a_fault_upon_a_controller_starts_the_bound_anew() -> None:
    story = dead(1_000)
    story.fault("pause-2", "controller-1#1")
    story.after(1_000).heal("pause-2")
    assert fenced(fence(story.after(FENCED_MS - 100))).verdict is Outcome.NOT_EXERCISED


def test_what_was_late_when_a_fault_began_stays_so() -> None:
    story = dead(LATE_MS + 2_000)
    story.fault("pause-2", "controller-1#1", ago_ms=2_000)
    assert fenced(fence(story)).verdict is Outcome.VIOLATED


def test_what_was_not_yet_late_when_a_fault_began_is_excused() -> None:
    story = dead(LATE_MS)
    story.fault("pause-2", "controller-1#1", ago_ms=2_000)
    assert fenced(fence(story)).verdict is Outcome.NOT_EXERCISED


def test_an_excuse_is_printed_once() -> None:
    story = dead(1_000)
    story.fault("pause-2", "controller-1#1")
    story.after(LATE_MS)
    for _ in range(3):
        story.partition(1, (1, 2))
    assert fenced(story).excused == 1


def test_over_zookeeper_a_fault_upon_the_controller_is_the_excuse() -> None:
    story = Story(controllers=0)
    story.spawn("zookeeper-1")
    story.h.add("broker-2#1", began(2))
    dead(1_000, story).fault("pause-2", "broker-2#1")
    found = fenced(fence(story.after(LATE_MS)))
    assert (found.verdict, found.excused) == (Outcome.NOT_EXERCISED, 1)


@pytest.mark.parametrize(
    ("paused", "expected"),
    [((2, 3), (Outcome.NOT_EXERCISED, 1)), ((2,), (Outcome.VIOLATED, 0))],
    ids=["every other broker", "one other broker"],
)
def test_over_zookeeper_a_broker_must_be_able_to_succeed_a_dead_controller(
    paused: tuple[int, ...], expected: tuple[Outcome, int]
) -> None:
    story = Story(controllers=0)
    story.spawn("zookeeper-1")
    story.h.add("broker-1#1", began(1))
    dead(1_000, story)
    for number in paused:
        story.fault(f"pause-{number}", f"broker-{number}#1")
    found = fenced(fence(story.after(LATE_MS)))
    assert (found.verdict, found.excused) == expected


def test_over_zookeeper_nothing_is_owed_while_no_broker_runs() -> None:
    story = Story(controllers=0)
    story.spawn("zookeeper-1")
    story.h.add("broker-1#1", began(1))
    dead(1_000, story)
    story.die("broker-2")
    story.die("broker-3")
    assert fenced(fence(story.after(LATE_MS))).verdict is Outcome.NOT_EXERCISED


WITHOUT_ZOOKEEPER = ("broker-{0} -> zookeeper-1", "zookeeper-1 -> broker-{0}")


@pytest.mark.parametrize(
    ("cut", "expected"),
    [((2, 3), (Outcome.NOT_EXERCISED, 1)), ((2,), (Outcome.VIOLATED, 0))],
    ids=["every other broker", "one other broker"],
)
def test_without_a_controller_a_broker_must_be_able_to_read_of_the_death(
    cut: tuple[int, ...], expected: tuple[Outcome, int]
) -> None:
    story = Story(controllers=0)
    story.spawn("zookeeper-1")
    dead(1_000, story)
    for number in cut:
        directions = tuple(one.format(number) for one in WITHOUT_ZOOKEEPER)
        story.fault(f"cut-{number}", f"broker-{number}", "zookeeper-1", directions=directions)
    found = fenced(fence(story.after(LATE_MS)))
    assert (found.verdict, found.excused) == expected


def test_without_a_controller_the_bound_begins_once_a_broker_can_read_of_the_death() -> None:
    story = Story(controllers=0)
    story.spawn("zookeeper-1")
    dead(1_000, story)
    for number in (2, 3):
        story.fault(f"pause-{number}", f"broker-{number}#1")
    story.after(LATE_MS).heal("pause-2")
    assert fenced(fence(story.after(LATE_MS))).verdict is Outcome.VIOLATED


# --------------------------------------------------------------------------------- what is judged


def test_without_stated_bounds_nothing_is_judged() -> None:
    story = dead(LATE_MS, Story(stated=False))
    assert fenced(fence(story)).verdict is Outcome.NOT_EXERCISED


def test_what_the_end_of_the_run_stops_is_not_judged() -> None:
    story = Story()
    story.phase("end")
    assert fenced(dead(LATE_MS, story)).verdict is Outcome.NOT_EXERCISED


def test_other_phases_end_nothing() -> None:
    story = dead(1_000)
    story.phase("drain")
    assert fenced(story.after(LATE_MS)).verdict is Outcome.VIOLATED


def test_what_was_late_when_the_end_began_is_judged() -> None:
    story = dead(LATE_MS)
    story.phase("end")
    assert fenced(story).verdict is Outcome.VIOLATED


def test_a_run_that_is_cut_short_by_nothing_is_judged_to_its_last_event() -> None:
    assert fenced(dead(LATE_MS)).verdict is Outcome.VIOLATED
    assert fenced(dead(FENCED_MS - 100)).verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------- to the millisecond


@pytest.mark.parametrize(("more_ms", "expected"), [(0, "holds"), (1, "violated")])
def test_the_bound_belongs_to_the_time_allowed(more_ms: int, expected: str) -> None:
    story = Story()
    story.broker(1, fenced=True)
    story.die("broker-1")
    story.after(FENCED_MS - 1 + more_ms).partition(2, (2, 3))
    assert fenced(story).verdict == expected


@pytest.mark.parametrize(("more_ms", "expected"), [(0, "not-exercised"), (1, "violated")])
def test_so_it_does_after_a_disturbance(more_ms: int, expected: str) -> None:
    story = dead(1_000)
    story.broker(1, fenced=True)
    story.die("controller-1")
    story.after(FENCED_MS - 1 + more_ms).partition(2, (2, 3))
    assert fenced(story).verdict == expected


def test_within_the_bound_there_is_nothing_to_excuse() -> None:
    story = Story()
    story.broker(1, fenced=True)
    story.die("broker-1")
    story.die("controller-1")
    story.after(FENCED_MS - 2).partition(2, (2, 3))
    assert (fenced(story).exercised, fenced(story).excused) == (1, 0)


@pytest.mark.parametrize(("stays_ms", "violated"), [(FENCED_MS, 0), (FENCED_MS + 1, 1)])
@pytest.mark.parametrize("was_fenced", [False, True])
def test_a_dead_broker_that_is_unfenced_again_is_fenced_within_the_bound_of_that(
    was_fenced: bool, stays_ms: int, violated: int
) -> None:
    """A heartbeat was under way when it died: after it was fenced, or while it registered."""
    story = Story()
    story.partition(2)
    if was_fenced:
        story.broker(1, fenced=True)
    story.die("broker-1")
    if not was_fenced:
        story.after(3_000).broker(1, fenced=True)
    story.after(500).broker(1)
    story.after(stays_ms - 1).broker(1, fenced=True)
    assert fenced(story).violated == violated


def test_it_has_that_time_once() -> None:
    story = Story()
    story.partition(2)
    story.die("broker-1")
    for _ in range(3):
        story.after(3_000).broker(1, fenced=True)
        story.after(500).broker(1)
    story.after(FENCED_MS - 3_000)
    assert fenced(story).violated == 1
