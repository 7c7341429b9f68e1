"""Leaders that cannot act: fenced, stalled or superseded."""

from __future__ import annotations

import pytest
from tests.suites.partition_histories import ALL3, B1, CLIENT, lead, partition, verdict
from tests.suites.replication.replication_histories import store

from fencepost import Stalled
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import (
    BrokerStateChanged,
    LeadershipEnded,
    PartitionCommitted,
    ProduceAnswered,
    ProduceInvoked,
    RequestRefused,
)


def turn(h: HistoryBuilder, state: str) -> None:
    h.add(
        B1,
        BrokerStateChanged(
            broker_id=1,
            old="ACTIVE" if state == "FENCED" else "FENCED",
            new=state,  # type: ignore[arg-type]
            broker_epoch=1,
            reason="unfenced" if state == "ACTIVE" else "controller_silent",
            global_state="Online" if state == "ACTIVE" else "Fenced",
        ),
    )


def time_out(h: HistoryBuilder) -> None:
    h.add(
        B1,
        ProduceAnswered(
            topic="orders",
            partition=0,
            client=CLIENT,
            acks=-1,
            error="REQUEST_TIMED_OUT",
            base_offset=-1,
            log_end=-1,
            leader_epoch=1,
            high_watermark=0,
            isr=ALL3,
            ends=(1, 0, 0),
            duplicate=False,
        ),
    )


@pytest.mark.parametrize(
    ("again", "violated"), [(None, False), (60_000, False), (70_000, True)], ids=str
)
def test_a_fenced_leader_drops_no_follower_and_has_its_time_once_it_serves_again(
    again: int | None, violated: bool
) -> None:
    """RP-09; without a time of its own a leader has 30 s."""
    h = HistoryBuilder()
    lead(h, B1, 1)
    store(h, B1, 0, as_leader=True)
    turn(h, "FENCED")
    h.after(100_000)
    if again is not None:
        turn(h, "ACTIVE")
        h.after(again)
    time_out(h)
    assert (verdict(h, "RP-09").verdict is Outcome.VIOLATED) is violated


def test_a_write_that_waited_too_long_before_its_leader_was_fenced_breaks_rp_09() -> None:
    h = HistoryBuilder()
    lead(h, B1, 1)
    store(h, B1, 0, as_leader=True)
    turn(h.after(70_000), "FENCED")
    assert verdict(h, "RP-09").verdict is Outcome.VIOLATED


@pytest.mark.parametrize(("deposed", "violated"), [(True, False), (False, True)])
def test_a_leader_that_was_deposed_in_what_is_stored_was_not_to_be_found(
    deposed: bool, violated: bool
) -> None:
    """RP-11."""
    h = HistoryBuilder()
    lead(h, B1, 1)
    h.add(CLIENT, ProduceInvoked(operation="op-1", topic="orders", partition=0, acks=-1))
    if deposed:
        h.add(
            "broker-3#1",
            PartitionCommitted(
                offset=9,
                topic="orders",
                partition=0,
                leader=-1,
                leader_epoch=2,
                isr=(1,),
                replicas=ALL3,
                role="controller",
            ),
        )
    h.after(11_000).add(
        B1, LeadershipEnded(topic="orders", partition=0, leader_epoch=1, reason="metadata")
    )
    assert (verdict(h, "RP-11").verdict is Outcome.VIOLATED) is violated


@pytest.mark.parametrize(
    ("deposed_ms", "outcome"), [(7_600, Outcome.NOT_EXERCISED), (8_300, Outcome.VIOLATED)]
)
def test_a_former_leader_was_to_be_found_until_its_successors_epoch_is_stored(
    deposed_ms: int, outcome: Outcome
) -> None:
    """RP-11: the successor's own event comes first."""
    h = HistoryBuilder()
    lead(h, B1, 1)
    h.add(CLIENT, ProduceInvoked(operation="op-1", topic="orders", partition=0, acks=-1))
    h.after(7_500)
    lead(h, "broker-2#1", 2)
    h.after(deposed_ms - 7_500)
    partition(h, 9, leader=2, epoch=2)
    h.after(8_450 - deposed_ms)
    h.add(B1, LeadershipEnded(topic="orders", partition=0, leader_epoch=1, reason="metadata"))
    assert verdict(h, "RP-11").verdict is outcome


def test_a_leader_whose_own_next_epoch_is_stored_goes_on_leading() -> None:
    """RP-11: its epoch grows with each change of the ISR."""
    h = HistoryBuilder()
    lead(h, B1, 1)
    h.add(CLIENT, ProduceInvoked(operation="op-1", topic="orders", partition=0, acks=-1))
    h.after(6_000).add(
        "broker-3#1",
        PartitionCommitted(
            offset=9,
            topic="orders",
            partition=0,
            leader=1,
            leader_epoch=2,
            isr=(1,),
            replicas=ALL3,
            role="controller",
        ),
    )
    lead(h, B1, 2)
    h.after(6_000).add(
        B1, LeadershipEnded(topic="orders", partition=0, leader_epoch=2, reason="metadata")
    )
    assert verdict(h, "RP-11").verdict is Outcome.VIOLATED


def test_a_leader_that_is_elected_anew_was_not_to_be_found_before_that() -> None:
    """RP-11: another broker led in between, in an epoch of which no event says when it ended."""
    h = HistoryBuilder()
    lead(h, B1, 1)
    h.add(CLIENT, ProduceInvoked(operation="op-1", topic="orders", partition=0, acks=-1))
    h.after(6_000)
    partition(h, 9, leader=2, epoch=2)
    lead(h, B1, 3)
    h.after(6_000).add(
        B1, LeadershipEnded(topic="orders", partition=0, leader_epoch=3, reason="metadata")
    )
    assert verdict(h, "RP-11").verdict is not Outcome.VIOLATED


def test_a_leader_that_stood_still_was_not_to_be_found() -> None:
    """RP-11."""
    h = HistoryBuilder()
    lead(h, B1, 1)
    h.add(CLIENT, ProduceInvoked(operation="op-1", topic="orders", partition=0, acks=-1))
    h.after(11_000).add(B1, Stalled(stalled_ns=7_000_000_000))
    h.add(B1, LeadershipEnded(topic="orders", partition=0, leader_epoch=1, reason="metadata"))
    assert verdict(h, "RP-11").verdict is not Outcome.VIOLATED


def test_a_leader_that_stood_still_and_then_was_not_active_was_not_to_be_found() -> None:
    """RP-11: it served for 6 s of 21, and neither was for that long."""
    h = HistoryBuilder()
    lead(h, B1, 1)
    h.add(CLIENT, ProduceInvoked(operation="op-1", topic="orders", partition=0, acks=-1))
    h.after(10_000).add(B1, Stalled(stalled_ns=7_000_000_000))
    turn(h, "FENCED")
    h.after(8_000)
    turn(h, "ACTIVE")
    h.after(3_000)
    h.add(B1, LeadershipEnded(topic="orders", partition=0, leader_epoch=1, reason="metadata"))
    assert verdict(h, "RP-11").verdict is not Outcome.VIOLATED


def test_a_leader_that_was_not_active_was_not_to_be_found() -> None:
    """RP-11."""
    h = HistoryBuilder()
    lead(h, B1, 1)
    h.add(CLIENT, ProduceInvoked(operation="op-1", topic="orders", partition=0, acks=-1))
    turn(h, "FENCED")
    h.after(11_000)
    turn(h, "ACTIVE")
    h.add(B1, LeadershipEnded(topic="orders", partition=0, leader_epoch=1, reason="metadata"))
    assert verdict(h, "RP-11").verdict is not Outcome.VIOLATED


@pytest.mark.parametrize(("active_first", "violated"), [(True, True), (False, False)])
def test_a_leader_that_was_not_active_yet_was_not_to_be_found(
    active_first: bool, violated: bool
) -> None:
    """RP-11: a process may lead before the controller has answered its first heartbeat."""
    h = HistoryBuilder()
    if active_first:
        turn(h, "ACTIVE")
    lead(h, B1, 1)
    h.add(CLIENT, ProduceInvoked(operation="op-1", topic="orders", partition=0, acks=-1))
    h.after(11_000)
    turn(h, "ACTIVE")
    h.add(B1, LeadershipEnded(topic="orders", partition=0, leader_epoch=1, reason="metadata"))
    assert (verdict(h, "RP-11").verdict is Outcome.VIOLATED) is violated


@pytest.mark.parametrize(("reason", "violated"), [("not_leader", True), ("fenced", False)])
def test_a_leader_that_answers_that_it_does_not_lead_was_not_found(
    reason: str, violated: bool
) -> None:
    """RP-11."""
    h = HistoryBuilder()
    lead(h, B1, 1)
    h.add(CLIENT, ProduceInvoked(operation="op-1", topic="orders", partition=0, acks=-1))
    refusal = RequestRefused(
        api="Produce",
        topic="orders",
        partition=0,
        client=CLIENT,
        requester=-1,
        error="NOT_LEADER_OR_FOLLOWER",
        reason=reason,
        state="ACTIVE",
    )
    h.after(11_000).add(B1, refusal)
    h.add(B1, LeadershipEnded(topic="orders", partition=0, leader_epoch=1, reason="metadata"))
    assert (verdict(h, "RP-11").verdict is Outcome.VIOLATED) is violated
