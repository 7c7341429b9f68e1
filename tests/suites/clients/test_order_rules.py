"""The order of writes, as clients know it: JEPSEN-nonmonotonic-send."""

from __future__ import annotations

import pytest
from tests.suites.clients.client_histories import (
    PRODUCER,
    READER,
    A,
    acked,
    delete_topic,
    invoke_named,
    poll,
    verdict,
)
from tests.suites.partition_histories import stated

from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import ProduceCompleted, ProduceInvoked, ProducerEpochChanged

SEND = "nonmonotonic-send"


def test_a_later_write_before_an_acknowledged_one_breaks_the_order() -> None:
    h = HistoryBuilder()
    invoke_named(h, "first")
    acked(h, 7, "first")
    invoke_named(h, "second")
    acked(h, 5, "second")
    (found,) = verdict(h, SEND).violations
    assert stated(found, "operation", "offset", "partition") == ("second", 5, "orders-0")
    assert stated(found, "other_operation", "other_offset", "other") == ("first", 7, PRODUCER)


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


def ends(h: HistoryBuilder, operation: str, outcome: str) -> None:
    """A write ends without an offset."""
    body = ProduceCompleted(
        operation=operation,
        topic="orders",
        partition=0,
        acks=-1,
        outcome=outcome,  # type: ignore[arg-type]
        offset=-1,
        error="",
    )
    h.add(PRODUCER, body)


@pytest.mark.parametrize("outcome", ["ok", "unknown"])
@pytest.mark.parametrize(("offset", "expected"), [(6, "violated"), (8, "holds")])
@pytest.mark.parametrize("reader", [READER, A])
def test_a_reader_shows_where_a_later_write_is(
    outcome: str, offset: int, expected: str, reader: str
) -> None:
    h = HistoryBuilder()
    invoke_named(h, "first")
    acked(h, 7, "first")
    invoke_named(h, "second")
    ends(h, "second", outcome)
    poll(h, reader, 5, offset, **{f"o{offset}": "second"})
    found = verdict(h, SEND)
    assert found.verdict == expected
    if found.violations:
        assert stated(found, "operation", "offset", "other_offset") == ("second", offset, 7)


@pytest.mark.parametrize(("outcome", "broken"), [("ok", 1), ("unknown", 0), ("failed", 0)])
def test_a_reader_shows_that_an_acknowledged_write_is_behind_a_later_one(
    outcome: str, broken: int
) -> None:
    """One that timed out may still be stored."""
    h = HistoryBuilder()
    invoke_named(h, "first")
    ends(h, "first", outcome)
    for name, offset in (("second", 3), ("third", 4)):
        invoke_named(h, name)
        acked(h, offset, name)
    poll(h, READER, 7, o7="first")
    found = verdict(h, SEND)
    assert found.violated == broken
    if broken:
        assert stated(found, "operation", "other_operation") == ("second", "first")


def test_a_write_that_was_in_flight_meanwhile_may_be_anywhere() -> None:
    h = HistoryBuilder()
    invoke_named(h, "early", "first")
    ends(h, "first", "ok")
    acked(h, 3, "early")
    invoke_named(h, "late")
    ends(h, "late", "unknown")
    poll(h, READER, 4, 7, o4="late", o7="first")
    assert verdict(h, SEND).violated == 0


def test_a_log_that_was_set_back_counts_once_for_writes_that_timed_out() -> None:
    h = HistoryBuilder()
    invoke_named(h, "first")
    acked(h, 900, "first")
    for name in ("a", "b"):
        invoke_named(h, name)
        ends(h, name, "unknown")
    invoke_named(h, "second")
    acked(h, 2, "second")
    poll(h, READER, 0, 1, 2, o0="a", o1="b", o2="second")
    assert verdict(h, SEND).violated == 1


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
    assert [stated(one, "operation") for one in found.violations] == ["write-1", "write-4"]


# ------------------------------------------------------------------ the order of one producer


def sends(h: HistoryBuilder, *operations: str, process: str = PRODUCER) -> None:
    """An idempotent producer sends these, one after the other, before any is acknowledged."""
    for operation in operations:
        h.add(
            process,
            ProduceInvoked(
                operation=operation, topic="orders", partition=0, acks=-1, idempotent=True
            ),
        )


def begins_epoch(h: HistoryBuilder, ago_ms: int = 0, process: str = PRODUCER) -> None:
    since_ns = h.now_ns - ago_ms * 1_000_000
    h.add(
        process,
        ProducerEpochChanged(
            topic="orders", partition=0, producer_id=1, epoch=1, since_ns=since_ns
        ),
    )


@pytest.mark.parametrize("answered", [("first", "second"), ("second", "first")])
def test_an_idempotent_producer_whose_writes_change_places_breaks_the_order(
    answered: tuple[str, str],
) -> None:
    h = HistoryBuilder()
    sends(h, "first", "second")
    for operation in answered:
        acked(h, 7 if operation == "first" else 5, operation)
    (found,) = verdict(h, SEND).violations
    assert stated(found, "operation", "offset", "partition") == ("second", 5, "orders-0")
    assert stated(found, "other_operation", "other_offset", "client") == ("first", 7, PRODUCER)
    assert found.because


@pytest.mark.parametrize(("since_ms", "broken"), [(None, 1), (5, 1), (20, 0)])
def test_a_reader_shows_that_writes_of_an_idempotent_producer_change_places(
    since_ms: int | None, broken: int
) -> None:
    """One that timed out may be sent again in another epoch, behind what came later."""
    h = HistoryBuilder()
    sends(h, "first", "second")
    ends(h, "first", "unknown")
    h.after(10)
    acked(h, 5, "second")
    if since_ms is not None:
        begins_epoch(h, since_ms)
    poll(h, READER, 5, 7, o5="second", o7="first")
    assert verdict(h, SEND).violated == broken


@pytest.mark.parametrize(("offset", "broken"), [(4, 0), (6, 1), (8, 1)])
def test_a_reader_shows_that_a_write_that_timed_out_lies_behind_any_later_one(
    offset: int, broken: int
) -> None:
    h = HistoryBuilder()
    sends(h, "first", "second", "third")
    ends(h, "first", "unknown")
    acked(h, 5, "second")
    acked(h, 7, "third")
    poll(h, READER, offset, **{f"o{offset}": "first"})
    found = verdict(h, SEND)
    assert found.violated == broken
    if broken:
        assert stated(found, "operation", "other_operation") == ("second", "first")


@pytest.mark.parametrize("answered", [("first", "second"), ("second", "first")])
def test_an_idempotent_producer_keeps_the_order(answered: tuple[str, str]) -> None:
    h = HistoryBuilder()
    sends(h, "first", "second")
    for operation in answered:
        acked(h, 5 if operation == "first" else 7, operation)
    assert verdict(h, SEND).verdict is Outcome.NOT_EXERCISED


def test_writes_of_one_batch_may_share_a_place_until_another_rule_looks() -> None:
    h = HistoryBuilder()
    sends(h, "first", "second")
    acked(h, 5, "first")
    acked(h, 5, "second")
    assert verdict(h, SEND).verdict is Outcome.NOT_EXERCISED


def test_a_write_behind_its_predecessor_is_compared_with_the_newest_one() -> None:
    h = HistoryBuilder()
    sends(h, "a", "b", "c")
    acked(h, 1, "a")
    acked(h, 9, "c")
    acked(h, 10, "b")
    assert stated(verdict(h, SEND), "other_operation", "other_offset") == ("b", 10)


def test_the_writes_of_two_producers_have_any_order() -> None:
    h = HistoryBuilder()
    sends(h, "first", process="clients/other#1")
    sends(h, "second")
    acked(h, 5, "second")
    acked(h, 7, "first", process="clients/other#1")
    assert verdict(h, SEND).verdict is Outcome.NOT_EXERCISED


def test_a_new_epoch_of_the_producer_may_change_what_was_in_flight() -> None:
    h = HistoryBuilder()
    sends(h, "first", "second")
    begins_epoch(h)
    acked(h, 7, "first")
    acked(h, 5, "second")
    assert verdict(h, SEND).verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("ago_ms", "expected"), [(2, "violated"), (3, "not-exercised")])
def test_an_epoch_that_began_before_the_acknowledgement_may_explain_it(
    ago_ms: int, expected: str
) -> None:
    h = HistoryBuilder()
    sends(h, "first", "second")
    acked(h, 7, "first")
    acked(h, 5, "second")
    h.after(2)
    begins_epoch(h, ago_ms)
    assert verdict(h, SEND).verdict == expected


def test_the_epoch_of_another_producer_explains_nothing() -> None:
    h = HistoryBuilder()
    sends(h, "first", "second")
    begins_epoch(h, process="clients/other#1")
    acked(h, 7, "first")
    acked(h, 5, "second")
    begins_epoch(h, 10, process="clients/other#1")
    assert verdict(h, SEND).verdict is Outcome.VIOLATED


def test_the_order_begins_anew_with_a_new_epoch() -> None:
    h = HistoryBuilder()
    sends(h, "a", "b")
    acked(h, 9, "a")
    begins_epoch(h)
    acked(h, 5, "b")
    sends(h, "c", "d")
    acked(h, 12, "c")
    acked(h, 11, "d")
    assert verdict(h, SEND).violated == 1


def test_a_log_that_was_set_back_is_one_violation_for_a_producer_too() -> None:
    h = HistoryBuilder()
    sends(h, "a")
    acked(h, 900, "a")
    sends(h, "b", "c")
    acked(h, 0, "b")
    acked(h, 1, "c")
    assert verdict(h, SEND).violated == 1


def test_a_write_at_the_very_time_of_an_acknowledgement_may_have_come_before_it() -> None:
    h = HistoryBuilder()
    invoke_named(h, "first")
    acked(h, 7, "first")
    h.after(-1)
    invoke_named(h, "second")
    acked(h, 5, "second")
    assert verdict(h, SEND).verdict is Outcome.NOT_EXERCISED


def test_of_two_writes_at_one_place_the_first_is_named() -> None:
    h = HistoryBuilder()
    for name in ("first", "same"):
        invoke_named(h, name)
    for name in ("first", "same"):
        acked(h, 7, name)
    invoke_named(h, "late")
    acked(h, 5, "late")
    assert stated(verdict(h, SEND), "other_operation") == "first"
