"""The quorum's rules, each with a violation, a near miss and an undecided history."""

from __future__ import annotations

import pytest
from tests.suites.partition_histories import stated

from fencepost import Evidence, NodeStarted, ProcessExited
from fencepost.testing import HistoryBuilder, Outcome, Verdict, judge
from fencepost_kafka import (
    AdminCompleted,
    BrokerCommitted,
    ChangeAnswered,
    ControllerElected,
    ControllerFollowed,
    ControllerResigned,
    ElectionStarted,
    HeartbeatAnswered,
    IsrChangeAnswered,
    MetadataCommitted,
    MetadataTruncated,
    PartitionCommitted,
    ReadCompleted,
    StateReverted,
    VoteAnswered,
)
from fencepost_suites import rules
from fencepost_suites.plugin import DECLARED

CLAUSES = {clause.id: clause for clause in DECLARED.clauses}
ONE, TWO, THREE = "controller-1#1", "controller-2#1", "controller-3#1"


def verdict(h: HistoryBuilder, clause: str, complete: bool = True) -> Verdict:
    chosen = [rule for rule in rules.ALL if rule.clause == clause]
    return judge(h.events(), chosen, CLAUSES, h.end(complete), "quorum").verdicts[clause]


def elect(h: HistoryBuilder, process: str, epoch: int, log_end: int) -> None:
    h.add(process, ControllerElected(epoch=epoch, log_end=log_end, last_epoch=epoch - 1))


def commit(h: HistoryBuilder, process: str, offset: int, epoch: int, digest: str = "aa") -> None:
    h.add(process, MetadataCommitted(offset=offset, epoch=epoch, kind="Topic", digest=digest))


def vote(h: HistoryBuilder, epoch: int, candidate: int, reason: str = "granted") -> None:
    h.add(
        TWO,
        VoteAnswered(
            epoch=epoch,
            candidate=candidate,
            granted=reason == "granted",
            reason=reason,
            log_end=5,
            last_epoch=1,
            candidate_log_end=5,
            candidate_last_epoch=1,
        ),
    )


# ------------------------------------------------------------------------------------------ QC-07


def test_two_winners_of_one_epoch_break_qc_07() -> None:
    h = HistoryBuilder()
    elect(h, ONE, 3, 0)
    elect(h, THREE, 3, 0)
    assert stated(verdict(h, "QC-07"), "process", "other", "epoch") == (THREE, ONE, 3)


def test_a_vote_for_two_candidates_breaks_qc_07_even_over_a_restart() -> None:
    h = HistoryBuilder()
    vote(h, 4, 101)
    h.add(
        "controller-2#2",
        VoteAnswered(
            epoch=4,
            candidate=103,
            granted=True,
            reason="granted",
            log_end=5,
            last_epoch=1,
            candidate_log_end=5,
            candidate_last_epoch=1,
        ),
    )
    assert verdict(h, "QC-07").violations[0].evidence is Evidence.SELF


def test_a_vote_beside_ones_own_candidacy_breaks_qc_07() -> None:
    h = HistoryBuilder()
    h.add(TWO, NodeStarted(role="controller", node_id=102, incarnation="x", log_end=0))
    h.add(TWO, ElectionStarted(epoch=4, log_end=5, last_epoch=1))
    vote(h, 4, 101)
    candidates = stated(verdict(h, "QC-07"), "other", "controller")
    assert candidates == ("controller 102", "controller 101")


def test_a_winner_that_lacks_a_committed_record_breaks_qc_07() -> None:
    h = HistoryBuilder()
    elect(h, ONE, 1, 0)
    commit(h, TWO, 7, 1)
    elect(h, THREE, 2, 7)
    found = verdict(h, "QC-07").violations[0]
    assert stated(found, "log_end", "committed") == (7, 7)
    assert [str(ref) for ref in found.because] == [f"{TWO}@0"]


def elect_late(h: HistoryBuilder, last_epoch: int) -> None:
    h.add(THREE, ControllerElected(epoch=3, log_end=9, last_epoch=last_epoch))


@pytest.mark.parametrize("told_late", [False, True])
@pytest.mark.parametrize(("last_epoch", "violated"), [(1, 1), (2, 0), (-1, 0)])
def test_a_winner_whose_last_epoch_is_older_than_a_committed_record_breaks_qc_07(
    last_epoch: int, violated: int, told_late: bool
) -> None:
    """Its log is longer, and another one."""
    h = HistoryBuilder()
    elect(h, ONE, 2, 4)
    if told_late:
        elect_late(h, last_epoch)
    commit(h, ONE, 5, 2)
    if not told_late:
        elect_late(h, last_epoch)
    found = verdict(h, "QC-07")
    assert found.violated == violated
    if violated:
        assert stated(found, "process", "last_epoch", "committed") == (THREE, 1, 5)


@pytest.mark.parametrize(
    ("following", "violated"),
    [((101, 103, 103), 1), ((103, 103), 1), ((103,), 0), ((101, 101, 103), 0)],
)
def test_nodes_that_follow_two_controllers_of_one_epoch_break_qc_07(
    following: tuple[int, ...], violated: int
) -> None:
    """The other one says nothing of itself. A single node may say what it likes."""
    h = HistoryBuilder()
    h.add(ONE, NodeStarted(role="controller", node_id=101))
    elect(h, ONE, 2, 4)
    for number, leader in enumerate(following):
        h.add(f"broker-{number}#1", ControllerFollowed(epoch=2, leader=leader))
    found = verdict(h, "QC-07")
    assert found.violated == violated
    if violated:
        assert stated(found, "controller", "other") == ("controller 101", "controller 103")


def test_nodes_may_follow_one_controller_after_the_other() -> None:
    h = HistoryBuilder()
    h.add(ONE, NodeStarted(role="controller", node_id=101))
    for epoch, leader in ((1, 101), (2, -1), (2, 103), (1, 101)):
        h.add("broker-1#1", ControllerFollowed(epoch=epoch, leader=leader))
    assert verdict(h, "QC-07").violated == 0


def test_two_records_at_one_offset_break_qc_07() -> None:
    h = HistoryBuilder()
    commit(h, ONE, 7, 1)
    commit(h, TWO, 7, 2, "bb")
    assert stated(verdict(h, "QC-07"), "offset", "epoch", "other_epoch") == (7, 2, 1)


def test_a_winner_with_every_committed_record_keeps_qc_07() -> None:
    h = HistoryBuilder()
    elect(h, ONE, 1, 0)
    commit(h, TWO, 7, 1)
    commit(h, ONE, 7, 1)
    vote(h, 2, 103, "log_behind")
    elect(h, THREE, 2, 8)
    found = verdict(h, "QC-07")
    assert (found.verdict, found.exercised, found.evidence) == (Outcome.HOLDS, 2, Evidence.PEER)


def test_a_late_winner_of_an_old_epoch_need_not_have_later_records() -> None:
    """Its votes arrived late: a newer leader exists, so it can commit nothing."""
    h = HistoryBuilder()
    elect(h, ONE, 5, 8)
    commit(h, ONE, 7, 3)
    elect(h, THREE, 4, 2)
    assert verdict(h, "QC-07").verdict is Outcome.NOT_EXERCISED


def test_a_winner_that_does_not_say_where_its_log_ends_is_held_to_nothing() -> None:
    h = HistoryBuilder()
    elect(h, ONE, 1, -1)
    commit(h, ONE, 7, 1)
    elect(h, THREE, 2, -1)
    commit(h, TWO, 8, 1)
    found = verdict(h, "QC-07")
    assert (found.violated, found.verdict) == (0, Outcome.HOLDS)


def test_a_late_winner_has_what_was_committed_before_its_own_epoch() -> None:
    h = HistoryBuilder()
    elect(h, ONE, 1, 0)
    commit(h, ONE, 7, 1)
    elect(h, THREE, 3, 8)
    elect(h, TWO, 2, 7)
    assert stated(verdict(h, "QC-07"), "process", "epoch", "committed") == (TWO, 2, 7)


@pytest.mark.parametrize(
    ("log_end", "outcome"), [(7, Outcome.VIOLATED), (8, Outcome.NOT_EXERCISED)]
)
def test_what_is_told_after_an_election_was_committed_before_it(
    log_end: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    elect(h, ONE, 1, 0)
    elect(h, THREE, 2, log_end)
    commit(h, TWO, 7, 1)
    found = verdict(h, "QC-07")
    assert found.verdict is outcome
    assert [one.because for one in found.violations] == [
        (h.events()[1].ref,) for _ in found.violations
    ]


def test_a_record_of_an_old_epoch_may_be_committed_by_a_later_leader() -> None:
    """The winner of epoch 2 wrote nothing that stayed; that of epoch 3 has the longer log."""
    h = HistoryBuilder()
    elect(h, ONE, 1, 0)
    elect(h, TWO, 2, 7)
    elect(h, ONE, 3, 8)
    commit(h, ONE, 7, 1)
    assert verdict(h, "QC-07").violated == 0


def test_a_later_leader_that_is_voted_for_may_be_the_one_that_commits() -> None:
    h = HistoryBuilder()
    elect(h, ONE, 1, 0)
    elect(h, TWO, 2, 7)
    vote(h, 3, 101)
    commit(h, THREE, 7, 1)
    assert verdict(h, "QC-07").violated == 0


def test_qc_07_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    elect(h, ONE, 1, 0)
    commit(h, TWO, 7, 1)
    elect(h, THREE, 2, 8)
    assert verdict(h, "QC-07", complete=False).verdict is Outcome.UNKNOWN


# ------------------------------------------------------------------------------------------ QC-08


def test_an_answer_before_its_commit_breaks_qc_08() -> None:
    h = HistoryBuilder()
    h.add(
        ONE,
        ChangeAnswered(
            api="CreateTopics",
            client="broker-1#1",
            error="NONE",
            offset=9,
            high_watermark=9,
            controller_epoch=1,
        ),
    )
    assert stated(verdict(h, "QC-08"), "api", "offset") == ("CreateTopics", 9)


def test_a_granted_isr_that_no_node_has_committed_breaks_qc_08() -> None:
    h = HistoryBuilder()
    h.add(
        TWO,
        PartitionCommitted(
            offset=4,
            topic="orders",
            partition=0,
            leader=1,
            leader_epoch=0,
            isr=(1, 2, 3),
            replicas=(1, 2, 3),
        ),
    )
    h.add(
        "broker-1#1",
        IsrChangeAnswered(topic="orders", partition=0, leader_epoch=0, error="NONE", isr=(1, 2)),
    )
    assert verdict(h, "QC-08").violations[0].evidence is Evidence.PEER


@pytest.mark.parametrize("epoch", [0, 1], ids=["not replayed yet", "replayed"])
def test_a_committed_change_that_is_answered_then_keeps_qc_08(epoch: int) -> None:
    h = HistoryBuilder()
    h.add(
        TWO,
        PartitionCommitted(
            offset=9,
            topic="orders",
            partition=0,
            leader=1,
            leader_epoch=1,
            isr=(1, 2),
            replicas=(1, 2, 3),
        ),
    )
    h.add(
        ONE,
        ChangeAnswered(
            api="AlterIsr",
            client="broker-1#1",
            error="NONE",
            offset=9,
            high_watermark=10,
            controller_epoch=1,
        ),
    )
    h.add(
        "broker-1#1",
        IsrChangeAnswered(
            topic="orders", partition=0, leader_epoch=epoch, error="NONE", isr=(1, 2)
        ),
    )
    found = verdict(h, "QC-08")
    assert (found.verdict, found.exercised, found.evidence) == (Outcome.HOLDS, 2, Evidence.PEER)


def test_a_call_that_writes_no_record_does_not_exercise_qc_08() -> None:
    h = HistoryBuilder()
    h.add(
        ONE,
        ChangeAnswered(
            api="CreateTopics",
            client="broker-1#1",
            error="NONE",
            offset=-1,
            high_watermark=0,
            controller_epoch=1,
        ),
    )
    h.add(
        ONE,
        ChangeAnswered(
            api="CreateTopics",
            client="broker-1#1",
            error="NOT_CONTROLLER",
            offset=9,
            high_watermark=0,
            controller_epoch=1,
        ),
    )
    assert verdict(h, "QC-08").verdict is Outcome.NOT_EXERCISED


def test_qc_08_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    h.add(
        ONE,
        ChangeAnswered(
            api="CreateTopics",
            client="broker-1#1",
            error="NONE",
            offset=9,
            high_watermark=10,
            controller_epoch=1,
        ),
    )
    assert verdict(h, "QC-08", complete=False).verdict is Outcome.UNKNOWN


# ------------------------------------------------------------------------------------------ QC-09


def test_state_kept_past_the_committed_breaks_qc_09() -> None:
    h = HistoryBuilder()
    h.add(ONE, ControllerResigned(epoch=1, reason="no_majority"))
    h.add(ONE, StateReverted(offset=12, high_watermark=10, epoch=1))
    found = verdict(h, "QC-09").violations[0]
    assert [str(ref) for ref in found.because] == [f"{ONE}@0"]


def test_a_controller_elected_again_without_reverting_breaks_qc_09() -> None:
    h = HistoryBuilder()
    h.add(ONE, ControllerResigned(epoch=1, reason="higher_epoch"))
    elect(h, ONE, 3, 12)
    assert stated(verdict(h, "QC-09"), "epoch", "other_epoch") == (3, 1)


def test_dropping_records_that_were_never_committed_keeps_qc_09() -> None:
    h = HistoryBuilder()
    h.add(ONE, ControllerResigned(epoch=1, reason="no_majority"))
    h.add(ONE, StateReverted(offset=10, high_watermark=10, epoch=1))
    h.add(ONE, MetadataTruncated(from_offset=10, log_end=12, high_watermark=10, epoch=2))
    assert verdict(h, "QC-09").verdict is Outcome.HOLDS


def test_a_deposed_controller_with_nothing_open_does_not_exercise_qc_09() -> None:
    h = HistoryBuilder()
    h.add(ONE, ControllerResigned(epoch=1, reason="no_majority"))
    h.add(ONE, StateReverted(offset=10, high_watermark=10, epoch=1))
    h.add(TWO, MetadataTruncated(from_offset=10, log_end=12, high_watermark=10, epoch=2))
    assert verdict(h, "QC-09").verdict is Outcome.NOT_EXERCISED


@pytest.mark.parametrize(("after_ms", "violated"), [(1_000, 0), (1_001, 1)])
@pytest.mark.parametrize("end", ["of the run", "of the process", "of its duty"])
def test_a_controller_reverts_each_time_that_it_resigns(
    end: str, after_ms: int, violated: int
) -> None:
    h = HistoryBuilder()
    h.add(ONE, ControllerResigned(epoch=1, reason="no_majority"))
    h.add(ONE, StateReverted(offset=10, high_watermark=10, epoch=1))
    elect(h, ONE, 3, 10)
    h.add(ONE, ControllerResigned(epoch=3, reason="no_majority"))
    h.after(after_ms - 1)
    if end == "of the process":
        h.add("harness", ProcessExited(ended=ONE, exit_code=0, signal=9, expected=True))
        h.after(60_000)
    elif end == "of its duty":
        h.add(ONE, StateReverted(offset=10, high_watermark=10, epoch=3))
        h.after(60_000)
    assert verdict(h, "QC-09").violated == violated


def test_qc_09_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    h.add(ONE, ControllerResigned(epoch=1, reason="no_majority"))
    assert verdict(h, "QC-09", complete=False).verdict is Outcome.UNKNOWN


# ------------------------------------------------------------------------------------------ QC-28


def test_a_new_controller_without_an_acknowledged_change_breaks_qc_28() -> None:
    h = HistoryBuilder()
    elect(h, ONE, 1, 0)
    h.add(
        ONE,
        ChangeAnswered(
            api="CreateTopics",
            client="broker-1#1",
            error="NONE",
            offset=9,
            high_watermark=10,
            controller_epoch=1,
        ),
    )
    elect(h, TWO, 2, 9)
    assert stated(verdict(h, "QC-28"), "api", "offset") == ("CreateTopics", 9)


def acknowledge(h: HistoryBuilder, offset: int, epoch: int) -> None:
    h.add(
        ONE,
        ChangeAnswered(
            api="CreateTopics",
            client="broker-1#1",
            error="NONE",
            offset=offset,
            high_watermark=offset + 1,
            controller_epoch=epoch,
        ),
    )


@pytest.mark.parametrize(
    ("log_end", "epoch", "outcome"),
    [
        pytest.param(9, 1, Outcome.VIOLATED, id="of a former term"),
        pytest.param(10, 1, Outcome.NOT_EXERCISED, id="which the successor has"),
        pytest.param(9, 2, Outcome.NOT_EXERCISED, id="of its own term"),
        pytest.param(9, -1, Outcome.NOT_EXERCISED, id="of a term that it does not name"),
    ],
)
def test_a_change_is_there_though_its_acknowledgement_is_told_after_the_failover(
    log_end: int, epoch: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    elect(h, TWO, 2, log_end)
    acknowledge(h, 9, epoch)
    assert verdict(h, "QC-28").verdict is outcome


@pytest.mark.parametrize(("offset", "outcome"), [(9, Outcome.HOLDS), (8, Outcome.VIOLATED)])
def test_a_controller_answers_only_what_it_has_told_as_committed(
    offset: int, outcome: Outcome
) -> None:
    h = HistoryBuilder()
    commit(h, ONE, offset, 1)
    commit(h, TWO, 9, 1)
    acknowledge(h, 9, 1)
    assert verdict(h, "QC-08").verdict is outcome


def test_a_lost_registration_breaks_qc_28() -> None:
    h = HistoryBuilder()
    h.add(
        TWO, BrokerCommitted(offset=9, broker_id=1, broker_epoch=9, fenced=False, incarnation="x")
    )
    elect(h, THREE, 2, 9)
    assert stated(verdict(h, "QC-28"), "broker") == "broker 1"


def register(h: HistoryBuilder, epoch: int = 9, error: str = "NONE", request: int = -1) -> None:
    """The controller of epoch 1 answers broker 1, whose epoch is the offset of its record."""
    body = HeartbeatAnswered(
        client="broker-1#1",
        broker_id=1,
        incarnation="x",
        request_epoch=request,
        broker_epoch=epoch,
        error=error,
        next_state="FENCED",
        lease_start_ms=0,
        lease_end_ms=3000,
        lease_period_ms=3000,
        controller_epoch=1,
        active_controller=101,
        active=True,
    )
    h.add(ONE, body)


@pytest.mark.parametrize("told_late", [False, True])
def test_a_registration_that_only_its_answer_shows_is_lost_by_qc_28(told_late: bool) -> None:
    """No node has told its record as committed: the broker's process was answered all the same."""
    h = HistoryBuilder()
    elect(h, ONE, 1, 0)
    if told_late:
        elect(h, THREE, 2, 9)
    register(h)
    if not told_late:
        elect(h, THREE, 2, 9)
    found = verdict(h, "QC-28")
    assert (found.verdict, found.violated) == (Outcome.VIOLATED, 1)
    assert stated(found, "broker", "offset", "log_end") == ("broker 1", 9, 9)


def test_a_registration_that_was_refused_or_a_renewal_is_no_change_for_qc_28() -> None:
    for error, request in (("DUPLICATE_BROKER_REGISTRATION", -1), ("NONE", 9)):
        h = HistoryBuilder()
        register(h, error=error, request=request)
        elect(h, THREE, 2, 9)
        assert verdict(h, "QC-28").verdict is Outcome.NOT_EXERCISED


def truncate(h: HistoryBuilder, from_offset: int, process: str = ONE) -> None:
    body = MetadataTruncated(
        from_offset=from_offset, log_end=12, high_watermark=from_offset, epoch=2
    )
    h.add(process, body)


def test_a_controller_that_drops_what_it_has_acknowledged_breaks_qc_28() -> None:
    """Its successor says nothing of its own log."""
    h = HistoryBuilder()
    acknowledge(h, 9, 1)
    truncate(h, 9)
    found = verdict(h, "QC-28").violations[0]
    assert stated(found, "process", "offset", "from_offset") == (ONE, 9, 9)
    assert found.because == (h.events()[0].ref,)


def test_a_controller_may_drop_what_it_or_its_process_did_not_acknowledge() -> None:
    for from_offset, process in ((10, ONE), (9, TWO), (9, "controller-1#2")):
        h = HistoryBuilder()
        acknowledge(h, 9, 1)
        truncate(h, from_offset, process)
        assert verdict(h, "QC-28").verdict is Outcome.NOT_EXERCISED


def test_a_topic_that_a_client_cannot_find_after_a_failover_breaks_qc_28() -> None:
    h = HistoryBuilder()
    elect(h, ONE, 1, 0)
    h.add(
        "clients/admin#1",
        AdminCompleted(operation="a", api="create_topic", subject="orders", outcome="ok", error=""),
    )
    elect(h, TWO, 2, 9)
    h.add(
        "clients/r#1",
        ReadCompleted(
            topic="orders",
            partition=0,
            start=-1,
            end=-1,
            outcome="unknown",
            error="UNKNOWN_TOPIC_OR_PART: x",
        ),
    )
    assert verdict(h, "QC-28").violations[0].evidence is Evidence.CLIENT


def test_a_topic_read_after_a_failover_keeps_qc_28() -> None:
    h = HistoryBuilder()
    elect(h, ONE, 1, 0)
    h.add(
        ONE,
        ChangeAnswered(
            api="CreateTopics",
            client="broker-1#1",
            error="NONE",
            offset=9,
            high_watermark=10,
            controller_epoch=1,
        ),
    )
    h.add(
        "clients/admin#1",
        AdminCompleted(operation="a", api="create_topic", subject="orders", outcome="ok", error=""),
    )
    elect(h, TWO, 2, 10)
    h.add(
        "clients/reader#1",
        ReadCompleted(topic="orders", partition=0, start=0, end=5, outcome="ok", error=""),
    )
    found = verdict(h, "QC-28")
    assert (found.verdict, found.exercised, found.evidence) == (Outcome.HOLDS, 2, Evidence.CLIENT)


def test_a_deleted_topic_need_not_exist_after_a_failover() -> None:
    h = HistoryBuilder()
    elect(h, ONE, 1, 0)
    h.add(
        "clients/admin#1",
        AdminCompleted(operation="a", api="create_topic", subject="orders", outcome="ok", error=""),
    )
    h.add(
        "clients/admin#1",
        AdminCompleted(
            operation="b", api="delete_topic", subject="orders", outcome="unknown", error=""
        ),
    )
    elect(h, TWO, 2, 9)
    h.add(
        "clients/r#1",
        ReadCompleted(
            topic="orders",
            partition=0,
            start=-1,
            end=-1,
            outcome="unknown",
            error="UNKNOWN_TOPIC_OR_PART: x",
        ),
    )
    assert verdict(h, "QC-28").verdict is Outcome.NOT_EXERCISED


def test_qc_28_is_undecided_in_a_history_cut_short() -> None:
    h = HistoryBuilder()
    h.add(
        ONE,
        ChangeAnswered(
            api="CreateTopics",
            client="broker-1#1",
            error="NONE",
            offset=9,
            high_watermark=10,
            controller_epoch=1,
        ),
    )
    elect(h, TWO, 2, 10)
    assert verdict(h, "QC-28", complete=False).verdict is Outcome.UNKNOWN
