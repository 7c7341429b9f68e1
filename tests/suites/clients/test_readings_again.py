"""What a reading shows besides what it returns: its start, the one before it, and when it asked."""

from __future__ import annotations

import pytest
from tests.suites.clients.client_histories import (
    PRODUCER,
    READER,
    A,
    acked,
    invoke_named,
    poll,
    read,
    verdict,
)
from tests.suites.partition_histories import stated, why

from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import ProduceCompleted, ReadCompleted


def read_from(h: HistoryBuilder, start: int, end: int, asked_ns: int | None = None) -> None:
    now_ns = h.events()[-1].at_ns
    body = ReadCompleted(
        topic="orders",
        partition=0,
        start=start,
        end=end,
        outcome="ok",
        error="",
        asked_ns=now_ns if asked_ns is None else asked_ns,
    )
    h.add(READER, body)


def unknown(h: HistoryBuilder, operation: str, offset: int) -> None:
    """A client of a plugin names an offset of a write that ended unknown."""
    body = ProduceCompleted(
        operation=operation,
        topic="orders",
        partition=0,
        acks=-1,
        outcome="unknown",
        offset=offset,
        error="timed out",
    )
    h.add(PRODUCER, body)


def test_writes_below_the_start_of_the_log_may_have_been_deleted() -> None:
    h = HistoryBuilder()
    for offset in range(4):
        acked(h, offset)
    poll(h, READER, 3)
    read_from(h, 3, 4)
    found = verdict(h, "lost-write")
    assert found.verdict is Outcome.UNKNOWN
    assert why(found, "writes", "partition", "start") == (3, "orders-0", 3)


def test_a_write_that_is_missing_above_the_start_is_lost() -> None:
    h = HistoryBuilder()
    for offset in range(4):
        acked(h, offset)
    poll(h, READER, 1, 3)
    read_from(h, 1, 4)
    found = verdict(h, "lost-write")
    assert found.verdict is Outcome.VIOLATED
    assert stated(found, "operation", "lost") == ("op-2", 1)


@pytest.mark.parametrize("anomaly", ["inconsistent-offsets", "unseen", "duplicate"])
@pytest.mark.parametrize("offset", [0, 7])
def test_the_offset_of_a_write_of_unknown_outcome_says_nothing(anomaly: str, offset: int) -> None:
    h = HistoryBuilder()
    invoke_named(h, "op-0", "op-1", idempotent=True)
    acked(h, 0)
    unknown(h, "op-1", offset)
    poll(h, READER, 0, 1)
    read(h, 2)
    assert verdict(h, anomaly).violated == 0


@pytest.mark.parametrize("outcome", ["ok", "failed"])
def test_what_an_earlier_reading_returned_is_owed_to_the_next(outcome: str) -> None:
    h = HistoryBuilder()
    acked(h, 0)
    acked(h, 1)
    poll(h, READER, 0, 1)
    read(h, 3, outcome)
    poll(h, READER, 0)
    read(h, 1)
    found = verdict(h, "inconsistent-offsets")
    assert stated(found, "operation", "gone") == ("op-1", 1)


def test_what_a_reading_returned_is_not_owed_to_itself_or_again() -> None:
    h = HistoryBuilder()
    acked(h, 0)
    acked(h, 1)
    for _ in range(2):
        poll(h, READER, 0, 1)
        read(h, 2)
    assert verdict(h, "inconsistent-offsets").verdict is Outcome.HOLDS


def test_it_is_undecided_if_nobody_knows_when_the_reading_asked() -> None:
    for anomaly, asked_ns, outcome in (
        ("inconsistent-offsets", 0, Outcome.UNKNOWN),
        ("inconsistent-offsets", None, Outcome.VIOLATED),
        ("lost-write", 0, Outcome.UNKNOWN),
        ("lost-write", None, Outcome.VIOLATED),
    ):
        h = HistoryBuilder()
        acked(h, 0)
        acked(h, 1)
        poll(h, A, 0, 1)
        poll(h, READER, 0)
        read_from(h.after(10), 0, 1, asked_ns)
        assert verdict(h, anomaly).verdict is outcome


def test_a_write_without_an_offset_is_undecided_if_nobody_knows_when_the_reading_asked() -> None:
    for asked_ns, outcome in ((0, Outcome.UNKNOWN), (None, Outcome.VIOLATED)):
        h = HistoryBuilder()
        acked(h, -1, "op-x")
        acked(h, 0)
        poll(h, READER, 0)
        read_from(h.after(10), 0, 1, asked_ns)
        assert verdict(h, "lost-write").verdict is outcome
