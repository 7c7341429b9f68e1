"""Histories of leaders that step down, and of what they still may do then: RP-18."""

from __future__ import annotations

import pytest
from tests.suites.partition_histories import B1, CLIENT, lead, verdict
from tests.suites.replication.replication_histories import probe

from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import (
    FetchServed,
    LeadershipEnded,
    RequestRefused,
)


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
    assert "never began to lead" in verdict(h, "RP-18").violations[0].message


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


@pytest.mark.parametrize(
    ("leads", "reason", "outcome"),
    [
        (False, "not_leader", Outcome.HOLDS),
        (False, "fenced", Outcome.NOT_EXERCISED),
        (True, "not_leader", Outcome.NOT_EXERCISED),
    ],
)
def test_only_the_refusal_of_a_broker_that_does_not_lead_exercises_rp_18(
    leads: bool, reason: str, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    if leads:
        lead(h, B1, 1)
    body = RequestRefused(
        api="Produce",
        topic="orders",
        partition=0,
        client=CLIENT,
        requester=-1,
        error="NOT_LEADER_OR_FOLLOWER",
        reason=reason,  # type: ignore[arg-type]
        state="ACTIVE",
    )
    h.add(B1, body)
    assert verdict(h, "RP-18").verdict is outcome
