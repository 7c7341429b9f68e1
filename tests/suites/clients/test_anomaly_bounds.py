"""Jepsen's anomalies at their exact bounds, and what does not count for them."""

from __future__ import annotations

from typing import Literal

import pytest
from tests.suites.clients.client_histories import (
    PRODUCER,
    READER,
    A,
    B,
    acked,
    invoke,
    invoke_named,
    poll,
    read,
    verdict,
)
from tests.suites.clients.test_poll_rules import lead, out_of_range
from tests.suites.partition_histories import stated, why

from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import (
    ConsumerPositioned,
    Polled,
    ProduceInvoked,
    ProducerEpochChanged,
    ReadCompleted,
)

HOLDS, VIOLATED, UNKNOWN = Outcome.HOLDS, Outcome.VIOLATED, Outcome.UNKNOWN
NOT_EXERCISED = Outcome.NOT_EXERCISED


def reads(h: HistoryBuilder, start: int, end: int, asked_ns: int = 0) -> None:
    h.add(
        READER,
        ReadCompleted(
            topic="orders",
            partition=0,
            start=start,
            end=end,
            outcome="ok",
            error="",
            asked_ns=asked_ns,
        ),
    )


def fails(h: HistoryBuilder) -> None:
    """A reading that does not complete, and says nothing about it."""
    h.add(
        READER,
        ReadCompleted(topic="orders", partition=0, start=0, end=1, outcome="unknown", error=""),
    )


# ------------------------------------------------------------------------------------ lost-write


def test_a_write_acknowledged_during_a_reading_that_shows_others_is_not_read_by_it() -> None:
    h = HistoryBuilder()
    poll(h, READER, 0, 2)
    acked(h, 1)
    read(h, 3)
    assert verdict(h, "lost-write").verdict is VIOLATED


def test_a_write_acknowledged_after_a_reading_showed_it_exercises_the_promise() -> None:
    h = HistoryBuilder()
    poll(h, READER, 0)
    acked(h, 0)
    read(h, 1)
    assert verdict(h, "lost-write").verdict is HOLDS


def test_a_write_that_a_reading_showed_elsewhere_is_not_where_it_was_acknowledged() -> None:
    h = HistoryBuilder()
    poll(h, READER, 0, 1, o0="other", o1="op-0")
    acked(h, 0)
    read(h, 2)
    assert verdict(h, "lost-write").verdict is VIOLATED


def test_a_former_reading_shows_nothing_of_the_present_one() -> None:
    h = HistoryBuilder()
    poll(h, READER, 0, 1)
    read(h, 2)
    acked(h, 1)
    poll(h, READER, 0)
    read(h, 2)
    assert verdict(h, "lost-write").verdict is VIOLATED


@pytest.mark.parametrize(("end", "outcome"), [(5, NOT_EXERCISED), (6, VIOLATED)])
def test_a_write_is_lost_if_it_is_missing_below_the_end_of_a_reading(
    end: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    acked(h, 5)
    read(h, end)
    assert verdict(h, "lost-write").verdict is outcome


@pytest.mark.parametrize("anomaly", ["lost-write", "inconsistent-offsets"])
def test_a_reading_that_fails_without_a_word_leaves_both_undecided(anomaly: str) -> None:
    h = HistoryBuilder()
    acked(h, 0)
    poll(h, A, 0)
    fails(h)
    found = verdict(h, anomaly)
    assert found.verdict is UNKNOWN
    assert why(found, "error") == "it did not complete"


@pytest.mark.parametrize(
    ("offsets", "facts"),
    [
        ((0,), ("op-0", 0, 1, 0)),
        ((0, 1, 2), ("op-0", 0, 3, 2)),
        ((-1, -1), ("one", -1, 2, -1)),
    ],
)
def test_writes_that_a_reading_lacks_are_one_violation(
    offsets: tuple[int, ...], facts: tuple[str | int, ...]
) -> None:
    h = HistoryBuilder()
    for offset, name in zip(offsets, ("one", "two", "three"), strict=False):
        acked(h, offset, name if offset < 0 else "")
    poll(h, READER, 3)
    read(h, 4)
    (found,) = verdict(h, "lost-write").violations
    assert stated(found, "operation", "offset", "lost", "last_offset") == facts
    assert stated(found, "partition", "there") == ("orders-0", "")


@pytest.mark.parametrize("shown", [(), (0,)])
@pytest.mark.parametrize(("ms", "outcome"), [(0, NOT_EXERCISED), (1, VIOLATED)])
def test_a_write_without_an_offset_is_lost_if_a_reading_asked_for_the_end_after_it(
    ms: int, outcome: Outcome, shown: tuple[int, ...]
) -> None:
    """The reading may show nothing, and may begin to show messages later."""
    h = HistoryBuilder()
    acked(h, -1, "unplaced")
    asked_ns = h.events()[-1].at_ns + ms * 1_000_000
    if shown:
        poll(h, READER, *shown)
    reads(h, 0, len(shown), asked_ns)
    assert verdict(h, "lost-write").verdict is outcome


def test_a_write_without_an_offset_may_be_shown_before_it_is_acknowledged() -> None:
    """The reading asked for the end once more since."""
    h = HistoryBuilder()
    poll(h, READER, 0, o0="unplaced")
    acked(h, -1, "unplaced")
    reads(h, 0, 1, asked_ns=h.now_ns)
    assert verdict(h, "lost-write").verdict is HOLDS


@pytest.mark.parametrize("offset", [1, -1])
def test_a_write_after_the_last_whole_reading_is_undecided_wherever_it_was_acknowledged(
    offset: int,
) -> None:
    h = HistoryBuilder()
    acked(h, 0)
    poll(h, READER, 0)
    read(h, 1)
    acked(h, offset, "late")
    read(h, 2, "unknown")
    assert verdict(h, "lost-write").verdict is UNKNOWN


# ---------------------------------------------------------------------------------------- unseen


def test_a_write_acknowledged_by_the_leader_alone_need_not_be_seen() -> None:
    h = HistoryBuilder()
    acked(h, 5, acks=1)
    read(h, 1)
    assert verdict(h, "unseen").verdict is NOT_EXERCISED


def test_a_write_is_not_unseen_if_a_consumer_had_got_it_before_its_acknowledgement() -> None:
    h = HistoryBuilder()
    poll(h, A, 5)
    acked(h, 5)
    read(h, 5)
    assert verdict(h, "unseen").verdict is NOT_EXERCISED


@pytest.mark.parametrize(("end", "outcome"), [(5, VIOLATED), (6, NOT_EXERCISED)])
def test_a_write_is_unseen_from_the_end_of_the_last_reading_on(end: int, outcome: Outcome) -> None:
    h = HistoryBuilder()
    acked(h, 5)
    reads(h, 0, end, asked_ns=h.now_ns)
    assert verdict(h, "unseen").verdict is outcome


@pytest.mark.parametrize(("ms", "outcome"), [(0, UNKNOWN), (1, VIOLATED)])
def test_a_write_acknowledged_once_the_reading_asked_for_the_end_may_be_beyond_it(
    ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    poll(h, READER, 0)
    acked(h, 5)
    reads(h, 0, 1, asked_ns=h.events()[-1].at_ns + ms * 1_000_000)
    assert verdict(h, "unseen").verdict is outcome


def test_a_write_that_a_consumer_got_at_another_offset_is_not_unseen() -> None:
    h = HistoryBuilder()
    acked(h, 5)
    poll(h, A, 1, o1="op-5")
    reads(h, 0, 2, asked_ns=h.now_ns)
    assert verdict(h, "unseen").verdict is NOT_EXERCISED


def test_a_reading_that_failed_shows_no_write_to_be_unseen() -> None:
    h = HistoryBuilder()
    acked(h, 5)
    read(h, 1, "unknown")
    assert verdict(h, "unseen").verdict is UNKNOWN


# -------------------------------------------------------------------------- inconsistent-offsets


@pytest.mark.parametrize(("ms", "outcome"), [(0, NOT_EXERCISED), (1, VIOLATED)])
def test_a_message_that_came_once_the_reading_asked_for_the_end_may_be_beyond_it(
    ms: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    poll(h, A, 2)
    reads(h, 0, 2, asked_ns=h.events()[-1].at_ns + ms * 1_000_000)
    assert verdict(h, "inconsistent-offsets").verdict is outcome


@pytest.mark.parametrize(("start", "outcome"), [(1, VIOLATED), (2, NOT_EXERCISED)])
def test_a_message_may_be_gone_below_the_start_of_the_log_only(
    start: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    poll(h, A, 1)
    reads(h, start, 3, asked_ns=h.now_ns)
    assert verdict(h, "inconsistent-offsets").verdict is outcome


# ------------------------------------------------------------------------------ nonmonotonic-poll


@pytest.mark.parametrize(("leader", "broker"), [(2, 0), (0, 1)])
def test_a_broker_with_the_id_0_leads_and_refuses_as_any_other(leader: int, broker: int) -> None:
    h = HistoryBuilder()
    lead(h, leader, 6)
    elected = h.events()[-1].ref
    poll(h, A, 4, 5)
    out_of_range(h, broker)
    poll(h, A, 0)
    (found,) = verdict(h, "nonmonotonic-poll").violations
    assert elected in found.because
    assert stated(found, "former", "leader") == (f"broker {broker}", f"broker {leader}")


def test_of_two_accounts_of_one_record_the_first_one_names_the_leader() -> None:
    """Which of them is wrong, another rule says."""
    h = HistoryBuilder()
    lead(h, 2, 7)
    elected = h.events()[-1].ref
    lead(h, 1, 7)
    poll(h, A, 4, 5)
    out_of_range(h, 1)
    poll(h, A, 0)
    (found,) = verdict(h, "nonmonotonic-poll").violations
    assert elected in found.because


def test_without_a_leader_no_broker_is_deposed() -> None:
    h = HistoryBuilder()
    lead(h, 1, 5)
    lead(h, -1, 6)
    poll(h, A, 4, 5)
    out_of_range(h, 1)
    poll(h, A, 0)
    (found,) = verdict(h, "nonmonotonic-poll").violations
    assert stated(found, "broker") == "broker 1"
    assert "former" not in found.facts


def test_a_refusal_is_over_once_the_consumer_is_positioned() -> None:
    h = HistoryBuilder()
    lead(h, 2, 6)
    poll(h, A, 4, 5)
    out_of_range(h, 1)
    h.add(A, ConsumerPositioned(topic="orders", partition=0, offset=0))
    poll(h, A, 2, 1)
    (found,) = verdict(h, "nonmonotonic-poll").violations
    assert found.because == ()


def test_a_second_poll_counts_from_the_first_offset_of_a_log_on() -> None:
    h = HistoryBuilder()
    poll(h, A, 0)
    poll(h, A, 1)
    assert verdict(h, "nonmonotonic-poll").exercised == 1


# ------------------------------------------------------------------------------------- poll-skip


def test_a_consumer_that_was_positioned_since_its_refusal_skips_nothing() -> None:
    h = HistoryBuilder()
    poll(h, A, 0, 1)
    out_of_range(h)
    h.add(A, ConsumerPositioned(topic="orders", partition=0, offset=4))
    poll(h, A, 4, 5)
    poll(h, B, 2, 3)
    assert verdict(h, "poll-skip").verdict is HOLDS


def test_a_poll_with_a_gap_skips_no_message_before_the_gap() -> None:
    h = HistoryBuilder()
    poll(h, A, 0, 1)
    poll(h, A, 2, 4)
    assert why(verdict(h, "poll-skip"), "start", "stop") == (3, 4)


def test_a_skipped_offset_stays_open_while_others_are_read() -> None:
    h = HistoryBuilder()
    poll(h, A, 0, 1)
    poll(h, A, 3)
    poll(h, B, 0)
    assert verdict(h, "poll-skip").verdict is UNKNOWN


def test_a_skipped_message_breaks_poll_skip_once() -> None:
    h = HistoryBuilder()
    poll(h, A, 0, 1)
    poll(h, A, 3)
    for reader in (B, READER):
        poll(h, reader, 2)
    assert verdict(h, "poll-skip").violated == 1


# ------------------------------------------------------------------------------------- duplicate


def test_an_operation_that_was_never_acknowledged_may_be_stored_in_both_epochs() -> None:
    h = HistoryBuilder()
    invoke(h)
    changes = ProducerEpochChanged(
        topic="orders", partition=0, producer_id=7, epoch=1, since_ns=h.now_ns
    )
    h.add(PRODUCER, changes)
    poll(h, A, 4, 5, o4="op", o5="op")
    assert verdict(h, "duplicate").violated == 0


def test_a_message_that_was_acknowledged_at_the_first_offset_of_a_log_is_there() -> None:
    h = HistoryBuilder()
    invoke(h)
    acked(h, 0, "op")
    poll(h, A, 5, o5="op")
    assert verdict(h, "duplicate").verdict is VIOLATED


def test_only_a_message_that_is_met_again_exercises_the_promise_of_no_duplicates() -> None:
    h = HistoryBuilder()
    poll(h, A, 4)
    poll(h, A, 5)
    assert verdict(h, "duplicate").verdict is NOT_EXERCISED


def test_a_poll_that_shows_a_duplicate_does_not_show_that_there_are_none() -> None:
    h = HistoryBuilder()
    invoke(h)
    poll(h, A, 4, o4="op")
    poll(h, B, 5, o5="op")
    found = verdict(h, "duplicate")
    assert (found.violated, found.exercised) == (1, 0)


def test_a_poll_with_a_message_that_is_elsewhere_shows_no_message_in_its_place() -> None:
    h = HistoryBuilder()
    invoke_named(h, "op-4", "op-5", idempotent=True)
    poll(h, A, 4, 5)
    poll(h, B, 4, 6, o6="op-5")
    found = verdict(h, "duplicate")
    assert (found.violated, found.exercised) == (1, 0)


def test_messages_that_no_producer_has_named_exercise_no_promise() -> None:
    h = HistoryBuilder()
    for consumer in (A, B):
        poll(h, consumer, 4, 5, o4="", o5="")
    assert verdict(h, "duplicate").verdict is NOT_EXERCISED


@pytest.mark.parametrize(("idempotent", "outcome"), [(True, HOLDS), (False, NOT_EXERCISED)])
def test_only_a_message_of_an_idempotent_producer_exercises_the_promise_of_no_duplicates(
    idempotent: bool, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    invoke(h, idempotent=idempotent)
    for consumer in (A, B):
        poll(h, consumer, 4, o4="op")
    assert verdict(h, "duplicate").verdict is outcome


def test_a_message_that_is_stored_twice_in_two_epochs_was_not_met_again_where_it_was() -> None:
    h = HistoryBuilder()
    invoke(h)
    changes = ProducerEpochChanged(
        topic="orders", partition=0, producer_id=7, epoch=1, since_ns=h.now_ns
    )
    h.add(PRODUCER, changes)
    poll(h, A, 4, 5, o4="op", o5="op")
    assert verdict(h, "duplicate").verdict is NOT_EXERCISED


# ------------------------------------------------------------------- duplicate, in two partitions


def stored_in(
    *sent: str, kind: Literal["ok", "failed"] = "ok", idempotent: bool = True
) -> HistoryBuilder:
    """`op` is sent to `orders-0`, and to these partitions of other topics; then it is read in
    `audit-0`."""
    h = HistoryBuilder()
    for topic in ("orders", *sent):
        body = ProduceInvoked(
            operation="op", topic=topic, partition=0, acks=-1, idempotent=idempotent
        )
        h.add(PRODUCER, body)
    acked(h, 0, "op", outcome=kind)
    polled = Polled(topic="audit", partition=0, offsets=(3,), operations=("op",), final=True)
    h.add(READER, polled)
    return h


def test_a_message_in_its_partition_and_in_another_one_is_a_duplicate() -> None:
    found = verdict(stored_in(), "duplicate")
    assert stated(found, "operation", "other", "partition") == ("op", "orders-0", "audit-0")


@pytest.mark.parametrize("one", [stored_in("audit"), stored_in(idempotent=False)])
def test_a_message_that_may_be_there_is_no_duplicate(one: HistoryBuilder) -> None:
    assert verdict(one, "duplicate").violated == 0


def test_a_message_that_is_only_in_another_partition_is_there_once() -> None:
    one = stored_in(kind="failed")
    assert verdict(one, "duplicate").violated == 0
    poll(one, A, 0, o0="op")
    assert verdict(one, "duplicate").violated == 1
