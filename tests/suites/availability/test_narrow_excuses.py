"""What excuses a promise of availability, and for how long: each history went unaccused."""

from __future__ import annotations

import pytest
from tests.suites.availability.availability_histories import (
    HARNESS,
    OTHER,
    RECOVERED_MS,
    STATED,
    STUCK_MS,
    WRITABLE_MS,
    Story,
    fenced,
    readable,
    recovered,
    writable,
)
from tests.suites.partition_histories import stated

from fencepost import ClientFailed, ClusterRecovered, FaultInjected, NodeStarted, ProcessSpawned
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import BoundsStated, ControllerElected

MINUTES = 600_000
CUT = ("broker-2 -> controller-1", "controller-1 -> broker-2")


# ------------------------------------------------------------------------------------- writing


def test_a_fault_of_a_replica_outside_of_the_isr_excuses_no_write() -> None:
    story = Story()
    story.partition(1, (1, 2))
    story.write("first")
    story.invoke("next")
    for number in range(10):
        story.after(14_000).fault(f"pause-{number}", "broker-3#1")
        story.after(1_000).heal(f"pause-{number}")
    story.phase("end")
    assert writable(story).verdict is Outcome.VIOLATED


def struck(story: Story, times: int) -> Story:
    """Small faults, one after the other: each ends soon, and stops nothing."""
    for number in range(times):
        story.after(14_900).fault(f"log_level-{number}", "broker-2#1")
        story.after(100).heal(f"log_level-{number}")
    story.phase("end")
    return story


# Of each 15 s, 7 s are no recovery; all of these and the newest 15 s are 36 s, twice the bound.
MANY = pytest.mark.parametrize(("times", "violated"), [(4, 0), (5, 1)])


@MANY
def test_small_faults_do_not_begin_the_bound_of_writing_anew_for_ever(
    times: int, violated: int
) -> None:
    story = Story()
    story.write("first")
    story.invoke("next")
    found = writable(struck(story, times))
    assert (found.violated, found.excused > 0) == (violated, True)


@MANY
def test_nor_that_of_reading(times: int, violated: int) -> None:
    story = Story()
    for offset in range(4):
        story.ack(offset)
    story.poll(0)
    story.poll(0, 1, 2, 3, by=OTHER)
    assert readable(struck(story, times)).violated == violated


def dense(story: Story, times: int, *directions: str) -> Story:
    """Faults of links that come before a recovery from the one before can be over."""
    for number in range(times):
        cut = f"slow_link-{number}"
        ends = directions[0].split(" -> ")
        story.after(4_997).fault(cut, *ends, directions=directions)
        story.after(1).heal(cut)
    story.phase("end")
    return story


# Of each 5 s, all is recovery. Six of these are 48 s, and twice the bound 36 s.
@pytest.mark.parametrize(("times", "violated"), [(16, 0), (18, 1)])
def test_dense_faults_excuse_no_more_than_some_recoveries(times: int, violated: int) -> None:
    story = Story()
    story.write("first")
    story.invoke("next")
    found = writable(dense(story, times, "broker-1 -> clients"))
    assert (found.violated, found.excused > 0) == (violated, True)


@pytest.mark.parametrize("direction", ["clients -> broker-3", "broker-3 -> broker-2"])
def test_a_link_that_no_write_needs_while_the_leader_lives_excuses_none(direction: str) -> None:
    story = Story()
    story.write("first")
    story.invoke("next")
    found = writable(dense(story, 4, direction))
    assert (found.violated, found.excused) == (1, 0)


def test_such_a_link_is_needed_once_the_leader_is_dead() -> None:
    story = Story()
    story.write("first")
    story.die("broker-1")
    story.invoke("next")
    assert writable(dense(story, 4, "clients -> broker-3")).violated == 0


@pytest.mark.parametrize(("leader", "isr"), [(1, (1,)), (-1, ())])
def test_an_isr_that_shrinks_in_peace_excuses_no_time_without_writes(
    leader: int, isr: tuple[int, ...]
) -> None:
    story = Story()
    story.write("first")
    story.after(RECOVERED_MS).write("second")
    story.partition(leader, isr)
    story.invoke("next")
    story.after(STUCK_MS).complete("next", "failed", error="NOT_ENOUGH_REPLICAS")
    found = writable(story)
    assert (found.violated, found.excused) == (1, 0)
    assert stated(found, "isr") == tuple(f"broker {one}" for one in isr)


# A broker that was paused, or dead, comes back, and has to be in the ISR again.
@pytest.mark.parametrize(("more_ms", "violated"), [(0, 0), (1, 1)])
@pytest.mark.parametrize("fault", ["pause-1", "small-1"])
def test_after_a_fault_replicas_have_the_time_of_a_recovery_to_come_back(
    fault: str, more_ms: int, violated: int
) -> None:
    story = Story()
    story.write("first")
    story.partition(1, (1,))
    story.fault(fault, "broker-2#1" if fault == "pause-1" else "broker-3#1")
    story.invoke("next")
    story.after(5_000).heal(fault)
    story.after(RECOVERED_MS + WRITABLE_MS - 1 + more_ms).complete("next")
    assert writable(story).violated == violated


def test_an_isr_whose_members_are_dead_excuses() -> None:
    story = Story()
    story.after(RECOVERED_MS).write("first")
    story.partition(1, (1,))
    story.die("broker-1")
    story.invoke("next")
    story.after(RECOVERED_MS + 2 * STUCK_MS)
    found = writable(story)
    assert (found.violated, found.excused) == (0, 1)


def test_a_time_in_which_nobody_wanted_to_write_is_not_added() -> None:
    story = Story()
    story.write("first")
    for number in range(8):
        story.invoke(f"w{number}")
        story.after(1_000).complete(f"w{number}", "failed", error="NOT_ENOUGH_REPLICAS")
        story.after(13_900).fault(f"log_level-{number}", "broker-2#1")
        story.after(100).heal(f"log_level-{number}")
    assert writable(story).violated == 0


@pytest.mark.parametrize("error", ["INVALID_RECORD", "CLUSTER_AUTHORIZATION_FAILED"])
@pytest.mark.parametrize("accepted", [True, False])
def test_a_broker_refuses_for_good_only_what_it_never_accepted(error: str, accepted: bool) -> None:
    """Its word is the excuse: a cluster that refuses every valid write must not be believed."""
    story = Story()
    if accepted:
        story.write("first")
    for number in range(40):
        story.invoke(f"w{number}")
        story.after(900).complete(f"w{number}", "failed", error=error)
    story.phase("end")
    assert (writable(story).verdict is Outcome.VIOLATED) is accepted


def test_attempts_that_all_fail_are_late_whatever_the_pauses_between_them() -> None:
    story = Story()
    story.write("first")
    for number in range(10):
        story.invoke(f"w{number}")
        story.complete(f"w{number}", "failed", error="NOT_ENOUGH_REPLICAS")
        story.after(6_000)
    story.phase("end")
    assert writable(story).verdict is Outcome.VIOLATED


def test_producers_that_give_up_one_after_the_other_still_want_to_write() -> None:
    story = Story()
    story.write("first")
    for number in range(5):
        client = f"clients/producer-{number}#1"
        story.invoke(f"w{number}", client=client)
        body = ClientFailed(error="_FATAL", fatal=True)
        story.after(15_000).h.add(client, body)
    story.phase("end")
    assert writable(story).verdict is Outcome.VIOLATED


def test_a_combined_process_that_is_isolated_excuses_nothing_where_others_are_a_majority() -> None:
    story = Story(controllers=0, acting=False)
    story.h = HistoryBuilder(start_ms=100_000)
    story.h.add(HARNESS, STATED)
    for number in (1, 2, 3, 4):
        process, slot = f"broker-{number}#1", f"broker-{number}"
        spawned = ProcessSpawned(started=process, slot=slot, role="broker", node_id=number, pid=1)
        story.h.add(HARNESS, spawned)
        if number < 4:
            story.h.add(process, NodeStarted(role="controller", node_id=100 + number))
        started = NodeStarted(role="broker", node_id=number, incarnation=f"i{number}")
        story.h.add(process, started)
    story.h.add("broker-2#1", ControllerElected(epoch=1, log_end=1, last_epoch=-1))
    for number in (1, 2, 3, 4):
        story.broker(number)
    story.partition(2, (4, 2, 3), replicas=(4, 2, 3))
    ends = [(one, other) for other in ("broker-2", "broker-3") for one in ("broker-1",)]
    ways = [f"{a} -> {b}" for pair in ends for a, b in (pair, pair[::-1])]
    story.fault("isolate-1", "broker-1", "broker-2", "broker-3", directions=tuple(ways))
    story._number["broker-4"] = 1
    story.after(60_000).die("broker-4")
    story.after(MINUTES).phase("end")
    assert fenced(story).verdict is Outcome.VIOLATED


def test_what_a_fault_without_a_receipt_excuses_is_undecided() -> None:
    story = Story()
    story.write("first")
    story.die("broker-1")
    story.partition(2, (2, 3))
    story.write("second")
    story.invoke("third")
    for number in range(10):
        body = FaultInjected(
            fault_id=f"pause-{number}",
            fault="pause",
            targets=("broker-2#1",),
            receipt=False,
            evidence="it ran on",
            began_at_ns=story.h.now_ns,
        )
        story.after(14_000).h.add(HARNESS, body)
    story.phase("end")
    assert writable(story).verdict is Outcome.UNKNOWN


@pytest.mark.parametrize("kind", ["bounds", "fault"])
def test_what_only_the_harness_can_know_is_not_taken_from_a_node(kind: str) -> None:
    story = Story()
    story.write("first")
    day_ms = 86_400_000
    bounds = BoundsStated(
        fenced_ms=day_ms, writable_ms=day_ms, recovered_ms=day_ms, least_in_sync=2
    )
    fault = FaultInjected(
        fault_id="mine-1",
        fault="pause",
        targets=("controller-1#1", "broker-1#1"),
        receipt=True,
        evidence="believe me",
    )
    story.h.add("broker-2#1", bounds if kind == "bounds" else fault)
    story.invoke("next")
    story.after(MINUTES).phase("end")
    assert writable(story).verdict is Outcome.VIOLATED


# ------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize("again", ["position", "poll"])
def test_a_consumer_that_begins_anew_is_stuck_where_it_was(again: str) -> None:
    story = Story()
    story.ack(0)
    story.poll(0)
    for offset in range(1, 20):
        story.ack(offset)
    story.position(0, by=OTHER)
    story.poll(0, 1, 2, by=OTHER)
    for _ in range(10):
        story.after(15_000)
        if again == "position":
            story.position(1)
        else:
            story.poll(0)
    story.phase("end")
    assert readable(story).verdict is Outcome.VIOLATED


def test_a_consumer_that_reads_all_of_its_log_again_is_not_stuck() -> None:
    story = Story()
    for offset in range(20):
        story.ack(offset)
        story.poll(offset)
    story.position(0)
    for offset in range(20):
        story.after(5_000).poll(offset)
    story.phase("end")
    assert readable(story).verdict is not Outcome.VIOLATED


def test_a_consumer_before_messages_that_nobody_ever_got_is_undecided() -> None:
    """They are lost, which is another promise, or it is stuck."""
    story = Story()
    story.ack(0)
    story.poll(0)
    story.ack(1)
    story.after(MINUTES).phase("end")
    assert readable(story).verdict is Outcome.UNKNOWN


# ------------------------------------------------------------------------------------- fencing


def test_a_standby_that_is_paused_since_long_explains_no_election() -> None:
    story = Story()
    story.fault("pause-1", "controller-3#1")
    story.after(60_000).die("broker-1")
    for number in range(20):
        story.after(7_000).elect(2 - number % 2)
    story.phase("end")
    assert fenced(story).verdict is Outcome.VIOLATED


@pytest.mark.parametrize("loop", [False, True])
def test_a_broker_is_dead_until_its_next_process_is_registered(loop: bool) -> None:
    story = Story()
    story.h.add("broker-1#1", NodeStarted(role="broker", node_id=1, incarnation="i"))
    story.die("broker-1")
    story.after(3_000).spawn("broker-1")
    story.h.add("broker-1#2", NodeStarted(role="broker", node_id=1, incarnation="j"))
    for _ in range(10 if loop else 0):
        story.after(6_000).die("broker-1")
        story.after(1_000).spawn("broker-1")
    story.after(MINUTES).phase("end")
    assert fenced(story).verdict is Outcome.VIOLATED


def test_a_change_of_voters_that_was_refused_leaves_nothing_in_doubt() -> None:
    story = Story()
    story.ask("remove_voter", 3)
    story.accept("RemoveRaftVoter", 3, error="INVALID_REQUEST")
    story.after(MINUTES).die("controller-2")
    story.after(60_000).die("broker-1")
    story.after(MINUTES).phase("end")
    assert fenced(story).verdict is Outcome.VIOLATED


def test_requests_for_other_voters_excuse_nothing_by_themselves() -> None:
    story = Story()
    story.after(30_000).die("broker-1")
    for _ in range(20):
        story.after(6_000).ask("add_voter", 3)
    story.phase("end")
    assert fenced(story).verdict is Outcome.VIOLATED


# ------------------------------------------------------------------------------------- recovery


def test_a_cluster_that_had_not_noticed_its_cut_when_that_healed_was_not_whole() -> None:
    story = Story()
    story.fault("isolate-1", "broker-2", "controller-1", directions=CUT)
    story.after(3_000).heal("isolate-1")
    story.after(1_000).broker(2, fenced=True)
    story.partition(1, (1, 3))
    story.after(MINUTES).partition(1, (1, 3))
    story.phase("end")
    assert recovered(story).verdict is Outcome.VIOLATED


def test_a_system_without_bounds_is_not_judged_by_what_brokers_promise() -> None:
    story = Story(stated=False)
    body = ClusterRecovered(recovered=False, took_ms=9, bound_ms=9, missing=("no master",))
    story.h.add(HARNESS, body)
    assert recovered(story).verdict is Outcome.NOT_EXERCISED


def test_a_cluster_that_was_whole_for_a_moment_is_not_whole_again() -> None:
    story = Story()
    story.fault("isolate-1", "broker-2", "controller-1", directions=CUT)
    story.after(9_000).broker(2, fenced=True)
    story.partition(1, (1, 3))
    story.heal("isolate-1")
    story.after(500).broker(2)
    story.partition(1, (1, 2, 3))
    story.partition(1, (1,))
    story.after(MINUTES).partition(1, (1,))
    story.phase("end")
    assert recovered(story).verdict is Outcome.VIOLATED
