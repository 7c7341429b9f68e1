"""AVAIL-fenced while the voters of the quorum change: only voters are a majority."""

from __future__ import annotations

import pytest
from tests.suites.availability.availability_histories import Story, fenced
from tests.suites.availability.test_dead_broker_rules import FENCED_MS, LATE_MS, dead, fence
from tests.suites.partition_histories import why

from fencepost import NodeStarted, process_scope
from fencepost.testing import Outcome
from fencepost_kafka import QuorumLearned


def without_controller_2(*, asked: bool = True) -> Story:
    """Three controllers, and the second was removed from the voters if that was asked for."""
    story = Story()
    if asked:
        story.ask("remove_voter", 2)
        story.after(100).accept("RemoveRaftVoter", 2)
    return story.after(LATE_MS)


@pytest.mark.parametrize(
    ("asked", "verdict"), [(True, Outcome.NOT_EXERCISED), (False, Outcome.VIOLATED)]
)
def test_only_voters_are_a_majority(asked: bool, verdict: Outcome) -> None:
    story = without_controller_2(asked=asked)
    story.die("controller-1")
    found = fenced(fence(dead(LATE_MS, story)))
    assert found.verdict is verdict
    assert not asked or why(found, "running", "voting", "role") == (1, 2, "controller")


def test_a_fault_upon_a_controller_that_is_no_voter_is_no_excuse() -> None:
    story = without_controller_2()
    story.fault("pause-1", "controller-2#1")
    assert fenced(fence(dead(LATE_MS, story))).verdict is Outcome.VIOLATED


def test_a_voter_that_was_added_again_counts() -> None:
    story = without_controller_2()
    story.ask("add_voter", 2)
    story.after(100).accept("AddRaftVoter", 2)
    story.die("controller-1")
    assert fenced(fence(dead(LATE_MS, story))).verdict is Outcome.VIOLATED


@pytest.mark.parametrize("error", ["", "NOT_CONTROLLER"])
def test_a_controller_that_may_have_been_removed_is_not_relied_upon(error: str) -> None:
    """A refusal says nothing: the record may be in a log, from which the next leader takes it."""
    story = Story()
    story.ask("remove_voter", 2)
    if error:
        story.after(100).accept("RemoveRaftVoter", 2, error=error)
    story.die("controller-1")
    found = fenced(fence(dead(LATE_MS, story)))
    assert (found.verdict, found.excused) == (Outcome.NOT_EXERCISED, 1)
    assert why(found, "running", "voting", "doubted") == (1, 2, ("controller-2",))


def test_a_dead_controller_that_may_have_been_removed_may_still_be_needed() -> None:
    story = Story(controllers=2)
    story.ask("remove_voter", 2)
    story.die("controller-2")
    assert fenced(fence(dead(LATE_MS, story))).verdict is Outcome.NOT_EXERCISED
    story = Story(controllers=2)
    story.ask("remove_voter", 2)
    story.after(100).accept("RemoveRaftVoter", 2)
    story.die("controller-2")
    assert fenced(fence(dead(LATE_MS, story))).verdict is Outcome.VIOLATED


def test_a_change_of_voters_starts_the_bound_anew() -> None:
    """Once it is made; the request may bring an election about, which explains it."""
    for leads in ("the same", "another"):
        story = dead(FENCED_MS - 1_000)
        story.ask("remove_voter", 2)
        if leads == "another":
            story.elect(3)
        else:
            story.accept("RemoveRaftVoter", 2)
        found = fenced(fence(story.after(2_000)))
        assert (found.verdict, found.excused) == (Outcome.NOT_EXERCISED, 1)


def restarted(controllers: int) -> Story:
    """Broker 1 dies. So does controller 1, whose next process needs three seconds to start."""
    story = dead(100, Story(controllers=controllers))
    story.die("controller-1")
    story.after(100).spawn("controller-1")
    story.after(3_000).h.add("controller-1#2", NodeStarted(role="controller", node_id=101))
    return story


@pytest.mark.parametrize("controllers", [2, 3])
def test_a_controller_that_starts_decides_nothing_where_the_others_are_no_majority(
    controllers: int,
) -> None:
    found = fenced(fence(restarted(controllers).after(FENCED_MS - 1_000)))
    needed = controllers == 2
    assert found.verdict is (Outcome.NOT_EXERCISED if needed else Outcome.VIOLATED)
    assert not needed or why(found, "process") == "controller-1#2"


@pytest.mark.parametrize(
    ("controllers", "process", "excused"),
    [(2, "controller-1#2", True), (3, "controller-1#2", False), (2, "controller-2#1", False)],
    ids=["needed", "not needed", "another"],
)
def test_a_controller_that_starts_decides_nothing_until_it_has_learned_the_voters(
    controllers: int, process: str, excused: bool
) -> None:
    story = restarted(controllers)
    story.after(5_000).h.add(process, QuorumLearned(voters=(101, 102), endpoints=(), bootstrap=()))
    found = fenced(fence(story.after(FENCED_MS - 1_000)))
    assert found.verdict is (Outcome.NOT_EXERCISED if excused else Outcome.VIOLATED)
    learned = [one for one in found.excuses if one.why.get("process") == process_scope(process)]
    assert bool(learned) is excused


def test_a_controller_that_learns_the_voters_again_excuses_nothing() -> None:
    story = restarted(2)
    for _ in range(2):
        learned = QuorumLearned(voters=(101, 102), endpoints=(), bootstrap=())
        story.after(5_000).h.add("controller-1#2", learned)
    assert fenced(fence(story.after(FENCED_MS - 1_000))).verdict is Outcome.VIOLATED


def test_after_the_start_of_a_controller_the_bound_is_the_same() -> None:
    found = fenced(fence(restarted(2).after(LATE_MS)))
    assert found.verdict is Outcome.VIOLATED


def test_a_controller_that_does_not_say_that_it_started_excuses_nothing() -> None:
    story = dead(100, Story(controllers=2))
    story.die("controller-1")
    story.after(100).spawn("controller-1")
    assert fenced(fence(story.after(LATE_MS))).verdict is Outcome.VIOLATED
