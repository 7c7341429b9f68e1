"""The rules that compare leaders, acknowledgements and reads with the logs of followers (RP-04 to
RP-10), each with a violation, a near miss and an undecided history."""

from __future__ import annotations

import time

import pytest
from msgspec import structs
from tests.clusters.apache_kafka.kraft_histories import OBSERVER, raises, verdict
from tests.clusters.apache_kafka.stored_histories import (
    B1,
    B2,
    B3,
    CLIENT,
    DUPLICATE,
    SETTLED_MS,
    acknowledged,
    asked,
    begun,
    polled,
    recorded,
    stores,
)
from tests.suites.partition_histories import stated, why

from fencepost import Evidence, NodeStarted, ProcessExited
from fencepost.plugins.manager import load
from fencepost.testing import HistoryBuilder, Outcome, Verdict, judge
from fencepost_clusters.apache_kafka.rules.promises import RULES
from fencepost_kafka import (
    AdminCompleted,
    BrokerCommitted,
    ConsumerPositioned,
    FollowingStarted,
    IsrChangeAnswered,
    LeadershipStarted,
    LogTruncated,
    ProduceInvoked,
    TopicCommitted,
)

FETCH_WAITS_MS = 2_000
LATE_MS = 6_000
"""Longer than a record of a smaller ISR may be read late."""


DID = {
    "RP-04": acknowledged,
    "RP-07": polled,
    "RP-32": lambda h, offset: raises(h, B1, offset + 1),
}
THREE = pytest.mark.parametrize("clause", DID)


def lagging(clause: str) -> HistoryBuilder:
    """Broker 3, in the ISR, has not stored what is acknowledged, read or committed."""
    h = begun(1, 2, 3)
    stores(h, B1, B2, B3, end=1)
    stores(h, B1, B2, end=2)
    stores(h, B1, end=3)
    DID[clause](h, 1)
    return h


@THREE
def test_what_a_member_of_the_isr_lacks_breaks_the_clause(clause: str) -> None:
    h = lagging(clause)
    stores(h, B3, end=2)  # too late
    h.after(LATE_MS)
    found = verdict(h, clause)
    assert (found.verdict, found.violations[0].evidence) == (Outcome.VIOLATED, Evidence.PEER)
    assert stated(found, "lacking", "ends") == (("broker 3",), (1,))


def test_thousands_of_suspects_are_judged_in_seconds() -> None:
    """A program whose clock was late by some milliseconds was suspected at each of its 20,000
    writes. Each line of a log asked all suspects, and the run was not judged within five
    minutes."""
    h = begun(1, 2, 3)
    stores(h, B1, B2, B3, end=1)
    for end in range(2, 4_002):
        stores(h, B1, B2, end=end)
        acknowledged(h, end - 1)
    h.after(LATE_MS)
    began_s = time.process_time()
    found = verdict(h, "RP-04")
    assert time.process_time() - began_s < 10
    assert found.violated == 4_000


@THREE
def test_a_smaller_isr_whose_record_is_read_later_keeps_the_clause(clause: str) -> None:
    h = lagging(clause).after(1_000)
    recorded(h, 11, 1, 2)
    h.after(LATE_MS)
    assert verdict(h, clause).violated == 0


@pytest.mark.parametrize(("later_ms", "broken"), [(5_000, 0), (5_001, 1)])
@THREE
def test_a_record_of_a_smaller_isr_is_read_within_five_seconds(
    clause: str, later_ms: int, broken: int
) -> None:
    h = lagging(clause).after(later_ms - 1)
    recorded(h, 11, 1, 2)
    assert verdict(h.after(LATE_MS), clause).violated == broken


@THREE
def test_a_record_that_is_read_much_later_or_keeps_the_member_explains_nothing(
    clause: str,
) -> None:
    kept, alone = lagging(clause), lagging(clause)
    recorded(kept, 11, 1, 3)
    recorded(alone, 11, 3)
    late = lagging(clause).after(LATE_MS)
    recorded(late, 11, 1, 2)
    for h in (kept, alone, late):
        assert verdict(h.after(LATE_MS), clause).verdict is Outcome.VIOLATED


@pytest.mark.parametrize("read_first", [False, True])
@THREE
def test_a_smaller_isr_that_the_leader_asks_for_later_explains_nothing(
    clause: str, read_first: bool
) -> None:
    """The leader had the member in its ISR when it did without it."""
    h = lagging(clause).after(1_000)
    if read_first:  # the line of the request is of before, and is read after the record
        asked(h, (1, 2), (1, 2, 3))
        recorded(h, 11, 1, 2)
        *before, request, record = h.after(LATE_MS).events()
        chosen = [rule for rule in RULES if rule.clause == clause]
        history = (*before, record, request)
        found = judge(history, chosen, load().clauses, h.end(), "kraft").verdicts[clause]
    else:
        asked(h, (1, 2), (1, 2, 3))
        recorded(h.after(500), 11, 1, 2)
        found = verdict(h.after(LATE_MS), clause)
    assert found.verdict is Outcome.VIOLATED
    assert stated(found, "lacking", "ends") == (("broker 3",), (1,))


@THREE
def test_a_smaller_isr_that_the_leader_had_asked_for_keeps_the_clause(clause: str) -> None:
    h = begun(1, 2, 3)
    stores(h, B1, B2, B3, end=1)
    asked(h, (1, 2), (1, 2, 3))
    stores(h, B1, B2, end=2)
    stores(h, B1, end=3)
    DID[clause](h, 1)
    recorded(h.after(1_000), 11, 1, 2)
    # It is taken in again, and left out once more.
    asked(h, (1, 2, 3), (1, 2))
    recorded(h, 12, 1, 2, 3)
    asked(h, (1, 2), (1, 2, 3))
    recorded(h, 13, 1, 2)
    assert verdict(h.after(LATE_MS), clause).violated == 0


@THREE
def test_a_request_of_a_former_leader_does_not_deny_that_a_record_explains(clause: str) -> None:
    h = lagging(clause).after(1_000)
    asked(h, (1, 2), (1, 2, 3), epoch=0)
    recorded(h, 11, 1, 2)
    assert verdict(h.after(LATE_MS), clause).violated == 0


@THREE
def test_a_record_explains_only_the_members_that_it_leaves_out(clause: str) -> None:
    h = begun(1, 2, 3)
    stores(h, B1, B2, B3, end=1)
    stores(h, B1, end=2)
    stores(h, B1, end=3)
    DID[clause](h, 1)
    recorded(h.after(1_000), 11, 1, 2)
    assert verdict(h.after(LATE_MS), clause).verdict is Outcome.VIOLATED


@THREE
def test_a_line_of_before_that_is_printed_later_keeps_the_clause(clause: str) -> None:
    h = begun(1, 2, 3)
    stores(h, B1, B2, B3, end=1)
    stores(h, B1, B2, end=2)
    at_ns = h.now_ns
    DID[clause](h, 1)
    stores(h, B3, end=2)
    h.after(LATE_MS)
    *before, last = h.events()
    chosen = [rule for rule in RULES if rule.clause == clause]
    clauses = load().clauses
    history = (*before, structs.replace(last, at_ns=at_ns))
    assert judge(history, chosen, clauses, h.end(), "kraft").verdicts[clause].violated == 0


@THREE
def test_the_clause_is_undecided_if_the_run_ends_before_a_record_could_be_read(clause: str) -> None:
    for lived_ms, outcome in ((5_000, Outcome.UNKNOWN), (5_001, Outcome.VIOLATED)):
        h = lagging(clause).after(lived_ms - 1)
        assert verdict(h, clause).verdict is outcome
    h = lagging(clause).after(LATE_MS)
    assert verdict(h, clause, complete=False).verdict is Outcome.UNKNOWN


@THREE
def test_what_all_members_have_exercises_the_clause(clause: str) -> None:
    h = begun(1, 2)
    stores(h, B1, B2, end=1)
    stores(h, B1, end=2)
    DID[clause](h, 0)
    found = verdict(h, clause)
    assert (found.verdict, found.evidence) == (Outcome.HOLDS, Evidence.PEER)


@THREE
def test_a_member_that_has_said_nothing_proves_nothing(clause: str) -> None:
    h = begun(1, 2, 3)
    stores(h, B1, B2, end=1)
    DID[clause](h, 0)
    assert verdict(h, clause).verdict is Outcome.NOT_EXERCISED


@THREE
def test_a_member_that_never_logs_what_it_stores_is_undecided(clause: str) -> None:
    """Broker 2 says once how far it has stored, as a follower that begins does."""
    h = begun(1, 2)
    h.add(B2, LeadershipStarted(
        topic="orders", partition=0, leader_epoch=0, isr=(1, 2), log_start=-1, log_end=0,
        high_watermark=0,
    ))  # fmt: skip
    stores(h, B1, end=1)
    DID[clause](h, 0)
    found = verdict(h.after(LATE_MS), clause)
    assert found.verdict is Outcome.UNKNOWN
    assert why(found, "silent") == ("broker 2",)


@THREE
def test_what_was_truncated_is_stored_no_longer(clause: str) -> None:
    h = begun(1, 2)
    stores(h, B1, B2, end=1)
    cut = LogTruncated(
        topic="orders",
        partition=0,
        to_offset=0,
        from_log_end=1,
        high_watermark=0,
        leader_epoch=1,
        reason="leader_epoch",
    )
    h.add(B2, cut)
    DID[clause](h, 0)
    assert verdict(h.after(LATE_MS), clause).verdict is Outcome.VIOLATED


@THREE
def test_two_processes_with_one_id_are_one_replica_as_for_their_leader(clause: str) -> None:
    h = begun(1, 2)
    stores(h, B1, B2, end=1)
    stores(h, B1, DUPLICATE, end=2)
    DID[clause](h, 1)
    assert verdict(h.after(LATE_MS), clause).violated == 0


@pytest.mark.parametrize(("end", "named"), [(2, True), (1, False)])
@THREE
def test_a_second_process_that_had_stored_it_until_its_end_is_named(
    clause: str, end: int, named: bool
) -> None:
    """Its leader took what it had stored for what the holder has."""
    h = begun(1, 2)
    stores(h, B1, B2, end=1)
    stores(h, B1, end=2)
    stores(h, DUPLICATE, end=end)
    h.add("harness", ProcessExited(ended=DUPLICATE, exit_code=0, signal=9, expected=True))
    DID[clause](h, 1)
    found = verdict(h.after(LATE_MS), clause)
    assert stated(found, "lacking", "ends") == (("broker 2",), (1,))
    ended = ((DUPLICATE,), (2,)) if named else ((), ())
    assert stated(found, "ended", "ended_ends") == ended


@pytest.mark.parametrize(("holder", "left", "broken"), [(2, 0, 0), (1, 0, 1), (2, 1, 1)])
@THREE
def test_what_the_holder_of_an_id_had_stored_counts_until_the_isr_is_without_it(
    clause: str, holder: int, left: int, broken: int
) -> None:
    """The second process is the broker, by the metadata, until it is killed; the first one's disk
    has less. Nothing that the leader had counted is taken back by that."""
    h = begun(1, 2)
    for number, process in ((1, B2), (2, DUPLICATE)):
        h.add(
            process,
            NodeStarted(role="broker", node_id=2, incarnation=f"incarnation-{number}", log_end=-1),
        )
    for number, offset in ((3 - holder, 11), (holder, 12)):
        registered = BrokerCommitted(
            offset=offset,
            broker_id=2,
            broker_epoch=offset,
            fenced=False,
            incarnation=f"incarnation-{number}",
        )
        h.add(OBSERVER, registered)
    recorded(h, 13, 1, 2)
    stores(h, B1, B2, end=1)
    stores(h, B1, DUPLICATE, end=2)
    h.add("harness", ProcessExited(ended=DUPLICATE, exit_code=0, signal=9, expected=True))
    if left:
        recorded(h, 14, 1)
        recorded(h, 15, 1, 2)
    DID[clause](h, 1)
    assert verdict(h.after(LATE_MS), clause).violated == broken


@THREE
def test_a_topic_that_was_deleted_is_not_judged(clause: str) -> None:
    h = begun(1, 2)
    stores(h, B1, B2, end=1)
    h.add(OBSERVER, TopicCommitted(offset=12, topic="orders", topic_id="a", deleted=True))
    DID[clause](h, 5)  # of either topic with that name
    assert verdict(h.after(LATE_MS), clause).verdict is Outcome.NOT_EXERCISED


def made_again(*begin: str) -> HistoryBuilder:
    """The topic is deleted and made again; these processes and the client begin with the new
    one."""
    h = begun(1, 2, 3)
    stores(h, B1, B2, B3, end=9)
    for offset, deleted in ((12, True), (13, False)):
        made = TopicCommitted(offset=offset, topic="orders", topic_id="a", deleted=deleted)
        h.add(OBSERVER, made)
    recorded(h, 14, 1, 2, 3)
    for process in begin:
        follows(h, process)
    h.add(CLIENT, ProduceInvoked(operation="op-1", topic="orders", partition=0, acks=-1))
    h.add(CLIENT, ConsumerPositioned(topic="orders", partition=0, offset=-2))
    return h


def follows(h: HistoryBuilder, process: str, end: int = 0) -> None:
    began = FollowingStarted(
        topic="orders", partition=0, leader=1, leader_epoch=2, log_end=end, high_watermark=0
    )
    h.add(process, began)


@pytest.mark.parametrize(("lacks", "broken"), [((B2, B3), 1), ((B2,), 1), ((), 0)])
@THREE
def test_a_topic_made_again_under_its_name_is_judged(
    clause: str, lacks: tuple[str, ...], broken: int
) -> None:
    h = made_again(B1, B2, B3)
    stores(h, B1, B2, B3, end=1)
    stores(h, *(one for one in (B1, B2, B3) if one not in lacks), end=2)
    DID[clause](h, 1)
    assert verdict(h.after(LATE_MS), clause).violated == broken


@THREE
def test_what_is_of_the_former_topic_or_may_be_is_not_judged(clause: str) -> None:
    """A leader that has not read of the deletion, or a member that has said nothing since."""
    for begin in ((B2, B3), (B1,)):
        h = made_again(*begin)
        stores(h, B1, end=9)
        if clause == "RP-32" or B1 in begin:
            DID[clause](h, 8)
        assert verdict(h.after(LATE_MS), clause).violated == 0


@pytest.mark.parametrize("invoked_before", [True, False])
def test_a_write_that_was_invoked_before_the_topic_was_made_again_is_not_judged(
    invoked_before: bool,
) -> None:
    h = begun(1, 2)
    stores(h, B1, B2, end=1)
    write = ProduceInvoked(operation="op-1", topic="orders", partition=0, acks=-1)
    if invoked_before:
        h.add(CLIENT, write)
    for api in ("delete_topic", "create_topic"):
        h.add(CLIENT, AdminCompleted(
            operation=api, api=api, subject="orders", outcome="ok", error="",
        ))  # fmt: skip
    if not invoked_before:
        h.add(CLIENT, write)
    recorded(h, 14, 1, 2)
    for process in (B1, B2):
        follows(h, process)
    stores(h, B1, end=1)
    acknowledged(h, 0)
    assert verdict(h.after(LATE_MS), "RP-04").violated == (not invoked_before)


@pytest.mark.parametrize(("end", "broken"), [(0, 1), (4, 0)])
def test_a_replica_of_a_topic_made_again_enters_caught_up(end: int, broken: int) -> None:
    h = made_again(B1, B2, B3)
    recorded(h, 15, 1, 2)
    stores(h, B1, B2, end=4)
    raises(h, B1, 4)
    if end:
        stores(h, B3, end=end)
    asked(h.after(SETTLED_MS), (1, 2, 3), (1, 2))
    assert verdict(h, "RP-10").violated == broken


@pytest.mark.parametrize(
    ("process", "error", "broken"),
    [(B1, "INELIGIBLE_REPLICA", 0), (B1, "NONE", 1), (B2, "INELIGIBLE_REPLICA", 1)],
)
def test_a_request_that_was_refused_took_in_nobody(process: str, error: str, broken: int) -> None:
    """Broker 3 is back with an empty disk; its leader has heard only of its former process."""
    h = begun(1, 2)
    stores(h, B1, B2, end=1)
    stores(h, B3, end=1)
    raises(h, B1, 1)
    h.add(B3, LogTruncated(
        topic="orders", partition=0, to_offset=0, from_log_end=1, high_watermark=0,
        leader_epoch=1, reason="leader_epoch",
    ))  # fmt: skip
    asked(h.after(SETTLED_MS), (1, 2, 3), (1, 2))
    answer = IsrChangeAnswered(topic="orders", partition=0, leader_epoch=1, error=error, isr=())
    h.add(process, answer)
    assert verdict(h.after(LATE_MS), "RP-10").violated == broken


def test_a_leader_that_says_it_was_refused_is_judged_by_the_record() -> None:
    h = begun(1, 2)
    stores(h, B1, B2, end=1)
    stores(h, B3, end=0)
    raises(h, B1, 1)
    asked(h.after(SETTLED_MS), (1, 2, 3), (1, 2))
    h.add(B1, IsrChangeAnswered(
        topic="orders", partition=0, leader_epoch=1, error="INELIGIBLE_REPLICA", isr=(),
    ))  # fmt: skip
    recorded(h, 11, 1, 2, 3)
    assert verdict(h.after(LATE_MS), "RP-10").violated == 1


@THREE
def test_a_history_without_appends_proves_nothing(clause: str) -> None:
    h = begun(1, 2)
    h.add(B2, LogTruncated(
        topic="orders", partition=0, to_offset=0, from_log_end=0, high_watermark=0,
        leader_epoch=1, reason="leader_epoch",
    ))  # fmt: skip
    DID[clause](h, 5)
    assert verdict(h.after(LATE_MS), clause).verdict is Outcome.NOT_EXERCISED


def test_only_an_acknowledgement_of_acks_all_with_an_offset_is_judged_by_kr_12() -> None:
    """Others need the leader alone, or say nothing."""
    h = begun(1, 2)
    stores(h, B1, B2, end=1)
    stores(h, B1, end=2)
    acknowledged(h, 1, acks=1)
    acknowledged(h, 1, outcome="unknown")
    acknowledged(h, -1)
    assert verdict(h.after(LATE_MS), "RP-04").verdict is Outcome.NOT_EXERCISED


def test_the_final_reading_and_a_poll_of_nothing_are_not_judged_by_kr_13() -> None:
    h = begun(1, 2)
    stores(h, B1, B2, end=1)
    stores(h, B1, end=2)
    polled(h, 1, final=True)
    polled(h)
    assert verdict(h.after(LATE_MS), "RP-07").verdict is Outcome.NOT_EXERCISED


def test_reading_all_there_is_exercises_nothing() -> None:
    h = begun(1, 2)
    stores(h, B1, B2, end=1)
    polled(h, 0)
    assert verdict(h, "RP-07").verdict is Outcome.NOT_EXERCISED


def test_only_a_commit_on_a_smaller_isr_exercises_kr_14() -> None:
    h = begun(1, 2, 3)
    stores(h, B1, B2, B3, end=1)
    raises(h, B1, 1)
    assert verdict(h, "RP-32").verdict is Outcome.NOT_EXERCISED


# ------------------------------------------------------------------------------------------ RP-10


def entering(end: int, mark: int, start: int = 0, ago_ms: int = 2 * SETTLED_MS) -> HistoryBuilder:
    """Broker 3, whose log ends there, is to enter the ISR."""
    h = begun(1, 2)
    stores(h, B3, end=end)
    raises(h, B1, mark)
    h.after(ago_ms)
    asked(h, (1, 2, 3), (1, 2), start)
    return h


def test_a_replica_that_has_less_than_the_high_watermark_breaks_kr_15() -> None:
    found = verdict(entering(end=4, mark=5), "RP-10")
    assert (found.violated, found.violations[0].evidence) == (1, Evidence.PEER)


def entering_by(had: int, ended_ms: int) -> Verdict:
    """RP-10, if broker 2 is to enter by the fetches of a second process that ended so long ago."""
    h = begun(1, 2)
    stores(h, B2, end=4)
    stores(h, DUPLICATE, end=had)
    raises(h, B1, 5)
    h.after(2 * SETTLED_MS)
    h.add("harness", ProcessExited(ended=DUPLICATE, exit_code=0, signal=9, expected=True))
    asked(h.after(ended_ms - 1), (1, 2), (1,))
    return verdict(h, "RP-10")


@pytest.mark.parametrize(("had", "named"), [(5, True), (4, False)])
def test_a_second_process_by_whose_fetches_a_replica_is_to_enter_is_named(
    had: int, named: bool
) -> None:
    found = entering_by(had, FETCH_WAITS_MS + 1)
    assert stated(found, "joining", "high_watermark") == ("broker 2", 5)
    assert "record" not in found.violations[0].facts
    ended = ((DUPLICATE,), (5,)) if named else ((), ())
    assert stated(found, "ended", "ended_ends") == ended


@pytest.mark.parametrize(("had", "broken"), [(5, 0), (4, 1)])
def test_the_last_fetches_of_a_second_process_count_for_kr_15(had: int, broken: int) -> None:
    assert entering_by(had, FETCH_WAITS_MS).violated == broken


def test_a_replica_that_has_not_reached_the_leaders_epoch_breaks_kr_15() -> None:
    assert verdict(entering(end=4, mark=4, start=5), "RP-10").verdict is Outcome.VIOLATED


def test_a_replica_that_has_all_exercises_kr_15() -> None:
    assert verdict(entering(end=5, mark=5, start=5), "RP-10").verdict is Outcome.HOLDS


@pytest.mark.parametrize(("ago_ms", "broken"), [(SETTLED_MS - 1, 0), (SETTLED_MS, 1)])
def test_a_high_watermark_that_moves_while_the_leader_compares_keeps_kr_15(
    ago_ms: int, broken: int
) -> None:
    assert verdict(entering(end=4, mark=5, ago_ms=ago_ms - 1), "RP-10").violated == broken


@pytest.mark.parametrize(
    ("ages_ms", "mark"),
    [
        ((500, 100), 1),  # the newest settled one, and a fresh one
        ((210, 10), 1),  # settled at the moment at which the next one is raised
        ((400, 250, 100), 2),  # settled since the third one was raised
        ((150, 100, 50), 0),
    ],
)
def test_the_newest_high_watermark_that_is_a_fifth_of_a_second_old_counts_for_kr_15(
    ages_ms: tuple[int, ...], mark: int
) -> None:
    """The leader raised it to 1, 2 and 3, so long ago."""
    h = begun(1, 2)
    stores(h, B3, end=0)
    now_ms = 1_000
    for raised, ago_ms in enumerate(ages_ms, 1):
        h.after(now_ms - ago_ms)
        raises(h, B1, raised)
        now_ms = ago_ms - 1
    asked(h.after(now_ms), (1, 2, 3), (1, 2))
    found = verdict(h, "RP-10")
    assert (found.violated, found.exercised) == ((1, 0) if mark else (0, 1))
    assert all(stated(one, "high_watermark") == mark for one in found.violations)


def test_what_a_leader_had_committed_in_an_earlier_term_does_not_count_for_kr_15() -> None:
    h = begun(1, 2)
    stores(h, B3, end=4)
    raises(h, B1, 5)
    began = LeadershipStarted(
        topic="orders", partition=0, leader_epoch=3, isr=(1, 2), log_start=-1, log_end=4,
        high_watermark=4,
    )  # fmt: skip
    h.add(B1, began)
    asked(h.after(2 * SETTLED_MS), (1, 2, 3), (1, 2), 4)
    assert verdict(h, "RP-10").verdict is Outcome.HOLDS


def test_a_smaller_isr_and_a_replica_that_has_said_nothing_prove_nothing_for_kr_15() -> None:
    h = begun(1, 2)
    asked(h, (1,), (1, 2))
    asked(h, (1, 2, 3), (1, 2))
    assert verdict(h, "RP-10").verdict is Outcome.NOT_EXERCISED


def test_how_far_a_replica_had_stored_as_a_leader_counts_for_kr_15() -> None:
    h = begun(1, 2)
    stores(h, B1, end=5)
    led = LeadershipStarted(
        topic="orders", partition=0, leader_epoch=0, isr=(3,), log_start=-1, log_end=5,
        high_watermark=5,
    )  # fmt: skip
    h.add(B3, led)
    asked(h, (1, 2, 3), (1, 2), 5)
    assert verdict(h, "RP-10").verdict is Outcome.HOLDS


def test_a_deleted_topic_and_a_history_without_appends_prove_nothing_for_kr_15() -> None:
    deleted, silent = begun(1, 2), begun(1, 2)
    stores(deleted, B3, end=4)
    deleted.add(OBSERVER, TopicCommitted(offset=12, topic="orders", topic_id="a", deleted=True))
    cut = LogTruncated(
        topic="orders", partition=0, to_offset=4, from_log_end=4, high_watermark=0,
        leader_epoch=1, reason="leader_epoch",
    )  # fmt: skip
    silent.add(B3, cut)
    for h in (deleted, silent):
        for start in (4, 5):
            asked(h, (1, 2, 3), (1, 2), start)
        assert verdict(h, "RP-10").verdict is Outcome.NOT_EXERCISED
