"""Voters that are added and removed, at one controller, without a cluster (KIP-853)."""

from __future__ import annotations

import pytest
from quorum_bench import (
    CONTROLLER,
    ROW,
    VOTERS,
    QuorumController,
    calls,
    snapshot_part,
    voted,
)

from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.quorum.broker_state import BrokerState
from fencepost_clusters.reference.core.quorum.raft.electorate import voters_record
from fencepost_clusters.reference.core.quorum.raft.messages import (
    end_answer,
    end_epoch,
    vote_answer,
)
from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import ElectionStarted


@pytest.fixture
def alone() -> QuorumController:
    """The active controller of a quorum of one, with two active brokers."""
    return QuorumController(CONTROLLER).elected().activates(1, 2)


def test_a_leader_does_not_announce_itself_to_a_voter_that_it_has_removed() -> None:
    controller = QuorumController()
    controller.stands()
    controller.node.answers("quorum", vote_answer(None, 1, granted=True))
    controller.node.passes(0)
    assert "c-3" in calls(controller.node.effects, m.BeginQuorumEpochRequest)
    controller.fetched(102)
    controller.asks(a.RemoveRaftVoterRequest(cluster_id=None, voter_id=103))
    assert controller.core.raft.voters.keys() == {101, 102}
    before = len(controller.node.effects)
    controller.node.passes(1)
    assert controller.core.active
    assert calls(controller.node.effects[before:], m.BeginQuorumEpochRequest) == []


def test_a_controller_that_becomes_a_voter_waits_for_its_leader_as_every_follower_does() -> None:
    """It stands for election only after the fetch timeout, however long it was no voter."""
    controller = QuorumController(102)
    controller.node.passes(30)
    voters = {v: (f"c-{v - 100}", 9093) for v in (101, 102)}
    controller.follows(102, 1, record_batch.build([r.encode(voters_record(voters))], 0, 1, 1))
    assert controller.core.raft.voters.keys() == {101, 102}
    controller.node.passes(1.9)
    assert controller.node.noted(ElectionStarted) == []


def test_what_a_controller_fetched_before_it_became_a_voter_does_not_count() -> None:
    """Only a voter syncs its log, and a majority counts synced records."""
    controller = QuorumController().elected()
    raft, held = controller.core.raft, controller.core.raft.high_watermark
    controller.beat(1, BrokerState.INITIAL)
    assert controller.core.log.end > held
    controller.fetched(104)
    at = a.RaftVoterListener(name="CONTROLLER", host="c-4", port=9093)
    controller.asks(
        a.AddRaftVoterRequest(cluster_id=None, timeout=1000, voter_id=104, listeners=(at,))
    )
    assert raft.voters.keys() == {*VOTERS, 104}
    controller.fetched(102)
    assert raft.high_watermark == held, "two of four voters hold the registration"
    controller.fetched(104)
    assert raft.high_watermark == controller.core.log.end


def test_a_controller_whose_id_is_0_may_become_a_voter(alone: QuorumController) -> None:
    alone.fetched(0)
    listener = a.RaftVoterListener(name="CONTROLLER", host="c-0", port=9093)
    asked = a.AddRaftVoterRequest(cluster_id=None, timeout=1000, voter_id=0, listeners=(listener,))
    assert alone.asks(asked) == [], "it is not committed yet: two voters are a majority of two"
    answers = [one.message for one in alone.fetched(0)]
    assert a.AddRaftVoterResponse(error_code=Error.NONE) in answers


@pytest.mark.parametrize(
    ("node", "listener"), [(-1, "CONTROLLER"), (104, "CLIENT")], ids=["no id", "no address"]
)
def test_a_voter_without_an_id_or_an_address_for_controllers_is_refused(
    alone: QuorumController, node: int, listener: str
) -> None:
    alone.fetched(node)
    at = a.RaftVoterListener(name=listener, host="c-4", port=9093)
    asked = a.AddRaftVoterRequest(cluster_id=None, timeout=1000, voter_id=node, listeners=(at,))
    (reply,) = alone.asks(asked)
    assert isinstance(reply.message, a.AddRaftVoterResponse)
    assert reply.message.error_code == Error.INVALID_REQUEST
    assert alone.core.raft.voters.keys() == {CONTROLLER}


@pytest.mark.parametrize(("lacks", "error"), [(100, Error.NONE), (101, Error.REQUEST_TIMED_OUT)])
def test_a_new_voter_may_lack_so_many_committed_records_and_no_more(
    alone: QuorumController, lacks: int, error: Error
) -> None:
    """A majority of two would wait for it."""
    raft = alone.core.raft
    alone.fetched(104)
    at = raft.log.end
    while raft.high_watermark < at + lacks:
        alone.beat(3, BrokerState.INITIAL)
    listener = a.RaftVoterListener(name="CONTROLLER", host="c-4", port=9093)
    alone.asks(
        a.AddRaftVoterRequest(cluster_id=None, timeout=1000, voter_id=104, listeners=(listener,))
    )
    assert (104 in raft.voters) == (error is Error.NONE)


@pytest.mark.parametrize(("ends", "stands"), [(102, True), (103, False)])
def test_a_voter_stands_for_election_soon_after_its_leader_has_resigned(
    ends: int, stands: bool
) -> None:
    """KIP-595: it would wait for the fetch timeout otherwise. Another controller cannot resign
    for the leader."""
    controller = QuorumController(settings={"controller.quorum.election.timeout.ms": "1000"})
    controller.follows(102, 1)
    controller.asks(end_epoch(ends, 1))
    controller.node.passes(0.5)
    assert bool(controller.node.noted(ElectionStarted)) is stands


def test_no_voter_is_added_before_a_record_of_the_term_is_committed() -> None:
    """KIP-853: the voters could differ by two from those of an earlier leader."""
    controller = QuorumController()
    controller.stands()
    controller.node.answers("quorum", vote_answer(None, 1, granted=True))
    controller.fetched(104)
    at = a.RaftVoterListener(name="CONTROLLER", host="c-4", port=9093)
    asked = a.AddRaftVoterRequest(cluster_id=None, timeout=1000, voter_id=104, listeners=(at,))
    controller.asks(asked)
    assert controller.core.raft.voters.keys() == {*VOTERS}
    controller.followed()
    controller.asks(asked)
    assert controller.core.raft.voters.keys() == {*VOTERS, 104}


def test_a_controller_that_a_record_names_as_a_voter_stands_for_election_without_a_leader() -> None:
    controller = QuorumController(102)
    voters = {v: (f"c-{v - 100}", 9093) for v in (101, 102)}
    controller.follows(102, 1, record_batch.build([r.encode(voters_record(voters))], 0, 1, 1))
    controller.node.passes(30)
    assert controller.node.noted(ElectionStarted)


def test_a_removed_leader_stands_for_no_election() -> None:
    controller = QuorumController().elected()
    controller.asks(a.RemoveRaftVoterRequest(cluster_id=None, voter_id=CONTROLLER))
    controller.node.give(e.Tick())
    assert controller.core.active, "its removal is not committed"
    controller.followed()
    done = controller.node.give(e.Tick())
    assert not controller.core.active
    sent = [one for one in done if isinstance(one, e.Call) and one.channel == "quorum"]
    assert [one.address[0] for one in sent] == ["c-2", "c-3"], "they need not wait"
    for one in sent:
        controller.node.give(e.Answered(one.call_id, end_answer(1)))
    before = len(controller.node.noted(ElectionStarted))
    controller.node.passes(60)
    assert len(controller.node.noted(ElectionStarted)) == before


def test_a_leader_that_resigns_before_its_removal_is_committed_stands_for_no_election() -> None:
    """By its own log it is no voter: it would count its own vote, and the others could elect
    another leader in the same epoch (QC-07)."""
    controller = QuorumController().elected()
    controller.asks(a.RemoveRaftVoterRequest(cluster_id=None, voter_id=CONTROLLER))
    controller.node.give(e.Tick())
    before = len(controller.node.noted(ElectionStarted))
    controller.node.passes(60)
    assert not controller.core.active
    assert CONTROLLER not in controller.core.raft.voters
    assert len(controller.node.noted(ElectionStarted)) == before


def test_a_controller_whose_admission_was_not_committed_stands_for_no_election() -> None:
    """The leader that admitted it lost the record; the next one does not have it."""
    controller = QuorumController(102, 103)
    voters = {v: (f"c-{v - 100}", 9093) for v in VOTERS}
    data = record_batch.build([r.encode(voters_record(voters))], 0, 1, 1)
    controller.follows(102, 1, data)
    assert controller.core.raft.voters.keys() == {*VOTERS}
    controller.follows(103, 2, diverging=m.EpochEndOffset(epoch=0, end_offset=0))
    assert controller.core.raft.voters.keys() == {102, 103}
    controller.node.passes(60)
    assert controller.node.noted(ElectionStarted) == []


def test_a_controller_whose_log_is_cut_off_after_a_record_of_voters_keeps_them() -> None:
    controller = QuorumController(102, 103)
    voters = {v: (f"c-{v - 100}", 9093) for v in VOTERS}
    controller.follows(102, 1, record_batch.build([r.encode(voters_record(voters))], 0, 1, 1))
    controller.follows(102, 1, record_batch.build([r.encode(ROW)], 1, 1, 1))
    controller.follows(103, 2, diverging=m.EpochEndOffset(epoch=1, end_offset=1))
    assert controller.core.log.end == 1
    assert controller.core.raft.voters.keys() == {*VOTERS}


def test_a_controller_that_a_snapshot_names_as_a_voter_stands_for_election_without_a_leader() -> (
    None
):
    """QC-07: otherwise a quorum of two would have no leader any more."""
    controller = QuorumController(102)
    voters = {v: (f"c-{v - 100}", 9093) for v in (101, 102)}
    data = record_batch.build([r.encode(voters_record(voters))], 0, 1, 1)
    snapshot = m.SnapshotId(end_offset=5, epoch=1)
    controller.follows(102, 1, snapshot=snapshot)
    controller.node.answers("metadata", snapshot_part(snapshot, data, leader=102))
    assert controller.core.committed.image.offset == 5
    controller.node.passes(30)
    assert controller.node.noted(ElectionStarted)


def test_a_controller_that_learns_later_that_it_votes_is_in_the_epoch_of_its_vote() -> None:
    """QC-07. Whoever asks it counts it as a voter, by a record that has not reached it yet. It gave
    its vote in the epoch before, where it may have given another one."""
    controller = QuorumController(102, 103)
    controller.node.passes(30)
    for epoch, candidate, given in ((5, 102, True), (5, 103, False), (6, 103, True)):
        assert voted(controller, candidate, epoch).vote_granted is given, (epoch, candidate)
        assert controller.core.raft.epoch == epoch
    stored = [one for one in controller.node.effects if isinstance(one, e.StoreVote)]
    assert [one for one in stored if one.voted_for] == [e.StoreVote(5, 102), e.StoreVote(6, 103)]
