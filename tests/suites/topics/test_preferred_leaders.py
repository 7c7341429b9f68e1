"""The rules of elections: that leaderships spread, and that the preferred replica leads again. Each
has a violation, a near miss and an undecided history."""

from __future__ import annotations

from typing import Literal

import pytest
from tests.suites.partition_histories import stated
from tests.suites.topics.topic_histories import ALL3, B2, C1, Log, verdict

from fencepost.testing import Outcome
from fencepost_kafka import (
    ControllerBegan,
    ControllerElected,
    HeartbeatAnswered,
    HeartbeatSent,
    MetadataHeartbeatAnswered,
    MetadataHeartbeatSent,
)

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
    found = verdict(eligible_leaders(2, 2).h, "RP-02")
    assert stated(found, "survivors", "got") == ((2, 3), (2, 0))


def test_leaderships_shared_by_the_survivors_keep_rp_02() -> None:
    assert verdict(eligible_leaders(2, 3).h, "RP-02").verdict is Outcome.HOLDS
    assert verdict(eligible_leaders(2, 3).h, "RP-02", complete=False).verdict is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("leaders", "outcome"), [((2, 3, 2), Outcome.HOLDS), ((2, 2, 2), Outcome.VIOLATED)]
)
def test_survivors_may_differ_by_one_leadership(leaders: tuple[int, ...], outcome: Outcome) -> None:
    log = Log()
    lists = ((1, 2, 3), (1, 3, 2), (1, 2, 3))
    for number, replicas in enumerate(lists):
        log.partition(number, replicas)
    log.broker(1, fenced=True)
    for number, replicas in enumerate(lists):
        log.partition(number, replicas, leaders[number], 1, (2, 3))
    assert verdict(log.h, "RP-02").verdict is outcome


def test_until_all_have_moved_rp_02_is_not_exercised() -> None:
    assert verdict(eligible_leaders(2).h, "RP-02").verdict is Outcome.NOT_EXERCISED


def test_a_survivor_that_fails_before_all_have_moved_leaves_rp_02_open() -> None:
    log = Log()
    for number, replicas in enumerate(((1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 3, 2))):
        log.partition(number, replicas)
    log.broker(1, fenced=True)
    log.partition(0, (1, 2, 3), 2, 1, (2, 3))
    log.broker(3, fenced=True)
    log.partition(3, (1, 3, 2), 2, 1, (2,))
    assert verdict(log.h, "RP-02").verdict is Outcome.NOT_EXERCISED


def led_by_first(*replicas: tuple[int, ...], isr: tuple[int, ...] | None = None) -> Log:
    """Partitions with these replicas, which broker 1 leads."""
    log = Log()
    for number, one in enumerate(replicas):
        log.partition(number, one, 1, isr=isr)
    return log


def all_to_2(log: Log, partitions: int) -> None:
    for number in range(partitions):
        log.partition(number, log.replicas(number), 2, 9, (2, 3))


def test_a_broker_that_came_back_before_all_have_moved_has_not_failed() -> None:
    log = led_by_first((1, 2, 3), (1, 3, 2))
    log.broker(1, fenced=True)
    log.broker(1)
    all_to_2(log, 2)
    assert verdict(log.h, "RP-02").verdict is Outcome.NOT_EXERCISED


def test_a_broker_that_is_registered_again_has_not_failed() -> None:
    log = led_by_first((1, 2, 3), (2, 1, 3), (3, 1, 2))
    log.broker(1)
    all_to_2(log, 3)
    assert verdict(log.h, "RP-02").verdict is Outcome.NOT_EXERCISED


def test_a_topic_that_is_deleted_before_a_broker_fails_was_not_led_by_it() -> None:
    log = led_by_first((1, 2, 3), (1, 3, 2))
    log.topic(deleted=True)
    log.broker(1, fenced=True)
    all_to_2(log, 2)
    all_to_2(log, 2)
    assert verdict(log.h, "RP-02").verdict is Outcome.NOT_EXERCISED


def test_partitions_without_a_full_isr_need_not_spread() -> None:
    log = led_by_first((1, 2, 3), (1, 3, 2), isr=(1, 2))
    log.broker(1, fenced=True)
    all_to_2(log, 2)
    assert verdict(log.h, "RP-02").verdict is Outcome.NOT_EXERCISED


def test_fewer_partitions_than_survivors_need_not_spread() -> None:
    log = led_by_first((1, 2, 3))
    log.broker(1, fenced=True)
    all_to_2(log, 1)
    assert verdict(log.h, "RP-02").verdict is Outcome.NOT_EXERCISED


def test_records_of_former_leaders_that_are_replayed_late_move_nothing() -> None:
    log = Log()
    lists = ((1, 2, 3), (1, 3, 2))
    for number, replicas in enumerate(lists):
        log.partition(number, replicas, 2)
    former = log.h.events()[-2:]
    for number, replicas in enumerate(lists):
        log.partition(number, replicas, 1, 1)
    log.broker(1, fenced=True)
    for event in former:
        log.h.add(B2, event.body)
    assert verdict(log.h, "RP-02").verdict is Outcome.NOT_EXERCISED


def test_one_failure_exercises_rp_02_once() -> None:
    log = eligible_leaders(2, 3)
    log.partition(0, (1, 2, 3), 3, 2, (2, 3))
    assert verdict(log.h, "RP-02").exercised == 1


# ------------------------------------------------------------------------------------------ RP-21


def led_by_another() -> Log:
    log = Log()
    log.partition(0, ALL3)
    log.partition(0, ALL3, 2, 1)
    return log


def looked(log: Log, *, active: bool = True, error: str = "NONE", balance_ms: int = 1_000) -> None:
    log.h.add(
        C1,
        HeartbeatAnswered(
            client=B2,
            broker_id=2,
            incarnation="u2",
            request_epoch=5,
            broker_epoch=5,
            error=error,
            next_state="ACTIVE",
            lease_start_ms=0,
            lease_end_ms=3000,
            lease_period_ms=3000,
            controller_epoch=1,
            active_controller=101,
            active=active,
            balance_ms=balance_ms,
        ),
    )


def wants(log: Log, target: Literal["ACTIVE", "SHUTDOWN"], epoch: int = 5) -> None:
    """Broker 1 sends a heartbeat."""
    body = HeartbeatSent(
        broker_id=1,
        broker_epoch=epoch,
        controller=101,
        correlation=9,
        target_state=target,
        lease_start_ms=0,
        metadata_offset=5,
    )
    log.h.add("broker-1#1", body)


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
    assert stated(verdict(log.h, "RP-21"), "leader") == "broker 2"


@pytest.mark.parametrize(("more_ms", "expected"), [(0, 0), (1, 1)])
def test_the_bound_belongs_to_the_time_in_which_leadership_goes_back(
    more_ms: int, expected: int
) -> None:
    log = led_by_another()
    # The record was written 1 ms ago; the controller checks once a second.
    log.h.after(2 * 1_000 + 2_000 - 1 + more_ms)
    looked(log)
    assert verdict(log.h, "RP-21").violated == expected


@pytest.mark.parametrize(
    ("active", "error", "balance_ms"),
    [(False, "NONE", 1_000), (True, "STALE_BROKER_EPOCH", 1_000), (True, "NONE", 0)],
)
def test_only_an_answer_of_a_controller_that_checks_shows_that_it_did_not(
    active: bool, error: str, balance_ms: int
) -> None:
    log = led_by_another()
    log.h.after(5_000)
    looked(log, active=active, error=error, balance_ms=balance_ms)
    assert verdict(log.h, "RP-21").verdict is Outcome.NOT_EXERCISED


def test_a_controller_over_zookeeper_that_says_no_interval_owes_nothing() -> None:
    log = led_by_another()
    log.h.after(60_000)
    heard(log)
    assert verdict(log.h, "RP-21").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(
    ("adding", "removing", "violated"), [((4,), (), 0), ((), (3,), 0), ((), (), 1)]
)
def test_a_partition_that_moves_owes_its_preferred_replica_nothing(
    adding: tuple[int, ...], removing: tuple[int, ...], violated: int
) -> None:
    log = led_by_another()
    log.partition(0, (*ALL3, *adding), 2, 2, ALL3, adding=adding, removing=removing)
    log.h.after(60_000)
    looked(log)
    assert verdict(log.h, "RP-21").violated == violated


@pytest.mark.parametrize(("epoch", "violated"), [(-1, 1), (0, 0)], ids=["new", "the same"])
def test_a_process_that_stops_does_so_until_another_begins(epoch: int, violated: int) -> None:
    log = led_by_another()
    wants(log, "SHUTDOWN")
    wants(log, "ACTIVE", epoch)
    log.h.after(5_000)
    looked(log)
    assert verdict(log.h, "RP-21").violated == violated


def test_leadership_returns_from_the_broker_0_by_way_of_a_vacancy() -> None:
    log = Log(live=(0, 1, 2))
    replicas = (1, 0, 2)
    for epoch, leader in enumerate((0, -1, 1)):
        log.partition(0, replicas, leader, epoch)
    assert verdict(log.h, "RP-21").verdict is Outcome.HOLDS


def test_the_first_leader_of_a_topic_that_is_made_again_has_followed_none() -> None:
    log = led_by_another()
    log.topic(deleted=True)
    for epoch, leader in enumerate((-1, 1)):
        log.partition(0, ALL3, leader, epoch)
    assert verdict(log.h, "RP-21").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(
    ("replicas", "isr"),
    [((2, 1, 3), ALL3), (ALL3, (2, 3))],
    ids=["it was not preferred", "it was not in the ISR"],
)
def test_a_preferred_replica_that_could_not_lead_before_does_not_lead_again(
    replicas: tuple[int, ...], isr: tuple[int, ...]
) -> None:
    log = Log()
    log.partition(0, replicas, 2, 1, isr)
    log.partition(0, ALL3, 1, 2)
    assert verdict(log.h, "RP-21").verdict is Outcome.NOT_EXERCISED


def test_a_leadership_that_stays_away_is_reported_once_in_each_time() -> None:
    log = led_by_another()
    log.h.after(5_000)
    looked(log)
    looked(log)
    assert verdict(log.h, "RP-21").violated == 1
    log.h.after(5_000)
    looked(log)
    assert verdict(log.h, "RP-21").violated == 2


def test_a_preferred_replica_that_was_fenced_gets_its_leadership_in_the_whole_time() -> None:
    log = led_by_another()
    log.h.after(2_500)
    log.broker(1, fenced=True)
    looked(log)
    log.broker(1)
    log.h.after(3_900)
    looked(log)
    assert verdict(log.h, "RP-21").verdict is Outcome.NOT_EXERCISED


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
        wants(log, "SHUTDOWN")
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
