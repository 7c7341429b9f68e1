"""The rules of placement, reassignment and deletion, each with a violation, a near miss and an
undecided history."""

from __future__ import annotations

import pytest
from tests.suites.partition_histories import stated
from tests.suites.topics.topic_histories import ALL3, C1, Log, verdict

from fencepost import PromiseObserved
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import (
    AdminCompleted,
    BrokerDeleted,
    BrokersListed,
    ControllerElected,
    TopicMarked,
)

# ------------------------------------------------------------------------------------------ RP-01


def test_replicas_that_all_land_on_one_neighbour_break_rp_01() -> None:
    log = Log()
    log.partition(0, (1, 2))
    log.partition(3, (1, 2))
    assert stated(verdict(log.h, "RP-01"), "expected") == ("broker 1", "broker 3")


def test_replicas_placed_by_the_formula_keep_rp_01() -> None:
    log = Log()
    for number, replicas in enumerate(((1, 2), (2, 3), (3, 1), (1, 3))):
        log.partition(number, replicas)
    found = verdict(log.h, "RP-01")
    assert (found.verdict, found.exercised) == (Outcome.HOLDS, 1)
    assert verdict(log.h, "RP-01", complete=False).verdict is Outcome.UNKNOWN


def test_a_single_replica_has_no_neighbours_to_turn_by_rp_01() -> None:
    log = Log()
    for number, broker in enumerate((1, 2, 3, 1)):
        log.partition(number, (broker,))
    assert verdict(log.h, "RP-01").verdict is Outcome.NOT_EXERCISED


def test_replicas_on_all_live_brokers_have_an_order_by_rp_01() -> None:
    log = Log()
    log.partition(0, (2, 1, 3))
    assert stated(verdict(log.h, "RP-01"), "expected") == ("broker 1", "broker 2", "broker 3")


# ------------------------------------------------------------------------------------------ RP-28


def test_a_replica_on_a_fenced_broker_breaks_rp_28() -> None:
    log = Log(live=(1, 3), fenced=(2,))
    log.partition(0, (1, 2))
    assert stated(verdict(log.h, "RP-28"), "broker") == "broker 2"


def test_replicas_on_live_brokers_alone_keep_rp_28() -> None:
    log = Log(live=(1, 3), fenced=(2,))
    log.partition(0, (1, 3))
    assert verdict(log.h, "RP-28").verdict is Outcome.HOLDS
    assert verdict(log.h, "RP-28", complete=False).verdict is Outcome.UNKNOWN


def test_a_topic_created_while_all_brokers_were_live_does_not_exercise_rp_28() -> None:
    log = Log()
    log.partition(0, ALL3)
    assert verdict(log.h, "RP-28").verdict is Outcome.NOT_EXERCISED


def test_a_replica_whose_broker_is_fenced_later_was_not_placed_there_then() -> None:
    log = Log()
    log.partition(0, (1, 2))
    log.broker(2, fenced=True)
    log.partition(0, (1, 2), 1, 1, isr=(1,))
    assert verdict(log.h, "RP-28").verdict is Outcome.NOT_EXERCISED


def test_a_topic_that_is_made_again_is_placed_again() -> None:
    log = Log()
    log.partition(0, (1, 2))
    log.broker(2, fenced=True)
    log.topic(deleted=True)
    log.partition(0, (1, 2))
    assert verdict(log.h, "RP-28").verdict is Outcome.VIOLATED


def read_late() -> Log:
    """A topic's partitions are read one by one, and the end of broker 2, which came after them, is
    read before the last."""
    log = Log()
    made = log.offset
    log.partition(0, (1, 2))
    log.broker(2, fenced=True, offset=made + 5)
    log.partition(1, (2, 3))
    log.partition(2, (3, 1))
    log.partition(3, (1, 3))
    return log


@pytest.mark.parametrize("clause", ["RP-01", "RP-28"])
def test_a_broker_was_live_when_a_partition_was_stored_though_its_end_was_read_first(
    clause: str,
) -> None:
    log = read_late()
    found = verdict(log.h, clause)
    assert found.verdict is not Outcome.VIOLATED, found.violations


def test_a_broker_was_dead_when_a_partition_was_stored_though_its_return_was_read_first() -> None:
    log = Log(live=(1, 3), fenced=(2,))
    log.broker(2, offset=log.offset + 2)
    log.partition(0, (1, 2))
    assert stated(verdict(log.h, "RP-28"), "broker") == "broker 2"


@pytest.mark.parametrize("clause", ["RP-01", "RP-28"])
def test_a_broker_that_the_list_of_a_new_process_does_not_name_is_not_live(clause: str) -> None:
    log = Log()
    log.offset += 1
    log.h.add(C1, BrokersListed(offset=log.offset, live=(1, 3)))
    log.partition(0, (1, 3))
    log.partition(1, (3, 1))
    found = verdict(log.h, clause)
    assert found.verdict is not Outcome.VIOLATED, found.violations
    log.partition(2, (2, 1))
    assert verdict(log.h, "RP-28").verdict is Outcome.VIOLATED


def test_a_deleted_broker_is_not_live_and_was_before() -> None:
    log = Log()
    log.deleted_broker(2)
    log.partition(0, (1, 2))
    assert verdict(log.h, "RP-28").verdict is Outcome.VIOLATED
    before = Log()
    before.h.add(C1, BrokerDeleted(offset=before.offset + 2, broker_id=2))
    before.partition(0, (1, 2))
    assert verdict(before.h, "RP-28").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ RP-03


def added(log: Log, outcome: str = "ok", brokers: str = "4", api: str = "add_brokers") -> None:
    log.h.add(
        "clients/admin#1",
        AdminCompleted(operation="op", api=api, subject=brokers, outcome=outcome, error=""),
    )


def three_on_three() -> Log:
    log = Log()
    for number, replicas in enumerate(((1, 2), (2, 3), (3, 1), (1, 3))):
        log.partition(number, replicas)
    log.broker(4)
    return log


def test_a_move_between_old_brokers_breaks_rp_03() -> None:
    log = three_on_three()
    log.partition(0, (4, 3, 1, 2), 1, 1, isr=(1, 2), adding=(4, 3), removing=(1, 2))
    added(log)
    assert stated(verdict(log.h, "RP-03"), "broker") == "broker 3"


def test_too_little_for_the_new_broker_breaks_rp_03() -> None:
    log = three_on_three()
    added(log)
    assert stated(verdict(log.h, "RP-03"), "counts") == (3, 2, 3, 0)


def test_counts_that_were_uneven_before_need_not_be_even_after() -> None:
    log = Log()
    for number in range(3):
        log.partition(number, (1,))
    log.broker(4)
    added(log)
    assert verdict(log.h, "RP-03").verdict is Outcome.NOT_EXERCISED


def test_a_call_that_failed_does_not_exercise_rp_03() -> None:
    log = three_on_three()
    added(log, outcome="unknown")
    assert verdict(log.h, "RP-03").verdict is Outcome.NOT_EXERCISED


def test_moves_to_the_new_broker_alone_keep_rp_03() -> None:
    log = three_on_three()
    log.partition(0, (4, 2, 1), 1, 1, isr=(1, 2), adding=(4,), removing=(1,))
    log.partition(1, (2, 4, 3), 2, 1, isr=(2, 3), adding=(4,), removing=(3,))
    added(log)
    assert verdict(log.h, "RP-03").verdict is Outcome.HOLDS
    assert verdict(log.h, "RP-03", complete=False).verdict is Outcome.UNKNOWN


@pytest.mark.parametrize("api", ["add_brokers", "rebalance", "reassign"])
def test_moves_of_an_earlier_call_are_not_of_the_next_one(api: str) -> None:
    log = three_on_three()
    log.partition(0, (4, 2, 1), 1, 1, isr=(1, 2), adding=(4,), removing=(1,))
    log.partition(1, (2, 4, 3), 2, 1, isr=(2, 3), adding=(4,), removing=(3,))
    added(log, api=api)
    log.broker(5)
    log.partition(2, (3, 5, 1), 3, 1, isr=(3, 1), adding=(5,), removing=(1,))
    added(log, brokers="5")
    assert verdict(log.h, "RP-03").verdict is Outcome.HOLDS


def test_moves_before_a_call_of_another_kind_are_of_this_one() -> None:
    log = three_on_three()
    log.partition(0, (4, 3, 1, 2), 1, 1, isr=(1, 2), adding=(4, 3), removing=(1, 2))
    added(log, api="create_topic")
    added(log)
    assert verdict(log.h, "RP-03").verdict is Outcome.VIOLATED


# ------------------------------------------------------------------------------------------ RP-20


def moving(isr: tuple[int, ...]) -> Log:
    log = Log(live=(1, 2, 3, 4))
    log.partition(0, ALL3)
    log.partition(0, (4, 2, 3, 1), 1, 1, isr=ALL3, adding=(4,), removing=(1,))
    if isr != ALL3:
        log.partition(0, (4, 2, 3, 1), 1, 2, isr=isr, adding=(4,), removing=(1,))
    return log


def test_a_switch_before_a_new_replica_caught_up_breaks_rp_20() -> None:
    log = moving(ALL3)
    log.partition(0, (4, 2, 3), 4, 2)
    assert stated(verdict(log.h, "RP-20"), "early") == ("broker 4",)


def test_a_switch_once_all_are_in_the_isr_keeps_rp_20() -> None:
    log = moving((1, 2, 3, 4))
    log.partition(0, (4, 2, 3), 4, 3)
    assert verdict(log.h, "RP-20").verdict is Outcome.HOLDS
    assert verdict(log.h, "RP-20", complete=False).verdict is Outcome.UNKNOWN


def test_a_cancelled_reassignment_needs_no_replica_to_catch_up() -> None:
    log = moving((1, 2))
    log.partition(0, (2, 3, 1), 1, 3, (1, 2))
    assert verdict(log.h, "RP-20").verdict is Outcome.NOT_EXERCISED


def test_an_addition_that_is_called_off_needs_no_replica_to_catch_up() -> None:
    log = Log(live=(1, 2, 3, 4))
    log.partition(0, ALL3)
    log.partition(0, (1, 2, 3, 4), 1, 1, isr=(1, 2), adding=(4,))
    log.partition(0, ALL3, 1, 2, isr=(1, 2))
    assert verdict(log.h, "RP-20").verdict is Outcome.NOT_EXERCISED


def test_a_switch_to_new_replicas_alone_exercises_rp_20() -> None:
    log = Log(live=(1, 2, 3, 4))
    log.partition(0, (1, 2))
    log.partition(0, (3, 4, 1, 2), 1, 1, isr=(1, 2, 3, 4), adding=(3, 4), removing=(1, 2))
    log.partition(0, (3, 4), 3, 2)
    assert verdict(log.h, "RP-20").verdict is Outcome.HOLDS


@pytest.mark.parametrize("leader", [0, 1])
def test_a_removed_replica_that_goes_on_leading_breaks_rp_20(leader: int) -> None:
    log = Log(live=(leader, 2, 3))
    log.partition(0, (leader, 2), isr=(leader, 2, 3))
    log.partition(0, (3, leader, 2), leader, 1, adding=(3,), removing=(leader,))
    log.partition(0, (3, 2), leader, 2)
    assert stated(verdict(log.h, "RP-20"), "leader") == f"broker {leader}"


def test_replicas_that_change_in_one_step_break_rp_20_unless_they_are_in_the_isr() -> None:
    log = Log(live=(1, 2, 3, 4))
    log.partition(0, ALL3)
    log.partition(0, (4, 2, 3), 2, 1, isr=(2, 3))
    assert stated(verdict(log.h, "RP-20"), "early") == ("broker 4",)


def test_a_replica_that_leaves_the_isr_and_returns_is_no_reassignment() -> None:
    log = Log()
    log.partition(0, ALL3)
    log.partition(0, ALL3, 1, 1, isr=(1, 2))
    log.partition(0, ALL3, 1, 2)
    assert verdict(log.h, "RP-20").verdict is Outcome.NOT_EXERCISED


def test_a_topic_that_is_made_again_ends_no_reassignment_of_its_former_one() -> None:
    log = moving(ALL3)
    log.topic(deleted=True)
    log.partition(0, (4, 2, 3))
    assert verdict(log.h, "RP-20").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ QC-26


def test_a_deleted_broker_that_registers_and_is_still_in_an_isr_breaks_qc_26() -> None:
    log = Log()
    log.partition(0, ALL3)
    log.deleted_broker(2)
    log.broker(2, fenced=True)
    assert verdict(log.h, "QC-26").verdict is Outcome.UNKNOWN
    log.h.after(10_000)
    assert verdict(log.h, "QC-26", complete=False).verdict is Outcome.UNKNOWN
    assert stated(verdict(log.h, "QC-26"), "places") == ("orders-0",)


@pytest.mark.parametrize(("more_ms", "violated"), [(0, 0), (1, 1)])
@pytest.mark.parametrize("registers", [False, True])
def test_a_deleted_broker_loses_its_places_within_ten_seconds(
    registers: bool, more_ms: int, violated: int
) -> None:
    log = Log()
    log.partition(0, ALL3)
    log.deleted_broker(2)
    if registers:
        log.broker(2, fenced=True)
    log.h.after(10_000 - 1 - registers + more_ms)
    log.partition(0, ALL3, 1, 1, isr=(1, 3))
    assert verdict(log.h, "QC-26").violated == violated


def test_a_deleted_broker_that_left_keeps_qc_26_and_a_last_member_may_stay() -> None:
    log = Log()
    log.partition(0, ALL3)
    log.partition(1, (2, 3, 1), 2, 3, isr=(2,))
    log.deleted_broker(2)
    log.partition(0, ALL3, 1, 1, isr=(1, 3))
    log.partition(1, (2, 3, 1), -1, 4, isr=(2,))
    assert verdict(log.h, "QC-26").verdict is Outcome.HOLDS


def test_a_deleted_broker_owes_nothing_to_partitions_without_it() -> None:
    log = Log()
    log.partition(0, ALL3)
    log.partition(1, (2, 3))
    log.deleted_broker(1)
    log.partition(0, ALL3, 2, 1, isr=(2, 3))
    assert verdict(log.h, "QC-26").verdict is Outcome.HOLDS


def test_a_deleted_broker_that_still_leads_as_the_last_member_breaks_qc_26() -> None:
    log = Log()
    log.partition(0, ALL3, 1, isr=(1,))
    log.deleted_broker(1)
    log.h.after(10_000)
    assert stated(verdict(log.h, "QC-26"), "places") == ("orders-0",)


def test_a_deleted_broker_may_be_the_last_member_of_a_partition_that_has_no_leader() -> None:
    log = Log()
    log.partition(0, ALL3, -1, isr=(1,))
    log.deleted_broker(1)
    assert verdict(log.h, "QC-26").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("leader", "isr"), [(1, ALL3), (2, (2,)), (2, (1, 3))])
def test_a_deleted_broker_that_keeps_a_place_in_the_next_record_breaks_qc_26(
    leader: int, isr: tuple[int, ...]
) -> None:
    log = Log()
    log.partition(0, ALL3, 2)
    log.deleted_broker(2)
    log.partition(0, ALL3, leader, 1, isr=isr)
    log.h.after(10_000)
    found = verdict(log.h, "QC-26")
    assert (found.violated, found.exercised) == (1, 0)


def test_a_deleted_broker_that_left_may_register_again() -> None:
    log = Log()
    log.partition(0, ALL3)
    log.deleted_broker(2)
    log.partition(0, ALL3, 1, 1, isr=(1, 3))
    log.broker(2, fenced=True)
    assert verdict(log.h, "QC-26").verdict is Outcome.HOLDS


def test_a_deleted_broker_has_no_place_in_a_topic_that_is_deleted_too() -> None:
    log = Log()
    log.partition(0, ALL3)
    log.deleted_broker(2)
    log.topic(deleted=True)
    assert verdict(log.h, "QC-26").verdict is Outcome.NOT_EXERCISED


def marked() -> Log:
    log = Log()
    log.h.add(C1, TopicMarked(offset=9, topic="orders", topic_id="t"))
    log.offset = 9
    log.h.add("controller-2#1", ControllerElected(epoch=2, log_end=10, last_epoch=1))
    return log


def test_a_marked_topic_that_a_later_controller_deletes_keeps_qc_26() -> None:
    log = marked()
    log.topic(deleted=True)
    assert verdict(log.h, "QC-26").verdict is Outcome.HOLDS


def test_a_marked_topic_that_stays_breaks_qc_26_or_leaves_it_undecided() -> None:
    assert verdict(marked().h, "QC-26").verdict is Outcome.UNKNOWN
    log = marked()
    log.h.after(11_000)
    assert stated(verdict(log.h, "QC-26"), "topic_id") == "t"


@pytest.mark.parametrize(("more_ms", "expected"), [(0, Outcome.UNKNOWN), (1, Outcome.VIOLATED)])
def test_a_marked_topic_must_be_gone_after_ten_seconds(more_ms: int, expected: Outcome) -> None:
    log = marked()
    # The later controller was elected 1 ms ago.
    log.h.after(10_000 - 1 + more_ms)
    assert verdict(log.h, "QC-26").verdict is expected


def test_a_mark_that_a_process_replays_after_the_deletion_marks_nothing() -> None:
    log = marked()
    log.topic(deleted=True)
    log.h.add("controller-3#2", TopicMarked(offset=9, topic="orders", topic_id="t"))
    log.h.after(11_000)
    assert verdict(log.h, "QC-26").verdict is Outcome.HOLDS


# ------------------------------------------------------------------------------------------ RP-33


@pytest.mark.parametrize(("held", "outcome"), [(True, Outcome.HOLDS), (False, Outcome.VIOLATED)])
def test_rp_33_is_judged_by_a_tests_observation(held: bool, outcome: Outcome) -> None:
    h = HistoryBuilder()
    h.add(
        "harness",
        PromiseObserved(clause="RP-33", held=held, evidence="brokers were added", seen_by="client"),
    )
    assert verdict(h, "RP-33").verdict is outcome
    assert verdict(HistoryBuilder(), "RP-33").verdict is Outcome.NOT_EXERCISED
