"""QC-07 where a voter lost its disk, and with it what it had voted and stored."""

from __future__ import annotations

import pytest
from tests.suites.partition_histories import stated, why
from tests.suites.quorum.test_quorum_rules import ONE, THREE, TWO, commit, elect, verdict

from fencepost import FaultInjected, NodeStarted, process_scope, slot_scope
from fencepost.testing import HistoryBuilder, Outcome
from fencepost_kafka import ElectionStarted, VoteAnswered


def quorum() -> HistoryBuilder:
    h = HistoryBuilder()
    for number, process in enumerate((ONE, TWO, THREE), 1):
        start(h, process, number)
    return h


def start(h: HistoryBuilder, process: str, number: int) -> None:
    body = NodeStarted(role="controller", node_id=100 + number, incarnation="x", log_end=0)
    h.add(process, body)


def harm(
    h: HistoryBuilder, process: str, fault: str = "wipe_disk", *, receipt: bool = True
) -> None:
    body = FaultInjected(
        fault_id=f"{fault}-1", fault=fault, targets=(process,), receipt=receipt, evidence=""
    )
    h.add("harness", body)


def votes(h: HistoryBuilder, process: str, epoch: int, candidate: int) -> None:
    body = VoteAnswered(
        epoch=epoch,
        candidate=candidate,
        granted=True,
        reason="granted",
        log_end=5,
        last_epoch=1,
        candidate_log_end=5,
        candidate_last_epoch=1,
    )
    h.add(process, body)


def stands(h: HistoryBuilder, process: str, epoch: int) -> None:
    h.add(process, ElectionStarted(epoch=epoch, log_end=5, last_epoch=1))


# ------------------------------------------------------------------------------------------ votes


def test_a_vote_that_was_lost_with_its_disk_is_excused_once() -> None:
    h = quorum()
    votes(h, TWO, 4, 101)
    harm(h, TWO)
    votes(h, "controller-2#2", 4, 103)
    found = verdict(h, "QC-07")
    assert (found.violated, found.excused) == (0, 1)
    assert stated(found.excuses[0], "slot", "other", "controller", "epoch") == (
        "controller-2",
        "controller 101",
        "controller 103",
        4,
    )
    assert why(found, "fault") == "wipe_disk-1"
    votes(h, "controller-2#2", 4, 101)
    assert verdict(h, "QC-07").violated == 1


@pytest.mark.parametrize(
    ("victim", "fault", "receipt"),
    [(THREE, "wipe_disk", True), (TWO, "kill", True), (TWO, "wipe_disk", False)],
)
def test_what_left_its_disk_whole_excuses_no_second_vote(
    victim: str, fault: str, receipt: bool
) -> None:
    h = quorum()
    votes(h, TWO, 4, 101)
    harm(h, victim, fault, receipt=receipt)
    votes(h, "controller-2#2", 4, 103)
    assert verdict(h, "QC-07").violated == 1


def two_winners(forgetful: str) -> HistoryBuilder:
    """The second controller votes for the first one, and then for the third one."""
    h = quorum()
    stands(h, ONE, 4)
    votes(h, TWO, 4, 101)
    elect(h, ONE, 4, 5)
    harm(h, forgetful)
    stands(h, THREE, 4)
    votes(h, "controller-2#2", 4, 103)
    elect(h, THREE, 4, 5)
    return h


def test_two_winners_by_a_vote_that_was_lost_are_excused() -> None:
    found = verdict(two_winners(TWO), "QC-07")
    assert (found.violated, found.excused) == (0, 2)
    of_vote, of_election = found.excuses
    assert of_vote.facts["slot"] == slot_scope("controller-2")
    assert (of_election.why["process"], of_election.why["epoch"]) == (process_scope(THREE), 4)


def test_two_winners_by_the_vote_of_a_voter_that_kept_its_disk_break_qc_07() -> None:
    assert verdict(two_winners(THREE), "QC-07").violated == 2


def test_two_winners_break_qc_07_if_their_votes_are_not_known() -> None:
    h = quorum()
    harm(h, TWO)
    elect(h, ONE, 4, 5)
    elect(h, THREE, 4, 5)
    assert verdict(h, "QC-07").violated == 1


def won_again(forgetful: str) -> HistoryBuilder:
    """The third controller wins epoch 1, and others win later ones. Its next process wins epoch 1
    again, by the same voters."""
    h = quorum()
    stands(h, THREE, 1)
    votes(h, TWO, 1, 103)
    elect(h, THREE, 1, 0)
    elect(h, ONE, 2, 5)
    harm(h, forgetful)
    harm(h, TWO)
    start(h, "controller-3#2", 3)
    stands(h, "controller-3#2", 1)
    votes(h, "controller-2#2", 1, 103)
    elect(h, "controller-3#2", 1, 0)
    return h


def test_a_controller_that_forgot_its_epoch_may_win_it_again() -> None:
    found = verdict(won_again(THREE), "QC-07")
    assert (found.violated, found.excused) == (0, 1)
    names = ("process", "other", "epoch")
    assert why(found, *names) == ("controller-3#2", "controller-3#1", 1)


def test_a_controller_that_kept_its_disk_may_not_win_an_epoch_again() -> None:
    assert verdict(won_again(ONE), "QC-07").violated == 1


# ---------------------------------------------------------------------------------------- records


def lost(*voters: str, harmed: tuple[str, ...] = (TWO,)) -> HistoryBuilder:
    """A record is committed at offset 7; disks are lost; these vote for a third controller that
    does not have it."""
    h = quorum()
    elect(h, ONE, 1, 0)
    commit(h, ONE, 7, 1)
    for process in harmed:
        harm(h, process)
    stands(h, THREE, 2)
    for voter in voters:
        votes(h, voter, 2, 103)
    elect(h, THREE, 2, 7)
    return h


def test_a_record_that_may_have_been_on_a_lost_disk_only_is_excused() -> None:
    """It was on the first and the second one."""
    h = lost("controller-2#2")
    found = verdict(h, "QC-07")
    assert (found.violated, found.excused) == (0, 1)
    assert why(found, "committed") == 7
    commit(h, THREE, 7, 2, "bb")  # what is lost is replaced
    assert verdict(h, "QC-07").violated == 0


@pytest.mark.parametrize(
    ("voters", "harmed"),
    [
        (("controller-2#2", ONE), (TWO,)),  # one of two unharmed voters had it
        (("controller-2#2",), ()),
        ((), (TWO,)),  # no majority is known to have voted
    ],
)
def test_a_record_that_an_unharmed_voter_had_is_not_excused(
    voters: tuple[str, ...], harmed: tuple[str, ...]
) -> None:
    assert verdict(lost(*voters, harmed=harmed), "QC-07").violated == 1


def test_voters_that_forgot_later_epochs_may_choose_a_leader_of_an_earlier_one() -> None:
    h = quorum()
    elect(h, ONE, 4, 0)
    commit(h, ONE, 7, 4)
    for process in (TWO, THREE):
        harm(h, process)
    start(h, "controller-3#2", 3)
    stands(h, "controller-3#2", 1)
    votes(h, "controller-2#2", 1, 103)
    elect(h, "controller-3#2", 1, 0)
    found = verdict(h, "QC-07")
    assert (found.violated, found.excused) == (0, 1)
    assert why(found, "epoch", "log_end") == (1, 0)


def test_a_voter_that_has_the_log_again_has_forgotten_nothing() -> None:
    h = quorum()
    elect(h, ONE, 1, 0)
    commit(h, ONE, 7, 1)
    harm(h, TWO)
    start(h, "controller-2#2", 2)
    commit(h, "controller-2#2", 7, 1)
    stands(h, THREE, 2)
    votes(h, "controller-2#2", 2, 103)
    elect(h, THREE, 2, 7)
    assert verdict(h, "QC-07").violated == 1


def test_a_record_that_was_committed_after_the_disk_was_lost_is_not_excused() -> None:
    h = quorum()
    elect(h, ONE, 1, 0)
    harm(h, TWO)
    start(h, "controller-2#2", 2)
    commit(h, ONE, 7, 1)
    stands(h, THREE, 2)
    votes(h, "controller-2#2", 2, 103)
    elect(h, THREE, 2, 7)
    assert verdict(h, "QC-07").verdict is Outcome.VIOLATED
