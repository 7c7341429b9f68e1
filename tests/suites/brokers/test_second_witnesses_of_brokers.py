"""Histories in which a broker's word for itself stands alone, or a record speaks against it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.suites.brokers.broker_histories import BROKER, NEW, PEER, record, verdict
from tests.suites.brokers.life_histories import change, register

from fencepost import NodeStarted, process_scope
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import BrokerCommitted, BrokerDeleted

HOLDS, VIOLATED = Outcome.HOLDS, Outcome.VIOLATED
DUPLICATE = "broker-1-duplicate#1"


def begins(h: HistoryBuilder, process: str, incarnation: str) -> None:
    h.add(process, NodeStarted(role="broker", node_id=1, incarnation=incarnation, log_end=0))


# ----------------------------------------------------------------------------------------- REG-01


@pytest.mark.parametrize(("incarnation", "outcome"), [("x", HOLDS), ("y", VIOLATED)])
def test_a_broker_is_online_by_a_record_of_its_own_incarnation(
    incarnation: str, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    begins(h, BROKER, incarnation)
    record(h, 5, fenced=False)
    change(h, "FENCED", "ACTIVE", said="Online")
    found = verdict(h, "REG-01")
    assert found.verdict is outcome
    assert all(one.facts["process"] == process_scope(BROKER) for one in found.violations)


def test_a_process_that_nobody_knows_has_no_record_of_its_own() -> None:
    h = HistoryBuilder()
    begins(h, DUPLICATE, "x")
    record(h, 5, fenced=False)
    change(h, "FENCED", "ACTIVE", said="Online")
    assert verdict(h, "REG-01").verdict is VIOLATED


def test_a_broker_without_a_record_is_not_online_whatever_it_calls_itself() -> None:
    h = HistoryBuilder()
    change(h, "FENCED", "ACTIVE")
    assert verdict(h, "REG-01").verdict is VIOLATED


def fence(h: HistoryBuilder) -> None:
    record(h, 9, fenced=True)


def delete(h: HistoryBuilder) -> None:
    h.add(PEER, BrokerDeleted(offset=9, broker_id=1))


def take_over(h: HistoryBuilder) -> None:
    taken = BrokerCommitted(
        offset=9, broker_id=1, broker_epoch=9, fenced=False, incarnation="another"
    )
    h.add(PEER, taken)


@pytest.mark.parametrize("end", [fence, delete, take_over])
@pytest.mark.parametrize(("after_ms", "outcome"), [(2_999, HOLDS), (3_000, VIOLATED)])
def test_a_broker_becomes_online_within_a_lease_of_the_record_that_ends_that(
    end: Callable[[HistoryBuilder], None], after_ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    register(h)
    record(h, 5, fenced=False)
    end(h)
    ended = h.events()[-1].ref
    h.after(after_ms)
    change(h, "FENCED", "ACTIVE", said="Online")
    found = verdict(h, "REG-01")
    assert found.verdict is outcome
    assert all(one.because == (ended,) for one in found.violations)


def test_a_record_that_a_node_replays_late_ends_nothing() -> None:
    h = HistoryBuilder()
    record(h, 5, fenced=False)
    record(h, 4, fenced=True, process=NEW)
    h.after(60_000)
    change(h, "FENCED", "ACTIVE", said="Online")
    assert verdict(h, "REG-01").verdict is HOLDS
