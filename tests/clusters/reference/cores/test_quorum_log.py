"""The quorum's log at one node: leaders, followers and observers of it, without a cluster (KIP-595,
KIP-630)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from quorum_bench import (
    CONTROLLER,
    TERM,
    QuorumBroker,
    QuorumController,
    replies,
    snapshot_part,
)

from fencepost import NodeStopped
from fencepost_clusters.reference.core.assembly import DiskContents
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.quorum.broker_state import BrokerState
from fencepost_clusters.reference.core.quorum.raft import messages
from fencepost_clusters.reference.core.quorum.raft.metadata_log import LOG_NAME, Snapshot
from fencepost_clusters.reference.core.quorum.raft.timing import Vote
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import (
    ControllerElected,
    ControllerResigned,
    ElectionStarted,
    MetadataTruncated,
    VoteAnswered,
)

ROW = r.ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="1")
EPOCH = 5


def rows(base: int, epoch: int, count: int = 1) -> bytes:
    """A batch of records at an offset."""
    return record_batch.build([r.encode(ROW)] * count, base, epoch, 1)


def in_order(done: Iterable[e.Effect]) -> list[e.Effect]:
    """What is stored, and what leaves."""
    return [one for one in done if isinstance(one, e.DiskEffect | e.Call | e.Reply)]


def kinds(done: Iterable[e.Effect]) -> list[type]:
    return [type(one) for one in in_order(done)]


def vote(
    controller: QuorumController, candidate: int, epoch: int, log_end: int = 100
) -> m.VoteResult:
    """The answer to a candidate."""
    (reply,) = controller.asks(messages.vote(epoch, candidate, log_end, epoch - 1))
    assert isinstance(reply.message, m.VoteResponse)
    return reply.message.topics[0].partitions[0]


def fetched(
    controller: QuorumController,
    node: int,
    offset: int,
    *,
    last_epoch: int,
    epoch: int | None = None,
    wait_ms: int = 0,
) -> list[m.PartitionData]:
    """The answer to a fetch, if it leaves at once."""
    claimed = controller.core.raft.epoch if epoch is None else epoch
    replica = m.ReplicaState(replica_id=node)
    asked = messages.fetch(offset, claimed, last_epoch, wait_ms, replica)
    return parts(controller.asks(asked, f"node-{node}"))


def parts(answers: list[e.Reply]) -> list[m.PartitionData]:
    messages = [one.message for one in answers]
    return [one.responses[0].partitions[0] for one in messages if isinstance(one, m.FetchResponse)]


def calls(done: Iterable[e.Effect], kind: type[m.Request]) -> list[str]:
    """The hosts to which a kind of request leaves."""
    found = (one for one in done if isinstance(one, e.Call))
    return [one.address[0] for one in found if isinstance(one.message, kind)]


# ------------------------------------------------------------------------------------------- disks


def test_a_leader_syncs_a_record_before_any_node_can_fetch_it() -> None:
    """A majority counts what the loss of power leaves."""
    controller = QuorumController().elected()
    end = controller.core.log.end
    last = controller.core.log.last_epoch
    assert not fetched(controller, 102, end, last_epoch=last, wait_ms=500)
    before = len(controller.node.effects)
    controller.beat(1, BrokerState.INITIAL)
    assert kinds(controller.node.effects[before:])[:3] == [e.Append, e.Sync, e.Reply]


def test_a_voter_syncs_what_it_fetched_before_its_next_fetch_says_so() -> None:
    controller = QuorumController()
    done = controller.follows(102, EPOCH, rows(0, EPOCH))
    assert kinds(done) == [e.Append, e.Sync]
    controller.node.passes(0)
    sent = controller.node.called("metadata").message
    assert isinstance(sent, m.FetchRequest)
    assert sent.topics[0].partitions[0].fetch_offset == 1


def test_a_broker_does_not_sync_the_metadata_since_no_majority_counts_it() -> None:
    done = QuorumBroker().commits(ROW)
    assert kinds(done)[0] is e.Append
    assert e.Sync not in kinds(done)


def test_a_follower_drops_from_its_disk_what_its_leader_does_not_have() -> None:
    controller = QuorumController()
    controller.follows(102, EPOCH, rows(0, EPOCH, 2) + rows(2, EPOCH))
    end = m.EpochEndOffset(epoch=EPOCH, end_offset=2)
    done = controller.follows(103, EPOCH + 1, diverging=end)
    assert in_order(done) == [e.Truncate(LOG_NAME, 2)]
    assert controller.core.log.end == 2
    (cut,) = controller.node.noted(MetadataTruncated)
    assert (cut.from_offset, cut.log_end) == (2, 3)


def test_a_follower_whose_leader_lacks_its_snapshot_begins_again_with_an_empty_log() -> None:
    controller = QuorumController(stored=DiskContents(snapshot=Snapshot(5, 1, rows(0, 1))))
    end = m.EpochEndOffset(epoch=0, end_offset=0)
    assert in_order(controller.follows(102, EPOCH, diverging=end)) == [e.Delete(LOG_NAME)]
    assert (controller.core.log.end, controller.core.raft.high_watermark) == (0, 0)


def test_a_fetched_snapshot_is_stored_before_the_log_that_it_replaces_is_dropped() -> None:
    """KIP-630: a crash between the two leaves more than is needed, and not less."""
    controller = QuorumController()
    snapshot = m.SnapshotId(end_offset=50, epoch=EPOCH)
    controller.follows(102, EPOCH, snapshot=snapshot)
    data = rows(0, EPOCH)
    part = snapshot_part(snapshot, data, leader=102, epoch=EPOCH)
    done = controller.node.answers("metadata", part)
    assert in_order(done)[:2] == [
        e.StoreSnapshot(LOG_NAME, 50, EPOCH, data),
        e.Truncate(LOG_NAME, 0),
    ]
    assert controller.core.raft.high_watermark == controller.core.log.end == 50


def test_a_snapshot_whose_parts_do_not_add_up_is_not_installed() -> None:
    controller = QuorumController()
    snapshot = m.SnapshotId(end_offset=50, epoch=EPOCH)
    controller.follows(102, EPOCH, snapshot=snapshot)
    wrong = snapshot_part(snapshot, b"x", position=7, leader=102, epoch=EPOCH)
    controller.node.answers("metadata", wrong)
    controller.node.passes(0)
    assert isinstance(controller.node.called("metadata").message, m.FetchRequest)
    assert controller.core.log.end == 0


# --------------------------------------------------------------------------------------- elections


def test_a_candidate_gives_no_other_one_its_vote_in_that_epoch() -> None:
    controller = QuorumController()
    controller.follows(102, EPOCH)
    controller.stands()
    epoch = controller.core.raft.epoch
    refused = vote(controller, 102, epoch)
    assert (refused.vote_granted, refused.leader_id) == (False, -1)
    assert vote(controller, 102, epoch + 1).vote_granted, "the next epoch is another election"


def test_a_voter_that_gave_its_vote_stands_itself_only_after_another_timeout() -> None:
    controller = QuorumController()
    controller.node.passes(0.05)
    assert vote(controller, 102, EPOCH).vote_granted
    controller.node.passes(0.9)
    assert controller.node.noted(ElectionStarted) == []
    (answered,) = controller.node.noted(VoteAnswered)
    assert (answered.candidate, answered.granted, answered.reason) == (102, True, "granted")


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
    assert not vote(controller, 103, EPOCH + 1).vote_granted
    assert controller.core.raft.epoch == EPOCH
    controller.node.now_ns += 200_000_000
    assert vote(controller, 103, EPOCH + 2).vote_granted


def test_a_voter_gives_its_vote_as_soon_as_its_leader_has_resigned() -> None:
    controller = QuorumController()
    controller.follows(102, EPOCH)
    (reply,) = controller.asks(messages.end_epoch(102, EPOCH))
    assert reply.message == messages.end_answer(EPOCH)
    (reply,) = controller.beat(1)
    assert isinstance(reply.message, m.BrokerHeartbeatResponse)
    assert reply.message.active_controller_id == -1
    result = vote(controller, 103, EPOCH + 1)
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
    done = controller.node.give(e.ShutdownAsked())
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
    controller.stands()
    controller.node.answers("quorum", messages.vote_answer(None, 2, granted=True))
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
    told = controller.node.called("quorum")
    assert isinstance(told.message, m.BeginQuorumEpochRequest)
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


# ------------------------------------------------------------------------------------------ fetches


def test_a_fetch_from_where_the_logs_differ_names_the_end_of_their_last_common_epoch() -> None:
    stored = DiskContents(metadata=(rows(0, 1, 3), rows(3, 4, 2)), vote=Vote(4))
    controller = QuorumController(CONTROLLER, stored=stored).elected()
    (longer,) = fetched(controller, 9, 4, last_epoch=1)
    assert longer.diverging_epoch == m.EpochEndOffset(epoch=1, end_offset=3)
    (other,) = fetched(controller, 9, 3, last_epoch=2)
    assert other.diverging_epoch == m.EpochEndOffset(epoch=1, end_offset=3)
    (same,) = fetched(controller, 9, 3, last_epoch=1)
    assert same.diverging_epoch.epoch == -1
    assert same.current_leader == m.LeaderIdAndEpoch(leader_id=CONTROLLER, leader_epoch=5)
    assert isinstance(same.records, bytes)
    assert record_batch.parse(same.records).base_offset == 3
    (empty,) = fetched(controller, 9, 0, last_epoch=-1)
    assert empty.diverging_epoch.epoch == -1
    assert empty.records


def test_a_fetch_from_before_the_log_is_sent_to_the_snapshot() -> None:
    """KIP-630."""
    stored = DiskContents(
        snapshot=Snapshot(5, 3, rows(0, 3)), metadata=(rows(5, 3, 2),), vote=Vote(3)
    )
    controller = QuorumController(CONTROLLER, stored=stored).elected()
    wanted = m.SnapshotId(end_offset=5, epoch=3)
    for offset, last_epoch in ((0, -1), (4, 3), (6, 2)):
        (answer,) = fetched(controller, 9, offset, last_epoch=last_epoch)
        assert answer.snapshot_id == wanted
    (answer,) = fetched(controller, 9, 5, last_epoch=3)
    assert answer.snapshot_id.epoch == -1
    assert answer.records


@pytest.mark.parametrize("wanted", [(5, 2), (4, 3)])
def test_a_snapshot_that_is_not_there_is_not_served(wanted: tuple[int, int]) -> None:
    stored = DiskContents(snapshot=Snapshot(5, 3, rows(0, 3)), vote=Vote(3))
    controller = QuorumController(CONTROLLER, stored=stored).elected()
    end, epoch = wanted
    asked = messages.fetch_snapshot(
        9, controller.core.raft.epoch, m.SnapshotId(end_offset=end, epoch=epoch), 0
    )
    (reply,) = controller.asks(asked)
    assert isinstance(reply.message, m.FetchSnapshotResponse)
    assert reply.message.topics[0].partitions[0].error_code == Error.SNAPSHOT_NOT_FOUND


def test_a_voter_that_fetches_a_snapshot_is_there_for_its_leader() -> None:
    """QC-36: the leader resigns only if no majority fetches."""
    controller = QuorumController().elected()
    asked = messages.fetch_snapshot(
        102, controller.core.raft.epoch, m.SnapshotId(end_offset=5, epoch=1), 0
    )
    for _ in range(4):
        controller.node.passes(1)
        controller.asks(asked, "node-102")
    assert controller.core.active


def test_a_fetch_of_an_earlier_epoch_is_fenced() -> None:
    controller = QuorumController(CONTROLLER, stored=DiskContents(vote=Vote(3))).elected()
    (answer,) = fetched(controller, 9, 0, last_epoch=-1, epoch=0)
    assert answer.error_code == Error.FENCED_LEADER_EPOCH
    (answer,) = fetched(controller, 9, 0, last_epoch=-1, epoch=-1)
    assert answer.error_code == Error.NONE, "it knows no leader yet"


# ---------------------------------------------------------------------------------- other leaders


def test_a_fetch_without_an_answer_is_repeated_at_the_next_controller_after_a_while() -> None:
    broker = QuorumBroker()
    for host in ("c-2", "c-3", "c-1"):
        lost = broker.node.called("metadata")
        broker.node.calls.remove(lost)
        done = broker.node.give(e.CallFailed(lost.call_id, "timed out"))
        assert calls(done, m.FetchRequest) == []
        broker.node.passes(0.5)
        assert broker.node.called("metadata").address[0] == host


def test_an_answer_about_nothing_is_as_good_as_no_answer() -> None:
    broker = QuorumBroker()
    done = broker.node.answers("metadata", m.FetchResponse(error_code=Error.NONE, responses=()))
    assert calls(done, m.FetchRequest) == []
    broker.node.passes(0.5)
    assert broker.node.called("metadata").address[0] == "c-2"


def test_a_node_fetches_from_the_leader_that_another_controller_names() -> None:
    broker = QuorumBroker()
    named = messages.fetch_answer(
        103, TERM + 1, high_watermark=0, error=Error.NOT_LEADER_OR_FOLLOWER
    )
    done = broker.node.answers("metadata", named)
    assert calls(done, m.FetchRequest) == ["c-3"]
    sent = broker.node.called("metadata").message
    assert isinstance(sent, m.FetchRequest)
    assert sent.topics[0].partitions[0].current_leader_epoch == TERM + 1


def test_a_node_takes_no_records_from_a_controller_that_does_not_lead() -> None:
    broker = QuorumBroker()
    answer = messages.fetch_answer(103, TERM + 1, high_watermark=1, data=rows(0, TERM))
    broker.node.answers("metadata", answer)
    assert broker.core.log.end == 0


def test_a_batch_that_is_damaged_is_fetched_from_another_controller() -> None:
    broker = QuorumBroker()
    damaged = rows(0, TERM)[:-1] + b"?"
    broker.learns(damaged)
    assert broker.core.log.end == 0
    broker.node.passes(0.5)
    assert broker.node.called("metadata").address[0] == "c-2"


def test_a_node_knows_how_far_the_metadata_is_committed_though_it_lacks_the_records() -> None:
    """QC-25: its metric says how far it is behind."""
    broker = QuorumBroker()
    end = m.EpochEndOffset(epoch=0, end_offset=0)
    answer = messages.fetch_answer(CONTROLLER, TERM, high_watermark=40, diverging=end)
    broker.node.answers("metadata", answer)
    assert broker.core.raft.last_stable == 40
    assert broker.core.raft.high_watermark == 0


def test_a_new_high_watermark_ends_the_wait_of_every_fetch() -> None:
    controller = QuorumController().elected()
    controller.beat(1, BrokerState.INITIAL)
    end, last = controller.core.log.end, controller.core.log.last_epoch
    fetched(controller, 9, end, last_epoch=last, wait_ms=500)
    assert fetched(controller, 9, end, last_epoch=last, wait_ms=500) == []
    answers = [one.high_watermark for one in parts(controller.fetched(102))]
    assert answers == [end, end], "that of the voter, and the one that waited"


def test_a_controller_without_a_leader_asks_the_others_for_one_but_a_candidate_does_not() -> None:
    controller = QuorumController()
    (host,) = calls(controller.node.give(e.Tick()), m.FetchRequest)
    assert host in ("c-2", "c-3")
    assert calls(controller.stands(), m.FetchRequest) == []
    alone = QuorumController(CONTROLLER)
    assert calls(alone.node.give(e.Tick()), m.FetchRequest) == []


def test_a_controller_with_the_lowest_id_leads_and_is_followed() -> None:
    """0 is an id like any other."""
    broker = QuorumBroker()
    voters = (m.NodeEndpoint(node_id=0, host="c-0", port=9093),)
    done = broker.node.answers(
        "metadata",
        messages.fetch_answer(
            0, TERM + 1, high_watermark=0, voters=voters, error=Error.NOT_LEADER_OR_FOLLOWER
        ),
    )
    assert calls(done, m.FetchRequest) == ["c-0"]
    assert broker.core.raft.leader == 0
    broker.node.answers(
        "metadata",
        messages.fetch_answer(0, TERM + 1, high_watermark=1, data=rows(0, TERM + 1)),
    )
    assert broker.core.committed.applied == 1
    lost = broker.node.called("heartbeat")
    broker.node.calls.remove(lost)
    broker.node.give(e.CallFailed(lost.call_id, "closed"))
    broker.node.passes(0.06)
    assert broker.node.called("heartbeat").address == ("c-0", 9093)
