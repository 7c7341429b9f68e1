"""The rules about the records of one decision (KR-21, KR-22, KR-29): violations, near misses and
histories that decide nothing."""

from __future__ import annotations

import json

import pytest
from tests.clusters.apache_kafka.kraft_histories import OBSERVER, record, verdict

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
) -> None:
    body = PartitionCommitted(
        offset=offset,
        topic="orders",
        partition=0,
        leader=leader,
        leader_epoch=1,
        isr=isr,
        replicas=replicas,
        adding=adding,
        removing=removing,
    )
    h.add(OBSERVER, body)


# ------------------------------------------------------------------------------------------ KR-21


def moving() -> HistoryBuilder:
    """Broker 4 is to replace broker 3."""
    h = HistoryBuilder()
    partition(h, 10, OLD)
    partition(h, 11, OLD, (4, 1, 2, 3), adding=(4,), removing=(3,))
    return h


@pytest.mark.parametrize(
    ("isr", "replicas", "leader", "says"),
    [
        ((1, 2), (4, 1, 2), 1, "brokers [4] were not in the ISR"),
        ((4, 1, 2), (4, 1), 4, "was to remove [3]"),
        ((4, 1, 2), (4, 1, 2), 3, "broker 3 leads"),
    ],
)
def test_a_reassignment_that_ends_otherwise_breaks_kr_21(
    isr: tuple[int, ...], replicas: tuple[int, ...], leader: int, says: str
) -> None:
    h = moving()
    partition(h, 12, isr, replicas, leader)
    found = verdict(h, "KR-21")
    assert found.violations[0].evidence is Evidence.PEER
    assert says in found.violations[0].message


def test_the_record_that_takes_the_last_new_replica_in_exercises_kr_21() -> None:
    h = moving()
    partition(h, 12, (4, 1, 2), (4, 1, 2), leader=4)
    partition(h, 11, OLD, (4, 1, 2, 3), adding=(4,), removing=(3,))  # read again
    assert verdict(h, "KR-21").verdict is Outcome.HOLDS


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


def test_a_topic_that_is_deleted_while_it_moves_decides_nothing_for_kr_21() -> None:
    h = moving()
    h.add(OBSERVER, TopicCommitted(offset=12, topic="orders", topic_id="a", deleted=True))
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
    record(h, 13, fenced=False, incarnation="two")
    partition(h, 14, OLD, leader=1)
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


def fencing(to: int, isr: tuple[int, ...] = OLD, dead: int = 0, gap: int = 0) -> HistoryBuilder:
    """Broker 1 leads, and is fenced right after its leadership went to that broker."""
    h = HistoryBuilder()
    for broker in OLD:
        record(h, broker, fenced=broker == dead, broker=broker)
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


def test_earlier_records_stopping_brokers_and_a_last_member_decide_nothing_for_kr_29() -> None:
    stopping = HistoryBuilder()
    for broker in OLD:
        record(stopping, broker, fenced=False, broker=broker)
    body = BrokerStopping(broker_id=2, state="ACTIVE", global_state="", limit_ms=1)
    stopping.add("broker-2#1", body)
    partition(stopping, 10, OLD)
    partition(stopping, 11, (2, 3), leader=3)
    fences(stopping, 12)
    for h in (fencing(to=3, gap=1), fencing(to=-1, isr=(1,)), stopping):
        assert verdict(h, "KR-29").verdict is Outcome.NOT_EXERCISED
