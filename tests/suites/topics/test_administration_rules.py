"""The rules of placement, elections, reassignment and deletion, each with a violation, a near miss
and an undecided history."""

from __future__ import annotations

import pytest

from fencepost import PromiseObserved
from fencepost.testing import HistoryBuilder, Outcome, Verdict, judge
from fencepost_kafka import (
    AdminCompleted,
    BrokerCommitted,
    BrokerDeleted,
    ControllerBegan,
    ControllerElected,
    HeartbeatAnswered,
    HeartbeatSent,
    MetadataHeartbeatAnswered,
    MetadataHeartbeatSent,
    PartitionCommitted,
    TopicCommitted,
    TopicMarked,
)
from fencepost_suites import rules
from fencepost_suites.clauses import clauses

CLAUSES = {clause.id: clause for clause in clauses()}
C1, B2, B2_AGAIN = "controller-1#1", "broker-2#1", "broker-2#2"
ALL3 = (1, 2, 3)


def verdict(h: HistoryBuilder, clause: str, complete: bool = True) -> Verdict:
    chosen = [rule for rule in rules.ALL if rule.clause == clause]
    return judge(h.events(), chosen, CLAUSES, h.end(complete), "quorum").verdicts[clause]


class Log:
    """A metadata log that one controller replays, record by record."""

    def __init__(self, live: tuple[int, ...] = ALL3, fenced: tuple[int, ...] = ()) -> None:
        self.h = HistoryBuilder()
        self.offset = 0
        for broker in live:
            self.broker(broker)
        for broker in fenced:
            self.broker(broker, fenced=True)

    def broker(self, broker: int, fenced: bool = False) -> None:
        self.offset += 1
        self.h.add(
            C1,
            BrokerCommitted(
                offset=self.offset,
                broker_id=broker,
                broker_epoch=self.offset,
                fenced=fenced,
                incarnation=f"u{broker}",
            ),
        )

    def partition(
        self,
        partition: int,
        replicas: tuple[int, ...],
        leader: int | None = None,
        epoch: int = 0,
        isr: tuple[int, ...] | None = None,
        adding: tuple[int, ...] = (),
        removing: tuple[int, ...] = (),
    ) -> None:
        self.offset += 1
        first = replicas[0] if leader is None else leader
        members = replicas if isr is None else isr
        self.h.add(
            C1,
            PartitionCommitted(
                offset=self.offset,
                topic="orders",
                partition=partition,
                leader=first,
                leader_epoch=epoch,
                isr=members,
                replicas=replicas,
                adding=adding,
                removing=removing,
            ),
        )

    def deleted_broker(self, broker: int) -> None:
        self.offset += 1
        self.h.add(C1, BrokerDeleted(offset=self.offset, broker_id=broker))

    def topic(self, deleted: bool, process: str = C1) -> None:
        self.offset += 1
        self.h.add(
            process,
            TopicCommitted(offset=self.offset, topic="orders", topic_id="t", deleted=deleted),
        )


# ------------------------------------------------------------------------------------------ RP-01


def test_replicas_that_all_land_on_one_neighbour_break_rp_01() -> None:
    log = Log()
    log.partition(0, (1, 2))
    log.partition(3, (1, 2))
    assert "belongs on [1, 3]" in verdict(log.h, "RP-01").violations[0].message


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


# ------------------------------------------------------------------------------------------ RP-28


def test_a_replica_on_a_fenced_broker_breaks_rp_28() -> None:
    log = Log(live=(1, 3), fenced=(2,))
    log.partition(0, (1, 2))
    assert "broker 2, which is fenced" in verdict(log.h, "RP-28").violations[0].message


def test_replicas_on_live_brokers_alone_keep_rp_28() -> None:
    log = Log(live=(1, 3), fenced=(2,))
    log.partition(0, (1, 3))
    assert verdict(log.h, "RP-28").verdict is Outcome.HOLDS
    assert verdict(log.h, "RP-28", complete=False).verdict is Outcome.UNKNOWN


def test_a_topic_created_while_all_brokers_were_live_does_not_exercise_rp_28() -> None:
    log = Log()
    log.partition(0, ALL3)
    assert verdict(log.h, "RP-28").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ RP-03


def added(log: Log, outcome: str = "ok") -> None:
    log.h.add(
        "clients/admin#1",
        AdminCompleted(operation="op", api="add_brokers", subject="4", outcome=outcome, error=""),
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
    assert "to broker 3 as well" in verdict(log.h, "RP-03").violations[0].message


def test_too_little_for_the_new_broker_breaks_rp_03() -> None:
    log = three_on_three()
    added(log)
    assert "are to hold [3, 2, 3, 0]" in verdict(log.h, "RP-03").violations[0].message


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
    assert "while brokers [4] were not in the ISR" in verdict(log.h, "RP-20").violations[0].message


def test_a_switch_once_all_are_in_the_isr_keeps_rp_20() -> None:
    log = moving((1, 2, 3, 4))
    log.partition(0, (4, 2, 3), 4, 3)
    assert verdict(log.h, "RP-20").verdict is Outcome.HOLDS
    assert verdict(log.h, "RP-20", complete=False).verdict is Outcome.UNKNOWN


def test_a_cancelled_reassignment_needs_no_replica_to_catch_up() -> None:
    log = moving((1, 2))
    log.partition(0, (2, 3, 1), 1, 3, (1, 2))
    assert verdict(log.h, "RP-20").verdict is Outcome.NOT_EXERCISED


def test_replicas_that_change_in_one_step_break_rp_20_unless_they_are_in_the_isr() -> None:
    log = Log(live=(1, 2, 3, 4))
    log.partition(0, ALL3)
    log.partition(0, (4, 2, 3), 2, 1, isr=(2, 3))
    assert "while brokers [4] were not in the ISR" in verdict(log.h, "RP-20").violations[0].message


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


# ------------------------------------------------------------------------------------------ RP-02


def eligible_leaders(*leaders: int) -> Log:
    log = Log()
    for number, replicas in enumerate(((1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 3, 2))):
        log.partition(number, replicas)
    log.broker(1, fenced=True)
    for number, leader in zip((0, 3), leaders, strict=False):
        log.partition(number, (1, 2, 3), leader, 1, (2, 3))
    return log


def test_leaderships_that_all_go_to_one_survivor_break_rp_02() -> None:
    assert "[2, 3] got [2, 0]" in verdict(eligible_leaders(2, 2).h, "RP-02").violations[0].message


def test_leaderships_shared_by_the_survivors_keep_rp_02() -> None:
    assert verdict(eligible_leaders(2, 3).h, "RP-02").verdict is Outcome.HOLDS
    assert verdict(eligible_leaders(2, 3).h, "RP-02", complete=False).verdict is Outcome.UNKNOWN


def test_until_all_have_moved_rp_02_is_not_exercised() -> None:
    assert verdict(eligible_leaders(2).h, "RP-02").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ RP-21


def led_by_another() -> Log:
    log = Log()
    log.partition(0, ALL3)
    log.partition(0, ALL3, 2, 1)
    return log


def looked(log: Log) -> None:
    log.h.add(
        C1,
        HeartbeatAnswered(
            client=B2,
            broker_id=2,
            incarnation="u2",
            request_epoch=5,
            broker_epoch=5,
            error="NONE",
            next_state="ACTIVE",
            lease_start_ms=0,
            lease_end_ms=3000,
            lease_period_ms=3000,
            controller_epoch=1,
            active_controller=101,
            active=True,
            balance_ms=1000,
        ),
    )


def began_again(log: Log) -> None:
    log.h.add(
        C1,
        ControllerBegan(
            epoch=2, broker_id=3, first=False, heartbeat_timeout_ms=2000, balance_ms=1000
        ),
    )


def heard(log: Log) -> None:
    """The controller over ZooKeeper accepts a heartbeat."""
    log.h.add(
        C1,
        MetadataHeartbeatAnswered(
            client=B2,
            broker_id=2,
            incarnation_id=20,
            known=20,
            target_state=2,
            error="NONE",
            state="Active",
            controller_epoch=2,
            active=True,
        ),
    )


def test_leadership_that_never_goes_back_breaks_rp_21() -> None:
    log = led_by_another()
    log.h.after(5_000)
    looked(log)
    assert "and broker 2 leads" in verdict(log.h, "RP-21").violations[0].message


def test_leadership_that_goes_back_keeps_rp_21() -> None:
    log = led_by_another()
    log.partition(0, ALL3, 1, 2)
    log.h.after(5_000)
    looked(log)
    assert verdict(log.h, "RP-21").verdict is Outcome.HOLDS
    assert verdict(log.h, "RP-21", complete=False).verdict is Outcome.UNKNOWN


@pytest.mark.parametrize("why", ["fenced", "stopping", "over zookeeper", "out", "new"])
def test_leadership_need_not_go_back_to_a_broker_that_cannot_have_it(why: str) -> None:
    log = led_by_another()
    log.h.after(2_500)
    if why == "fenced":
        log.broker(1, fenced=True)
    elif why == "stopping":
        log.h.add(
            "broker-1#1",
            HeartbeatSent(
                broker_id=1,
                broker_epoch=5,
                controller=101,
                correlation=9,
                target_state="SHUTDOWN",
                lease_start_ms=0,
                metadata_offset=5,
            ),
        )
    elif why == "over zookeeper":
        stops = MetadataHeartbeatSent(
            broker_id=1, incarnation_id=10, controller=3, correlation=9, target_state=3
        )
        log.h.add("broker-1#1", stops)
    elif why == "out":
        log.partition(0, ALL3, 2, 2, isr=(2, 3))
    else:
        log.h.add(C1, ControllerElected(epoch=2, log_end=9, last_epoch=1))
    log.h.after(2_500)
    looked(log)
    assert verdict(log.h, "RP-21").verdict is Outcome.NOT_EXERCISED


def test_leadership_that_leaves_a_broker_that_could_not_go_on_does_not_exercise_rp_21() -> None:
    log = led_by_another()
    log.partition(0, ALL3, 1, 2, isr=(1, 3))
    assert verdict(log.h, "RP-21").verdict is Outcome.NOT_EXERCISED


def test_a_partition_that_is_deleted_need_not_be_led_by_its_preferred_replica() -> None:
    log = led_by_another()
    log.topic(deleted=True)
    log.h.after(60_000)
    looked(log)
    assert verdict(log.h, "RP-21").verdict is Outcome.NOT_EXERCISED


def test_a_new_controller_over_zookeeper_has_its_whole_time_to_move_leadership_back() -> None:
    log = led_by_another()
    log.h.after(60_000)
    began_again(log)
    log.h.after(3_900)
    heard(log)
    assert verdict(log.h, "RP-21").verdict is Outcome.NOT_EXERCISED
    log.h.after(200)
    heard(log)
    assert verdict(log.h, "RP-21").verdict is Outcome.VIOLATED


# ------------------------------------------------------------------------------------------ QC-26


def test_a_deleted_broker_that_registers_and_is_still_in_an_isr_breaks_qc_26() -> None:
    log = Log()
    log.partition(0, ALL3)
    log.deleted_broker(2)
    log.broker(2, fenced=True)
    assert "kept its place in orders-0" in verdict(log.h, "QC-26").violations[0].message


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
    assert "kept its place in orders-0" in verdict(log.h, "QC-26").violations[0].message


def test_a_deleted_broker_may_be_the_last_member_of_a_partition_that_has_no_leader() -> None:
    log = Log()
    log.partition(0, ALL3, -1, isr=(1,))
    log.deleted_broker(1)
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
    assert "is still there" in verdict(log.h, "QC-26").violations[0].message


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
