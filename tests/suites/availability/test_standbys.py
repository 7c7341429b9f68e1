"""What a fault upon a controller excuses that does not act: nothing, while a majority that no fault
affects goes on with the one that acts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.suites.availability.availability_histories import (
    FENCED_MS,
    STUCK_MS,
    WRITABLE_MS,
    Story,
    fenced,
    readable,
    stuck,
    writable,
)
from tests.suites.partition_histories import why

from fencepost import NodeStarted
from fencepost.testing import Outcome
from fencepost_kafka import ControllerResigned

LONG_MS = 600_000
Disturb = Callable[[Story], None]


def link(story: Story, fault: str, *ways: str) -> None:
    """A fault that acts upon links in these directions."""
    ends = sorted({end for way in ways for end in way.split(" -> ")})
    story.fault(fault, *ends, directions=ways)


def standbys_parted(story: Story) -> None:
    link(story, "cut-2", "controller-2 -> controller-3")


def standby_unseen(story: Story) -> None:
    link(story, "slow_link-2", "clients -> controller-3")


def standby_paused(story: Story) -> None:
    story.fault("pause-2", "controller-3#1")


def standby_cut_off(story: Story) -> None:
    """It hears neither of the others."""
    link(story, "cut-2", "controller-1 -> controller-3", "controller-2 -> controller-3")


def standby_without_brokers(story: Story) -> None:
    link(story, "cut-2", "broker-1 -> controller-3", "broker-2 -> controller-3")


STANDBY = [
    standbys_parted,
    standby_unseen,
    standby_paused,
    standby_cut_off,
    standby_without_brokers,
]


def resign(story: Story, controller: int, epoch: int) -> None:
    body = ControllerResigned(epoch=epoch, reason="higher_epoch")
    story.h.add(f"controller-{controller}#1", body)


# ---------------------------------------------------------------------------- faults upon a standby


@pytest.mark.parametrize("disturb", STANDBY)
def test_a_fault_upon_a_standby_excuses_no_time_without_writes(disturb: Disturb) -> None:
    story = Story()
    story.write("first")
    disturb(story)
    story.invoke("next")
    story.after(LONG_MS)
    found = writable(story)
    assert (found.verdict, found.excused) == (Outcome.VIOLATED, 0)


@pytest.mark.parametrize("disturb", STANDBY)
def test_such_a_fault_excuses_no_reader_that_is_stuck(disturb: Disturb) -> None:
    story = Story()
    story.position(0)
    disturb(story)
    story.ack(0)
    story.ack(1)
    story.after(LONG_MS)
    story.poll(0, 1, final=True)
    assert readable(story).verdict is Outcome.VIOLATED


@pytest.mark.parametrize("disturb", STANDBY)
def test_its_beginning_and_its_healing_start_no_bound_anew(disturb: Disturb) -> None:
    story = stuck(Story(), WRITABLE_MS - 2_000)
    disturb(story)
    for fault in ("cut-2", "slow_link-2", "pause-2"):
        story.heal(fault)
    story.after(3_000)
    assert writable(story).verdict is Outcome.VIOLATED


def acting_slow(story: Story) -> None:
    """One link of the controller that acts, and a standby is dead."""
    story.die("controller-3")
    link(story, "slow_link-2", "controller-2 -> controller-1")


def both_standbys(story: Story) -> None:
    story.fault("pause-2", "controller-2#1")
    link(story, "slow_link-3", "controller-1 -> controller-3")


def acting_unseen(story: Story) -> None:
    link(story, "cut-2", "controller-1 -> clients")


@pytest.mark.parametrize(
    ("disturb", "excuse"),
    [
        (acting_slow, ("slow_link-2", "controller-2", "controller-1")),
        (both_standbys, ("pause-2", "controller-2")),
        (acting_unseen, ("cut-2", "controller-1", "clients")),
    ],
)
def test_a_fault_that_leaves_no_majority_with_the_one_that_acts_is_the_excuse(
    disturb: Disturb, excuse: tuple[str, ...]
) -> None:
    story = stuck(Story(), 1_000)
    disturb(story)
    found = writable(story.after(LONG_MS))
    assert (found.verdict, found.excused) == (Outcome.NOT_EXERCISED, 1)
    assert why(found, *("fault", "process", "other")[: len(excuse)]) == excuse


@pytest.mark.parametrize(
    ("ways", "verdict"),
    [
        (("controller-2 -> controller-3",), Outcome.VIOLATED),
        (("clients -> controller-2",), Outcome.VIOLATED),
        (("controller-2 -> controller-3", "clients -> controller-1"), Outcome.NOT_EXERCISED),
        (("controller-2 -> controller-3", "controller-1 -> controller-3"), Outcome.VIOLATED),
    ],
)
def test_where_none_is_known_to_act_a_majority_must_reach_each_other_and_the_clients(
    ways: tuple[str, ...], verdict: Outcome
) -> None:
    story = Story(acting=False)
    story.write("first")
    link(story, "cut-2", *ways)
    story.invoke("next")
    assert writable(story.after(LONG_MS)).verdict is verdict


def test_a_standby_that_was_elected_is_the_one_that_counts() -> None:
    story = Story()
    story.elect(2)
    stuck(story, 1_000)
    story.fault("pause-2", "controller-2#1")
    assert writable(story.after(LONG_MS)).verdict is Outcome.NOT_EXERCISED
    story = Story()
    story.elect(2)
    stuck(story, 1_000)
    story.fault("pause-2", "controller-1#1")
    assert writable(story.after(LONG_MS)).verdict is Outcome.VIOLATED


def test_over_zookeeper_the_leader_is_not_known_so_any_servers_fault_is_the_excuse() -> None:
    story = Story(controllers=0)
    for number in (1, 2, 3):
        story.spawn(f"zookeeper-{number}")
    story.write("first")
    link(story, "cut-2", "zookeeper-2 -> zookeeper-3")
    story.invoke("next")
    found = writable(story.after(LONG_MS))
    assert (found.verdict, found.excused) == (Outcome.NOT_EXERCISED, 1)


# ---------------------------------------------------------------------------------------- elections


def test_an_election_that_a_fault_upon_a_standby_explains_starts_the_bound_anew() -> None:
    story = stuck(Story(), 1_000)
    standby_cut_off(story)
    story.after(WRITABLE_MS - 2_000)
    resign(story, 1, 1)
    story.after(500).elect(2)
    story.after(WRITABLE_MS - 1_000).complete("next")
    found = writable(story)
    assert (found.verdict, found.excused) == (Outcome.NOT_EXERCISED, 1)
    names = ("controller", "fault", "process", "other")
    assert why(found, *names) == ("controller-2#1", "cut-2", "controller-1", "controller-3")


def test_after_the_last_of_such_elections_the_bound_is_the_same() -> None:
    story = stuck(Story(), 1_000)
    standby_cut_off(story)
    for number in (2, 1, 2):
        story.after(WRITABLE_MS - 2_000).elect(number)
    assert writable(story.after(STUCK_MS)).verdict is Outcome.VIOLATED


def test_an_election_shortly_after_a_standby_resumed_is_explained_and_a_later_one_is_not() -> None:
    for late_ms, verdict in [(100, Outcome.NOT_EXERCISED), (FENCED_MS, Outcome.VIOLATED)]:
        story = stuck(Story(), 1_000)
        standby_paused(story)
        story.after(1_000).heal("pause-2")
        story.after(late_ms).elect(3)
        assert writable(story.after(WRITABLE_MS - 1_000)).verdict is verdict


def test_a_chain_of_elections_that_nothing_explains_is_no_excuse() -> None:
    story = Story().after(60_000)
    story.die("broker-1")
    for number in (2, 3, 1, 2, 3, 1):
        story.after(FENCED_MS // 4).elect(number)
    assert fenced(story).verdict is Outcome.VIOLATED


def test_a_cut_between_standbys_explains_no_election_while_the_last_winner_lives() -> None:
    story = stuck(Story().after(60_000), 1_000)
    standbys_parted(story)
    story.after(WRITABLE_MS - 2_000).elect(2)
    story.heal("cut-2")
    assert writable(story.after(2_000)).verdict is Outcome.VIOLATED


def test_an_older_epoch_and_a_resignation_of_another_change_nothing() -> None:
    story = Story()
    story.elect(2)
    resign(story, 1, 1)
    stuck(story, 1_000)
    story.fault("pause-2", "controller-2#1")
    found = writable(story.after(STUCK_MS))
    assert why(found, "fault", "process") == ("pause-2", "controller-2")


# ------------------------------------------------------------------------------- ends and starts


def test_a_standby_that_ends_and_begins_again_leaves_no_dead_broker_unfenced() -> None:
    story = Story()
    story.die("broker-1")
    for _ in range(200):
        story.after(2_000).die("controller-3")
        story.after(1_000).spawn("controller-3")
    found = fenced(story)
    assert (found.verdict, found.excused) == (Outcome.VIOLATED, 0)


def test_one_that_the_majority_needs_starts_the_bound_anew() -> None:
    story = Story()
    story.die("controller-2")
    story.die("broker-1")
    story.after(2_000).die("controller-3")
    story.after(1_000).spawn("controller-3")
    found = fenced(story.after(FENCED_MS - 100))
    assert (found.verdict, found.excused) == (Outcome.NOT_EXERCISED, 1)


@pytest.mark.parametrize(
    ("started", "later_ms", "verdict"),
    [
        (False, 1_000, Outcome.NOT_EXERCISED),
        (True, 1_000, Outcome.VIOLATED),
        (False, 21_000, Outcome.VIOLATED),
    ],
    ids=["it has not started", "it has started", "it had long enough"],
)
def test_a_standby_that_has_not_started_yet_is_no_part_of_a_majority(
    started: bool, later_ms: int, verdict: Outcome
) -> None:
    story = Story()
    story.die("controller-2")
    story.spawn("controller-2")
    if started:
        story.h.add("controller-2#2", NodeStarted(role="controller", node_id=102))
    story.after(later_ms)
    story.die("broker-1")
    story.after(FENCED_MS - 1_000).die("controller-3")
    assert fenced(story.after(2_000)).verdict is verdict


def test_a_standby_may_say_that_it_started_before_the_harness_reports_its_process() -> None:
    story = Story()
    story.die("controller-2")
    story.h.add("controller-2#2", NodeStarted(role="controller", node_id=102))
    story.spawn("controller-2")
    story.die("broker-1")
    story.after(FENCED_MS - 1_000).die("controller-3")
    assert fenced(story.after(2_000)).verdict is Outcome.VIOLATED


def test_the_end_of_the_one_that_acts_is_an_excuse_that_names_what_its_successor_does() -> None:
    story = Story()
    story.die("broker-1")
    story.after(FENCED_MS - 1_000).die("controller-1")
    found = fenced(story.after(2_000))
    assert (found.verdict, found.excused) == (Outcome.NOT_EXERCISED, 1)
    assert why(found, "process") == "controller-1#1"
