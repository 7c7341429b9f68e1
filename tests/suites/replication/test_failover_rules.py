"""The rules of ISR changes, replica sets and elections, each with a violation, a near miss and an
undecided history."""

from __future__ import annotations

import pytest
from tests.suites.partition_histories import ALL3, B1, partition, stated, verdict

from fencepost import Evidence
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import BrokerCommitted, IsrChangeAnswered, TopicCommitted


def broker(h: HistoryBuilder, offset: int, number: int, fenced: bool) -> None:
    h.add(
        "controller-1#1",
        BrokerCommitted(
            offset=offset,
            broker_id=number,
            broker_epoch=offset,
            fenced=fenced,
            incarnation=f"u{number}",
        ),
    )


# ------------------------------------------------------------------------------------------ QC-32


def test_an_isr_change_of_a_former_epoch_breaks_qc_32_when_it_is_granted() -> None:
    h = HistoryBuilder()
    partition(h, 4, leader=1, epoch=3)
    h.add(
        B1,
        IsrChangeAnswered(
            topic="orders", partition=0, leader_epoch=1, error="NONE", isr=(1,), granted_epoch=4
        ),
    )
    found = verdict(h, "QC-32").violations[0]
    assert stated(found, "process", "epoch") == (B1, 1)
    assert found.evidence is Evidence.PEER


def test_another_isr_in_the_same_epoch_breaks_qc_32() -> None:
    h = HistoryBuilder()
    partition(h, 4, leader=1, epoch=3)
    partition(h, 5, leader=1, epoch=3, isr=(1, 2))
    assert verdict(h, "QC-32").verdict is Outcome.VIOLATED


@pytest.mark.parametrize(
    ("epoch", "outcome"),
    [(2, Outcome.VIOLATED), (3, Outcome.NOT_EXERCISED), (4, Outcome.NOT_EXERCISED)],
)
def test_a_leader_epoch_never_goes_back(epoch: int, outcome: Outcome) -> None:
    h = HistoryBuilder()
    partition(h, 4, leader=1, epoch=3)
    partition(h, 5, leader=1, epoch=epoch)
    assert verdict(h, "QC-32").verdict is outcome


def test_a_refused_stale_isr_change_and_a_topic_made_again_keep_qc_32() -> None:
    h = HistoryBuilder()
    partition(h, 4, leader=1, epoch=0)
    h.add(
        B1,
        IsrChangeAnswered(
            topic="orders", partition=0, leader_epoch=0, error="NONE", isr=(1, 2), granted_epoch=1
        ),
    )
    h.add(
        B1,
        IsrChangeAnswered(
            topic="orders", partition=0, leader_epoch=0, error="FENCED_LEADER_EPOCH", isr=()
        ),
    )
    h.add("controller-1#1", TopicCommitted(offset=6, topic="orders", topic_id="t", deleted=True))
    partition(h, 8, leader=2, epoch=0, isr=(2, 3))
    found = verdict(h, "QC-32")
    assert (found.verdict, found.exercised, found.evidence) == (Outcome.HOLDS, 1, Evidence.PEER)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        ("FENCED_LEADER_EPOCH", Outcome.HOLDS),
        ("STALE_BROKER_EPOCH", Outcome.HOLDS),
        ("INVALID_REQUEST", Outcome.NOT_EXERCISED),
        ("NONE", Outcome.NOT_EXERCISED),
    ],
)
def test_only_a_refusal_for_an_epoch_exercises_qc_32(error: str, outcome: Outcome) -> None:
    h = HistoryBuilder()
    h.add(
        B1,
        IsrChangeAnswered(topic="orders", partition=0, leader_epoch=0, error=error, isr=(1, 2)),
    )
    assert verdict(h, "QC-32").verdict is outcome


def test_qc_32_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    h.add(
        B1,
        IsrChangeAnswered(
            topic="orders", partition=0, leader_epoch=0, error="FENCED_LEADER_EPOCH", isr=()
        ),
    )
    assert verdict(h, "QC-32", complete=False).verdict is Outcome.UNKNOWN


# ------------------------------------------------------------------------------------------ RP-19


@pytest.mark.parametrize(
    ("isr", "replicas"), [((1, 4), ALL3), ((1, 2), (1, 2, 2))], ids=["outside", "twice"]
)
def test_an_isr_that_is_not_a_subset_of_the_replicas_breaks_rp_19(
    isr: tuple[int, ...], replicas: tuple[int, ...]
) -> None:
    h = HistoryBuilder()
    partition(h, 4, leader=1, epoch=0, isr=isr, replicas=replicas)
    assert verdict(h, "RP-19").violations[0].evidence is Evidence.PEER


def test_a_member_that_is_not_a_replica_any_more_and_left_keeps_rp_19() -> None:
    h = HistoryBuilder()
    partition(h, 4, leader=1, epoch=0, isr=ALL3, replicas=ALL3)
    assert verdict(h, "RP-19").verdict is Outcome.NOT_EXERCISED
    partition(h, 5, leader=1, epoch=1, isr=(1, 2), replicas=(1, 2, 4))
    assert verdict(h, "RP-19").verdict is Outcome.HOLDS
    assert verdict(h, "RP-19", complete=False).verdict is Outcome.UNKNOWN


def test_the_replicas_of_a_topic_that_is_made_again_have_left_no_isr() -> None:
    h = HistoryBuilder()
    partition(h, 4, leader=1, epoch=0)
    h.add("controller-1#1", TopicCommitted(offset=5, topic="orders", topic_id="t", deleted=True))
    partition(h, 6, leader=1, epoch=0, isr=(1, 2), replicas=(1, 2))
    assert verdict(h, "RP-19").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ RP-29


def registered(h: HistoryBuilder) -> None:
    for number in ALL3:
        broker(h, number, number, fenced=False)
    partition(h, 4, leader=1, epoch=1, isr=(1,))


def test_a_leader_from_outside_a_dead_isr_breaks_rp_29() -> None:
    h = HistoryBuilder()
    registered(h)
    broker(h, 5, 1, fenced=True)
    partition(h, 6, leader=2, epoch=2, isr=(2,))
    assert stated(verdict(h, "RP-29"), "isr") == (1,)


def test_a_dead_isr_whose_member_comes_back_keeps_rp_29() -> None:
    h = HistoryBuilder()
    registered(h)
    broker(h, 5, 1, fenced=True)
    partition(h, 6, leader=-1, epoch=2, isr=(1,))
    broker(h, 7, 1, fenced=False)
    partition(h, 8, leader=1, epoch=3, isr=(1,))
    found = verdict(h, "RP-29")
    assert (found.verdict, found.exercised) == (Outcome.HOLDS, 1)
    assert verdict(h, "RP-29", complete=False).verdict is Outcome.UNKNOWN


@pytest.mark.parametrize("leader", [0, 2])
def test_any_leader_from_outside_a_dead_isr_breaks_rp_29_whatever_its_id(leader: int) -> None:
    replicas = (1, leader)
    h = HistoryBuilder()
    for number in replicas:
        broker(h, number, number, fenced=False)
    partition(h, 4, leader=-1, epoch=1, isr=(1,), replicas=replicas)
    broker(h, 5, 1, fenced=True)
    partition(h, 6, leader=leader, epoch=2, isr=(leader,), replicas=replicas)
    assert stated(verdict(h, "RP-29"), "isr") == (1,)


def test_a_topic_that_is_made_again_has_no_dead_isr() -> None:
    h = HistoryBuilder()
    registered(h)
    broker(h, 5, 1, fenced=True)
    h.add("controller-1#1", TopicCommitted(offset=6, topic="orders", topic_id="t", deleted=True))
    partition(h, 7, leader=2, epoch=0, isr=(2,))
    assert verdict(h, "RP-29").verdict is Outcome.NOT_EXERCISED


def test_a_partition_that_loses_its_leader_while_another_member_is_live_exercises_nothing() -> None:
    h = HistoryBuilder()
    for number in ALL3:
        broker(h, number, number, fenced=False)
    partition(h, 4, leader=1, epoch=1, isr=(1, 2))
    broker(h, 5, 1, fenced=True)
    partition(h, 6, leader=-1, epoch=2, isr=(1, 2))
    assert verdict(h, "RP-29").verdict is Outcome.NOT_EXERCISED


def test_a_dead_isr_beside_which_no_replica_is_live_exercises_nothing() -> None:
    h = HistoryBuilder()
    registered(h)
    for number in ALL3:
        broker(h, 4 + number, number, fenced=True)
    partition(h, 8, leader=-1, epoch=2, isr=(1,))
    assert verdict(h, "RP-29").verdict is Outcome.NOT_EXERCISED


def test_a_dead_isr_whose_leader_stays_exercises_nothing() -> None:
    h = HistoryBuilder()
    for number in (0, 1, 2):
        broker(h, 1 + number, number, fenced=False)
    partition(h, 4, leader=0, epoch=1, isr=(0,), replicas=(0, 1, 2))
    partition(h, 5, leader=0, epoch=2, isr=(0,), replicas=(0, 1, 2))
    assert verdict(h, "RP-29").verdict is Outcome.NOT_EXERCISED
