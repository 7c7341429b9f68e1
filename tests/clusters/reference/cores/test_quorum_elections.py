"""Elections of the quorum at one controller: votes, announcements and resignations, without a
cluster (KIP-595)."""

from __future__ import annotations

import pytest
from quorum_bench import (
    CONTROLLER,
    QuorumController,
    calls,
    fetched,
    in_order,
    parts,
    replies,
    rows,
    voted,
)

from fencepost import NodeStopped
from fencepost_clusters.reference.assembly import DiskContents
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.quorum.broker_state import BrokerState
from fencepost_clusters.reference.core.quorum.raft import messages
from fencepost_clusters.reference.core.quorum.raft.timing import Vote
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import ControllerElected, ControllerResigned, ElectionStarted, VoteAnswered

EPOCH = 5


def test_a_candidate_gives_no_other_one_its_vote_in_that_epoch() -> None:
    controller = QuorumController()
    controller.follows(102, EPOCH)
    controller.stands()
    epoch = controller.core.raft.epoch
    refused = voted(controller, 102, epoch)
    assert (refused.vote_granted, refused.leader_id) == (False, -1)
    assert voted(controller, 102, epoch + 1).vote_granted, "the next epoch is another election"


def test_a_voter_that_gave_its_vote_stands_itself_only_after_another_timeout() -> None:
    controller = QuorumController()
    controller.node.passes(0.05)
    assert voted(controller, 102, EPOCH).vote_granted
    controller.node.passes(0.9)
    assert controller.node.noted(ElectionStarted) == []
    (answered,) = controller.node.noted(VoteAnswered)
    assert (answered.candidate, answered.granted, answered.reason) == (102, True, "granted")


@pytest.mark.parametrize(
    ("epoch", "last"), [(EPOCH, 1), (EPOCH + 1, 0)], ids=["granted", "refused"]
)
def test_a_voter_that_answers_a_candidate_stands_itself_only_after_another_timeout(
    epoch: int, last: int
) -> None:
    """In the epoch that it is in, or in a later one. The candidate needs time to be elected."""
    stored = DiskContents(metadata=(rows(0, 1),), vote=Vote(EPOCH))
    controller = QuorumController(stored=stored)
    controller.node.give(e.Tick())
    controller.node.now_ns = controller.core.raft.deadline_ns() - 1
    (reply,) = controller.asks(messages.vote(epoch, 102, 1, last))
    assert isinstance(reply.message, m.VoteResponse)
    assert reply.message.topics[0].partitions[0].vote_granted == (epoch == EPOCH)
    controller.node.passes(0.99)
    assert controller.node.noted(ElectionStarted) == []


def test_votes_of_an_earlier_election_do_not_count() -> None:
    controller = QuorumController()
    controller.stands()
    early = [one for one in controller.node.calls if one.channel == "quorum"]
    controller.stands()
    for one in early:
        controller.node.give(e.Answered(one.call_id, messages.vote_answer(None, 1, granted=True)))
    assert not controller.core.active


def test_a_refused_vote_does_not_count() -> None:
    controller = QuorumController()
    controller.stands()
    for one in [one for one in controller.node.calls if one.channel == "quorum"]:
        controller.node.give(e.Answered(one.call_id, messages.vote_answer(None, 1, granted=False)))
    assert not controller.core.active


def test_a_candidate_follows_the_leader_of_a_later_epoch_that_a_voter_names() -> None:
    controller = QuorumController()
    controller.stands()
    done = controller.node.answers("quorum", messages.vote_answer(102, EPOCH, granted=False))
    assert (controller.core.raft.epoch, controller.core.raft.leader) == (EPOCH, 102)
    assert in_order(done)[0] == e.StoreVote(EPOCH, None)
    before = len(controller.node.effects)
    controller.node.passes(0)
    assert calls(controller.node.effects[before:], m.FetchRequest) == ["c-2"]


def test_a_voter_that_stood_in_vain_does_not_wait_for_its_fetch_from_the_former_leader() -> None:
    controller = QuorumController()
    controller.follows(102, EPOCH)
    controller.node.passes(0)
    assert isinstance(controller.node.called("metadata").message, m.FetchRequest)
    controller.stands()
    before = len(controller.node.effects)
    assert voted(controller, 103, controller.core.raft.epoch + 1).vote_granted
    controller.node.passes(0)
    assert len(calls(controller.node.effects[before:], m.FetchRequest)) == 1


def test_a_candidate_that_follows_the_leader_of_its_epoch_counts_no_votes_any_more() -> None:
    """QC-07: a voter that gives two votes in one epoch must not make a second leader."""
    controller = QuorumController()
    controller.stands()
    epoch = controller.core.raft.epoch
    controller.asks(messages.begin_epoch(102, epoch))
    controller.node.answers("quorum", messages.vote_answer(None, epoch, granted=True))
    assert (controller.core.active, controller.core.raft.leader) == (False, 102)


def test_a_voter_follows_the_first_leader_of_an_epoch_though_a_second_one_is_named() -> None:
    """QC-07."""
    controller = QuorumController()
    controller.follows(102, EPOCH)
    controller.node.passes(0)
    named = messages.fetch_answer(103, EPOCH, high_watermark=0)
    controller.node.answers("metadata", named)
    assert (controller.core.raft.leader, controller.core.raft.epoch) == (102, EPOCH)


def test_a_voter_whose_leader_resigned_asks_the_others_for_the_next_one() -> None:
    """It may stand later than another voter, and so hears of that at once."""
    slow = {"controller.quorum.election.timeout.ms": "60000"}
    controller = QuorumController(settings=slow)
    controller.follows(102, EPOCH)
    controller.node.passes(0)
    lost = controller.node.called("metadata")
    controller.node.calls.remove(lost)
    controller.asks(messages.end_epoch(102, EPOCH))
    controller.node.give(e.CallFailed(lost.call_id, "closed"))
    controller.node.passes(1)
    assert controller.node.noted(ElectionStarted) == []
    assert controller.node.called("metadata").address == ("c-3", 9093)


def test_nothing_is_kept_of_a_call_that_failed() -> None:
    """A controller that cannot reach the others would run out of memory."""
    controller = QuorumController()
    controller.stands()
    for call in controller.node.calls:
        controller.node.give(e.CallFailed(call.call_id, "refused"))
    assert controller.core.raft._calls == {}


def test_an_announcement_of_an_earlier_epoch_is_refused() -> None:
    controller = QuorumController()
    controller.follows(102, EPOCH)
    (reply,) = controller.asks(messages.begin_epoch(103, EPOCH - 1))
    assert reply.message == messages.begin_answer(102, EPOCH, Error.FENCED_LEADER_EPOCH)
    (reply,) = controller.asks(messages.begin_epoch(102, EPOCH))
    assert reply.message == messages.begin_answer(102, EPOCH, Error.NONE)


def test_a_voter_gives_no_vote_while_its_leader_announces_itself() -> None:
    """QC-36."""
    controller = QuorumController()
    controller.asks(messages.begin_epoch(102, EPOCH))
    controller.node.now_ns += 1_900_000_000
    assert not voted(controller, 103, EPOCH + 1).vote_granted
    assert controller.core.raft.epoch == EPOCH
    controller.node.now_ns += 200_000_000
    assert voted(controller, 103, EPOCH + 2).vote_granted


def test_a_voter_gives_its_vote_as_soon_as_its_leader_has_resigned() -> None:
    controller = QuorumController()
    controller.follows(102, EPOCH)
    (reply,) = controller.asks(messages.end_epoch(102, EPOCH))
    assert reply.message == messages.end_answer(EPOCH)
    (reply,) = controller.beat(1)
    assert isinstance(reply.message, m.BrokerHeartbeatResponse)
    assert reply.message.active_controller_id == -1
    result = voted(controller, 103, EPOCH + 1)
    assert (result.vote_granted, result.leader_id) == (True, -1)


def test_a_leader_announces_itself_to_a_voter_until_that_fetches() -> None:
    controller = QuorumController()
    controller.stands()
    controller.node.answers("quorum", messages.vote_answer(None, 1, granted=True))
    before = len(controller.node.effects)
    controller.node.passes(1.1)
    asked = calls(controller.node.effects[before:], m.BeginQuorumEpochRequest)
    assert asked.count("c-2") == asked.count("c-3") >= 2
    controller.fetched(102)
    before = len(controller.node.effects)
    controller.node.passes(1.1)
    assert set(calls(controller.node.effects[before:], m.BeginQuorumEpochRequest)) == {"c-3"}


def test_a_leader_that_stops_tells_every_other_voter_and_refuses_the_fetches_that_wait() -> None:
    controller = QuorumController().elected()
    last = controller.core.log.last_epoch
    for _ in range(2):  # the first one is answered at once: it does not know what is committed
        answers = fetched(controller, 1, controller.core.log.end, last_epoch=last, wait_ms=500)
    assert answers == []
    assert controller.beat(1, BrokerState.INITIAL) != []  # the fetch that waited
    fetched(controller, 1, controller.core.log.end, last_epoch=last, wait_ms=500)
    done = controller.node.give(e.ShutdownAsked())
    assert isinstance(done[-1], e.Exit), "nothing follows the end of the process"
    beats = [one.message for one in replies(done)]
    assert Error.NOT_CONTROLLER in [
        one.error_code for one in beats if isinstance(one, m.BrokerHeartbeatResponse)
    ]
    assert calls(done, m.EndQuorumEpochRequest) == ["c-2", "c-3"]
    refused = [one for one in parts(replies(done)) if one.error_code != Error.NONE]
    assert [one.error_code for one in refused] == [Error.NOT_LEADER_OR_FOLLOWER]
    assert [one.reason for one in controller.node.noted(ControllerResigned)] == ["shutdown"]
    assert controller.node.noted(NodeStopped)
    assert controller.node.exited


@pytest.mark.parametrize("how", ["begin", "fetch"])
def test_a_leader_that_hears_of_a_later_epoch_resigns(how: str) -> None:
    """It refuses the fetches that wait, stores the epoch, and follows."""
    controller = QuorumController().elected()
    end, last = controller.core.log.end, controller.core.log.last_epoch
    fetched(controller, 1, end, last_epoch=last, wait_ms=500)
    assert not fetched(controller, 1, end, last_epoch=last, wait_ms=500)
    before = len(controller.node.effects)
    if how == "begin":
        controller.asks(messages.begin_epoch(102, EPOCH))
    else:
        answers = fetched(controller, 102, end, last_epoch=last, epoch=EPOCH)
        assert answers[-1].error_code == Error.NOT_LEADER_OR_FOLLOWER
        assert answers[-1].current_leader == m.LeaderIdAndEpoch(leader_id=-1, leader_epoch=EPOCH)
    done = controller.node.effects[before:]
    assert not controller.core.active
    assert e.StoreVote(EPOCH, None) in done
    assert Error.NOT_LEADER_OR_FOLLOWER in [one.error_code for one in parts(replies(done))]
    assert [one.reason for one in controller.node.noted(ControllerResigned)] == ["higher_epoch"]
    before = len(controller.node.effects)
    controller.node.passes(0)
    if how == "begin":
        assert calls(controller.node.effects[before:], m.FetchRequest) == ["c-2"]
    controller.node.passes(10)
    assert len(controller.node.noted(ElectionStarted)) >= 2, "a silent leader is replaced"


def test_a_controller_that_resigned_for_lack_of_a_majority_can_be_elected_again() -> None:
    controller = QuorumController().elected()
    controller.node.passes(1.7)
    assert [one.reason for one in controller.node.noted(ControllerResigned)] == ["no_majority"]
    assert controller.core.raft.leader is None
    controller.node.passes(0.8)
    assert len(controller.node.noted(ElectionStarted)) == 1, "it does not stand at once"
    controller.stands()
    controller.node.answers("quorum", messages.vote_answer(None, 2, granted=True))
    seen_ns = controller.core.raft._serving.majority_seen_ns()
    assert seen_ns == controller.node.now_ns, "not that of the term before"
    controller.node.passes(1)
    assert controller.core.active, "its voters have as much time as after any election"
    epochs = [one.epoch for one in controller.node.noted(ControllerElected)]
    assert len(epochs) == 2 == len(set(epochs))


def test_a_leader_begins_its_epoch_with_a_record_of_it() -> None:
    """KIP-595: LeaderChange."""
    stored = DiskContents(metadata=(rows(0, 1, 3),), vote=Vote(1))
    log = QuorumController(CONTROLLER, stored=stored).elected().core.log
    first = log.batches(3, log.end)[0]
    assert (first.base, first.epoch, first.records) == (3, 2, ())


def test_a_leader_resigns_when_the_answer_to_its_announcement_names_a_later_epoch() -> None:
    controller = QuorumController().elected()
    controller.node.give(e.Tick())
    later = messages.begin_answer(103, EPOCH, Error.FENCED_LEADER_EPOCH)
    asked_to = controller.node.called("quorum")
    assert isinstance(asked_to.message, m.BeginQuorumEpochRequest)
    controller.node.answers("quorum", later)
    assert (controller.core.active, controller.core.raft.leader) == (False, 103)


def test_a_restarted_leader_does_not_follow_itself() -> None:
    """The others may still take it for the leader of the epoch in which it was one."""
    controller = QuorumController(stored=DiskContents(vote=Vote(EPOCH, CONTROLLER)))
    controller.node.give(e.Tick())
    named = messages.fetch_answer(
        CONTROLLER, EPOCH, high_watermark=0, error=Error.NOT_LEADER_OR_FOLLOWER
    )
    controller.node.answers("metadata", named)
    assert controller.core.raft.leader is None
    assert controller.core.raft.epoch == EPOCH


def test_a_leader_commits_no_record_of_an_earlier_epoch_before_one_of_its_own() -> None:
    """Raft, section 5.4.2: the next leader could still drop it."""
    stored = DiskContents(metadata=(rows(0, 1, 3),), vote=Vote(1))
    controller = QuorumController(stored=stored)
    controller.stands()
    controller.node.answers("quorum", messages.vote_answer(None, 2, granted=True))
    assert controller.core.active
    fetched(controller, 102, 3, last_epoch=1)
    assert controller.core.raft.high_watermark == 0
    controller.fetched(102)
    assert controller.core.raft.high_watermark == controller.core.log.end > 3


def test_the_end_of_the_epochs_ends_the_process() -> None:
    stored = DiskContents(vote=Vote(messages.MAX_EPOCH))
    done = QuorumController(stored=stored).stands()
    (ended,) = (one for one in done if isinstance(one, e.Exit))
    assert ended.code == e.EXIT_UNREADABLE
    assert QuorumController(stored=DiskContents(vote=Vote(messages.MAX_EPOCH - 1))).stands()
