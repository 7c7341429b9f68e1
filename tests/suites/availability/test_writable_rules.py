"""AVAIL-writable: a partition takes writes again soon after its leader died."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.suites.availability.availability_histories import (
    CONTROLLER,
    HARNESS,
    PRODUCER,
    STUCK_MS,
    WRITABLE_MS,
    Story,
    began,
    ended,
    stuck,
    writable,
)
from tests.suites.partition_histories import stated, why

from fencepost import ClientFailed, Facts, NodeStarted, Stalled, slot_scope
from fencepost.testing import Outcome
from fencepost_kafka import BrokerCommitted, broker_of

# --------------------------------------------------------------------------- the three histories


def test_a_partition_without_writes_long_after_its_leaders_death_is_a_violation() -> None:
    found = writable(stuck(Story()))
    assert found.verdict is Outcome.VIOLATED
    assert stated(found, "since_ns", "fit_ns") == (19_004_000_000, 19_003_000_000)
    assert stated(found, "partition", "former") == ("orders-0", "broker 1")
    assert stated(found, "isr") == ("broker 1", "broker 2", "broker 3")
    assert found.violations[0].because


def test_a_write_that_is_acknowledged_within_the_bound_exercises_the_promise() -> None:
    story = stuck(Story(), WRITABLE_MS - 10)
    story.partition(2, (2, 3))
    story.complete("next")
    found = writable(story)
    assert (found.verdict, found.exercised) == (Outcome.HOLDS, 1)


@pytest.mark.parametrize("process", [HARNESS, "broker-2#1", "controller-3#1", PRODUCER])
def test_a_bound_that_a_stall_ate_is_undecided(process: str) -> None:
    story = stuck(Story())
    story.h.add(process, Stalled(stalled_ns=3_000_000_000))
    found = writable(story)
    assert found.verdict is Outcome.UNKNOWN
    assert why(found, "stalled", "stalled_ns") == (process, 3_000_000_000)


def test_a_client_that_never_woke_decides_nothing() -> None:
    """It was stopped for good, and the harness ended it: it waited for nothing."""
    story = stuck(Story())
    story.h.add(HARNESS, Stalled(stalled_ns=19_000_000_000, of=PRODUCER))
    story.h.add(HARNESS, ended(PRODUCER))
    found = writable(story)
    assert found.verdict is Outcome.UNKNOWN
    assert why(found, "stalled", "stalled_ns") == (PRODUCER, 19_000_000_000)


@pytest.mark.parametrize(("stalled", "expected"), [((PRODUCER,), "violated"), ((), "unknown")])
def test_a_client_that_ran_beside_a_stalled_one_saw_it(
    stalled: tuple[str, ...], expected: str
) -> None:
    story = Story()
    story.write("first")
    story.die("broker-1")
    story.invoke("next")
    story.invoke("beside", client="clients/producer-2#1")
    story.after(STUCK_MS)
    for process in stalled or (PRODUCER, "clients/producer-2#1"):
        story.h.add(HARNESS, Stalled(stalled_ns=19_000_000_000, of=process))
    found = writable(story)
    assert found.verdict == expected
    assert stalled or why(found, "stalled") == PRODUCER, "the first of two that stalled as long"


def test_a_stall_of_another_process_or_a_short_one_changes_nothing() -> None:
    story = stuck(Story())
    story.h.add("broker-9#1", Stalled(stalled_ns=9_000_000_000))
    story.h.add(HARNESS, Stalled(stalled_ns=1_000_000_000))
    assert writable(story).verdict is Outcome.VIOLATED


def test_an_incomplete_history_decides_nothing() -> None:
    assert writable(stuck(Story()), complete=False).verdict is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("isr", "excused"), [((1,), True), ((1, 2), False)], ids=["the only member", "one of two"]
)
def test_a_partition_that_has_lost_its_messages_need_not_take_the_next_ones(
    isr: tuple[int, ...], excused: bool
) -> None:
    """A broker that does not know a producer's last message refuses the next one."""
    story = Story()
    story.write("first")
    story.partition(1, isr)
    story.die("broker-1")
    story.fault("wipe_disk-1", "broker-1#1")
    story.spawn("broker-1")
    story.partition(1)
    story.invoke("next")
    found = writable(story.after(STUCK_MS))
    assert (found.violated, found.excused) == ((0, 1) if excused else (1, 0))
    if excused:
        assert why(found, "partition", "lost") == ("orders-0", ("broker 1",))


def test_a_partition_whose_only_member_became_a_second_process_has_lost_its_messages() -> None:
    """The second process names the incarnation that is registered: it has another disk."""
    story = Story()
    story.write("first")
    story.partition(1, (1,))
    story.spawn("broker-1-duplicate")
    taken = BrokerCommitted(
        offset=900, broker_id=1, broker_epoch=900, fenced=False, incarnation="second"
    )
    began_as = NodeStarted(role="broker", node_id=1, incarnation="second", log_end=0)
    story.h.add("broker-1-duplicate#1", began_as)
    story.h.add(CONTROLLER, taken)
    story.partition(2)
    story.invoke("next")
    found = writable(story.after(STUCK_MS))
    assert (found.violated, found.excused) == (0, 1)
    assert why(found, "partition", "lost") == ("orders-0", ("broker 1",))


# -------------------------------------------------------------------------- what clients wanted


def test_a_late_acknowledgement_is_a_violation_and_exercises_nothing() -> None:
    story = stuck(Story())
    story.complete("next")
    found = writable(story)
    assert (found.verdict, found.violated, found.exercised) == (Outcome.VIOLATED, 1, 0)


def test_each_time_without_writes_is_one_violation() -> None:
    story = stuck(Story())
    story.complete("next", "unknown")
    story.invoke("more")
    story.after(STUCK_MS).complete("more")
    story.invoke("other")
    story.after(STUCK_MS).complete("other")
    assert writable(story).violated == 2


def test_writes_that_end_without_an_answer_one_after_the_other_are_one_time() -> None:
    story = Story()
    story.write("first")
    for number in range(4):
        story.invoke(f"op-{number}")
        story.after(WRITABLE_MS // 3).complete(f"op-{number}", "unknown", error="_MSG_TIMED_OUT")
    assert writable(story).verdict is Outcome.VIOLATED


def test_a_partition_that_no_client_writes_to_is_not_judged() -> None:
    story = Story()
    story.write("first")
    story.invoke("given up")
    story.complete("given up", "failed", error="_MSG_TIMED_OUT")
    story.after(STUCK_MS).invoke("late")
    story.after(1_000)
    assert writable(story).verdict is Outcome.NOT_EXERCISED


def test_a_write_after_a_short_pause_goes_on_with_the_time_before() -> None:
    story = Story()
    story.invoke("one")
    story.after(WRITABLE_MS - 500).complete("one", "unknown")
    story.after(900).invoke("two")
    story.after(500)
    assert writable(story).verdict is Outcome.VIOLATED


@pytest.mark.parametrize("error", ["MESSAGE_TOO_LARGE", "TOPIC_AUTHORIZATION_FAILED"])
def test_a_write_that_no_cluster_would_take_is_no_wish(error: str) -> None:
    story = Story()
    story.invoke("large")
    story.after(WRITABLE_MS - 100).complete("large", "failed", error=error)
    story.invoke("small")
    story.after(1_000)
    assert writable(story).verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize("how", ["ended", "failed"])
def test_the_open_writes_of_a_client_that_ended_are_no_wish(how: str) -> None:
    story = Story()
    story.invoke("open")
    story.after(1_000)
    if how == "ended":
        story.h.add(HARNESS, ended(PRODUCER))
    else:
        story.h.add(PRODUCER, ClientFailed(error="_FATAL", fatal=True))
    story.after(STUCK_MS)
    assert writable(story).verdict is Outcome.NOT_EXERCISED


def test_a_client_that_reports_an_error_goes_on_wanting() -> None:
    story = stuck(Story())
    story.h.add(PRODUCER, ClientFailed(error="_TRANSPORT", fatal=False))
    assert writable(story).verdict is Outcome.VIOLATED


def test_another_clients_end_takes_no_wish_away() -> None:
    story = stuck(Story())
    story.h.add(HARNESS, ended("clients/other#1"))
    assert writable(story).verdict is Outcome.VIOLATED


def test_writes_with_fewer_acknowledgements_are_not_judged() -> None:
    story = Story()
    story.invoke("one", acks=1)
    story.after(STUCK_MS)
    assert writable(story).verdict is Outcome.NOT_EXERCISED


def test_an_acknowledgement_by_the_leader_alone_is_no_evidence() -> None:
    story = stuck(Story())
    story.invoke("one", acks=1)
    story.complete("one", acks=1)
    assert writable(story).verdict is Outcome.VIOLATED


def test_an_acknowledgement_that_was_on_its_way_exercises_nothing() -> None:
    story = Story()
    story.invoke("before")
    story.die("broker-1")
    story.complete("before")
    assert writable(story).exercised == 0


def test_without_stated_bounds_nothing_is_judged() -> None:
    story = stuck(Story(stated=False))
    story.complete("next")
    assert writable(story).verdict is Outcome.NOT_EXERCISED


# -------------------------------------------------------------------------------- the majority


ISR = tuple(map(broker_of, (1, 2, 3)))


def leader_cut(story: Story) -> None:
    story.fault("cut-2", "broker-2", "broker-3", directions=("broker-2 -> broker-3",))


def paused_member(story: Story) -> None:
    story.fault("pause-2", "broker-2#1")


def second_death(story: Story) -> None:
    story.die("broker-3")


def doubled_member(story: Story) -> None:
    story.spawn("broker-2-duplicate")


def cut_from_clients(story: Story) -> None:
    story.fault("cut-2", "clients", "broker-2", directions=("clients -> broker-2",))


def cut_from_controllers(story: Story) -> None:
    story.fault("cut-2", "controller-1", "broker-2", directions=("broker-2 -> controller-1",))


def shrunk(story: Story) -> None:
    story.partition(2, (2,))


def few_controllers(story: Story) -> None:
    story.die("controller-1")
    story.die("controller-2")


def paused_controller(story: Story) -> None:
    story.fault("pause-2", "controller-1")


def parted_controllers(story: Story) -> None:
    ways = ("controller-1 -> controller-2", "controller-3 -> controller-1")
    story.fault("cut-2", "controller-1", "controller-2", "controller-3", directions=ways)


@pytest.mark.parametrize(
    ("lose", "excuse"),
    [
        (leader_cut, {"isr": ISR, "unaffected": 1}),
        (paused_member, {"isr": ISR, "unaffected": 1}),
        (second_death, {"isr": ISR, "unaffected": 1}),
        (doubled_member, {}),
        (cut_from_clients, {"isr": ISR, "unaffected": 1}),
        (cut_from_controllers, {"isr": ISR, "unaffected": 1}),
        (shrunk, {"isr": ISR[1:2], "unaffected": 1}),
        (few_controllers, {"running": 1, "voting": 3}),
        (paused_controller, {"fault": "pause-2", "process": slot_scope("controller-1")}),
        (
            parted_controllers,
            {
                "fault": "cut-2",
                "process": slot_scope("controller-1"),
                "other": slot_scope("controller-2"),
            },
        ),
    ],
)
def test_without_a_live_connected_majority_the_time_is_excused(
    lose: Callable[[Story], None], excuse: Facts
) -> None:
    story = stuck(Story(), 1_000)
    lose(story)
    story.after(STUCK_MS)
    found = writable(story)
    assert found.verdict is Outcome.NOT_EXERCISED
    assert found.excused == 1
    assert excuse.items() <= found.excuses[0].why.items()


def elsewhere(story: Story) -> None:
    """A broker that has no replica is isolated."""
    both = ("broker-4", "controller-1")
    story.fault("isolate-2", *both, directions=("broker-4 -> controller-1",))


def turned(story: Story) -> None:
    """The same, the other way."""
    both = ("broker-4", "controller-1")
    story.fault("isolate-2", *both, directions=("controller-1 -> broker-4",))


def dead_ones_link(story: Story) -> None:
    story.fault("cut-2", "broker-1", "broker-2", directions=("broker-1 -> broker-2",))


def silent_controller(story: Story) -> None:
    """A controller's own word about its role is no disturbance."""
    story.h.add("controller-2#1", NodeStarted(role="controller", node_id=102))


def admin_link(story: Story) -> None:
    story.fault("cut-2", "clients", "broker-1", directions=("clients -> broker-1",))


@pytest.mark.parametrize("lose", [elsewhere, turned, silent_controller])
def test_what_leaves_the_majority_alone_excuses_nothing(lose: Callable[[Story], None]) -> None:
    story = stuck(Story(), WRITABLE_MS // 2)
    lose(story)
    story.after(STUCK_MS - WRITABLE_MS // 2)
    assert writable(story).verdict is Outcome.VIOLATED


def test_a_disturbance_starts_the_bound_anew_and_is_the_excuse() -> None:
    story = stuck(Story(), 10_000)
    story.fault("pause-2", "broker-2#1")
    story.after(500).heal("pause-2")
    story.after(WRITABLE_MS - 500).complete("next")
    found = writable(story)
    assert (found.verdict, found.excused) == (Outcome.NOT_EXERCISED, 1)
    assert why(found, "partition", "unaffected") == ("orders-0", 1)


def test_after_that_the_bound_is_the_same() -> None:
    story = stuck(Story(), 10_000)
    story.fault("pause-2", "broker-2#1")
    story.after(500).heal("pause-2")
    story.after(STUCK_MS).complete("next")
    assert writable(story).verdict is Outcome.VIOLATED


def test_a_controllers_start_disturbs_where_none_acts_and_a_brokers_does_not() -> None:
    story = stuck(Story(acting=False), 10_000)
    story.die("controller-3")
    story.after(100).spawn("controller-3")
    story.after(10_000)
    excused = writable(story)
    assert (excused.verdict, excused.excused) == (Outcome.NOT_EXERCISED, 1)
    assert why(excused, "process") == "controller-3#2"
    story = stuck(Story(), 10_000)
    story.spawn("broker-1")
    story.heal("kill-1")
    story.after(10_000)
    assert writable(story).verdict is Outcome.VIOLATED


def test_a_time_that_was_over_when_the_fault_began_is_not_excused() -> None:
    story = stuck(Story())
    story.after(5_000).fault("pause-2", "broker-2#1", ago_ms=5_000)
    found = writable(story)
    assert (found.verdict, found.violated) == (Outcome.VIOLATED, 1)


def test_a_fault_that_began_before_the_bound_was_over_excuses() -> None:
    story = stuck(Story())
    story.after(5_000).fault("pause-2", "broker-2#1", ago_ms=7_000)
    assert writable(story).verdict is Outcome.NOT_EXERCISED


def test_an_excuse_is_printed_once() -> None:
    story = stuck(Story(), 1_000)
    paused_member(story)
    story.after(STUCK_MS)
    for number in range(3):
        story.invoke(f"op-{number}")
        story.complete(f"op-{number}", "unknown")
    assert writable(story).excused == 1


def test_a_leader_that_lives_but_is_affected_may_go_on_leading() -> None:
    story = Story()
    story.write("first")
    story.fault("pause-1", "broker-1#1")
    story.invoke("next")
    story.after(STUCK_MS)
    found = writable(story)
    assert found.verdict is Outcome.NOT_EXERCISED
    assert why(found, "leader") == "broker 1"


def test_a_leader_that_lives_and_takes_no_writes_breaks_the_promise() -> None:
    story = Story()
    story.write("first")
    story.die("broker-3")
    story.invoke("next")
    story.after(STUCK_MS)
    found = writable(story)
    assert found.verdict is Outcome.VIOLATED
    assert "former" not in found.violations[0].facts


def test_a_leader_and_a_follower_without_their_link_are_no_majority() -> None:
    story = Story()
    story.die("broker-3")
    dead_ones_link(story)
    story.invoke("next")
    story.after(STUCK_MS)
    assert writable(story).verdict is Outcome.NOT_EXERCISED


def test_a_follower_that_its_leader_does_not_reach_is_left_out() -> None:
    story = Story()
    story.write("first")
    dead_ones_link(story)
    story.invoke("next")
    story.after(STUCK_MS)
    assert writable(story).verdict is Outcome.VIOLATED


def test_a_partition_of_one_replica_is_promised_nothing() -> None:
    story = Story()
    story.partition(1, (1,), replicas=(1,))
    story.invoke("next")
    story.after(STUCK_MS)
    assert writable(story).verdict is Outcome.NOT_EXERCISED


def test_a_majority_is_more_than_half_of_the_replicas() -> None:
    story = Story()
    for number in (4, 5):
        story.spawn(f"broker-{number}")
    story.partition(1, (1, 2, 3), replicas=(1, 2, 3, 4, 5))
    story.write("first")
    story.die("broker-1")
    story.invoke("next")
    story.after(STUCK_MS)
    assert writable(story).verdict is Outcome.NOT_EXERCISED


def test_a_partition_of_which_nothing_is_committed_is_not_judged() -> None:
    story = Story()
    story.delete()
    story.invoke("next")
    story.after(STUCK_MS)
    found = writable(story)
    assert (found.verdict, found.excused) == (Outcome.NOT_EXERCISED, 1)
    assert stated(found.excuses[0], "partition") == "orders-0"


@pytest.mark.parametrize("how", ["delete", "mark"])
def test_a_deleted_topic_is_not_judged(how: str) -> None:
    story = stuck(Story(), 1_000)
    story.delete() if how == "delete" else story.mark()
    story.after(STUCK_MS)
    assert (writable(story).verdict, writable(story).excused) == (Outcome.NOT_EXERCISED, 0)


def test_what_the_end_of_the_run_stops_is_not_judged() -> None:
    story = stuck(Story(), 1_000)
    story.phase("drain")
    story.after(1_000).phase("end")
    story.after(STUCK_MS)
    assert writable(story).verdict is Outcome.NOT_EXERCISED


def test_what_was_too_late_when_the_end_began_is_judged() -> None:
    story = stuck(Story())
    story.phase("end")
    assert writable(story).verdict is Outcome.VIOLATED


def test_over_zookeeper_the_broker_that_controls_is_needed() -> None:
    story = Story(controllers=0)
    story.spawn("zookeeper-1")
    story.spawn("broker-4")
    story.h.add("broker-4#1", began(4))
    stuck(story, 1_000)
    story.fault("pause-2", "broker-4#1")
    story.after(STUCK_MS)
    found = writable(story)
    assert (found.verdict, found.excused) == (Outcome.NOT_EXERCISED, 1)
    assert why(found, "fault", "process") == ("pause-2", "broker-4")


def test_over_zookeeper_a_dead_controller_is_replaced_within_the_bound() -> None:
    story = Story(controllers=0)
    story.spawn("zookeeper-1")
    story.h.add("broker-1#1", began(1))
    assert writable(stuck(story)).verdict is Outcome.VIOLATED
