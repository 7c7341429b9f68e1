"""The order of writes, as clients know it: JEPSEN-nonmonotonic-send."""

from __future__ import annotations

import pytest
from tests.suites.clients.client_histories import acked, delete_topic, invoke_named, verdict

from fencepost.testing import HistoryBuilder, Outcome

SEND = "nonmonotonic-send"


def test_a_later_write_before_an_acknowledged_one_breaks_the_order() -> None:
    h = HistoryBuilder()
    invoke_named(h, "first")
    acked(h, 7, "first")
    invoke_named(h, "second")
    acked(h, 5, "second")
    found = verdict(h, SEND)
    assert found.verdict is Outcome.VIOLATED
    assert found.violations[0].message == (
        "second is at offset 5 of orders-0, though it was invoked after first had been "
        "acknowledged at 7"
    )


@pytest.mark.parametrize(("offset", "expected"), [(7, "violated"), (8, "holds")])
def test_a_later_write_lies_behind(offset: int, expected: str) -> None:
    h = HistoryBuilder()
    invoke_named(h, "first")
    acked(h, 7, "first")
    invoke_named(h, "second")
    acked(h, offset, "second")
    assert verdict(h, SEND).verdict == expected


def test_the_highest_acknowledged_write_counts_not_the_newest() -> None:
    h = HistoryBuilder()
    for name in ("a", "b"):
        invoke_named(h, name)
    acked(h, 9, "a")
    acked(h, 3, "b")
    invoke_named(h, "c")
    acked(h, 4, "c")
    assert verdict(h, SEND).violated == 1


def test_writes_in_flight_at_the_same_time_have_any_order() -> None:
    h = HistoryBuilder()
    invoke_named(h, "first")
    invoke_named(h, "second")
    acked(h, 7, "first")
    acked(h, 5, "second")
    assert verdict(h, SEND).verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize("of", ["first", "second"])
@pytest.mark.parametrize("how", ["acks", "failed", "unplaced"])
def test_a_write_without_a_whole_acknowledgement_has_no_order(of: str, how: str) -> None:
    h = HistoryBuilder()
    for name, offset in (("first", 7), ("second", 5)):
        invoke_named(h, name)
        if name != of:
            acked(h, offset, name)
        elif how == "acks":
            acked(h, offset, name, acks=1)
        elif how == "failed":
            acked(h, offset, name, outcome="failed")
        else:
            acked(h, -1, name)
    assert verdict(h, SEND).verdict is Outcome.NOT_EXERCISED


def test_the_next_topic_of_that_name_begins_anew() -> None:
    h = HistoryBuilder()
    invoke_named(h, "first")
    acked(h, 7, "first")
    delete_topic(h)
    invoke_named(h, "second")
    acked(h, 0, "second")
    assert verdict(h, SEND).verdict is Outcome.NOT_EXERCISED


def test_a_log_that_was_set_back_counts_once_until_it_is_set_back_again() -> None:
    h = HistoryBuilder()
    for number, offset in enumerate((900, 0, 1, 2, 1)):
        invoke_named(h, f"write-{number}")
        acked(h, offset, f"write-{number}")
    found = verdict(h, SEND)
    assert [one.message.partition(" is at ")[0] for one in found.violations] == [
        "write-1",
        "write-4",
    ]
