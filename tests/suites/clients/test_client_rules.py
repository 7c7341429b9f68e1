"""Jepsen's anomalies, each with a violation, a near miss and an undecided history."""

from __future__ import annotations

from typing import Literal

import pytest
from tests.suites.clients.client_histories import (
    PRODUCER,
    READER,
    A,
    B,
    acked,
    delete_topic,
    invoke,
    invoke_named,
    poll,
    read,
    verdict,
)
from tests.suites.partition_histories import stated, why

from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import (
    Polled,
    ProbeCompleted,
    ProduceCompleted,
    ProduceInvoked,
    ProducerEpochChanged,
    ReadCompleted,
)

# ---------------------------------------------------------------------------------------- unseen


def test_an_acknowledged_write_beyond_the_last_reading_is_unseen() -> None:
    h = HistoryBuilder()
    acked(h, 0)
    acked(h, 5)
    poll(h, READER, 0)
    read(h, 1)
    read_ref = h.events()[-1].ref
    found = verdict(h, "unseen")
    assert stated(found, "offset", "read_end") == (5, 1)
    # It stands at the reading, so that its explanation shows what came after the acknowledgement.
    assert (found.violations[0].at, *found.violations[0].because) == (read_ref, h.events()[1].ref)


def test_a_write_seen_by_any_consumer_is_not_unseen() -> None:
    h = HistoryBuilder()
    acked(h, 0)
    poll(h, A, 0)
    read(h, 1)
    assert verdict(h, "unseen").verdict is Outcome.HOLDS


def test_a_write_acknowledged_after_the_last_reading_leaves_unseen_undecided() -> None:
    h = HistoryBuilder()
    poll(h, READER, 0)
    read(h, 1)
    acked(h, 1)
    found = verdict(h, "unseen")
    assert found.verdict is Outcome.UNKNOWN
    assert why(found, "partition", "writes") == ("orders-0", 1)


# -------------------------------------------------------------------------- inconsistent-offsets


@pytest.mark.parametrize("first", ["producer", "consumer"])
def test_two_messages_at_one_offset_are_inconsistent(first: str) -> None:
    h = HistoryBuilder()
    if first == "producer":
        acked(h, 4)
    else:
        poll(h, A, 3, 4)
    poll(h, B, 4, o4="other")
    found = verdict(h, "inconsistent-offsets")
    assert stated(found, "other_operation", "operation") == ("op-4", "other")
    assert found.violations[0].because == (h.events()[-2].ref,)


def test_the_same_message_for_every_client_is_consistent() -> None:
    h = HistoryBuilder()
    acked(h, 4)
    poll(h, A, 4)
    poll(h, B, 4)
    assert verdict(h, "inconsistent-offsets").exercised == 2


def test_a_write_acknowledged_by_the_leader_alone_promises_no_offset() -> None:
    h = HistoryBuilder()
    acked(h, 4, "mine", acks=1)
    poll(h, A, 4)
    assert verdict(h, "inconsistent-offsets").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("end", [5, 7], ids=["at the end", "in the middle"])
def test_a_message_that_a_consumer_got_and_a_whole_reading_lacks_is_inconsistent(
    end: int, acks: int
) -> None:
    """Served, and lost before it was replicated: it was promised to no client, but a client read
    it."""
    h = HistoryBuilder()
    acked(h, 5, acks=acks)
    poll(h, A, 4, 5)
    poll(h, READER, *(offset for offset in range(end) if offset != 5))
    read(h, end)
    (found,) = verdict(h, "inconsistent-offsets").violations
    assert stated(found, "offset", "operation", "client", "gone") == (5, "op-5", A, 1)
    assert [str(ref) for ref in found.because] == [f"{A}@0"]


def test_a_message_beyond_the_end_of_a_reading_is_judged_by_the_next_reading() -> None:
    h = HistoryBuilder()
    poll(h, A, 0, 1)
    asked_ns = h.events()[-1].at_ns + 1
    h.after(10)
    poll(h, READER, 0, 1)
    poll(h, A, 2)
    h.add(
        READER,
        ReadCompleted(
            topic="orders", partition=0, start=0, end=2, outcome="ok", error="", asked_ns=asked_ns
        ),
    )
    assert verdict(h, "inconsistent-offsets").verdict is Outcome.HOLDS
    h.after(10)
    read(h, 2)
    assert verdict(h, "inconsistent-offsets").violated == 1


def test_other_messages_in_a_row_are_one_violation() -> None:
    h = HistoryBuilder()
    poll(h, A, 0, 1, 2, 3, 4)
    for offset in (2, 3):
        acked(h, offset, "other")
    h.add(
        B,
        Polled(
            topic="orders", partition=0, offsets=(2, 3), operations=("other", "other"), final=False
        ),
    )
    found = verdict(h, "inconsistent-offsets")
    assert (found.violated, found.exercised) == (1, 0)
    acked(h, 0, "another")
    assert verdict(h, "inconsistent-offsets").violated == 2


def test_messages_that_disappeared_together_are_one_violation() -> None:
    h = HistoryBuilder()
    poll(h, A, 0, 1, 2, 3)
    poll(h, READER, 0)
    read(h, 1)
    (found,) = verdict(h, "inconsistent-offsets").violations
    assert stated(found, "offset", "operation", "gone", "last_offset") == (1, "op-1", 3, 3)


def test_messages_below_the_start_of_a_log_may_be_gone() -> None:
    h = HistoryBuilder()
    poll(h, A, 0, 1)
    poll(h, READER, 1)
    h.add(
        READER, ReadCompleted(topic="orders", partition=0, start=1, end=2, outcome="ok", error="")
    )
    assert verdict(h, "inconsistent-offsets").verdict is Outcome.HOLDS


def test_a_reading_shows_all_that_consumers_got() -> None:
    h = HistoryBuilder()
    poll(h, A, 0, 1)
    poll(h, B, 1, 2)
    poll(h, READER, 0, 1, 2, 3)
    read(h, 4)
    assert verdict(h, "inconsistent-offsets").verdict is Outcome.HOLDS


def test_a_consumer_may_get_what_a_reading_has_returned_before_the_reading_ends() -> None:
    h = HistoryBuilder()
    poll(h, READER, 0, 1)
    poll(h, A, 1)
    read(h, 2)
    assert verdict(h, "inconsistent-offsets").verdict is Outcome.HOLDS
    # The next reading has to return it again.
    poll(h, A, 1)
    poll(h, READER, 0)
    read(h, 2)
    assert verdict(h, "inconsistent-offsets").verdict is Outcome.VIOLATED


def test_a_write_that_no_consumer_got_may_be_gone_and_keep_offsets_consistent() -> None:
    """A missing write that was acknowledged with acks=all is reported as lost or unseen."""
    h = HistoryBuilder()
    acked(h, 1)
    acked(h, 2, acks=1)
    poll(h, A, 0)
    poll(h, READER, 0)
    read(h, 1)
    assert verdict(h, "inconsistent-offsets").verdict is Outcome.HOLDS


def test_a_reading_that_did_not_complete_leaves_open_whether_offsets_are_consistent() -> None:
    h = HistoryBuilder()
    poll(h, A, 0, 1)
    poll(h, READER, 0)
    read(h, 2, "unknown")
    found = verdict(h, "inconsistent-offsets")
    assert found.verdict is Outcome.UNKNOWN
    assert why(found, "partition", "messages") == ("orders-0", 1)


def test_consumed_messages_of_a_deleted_topic_may_be_gone() -> None:
    h = HistoryBuilder()
    poll(h, A, 0, 1)
    delete_topic(h)
    read(h, 0)
    assert verdict(h, "inconsistent-offsets").verdict is Outcome.NOT_EXERCISED


def test_inconsistent_offsets_are_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    poll(h, A, 4)
    poll(h, B, 4)
    assert verdict(h, "inconsistent-offsets", complete=False).verdict is Outcome.UNKNOWN


# ------------------------------------------------------------------------------------- duplicate


def test_one_message_at_two_offsets_is_a_duplicate() -> None:
    h = HistoryBuilder()
    invoke(h)
    acked(h, 4, "op")
    poll(h, A, 4, 5, o4="op", o5="op")
    assert stated(verdict(h, "duplicate"), "other_offset", "offset") == (4, 5)


def test_a_message_met_again_where_it_was_is_not_a_duplicate() -> None:
    h = HistoryBuilder()
    invoke_named(h, "op-4", "op-5", idempotent=True)
    poll(h, A, 4, 5)
    poll(h, B, 4, 5)
    assert verdict(h, "duplicate").verdict is Outcome.HOLDS


@pytest.mark.parametrize("acks", [1, -1])
def test_a_message_that_may_be_stored_twice_is_not_a_duplicate(acks: int) -> None:
    h = HistoryBuilder()
    invoke(h, acks, idempotent=False)
    poll(h, A, 4, 5, o4="op", o5="op")
    assert verdict(h, "duplicate").violated == 0


def again_in_another_epoch(since_ms: int) -> HistoryBuilder:
    """A message that is stored, acknowledged, and stored again. Its producer's epoch changed within
    that time before the last store."""
    h = HistoryBuilder()
    invoke(h)
    poll(h, A, 4, o4="op")
    acked(h, 5, "op")
    poll(h, A, 5, o5="op")
    h.after(1_000)
    since_ns = h.events()[-1].at_ns + (1_000 - since_ms) * 1_000_000
    h.add(
        PRODUCER,
        ProducerEpochChanged(
            topic="orders", partition=0, producer_id=7, epoch=1, since_ns=since_ns
        ),
    )
    return h


def test_an_operation_in_flight_when_its_producers_epoch_changed_may_be_stored_twice() -> None:
    found = verdict(again_in_another_epoch(since_ms=1_001), "duplicate")
    assert (found.violated, found.excused) == (0, 2)
    assert {one.facts["operation"] for one in found.excuses} == {"op"}
    assert why(found, "epoch") == 1


def test_an_operation_that_had_ended_before_the_epoch_changed_may_not() -> None:
    assert verdict(again_in_another_epoch(since_ms=1_000), "duplicate").violated == 2


@pytest.mark.parametrize(("ms", "violated"), [(59_999, 0), (60_000, 1)])
def test_an_operation_that_ended_is_remembered_for_a_minute(ms: int, violated: int) -> None:
    h = HistoryBuilder()
    invoke(h)
    later = ProduceInvoked(operation="later", topic="orders", partition=0, acks=-1, idempotent=True)
    h.add(PRODUCER, later)
    acked(h, 4, "op")
    since_ns = h.events()[-1].at_ns
    h.after(ms)
    acked(h, 6, "later")
    h.add(
        PRODUCER,
        ProducerEpochChanged(
            topic="orders", partition=0, producer_id=7, epoch=1, since_ns=since_ns
        ),
    )
    poll(h, A, 4, 5, o4="op", o5="op")
    assert verdict(h, "duplicate").violated == violated


def test_another_producers_epoch_excuses_nothing() -> None:
    h = HistoryBuilder()
    invoke(h)
    h.add(
        "clients/producer-2#1",
        ProducerEpochChanged(topic="orders", partition=0, producer_id=7, epoch=1, since_ns=0),
    )
    poll(h, A, 4, 5, o4="op", o5="op")
    assert verdict(h, "duplicate").violated == 1


def test_duplicates_are_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    poll(h, A, 4)
    assert verdict(h, "duplicate", complete=False).verdict is Outcome.UNKNOWN


# ---------------------------------------------------------------------------------- aborted-read


def failed(h: HistoryBuilder, operation: str, outcome: str = "failed") -> None:
    h.add(
        PRODUCER,
        ProduceCompleted(
            operation=operation,
            topic="orders",
            partition=0,
            acks=-1,
            outcome=outcome,
            offset=-1,
            error="MSG_SIZE_TOO_LARGE",
        ),
    )


def test_a_failed_write_that_is_read_is_an_aborted_read() -> None:
    h = HistoryBuilder()
    failed(h, "op-1")
    poll(h, READER, 0, 1)
    found = verdict(h, "aborted-read").violations[0]
    assert [str(ref) for ref in found.because] == [f"{PRODUCER}@0"]


def test_a_failed_write_that_is_never_read_is_none() -> None:
    h = HistoryBuilder()
    failed(h, "op-9")
    poll(h, READER, 0, 1)
    read(h, 2)
    assert verdict(h, "aborted-read").verdict is Outcome.HOLDS


def test_a_write_of_unknown_outcome_may_be_read() -> None:
    h = HistoryBuilder()
    failed(h, "op-1", "unknown")
    poll(h, READER, 0, 1)
    read(h, 2)
    assert verdict(h, "aborted-read").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("outcome", "broken"), [("failed", 1), ("ok", 0)])
def test_a_write_that_is_read_and_then_fails_is_an_aborted_read(
    outcome: Literal["ok", "failed"], broken: int
) -> None:
    h = HistoryBuilder()
    poll(h, A, 1)
    seen = h.events()[-1]
    acked(h, 1, outcome=outcome)
    found = verdict(h, "aborted-read")
    assert found.violated == broken
    if broken:
        assert found.violations[0].because == (seen.ref,)
        assert stated(found, "reader", "operation") == (A, "op-1")


def test_aborted_reads_are_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    failed(h, "op-9")
    assert verdict(h, "aborted-read", complete=False).verdict is Outcome.UNKNOWN


def refused(h: HistoryBuilder, error: str, acks: int) -> None:
    """A probe's Produce is refused by the broker that it was sent to."""
    h.add(
        "clients/probe#1",
        ProbeCompleted(
            operation="op-1",
            api="Produce",
            broker=2,
            slot="broker-2",
            topic="orders",
            partition=0,
            outcome="refused",
            error=error,
            records=0,
            base_offset=-1,
            sent_at_ns=0,
            acks=acks,
        ),
    )


@pytest.mark.parametrize(
    ("error", "acks"), [("NOT_LEADER_OR_FOLLOWER", 1), ("NOT_ENOUGH_REPLICAS", -1)]
)
def test_a_refused_probe_that_is_read_is_an_aborted_read(error: str, acks: int) -> None:
    h = HistoryBuilder()
    refused(h, error, acks)
    read(h, 1)
    assert verdict(h, "aborted-read").verdict is Outcome.HOLDS
    poll(h, READER, 0, 1)
    assert stated(verdict(h, "aborted-read"), "reader", "operation") == (READER, "op-1")


@pytest.mark.parametrize(
    ("error", "acks"), [("NOT_LEADER_OR_FOLLOWER", -1), ("REQUEST_TIMED_OUT", 1)]
)
def test_a_refusal_that_may_come_after_the_write_was_stored_proves_nothing(
    error: str, acks: int
) -> None:
    h = HistoryBuilder()
    refused(h, error, acks)
    poll(h, READER, 0, 1)
    read(h, 2)
    assert verdict(h, "aborted-read").verdict is Outcome.NOT_EXERCISED
