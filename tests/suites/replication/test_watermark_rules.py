"""The rules of the high watermark and the ISR, each with a violation, a near miss and an undecided
history."""

from __future__ import annotations

import pytest

from fencepost import Evidence, Stalled
from fencepost.testing import HistoryBuilder, Outcome, Verdict, judge
from fencepost_kafka import (
    FetchServed,
    FollowerFetched,
    FollowingStarted,
    HighWatermarkAdvanced,
    IsrChangeAsked,
    LeadershipEnded,
    LeadershipStarted,
    LogAppended,
    PartitionCommitted,
    Polled,
    ProduceAnswered,
)
from fencepost_suites import rules
from fencepost_suites.clauses import clauses

CLAUSES = {clause.id: clause for clause in clauses()}
B1, B2 = "broker-1#1", "broker-2#1"
CONSUMER = "clients/consumer#1"
ALL3 = (1, 2, 3)
MS = 1_000_000


def verdict(h: HistoryBuilder, clause: str, complete: bool = True) -> Verdict:
    chosen = [rule for rule in rules.ALL if rule.clause == clause]
    return judge(h.events(), chosen, CLAUSES, h.end(complete), "quorum").verdicts[clause]


def mark(
    h: HistoryBuilder,
    high_watermark: int,
    log_end: int,
    counted: tuple[int, ...] = ALL3,
    isr: tuple[int, ...] = ALL3,
    epoch: int = 1,
) -> None:
    """The leader's high watermark moves."""
    h.add(
        B1,
        HighWatermarkAdvanced(
            topic="orders",
            partition=0,
            high_watermark=high_watermark,
            log_end=log_end,
            leader_epoch=epoch,
            as_leader=True,
            isr=isr,
            counted=counted,
        ),
    )


def learn(h: HistoryBuilder, high_watermark: int, log_end: int) -> None:
    h.add(
        B2,
        HighWatermarkAdvanced(
            topic="orders",
            partition=0,
            high_watermark=high_watermark,
            log_end=log_end,
            leader_epoch=1,
            as_leader=False,
            isr=(),
            counted=(),
        ),
    )


def store(h: HistoryBuilder, process: str, offset: int) -> None:
    leads = process == B1
    h.add(
        process,
        LogAppended(
            topic="orders",
            partition=0,
            base_offset=offset,
            log_end=offset + 1,
            expected_base=offset,
            batch_epoch=1,
            leader_epoch=1,
            as_leader=leads,
            digest=f"d{offset}",
            producer_id=-1,
            base_sequence=-1,
        ),
    )


def lead(h: HistoryBuilder, epoch: int = 1, keep_ms: int = 2000) -> None:
    h.add(
        B1,
        LeadershipStarted(
            topic="orders",
            partition=0,
            leader_epoch=epoch,
            isr=ALL3,
            log_start=0,
            log_end=0,
            high_watermark=0,
            keep_in_sync_ms=keep_ms,
        ),
    )


def follow(h: HistoryBuilder, log_end: int = 0, own: int = 0) -> None:
    h.add(
        B2,
        FollowingStarted(
            topic="orders",
            partition=0,
            leader=1,
            leader_epoch=1,
            log_end=log_end,
            high_watermark=own,
        ),
    )


def stored_isr(h: HistoryBuilder, offset: int, epoch: int, isr: tuple[int, ...]) -> None:
    h.add(
        "controller-1#1",
        PartitionCommitted(
            offset=offset,
            topic="orders",
            partition=0,
            leader=1,
            leader_epoch=epoch,
            isr=isr,
            replicas=ALL3,
        ),
    )


def ask(
    h: HistoryBuilder,
    new: tuple[int, ...],
    old: tuple[int, ...] = ALL3,
    ends: tuple[int, ...] = (),
    mark: int = 5,
    start: int = 3,
    lag_ms: int = 2000,
    epoch: int = 1,
) -> None:
    ends = ends or (5,) * len(new)
    h.add(
        B1,
        IsrChangeAsked(
            topic="orders",
            partition=0,
            leader_epoch=epoch,
            broker_epoch=5,
            old_isr=old,
            new_isr=new,
            ends=ends,
            high_watermark=mark,
            epoch_start=start,
            lag_ns=lag_ms * MS,
        ),
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
    assert "above its log end 5" in verdict(h, "RP-27").violations[0].message


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
    assert "without [3] of the stored ISR" in found.message


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


# ------------------------------------------------------------------------------------------ RP-09


def time_out(h: HistoryBuilder) -> None:
    error = "REQUEST_TIMED_OUT"
    h.add(
        B1,
        ProduceAnswered(
            topic="orders",
            partition=0,
            client=CONSUMER,
            acks=-1,
            error=error,
            base_offset=-1,
            log_end=-1,
            leader_epoch=1,
            high_watermark=0,
            isr=ALL3,
            ends=(1, 0, 0),
            duplicate=False,
        ),
    )


def test_a_leader_that_lets_writes_wait_forever_breaks_rp_09() -> None:
    h = HistoryBuilder()
    lead(h, keep_ms=2000)
    store(h, B1, 0)
    h.after(6000)
    time_out(h)
    assert "asked to drop no follower" in verdict(h, "RP-09").violations[0].message


def test_a_leader_that_reports_no_time_is_held_to_kafkas_default() -> None:
    h = HistoryBuilder()
    lead(h, keep_ms=0)
    store(h, B1, 0)
    h.after(61_000)
    time_out(h)
    assert verdict(h, "RP-09").verdict is Outcome.NOT_EXERCISED
    h.after(1000)
    time_out(h)
    assert verdict(h, "RP-09").verdict is Outcome.VIOLATED


def test_a_laggard_dropped_and_commits_that_go_on_keep_rp_09() -> None:
    h = HistoryBuilder()
    lead(h)
    store(h, B1, 0)
    h.after(2000)
    ask(h, (1, 2))
    stored_isr(h, 4, 2, (1, 2))
    lead(h, epoch=2)
    mark(h, 1, 1, counted=(1, 2), isr=(1, 2), epoch=2)
    found = verdict(h, "RP-09")
    assert (found.verdict, found.evidence) == (Outcome.HOLDS, Evidence.PEER)


def test_a_leader_that_asked_without_an_answer_keeps_rp_09() -> None:
    h = HistoryBuilder()
    lead(h)
    store(h, B1, 0)
    h.after(2000)
    ask(h, (1, 2))
    h.after(20_000)
    time_out(h)
    assert verdict(h, "RP-09").verdict is Outcome.NOT_EXERCISED


def test_a_stall_of_the_leader_leaves_rp_09_undecided() -> None:
    h = HistoryBuilder()
    lead(h)
    store(h, B1, 0)
    h.after(6000)
    h.add(B1, Stalled(stalled_ns=3000 * MS))
    time_out(h)
    assert verdict(h, "RP-09").verdict is Outcome.UNKNOWN


# ------------------------------------------------------------------------------------------ RP-10


@pytest.mark.parametrize(("mark", "start"), [(5, 3), (3, 5)], ids=["watermark", "epoch's start"])
def test_a_laggard_taken_back_breaks_rp_10(mark: int, start: int) -> None:
    h = HistoryBuilder()
    ask(h, ALL3, old=(1, 2), ends=(6, 6, 4), mark=mark, start=start)
    assert "take broker 3 into the ISR" in verdict(h, "RP-10").violations[0].message


def test_a_follower_that_had_not_stored_so_much_breaks_rp_10() -> None:
    h = HistoryBuilder()
    store(h, "broker-3#1", 3)
    h.add(
        B1,
        FollowerFetched(
            topic="orders",
            partition=0,
            leader_epoch=1,
            follower=3,
            client="broker-3#1",
            broker_epoch=5,
            offset=5,
        ),
    )
    ask(h, ALL3, old=(1, 2), ends=(6, 6, 5))
    assert verdict(h, "RP-10").violations[0].evidence is Evidence.PEER


def test_a_follower_taken_back_when_it_has_caught_up_keeps_rp_10() -> None:
    h = HistoryBuilder()
    store(h, "broker-3#1", 4)
    h.add(
        B1,
        FollowerFetched(
            topic="orders",
            partition=0,
            leader_epoch=1,
            follower=3,
            client="broker-3#1",
            broker_epoch=5,
            offset=5,
        ),
    )
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
