"""The rules of the high watermark and the ISR, each with a violation, a near miss and an undecided
history."""

from __future__ import annotations

import pytest
from tests.suites.partition_histories import stated
from tests.suites.replication.replication_histories import fetched
from tests.suites.replication.watermark_histories import (
    ALL3,
    B1,
    B2,
    CONSUMER,
    ask,
    follow,
    lead,
    learn,
    mark,
    store,
    stored_isr,
    verdict,
)

from fencepost import Evidence
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import (
    AdminCompleted,
    FetchServed,
    LeadershipEnded,
    LeadershipStarted,
    Polled,
)

# ------------------------------------------------------------------------------------------ RP-07


def serve(h: HistoryBuilder, to: int, high_watermark: int) -> None:
    h.add(
        B1,
        FetchServed(
            topic="orders",
            partition=0,
            client=CONSUMER,
            from_offset=0,
            to_offset=to,
            high_watermark=high_watermark,
            leader_epoch=1,
            state="ACTIVE",
        ),
    )


def poll(h: HistoryBuilder, *offsets: int) -> None:
    operations = tuple(f"op-{offset}" for offset in offsets)
    body = Polled(topic="orders", partition=0, offsets=offsets, operations=operations, final=False)
    h.add(CONSUMER, body)


def test_a_fetch_served_past_the_high_watermark_breaks_rp_07() -> None:
    h = HistoryBuilder()
    serve(h, to=6, high_watermark=5)
    assert verdict(h, "RP-07").violations[0].evidence is Evidence.SELF


def test_a_high_watermark_that_only_the_answer_names_lets_nothing_be_read() -> None:
    h = HistoryBuilder()
    mark(h, 5, 7)
    serve(h, to=7, high_watermark=7)
    found = verdict(h, "RP-07")
    assert (found.verdict, stated(found, "offset", "high_watermark")) == (Outcome.VIOLATED, (7, 5))


@pytest.mark.parametrize("begins", ["leads", "follows"])
def test_a_replica_that_begins_with_a_high_watermark_has_reported_it(begins: str) -> None:
    h = HistoryBuilder()
    mark(h, 5, 7)
    if begins == "leads":
        h.add(
            B2,
            LeadershipStarted(
                topic="orders",
                partition=0,
                leader_epoch=2,
                isr=(2, 3),
                log_start=0,
                log_end=7,
                high_watermark=7,
            ),
        )
    else:
        follow(h, log_end=7, own=7)
    serve(h, to=7, high_watermark=7)
    assert verdict(h, "RP-07").violated == 0


def test_a_message_read_before_any_replica_had_committed_it_breaks_rp_07() -> None:
    h = HistoryBuilder()
    mark(h, 5, 6)
    poll(h, 4, 5)
    assert verdict(h, "RP-07").violations[0].evidence is Evidence.CLIENT


def test_a_fetch_that_stops_at_the_high_watermark_keeps_rp_07() -> None:
    h = HistoryBuilder()
    mark(h, 5, 6)
    serve(h, to=5, high_watermark=5)
    poll(h, 3, 4)
    found = verdict(h, "RP-07")
    assert (found.verdict, found.exercised, found.evidence) == (Outcome.HOLDS, 2, Evidence.CLIENT)


def test_a_consumer_exercises_rp_07_once_for_each_fetch_that_held_messages_back() -> None:
    h = HistoryBuilder()
    mark(h, 5, 6)
    serve(h, to=5, high_watermark=5)
    poll(h, 3)
    poll(h, 4)
    assert verdict(h, "RP-07").exercised == 2


def test_a_fetch_of_a_log_all_committed_does_not_exercise_rp_07() -> None:
    h = HistoryBuilder()
    mark(h, 5, 5)
    serve(h, to=5, high_watermark=5)
    poll(h, 3, 4)
    assert verdict(h, "RP-07").verdict is Outcome.NOT_EXERCISED


def test_a_system_that_reports_no_high_watermark_is_not_judged_by_one() -> None:
    h = HistoryBuilder()
    poll(h, 3, 4)
    assert verdict(h, "RP-07").verdict is Outcome.NOT_EXERCISED


def test_rp_07_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    mark(h, 5, 6)
    serve(h, to=5, high_watermark=5)
    assert verdict(h, "RP-07", complete=False).verdict is Outcome.UNKNOWN


# ------------------------------------------------------------------------------------------ RP-27


def test_a_high_watermark_above_the_log_end_breaks_rp_27() -> None:
    h = HistoryBuilder()
    follow(h)
    learn(h, 6, 5)
    assert stated(verdict(h, "RP-27"), "high_watermark", "log_end") == (6, 5)


def test_a_follower_that_never_learns_breaks_rp_27() -> None:
    h = HistoryBuilder()
    lead(h)
    follow(h)
    for offset in range(30):
        store(h, B1, offset)
        store(h, B2, offset)
        mark(h, offset + 1, offset + 1)
        h.after(100)
    found = verdict(h, "RP-27")
    assert found.violated == 1
    assert found.violations[0].evidence is Evidence.PEER


def test_the_first_message_after_a_silence_may_come_before_its_high_watermark() -> None:
    h = HistoryBuilder()
    lead(h)
    follow(h)
    store(h, B1, 0)
    store(h, B2, 0)
    mark(h, 1, 1)
    store(h, B1, 1)
    store(h, B2, 1)
    h.after(3_000)
    store(h, B2, 2)
    learn(h, 1, 3)
    assert verdict(h, "RP-27").verdict is not Outcome.VIOLATED


def test_a_follower_that_learns_a_little_late_keeps_rp_27() -> None:
    h = HistoryBuilder()
    lead(h)
    follow(h)
    for offset in range(30):
        store(h, B1, offset)
        store(h, B2, offset)
        mark(h, offset + 1, offset + 1)
        h.after(100)
        if offset % 15 == 14:
            learn(h, offset, offset + 1)
    found = verdict(h, "RP-27")
    assert (found.verdict, found.evidence) == (Outcome.HOLDS, Evidence.PEER)


def test_a_follower_learns_nothing_while_a_slower_one_holds_back_the_high_watermark() -> None:
    h = HistoryBuilder()
    lead(h)
    mark(h, 5, 5)
    follow(h, log_end=5, own=5)
    for offset in range(5, 60):
        store(h, B1, offset)
        store(h, B2, offset)
        h.after(100)
    assert verdict(h, "RP-27").verdict is Outcome.NOT_EXERCISED


def test_what_an_earlier_leader_had_reported_is_not_owed_by_its_successor() -> None:
    h = HistoryBuilder()
    lead(h)
    mark(h, 5, 5)
    lead(h, epoch=2)
    follow(h, log_end=5, own=4)
    for offset in range(5, 60):
        store(h, B1, offset)
        store(h, B2, offset)
        h.after(100)
    assert verdict(h, "RP-27").violated == 0


def test_a_follower_that_led_takes_a_lower_high_watermark_from_its_successor() -> None:
    """A leader whose ISR is too small to commit keeps what it had learned as a follower."""
    h = HistoryBuilder()
    mark(h, 6, 6)
    follow(h, log_end=6, own=6)
    lead(h, epoch=2)
    mark(h, 5, 6, epoch=2)
    learn(h, 5, 6)
    for offset in range(6, 60):
        store(h, B1, offset)
        store(h, B2, offset)
        h.after(100)
    assert verdict(h, "RP-27").violated == 0
    mark(h, 60, 60, epoch=2)
    for offset in range(60, 100):
        store(h, B2, offset)
        h.after(100)
    assert verdict(h, "RP-27").violated == 1


def test_a_follower_exercises_rp_27_once_for_each_leader() -> None:
    h = HistoryBuilder()
    for _ in range(2):
        follow(h)
        mark(h, 9, 9)
        learn(h, 3, 5)
        learn(h, 4, 5)
    assert verdict(h, "RP-27").exercised == 2


def test_a_high_watermark_capped_by_the_followers_own_log_exercises_rp_27() -> None:
    h = HistoryBuilder()
    follow(h)
    mark(h, 9, 9)
    store(h, B2, 0)
    learn(h, 1, 1)
    store(h, B2, 1)
    learn(h, 2, 2)
    assert verdict(h, "RP-27").exercised == 2


def test_rp_27_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    follow(h)
    learn(h, 1, 1)
    assert verdict(h, "RP-27", complete=False).verdict is Outcome.UNKNOWN


# ------------------------------------------------------------------------------------------ RP-32


def test_a_commit_over_an_isr_that_was_never_stored_breaks_rp_32() -> None:
    h = HistoryBuilder()
    stored_isr(h, 3, 1, ALL3)
    ask(h, (1, 2))
    mark(h, 6, 6, counted=(1, 2), isr=(1, 2))
    found = verdict(h, "RP-32").violations[0]
    assert found.evidence is Evidence.PEER
    assert stated(found, "missing") == (3,)


def test_a_commit_over_fewer_than_its_own_isr_breaks_rp_32() -> None:
    h = HistoryBuilder()
    mark(h, 6, 6, counted=(1, 2))
    assert verdict(h, "RP-32").violations[0].evidence is Evidence.SELF


def test_a_commit_that_waits_for_the_stored_shrink_keeps_rp_32() -> None:
    h = HistoryBuilder()
    stored_isr(h, 3, 1, ALL3)
    mark(h, 5, 6)
    ask(h, (1, 2))
    stored_isr(h, 4, 2, (1, 2))
    mark(h, 6, 6, counted=(1, 2), isr=(1, 2), epoch=2)
    found = verdict(h, "RP-32")
    assert (found.verdict, found.exercised, found.evidence) == (Outcome.HOLDS, 1, Evidence.PEER)


def test_a_leader_that_steps_down_with_its_shrink_unstored_exercises_rp_32() -> None:
    h = HistoryBuilder()
    stored_isr(h, 3, 1, ALL3)
    ask(h, (1,))
    h.add(B1, LeadershipEnded(topic="orders", partition=0, leader_epoch=1, reason="metadata"))
    assert verdict(h, "RP-32").evidence is Evidence.SELF


def test_counting_a_replica_that_is_being_added_keeps_rp_32() -> None:
    h = HistoryBuilder()
    stored_isr(h, 3, 1, (1, 2))
    mark(h, 5, 6, counted=ALL3, isr=(1, 2))
    assert verdict(h, "RP-32").verdict is Outcome.NOT_EXERCISED


def test_rp_32_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    ask(h, (1,))
    assert verdict(h, "RP-32", complete=False).verdict is Outcome.UNKNOWN


# ------------------------------------------------------------------------------------------ RP-10


@pytest.mark.parametrize(("mark", "start"), [(5, 3), (3, 5)], ids=["watermark", "epoch's start"])
def test_a_laggard_taken_back_breaks_rp_10(mark: int, start: int) -> None:
    h = HistoryBuilder()
    ask(h, ALL3, old=(1, 2), ends=(6, 6, 4), mark=mark, start=start)
    assert stated(verdict(h, "RP-10"), "broker") == "broker 3"


def test_a_follower_that_had_not_stored_so_much_breaks_rp_10() -> None:
    h = HistoryBuilder()
    store(h, "broker-3#1", 3)
    stored = h.events()[-1]
    fetched(h, 3, "broker-3#1", 5)
    ask(h, ALL3, old=(1, 2), ends=(6, 6, 5))
    violation = verdict(h, "RP-10").violations[0]
    assert (violation.evidence, violation.because) == (Evidence.PEER, (stored.ref,))


def test_a_laggard_by_the_leaders_own_count_is_proven_by_its_fetch() -> None:
    h = HistoryBuilder()
    store(h, "broker-3#1", 9)
    fetched(h, 3, "broker-3#1", 4)
    fetch = h.events()[-1]
    ask(h, ALL3, old=(1, 2), ends=(6, 6, 4))
    violation = verdict(h, "RP-10").violations[0]
    assert (violation.evidence, violation.because) == (Evidence.SELF, (fetch.ref,))


def test_a_follower_taken_back_when_it_has_caught_up_keeps_rp_10() -> None:
    h = HistoryBuilder()
    store(h, "broker-3#1", 4)
    fetched(h, 3, "broker-3#1", 5)
    ask(h, ALL3, old=(1, 2), ends=(6, 6, 5))
    found = verdict(h, "RP-10")
    assert (found.verdict, found.exercised, found.evidence) == (Outcome.HOLDS, 1, Evidence.PEER)


def test_a_shrink_does_not_exercise_rp_10() -> None:
    h = HistoryBuilder()
    ask(h, (1, 2), ends=(6, 1))
    assert verdict(h, "RP-10").verdict is Outcome.NOT_EXERCISED


def test_rp_10_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    ask(h, ALL3, old=(1, 2))
    assert verdict(h, "RP-10", complete=False).verdict is Outcome.UNKNOWN


def test_a_leader_that_names_a_smaller_high_watermark_than_it_reported_breaks_rp_10() -> None:
    h = HistoryBuilder()
    mark(h, 5, 6, counted=(1, 2), isr=(1, 2))
    ask(h, ALL3, old=(1, 2), ends=(6, 6, 0), mark=0, start=0)
    assert stated(verdict(h, "RP-10"), "broker", "high_watermark") == ("broker 3", 5)


def test_a_follower_that_began_with_less_has_not_caught_up_whatever_its_leader_says() -> None:
    h = HistoryBuilder()
    follow(h, log_end=4)
    fetched(h, 2, B2, 4)
    ask(h, ALL3, old=(1, 3), ends=(6, 6, 6))
    violation = verdict(h, "RP-10").violations[0]
    assert violation.evidence is Evidence.PEER
    assert stated(violation, "broker", "offset") == ("broker 2", 4)


def test_a_leader_that_names_no_ends_is_judged_by_what_followers_stored() -> None:
    h = HistoryBuilder()
    ask(h, ALL3, old=(1, 2), ends=(6,))
    assert verdict(h, "RP-10").verdict is Outcome.NOT_EXERCISED
    follow(h, log_end=4)
    fetched(h, 2, B2, 4)
    ask(h, ALL3, old=(1, 3), ends=(6,))
    assert stated(verdict(h, "RP-10"), "broker") == "broker 2"


@pytest.mark.parametrize(("log_end", "violated"), [(4, 1), (5, 0)])
def test_a_record_takes_no_laggard_into_the_isr_though_nobody_asked_for_it(
    log_end: int, violated: int
) -> None:
    h = HistoryBuilder()
    stored_isr(h, 3, 1, (1,))
    lead(h)
    follow(h, log_end=log_end)
    mark(h, 5, 6, counted=(1,), isr=(1,))
    stored_isr(h, 4, 2, ALL3)
    found = verdict(h, "RP-10").violations
    assert sum("high_watermark" in one.facts for one in found) == violated


@pytest.mark.parametrize(
    ("asked", "joined"),
    [(None, ("broker 2", "broker 3")), ((1, 2), ("broker 3",)), (ALL3, ())],
    ids=["silent", "another one", "both"],
)
def test_who_joins_the_isr_was_asked_for_by_a_leader(
    asked: tuple[int, ...] | None, joined: tuple[str, ...]
) -> None:
    """A leader that kept its request from the history, or named another ISR in it, took a laggard
    in unseen."""
    h = HistoryBuilder()
    stored_isr(h, 3, 1, (1,))
    lead(h)
    if asked is not None:
        ask(h, asked, old=(1,), ends=(6, 6, 6))
    stored_isr(h, 4, 2, ALL3)
    broken = [one for one in verdict(h, "RP-10").violations if "joined" in one.facts]
    assert [stated(one, "joined") for one in broken] == ([joined] if joined else [])


def test_records_of_a_topic_that_a_client_has_deleted_are_of_no_other_one() -> None:
    """A node that lags tells them after the answer to that client, and before the record of the
    deletion."""
    h = HistoryBuilder()
    stored_isr(h, 3, 1, (1, 2))
    lead(h)
    ask(h, ALL3, old=(1, 2), ends=(6, 6, 6))
    stored_isr(h, 4, 2, ALL3)
    deleted = AdminCompleted(
        operation="op", api="delete_topic", subject="orders", outcome="ok", error=""
    )
    h.add("clients/admin-1#1", deleted)
    stored_isr(h, 3, 1, (1, 2))
    stored_isr(h, 4, 2, ALL3)
    assert verdict(h, "RP-10").violated == 0


def test_a_leader_that_got_no_answer_asks_again_for_whom_it_had_dropped() -> None:
    """Its request to drop broker 3 was stored, and the answer lost."""
    h = HistoryBuilder()
    stored_isr(h, 3, 1, ALL3)
    lead(h)
    ask(h, (1, 2), old=ALL3, ends=(6, 6))
    stored_isr(h, 4, 1, (1, 2))
    ask(h, ALL3, old=ALL3, ends=(6, 6, 6))
    stored_isr(h, 5, 1, ALL3)
    broken = [one for one in verdict(h, "RP-10").violations if "joined" in one.facts]
    assert broken == []


def test_a_request_takes_a_follower_in_once() -> None:
    h = HistoryBuilder()
    stored_isr(h, 3, 1, (1, 2))
    lead(h)
    ask(h, ALL3, old=(1, 2), ends=(6, 6, 6))
    for offset, isr in ((4, ALL3), (5, (1, 2)), (6, ALL3)):
        stored_isr(h, offset, offset, isr)
    (broken,) = verdict(h, "RP-10").violations
    assert broken.facts["record"] == 6


@pytest.mark.parametrize("leader", [2, -1], ids=["another leader", "none before"])
def test_whom_a_new_leader_finds_needs_no_request(leader: int) -> None:
    h = HistoryBuilder()
    stored_isr(h, 3, 1, (1,), leader=leader)
    stored_isr(h, 4, 2, ALL3)
    assert verdict(h, "RP-10").verdict is Outcome.NOT_EXERCISED
