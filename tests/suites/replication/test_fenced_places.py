"""Rules about places in ISRs and leaderships that a fenced broker keeps or gets (RP-29, QC-30)."""

from __future__ import annotations

import pytest
from tests.suites.partition_histories import (
    ALL3,
    B2,
    CONTROLLER,
    partition,
    record,
    stated,
    verdict,
)

from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import BrokerCommitted, PartitionCommitted


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


def live(h: HistoryBuilder, isr: tuple[int, ...]) -> None:
    """Three live brokers, and a partition that broker 1 leads with that ISR."""
    for number in ALL3:
        broker(h, number, number, fenced=False)
    partition(h, 4, leader=1, epoch=1, isr=isr)


# ------------------------------------------------------------------------------------------ RP-29


def fenced_in_log(h: HistoryBuilder) -> None:
    """The only member of the ISR is fenced, and the partition has no leader, by the log."""
    live(h, (1,))
    record(h, 5)
    broker(h, 5, 1, fenced=True)
    record(h, 6)
    partition(h, 6, leader=-1, epoch=2, isr=(1,))


def test_a_fenced_member_of_a_dead_isr_that_is_made_leader_breaks_rp_29() -> None:
    h = HistoryBuilder()
    fenced_in_log(h)
    record(h, 7)
    partition(h, 7, leader=1, epoch=3, isr=(1,))
    broker(h, 8, 1, fenced=False)
    assert stated(verdict(h, "RP-29"), "leader", "partition") == ("broker 1", "orders-0")
    assert verdict(h, "QC-30").verdict is Outcome.VIOLATED


def test_a_leader_elected_after_a_registration_in_a_later_event_keeps_rp_29() -> None:
    h = HistoryBuilder()
    fenced_in_log(h)
    record(h, 8, B2)
    partition(h, 8, leader=1, epoch=3, isr=(1,), process=B2)
    record(h, 7)
    broker(h, 7, 1, fenced=False)
    assert verdict(h, "RP-29").verdict is Outcome.HOLDS
    assert verdict(h, "QC-30").verdict is not Outcome.VIOLATED


@pytest.mark.parametrize(("ms", "outcome"), [(10_000, Outcome.HOLDS), (10_001, Outcome.VIOLATED)])
def test_without_a_log_a_member_long_gone_may_not_be_made_leader(ms: int, outcome: Outcome) -> None:
    h = HistoryBuilder()
    live(h, (1,))
    broker(h, 5, 1, fenced=True)
    partition(h, 6, leader=-1, epoch=2, isr=(1,))
    # The two records took 2 ms.
    h.after(ms - 2)
    partition(h, 7, leader=1, epoch=3, isr=(1,))
    broker(h, 8, 1, fenced=False)
    assert verdict(h, "RP-29").verdict is outcome


@pytest.mark.parametrize("leader", [0, 1])
def test_without_a_log_no_dead_member_may_be_made_leader_whatever_its_id(leader: int) -> None:
    h = HistoryBuilder()
    replicas = (leader, 2)
    partition(h, 4, leader=leader, epoch=1, isr=(leader,), replicas=replicas)
    broker(h, 5, leader, fenced=True)
    partition(h, 6, leader=-1, epoch=2, isr=(leader,), replicas=replicas)
    h.after(11_000)
    partition(h, 7, leader=leader, epoch=3, isr=(leader,), replicas=replicas)
    assert verdict(h, "RP-29").verdict is Outcome.VIOLATED


def test_without_a_log_a_member_that_came_back_is_gone_since_it_went_again() -> None:
    h = HistoryBuilder()
    live(h, (1,))
    broker(h, 5, 1, fenced=True)
    h.after(11_000)
    broker(h, 6, 1, fenced=False)
    broker(h, 7, 1, fenced=True)
    partition(h, 8, leader=-1, epoch=2, isr=(1,))
    partition(h, 9, leader=1, epoch=3, isr=(1,))
    assert verdict(h, "RP-29").verdict is Outcome.HOLDS


def test_without_a_log_a_registration_counts_from_its_position_on() -> None:
    h = HistoryBuilder()
    live(h, (1,))
    broker(h, 5, 1, fenced=True)
    partition(h, 6, leader=-1, epoch=2, isr=(1,))
    h.after(11_000)
    partition(h, 9, leader=1, epoch=3, isr=(1,))
    broker(h, 8, 1, fenced=False)
    assert verdict(h, "RP-29").verdict is Outcome.HOLDS


# ------------------------------------------------------------------------------------------ QC-30


def test_a_fenced_broker_that_loses_its_leadership_too_late_breaks_qc_30() -> None:
    h = HistoryBuilder()
    live(h, ALL3)
    broker(h, 6, 1, fenced=True)
    h.after(6000)
    partition(h, 7, leader=2, epoch=2, isr=(2, 3))
    assert stated(verdict(h, "QC-30"), "broker", "places") == ("broker 1", ("orders-0",))


@pytest.mark.parametrize("leader", [1, 3], ids=["isr", "leader"])
def test_a_fenced_broker_that_gets_a_new_place_breaks_qc_30(leader: int) -> None:
    h = HistoryBuilder()
    live(h, (1, 2))
    broker(h, 5, 3, fenced=True)
    record(h, 6)
    partition(h, 6, leader=leader, epoch=2, isr=ALL3)
    broker(h, 7, 3, fenced=False)
    taken = [stated(one, "broker", "leads", "offset") for one in verdict(h, "QC-30").violations]
    assert ("broker 3", leader == 3, 6) in taken


def test_a_broker_that_gets_its_place_back_once_it_is_unfenced_keeps_qc_30() -> None:
    h = HistoryBuilder()
    live(h, ALL3)
    broker(h, 8, 1, fenced=True)
    partition(h, 9, leader=2, epoch=2, isr=(2, 3))
    record(h, 12, B2)
    partition(h, 12, leader=2, epoch=3, isr=ALL3, process=B2)
    broker(h, 11, 1, fenced=False)
    assert verdict(h, "QC-30").verdict is Outcome.HOLDS


@pytest.mark.parametrize(("fenced", "change"), [(6, 7), (7, 6), (9, 6)])
def test_a_leader_that_joins_the_isr_of_a_fenced_leader_breaks_qc_30(
    fenced: int, change: int
) -> None:
    """The change comes after the fencing, right before it, or well before it."""
    h = HistoryBuilder()
    live(h, (1, 2))
    for offset in sorted((fenced, change)):
        record(h, offset)
        if offset == fenced:
            broker(h, offset, 1, fenced=True)
        else:
            partition(h, offset, leader=3, epoch=2, isr=ALL3)
    record(h, 10)
    partition(h, 10, leader=3, epoch=3, isr=(2, 3))
    unclean = any(
        {"former", "offset"} <= one.facts.keys() for one in verdict(h, "QC-30").violations
    )
    assert unclean is (fenced - change <= 1)


def test_a_fencing_may_come_after_all_the_changes_that_it_causes() -> None:
    """The records of one decision: the changes of two partitions, and then the fencing."""
    h = HistoryBuilder()
    live(h, (1, 2))
    for offset in (6, 7):
        record(h, offset)
        partition(h, offset, leader=3, epoch=offset - 4, isr=ALL3)
    record(h, 8)
    broker(h, 8, 1, fenced=True)
    assert any({"former", "offset"} <= one.facts.keys() for one in verdict(h, "QC-30").violations)


def test_a_fenced_broker_that_had_no_place_exercises_nothing() -> None:
    h = HistoryBuilder()
    live(h, (1, 2))
    broker(h, 5, 3, fenced=True)
    assert verdict(h, "QC-30").verdict is Outcome.NOT_EXERCISED


def other_partition(
    h: HistoryBuilder, offset: int, epoch: int, isr: tuple[int, ...] = ALL3
) -> None:
    """Partition 1, which broker 2 leads."""
    h.add(
        CONTROLLER,
        PartitionCommitted(
            offset=offset,
            topic="orders",
            partition=1,
            leader=2,
            leader_epoch=epoch,
            isr=isr,
            replicas=ALL3,
        ),
    )


def leading_broker(h: HistoryBuilder) -> None:
    for number in ALL3:
        broker(h, number, number, fenced=False)
    partition(h, 4, leader=1, epoch=0)
    other_partition(h, 5, epoch=0)


def test_a_fenced_broker_that_keeps_its_leadership_breaks_qc_30() -> None:
    h = HistoryBuilder()
    leading_broker(h)
    broker(h, 6, 1, fenced=True)
    other_partition(h, 7, epoch=1, isr=(2, 3))
    broker(h, 8, 1, fenced=False)
    h.after(5000)
    assert stated(verdict(h, "QC-30"), "places") == ("orders-0",)


def test_a_fenced_broker_that_keeps_its_leadership_to_the_end_breaks_qc_30() -> None:
    h = HistoryBuilder()
    leading_broker(h)
    broker(h, 6, 1, fenced=True)
    h.after(5000)
    assert verdict(h, "QC-30").verdict is Outcome.VIOLATED


@pytest.mark.parametrize("isr", [(2, 3), (3,)], ids=["fenced", "outside"])
def test_a_leadership_that_goes_to_the_wrong_broker_breaks_qc_30(isr: tuple[int, ...]) -> None:
    h = HistoryBuilder()
    leading_broker(h)
    partition(h, 6, leader=1, epoch=1, isr=(1, *isr))
    if 2 in isr:
        broker(h, 7, 2, fenced=True)
    broker(h, 8, 1, fenced=True)
    partition(h, 9, leader=2, epoch=2, isr=(2,))
    found = verdict(h, "QC-30")
    assert stated(found, "former", "leader", "fenced") == ("broker 1", "broker 2", 2 in isr)


def test_leaderships_moved_to_live_members_keep_qc_30() -> None:
    h = HistoryBuilder()
    leading_broker(h)
    broker(h, 6, 1, fenced=True)
    partition(h, 7, leader=2, epoch=1, isr=(2, 3))
    other_partition(h, 8, epoch=1, isr=(2, 3))
    found = verdict(h, "QC-30")
    assert (found.verdict, found.exercised) == (Outcome.HOLDS, 1)


def test_a_last_member_stays_without_a_leader() -> None:
    h = HistoryBuilder()
    broker(h, 1, 1, fenced=False)
    partition(h, 2, leader=1, epoch=0, isr=(1,))
    broker(h, 3, 1, fenced=True)
    partition(h, 4, leader=-1, epoch=1, isr=(1,))
    h.after(5000)
    assert verdict(h, "QC-30").verdict is Outcome.HOLDS


def test_a_run_that_ends_in_the_middle_leaves_qc_30_undecided() -> None:
    h = HistoryBuilder()
    leading_broker(h)
    broker(h, 6, 1, fenced=True)
    assert verdict(h, "QC-30").verdict is Outcome.UNKNOWN
