"""Which process of a slot is fenced, and which of its answers count (QC-17, REG-05, REG-06)."""

from __future__ import annotations

import pytest
from tests.suites.brokers.fencing_histories import (
    BROKER,
    active,
    change,
    probe,
    store,
    verdict,
)

from fencepost import NodeStarted, process_scope
from fencepost.testing import HistoryBuilder, Outcome

HOLDS, VIOLATED, NOT_EXERCISED = Outcome.HOLDS, Outcome.VIOLATED, Outcome.NOT_EXERCISED
CLIENTS_APIS = ["Produce", "Fetch", "Metadata"]
OTHER_APIS = ["Metrics", "DescribeQuorum", "AddRaftVoter", "Bytes"]


def next_process(h: HistoryBuilder) -> None:
    h.add("broker-1#2", NodeStarted(role="broker", node_id=1, incarnation="new", log_end=0))


def test_a_fenced_broker_that_shuts_down_is_fenced_still() -> None:
    h = HistoryBuilder()
    active(h)
    change(h, "ACTIVE", "FENCED")
    change(h, "FENCED", "SHUTDOWN")
    store(h)
    assert verdict(h, "QC-17").verdict is VIOLATED


def test_a_broker_that_is_active_again_is_fenced_no_more() -> None:
    h = HistoryBuilder()
    active(h)
    change(h, "ACTIVE", "FENCED")
    change(h, "FENCED", "ACTIVE")
    store(h)
    assert verdict(h, "QC-17").verdict is NOT_EXERCISED


@pytest.mark.parametrize(("after_ms", "outcome"), [(2_000, NOT_EXERCISED), (4_000, VIOLATED)])
def test_a_former_process_of_the_slot_serves_within_its_own_lease(
    after_ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    active(h)
    next_process(h)
    h.after(after_ms)
    store(h)
    found = verdict(h, "QC-17")
    assert found.verdict is outcome
    assert all(one.facts["process"] == process_scope(BROKER) for one in found.violations)


def test_a_former_process_of_the_slot_has_a_session_of_its_own() -> None:
    h = HistoryBuilder()
    active(h)
    next_process(h)
    h.after(60_000)
    change(h, "ACTIVE", "FENCED")
    assert verdict(h, "REG-06").verdict is VIOLATED


@pytest.mark.parametrize(
    ("apis", "outcome"), [(CLIENTS_APIS, VIOLATED), (OTHER_APIS, NOT_EXERCISED)]
)
def test_only_the_requests_of_clients_are_the_brokers_to_answer(
    apis: list[str], outcome: Outcome
) -> None:
    for api in apis:
        h = HistoryBuilder()
        active(h)
        change(h, "ACTIVE", "FENCED")
        h.after(100)
        probe(h, "answered", sent_ms=50, api=api)
        assert verdict(h, "QC-17").verdict is outcome
        h = HistoryBuilder()
        h.add(BROKER, NodeStarted(role="broker", node_id=1, incarnation="old", log_end=0))
        h.after(100)
        probe(h, "answered", sent_ms=50, api=api)
        assert verdict(h, "REG-05").verdict is outcome
        h = HistoryBuilder()
        active(h)
        h.after(60_000)
        change(h, "ACTIVE", "FENCED")
        probe(h, "answered", sent_ms=50_000, api=api)
        assert verdict(h, "REG-06").violated == 1 + (outcome is VIOLATED)
