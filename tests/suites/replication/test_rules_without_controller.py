"""The rules of the plane without a controller, each with a violation, a near miss and an undecided
history."""

from __future__ import annotations

import pytest
from tests.suites.replication.classic_histories import (
    ALL3,
    B1,
    B2,
    B3,
    active,
    broker,
    carries_out,
    leads,
    partition,
    prepared,
    serves,
    stands,
    topic,
    verdict,
    violations,
)

from fencepost import FaultHealed, FaultInjected, NodeStarted, Stalled
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import ReassignmentNoticed, ReplicaRemoved, SessionChanged

# --------------------------------------------------------------------------------------- RP-14


def test_rp_14_a_member_that_has_waited_may_win() -> None:
    h = HistoryBuilder()
    stands(h, B2)
    leads(h)
    serves(h, 5)
    assert verdict(h, "RP-14") is Outcome.HOLDS
    assert verdict(h, "RP-14", complete=False) is Outcome.UNKNOWN


def test_rp_14_a_replica_outside_the_isr_must_not_stand() -> None:
    h = HistoryBuilder()
    stands(h, B2, isr=(1, 3), won=False)
    assert verdict(h, "RP-14") is Outcome.VIOLATED


def test_rp_14_only_the_preferred_replica_stands_at_once() -> None:
    h = HistoryBuilder()
    stands(h, B1, waited_ms=0)
    assert verdict(h, "RP-14") is Outcome.HOLDS
    stands(h, B2, waited_ms=199, won=False)
    assert verdict(h, "RP-14") is Outcome.VIOLATED


def test_rp_14_one_process_wins_in_an_epoch() -> None:
    h = HistoryBuilder()
    stands(h, B2)
    stands(h, B3, epoch=3)
    assert verdict(h, "RP-14") is Outcome.HOLDS
    stands(h, B3, epoch=2)
    assert verdict(h, "RP-14") is Outcome.VIOLATED


def test_rp_14_a_second_winner_is_proven_by_the_record_that_made_the_first_the_leader() -> None:
    """The event of standing gives no authority, so the report did not find what was lost."""
    h = HistoryBuilder()
    stands(h, B2)
    stood = h.events()[-1].ref
    partition(h, 20, leader=1, epoch=2)
    partition(h, 21, leader=2, epoch=2)
    record = h.events()[-1].ref
    partition(h, 22, leader=2, epoch=2, isr=(2, 3))
    stands(h, B3)
    (broken,) = violations(h, "RP-14")
    assert broken.because == (stood, record)


@pytest.mark.parametrize("high_watermark", [4, 0])
def test_rp_14_the_log_of_a_new_leader_is_committed_when_it_serves(high_watermark: int) -> None:
    h = HistoryBuilder()
    stands(h, B2)
    leads(h)
    serves(h, high_watermark)
    assert verdict(h, "RP-14") is Outcome.VIOLATED


# --------------------------------------------------------------------------------------- RP-16


def test_rp_16_a_leader_serves_once_its_isr_is_stored() -> None:
    h = HistoryBuilder()
    prepared(h)
    leads(h)
    assert verdict(h, "RP-16") is Outcome.HOLDS
    leads(h, epoch=3)
    assert verdict(h, "RP-16") is Outcome.VIOLATED


def test_rp_16_a_live_member_is_left_out_only_after_the_time() -> None:
    h = HistoryBuilder()
    prepared(h, isr=(2,), ends=(5,), waited_ms=1_500)
    assert verdict(h, "RP-16") is Outcome.HOLDS
    prepared(h, isr=(2,), ends=(5,), waited_ms=1_499)
    assert verdict(h, "RP-16") is Outcome.VIOLATED


def test_rp_16_members_have_the_leaders_log() -> None:
    h = HistoryBuilder()
    prepared(h, ends=(5, 4))
    assert verdict(h, "RP-16") is Outcome.VIOLATED


def test_rp_16_a_leader_that_is_the_only_live_replica_waits_for_nothing() -> None:
    h = HistoryBuilder()
    prepared(h, isr=(2,), ends=(5,), awaited=(2,))
    assert verdict(h, "RP-16") is Outcome.NOT_EXERCISED


# --------------------------------------------------------------------------------------- RP-34


def test_rp_34_times_are_at_least_and_about_what_is_configured() -> None:
    h = HistoryBuilder(start_ms=10_000)
    prepared(h, isr=(2,), ends=(5,), waited_ms=3_500)
    assert verdict(h, "RP-34") is Outcome.HOLDS
    prepared(h, isr=(2,), ends=(5,), waited_ms=3_501)
    assert verdict(h, "RP-34") is Outcome.VIOLATED


def test_rp_34_a_stalled_leader_waits_longer() -> None:
    h = HistoryBuilder(start_ms=10_000)
    h.add(B2, NodeStarted(role="broker", node_id=2))
    h.after(5_000).add(B2, Stalled(stalled_ns=3_000_000_000))
    prepared(h, isr=(2,), ends=(5,), waited_ms=4_000)
    assert verdict(h, "RP-34") is Outcome.UNKNOWN


def test_rp_34_a_replica_that_stands_too_early_ignores_its_setting() -> None:
    h = HistoryBuilder()
    stands(h, B2, waited_ms=100)
    assert verdict(h, "RP-34") is Outcome.VIOLATED


# --------------------------------------------------------------------------------------- RP-17


def test_rp_17_a_new_partition_gets_a_leader() -> None:
    h = HistoryBuilder()
    partition(h, 10, -1, 0, isr=())
    stands(h, B2, isr=(), epoch=1)
    partition(h, 11, 2, 1, isr=(2,))
    h.after(20_000)
    assert verdict(h, "RP-17") is Outcome.HOLDS


def test_rp_17_a_new_partition_must_not_stay_without_a_leader() -> None:
    h = HistoryBuilder()
    partition(h, 10, -1, 0, isr=())
    h.after(9_998)
    assert verdict(h, "RP-17") is Outcome.NOT_EXERCISED
    h.after(2)
    assert verdict(h, "RP-17") is Outcome.VIOLATED
    h.add(B2, SessionChanged(session=5, state="connected"))
    assert verdict(h, "RP-17") is Outcome.NOT_EXERCISED


# --------------------------------------------------------------------------------------- RP-22


def test_rp_22_the_paths_are_the_designs() -> None:
    h = HistoryBuilder()
    stands(h, B2)
    prepared(h)
    path = "/brokers/partitions_reassigned/orders/0"
    h.add(B2, ReassignmentNoticed(topic="orders", partition=0, path=path, adding=(4,)))
    assert verdict(h, "RP-22") is Outcome.HOLDS
    prepared(h, path="/brokers/topics/orders/partitions/0/state")
    assert verdict(h, "RP-22") is Outcome.VIOLATED


# --------------------------------------------------------------------------------------- RP-23


def test_rp_23_a_replica_goes_upon_a_request() -> None:
    h = HistoryBuilder()
    leads(h)
    carries_out(h, "unassigned")
    h.add(B2, ReplicaRemoved(topic="orders", partition=0, topic_id="t", reason="unassigned"))
    h.after(20_000)
    assert verdict(h, "RP-23") is Outcome.HOLDS


def test_rp_23_a_replica_must_not_stay_after_a_request() -> None:
    h = HistoryBuilder()
    leads(h)
    carries_out(h, "become_follower")
    carries_out(h, "unassigned", moot=True)
    h.after(20_000)
    assert verdict(h, "RP-23") is Outcome.NOT_EXERCISED
    carries_out(h, "delete")
    h.after(1_998)
    assert verdict(h, "RP-23") is Outcome.NOT_EXERCISED
    h.after(2)
    assert verdict(h, "RP-23") is Outcome.VIOLATED


# --------------------------------------------------------------------------------------- RP-30


def test_rp_30_active_brokers_notice_a_new_topic() -> None:
    h = HistoryBuilder()
    active(h, B1)
    active(h, B2)
    topic(h, B1)
    topic(h, B2)
    h.after(20_000)
    assert verdict(h, "RP-30") is Outcome.HOLDS


def missed_topic(after_ms: int) -> HistoryBuilder:
    h = HistoryBuilder()
    active(h, B1)
    active(h, B2)
    topic(h, B1)
    return h.after(after_ms)


def test_rp_30_a_broker_must_not_miss_a_new_topic() -> None:
    assert verdict(missed_topic(9_999), "RP-30") is Outcome.NOT_EXERCISED
    assert verdict(missed_topic(10_000), "RP-30") is Outcome.VIOLATED


def test_rp_30_a_broker_without_a_session_reads_no_topics() -> None:
    h = missed_topic(9_999)
    h.add(B2, SessionChanged(session=5, state="suspended"))
    h.after(10_000)
    assert verdict(h, "RP-30") is Outcome.NOT_EXERCISED
    h = missed_topic(10_000)
    h.add(B2, SessionChanged(session=5, state="suspended"))
    assert verdict(h, "RP-30") is Outcome.VIOLATED


@pytest.mark.parametrize("clause", ["RP-17", "RP-30"])
@pytest.mark.parametrize(
    ("ways", "outcome"),
    [
        (("clients -> broker-3",), Outcome.VIOLATED),
        (("clients -> broker-3", "broker-3 -> zookeeper-1"), Outcome.NOT_EXERCISED),
        ((), Outcome.NOT_EXERCISED),
    ],
)
def test_a_fault_of_links_of_clients_gives_no_broker_more_time(
    clause: str, ways: tuple[str, ...], outcome: Outcome
) -> None:
    h = HistoryBuilder()
    partition(h, 10, -1, 0, isr=())
    active(h, B1)
    active(h, B2)
    topic(h, B1)
    for number in range(6):
        name = f"slow-{number}"
        body = FaultInjected(
            fault_id=name,
            fault="slow_link",
            targets=("broker-3", "clients"),
            receipt=True,
            evidence="",
            directions=ways,
        )
        h.after(4_000).add("harness", body)
        h.add("harness", FaultHealed(fault_id=name, receipt=True, evidence=""))
    assert verdict(h, clause) is outcome


def test_rp_30_a_fault_gives_every_broker_its_time_anew() -> None:
    fault = FaultInjected(fault_id="f", fault="cut", targets=(B2,), receipt=True, evidence="")
    h = missed_topic(8_000)
    h.add("harness", fault)
    h.after(8_000)
    assert verdict(h, "RP-30") is Outcome.NOT_EXERCISED
    h.after(3_000)
    assert verdict(h, "RP-30") is Outcome.VIOLATED


# ------------------------------------------------------------- what other planes' rules must know


def test_rp_24_an_epoch_lasts_until_the_next_election() -> None:
    h = HistoryBuilder()
    partition(h, 10, 1, 1)
    partition(h, 11, -1, 1)
    partition(h, 12, 2, 2)
    assert verdict(h, "RP-24") is not Outcome.VIOLATED
    partition(h, 13, 3, 2)
    assert verdict(h, "RP-24") is Outcome.VIOLATED


def test_rp_24_an_election_in_a_former_epoch_is_a_violation() -> None:
    h = HistoryBuilder()
    partition(h, 10, 1, 1)
    partition(h, 11, -1, 1)
    partition(h, 12, 2, 1)
    assert verdict(h, "RP-24") is Outcome.VIOLATED


def test_rp_29_any_replica_may_lead_while_no_isr_was_ever_stored() -> None:
    h = HistoryBuilder()
    broker(h, 1, 2)
    partition(h, 10, -1, 0, isr=())
    partition(h, 11, 2, 1, isr=(2,))
    assert verdict(h, "RP-29") is Outcome.NOT_EXERCISED


def test_rp_02_a_replica_that_stood_in_its_turn_may_win() -> None:
    h = HistoryBuilder()
    failed_broker(h, (2, 2), waited_ms=400)
    assert verdict(h, "RP-02") is Outcome.HOLDS
    h = HistoryBuilder()
    failed_broker(h, (2, 2), waited_ms=399)
    assert verdict(h, "RP-02") is Outcome.VIOLATED


def failed_broker(
    h: HistoryBuilder, successors: tuple[int, int], waited_ms: int | None = None
) -> None:
    for number in ALL3:
        broker(h, number, number)
    lists = ((1, 2, 3), (1, 3, 2))
    for number, replicas in enumerate(lists):
        partition(h, 10 + number, 1, 1, isr=replicas, number=number, replicas=replicas)
    broker(h, 20, 1, fenced=True)
    for number, replicas in enumerate(lists):
        partition(h, 20, -1, 1, isr=replicas, number=number, replicas=replicas)
    for number, replicas in enumerate(lists):
        new = successors[number]
        if number == 1 and waited_ms is not None:
            stands(h, f"broker-{new}#1", waited_ms=waited_ms, number=1)
        partition(h, 21 + number, new, 2, isr=replicas, number=number, replicas=replicas)


def test_rp_02_leaderships_may_be_vacant_before_they_spread() -> None:
    h = HistoryBuilder()
    failed_broker(h, (2, 3))
    assert verdict(h, "RP-02") is Outcome.HOLDS


def test_rp_02_one_broker_must_not_get_all_vacant_leaderships() -> None:
    h = HistoryBuilder()
    failed_broker(h, (2, 2))
    assert verdict(h, "RP-02") is Outcome.VIOLATED


def test_rp_21_leadership_returns_by_way_of_a_vacancy() -> None:
    h = HistoryBuilder()
    for number in ALL3:
        broker(h, number, number)
    partition(h, 10, 2, 2)
    partition(h, 11, -1, 2)
    partition(h, 12, 1, 3)
    assert verdict(h, "RP-21") is Outcome.HOLDS


def test_rp_21_leadership_must_not_stay_away() -> None:
    h = HistoryBuilder()
    broker(h, 1, 1)
    prepared(h)
    partition(h, 10, 2, 2)
    h.after(3_998)
    assert verdict(h, "RP-21") is Outcome.NOT_EXERCISED
    h.after(3)
    assert verdict(h, "RP-21") is Outcome.VIOLATED
    h.add(B2, SessionChanged(session=5, state="connected"))
    assert verdict(h, "RP-21") is Outcome.NOT_EXERCISED


def test_rp_23_a_replica_must_not_go_too_late() -> None:
    h = HistoryBuilder()
    leads(h)
    carries_out(h, "unassigned")
    h.after(20_000)
    h.add(B2, ReplicaRemoved(topic="orders", partition=0, topic_id="t", reason="unassigned"))
    assert verdict(h, "RP-23") is Outcome.VIOLATED


def test_rp_30_a_broker_must_not_notice_a_new_topic_too_late() -> None:
    h = missed_topic(10_000)
    topic(h, B2)
    assert verdict(h, "RP-30") is Outcome.VIOLATED


def test_rp_30_a_fault_that_lasts_may_keep_a_broker_from_a_new_topic() -> None:
    h = missed_topic(10_000)
    cut = FaultInjected(fault_id="c", fault="cut", targets=(B2,), receipt=True, evidence="")
    h.add("harness", cut)
    h.after(20_000)
    topic(h, B2)
    assert verdict(h, "RP-30") is Outcome.HOLDS
