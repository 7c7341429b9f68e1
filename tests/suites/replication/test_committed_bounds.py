"""What is committed or acknowledged, to the offset and the epoch (RP-04, RP-06, RP-13, RP-15)."""

from __future__ import annotations

from typing import Literal

import pytest
from tests.suites.partition_histories import (
    ALL3,
    B1,
    B2,
    B3,
    CONTROLLER,
    follow,
    lead,
    partition,
    stated,
    verdict,
)
from tests.suites.replication.replication_histories import (
    acked,
    acknowledge,
    fetched,
    mark,
    store,
    truncate,
)

from fencepost import Evidence
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import (
    FollowerFetched,
    HighWatermarkAdvanced,
    IsrChangeAnswered,
    IsrChangeAsked,
    LogTruncated,
    ReadCompleted,
)

B0 = "broker-0#1"


def read(
    h: HistoryBuilder, end: int, outcome: Literal["ok", "failed"] = "ok", asked_ns: int = 0
) -> None:
    body = ReadCompleted(
        topic="orders",
        partition=0,
        start=0,
        end=end,
        outcome=outcome,
        error="",
        asked_ns=asked_ns,
    )
    h.add("clients/reader#1", body)


def commits(h: HistoryBuilder, process: str, high_watermark: int, epoch: int) -> None:
    """A replica's high watermark moves; broker 1 is the leader."""
    leads = process == B1
    isr = ALL3 if leads else ()
    h.add(
        process,
        HighWatermarkAdvanced(
            topic="orders",
            partition=0,
            high_watermark=high_watermark,
            log_end=high_watermark,
            leader_epoch=epoch,
            as_leader=leads,
            isr=isr,
            counted=isr,
        ),
    )


# ------------------------------------------------------------------------------------------ RP-04


@pytest.mark.parametrize(("second", "broken"), [(B2, True), (B1, False)])
def test_the_word_of_another_counts_for_rp_04_though_the_leader_was_the_first_to_read_it(
    second: str, broken: bool
) -> None:
    h = HistoryBuilder()
    for process in (B1, second):
        partition(h, 3, leader=1, epoch=1, isr=(1, 2), process=process)
    follow(h, B2, log_end=0, mark=0)
    fetched(h, 2, B2, 0)
    store(h, B1, 0, as_leader=True)
    acknowledge(h, 1, ends=(1,), mark=1)
    assert (verdict(h, "RP-04").verdict is Outcome.VIOLATED) == broken


def test_what_another_has_read_before_the_leaders_newest_record_says_nothing_for_rp_04() -> None:
    h = HistoryBuilder()
    partition(h, 3, leader=1, epoch=1, isr=(1, 2), process=B3)
    partition(h, 4, leader=1, epoch=1, isr=(1,), process=B1)
    follow(h, B2, log_end=0, mark=0)
    fetched(h, 2, B2, 0)
    store(h, B1, 0, as_leader=True)
    acknowledge(h, 1, ends=(1,), mark=1)
    assert verdict(h, "RP-04").verdict is Outcome.NOT_EXERCISED


def test_a_follower_that_dropped_the_message_has_not_stored_it() -> None:
    h = HistoryBuilder()
    fetched(h, 2, B2, 0)
    store(h, B1, 0, as_leader=True)
    store(h, B2, 0)
    truncate(h, 0, end=1, mark=0)
    acknowledge(h, 1, ends=(1, 1, 1), mark=1)
    assert stated(verdict(h, "RP-04"), "other", "log_end") == (B2, 0)


def test_a_leader_that_knows_every_log_to_reach_the_message_may_acknowledge_it_by_rp_04() -> None:
    """Its high watermark may be reported after that."""
    h = HistoryBuilder()
    store(h, B1, 0, as_leader=True)
    acknowledge(h, 1, ends=(1, 1, 1), mark=0)
    assert verdict(h, "RP-04").verdict is Outcome.HOLDS


def test_the_word_of_another_on_the_isr_stays_so_though_the_leader_replays_it() -> None:
    h = HistoryBuilder()
    for process in (CONTROLLER, B1):
        partition(h, 3, leader=1, epoch=1, isr=(1, 2), process=process)
    follow(h, B2, log_end=0, mark=0)
    fetched(h, 2, B2, 0)
    store(h, B1, 0, as_leader=True)
    acknowledge(h, 1, ends=(1,), mark=1)
    assert verdict(h, "RP-04").verdict is Outcome.VIOLATED


def test_a_leader_with_the_id_0_has_another_log_as_a_leader_than_as_a_follower() -> None:
    h = HistoryBuilder()
    partition(h, 3, leader=0, epoch=1, isr=(0, 1), replicas=(0, 1))
    store(h, "broker-0#0", 0)
    former = FollowerFetched(
        topic="orders",
        partition=0,
        leader_epoch=0,
        follower=0,
        client="broker-0#0",
        broker_epoch=5,
        offset=1,
    )
    h.add(B1, former)
    store(h, B0, 1, as_leader=True)
    acknowledge(h, 2, ends=(2, 2), mark=2, process=B0)
    assert verdict(h, "RP-04").verdict is Outcome.HOLDS


# ------------------------------------------------------------------------------------------ RP-06


def test_what_a_follower_begins_with_was_committed() -> None:
    h = HistoryBuilder()
    follow(h, B3, log_end=7, mark=7)
    lead(h, B2, 2, log_end=6)
    assert verdict(h, "RP-06").verdict is Outcome.VIOLATED


def test_the_first_report_of_what_was_committed_is_the_proof_of_its_loss() -> None:
    h = HistoryBuilder()
    mark(h, B1, 7)
    first = h.events()[-1]
    mark(h, B3, 7)
    lead(h, B2, 2, log_end=6)
    assert verdict(h, "RP-06").violations[0].because == (first.ref,)


@pytest.mark.parametrize("clause", ["RP-06", "RP-13"])
def test_a_second_leader_of_an_epoch_is_judged_too(clause: str) -> None:
    h = HistoryBuilder()
    lead(h, B1, 2)
    mark(h, B1, 7)
    acknowledge(h, 7, ends=(7, 7, 7), mark=7)
    lead(h, B2, 2, log_end=6)
    assert verdict(h, clause).verdict is Outcome.VIOLATED


def test_a_first_leader_with_all_messages_does_not_exercise_rp_06() -> None:
    h = HistoryBuilder()
    follow(h, B3, log_end=7, mark=7)
    lead(h, B2, 2, log_end=7)
    assert verdict(h, "RP-06").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(
    ("process", "outcome"), [(B2, Outcome.VIOLATED), (B3, Outcome.HOLDS)], ids=["leader", "other"]
)
def test_a_reading_may_end_early_until_the_new_leader_has_the_high_watermark(
    process: str, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    lead(h, B1, 1)
    mark(h, B1, 7)
    lead(h, B2, 2, log_end=7, mark=5)
    mark(h, process, 7)
    read(h, 6)
    assert verdict(h, "RP-06").verdict is outcome


def test_leadership_that_has_moved_twice_has_moved() -> None:
    h = HistoryBuilder()
    for epoch, process in enumerate((B1, B2, B3), start=1):
        lead(h, process, epoch, log_end=7, mark=7)
    read(h, 6)
    assert verdict(h, "RP-06").verdict is Outcome.VIOLATED


@pytest.mark.parametrize(("leader", "eligible", "broken"), [(2, (), 1), (3, (), 0), (2, (2,), 0)])
def test_a_first_record_whose_leader_is_not_of_its_own_isr_breaks_rp_06(
    leader: int, eligible: tuple[int, ...], broken: int
) -> None:
    h = HistoryBuilder()
    partition(h, 5, leader=leader, epoch=1, isr=(1, 3), eligible=eligible)
    assert verdict(h, "RP-06").violated == broken


def test_a_partition_without_a_leader_breaks_nothing_of_rp_06() -> None:
    h = HistoryBuilder()
    partition(h, 4, leader=1, epoch=1)
    partition(h, 5, leader=-1, epoch=2)
    assert verdict(h, "RP-06").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("leader", "replicas"), [(0, (0, 1, 2)), (3, ALL3)])
def test_a_leader_from_outside_the_isr_breaks_rp_06_whatever_its_id(
    leader: int, replicas: tuple[int, ...]
) -> None:
    h = HistoryBuilder()
    partition(h, 4, leader=1, epoch=1, isr=(1, 2), replicas=replicas)
    partition(h, 5, leader=leader, epoch=2, isr=(leader,), replicas=replicas)
    assert verdict(h, "RP-06").verdict is Outcome.VIOLATED


@pytest.mark.parametrize(("epoch", "outcome"), [(1, Outcome.NOT_EXERCISED), (0, Outcome.VIOLATED)])
def test_the_first_epoch_of_a_topic_that_was_made_again_needs_no_member_of_the_former_isr(
    epoch: int, outcome: Outcome
) -> None:
    """An observer may have missed the deletion."""
    h = HistoryBuilder()
    partition(h, 4, leader=1, epoch=epoch, isr=(1, 2))
    partition(h, 5, leader=3, epoch=0, isr=(3,))
    assert verdict(h, "RP-06").verdict is outcome


@pytest.mark.parametrize(
    ("isr", "eligible", "skipped", "broken"),
    [
        (ALL3, (), 0, 0),
        ((1, 2), (3,), 0, 0),
        ((1, 2), (), 0, 1),
        ((1, 2), (), 1, 0),
    ],
)
def test_a_replica_is_eligible_beside_the_isr_only_as_it_leaves_that(
    isr: tuple[int, ...], eligible: tuple[int, ...], skipped: int, broken: int
) -> None:
    """Whatever a record calls it: others were committed without it."""
    h = HistoryBuilder()
    partition(h, 4, leader=1, epoch=1, isr=isr, eligible=eligible)
    partition(h, 5, leader=1, epoch=1, isr=(1, 2), eligible=(3,), skipped=skipped)
    partition(h, 6, leader=1, epoch=1, isr=(1,), eligible=(2, 3))
    partition(h, 7, leader=3, epoch=2, isr=(3,))
    assert verdict(h, "RP-06").violated == broken


def test_a_leader_from_the_isr_may_shrink_it_by_its_election() -> None:
    h = HistoryBuilder()
    partition(h, 4, leader=1, epoch=1)
    partition(h, 5, leader=2, epoch=2, isr=(2, 3))
    assert verdict(h, "RP-06").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ RP-13


def test_the_first_answer_is_the_proof_of_the_loss_of_what_was_acknowledged() -> None:
    h = HistoryBuilder()
    acknowledge(h, 7, ends=(7, 7, 7), mark=7)
    answer = h.events()[-1]
    acknowledge(h, 7, ends=(7, 7, 7), mark=7, duplicate=True)
    lead(h, B2, 2, log_end=6)
    assert verdict(h, "RP-13").violations[0].because == (answer.ref,)


def test_the_first_acknowledgement_that_a_client_got_is_its_proof() -> None:
    h = HistoryBuilder()
    acked(h, 6)
    first = h.events()[-1]
    acked(h, 6)
    lead(h, B2, 2, log_end=6)
    assert verdict(h, "RP-13").violations[0].because == (first.ref,)


@pytest.mark.parametrize(
    ("offset", "end", "outcome", "exercised"),
    [
        (0, 1, "ok", 2),
        (0, 0, "ok", 1),
        (5, 6, "ok", 2),
        (5, 5, "ok", 1),
        (5, 6, "failed", 1),
    ],
)
def test_a_reading_past_what_was_acknowledged_exercises_rp_13(
    offset: int, end: int, outcome: Literal["ok", "failed"], exercised: int
) -> None:
    h = HistoryBuilder()
    lead(h, B1, 1)
    acked(h, offset)
    lead(h, B2, 2, log_end=7)
    read(h, end, outcome)
    found = verdict(h, "RP-13")
    assert (found.verdict, found.exercised) == (Outcome.HOLDS, exercised)


def test_a_reading_before_leadership_moves_does_not_exercise_rp_13() -> None:
    h = HistoryBuilder()
    lead(h, B1, 1)
    acked(h, 5)
    read(h, 6)
    assert verdict(h, "RP-13").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ RP-15


def dropped(h: HistoryBuilder) -> None:
    """Broker 2 drops the message at offset 0 in epoch 2, and broker 1, which leads, has it."""
    store(h, B1, 0, as_leader=True)
    store(h, B2, 0)
    truncate(h, 0, end=1, mark=0)


def test_a_dropped_message_breaks_rp_15_by_the_high_watermark_past_it() -> None:
    h = HistoryBuilder()
    dropped(h)
    commits(h, B1, 0, epoch=2)
    assert verdict(h, "RP-15").verdict is Outcome.HOLDS
    commits(h, B1, 1, epoch=2)
    assert verdict(h, "RP-15").verdict is Outcome.VIOLATED


def test_what_another_follower_commits_does_not_say_what_the_leader_of_that_epoch_has() -> None:
    h = HistoryBuilder()
    dropped(h)
    commits(h, B3, 1, epoch=1)
    commits(h, B1, 1, epoch=2)
    found = verdict(h, "RP-15").violations[0]
    assert found.evidence is Evidence.PEER
    assert stated(found, "epoch", "leader") == (2, B1)


@pytest.mark.parametrize(("stored", "violated"), [(True, 1), (False, 0)])
def test_a_leader_that_had_a_dropped_message_commits_it_in_a_later_epoch(
    stored: bool, violated: int
) -> None:
    """The ISR has shrunk meanwhile, which begins an epoch. A leader that did not have the message
    then may have got it since, after it had led no more."""
    h = HistoryBuilder()
    lead(h, B1, 2)
    if stored:
        store(h, B1, 0, as_leader=True)
    store(h, B2, 0)
    truncate(h, 0, end=1, mark=0)
    lead(h, B1, 3)
    if not stored:
        store(h, B1, 0)
    commits(h, B1, 1, epoch=3)
    assert verdict(h, "RP-15").violated == violated


@pytest.mark.parametrize(("running", "violated"), [(True, 1), (False, 0)])
def test_a_process_that_has_a_role_drops_nothing_by_recovery(running: bool, violated: int) -> None:
    h = HistoryBuilder()
    for process in (B1, B2):
        store(h, process, 0, as_leader=process == B1)
        commits(h, process, 1, epoch=1)
    process = B2 if running else "broker-2#2"
    h.add(
        process,
        LogTruncated(
            topic="orders",
            partition=0,
            to_offset=0,
            from_log_end=1,
            high_watermark=0,
            leader_epoch=1,
            reason="recovery",
        ),
    )
    assert verdict(h, "RP-15").violated == violated


@pytest.mark.parametrize("between", [(), (3,)], ids=["nobody", "another"])
@pytest.mark.parametrize(("leader", "violated"), [(3, 1), (2, 0)])
def test_a_record_without_a_leader_neither_empties_an_isr_nor_puts_others_there(
    between: tuple[int, ...], leader: int, violated: int
) -> None:
    h = HistoryBuilder()
    partition(h, 3, leader=1, epoch=1, isr=(1, 2))
    partition(h, 4, leader=-1, epoch=2, isr=between)
    partition(h, 5, leader=leader, epoch=3, isr=(leader,))
    assert verdict(h, "RP-06").violated == violated


@pytest.mark.parametrize(
    ("error", "violated"), [("INELIGIBLE_REPLICA", 1), ("REQUEST_TIMED_OUT", 0), ("", 0)]
)
def test_a_member_that_was_refused_has_not_joined(error: str, violated: int) -> None:
    """After a timeout the request may have been stored all the same."""
    h = HistoryBuilder()
    partition(h, 3, leader=1, epoch=1, isr=(1, 2))
    lead(h, B1, 1)
    asks = IsrChangeAsked(
        topic="orders",
        partition=0,
        leader_epoch=1,
        broker_epoch=5,
        old_isr=(1, 2),
        new_isr=ALL3,
        ends=(0, 0, 0),
        high_watermark=0,
        epoch_start=0,
        lag_ns=0,
    )
    h.add(B1, asks)
    if error:
        answer = IsrChangeAnswered(
            topic="orders", partition=0, leader_epoch=1, error=error, isr=(), granted_epoch=-1
        )
        h.add(B1, answer)
    partition(h, 4, leader=3, epoch=2, isr=ALL3)
    assert verdict(h, "RP-06").violated == violated


@pytest.mark.parametrize(("end", "later_ns", "broken"), [(1, 1, 1), (2, 1, 0), (1, 0, 0)])
def test_a_reading_that_ends_below_what_the_only_leader_had_committed_breaks_rp_06(
    end: int, later_ns: int, broken: int
) -> None:
    one = HistoryBuilder()
    lead(one, B1, 1)
    commits(one, B1, 2, 1)
    read(one, end, asked_ns=one.events()[-1].at_ns + later_ns)
    assert verdict(one, "RP-06").violated == broken


# ------------------------------------------------------------------ where a leader's log begins


@pytest.mark.parametrize(("start", "broken"), [(0, 0), (1, 1), (2, 1), (-1, 0)])
def test_a_leader_whose_log_begins_behind_what_is_committed_breaks_rp_06(
    start: int, broken: int
) -> None:
    one = HistoryBuilder()
    lead(one, B1, 1)
    commits(one, B1, 2, 1)
    lead(one, B2, 2, log_end=2, mark=2, start=start)
    found = verdict(one, "RP-06")
    assert found.violated == broken
    if broken:
        assert stated(found, "log_start", "start", "committed") == (start, 0, 2)


def test_a_log_that_began_late_from_the_first_leader_on_keeps_rp_06() -> None:
    one = HistoryBuilder()
    lead(one, B1, 1, log_end=9, mark=7, start=5)
    lead(one, B2, 2, log_end=9, mark=7, start=5)
    assert verdict(one, "RP-06").verdict is Outcome.HOLDS


@pytest.mark.parametrize(("start", "broken"), [(0, 0), (1, 1), (2, 1), (-1, 0)])
@pytest.mark.parametrize("evidence", [Evidence.CLIENT, Evidence.PEER])
def test_a_leader_whose_log_begins_behind_an_acknowledged_message_breaks_rp_13(
    start: int, broken: int, evidence: Evidence
) -> None:
    one = HistoryBuilder()
    lead(one, B1, 1)
    for offset in (0, 1):
        acknowledge(one, offset + 1, (offset + 1,) * 3, offset + 1)
        if evidence is Evidence.CLIENT:
            acked(one, offset)
    lead(one, B2, 2, log_end=2, mark=2, start=start)
    found = verdict(one, "RP-13")
    assert found.violated == broken
    if broken:
        assert stated(found, "log_start", "offset") == (start, 0)
        assert found.violations[0].evidence is evidence
