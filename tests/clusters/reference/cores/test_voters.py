"""Voters that are added and removed, at one controller, without a cluster (KIP-853)."""

from __future__ import annotations

from quorum_bench import VOTERS, QuorumController, calls

from fencepost_clusters.reference.core.quorum.broker_state import BrokerState
from fencepost_clusters.reference.core.quorum.raft.electorate import voters_record
from fencepost_clusters.reference.core.quorum.raft.messages import vote_answer
from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire import records as r
from fencepost_kafka import ElectionStarted


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
