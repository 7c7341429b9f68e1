"""The anomalies of polls, each with a violation, a near miss and an undecided history."""

from __future__ import annotations

import pytest
from tests.suites.clients.client_histories import READER, A, B, delete_topic, poll, read, verdict
from tests.suites.partition_histories import stated, why

from fencepost import Facts
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import ConsumerPositioned, PartitionCommitted, broker_of

# ----------------------------------------------------------------------------- nonmonotonic-poll


@pytest.mark.parametrize("again", [(5,), (4, 5)], ids=["the same", "earlier"])
def test_a_poll_that_goes_back_is_nonmonotonic(again: tuple[int, ...]) -> None:
    h = HistoryBuilder()
    poll(h, A, 4, 5)
    poll(h, A, *again)
    assert verdict(h, "nonmonotonic-poll").violations[0].because


def test_a_poll_that_goes_back_in_itself_is_nonmonotonic() -> None:
    h = HistoryBuilder()
    poll(h, A, 4, 6, 5)
    assert verdict(h, "nonmonotonic-poll").verdict is Outcome.VIOLATED


def test_polls_that_go_on_are_monotonic() -> None:
    h = HistoryBuilder()
    poll(h, A, 4, 5)
    poll(h, B, 4, 5)
    poll(h, A, 6)
    assert verdict(h, "nonmonotonic-poll").exercised == 1


def test_a_consumer_sent_back_may_go_back() -> None:
    h = HistoryBuilder()
    poll(h, A, 4, 5)
    h.add(A, ConsumerPositioned(topic="orders", partition=0, offset=0))
    poll(h, A, 0, 1)
    assert verdict(h, "nonmonotonic-poll").verdict is Outcome.NOT_EXERCISED


def out_of_range(h: HistoryBuilder, broker: int = -1) -> None:
    """A broker refuses the consumer's offset, and the consumer begins anew by itself."""
    h.add(
        A,
        ConsumerPositioned(
            topic="orders", partition=0, offset=-2, out_of_range=True, refused_by=broker
        ),
    )


def lead(h: HistoryBuilder, broker: int, offset: int) -> None:
    """It is committed that the broker leads."""
    h.add(
        "controller-1#1",
        PartitionCommitted(
            offset=offset,
            topic="orders",
            partition=0,
            leader=broker,
            leader_epoch=offset,
            isr=(broker,),
            replicas=(1, 2),
        ),
    )


def test_a_consumer_that_begins_anew_by_itself_is_nonmonotonic() -> None:
    h = HistoryBuilder()
    poll(h, A, 4, 5)
    out_of_range(h)
    poll(h, A, 0, 1)
    assert stated(verdict(h, "nonmonotonic-poll"), "offset", "other_offset") == (0, 5)


def test_a_nonmonotonic_poll_names_what_came_before_and_not_what_came_after() -> None:
    h = HistoryBuilder()
    poll(h, A, 4, 5)
    out_of_range(h)
    poll(h, A, *range(9))
    found = verdict(h, "nonmonotonic-poll")
    assert stated(found, "offset", "other_offset", "refusal") == (0, 5, "")


@pytest.mark.parametrize(
    ("broker", "refusal"),
    [
        (1, {"former": broker_of(1), "leader": broker_of(2)}),
        (2, {"broker": broker_of(2)}),
        (-1, {}),
    ],
)
def test_a_nonmonotonic_poll_names_the_broker_that_refused_the_offset(
    broker: int, refusal: Facts
) -> None:
    h = HistoryBuilder()
    lead(h, 1, 6)
    poll(h, A, 4, 5)
    lead(h, 2, 7)
    deposed = h.events()[-1].ref
    lead(h, 2, 8)
    lead(h, 1, 6)  # another node replays the older record later
    out_of_range(h, broker)
    poll(h, A, 0, 1)
    poll(h, A, 0, 1)
    first, second = verdict(h, "nonmonotonic-poll").violations
    assert [stated(one, "offset", "other_offset") for one in (first, second)] == [(0, 5), (0, 1)]
    assert {name: first.facts[name] for name in first.facts.keys() - second.facts} == refusal
    assert (deposed in first.because) == ("former" in refusal)


def test_a_consumer_of_a_topic_that_was_deleted_may_begin_anew() -> None:
    h = HistoryBuilder()
    poll(h, A, 4, 5)
    delete_topic(h)
    out_of_range(h)
    poll(h, A, 0, 1)
    assert verdict(h, "nonmonotonic-poll").verdict is Outcome.NOT_EXERCISED


def test_a_consumer_that_begins_anew_beyond_its_offset_skips_what_is_between() -> None:
    h = HistoryBuilder()
    poll(h, A, 0, 1)
    out_of_range(h)
    poll(h, A, 4, 5)
    poll(h, B, 3)
    assert stated(verdict(h, "poll-skip"), "offset", "other_offset") == (4, 1)


def test_a_consumer_that_begins_anew_from_the_start_skips_nothing() -> None:
    h = HistoryBuilder()
    poll(h, A, 4, 5)
    out_of_range(h)
    poll(h, A, 0, 1)
    poll(h, READER, 0, 1, 2, 3, 4, 5)
    read(h, 6)
    assert verdict(h, "poll-skip").verdict is not Outcome.VIOLATED


def test_nonmonotonic_polls_are_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    poll(h, A, 4, 5)
    poll(h, A, 6)
    assert verdict(h, "nonmonotonic-poll", complete=False).verdict is Outcome.UNKNOWN


# ------------------------------------------------------------------------------------- poll-skip


def test_a_message_jumped_over_that_the_reading_shows_is_skipped() -> None:
    h = HistoryBuilder()
    poll(h, A, 0, 1)
    poll(h, A, 3)
    poll(h, READER, 0, 1, 2, 3)
    read(h, 4)
    assert stated(verdict(h, "poll-skip"), "other_offset", "skipped") == (1, 2)


def test_the_first_messages_after_an_assignment_can_be_skipped_too() -> None:
    h = HistoryBuilder()
    h.add(A, ConsumerPositioned(topic="orders", partition=0, offset=5))
    poll(h, A, 7)
    poll(h, B, 5, 6, 7)
    assert verdict(h, "poll-skip").verdict is Outcome.VIOLATED


def test_an_offset_that_holds_no_message_is_not_skipped() -> None:
    h = HistoryBuilder()
    poll(h, A, 0, 1)
    poll(h, A, 3)
    poll(h, A, 4)
    poll(h, READER, 0, 1, 3, 4)
    read(h, 5)
    assert verdict(h, "poll-skip").verdict is Outcome.HOLDS


def test_a_gap_that_was_never_read_again_leaves_skips_undecided() -> None:
    h = HistoryBuilder()
    poll(h, A, 0, 1)
    poll(h, A, 3)
    found = verdict(h, "poll-skip")
    assert found.verdict is Outcome.UNKNOWN
    assert why(found, "start", "stop") == (2, 3)


def test_a_gap_before_a_reading_that_failed_leaves_skips_undecided() -> None:
    h = HistoryBuilder()
    poll(h, A, 0, 1)
    poll(h, A, 3)
    read(h, 4, outcome="failed")
    assert verdict(h, "poll-skip").verdict is Outcome.UNKNOWN


def test_a_single_poll_from_an_unknown_position_can_skip_nothing() -> None:
    h = HistoryBuilder()
    poll(h, A, 3, 4)
    assert verdict(h, "poll-skip").verdict is Outcome.NOT_EXERCISED


def test_the_very_first_messages_can_be_skipped_too() -> None:
    h = HistoryBuilder()
    h.add(A, ConsumerPositioned(topic="orders", partition=0, offset=0))
    poll(h, A, 2)
    poll(h, B, 0, 1, 2)
    assert verdict(h, "poll-skip").verdict is Outcome.VIOLATED


@pytest.mark.parametrize(
    ("out_of_range", "outcome"), [(False, Outcome.HOLDS), (True, Outcome.VIOLATED)]
)
def test_a_consumer_skips_messages_only_if_it_did_not_ask_to_go_on_beyond_them(
    out_of_range: bool, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    poll(h, A, 0, 1)
    h.add(
        A,
        ConsumerPositioned(topic="orders", partition=0, offset=4, out_of_range=out_of_range),
    )
    poll(h, A, 4, 5)
    poll(h, B, 2, 3)
    assert verdict(h, "poll-skip").verdict is outcome


def positioned(h: HistoryBuilder, offset: int) -> None:
    h.add(A, ConsumerPositioned(topic="orders", partition=0, offset=offset))


@pytest.mark.parametrize(("read_from", "broken"), [(0, 1), (1, 0)])
def test_a_consumer_that_was_sent_to_the_beginning_gets_the_first_message(
    read_from: int, broken: int
) -> None:
    """Retention may have deleted what was before: then no reading shows it either."""
    h = HistoryBuilder()
    positioned(h, -2)
    poll(h, A, 1)
    poll(h, READER, *range(read_from, 2))
    read(h, 2)
    found = verdict(h, "poll-skip")
    assert found.violated == broken
    if broken:
        assert stated(found, "client", "offset", "skipped") == (A, 1, 0)


def test_a_message_in_any_gap_of_any_consumer_is_found() -> None:
    h = HistoryBuilder()
    for process, offsets in ((A, (0, 3, 6, 9)), (B, (0, 2, 9))):
        poll(h, process, *offsets)
    positioned(h, 0)
    poll(h, A, 0, 9)
    poll(h, READER, 7)
    found = verdict(h, "poll-skip")
    skipped = [stated(one, "client", "offset", "skipped") for one in found.violations]
    assert sorted(skipped) == [(A, 3, 2), (A, 9, 7), (A, 9, 7), (B, 9, 7)]


def test_a_message_in_a_gap_is_reported_once() -> None:
    h = HistoryBuilder()
    poll(h, A, 0, 4)
    for _ in range(2):
        poll(h, READER, 0, 1, 2, 3, 4)
    assert verdict(h, "poll-skip").violated == 1
