"""Votes in the quorum: each is stored before it is given, and a voter with a leader gives none."""

from __future__ import annotations

from pathlib import Path

import pytest
from quorum_bench import CONTROLLERS as NODES
from quorum_bench import SECOND, QuorumController, voted
from world import CONTROLLERS, World

from fencepost_clusters.reference.assembly import DiskContents
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.quorum.raft.messages import (
    FARTHEST_EPOCH,
    begin_epoch,
    fetch_answer,
    vote,
)
from fencepost_clusters.reference.core.quorum.raft.timing import Vote
from fencepost_clusters.reference.wire import messages as m

EPOCH = 5
FIRST, SECOND_CANDIDATE = 102, 103


def asked(voter: QuorumController, candidate: int, epoch: int = EPOCH) -> tuple[e.Effect, ...]:
    """What a voter does when a candidate with a log as long as its own asks for its vote."""
    return voter.node.give(request(candidate, epoch))


def request(candidate: int, epoch: int, log_end: int = 0, last_epoch: int = 0) -> e.Received:
    return e.Received(
        request_id=1,
        listener="CONTROLLER",
        client=f"controller-{candidate - 100}#1",
        correlation=1,
        message=vote(epoch, candidate, log_end, last_epoch),
    )


def granted(done: tuple[e.Effect, ...]) -> bool:
    (answer,) = (one.message for one in done if isinstance(one, e.Reply))
    assert isinstance(answer, m.VoteResponse)
    return answer.topics[0].partitions[0].vote_granted


def test_a_vote_is_stored_before_its_answer_leaves() -> None:
    done = asked(QuorumController(), FIRST)
    assert granted(done)
    effects = [one for one in done if isinstance(one, e.StoreVote | e.Reply)]
    assert effects[-2] == e.StoreVote(EPOCH, FIRST)
    assert isinstance(effects[-1], e.Reply)


def test_a_vote_that_is_refused_stores_no_candidate() -> None:
    voter = QuorumController()
    asked(voter, FIRST)
    done = asked(voter, SECOND_CANDIDATE)
    assert not granted(done)
    assert not any(isinstance(one, e.StoreVote) for one in done)


def test_a_newer_epoch_is_stored_though_its_candidate_gets_no_vote() -> None:
    voter = QuorumController()
    asked(voter, FIRST)
    shorter = request(SECOND_CANDIDATE, EPOCH + 1, last_epoch=-2)
    done = voter.node.give(shorter)
    assert not granted(done)
    assert [one for one in done if isinstance(one, e.StoreVote)] == [e.StoreVote(EPOCH + 1, None)]


def test_a_candidate_stores_the_vote_for_itself_before_it_asks_for_others() -> None:
    voter = QuorumController()
    effects = [one for one in voter.stands() if isinstance(one, e.StoreVote | e.Call)]
    assert effects[0] == e.StoreVote(1, 101)
    assert sum(isinstance(one, e.Call) for one in effects) >= 2


def test_an_epoch_may_be_ahead_by_as_many_elections_as_a_node_can_have_missed_and_no_more() -> None:
    voter = QuorumController()
    assert not any(isinstance(one, e.Reply) for one in asked(voter, FIRST, FARTHEST_EPOCH + 1))
    assert voter.core.raft.epoch == 0
    assert granted(asked(voter, FIRST, FARTHEST_EPOCH))
    assert voter.core.raft.epoch == FARTHEST_EPOCH


@pytest.mark.parametrize(("candidate", "given"), [(FIRST, True), (SECOND_CANDIDATE, False)])
def test_a_restarted_voter_keeps_its_stored_vote(candidate: int, given: bool) -> None:
    voter = QuorumController(stored=DiskContents(vote=Vote(EPOCH, FIRST)))
    voter.node.now_ns += 2 * SECOND  # the leader that it may have promised to follow is silent
    assert granted(asked(voter, candidate)) is given


def test_a_restarted_voter_waits_for_the_leader_that_it_may_follow() -> None:
    voter = QuorumController(stored=DiskContents(vote=Vote(EPOCH, None)))
    assert not granted(asked(voter, FIRST, EPOCH + 1))


def test_a_voter_that_hears_from_its_leader_votes_for_nothing_however_long_that_lasts(
    tmp_path: Path,
) -> None:
    world = World(tmp_path / "run")
    assert world.until(world.healthy)
    world.run(20)  # many times the fetch timeout after the election
    active = world.active()
    follower, candidate = (name for name in CONTROLLERS if name != active)
    better = request(CONTROLLERS.index(candidate) + FIRST - 1, 99, log_end=10**6, last_epoch=98)
    assert not granted(world.core(follower).handle(better, e.Instant(world.now_ns, 0)))
    assert world.active() == active


@pytest.mark.parametrize(("candidate", "deposed"), [(104, False), (FIRST, True)])
def test_a_leader_is_deposed_by_a_candidate_only_if_that_is_a_voter(
    candidate: int, deposed: bool
) -> None:
    controller = QuorumController()
    former = m.NodeEndpoint(node_id=104, host="c-4", port=9093)
    controller.asks(begin_epoch(FIRST, 1))
    controller.node.passes(0)
    answer = fetch_answer(FIRST, 1, high_watermark=0, voters=(*NODES, former))
    controller.node.answers("metadata", answer)
    controller.elected()
    epoch = controller.core.raft.epoch
    assert voted(controller, candidate, epoch + 5).vote_granted is deposed
    assert controller.core.active is not deposed
    assert controller.core.raft.epoch == (epoch + 5 if deposed else epoch)
