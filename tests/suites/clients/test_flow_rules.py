"""Cycles of one partition, and writes with acks=1: JEPSEN-G1c-realtime, JEPSEN-lost-write-acks1."""

from __future__ import annotations

import pytest
from tests.suites.clients.client_histories import (
    READER,
    A,
    B,
    acked,
    delete_topic,
    invoke_named,
    make_topic,
    poll,
    read,
    verdict,
)
from tests.suites.partition_histories import stated

from fencepost import HARNESS, FaultInjected
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import ConsumerPositioned, PartitionCommitted, Polled, ProbeCompleted

FLOW, ACKS1 = "G1c-realtime", "lost-write-acks1"


# ---------------------------------------------------------------------------- G1c-realtime


def got_then(offset: int) -> HistoryBuilder:
    """A consumer gets offset 7; then a write is invoked, and found at an offset."""
    h = HistoryBuilder()
    invoke_named(h, "op-7")
    poll(h, A, 7)
    invoke_named(h, "late")
    poll(h, B, offset, **{f"o{offset}": "late"})
    return h


def test_a_write_before_what_a_consumer_had_got_closes_a_cycle() -> None:
    found = verdict(got_then(5), FLOW)
    assert stated(found, "operation", "offset", "partition") == ("late", 5, "orders-0")
    assert stated(found, "reader", "other_operation", "other_offset") == (A, "op-7", 7)
    assert [one.process for one in found.violations[0].because] == [A]


@pytest.mark.parametrize(("offset", "expected"), [(7, "violated"), (8, "holds")])
def test_a_write_behind_it_closes_none(offset: int, expected: str) -> None:
    assert verdict(got_then(offset), FLOW).verdict == expected


def never_sent(name: str = "p:9") -> HistoryBuilder:
    """Of the client p, one message is read that it has not sent to this partition."""
    h = HistoryBuilder()
    invoke_named(h, "p:0")
    poll(h, READER, 0, 1, o0="p:0", o1=name)
    read(h, 2)
    return h


def test_a_message_that_nobody_sent_to_the_partition_was_read_before_it_was_invoked() -> None:
    found = verdict(never_sent(), FLOW)
    assert stated(found, "operation", "partition", "reader") == ("p:9", "orders-0", READER)
    assert verdict(never_sent(), FLOW, complete=False).verdict is Outcome.UNKNOWN


@pytest.mark.parametrize("name", ["q:9", "words", "p:x", ":9"])
def test_what_a_client_wrote_that_records_nothing_is_no_message_of_another(name: str) -> None:
    assert verdict(never_sent(name), FLOW).violated == 0


def test_a_client_that_writes_by_raw_requests_records_their_answers_only() -> None:
    for api, broken in (("Produce", 0), ("Fetch", 1)):
        h = never_sent()
        h.add(READER, ProbeCompleted(
            operation="p:1", api=api, broker=1, slot="broker-1", topic="orders", partition=0,
            outcome="timeout", error="", records=0, base_offset=-1, sent_at_ns=0,
        ))  # fmt: skip
        assert verdict(h, FLOW).violated == broken


def test_a_write_to_the_topic_of_before_may_be_stored_in_the_next_one() -> None:
    h = HistoryBuilder()
    invoke_named(h, "p:0")
    delete_topic(h)
    make_topic(h)
    invoke_named(h, "p:1")
    h.add(A, ConsumerPositioned(topic="orders", partition=0, offset=0))
    poll(h, A, 0, 1, o0="p:0", o1="p:1")
    assert verdict(h, FLOW).violated == 0


def test_an_incomplete_history_decides_nothing() -> None:
    assert verdict(got_then(8), FLOW, complete=False).verdict is Outcome.UNKNOWN


def test_an_acknowledgement_by_all_shows_the_place_too() -> None:
    h = HistoryBuilder()
    poll(h, A, 7)
    invoke_named(h, "late")
    acked(h, 5, "late")
    assert verdict(h, FLOW).violated == 1


def test_the_first_place_of_a_log_is_one() -> None:
    h = HistoryBuilder()
    poll(h, A, 0)
    invoke_named(h, "late")
    acked(h, 0, "late")
    assert verdict(h, FLOW).violated == 1


def test_the_first_client_that_got_it_is_named() -> None:
    h = HistoryBuilder()
    poll(h, A, 7)
    poll(h, B, 7)
    invoke_named(h, "late")
    acked(h, 5, "late")
    assert stated(verdict(h, FLOW), "reader", "other_operation") == (A, "op-7")


@pytest.mark.parametrize(("acks", "offset"), [(1, 5), (-1, -1)])
def test_an_acknowledgement_of_no_certain_place_shows_none(acks: int, offset: int) -> None:
    h = HistoryBuilder()
    poll(h, A, 7)
    invoke_named(h, "late")
    acked(h, offset, "late", acks=acks)
    assert verdict(h, FLOW).verdict is Outcome.NOT_EXERCISED
    poll(h, B, 4, o4="late")
    assert verdict(h, FLOW).verdict is Outcome.VIOLATED


def test_a_write_in_flight_during_the_poll_may_lie_before_it() -> None:
    h = HistoryBuilder()
    invoke_named(h, "early")
    poll(h, A, 7)
    poll(h, B, 5, o5="early")
    assert verdict(h, FLOW).verdict is Outcome.NOT_EXERCISED


def test_a_write_that_failed_is_for_another_rule() -> None:
    h = HistoryBuilder()
    poll(h, A, 7)
    invoke_named(h, "late")
    acked(h, -1, "late", outcome="failed")
    poll(h, B, 5, o5="late")
    assert verdict(h, FLOW).verdict is Outcome.NOT_EXERCISED


def test_the_highest_message_counts_whichever_client_got_it() -> None:
    h = HistoryBuilder()
    poll(h, A, 7)
    poll(h, B, 2, 3)
    invoke_named(h, "late")
    poll(h, B, 4, 5, o5="late")
    assert stated(verdict(h, FLOW), "other_operation", "other_offset") == ("op-7", 7)


def test_the_final_reading_shows_places_too() -> None:
    h = HistoryBuilder()
    poll(h, A, 7)
    invoke_named(h, "late")
    poll(h, READER, 4, 5, o5="late")
    assert verdict(h, FLOW).verdict is Outcome.VIOLATED


def test_a_message_that_was_seen_in_its_place_is_not_judged_again() -> None:
    h = got_then(8)
    poll(h, A, 6, o6="late")
    assert (verdict(h, FLOW).verdict, verdict(h, FLOW).exercised) == (Outcome.HOLDS, 1)


def test_an_empty_poll_shows_nothing() -> None:
    h = HistoryBuilder()
    h.add(A, Polled(topic="orders", partition=0, offsets=(), operations=(), final=False))
    invoke_named(h, "op")
    poll(h, A, 0, o0="op")
    assert verdict(h, FLOW).verdict is Outcome.NOT_EXERCISED


def test_a_message_that_is_read_before_it_is_invoked_closes_a_cycle() -> None:
    h = HistoryBuilder()
    poll(h, A, 7)
    invoke_named(h, "op-7")
    (found,) = verdict(h, FLOW).violations
    assert stated(found, "operation", "partition", "reader") == ("op-7", "orders-0", A)
    assert "other_operation" not in found.facts


def test_a_message_that_no_producer_invokes_closes_none() -> None:
    h = HistoryBuilder()
    poll(h, A, 7)
    invoke_named(h, "other")
    assert verdict(h, FLOW).verdict is Outcome.NOT_EXERCISED


def test_a_log_that_was_set_back_counts_once() -> None:
    h = HistoryBuilder()
    poll(h, A, 900)
    for number in range(3):
        invoke_named(h, f"late-{number}")
    for number in range(3):
        poll(h, B, number, **{f"o{number}": f"late-{number}"})
        invoke_named(h, f"more-{number}")
        acked(h, 3 + number, f"more-{number}")
    assert verdict(h, FLOW).violated == 1


def test_the_next_topic_of_that_name_begins_anew() -> None:
    h = HistoryBuilder()
    poll(h, A, 7)
    delete_topic(h)
    invoke_named(h, "late")
    acked(h, 0, "late")
    assert verdict(h, FLOW).verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------ lost-write-acks1


def led_by(h: HistoryBuilder, leader: int, offset: int = 1, skipped: int = 0) -> None:
    h.add(
        "controller-1#1",
        PartitionCommitted(
            offset=offset,
            topic="orders",
            partition=0,
            leader=leader,
            leader_epoch=offset,
            isr=(1, 2),
            replicas=(1, 2),
            skipped=skipped,
        ),
    )


def test_a_write_that_one_leader_lost_breaks_the_promise() -> None:
    h = HistoryBuilder()
    led_by(h, 1)
    acked(h, 0, acks=1)
    acked(h, 1, acks=1)
    led_by(h, 1, 2)
    poll(h, READER, 0)
    read(h, 2)
    found = verdict(h, ACKS1)
    assert found.violated == 1
    assert stated(found, "operation", "offset", "lost") == ("op-1", 1, 1)


def test_a_write_that_a_consumer_got_and_one_leader_lost_at_the_end_breaks_it() -> None:
    h = HistoryBuilder()
    led_by(h, 1)
    acked(h, 0, acks=1)
    acked(h, 1, acks=1)
    poll(h, A, 0, 1)
    poll(h, READER, 0)
    read(h, 1)
    assert verdict(h, ACKS1).violated == 1


def harmed(h: HistoryBuilder, slot: str) -> None:
    h.add(HARNESS, FaultInjected(
        fault_id="power-1", fault="lose_power", targets=(slot,), receipt=True, evidence="",
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("slot", "later", "broken"),
    [("broker-1", False, 0), ("node", False, 0), ("broker-2", False, 1), ("broker-1", True, 1)],
)
def test_what_a_fault_took_from_the_leaders_disk_is_promised_no_more(
    slot: str, later: bool, broken: int
) -> None:
    """It is back before another one is elected. A write that comes later is promised again."""
    h = HistoryBuilder()
    led_by(h, 1)
    acked(h, 0, acks=1)
    if later:
        harmed(h, slot)
    acked(h, 1, acks=1)
    poll(h, A, 0, 1)
    if not later:
        harmed(h, slot)
    poll(h, READER, 0)
    read(h, 2)
    assert verdict(h, ACKS1).violated == broken


def test_a_write_that_was_lost_before_the_disk_was_harmed_stays_lost() -> None:
    h = HistoryBuilder()
    led_by(h, 1)
    acked(h, 0, acks=1)
    acked(h, 1, acks=1)
    poll(h, READER, 0)
    read(h, 2)
    harmed(h, "broker-1")
    assert verdict(h, ACKS1).violated == 1


def test_a_write_that_one_leader_kept_holds() -> None:
    h = HistoryBuilder()
    led_by(h, 1)
    acked(h, 0, acks=1)
    poll(h, READER, 0)
    read(h, 1)
    assert verdict(h, ACKS1).verdict is Outcome.HOLDS


def test_without_a_whole_reading_it_is_undecided() -> None:
    h = HistoryBuilder()
    led_by(h, 1)
    acked(h, 0, acks=1)
    read(h, 1, "unknown")
    assert verdict(h, ACKS1).verdict is Outcome.UNKNOWN


def test_two_writes_that_were_acknowledged_at_one_place_break_it() -> None:
    h = HistoryBuilder()
    led_by(h, 1)
    acked(h, 0, "one", acks=1)
    acked(h, 0, "two", acks=1)
    poll(h, READER, 0, o0="two")
    assert verdict(h, ACKS1).violated == 1


def test_a_partition_may_wait_for_its_first_leader() -> None:
    """Where replicas elect the leader, a new partition has none at first."""
    for skipped, verdict_of_write in ((0, Outcome.HOLDS), (1, Outcome.NOT_EXERCISED)):
        h = HistoryBuilder()
        led_by(h, -1, skipped=skipped)
        led_by(h, 1, 2)
        acked(h, 0, acks=1)
        poll(h, READER, 0)
        read(h, 1)
        assert verdict(h, ACKS1).verdict is verdict_of_write


@pytest.mark.parametrize("others", [(2,), (-1, 1), ()])
@pytest.mark.parametrize("late", [False, True])
def test_with_another_leader_nothing_is_promised(others: tuple[int, ...], late: bool) -> None:
    """Nor with a leader of which nothing is known."""
    h = HistoryBuilder()

    def leaders() -> None:
        for offset, leader in enumerate((1, *others) if others else ()):
            led_by(h, leader, offset + 1)

    if not late:
        leaders()
    acked(h, 0, acks=1)
    read(h, 1)
    if late:
        leaders()
    assert verdict(h, ACKS1).verdict is Outcome.NOT_EXERCISED


def test_states_that_were_not_read_may_have_had_another_leader() -> None:
    h = HistoryBuilder()
    led_by(h, 1)
    acked(h, 0, acks=1)
    led_by(h, 1, 4, skipped=2)
    read(h, 1)
    assert verdict(h, ACKS1).verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize("acks", [0, -1])
def test_writes_with_other_acknowledgements_are_for_other_rules(acks: int) -> None:
    h = HistoryBuilder()
    led_by(h, 1)
    acked(h, 0, acks=acks)
    read(h, 1)
    assert verdict(h, ACKS1).verdict is Outcome.NOT_EXERCISED
