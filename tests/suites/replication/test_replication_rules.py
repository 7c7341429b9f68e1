"""The rules of replication, each with a violation, a near miss and an undecided history."""

from __future__ import annotations

import pytest
from tests.suites.partition_histories import (
    ALL3,
    B1,
    B2,
    B3,
    CLIENT,
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
    ProduceAnswered,
    ReadCompleted,
)

# ------------------------------------------------------------------------------------------ RP-04


def test_acks_all_before_the_followers_break_rp_04() -> None:
    h = HistoryBuilder()
    store(h, B1, 0, as_leader=True)
    acknowledge(h, 1, ends=(1, 0, 0), mark=0)
    assert verdict(h, "RP-04").violations[0].evidence is Evidence.SELF


def test_a_follower_that_had_not_stored_it_breaks_rp_04_whatever_the_leader_reports() -> None:
    h = HistoryBuilder()
    partition(h, 3, leader=1, epoch=1, process=B1)
    follow(h, B2, log_end=0, mark=0)
    fetched(h, 2, B2, 0)
    store(h, B1, 0, as_leader=True)
    acknowledge(h, 1, ends=(1, 1, 1), mark=1)
    found = verdict(h, "RP-04").violations[0]
    assert found.evidence is Evidence.PEER
    assert stated(found, "other", "log_end") == (B2, 0)


@pytest.mark.parametrize(("log_end", "broken"), [(5, False), (0, True)])
def test_a_replica_is_the_newest_process_of_its_node_though_it_led_in_between(
    log_end: int, broken: bool
) -> None:
    h = HistoryBuilder()
    partition(h, 3, leader=1, epoch=1, process=B1)
    follow(h, B2, log_end=0, mark=0)
    fetched(h, 2, B2, 0)
    for offset in range(log_end):
        store(h, B2, offset)
    follow(h, "broker-2#2", log_end=log_end, mark=0)
    store(h, B1, 0, as_leader=True)
    acknowledge(h, 1, ends=(1, 1, 1), mark=1)
    assert (verdict(h, "RP-04").verdict is Outcome.VIOLATED) == broken


@pytest.mark.parametrize(
    ("stored", "epoch", "expected"),
    [
        ((1, 2), 1, Outcome.VIOLATED),
        ((1,), 1, Outcome.NOT_EXERCISED),
        ((1, 2), 2, Outcome.NOT_EXERCISED),
    ],
    ids=["in this epoch", "as it says", "in another epoch"],
)
def test_a_leader_that_names_a_smaller_isr_than_the_stored_one_breaks_rp_04(
    stored: tuple[int, ...], epoch: int, expected: Outcome
) -> None:
    h = HistoryBuilder()
    partition(h, 3, leader=1, epoch=epoch, isr=stored)
    follow(h, B2, log_end=0, mark=0)
    fetched(h, 2, B2, 0)
    store(h, B1, 0, as_leader=True)
    acknowledge(h, 1, ends=(1,), mark=1)
    assert verdict(h, "RP-04").verdict is expected


def test_an_error_acknowledges_nothing() -> None:
    h = HistoryBuilder()
    store(h, B1, 0, as_leader=True)
    acknowledge(h, 1, ends=(1, 0, 0), mark=0, error="NOT_ENOUGH_REPLICAS_AFTER_APPEND")
    assert verdict(h, "RP-04").verdict is Outcome.NOT_EXERCISED


def test_acks_one_before_the_leader_has_it_breaks_rp_04() -> None:
    h = HistoryBuilder()
    lead(h, B1, 1, log_end=0)
    acknowledge(h, 1, ends=(0,), mark=0, acks=1)
    assert verdict(h, "RP-04").verdict is Outcome.VIOLATED


def test_acks_all_once_every_follower_has_it_keep_rp_04() -> None:
    h = HistoryBuilder()
    for follower, process in ((2, B2), (3, B3)):
        follow(h, process, log_end=0, mark=0)
        fetched(h, follower, process, 0)
    store(h, B1, 0, as_leader=True)
    store(h, B2, 0)
    store(h, B3, 0)
    acknowledge(h, 1, ends=(1, 1, 1), mark=1)
    found = verdict(h, "RP-04")
    assert (found.verdict, found.exercised, found.evidence) == (Outcome.HOLDS, 1, Evidence.PEER)


@pytest.mark.parametrize("vacant", [False, True], ids=("led", "vacant"))
def test_a_leaders_log_from_its_time_as_a_follower_does_not_count(vacant: bool) -> None:
    h = HistoryBuilder()
    partition(h, 3, leader=1, epoch=1, process=B1)
    store(h, "broker-1#0", 0)
    h.add(
        B2,
        FollowerFetched(
            topic="orders",
            partition=0,
            leader_epoch=0,
            follower=1,
            client="broker-1#0",
            broker_epoch=5,
            offset=1,
        ),
    )
    store(h, B1, 1, as_leader=True)
    if vacant:  # as B2 has read; B1 has been paused, and answers what was committed before
        partition(h, 4, leader=-1, epoch=1, process=B2)
    acknowledge(h, 2, ends=(2, 2, 2), mark=2)
    assert verdict(h, "RP-04").verdict is Outcome.HOLDS


def test_a_resend_of_a_committed_write_may_be_answered_by_a_leader_that_knows_no_ends() -> None:
    h = HistoryBuilder()
    lead(h, B1, 2, log_end=5, mark=5)
    acknowledge(h, 5, ends=(5, -1, -1), mark=5, duplicate=True)
    assert verdict(h, "RP-04").verdict is Outcome.NOT_EXERCISED


def test_rp_04_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    store(h, B1, 0, as_leader=True)
    acknowledge(h, 1, ends=(1, 1, 1), mark=1)
    assert verdict(h, "RP-04", complete=False).verdict is Outcome.UNKNOWN


# ------------------------------------------------------------------------------------------ RP-06


def test_a_new_leader_without_committed_messages_breaks_rp_06() -> None:
    h = HistoryBuilder()
    lead(h, B1, 1, log_end=0)
    mark(h, B1, 7)
    lead(h, B2, 2, log_end=6)
    found = verdict(h, "RP-06").violations[0]
    assert [str(ref) for ref in found.because] == [f"{B1}@1"]


@pytest.mark.parametrize("isr", [(3,), (1, 3), (1, 2)])
def test_a_leader_from_outside_the_isr_breaks_rp_06(isr: tuple[int, ...]) -> None:
    h = HistoryBuilder()
    partition(h, 4, leader=1, epoch=1, isr=(1, 2))
    partition(h, 5, leader=3, epoch=2, isr=isr)
    assert stated(verdict(h, "RP-06"), "leader", "isr") == ("broker 3", (1, 2))


@pytest.mark.parametrize("clause", ["RP-06", "RP-29"])
def test_a_leader_after_a_state_that_was_not_read_breaks_nothing(clause: str) -> None:
    """The ISR in the skipped state may have had it."""
    h = HistoryBuilder()
    partition(h, 4, leader=1, epoch=1, isr=(1, 2))
    partition(h, 6, leader=3, epoch=2, isr=(3,), skipped=1)
    assert verdict(h, clause).verdict is not Outcome.VIOLATED


def test_a_leader_that_is_not_eligible_breaks_rp_06_where_the_isr_is_empty() -> None:
    h = HistoryBuilder()
    partition(h, 4, leader=-1, epoch=1, isr=(), eligible=(1, 2))
    partition(h, 5, leader=3, epoch=2, isr=(3,))
    assert verdict(h, "RP-06").verdict is Outcome.VIOLATED


@pytest.mark.parametrize(
    ("adding", "removing", "isr", "leader"),
    [
        # the leader cannot go on leading in between
        pytest.param((), (), (1, 2, 3), 3, id="grown"),
        pytest.param((3,), (1,), (2, 3), 3, id="switched"),
        pytest.param((3,), (1, 2), (3,), 3, id="switched-whole"),
    ],
)
def test_a_replica_that_enters_the_isr_by_a_record_may_lead_by_it(
    adding: tuple[int, ...], removing: tuple[int, ...], isr: tuple[int, ...], leader: int
) -> None:
    h = HistoryBuilder()
    partition(h, 4, leader=1, epoch=1, isr=(1, 2), adding=adding, removing=removing)
    partition(h, 5, leader=leader, epoch=2, isr=isr)
    assert verdict(h, "RP-06").verdict is not Outcome.VIOLATED


@pytest.mark.parametrize(
    ("before", "removing", "adding", "after", "expected"),
    [
        ((1, 3), (3,), (), (1,), False),
        ((1, 2, 3), (3,), (), (1, 2), False),
        ((1, 2, 4, 3), (3,), (4,), (1, 2, 4), False),
        ((1, 2, 3), (3,), (), (1, 3), True),
        ((1, 2, 3), (), (), (1, 2, 3), True),
    ],
    ids=["to one", "to two", "in place of one", "another set", "no reassignment"],
)
def test_an_old_replica_may_lead_where_a_reassignment_ends_that_removes_the_whole_isr(
    before: tuple[int, ...],
    removing: tuple[int, ...],
    adding: tuple[int, ...],
    after: tuple[int, ...],
    expected: bool,
) -> None:
    h = HistoryBuilder()
    partition(h, 4, leader=3, epoch=1, isr=(3,), replicas=before, adding=adding, removing=removing)
    partition(h, 5, leader=1, epoch=2, isr=after[:1], replicas=after)
    assert (verdict(h, "RP-06").verdict is Outcome.VIOLATED) is expected


def test_a_leader_that_joins_the_isr_while_there_is_no_leader_breaks_rp_06() -> None:
    h = HistoryBuilder()
    partition(h, 4, leader=-1, epoch=1, isr=(1, 2))
    partition(h, 5, leader=3, epoch=2, isr=ALL3)
    assert stated(verdict(h, "RP-06"), "leader", "isr") == ("broker 3", (1, 2))


def test_a_reading_that_ends_early_breaks_rp_06() -> None:
    h = HistoryBuilder()
    lead(h, B1, 1, log_end=0)
    mark(h, B1, 7)
    lead(h, B2, 2, log_end=7, mark=7)
    h.add(
        "clients/reader#1",
        ReadCompleted(topic="orders", partition=0, start=0, end=6, outcome="ok", error=""),
    )
    assert verdict(h, "RP-06").violations[0].evidence is Evidence.CLIENT


@pytest.mark.parametrize("end", [6, 7])
def test_a_reading_that_was_not_completed_proves_nothing_about_rp_06(end: int) -> None:
    h = HistoryBuilder()
    lead(h, B1, 1, log_end=0)
    mark(h, B1, 7)
    lead(h, B2, 2, log_end=7, mark=7)
    h.add(
        "clients/reader#1",
        ReadCompleted(topic="orders", partition=0, start=0, end=end, outcome="unknown", error="x"),
    )
    found = verdict(h, "RP-06")
    assert (found.verdict, found.evidence) == (Outcome.HOLDS, Evidence.PEER)


def test_a_new_leader_with_everything_committed_keeps_rp_06() -> None:
    h = HistoryBuilder()
    lead(h, B1, 1, log_end=0)
    mark(h, B1, 7)
    lead(h, B2, 2, log_end=7, mark=7)
    h.add(
        "clients/reader#1",
        ReadCompleted(topic="orders", partition=0, start=0, end=7, outcome="ok", error=""),
    )
    found = verdict(h, "RP-06")
    assert (found.verdict, found.exercised, found.evidence) == (Outcome.HOLDS, 2, Evidence.CLIENT)


@pytest.mark.parametrize(("end", "came"), [(7, Outcome.HOLDS), (6, Outcome.VIOLATED)])
def test_a_reader_judges_a_watermark_that_only_the_new_leader_has_reported(
    end: int, came: Outcome
) -> None:
    h = HistoryBuilder()
    lead(h, B1, 1, log_end=0)
    lead(h, B2, 2, log_end=7, mark=7)
    h.add(
        "clients/reader#1",
        ReadCompleted(topic="orders", partition=0, start=0, end=end, outcome="ok", error=""),
    )
    found = verdict(h, "RP-06")
    assert (found.verdict, found.exercised) == (came, int(came is Outcome.HOLDS))


def test_a_high_watermark_that_lags_for_a_while_loses_nothing() -> None:
    h = HistoryBuilder()
    lead(h, B1, 1, log_end=0)
    mark(h, B1, 7)
    lead(h, B2, 2, log_end=7, mark=5)
    h.add(
        "clients/reader#1",
        ReadCompleted(topic="orders", partition=0, start=0, end=5, outcome="ok", error=""),
    )
    assert verdict(h, "RP-06").verdict is Outcome.HOLDS


def test_rp_06_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    lead(h, B1, 1, log_end=0)
    mark(h, B1, 7)
    lead(h, B2, 2, log_end=7)
    assert verdict(h, "RP-06", complete=False).verdict is Outcome.UNKNOWN


@pytest.mark.parametrize("clause", ["RP-06", "RP-13"])
def test_a_process_that_replays_an_old_election_late_is_no_new_leader(clause: str) -> None:
    h = HistoryBuilder()
    lead(h, B1, 3, log_end=0)
    mark(h, B1, 7)
    acknowledge(h, 7, ends=(7, 7, 7), mark=7)
    lead(h, B2, 2, log_end=6)
    assert verdict(h, clause).verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ RP-13


def test_a_new_leader_without_messages_acknowledged_to_a_client_breaks_rp_13() -> None:
    h = HistoryBuilder()
    lead(h, B1, 1, log_end=0)
    acknowledge(h, 7, ends=(7, 7, 7), mark=7)
    acked(h, 6)
    lead(h, B2, 2, log_end=6)
    assert verdict(h, "RP-13").violations[0].evidence is Evidence.CLIENT


def test_a_new_leader_without_messages_that_the_former_answered_breaks_rp_13() -> None:
    h = HistoryBuilder()
    lead(h, B1, 1, log_end=0)
    acknowledge(h, 7, ends=(7, 7, 7), mark=7)
    lead(h, B2, 2, log_end=6)
    assert verdict(h, "RP-13").violations[0].evidence is Evidence.PEER


def test_a_new_leader_with_everything_acknowledged_keeps_rp_13() -> None:
    h = HistoryBuilder()
    lead(h, B1, 1, log_end=0)
    acknowledge(h, 7, ends=(7, 7, 7), mark=7)
    acked(h, 6)
    lead(h, B2, 2, log_end=7)
    h.add(
        "clients/reader#1",
        ReadCompleted(topic="orders", partition=0, start=0, end=7, outcome="ok", error=""),
    )
    found = verdict(h, "RP-13")
    assert (found.verdict, found.exercised, found.evidence) == (Outcome.HOLDS, 2, Evidence.CLIENT)


def test_a_write_acknowledged_by_the_leader_alone_may_be_lost_with_it() -> None:
    h = HistoryBuilder()
    lead(h, B1, 1, log_end=0)
    acknowledge(h, 7, ends=(7, 6, 6), mark=6, acks=1)
    acked(h, 6, acks=1)
    lead(h, B2, 2, log_end=6)
    assert verdict(h, "RP-13").verdict is Outcome.NOT_EXERCISED


def test_rp_13_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    lead(h, B1, 1, log_end=0)
    acknowledge(h, 7, ends=(7, 7, 7), mark=7)
    lead(h, B2, 2, log_end=7)
    assert verdict(h, "RP-13", complete=False).verdict is Outcome.UNKNOWN


# ------------------------------------------------------------------------------------------ RP-15


def test_cutting_to_the_checkpointed_high_watermark_breaks_rp_15() -> None:
    """The seed's literal rule: the message above the high watermark was committed by the leader."""
    h = HistoryBuilder()
    store(h, B1, 0, as_leader=True)
    store(h, B2, 0)
    mark(h, B1, 1)
    follow(h, B2, log_end=1, mark=0, leader=3)
    truncate(h, 0, 1, mark=0, reason="high_watermark")
    assert stated(verdict(h, "RP-15"), "reason", "other_offset") == ("high_watermark", 0)


@pytest.mark.parametrize(("epoch", "broken"), [(2, True), (3, False)])
def test_dropping_a_message_that_the_leader_then_commits_breaks_rp_15(
    epoch: int, broken: bool
) -> None:
    """What another leader commits later, in another epoch, may be its own message."""
    h = HistoryBuilder()
    store(h, B1, 0, as_leader=True)
    store(h, B2, 0)
    follow(h, B2, log_end=1, mark=0)
    truncate(h, 0, 1, mark=0, reason="high_watermark")
    store(h, B2, 0)
    h.add(
        B1,
        HighWatermarkAdvanced(
            topic="orders",
            partition=0,
            high_watermark=1,
            log_end=1,
            leader_epoch=epoch,
            as_leader=True,
            isr=(1, 2),
            counted=(1, 2),
        ),
    )
    found = verdict(h, "RP-15")
    assert (found.verdict is Outcome.VIOLATED) is broken
    if broken:
        assert stated(found, "epoch", "leader") == (2, B1)


def test_cutting_below_ones_own_high_watermark_breaks_rp_15() -> None:
    h = HistoryBuilder()
    truncate(h, 4, 9, mark=5)
    assert verdict(h, "RP-15").verdict is Outcome.VIOLATED


def test_fetching_on_past_a_message_that_the_leader_does_not_have_breaks_rp_15() -> None:
    h = HistoryBuilder()
    store(h, B1, 0, "ours", as_leader=True)
    mark(h, B1, 1)
    store(h, B2, 0, "stale")
    follow(h, B2, log_end=1, mark=0)
    store(h, B2, 1)
    assert stated(verdict(h, "RP-15"), "other_offset", "other") == (0, B1)


def test_dropping_a_message_that_the_leader_lacks_keeps_rp_15() -> None:
    h = HistoryBuilder()
    store(h, B1, 0, "ours", as_leader=True)
    store(h, B2, 0, "stale")
    follow(h, B2, log_end=1, mark=0)
    truncate(h, 0, 1, mark=0)
    store(h, B2, 0, "ours")
    mark(h, B1, 1)
    mark(h, B2, 1)
    assert (verdict(h, "RP-15").verdict, verdict(h, "RP-15").exercised) == (Outcome.HOLDS, 1)


def test_keeping_messages_above_the_own_high_watermark_keeps_rp_15() -> None:
    h = HistoryBuilder()
    store(h, B2, 0)
    follow(h, B2, log_end=1, mark=0, leader=3)
    store(h, B2, 1)
    assert verdict(h, "RP-15").verdict is Outcome.HOLDS


def test_a_resend_that_a_later_leader_stored_is_another_message() -> None:
    """The same bytes in a later epoch: the follower's copy is not in the leader's log."""
    h = HistoryBuilder()
    store(h, B2, 0, "same", epoch=1)
    store(h, B1, 0, "same", as_leader=True, epoch=2)
    mark(h, B1, 1)
    truncate(h, 0, 1, mark=0)
    assert verdict(h, "RP-15").verdict is Outcome.HOLDS


@pytest.mark.parametrize(
    ("epoch", "outcome"), [(1, Outcome.NOT_EXERCISED), (2, Outcome.HOLDS)], ids=["same", "next"]
)
def test_kept_messages_exercise_rp_15_in_another_leader_epoch(epoch: int, outcome: Outcome) -> None:
    """A follower that truncates to its high watermark at each new epoch would have lost it."""
    h = HistoryBuilder()
    follow(h, B2, log_end=0, mark=0, epoch=1)
    store(h, B2, 0)
    follow(h, B2, log_end=1, mark=0, epoch=epoch)
    store(h, B2, 1)
    assert verdict(h, "RP-15").verdict is outcome


def test_rp_15_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    truncate(h, 5, 9, mark=5)
    assert verdict(h, "RP-15", complete=False).verdict is Outcome.UNKNOWN


def followers(h: HistoryBuilder) -> None:
    """Brokers 2 and 3 follow broker 1, and have stored nothing."""
    partition(h, 3, leader=1, epoch=1)
    lead(h, B1, 1)
    for process in (B2, B3):
        follow(h, process, log_end=0, mark=0)


def test_a_leader_that_names_an_epoch_which_no_record_began_does_not_choose_its_isr() -> None:
    h = HistoryBuilder()
    followers(h)
    store(h, B1, 0, as_leader=True, epoch=99)
    answer = ProduceAnswered(
        topic="orders",
        partition=0,
        client=CLIENT,
        acks=-1,
        error="NONE",
        base_offset=0,
        log_end=-1,
        leader_epoch=99,
        high_watermark=1,
        isr=(1,),
        ends=(1,),
        duplicate=False,
    )
    h.add(B1, answer)
    assert stated(verdict(h, "RP-04"), "most", "needed", "offset") == (0, 2, 1)


@pytest.mark.parametrize(("replicas", "violated"), [(0, 1), (1, 1), (2, 0)])
def test_an_acknowledgement_that_a_client_has_is_judged_without_an_answer(
    replicas: int, violated: int
) -> None:
    h = HistoryBuilder()
    followers(h)
    for process in (B1, B2, B3)[: 1 + replicas]:
        store(h, process, 0, as_leader=process == B1)
    acked(h, 0)
    assert verdict(h, "RP-04").violated == violated


@pytest.mark.parametrize(("named", "violated"), [(0, 0), (1, 0), (2, 1)])
def test_a_new_process_counts_for_no_more_than_its_slot_has_stored(
    named: int, violated: int
) -> None:
    """It names an end that nobody stored, and stores on there."""
    h = HistoryBuilder()
    followers(h)
    for offset in range(3):
        store(h, B1, offset, as_leader=True)
        store(h, B3, offset)
    store(h, B2, 0)
    follow(h, "broker-2#2", log_end=named, mark=0)
    for offset in range(named, 3):
        store(h, "broker-2#2", offset)
    acked(h, 2)
    assert verdict(h, "RP-04").violated == violated


@pytest.mark.parametrize(("stored", "violated"), [((B2,), 1), ((B2, B3), 0)])
def test_a_commit_that_followers_have_not_stored_breaks_rp_32(
    stored: tuple[str, ...], violated: int
) -> None:
    """Whatever the leader says over whom it counted."""
    h = HistoryBuilder()
    followers(h)
    store(h, B1, 0, as_leader=True)
    for process in stored:
        store(h, process, 0)
    mark(h, B1, 1)
    assert verdict(h, "RP-32").violated == violated
