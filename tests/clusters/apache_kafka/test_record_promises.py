"""The rules about the records of one decision (KR-21, KR-22, KR-29): violations, near misses and
histories that decide nothing."""

from __future__ import annotations

import json

import pytest
from tests.clusters.apache_kafka.kraft_histories import OBSERVER, record, verdict
from tests.suites.partition_histories import stated

from fencepost import Administered, Evidence
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import (
    BrokerCommitted,
    BrokerDeleted,
    BrokerStopping,
    PartitionCommitted,
    TopicCommitted,
)

OLD = (1, 2, 3)


def partition(
    h: HistoryBuilder,
    offset: int,
    isr: tuple[int, ...],
    replicas: tuple[int, ...] = OLD,
    leader: int = 1,
    adding: tuple[int, ...] = (),
    removing: tuple[int, ...] = (),
    number: int = 0,
    offline: tuple[int, ...] = (),
) -> None:
    body = PartitionCommitted(
        offset=offset,
        topic="orders",
        partition=number,
        leader=leader,
        leader_epoch=1,
        isr=isr,
        replicas=replicas,
        adding=adding,
        removing=removing,
        offline=offline,
    )
    h.add(OBSERVER, body)


def deletes(h: HistoryBuilder, offset: int) -> None:
    """The topic is deleted."""
    h.add(OBSERVER, TopicCommitted(offset=offset, topic="orders", topic_id="a", deleted=True))


# ------------------------------------------------------------------------------------------ KR-21


def moving() -> HistoryBuilder:
    """Broker 4 is to replace broker 3."""
    h = HistoryBuilder()
    partition(h, 10, OLD)
    partition(h, 11, OLD, (4, 1, 2, 3), adding=(4,), removing=(3,))
    return h


@pytest.mark.parametrize(
    ("isr", "replicas", "leader", "name", "fact"),
    [
        ((1, 2), (4, 1, 2), 1, "early", (4,)),
        ((4, 1, 2), (4, 1), 4, "removing", (3,)),
        ((4, 1, 2), (4, 1, 2), 3, "leader", "broker 3"),
        ((4, 1, 2, 3), (4, 1, 2), 4, "kept", (3,)),
    ],
)
def test_a_reassignment_that_ends_otherwise_breaks_kr_21(
    isr: tuple[int, ...], replicas: tuple[int, ...], leader: int, name: str, fact: object
) -> None:
    h = moving()
    partition(h, 12, isr, replicas, leader)
    found = verdict(h, "KR-21")
    assert found.violations[0].evidence is Evidence.PEER
    assert stated(found, name) == fact


def test_the_record_that_takes_the_last_new_replica_in_exercises_kr_21() -> None:
    h = moving()
    partition(h, 12, (4, 1, 2), (4, 1, 2), leader=4)
    partition(h, 11, OLD, (4, 1, 2, 3), adding=(4,), removing=(3,))  # read again
    assert verdict(h, "KR-21").verdict is Outcome.HOLDS


@pytest.mark.parametrize(("isr", "broken"), [((1, 2, 3, 4), 0), (OLD, 1)])
def test_a_partition_that_only_gets_another_replica_is_judged_by_kr_21(
    isr: tuple[int, ...], broken: int
) -> None:
    h = HistoryBuilder()
    partition(h, 10, OLD)
    partition(h, 11, OLD, (*OLD, 4), adding=(4,))
    partition(h, 12, isr, (*OLD, 4))
    found = verdict(h, "KR-21")
    assert (found.violated, found.exercised) == (broken, 1 - broken)


@pytest.mark.parametrize(("leader", "broken"), [(0, 1), (-1, 0)])
def test_a_leader_outside_the_isr_breaks_kr_21_and_none_does_not(leader: int, broken: int) -> None:
    h = HistoryBuilder()
    partition(h, 11, (0, 1), (4, 0, 1), leader=0, adding=(4,))
    partition(h, 12, (4, 1), (4, 0, 1), leader=leader)
    found = verdict(h, "KR-21")
    assert (found.violated, found.exercised) == (broken, 1 - broken)


def test_a_reassignment_that_goes_on_or_is_called_off_decides_nothing_for_kr_21() -> None:
    h = moving()
    partition(h, 12, (1, 2), (4, 1, 2, 3), adding=(4,), removing=(3,))
    partition(h, 13, (1, 2), OLD)
    assert verdict(h, "KR-21").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(
    ("replicas", "isr", "outcome"),
    [
        ((1, 2), (1, 2), Outcome.NOT_EXERCISED),
        ((2, 3), (2,), Outcome.NOT_EXERCISED),
        ((4, 1), (4, 1), Outcome.HOLDS),
        ((4, 1, 2, 3), (4, 1, 2, 3), Outcome.HOLDS),
        ((4, 1), (1,), Outcome.VIOLATED),
        ((1, 3), (1, 3), Outcome.VIOLATED),
    ],
)
def test_a_reassignment_that_replaces_another_may_end_with_the_same_record(
    replicas: tuple[int, ...], isr: tuple[int, ...], outcome: Outcome
) -> None:
    """It was asked for (1, 3) in the last case only by the controller's own word."""
    h = moving()
    wanted = [1, 2] if replicas == (1, 3) else [*replicas]
    arguments = {"topic": "orders", "partition": 0, "replicas": wanted}
    asked = Administered(
        operation="reassign", arguments=json.dumps(arguments), targets=("broker-1",)
    )
    h.add("harness", asked)
    partition(h, 12, isr, replicas, leader=isr[0])
    assert verdict(h, "KR-21").verdict is outcome


@pytest.mark.parametrize(
    ("drained", "outcome"), [(0, Outcome.NOT_EXERCISED), (1, Outcome.VIOLATED)]
)
def test_a_broker_that_is_drained_replaces_a_reassignment(drained: int, outcome: Outcome) -> None:
    h = moving()
    arguments = {"broker": 3, "moves": [["orders", drained, [1, 2]]]}
    asked = Administered(
        operation="drain_broker", arguments=json.dumps(arguments), targets=("broker-3",)
    )
    h.add("harness", asked)
    partition(h, 12, (1, 2), (1, 2))
    assert verdict(h, "KR-21").verdict is outcome


def test_a_topic_that_is_deleted_while_it_moves_decides_nothing_for_kr_21() -> None:
    h = moving()
    deletes(h, 12)
    partition(h, 13, (1, 2), (1, 2))
    assert verdict(h, "KR-21").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ KR-22


def unregistered(fenced: bool, *isr: int, leader: int = 2) -> HistoryBuilder:
    """Broker 1 is unregistered; right before, the ISR became that."""
    h = HistoryBuilder()
    record(h, 5, fenced)
    partition(h, 10, OLD)
    partition(h, 11, isr, leader=leader)
    h.add(OBSERVER, BrokerDeleted(offset=12, broker_id=1))
    return h


def test_a_broker_that_is_unregistered_with_its_place_breaks_kr_22() -> None:
    for h in (unregistered(False, 1, 2, 3), unregistered(False, 2, 3, leader=1)):
        assert verdict(h, "KR-22").violations[0].evidence is Evidence.PEER


def test_an_unregistered_broker_that_gets_a_place_breaks_kr_22() -> None:
    h = unregistered(False, 2, 3)
    partition(h, 13, OLD)
    assert verdict(h, "KR-22").verdict is Outcome.VIOLATED


def test_a_broker_that_loses_its_places_with_its_registration_exercises_kr_22() -> None:
    h = unregistered(False, 2, 3)
    partition(h, 13, (2,), leader=2)
    record(h, 14, fenced=False, incarnation="two")
    partition(h, 15, OLD, leader=1)
    assert verdict(h, "KR-22").verdict is Outcome.HOLDS


def test_a_deleted_topic_gives_an_unregistered_broker_no_place() -> None:
    h = HistoryBuilder()
    record(h, 5, fenced=False)
    partition(h, 10, OLD)
    deletes(h, 11)
    h.add(OBSERVER, BrokerDeleted(offset=12, broker_id=1))
    assert verdict(h, "KR-22").verdict is Outcome.HOLDS


def test_a_fenced_broker_and_a_last_member_decide_nothing_for_kr_22() -> None:
    assert verdict(unregistered(True, 2, 3), "KR-22").verdict is Outcome.NOT_EXERCISED
    last = unregistered(True, 1, leader=-1)
    partition(last, 11, OLD)  # an older record, read again
    assert verdict(last, "KR-22").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ KR-29


def fences(h: HistoryBuilder, offset: int) -> None:
    """A record that fences broker 1, which registered at offset 1."""
    body = BrokerCommitted(
        offset=offset, broker_id=1, broker_epoch=1, fenced=True, incarnation="one"
    )
    h.add(OBSERVER, body)


def registered(dead: int = 0) -> HistoryBuilder:
    """Three brokers, of which that one is fenced."""
    h = HistoryBuilder()
    for broker in OLD:
        record(h, broker, fenced=broker == dead, broker=broker)
    return h


def stops(h: HistoryBuilder) -> None:
    """Broker 2 is asked to shut down."""
    body = BrokerStopping(broker_id=2, state="ACTIVE", global_state="", limit_ms=1)
    h.add("broker-2#1", body)


def fencing(to: int, isr: tuple[int, ...] = OLD, dead: int = 0, gap: int = 0) -> HistoryBuilder:
    """Broker 1 leads, and is fenced right after its leadership went to that broker."""
    h = registered(dead)
    partition(h, 10, isr)
    partition(h, 11, tuple(one for one in isr if one != 1), leader=to)
    fences(h, 12 + gap)
    return h


def test_a_leadership_that_goes_to_another_than_the_next_breaks_kr_29() -> None:
    for h in (fencing(to=3), fencing(to=-1), fencing(to=2, dead=2)):
        assert verdict(h, "KR-29").violations[0].evidence is Evidence.PEER


def test_a_leadership_that_goes_to_the_next_live_member_exercises_kr_29() -> None:
    for h in (fencing(to=2), fencing(to=3, isr=(1, 3)), fencing(to=3, dead=2)):
        assert verdict(h, "KR-29").verdict is Outcome.HOLDS


@pytest.mark.parametrize(
    ("offline", "to", "kept"), [((2,), 3, True), ((2,), 2, False), ((3,), 3, False)]
)
def test_a_replica_in_a_directory_that_its_broker_has_not_registered_is_passed_over_by_kr_29(
    offline: tuple[int, ...], to: int, kept: bool
) -> None:
    """As of the broker's registration, which may be later than the partition's last record."""
    h = registered()
    partition(h, 10, OLD)
    partition(h, 11, OLD, offline=offline)
    partition(h, 12, (2, 3), leader=to, offline=offline)
    fences(h, 13)
    assert verdict(h, "KR-29").verdict is (Outcome.HOLDS if kept else Outcome.VIOLATED)


def test_earlier_records_stopping_brokers_and_a_last_member_decide_nothing_for_kr_29() -> None:
    stopping = registered()
    stops(stopping)
    partition(stopping, 10, OLD)
    partition(stopping, 11, (2, 3), leader=3)
    fences(stopping, 12)
    for h in (fencing(to=2, gap=1), fencing(to=-1, isr=(1,)), stopping):
        assert verdict(h, "KR-29").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(
    ("later_ms", "isr", "replicas", "offline", "broken"),
    [
        (1_000, (2, 3), OLD, (), 1),
        (1_001, (2, 3), OLD, (), 0),
        (1_000, OLD, OLD, (), 0),
        (1_000, (2, 3), (2, 3), (), 0),
        (1_000, (2, 3), OLD, (1,), 0),
    ],
    ids=["removed", "long before", "stays in the ISR", "no replica any more", "its disk is lost"],
)
def test_a_broker_that_left_the_isr_right_before_its_fencing_is_judged_by_kr_29(
    later_ms: int,
    isr: tuple[int, ...],
    replicas: tuple[int, ...],
    offline: tuple[int, ...],
    broken: int,
) -> None:
    """Though another record came between, as no fencing of Kafka has it."""
    h = registered()
    partition(h, 10, OLD)
    partition(h, 11, isr, replicas, leader=3, offline=offline)
    fences(h.after(later_ms - 1), 13)
    assert verdict(h, "KR-29").violated == broken


@pytest.mark.parametrize(
    ("offset", "fenced", "to", "broken"),
    [(4, False, 3, 1), (30, False, 3, 0), (4, True, 2, 1), (30, True, 2, 0)],
)
def test_a_later_record_of_a_broker_that_is_told_before_says_nothing_of_the_move(
    offset: int, fenced: bool, to: int, broken: int
) -> None:
    """What the broker was when the leadership moved is not known then."""
    h = HistoryBuilder()
    for broker in (1, 3):
        record(h, broker, fenced=False, broker=broker)
    record(h, offset, fenced=fenced, broker=2)
    partition(h, 10, OLD)
    partition(h, 11, (2, 3), leader=to)
    fences(h, 12)
    assert verdict(h, "KR-29").violated == broken


def test_each_leadership_that_one_batch_moves_exercises_kr_29() -> None:
    h = registered()
    for number, offset in ((0, 10), (1, 12)):
        partition(h, offset, OLD, number=number)
    for number, offset in ((0, 20), (1, 21)):
        partition(h, offset, (2, 3), leader=2, number=number)
    fences(h, 22)
    assert verdict(h, "KR-29").exercised == 2


def test_a_leadership_that_moved_in_an_earlier_batch_decides_nothing_for_kr_29() -> None:
    h = registered()
    partition(h, 10, OLD)
    partition(h, 11, (1, 2, 3), leader=3)
    partition(h, 20, OLD, leader=2, number=1)
    fences(h, 21)
    assert verdict(h, "KR-29").verdict is Outcome.NOT_EXERCISED


def test_a_topic_made_again_under_its_name_took_no_leadership_from_a_broker() -> None:
    h = registered()
    partition(h, 10, OLD)
    deletes(h, 11)
    partition(h, 12, OLD, leader=3)
    fences(h, 13)
    assert verdict(h, "KR-29").verdict is Outcome.NOT_EXERCISED


def test_an_unregistered_broker_is_not_the_next_in_order() -> None:
    h = registered()
    h.add(OBSERVER, BrokerDeleted(offset=5, broker_id=2))
    partition(h, 10, OLD)
    partition(h, 11, (2, 3), leader=3)
    fences(h, 12)
    assert verdict(h, "KR-29").verdict is Outcome.HOLDS


def test_a_broker_that_has_begun_anew_stops_no_longer() -> None:
    h = registered()
    stops(h)
    record(h, 9, fenced=False, incarnation="anew", broker=2)
    partition(h, 10, OLD)
    partition(h, 11, (2, 3), leader=3)
    fences(h, 12)
    assert verdict(h, "KR-29").verdict is Outcome.VIOLATED


def test_a_broker_with_the_id_0_is_the_next_in_order_like_any_other() -> None:
    for to, broken in ((0, 0), (2, 1)):
        h = registered()
        record(h, 4, fenced=False, broker=0)
        partition(h, 10, (1, 0, 2), (1, 0, 2))
        partition(h, 11, (0, 2), (1, 0, 2), leader=to)
        fences(h, 12)
        found = verdict(h, "KR-29")
        assert (found.violated, found.exercised) == (broken, 1 - broken)
