"""A stopping broker: whom it must serve, and when it may end (HB-04, HB-05): exact bounds."""

from __future__ import annotations

import pytest
from tests.suites.heartbeats.heartbeat_histories import (
    BROKER,
    Write,
    active_broker,
    asked_to_stop,
    call,
    changed,
    ended,
    steps,
    stopping,
    stored,
    verdict,
    wait,
    whole_verdict,
)
from tests.suites.heartbeats.test_false_accounts import exits
from tests.suites.heartbeats.test_independent_evidence import deleted

from fencepost import ProcessAsked
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import BrokerStopping, RequestRefused

HOLDS, VIOLATED, NOT_EXERCISED = Outcome.HOLDS, Outcome.VIOLATED, Outcome.NOT_EXERCISED


def judged_as(clause: str, *each: Write) -> Outcome:
    h = HistoryBuilder()
    steps(*each)(h)
    return verdict(h, clause)


def refuses(h: HistoryBuilder, requester: int) -> None:
    h.add(
        BROKER,
        RequestRefused(
            api="Fetch",
            topic="orders",
            partition=0,
            client="clients/consumer-1#1",
            requester=requester,
            error="NOT_LEADER_OR_FOLLOWER",
            reason="fenced",
            state="ACTIVE",
        ),
    )


@pytest.mark.parametrize(
    ("requester", "outcome"), [(-1, VIOLATED), (0, NOT_EXERCISED), (3, NOT_EXERCISED)]
)
def test_a_stopping_broker_may_refuse_a_follower(requester: int, outcome: Outcome) -> None:
    refusal = call(refuses, requester=requester)
    assert judged_as("HB-04", active_broker, stopping, refusal) is outcome


@pytest.mark.parametrize(
    ("topic", "partition", "named"), [("orders", 0, True), ("orders", -1, False), ("", 0, False)]
)
def test_a_refusal_names_the_partition_if_it_is_of_one(
    topic: str, partition: int, named: bool
) -> None:
    h = HistoryBuilder()
    steps(active_broker, stopping)(h)
    body = RequestRefused(
        api="Fetch",
        topic=topic,
        partition=partition,
        client="clients/consumer-1#1",
        requester=-1,
        error="NOT_LEADER_OR_FOLLOWER",
        reason="fenced",
        state="ACTIVE",
    )
    h.add(BROKER, body)
    (broken,) = whole_verdict(h, "HB-04").violations
    assert ("partition" in broken.facts) is named


def test_a_fenced_broker_may_refuse_a_client() -> None:
    fenced = call(changed, new="FENCED", state="Fenced")
    refusal = call(refuses, requester=-1)
    assert judged_as("HB-04", active_broker, fenced, refusal) is NOT_EXERCISED


def test_a_broker_whose_only_topic_was_deleted_leads_nothing_more() -> None:
    assert judged_as("HB-05", *(stored, asked_to_stop, deleted, wait(100), ended)) is HOLDS


@pytest.mark.parametrize(("ms", "outcome"), [(5399, VIOLATED), (5400, NOT_EXERCISED)])
def test_a_broker_may_end_with_its_leaderships_after_nine_tenths_of_its_limit(
    ms: int, outcome: Outcome
) -> None:
    assert judged_as("HB-05", stored, asked_to_stop, wait(ms - 1), exits) is outcome


def names_limit(h: HistoryBuilder, broker: int, limit_ms: int) -> None:
    body = BrokerStopping(
        broker_id=broker, state="ACTIVE", global_state="Stopping", limit_ms=limit_ms
    )
    h.add(f"broker-{broker}#1", body)


@pytest.mark.parametrize(
    ("others", "outcome"), [((), NOT_EXERCISED), ((6_000,), VIOLATED), ((6_000, 1), NOT_EXERCISED)]
)
def test_a_broker_names_no_shorter_limit_than_all_others(
    others: tuple[int, ...], outcome: Outcome
) -> None:
    named = [call(names_limit, broker=broker, limit_ms=ms) for broker, ms in enumerate(others, 3)]
    own = call(names_limit, broker=2, limit_ms=0)
    assert judged_as("HB-05", *(stored, *named, own, wait(5), exits)) is outcome


def asked_by_harness(h: HistoryBuilder) -> None:
    h.add("harness", ProcessAsked(asked=BROKER, signal="SIGTERM"))


@pytest.mark.parametrize(
    ("others", "state", "after_ms", "outcome"),
    [
        pytest.param((6_000,), "ACTIVE", 5_399, VIOLATED, id="early"),
        pytest.param((6_000,), "ACTIVE", 5_400, NOT_EXERCISED, id="in time"),
        pytest.param((), "ACTIVE", 100, NOT_EXERCISED, id="by no known limit"),
        pytest.param((6_000,), "FENCED", 100, NOT_EXERCISED, id="fenced"),
    ],
)
def test_a_broker_that_never_says_that_it_stops_is_judged_by_what_the_harness_asked(
    others: tuple[int, ...], state: str, after_ms: int, outcome: Outcome
) -> None:
    named = [call(names_limit, broker=broker, limit_ms=ms) for broker, ms in enumerate(others, 3)]
    is_state = call(changed, new=state, old="INITIAL")
    each = (stored, active_broker, is_state, *named, asked_by_harness, wait(after_ms - 1), exits)
    assert judged_as("HB-05", *each) is outcome


def test_a_broker_that_was_fenced_meanwhile_may_end() -> None:
    fenced = call(changed, new="FENCED")
    assert judged_as("HB-05", stored, asked_to_stop, fenced, exits) is NOT_EXERCISED


def test_a_broker_that_was_not_asked_to_stop_is_not_judged_by_hb_05() -> None:
    assert judged_as("HB-05", stored, active_broker, exits) is NOT_EXERCISED
