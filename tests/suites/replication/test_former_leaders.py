"""Histories of leaders that step down, and of what they still may do then: RP-18."""

from __future__ import annotations

from typing import Literal

import pytest
from tests.suites.partition_histories import B1, CLIENT, lead, partition, stated, verdict
from tests.suites.replication.replication_histories import PROBE, probe, store

from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import FetchServed, FollowingStarted, LeadershipEnded, RequestRefused


def steps_down(h: HistoryBuilder) -> None:
    body = LeadershipEnded(topic="orders", partition=0, leader_epoch=1, reason="metadata")
    h.add(B1, body)


def serves(h: HistoryBuilder) -> None:
    body = FetchServed(
        topic="orders",
        partition=0,
        client=CLIENT,
        from_offset=0,
        to_offset=7,
        high_watermark=7,
        leader_epoch=1,
        state="ACTIVE",
    )
    h.add(B1, body)


@pytest.mark.parametrize(("ms", "outcome"), [(998, Outcome.NOT_EXERCISED), (999, Outcome.VIOLATED)])
def test_a_fetch_that_waited_at_a_leader_may_be_answered_just_after_it_stepped_down(
    ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    lead(h, B1, 1)
    steps_down(h)
    h.after(ms)
    serves(h)
    assert verdict(h, "RP-18").verdict is outcome


def test_a_broker_that_never_led_does_not_step_down() -> None:
    h = HistoryBuilder()
    steps_down(h)
    serves(h)
    assert stated(verdict(h, "RP-18"), "led") is False


@pytest.mark.parametrize("told_late", [False, True])
def test_a_follower_that_serves_is_proven_by_the_record_that_made_another_the_leader(
    told_late: bool,
) -> None:
    """Its own event names no authority, so the report said that nothing explains it."""
    h = HistoryBuilder()
    follows = FollowingStarted(
        topic="orders", partition=0, leader=2, leader_epoch=2, log_end=0, high_watermark=0
    )
    if told_late:
        h.add(B1, follows)
    partition(h, 7, leader=2, epoch=2)
    record = h.events()[-1].ref
    if not told_late:
        h.add(B1, follows)
    h.after(2000)
    serves(h)
    assert record in verdict(h, "RP-18").violations[0].because


@pytest.mark.parametrize(
    ("later_ms", "outcome"), [(0, Outcome.NOT_EXERCISED), (1, Outcome.VIOLATED)]
)
def test_a_probe_that_was_sent_after_the_leader_stepped_down_must_not_be_answered(
    later_ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    lead(h, B1, 1)
    steps_down(h)
    stepped_down_ns = h.events()[-1].at_ns
    h.after(10)
    probe(h, "answered", stepped_down_ns + later_ms * 1_000_000)
    assert verdict(h, "RP-18").verdict is outcome


def refuses(
    h: HistoryBuilder,
    reason: Literal["not_leader", "fenced"],
    client: str = CLIENT,
    requester: int = -1,
) -> None:
    body = RequestRefused(
        api="Produce",
        topic="orders",
        partition=0,
        client=client,
        requester=requester,
        error="NOT_LEADER_OR_FOLLOWER",
        reason=reason,
        state="ACTIVE",
    )
    h.add(B1, body)


@pytest.mark.parametrize(
    ("leads", "reason", "outcome"),
    [
        (False, "not_leader", Outcome.HOLDS),
        (False, "fenced", Outcome.NOT_EXERCISED),
        (True, "not_leader", Outcome.NOT_EXERCISED),
    ],
)
def test_only_the_refusal_of_a_broker_that_does_not_lead_exercises_rp_18(
    leads: bool, reason: Literal["not_leader", "fenced"], outcome: Outcome
) -> None:
    h = HistoryBuilder()
    if leads:
        lead(h, B1, 1)
    refuses(h, reason)
    assert verdict(h, "RP-18").verdict is outcome


@pytest.mark.parametrize("follower", [0, 2])
def test_the_refusal_of_a_followers_fetch_does_not_exercise_rp_18(follower: int) -> None:
    h = HistoryBuilder()
    refuses(h, "not_leader", requester=follower)
    assert verdict(h, "RP-18").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("later_ms", "exercised"), [(0, 0), (1, 1)])
def test_a_probe_that_was_refused_for_another_reason_does_not_exercise_rp_18(
    later_ms: int, exercised: int
) -> None:
    """The refusal is that of the probe, unless the probe was sent after it."""
    h = HistoryBuilder()
    lead(h, B1, 1)
    steps_down(h)
    h.after(10)
    refuses(h, "fenced", client=PROBE)
    probe(h, "refused", h.events()[-1].at_ns + later_ms * 1_000_000)
    assert verdict(h, "RP-18").exercised == exercised


def test_a_probe_without_an_answer_does_not_exercise_rp_18() -> None:
    h = HistoryBuilder()
    lead(h, B1, 1)
    steps_down(h)
    probe(h, "timeout", h.now_ns)
    assert verdict(h, "RP-18").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------- those that lead or lead again


@pytest.mark.parametrize("again", [False, True])
def test_a_leader_serves_fetches(again: bool) -> None:
    h = HistoryBuilder()
    lead(h, B1, 1)
    if again:
        steps_down(h)
        lead(h.after(10), B1, 2)
        h.after(2_000)
    serves(h)
    assert verdict(h, "RP-18").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(
    ("leader", "successor", "epoch", "outcome"),
    [
        (1, 2, 2, Outcome.VIOLATED),
        (0, 2, 2, Outcome.VIOLATED),
        (1, -1, 1, Outcome.NOT_EXERCISED),
    ],
    ids=["another leader", "the broker 0", "a vacancy in its epoch"],
)
def test_a_record_deposes_a_leader_if_it_names_another_one_in_a_later_epoch(
    leader: int, successor: int, epoch: int, outcome: Outcome
) -> None:
    process, replicas = f"broker-{leader}#1", (0, 1, 2)
    h = HistoryBuilder()
    partition(h, 3, leader=leader, epoch=1, replicas=replicas, isr=replicas, process=process)
    lead(h, process, 1)
    partition(h, 4, leader=successor, epoch=epoch, replicas=replicas, isr=(2,), process=process)
    store(h, process, 0, as_leader=True)
    assert verdict(h, "RP-18").verdict is outcome


def test_a_leader_whose_record_is_told_later_is_deposed_by_the_next_one() -> None:
    h = HistoryBuilder()
    lead(h, B1, 1)
    partition(h, 3, leader=1, epoch=1, process=B1)
    partition(h, 4, leader=2, epoch=2, process=B1)
    store(h, B1, 0, as_leader=True)
    assert stated(verdict(h, "RP-18"), "process") == B1


def test_a_record_that_is_told_after_the_next_one_deposes_nobody() -> None:
    """Broker 1 leads again in epoch 3. The record of that is offset 5, so offset 4 is older."""
    h = HistoryBuilder()
    partition(h, 3, leader=1, epoch=1, process=B1)
    lead(h, B1, 1)
    steps_down(h)
    partition(h, 5, leader=1, epoch=3)
    lead(h, B1, 3)
    partition(h, 4, leader=2, epoch=2, process=B1)
    store(h, B1, 0, as_leader=True)
    assert verdict(h, "RP-18").violated == 0


def test_a_leader_whose_record_is_not_told_yet_is_deposed_by_no_older_one() -> None:
    h = HistoryBuilder()
    partition(h, 3, leader=1, epoch=1, process=B1)
    lead(h, B1, 1)
    steps_down(h)
    lead(h, B1, 3)
    partition(h, 4, leader=2, epoch=2, process=B1)
    store(h, B1, 0, as_leader=True)
    assert verdict(h, "RP-18").violated == 0


def test_a_vacancy_in_another_epoch_deposes_a_leader() -> None:
    h = HistoryBuilder()
    partition(h, 3, leader=1, epoch=1, process=B1)
    lead(h, B1, 1)
    partition(h, 4, leader=-1, epoch=2, process=B1)
    store(h, B1, 0, as_leader=True)
    assert stated(verdict(h, "RP-18"), "process") == B1


def test_the_record_of_the_next_topic_deposes_a_leader_of_the_former_one() -> None:
    """Its epochs begin anew, so the smaller epoch is the newer one."""
    h = HistoryBuilder()
    partition(h, 3, leader=1, epoch=5, process=B1)
    lead(h, B1, 5)
    partition(h, 9, leader=2, epoch=0, process=B1)
    store(h, B1, 0, as_leader=True)
    assert stated(verdict(h, "RP-18"), "process") == B1
