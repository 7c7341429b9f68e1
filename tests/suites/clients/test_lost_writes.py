"""JEPSEN-lost-write, with violations, near misses and undecided histories."""

from __future__ import annotations

import pytest
from tests.suites.clients.client_histories import (
    PRODUCER,
    READER,
    A,
    acked,
    delete_topic,
    poll,
    read,
    verdict,
)
from tests.suites.partition_histories import stated, why

from fencepost import Evidence
from fencepost.testing import HistoryBuilder, Outcome


def test_an_acknowledged_write_missing_from_the_reading_is_lost() -> None:
    h = HistoryBuilder()
    acked(h, 0)
    acked(h, 1)
    poll(h, READER, 0, 2)
    read(h, 3)
    found = verdict(h, "lost-write").violations
    assert [str(ref) for ref in found[0].because] == [f"{PRODUCER}@1"]
    assert found[0].evidence is Evidence.CLIENT


def test_an_acknowledged_write_with_another_in_its_place_is_lost() -> None:
    h = HistoryBuilder()
    acked(h, 0)
    poll(h, READER, 0, o0="other")
    read(h, 1)
    assert verdict(h, "lost-write").violated == 1


def test_of_two_writes_acknowledged_at_one_offset_one_is_lost() -> None:
    h = HistoryBuilder()
    acked(h, 0, "first")
    acked(h, 0, "second")
    poll(h, READER, 0, o0="second")
    read(h, 1)
    found = verdict(h, "lost-write")
    assert found.violated == 1
    assert stated(found, "operation", "offset", "there") == ("first", 0, "second")


def test_a_write_acknowledged_without_an_offset_is_lost_if_no_reading_shows_it() -> None:
    h = HistoryBuilder()
    acked(h, -1, "unplaced")
    poll(h, READER, 0, 1)
    read(h, 2)
    found = verdict(h, "lost-write")
    assert found.violated == 1
    assert stated(found, "operation", "offset") == ("unplaced", -1)


def test_a_write_acknowledged_without_an_offset_that_is_read_is_not_lost() -> None:
    h = HistoryBuilder()
    acked(h, -1, "unplaced")
    poll(h, READER, 0, 1, o1="unplaced")
    read(h, 2)
    assert verdict(h, "lost-write").verdict is Outcome.HOLDS


@pytest.mark.parametrize("shown", [True, False])
def test_a_write_acknowledged_without_an_offset_during_a_reading_need_not_be_in_it(
    shown: bool,
) -> None:
    h = HistoryBuilder()
    poll(h, READER, 0, o0="unplaced" if shown else "op-0")
    acked(h, -1, "unplaced")
    read(h, 1)
    assert verdict(h, "lost-write").violated == 0


def test_a_write_that_failed_has_no_offset_and_is_not_lost() -> None:
    h = HistoryBuilder()
    acked(h, -1, "failed", outcome="failed")
    poll(h, READER, 0)
    read(h, 1)
    assert verdict(h, "lost-write").violated == 0


def test_writes_all_read_back_are_not_lost() -> None:
    h = HistoryBuilder()
    acked(h, 0)
    poll(h, READER, 0, 1)
    acked(h, 1)  # the acknowledgement arrived after the reading had returned it
    acked(h, 2, acks=1)  # promises nothing
    read(h, 3)
    assert verdict(h, "lost-write").verdict is Outcome.HOLDS


def test_a_write_beyond_the_reading_is_unseen_not_lost() -> None:
    h = HistoryBuilder()
    acked(h, 5)
    poll(h, READER, 0)
    read(h, 1)
    assert verdict(h, "lost-write").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize("order", ["acknowledged first", "read first"])
def test_a_write_that_a_consumer_got_and_that_lies_beyond_the_reading_is_lost(order: str) -> None:
    """The end of the log is gone, and nothing was written since."""
    h = HistoryBuilder()
    acked(h, 0)
    if order == "acknowledged first":
        acked(h, 5)
    poll(h, A, 4, 5)
    if order == "read first":
        acked(h, 5)
    poll(h, READER, 0)
    read(h, 1)
    found = verdict(h, "lost-write")
    assert found.violated == 1
    assert stated(found, "operation", "offset", "there", "lost") == ("op-5", 5, "", 1)
    assert verdict(h, "unseen").violated == 0


def test_a_write_that_was_acknowledged_once_the_reading_asked_for_the_end_may_be_beyond_it() -> (
    None
):
    h = HistoryBuilder()
    acked(h, 0)
    poll(h, READER, 0)
    poll(h, A, 1)
    acked(h, 1)
    read(h, 1)
    assert verdict(h, "lost-write").violated == 0


def test_a_reading_that_did_not_complete_leaves_lost_writes_undecided() -> None:
    h = HistoryBuilder()
    acked(h, 0)
    read(h, 3, "unknown")
    found = verdict(h, "lost-write")
    assert found.verdict is Outcome.UNKNOWN
    assert why(found, "writes") == 1


def test_messages_of_a_deleted_topic_are_not_lost() -> None:
    h = HistoryBuilder()
    acked(h, 0)
    delete_topic(h)
    read(h, 0, "unknown")
    assert verdict(h, "lost-write").verdict is Outcome.NOT_EXERCISED
