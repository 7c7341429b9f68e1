"""RP-05: the logs of replicas agree."""

from __future__ import annotations

import pytest
from tests.suites.partition_histories import B1, B2, CONTROLLER, follow, lead, stated, verdict, why
from tests.suites.replication.replication_histories import acknowledge, mark, store, truncate

from fencepost import Evidence
from fencepost.testing import HistoryBuilder, Outcome, Verdict
from fencepost_kafka import LogAppended, LogTruncated, ReplicaRemoved, TopicCommitted


def test_a_batch_stored_past_the_end_breaks_rp_05() -> None:
    h = HistoryBuilder()
    store(h, B2, 4, expected=3)
    assert stated(verdict(h, "RP-05"), "offset", "log_end") == (4, 3)


def test_a_batch_past_the_end_that_the_log_had_shown_before_breaks_rp_05() -> None:
    """Whatever the replica says that it expected."""
    h = HistoryBuilder()
    store(h, B2, 0)
    store(h, B2, 4)
    assert stated(verdict(h, "RP-05"), "offset", "log_end") == (4, 1)


def test_a_batch_at_the_end_of_a_log_that_was_cut_or_begun_anew_keeps_rp_05() -> None:
    h = HistoryBuilder()
    store(h, B2, 0)
    store(h, B2, 1)
    truncate(h, 1, 2, mark=0)
    store(h, B2, 1)
    follow(h, B2, log_end=7, mark=0)
    store(h, B2, 7)
    assert verdict(h, "RP-05").violated == 0


def test_a_batch_that_is_named_after_the_end_that_it_made_keeps_rp_05() -> None:
    """One thread of a node says that it follows, and another what it has stored."""
    h = HistoryBuilder()
    store(h, B2, 0)
    follow(h, B2, log_end=3, mark=0)
    for base in (1, 2, 3):
        store(h, B2, base)
    assert verdict(h, "RP-05").violated == 0


@pytest.mark.parametrize("base", [0, 2])
def test_a_batch_below_the_end_that_was_named_breaks_rp_05(base: int) -> None:
    """No batch since has led from the end before to that one."""
    h = HistoryBuilder()
    store(h, B2, 0)
    follow(h, B2, log_end=3, mark=0)
    store(h, B2, base)
    assert stated(verdict(h, "RP-05"), "offset", "log_end") == (base, 3)


def test_a_batch_that_leads_past_the_end_that_was_named_breaks_rp_05() -> None:
    h = HistoryBuilder()
    store(h, B2, 0)
    follow(h, B2, log_end=2, mark=0)
    store(h, B2, 1)
    store(h, B2, 1)
    assert stated(verdict(h, "RP-05"), "offset", "log_end") == (1, 2)


def test_a_batch_below_an_end_that_was_named_anew_breaks_rp_05() -> None:
    """The log was shorter than the end before, so what was stored below that is gone or named."""
    h = HistoryBuilder()
    store(h, B2, 0)
    follow(h, B2, log_end=4, mark=0)
    follow(h, B2, log_end=3, mark=0)
    store(h, B2, 1)
    assert stated(verdict(h, "RP-05"), "offset", "log_end") == (1, 3)


def test_a_batch_below_the_end_of_a_log_that_was_cut_breaks_rp_05() -> None:
    h = HistoryBuilder()
    store(h, B2, 0)
    follow(h, B2, log_end=4, mark=0)
    truncate(h, 3, end=4, mark=0)
    store(h, B2, 1)
    assert stated(verdict(h, "RP-05"), "offset", "log_end") == (1, 3)


@pytest.mark.parametrize("clause", ["RP-05", "RP-12", "RP-15"])
def test_a_dropped_batch_is_not_what_a_high_watermark_declares_committed(clause: str) -> None:
    """One thread of a node names its high watermark before another names the batch below it."""
    h = HistoryBuilder()
    store(h, B1, 0, "ours", as_leader=True)
    store(h, B2, 0, "theirs")
    truncate(h, 0, end=1, mark=0)
    mark(h, B1, 1)
    mark(h, B2, 1)
    store(h, B2, 0, "ours")
    outcome = Outcome.HOLDS if clause == "RP-15" else Outcome.NOT_EXERCISED
    assert verdict(h, clause).verdict is outcome


@pytest.mark.parametrize(("log_end", "exercised"), [(0, 0), (1, 1)])
def test_a_follower_exercises_rp_05_once_by_the_messages_that_it_began_with(
    log_end: int, exercised: int
) -> None:
    h = HistoryBuilder()
    for offset in range(3):
        store(h, B1, offset, as_leader=True)
        mark(h, B1, offset + 1)
    if log_end:
        store(h, B2, 0)
    follow(h, B2, log_end=log_end, mark=0)
    for offset in range(log_end, 3):
        store(h, B2, offset)
        mark(h, B2, offset + 1)
    assert verdict(h, "RP-05").exercised == exercised


def test_a_replica_that_was_removed_begins_with_an_empty_log() -> None:
    h = HistoryBuilder()
    store(h, B2, 0)
    store(h, B2, 1)
    h.add(B2, ReplicaRemoved(topic="orders", partition=0, topic_id="t", reason="unassigned"))
    store(h, B2, 0)
    assert verdict(h, "RP-05").violated == 0


@pytest.mark.parametrize("first", [B1, B2], ids=["leader first", "follower first"])
def test_different_messages_below_the_high_watermark_break_rp_05(first: str) -> None:
    h = HistoryBuilder()
    store(h, B1, 0, "ours", as_leader=True)
    store(h, B2, 0, "theirs")
    for process in (first, B2 if first == B1 else B1):
        mark(h, process, 1)
    found = verdict(h, "RP-05")
    assert (found.verdict, found.violated) == (Outcome.VIOLATED, 1)


@pytest.mark.parametrize("writer", [B1, B2], ids=["another", "itself"])
@pytest.mark.parametrize("clause", ["RP-05", "RP-15"])
def test_a_different_message_is_proven_by_the_term_in_which_it_or_the_other_was_written(
    writer: str, clause: str
) -> None:
    h = HistoryBuilder()
    lead(h, writer, 1)
    first = h.events()[-1]
    store(h, writer, 0, "theirs", as_leader=True, epoch=1)
    if writer == B1:
        store(h, B2, 0, "theirs", epoch=1)
    lead(h, "broker-3#1", 2)
    second = h.events()[-1]
    store(h, "broker-3#1", 0, "ours", as_leader=True, epoch=2)
    mark(h, "broker-3#1", 1)
    mark(h, B2, 1)
    violation = verdict(h, clause).violations[0]
    assert stated(violation, "epoch", "other_epoch") == (1, 2)
    assert violation.because == ((first if writer == B2 else second).ref,)


def test_a_follower_that_catches_up_with_the_same_messages_keeps_rp_05() -> None:
    h = HistoryBuilder()
    store(h, B1, 0, as_leader=True)
    store(h, B2, 0, "stale")
    follow(h, B2, log_end=1, mark=0)
    h.add(
        B2,
        LogTruncated(
            topic="orders",
            partition=0,
            to_offset=0,
            from_log_end=1,
            high_watermark=0,
            leader_epoch=1,
            reason="leader_epoch",
        ),
    )
    store(h, B2, 0)
    mark(h, B1, 1)
    mark(h, B2, 1)
    found = verdict(h, "RP-05")
    assert (found.verdict, found.evidence) == (Outcome.HOLDS, Evidence.PEER)


def test_messages_above_the_high_watermark_may_differ() -> None:
    h = HistoryBuilder()
    store(h, B1, 0, as_leader=True)
    store(h, B1, 1, "ours", as_leader=True)
    store(h, B2, 0)
    store(h, B2, 1, "theirs")
    mark(h, B1, 1)
    mark(h, B2, 1)
    assert verdict(h, "RP-05").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("epoch", "broken"), [(1, 1), (0, 0)])
def test_a_follower_that_calls_nothing_committed_holds_what_its_leader_committed(
    epoch: int, broken: int
) -> None:
    """The tail of a deposed leader, of another epoch, may still be there."""
    h = HistoryBuilder()
    store(h, B1, 0, "ours", as_leader=True)
    store(h, B2, 0, "theirs", epoch=epoch)
    mark(h, B1, 1)
    found = verdict(h, "RP-05")
    assert found.violated == broken
    if broken:
        assert stated(found, "process", "other", "offset") == (B2, B1, 0)


def test_over_zookeeper_two_processes_of_one_id_may_lead_in_one_epoch() -> None:
    h = HistoryBuilder()
    store(h, B1, 0, "ours", as_leader=True)
    store(h, "broker-1-duplicate#1", 0, "theirs", as_leader=True)
    mark(h, B1, 1)
    assert verdict(h, "RP-05").violated == 0


def test_a_replica_that_does_not_tell_what_it_stored_as_others_do_leaves_rp_05_undecided() -> None:
    for silent, outcome in (((B2,), Outcome.UNKNOWN), ((B1, B2), Outcome.NOT_EXERCISED)):
        h = HistoryBuilder()
        for process in (B1, B2):
            h.add(process, LogAppended(
                topic="orders", partition=0, base_offset=0, log_end=1, expected_base=0,
                batch_epoch=1, leader_epoch=1, as_leader=process == B1,
                digest="" if process in silent else "d", producer_id=-1, base_sequence=-1,
            ))  # fmt: skip
        found = verdict(h, "RP-05")
        assert found.verdict is outcome
        if outcome is Outcome.UNKNOWN:
            assert why(found, "process") == B2


def test_a_new_process_goes_on_with_the_log_of_the_one_before() -> None:
    h = HistoryBuilder()
    store(h, B1, 0, as_leader=True)
    store(h, B2, 0, "theirs")
    mark(h, B1, 1)
    mark(h, "broker-2#2", 1)
    store(h, "broker-2#2", 1)
    mark(h, "broker-2#2", 2)
    assert verdict(h, "RP-05").verdict is Outcome.VIOLATED


def test_a_topic_deleted_is_forgotten() -> None:
    h = HistoryBuilder()
    store(h, B1, 0, "old", as_leader=True)
    mark(h, B1, 1)
    h.add(CONTROLLER, TopicCommitted(offset=9, topic="orders", topic_id="t", deleted=True))
    lead(h, B2, 1)
    store(h, B2, 0, "new", as_leader=True)
    mark(h, B2, 1)
    assert verdict(h, "RP-05").verdict is Outcome.NOT_EXERCISED


def test_rp_05_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    store(h, B1, 0, as_leader=True)
    assert verdict(h, "RP-05", complete=False).verdict is Outcome.UNKNOWN


@pytest.mark.parametrize(("slot", "broken"), [("broker-2-duplicate", 0), ("broker-2", 1)])
def test_a_second_process_with_an_id_never_continues_the_log_of_another_in_its_slot(
    slot: str, broken: int
) -> None:
    """Its disk is replaced before it starts."""
    h = HistoryBuilder()
    store(h, f"{slot}#1", 0, "never committed")
    store(h, B1, 0, "ours", as_leader=True)
    mark(h, B1, 1)
    follow(h, f"{slot}#2", log_end=1, mark=0)
    store(h, f"{slot}#2", 1)
    mark(h, f"{slot}#2", 1)
    assert verdict(h, "RP-05").violated == broken


# ----------------------------------------------------------------- RP-06, by the contents of logs


def elected(stored: str, *, dropped: bool = False) -> Verdict:
    """Broker 1 commits a message; broker 2 has stored that one there, and leads with a longer
    log."""
    h = HistoryBuilder()
    lead(h, B1, 1)
    store(h, B1, 0, "first", as_leader=True)
    store(h, B2, 0, stored)
    store(h, B2, 1, "second")
    mark(h, B1, 1)
    if dropped:
        truncate(h, 0, end=2, mark=0)
        store(h, B2, 0, "first")
        store(h, B2, 1, "second")
    lead(h, B2, 2, log_end=2)
    return verdict(h, "RP-06")


def test_a_new_leader_with_another_message_in_a_longer_log_breaks_rp_06() -> None:
    assert stated(elected("other"), "offset", "other") == (0, B1)


@pytest.mark.parametrize(("stored", "dropped"), [("first", False), ("other", True)])
def test_a_new_leader_with_the_committed_messages_keeps_rp_06(stored: str, dropped: bool) -> None:
    assert elected(stored, dropped=dropped).verdict is Outcome.HOLDS


def test_a_new_leader_that_dropped_another_message_need_not_have_named_its_own_yet() -> None:
    """One thread of a node says that it leads, and another what it has stored."""
    h = HistoryBuilder()
    lead(h, B1, 1)
    store(h, B1, 0, "first", as_leader=True)
    store(h, B2, 0, "other")
    mark(h, B1, 1)
    acknowledge(h, 1, ends=(1, 1, 1), mark=1)
    truncate(h, 0, end=1, mark=0)
    lead(h, B2, 2, log_end=1)
    store(h, B2, 0, "first")
    assert verdict(h, "RP-06").verdict is Outcome.HOLDS
    assert verdict(h, "RP-13").verdict is Outcome.HOLDS


# ----------------------------------------------------------------- RP-13, by the contents of logs


def test_a_message_after_the_acknowledged_ones_may_be_another_by_rp_13() -> None:
    h = HistoryBuilder()
    lead(h, B1, 1)
    for offset in (0, 1):
        store(h, B1, offset, as_leader=True)
    acknowledge(h, 1, ends=(1, 1, 1), mark=0)
    store(h, B2, 0)
    store(h, B2, 1, "other")
    lead(h, B2, 2, log_end=2)
    assert verdict(h, "RP-13").verdict is Outcome.HOLDS


def test_what_is_committed_is_what_a_later_answer_acknowledges_by_rp_13() -> None:
    """Whatever the leader that answers the resend holds itself."""
    h = HistoryBuilder()
    lead(h, B1, 1)
    store(h, B1, 0, "first", as_leader=True)
    mark(h, B1, 1)
    store(h, B2, 0, "other")
    lead(h, B2, 2, log_end=1)
    acknowledge(h, 1, ends=(1, 1, 1), mark=1, process=B2, duplicate=True)
    lead(h, B2, 3, log_end=1)
    assert stated(verdict(h, "RP-13"), "epoch", "offset") == (3, 0)


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("stored", ["first", "other"])
def test_a_new_leader_holds_what_was_acknowledged_by_rp_13(stored: str, committed: bool) -> None:
    h = HistoryBuilder()
    lead(h, B1, 1)
    store(h, B1, 0, "first", as_leader=True)
    store(h, B2, 0, stored)
    store(h, B2, 1, "second")
    if committed:
        mark(h, B1, 1)
    acknowledge(h, 1, ends=(1, 1, 1), mark=int(committed))
    lead(h, B2, 2, log_end=2)
    found = verdict(h, "RP-13")
    if stored == "first":
        assert found.verdict is Outcome.HOLDS
    else:
        assert stated(found, "epoch", "offset") == (2, 0)


@pytest.mark.parametrize(("process", "violated"), [("broker-2#2", 1), ("broker-2-duplicate#1", 0)])
def test_a_new_process_has_no_more_than_its_slot_has_stored(process: str, violated: int) -> None:
    """It names the end 5 after 0 to 2 were stored, and lacks 3 and 4. The disk of a second process
    may be a copy of another one's."""
    h = HistoryBuilder()
    for offset in range(3):
        store(h, B2, offset)
    follow(h, process, log_end=5, mark=0)
    store(h, process, 5)
    assert verdict(h, "RP-05").violated == violated


def test_a_killed_process_whose_log_is_read_may_have_stored_more_than_it_printed() -> None:
    """A batch is stored, and then printed: a broker was killed in between."""
    h = HistoryBuilder()
    for offset in range(3):
        h.add(B2, printed(offset))
    follow(h, "broker-2#2", log_end=4, mark=0)
    h.add("broker-2#2", printed(4))
    assert verdict(h, "RP-05").violated == 0


def printed(offset: int) -> LogAppended:
    """A batch as the parser of a log tells of it: without what it holds."""
    return LogAppended(
        topic="orders",
        partition=0,
        base_offset=offset,
        log_end=offset + 1,
        expected_base=offset,
        batch_epoch=1,
        leader_epoch=1,
        digest="",
        as_leader=False,
        producer_id=-1,
        base_sequence=-1,
    )


def test_a_replica_that_was_removed_lacks_what_it_does_not_store_again() -> None:
    h = HistoryBuilder()
    store(h, B2, 0)
    store(h, B2, 1)
    h.add(B2, ReplicaRemoved(topic="orders", partition=0, topic_id="t", reason="unassigned"))
    store(h, B2, 2)
    assert stated(verdict(h, "RP-05"), "offset", "log_end") == (2, 0)
