"""AVAIL-stopped: a node that is asked to end does so in time."""

from __future__ import annotations

import pytest
from tests.suites.availability.availability_histories import HARNESS, Story, ended, stopped
from tests.suites.partition_histories import stated, why

from fencepost import Stalled
from fencepost.testing import Outcome, judge
from fencepost_plugins.stopping import EndsWhenAsked, fencepost_clauses

BOUND_MS = 20_000
BROKER = "broker-1#1"


def asked(ms: int, slot: str = "broker-1") -> Story:
    """A story in which a node has been asked to end so long ago."""
    story = Story()
    story.ask_to_end(slot)
    return story.after(ms - 1)


def test_a_node_that_ends_in_time_exercises_the_promise() -> None:
    story = asked(BOUND_MS)
    story.h.add(HARNESS, ended(BROKER))
    found = stopped(story)
    assert (found.verdict, found.exercised) == (Outcome.HOLDS, 1)


@pytest.mark.parametrize("slot", ["broker-1", "controller-2"])
def test_a_node_that_hangs_breaks_it_though_it_is_killed_at_last(slot: str) -> None:
    story = asked(79_000, slot)
    story.die(slot)
    found = stopped(story)
    assert found.verdict is Outcome.VIOLATED
    assert stated(found, "process", "signal") == (f"{slot}#1", "SIGTERM")
    assert stated(found, "after_ns", "calm_ns") == (79_000_000_000, 79_000_000_000)


@pytest.mark.parametrize(("more_ms", "violated"), [(0, 0), (1, 1)])
def test_the_bound_belongs_to_the_time_allowed(more_ms: int, violated: int) -> None:
    story = asked(BOUND_MS + more_ms)
    story.die("broker-1")
    assert stopped(story).violated == violated


def test_a_node_that_hangs_until_the_run_ends_breaks_it() -> None:
    assert stopped(asked(BOUND_MS + 2)).verdict is Outcome.VIOLATED


def test_a_run_that_ends_first_leaves_it_undecided() -> None:
    assert stopped(asked(BOUND_MS - 2)).verdict is Outcome.UNKNOWN


def test_the_fault_that_asked_it_is_no_excuse() -> None:
    """Its injection ends when the node has ended, or the fault has waited for long enough."""
    story = asked(30_000)
    story.fault("terminate-1", BROKER, ago_ms=30_000)
    story.after(1_000).die("broker-1")
    assert stopped(story).verdict is Outcome.VIOLATED


CUT = ("broker-1 -> controller-1", "controller-1 -> broker-1")


def cut_for(ms: int, *directions: str) -> Story:
    """A fault acts upon links from one second after the node was asked to end, for so long."""
    story = asked(1_000)
    story.fault(
        "cut-1", *{end for pair in directions for end in pair.split(" -> ")}, directions=directions
    )
    story.after(ms).heal("cut-1")
    return story


def test_a_cut_from_the_servers_that_decide_stops_the_clock() -> None:
    story = cut_for(60_000, *CUT)
    story.after(BOUND_MS - 1_010).die("broker-1")
    found = stopped(story)
    assert (found.violated, found.excused) == (0, 1)
    assert why(found, "fault", "process", "other") == ("cut-1", "broker-1#1", "controller-1")


def test_the_clock_goes_on_afterwards_and_does_not_begin_anew() -> None:
    story = cut_for(60_000, *CUT)
    story.after(BOUND_MS - 990).die("broker-1")
    assert stopped(story).verdict is Outcome.VIOLATED


def test_a_fault_upon_another_brokers_links_is_no_excuse() -> None:
    """The controller of Kafka 3.3.1 waited for what another, slow broker had read."""
    story = cut_for(60_000, "broker-2 -> controller-1", "controller-1 -> broker-2")
    story.die("broker-1")
    assert stopped(story).verdict is Outcome.VIOLATED


def test_a_fault_upon_its_link_with_a_standby_is_no_excuse_once_another_controller_acts() -> None:
    found = stopped(cut_for(60_000, "broker-1 -> controller-2"))
    assert (found.violated, found.excused) == (1, 0)


def test_without_a_majority_of_the_controllers_a_broker_may_wait() -> None:
    story = Story()
    story.die("controller-1")
    story.die("controller-2")
    story.ask_to_end("broker-1")
    story.after(60_000).die("broker-1")
    assert (stopped(story).violated, stopped(story).excused) == (0, 1)


def test_a_stall_decides_nothing() -> None:
    story = asked(30_000)
    story.h.add(BROKER, Stalled(stalled_ns=3_000_000_000))
    story.die("broker-1")
    assert stopped(story).verdict is Outcome.UNKNOWN


def test_an_incomplete_history_decides_nothing() -> None:
    story = asked(30_000)
    story.die("broker-1")
    assert stopped(story, complete=False).verdict is Outcome.UNKNOWN


# --------------------------------------------------------------------------------- of any system


def of_any_system(story: Story, complete: bool = True) -> Outcome:
    """By the rule that knows no roles."""
    clauses = {one.id: one for one in fencepost_clauses()}
    end = story.h.end(complete)
    judged = judge(story.h.events(), [EndsWhenAsked()], clauses, end, "redis-sentinel")
    return judged.verdicts["AVAIL-stopped"].verdict


def test_a_node_of_any_system_that_hangs_breaks_it_and_one_that_ends_keeps_it() -> None:
    hanging = asked(79_000)
    hanging.fault("terminate-1", BROKER, ago_ms=79_000)
    assert of_any_system(hanging) is Outcome.VIOLATED
    hanging.die("broker-1")
    assert of_any_system(hanging) is Outcome.VIOLATED
    ending = asked(BOUND_MS)
    ending.h.add(HARNESS, ended(BROKER))
    assert of_any_system(ending) is Outcome.HOLDS


def test_of_an_unknown_system_any_fault_and_any_dead_node_may_be_the_reason() -> None:
    faulty = cut_for(60_000, "broker-2 -> controller-1")
    faulty.die("broker-1")
    assert of_any_system(faulty) is Outcome.NOT_EXERCISED
    lonely = Story()
    lonely.die("controller-2")
    lonely.ask_to_end("broker-1")
    lonely.after(60_000).die("broker-1")
    assert of_any_system(lonely) is Outcome.NOT_EXERCISED


def test_of_an_unknown_system_a_stall_or_a_missing_event_decides_nothing() -> None:
    story = asked(30_000)
    story.die("broker-1")
    assert of_any_system(story, complete=False) is Outcome.UNKNOWN
    story.h.add(BROKER, Stalled(stalled_ns=30_000_000_000))
    assert of_any_system(story) is Outcome.UNKNOWN
