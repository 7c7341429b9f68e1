"""The quorum's log at one node: leaders, followers and observers of it, without a cluster (KIP-595,
KIP-630)."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from quorum_bench import (
    CONTROLLER,
    ME,
    ROW,
    TERM,
    QuorumBroker,
    QuorumController,
    calls,
    fetched,
    in_order,
    kinds,
    parts,
    registration,
    rows,
    snapshot_part,
    voted,
)

from fencepost_clusters.reference.assembly import DiskContents
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.quorum.broker_state import BrokerState
from fencepost_clusters.reference.core.quorum.raft import messages, serving
from fencepost_clusters.reference.core.quorum.raft.metadata_log import LOG_NAME, Snapshot
from fencepost_clusters.reference.core.quorum.raft.timing import Vote
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import ElectionStarted, MetadataTruncated

EPOCH = 5


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
    assert kinds(done) == [e.Append, e.Sync, e.Call]
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


SLICES = {"metadata_snapshot_interval_records": "10", "metadata_snapshot_slice_records": "1"}


def test_a_broker_that_registers_stores_its_present_state_in_place_of_one_that_it_is_writing() -> (
    None
):
    """REG-04."""
    broker = QuorumBroker(**SLICES)
    broker.commits(*(registration(n, uuid.UUID(int=n), n) for n in range(10, 20)))
    assert broker.core.snapshots.under_way
    broker.commits(ROW)
    done = broker.beats(BrokerState.FENCED)
    assert [one.offset for one in done if isinstance(one, e.StoreSnapshot)] == [11]
    assert not broker.core.snapshots.under_way


def test_a_leaders_snapshot_ends_the_older_one_that_a_broker_is_writing() -> None:
    """The log no longer has what that one describes."""
    broker = QuorumBroker(**SLICES).activates()
    broker.commits(*[ROW] * 10)
    assert broker.core.snapshots.under_way
    broker.node.now_ns += 1
    snapshot = m.SnapshotId(end_offset=50, epoch=TERM)
    sent_to = messages.fetch_answer(CONTROLLER, TERM, high_watermark=50, snapshot=snapshot)
    broker.node.answers("metadata", sent_to)
    before = len(broker.node.effects)
    broker.node.answers("metadata", snapshot_part(snapshot, rows(0, TERM)))
    broker.node.passes(1)
    done = broker.node.effects[before:]
    assert [one.offset for one in done if isinstance(one, e.StoreSnapshot)] == [50]


def test_a_broker_drops_the_replicas_that_a_leaders_snapshot_does_not_name() -> None:
    """QC-11: the record that deletes their topic is one that the snapshot replaced."""
    broker = QuorumBroker().activates().holds(ME)
    (one,) = broker.core.data.replicas.all()
    mine = registration(ME, broker.core.lifecycle.incarnation, 1)
    data = record_batch.build([r.encode(mine)], 0, TERM, 1)
    snapshot = m.SnapshotId(end_offset=50, epoch=TERM)
    sent_to = messages.fetch_answer(CONTROLLER, TERM, high_watermark=50, snapshot=snapshot)
    broker.node.answers("metadata", sent_to)
    done = broker.node.answers("metadata", snapshot_part(snapshot, data))
    assert e.Delete(one.name) in done
    assert broker.core.data.replicas.all() == ()


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


def test_a_voter_that_is_sent_to_a_snapshot_is_there_for_its_leader() -> None:
    """QC-36."""
    stored = DiskContents(snapshot=Snapshot(5, 3, rows(0, 3)), vote=Vote(3))
    controller = QuorumController(stored=stored).elected()
    for _ in range(4):
        controller.node.passes(1)
        (answer,) = fetched(controller, 102, 0, last_epoch=-1)
        assert answer.snapshot_id.end_offset == 5
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


def test_a_new_record_ends_the_wait_of_every_fetch_at_once() -> None:
    controller = QuorumController().elected()
    waits = controller.followed()
    assert waits == []
    assert len(parts(controller.beat(1, BrokerState.INITIAL))) == 2


def test_fetches_that_wait_are_looked_at_when_the_log_has_changed_and_not_before() -> None:
    """A leader of many brokers has as many fetches that wait, in each of its steps."""
    controller = QuorumController().elected()
    controller.followed()
    controller.node.give(e.Tick())
    looked_at = Mock(return_value=controller.core.raft.high_watermark)
    known: Any = SimpleNamespace(get=looked_at)
    controller.core.raft._serving._answered_watermarks = known
    for _ in range(3):
        controller.node.give(e.Tick())
    assert looked_at.call_count == 0


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


@pytest.mark.parametrize("topics", [(), (m.VoteTopicResult(topic_name="x", partitions=()),)])
def test_a_vote_about_no_partition_counts_as_none(topics: tuple[m.VoteTopicResult, ...]) -> None:
    controller = QuorumController()
    controller.stands()
    controller.node.answers("quorum", m.VoteResponse(error_code=Error.NONE, topics=topics))
    assert not controller.core.active


def test_a_leader_remembers_so_many_nodes_that_fetch_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Any process may invent ids. A forgotten client gets one answer more."""
    monkeypatch.setattr(serving, "MOST_KNOWN", 2)
    controller = QuorumController(CONTROLLER).elected()
    end, last = controller.core.log.end, controller.core.log.last_epoch
    waits = [fetched(controller, 1, end, last_epoch=last, wait_ms=500) for _ in range(2)]
    assert [len(one) for one in waits] == [1, 0]
    for stranger in (2, 3):
        fetched(controller, stranger, end, last_epoch=last, wait_ms=500)
    assert controller.core.raft.observed.keys() == {1, 2}
    assert len(fetched(controller, 1, end, last_epoch=last, wait_ms=500)) == 1
    controller.node.now_ns += 1_000_000_000
    fetched(controller, 1, end, last_epoch=last)
    assert controller.core.raft.observed[1].at_ms == controller.node.now.wall_ms


def test_a_follower_that_hears_from_its_leader_stands_for_no_election() -> None:
    controller = QuorumController()
    controller.follows(102, EPOCH)
    for _ in range(40):
        controller.node.passes(0.25)
        answer = messages.fetch_answer(102, EPOCH, high_watermark=0)
        controller.node.answers("metadata", answer)
    assert controller.node.noted(ElectionStarted) == []


def test_a_voter_whose_leader_says_that_it_leads_no_longer_may_vote_for_another() -> None:
    controller = QuorumController()
    controller.follows(102, EPOCH)
    controller.node.passes(0)
    resigned = messages.fetch_answer(
        None, EPOCH, high_watermark=0, error=Error.NOT_LEADER_OR_FOLLOWER
    )
    controller.node.answers("metadata", resigned)
    assert voted(controller, 103, EPOCH + 1).vote_granted


def test_a_standby_whose_fetch_failed_fetches_again() -> None:
    controller = QuorumController()
    controller.follows(102, EPOCH)
    controller.node.passes(0)
    lost = controller.node.called("metadata")
    controller.node.calls.remove(lost)
    before = len(controller.node.effects)
    controller.node.give(e.CallFailed(lost.call_id, "closed"))
    controller.node.passes(0.5)
    assert calls(controller.node.effects[before:], m.FetchRequest) == ["c-2"]


def test_a_standby_fetches_from_a_leader_that_announces_itself_at_once() -> None:
    """It does not wait as after a fetch that failed."""
    controller = QuorumController()
    controller.follows(102, EPOCH)
    controller.node.passes(0)
    lost = controller.node.called("metadata")
    controller.node.calls.remove(lost)
    controller.node.give(e.CallFailed(lost.call_id, "closed"))
    before = len(controller.node.effects)
    controller.asks(messages.begin_epoch(103, EPOCH + 1))
    controller.node.passes(0)
    assert calls(controller.node.effects[before:], m.FetchRequest) == ["c-3"]


def test_a_broker_whose_fetch_failed_asks_the_leader_that_answers_its_heartbeat_at_once() -> None:
    """The leader may be the same one in the same epoch: only the connection broke."""
    broker = QuorumBroker()
    lost = broker.node.called("metadata")
    broker.node.calls.remove(lost)
    broker.node.give(e.CallFailed(lost.call_id, "closed"))
    done = broker.beats(BrokerState.FENCED)
    assert calls(done, m.FetchRequest) == ["c-1"]


def test_a_broker_follows_no_leader_of_an_earlier_epoch_that_answers_its_heartbeat() -> None:
    broker = QuorumBroker()
    named = messages.fetch_answer(
        103, TERM + 1, high_watermark=0, error=Error.NOT_LEADER_OR_FOLLOWER
    )
    broker.node.answers("metadata", named)
    broker.beats(BrokerState.FENCED)
    assert (broker.core.raft.leader, broker.core.raft.epoch) == (103, TERM + 1)


def test_what_a_voter_had_in_an_earlier_term_does_not_count_in_the_next_one() -> None:
    """The voter may have dropped it for another leader. Of five, it and one more are no majority
    with the leader unless both have fetched."""
    controller = QuorumController(101, 102, 103, 104, 105)
    controller.stands()
    for _ in range(2):
        controller.node.answers("quorum", messages.vote_answer(None, 1, granted=True))
    controller.fetched(102)
    old_end = controller.core.log.end
    assert controller.core.raft.high_watermark == 0
    controller.follows(103, 2, diverging=m.EpochEndOffset(epoch=0, end_offset=0))
    assert controller.core.log.end == 0
    controller.stands()
    for _ in range(2):
        controller.node.answers("quorum", messages.vote_answer(None, 3, granted=True))
    assert controller.core.active
    assert controller.core.log.end == old_end
    controller.fetched(104)
    assert controller.core.raft.high_watermark == 0
    controller.fetched(105)
    assert controller.core.raft.high_watermark == old_end
