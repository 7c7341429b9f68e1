"""The download of a leader's snapshot by a node that lacks dropped records, without a cluster
(KIP-630)."""

from __future__ import annotations

import pytest
from quorum_bench import (
    CONTROLLER,
    CONTROLLERS,
    TERM,
    QuorumBroker,
    QuorumController,
    rows,
    snapshot_part,
)

from fencepost_clusters.reference.assembly import DiskContents
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.quorum.raft.messages import fetch_answer, snapshot_answer
from fencepost_clusters.reference.core.quorum.raft.metadata_log import LOG_NAME, Snapshot
from fencepost_clusters.reference.core.quorum.raft.snapshot_download import Download
from fencepost_clusters.reference.core.quorum.raft.timing import Vote
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error

SNAPSHOT = m.SnapshotId(end_offset=50, epoch=TERM)


@pytest.fixture
def broker() -> QuorumBroker:
    return QuorumBroker().activates()


def is_sent_to(
    broker: QuorumBroker,
    snapshot: m.SnapshotId = SNAPSHOT,
    *,
    leader: int = CONTROLLER,
    epoch: int = TERM,
) -> None:
    """A leader answers a fetch with the snapshot that replaces the records."""
    answer = fetch_answer(leader, epoch, high_watermark=broker.end, snapshot=snapshot)
    broker.node.answers("metadata", answer)


def wanted(of: QuorumBroker | QuorumController) -> tuple[m.SnapshotId, int]:
    """The snapshot that a node asks for, and from where on."""
    sent = of.node.called("metadata").message
    assert isinstance(sent, m.FetchSnapshotRequest)
    part = sent.topics[0].partitions[0]
    return part.snapshot_id, part.position


def test_a_controller_that_is_no_voter_any_more_is_not_asked_for_its_snapshot(
    broker: QuorumBroker,
) -> None:
    """It leads until its removal is committed, and its answer names the other voters."""
    left = tuple(one for one in CONTROLLERS if one.node_id != CONTROLLER)
    snapshot = m.SnapshotId(end_offset=90, epoch=TERM)
    sent_to = fetch_answer(
        CONTROLLER, TERM, high_watermark=broker.end, snapshot=snapshot, voters=left
    )
    broker.node.answers("metadata", sent_to)
    assert broker.core.raft.leader is None
    broker.node.passes(0.2)
    asked = broker.node.called("metadata")
    assert isinstance(asked.message, m.FetchRequest)
    assert asked.address in {(one.host, one.port) for one in left}


def test_the_parts_of_one_snapshot_do_not_count_for_the_next(broker: QuorumBroker) -> None:
    """QC-11: the leader may store another one while a broker fetches the first."""
    first, second = (m.SnapshotId(end_offset=end, epoch=TERM) for end in (50, 60))
    sent_to = fetch_answer(CONTROLLER, TERM, high_watermark=broker.end, snapshot=first)
    broker.node.answers("metadata", sent_to)
    broker.node.answers("metadata", snapshot_part(first, b"x" * 40, size=100))
    assert wanted(broker) == (first, 40)
    broker.node.answers("metadata", snapshot_part(second, b"x", size=100))
    asked = broker.node.called("metadata").message
    assert isinstance(asked, m.FetchRequest), "a part that does not fit ends a download"
    sent_to = fetch_answer(CONTROLLER, TERM, high_watermark=broker.end, snapshot=second)
    broker.node.answers("metadata", sent_to)
    assert wanted(broker) == (second, 0)


def test_a_snapshot_is_there_with_its_last_part() -> None:
    """A leader that is asked for more than there is has deleted the snapshot by then, perhaps."""
    download = Download()
    download.request(SNAPSHOT, 1, TERM)
    parts = [snapshot_part(SNAPSHOT, b"x" * 4, position=at, size=8) for at in (0, 4)]
    first, last = (one.topics[0].partitions[0] for one in parts)
    assert download.take(first) is None
    assert download.take(last) == Snapshot(SNAPSHOT.end_offset, SNAPSHOT.epoch, b"x" * 8)
    assert download.wanted is None


@pytest.mark.parametrize("data", [b"", b"x" * 80], ids=["too short", "too long"])
def test_a_snapshot_that_is_not_as_long_as_it_was_said_to_be_is_not_stored(
    broker: QuorumBroker, data: bytes
) -> None:
    snapshot = m.SnapshotId(end_offset=50, epoch=TERM)
    sent_to = fetch_answer(CONTROLLER, TERM, high_watermark=broker.end, snapshot=snapshot)
    broker.node.answers("metadata", sent_to)
    broker.node.answers("metadata", snapshot_part(snapshot, b"x" * 40, size=100))
    broker.node.answers("metadata", snapshot_part(snapshot, data, position=40, size=100))
    asked = broker.node.called("metadata").message
    assert isinstance(asked, m.FetchRequest), "it asks the leader anew"
    stored = [one.offset for one in broker.node.effects if isinstance(one, e.StoreSnapshot)]
    assert 50 not in stored


@pytest.mark.parametrize("epoch", [0, TERM])
def test_a_node_downloads_the_snapshot_to_which_its_leader_sends_it(
    broker: QuorumBroker, epoch: int
) -> None:
    """0 is an epoch like any other; without a snapshot the answer has -1."""
    snapshot = m.SnapshotId(end_offset=50, epoch=epoch)
    is_sent_to(broker, snapshot)
    assert wanted(broker) == (snapshot, 0)


def test_the_parts_of_one_leader_do_not_count_for_the_next(broker: QuorumBroker) -> None:
    """QC-11: another controller writes the same state in other bytes."""
    is_sent_to(broker)
    broker.node.answers("metadata", snapshot_part(SNAPSHOT, b"x" * 40, size=100))
    assert wanted(broker) == (SNAPSHOT, 40)
    broker.node.passes(0.4)
    broker.beats(epoch=1, controller=(102, TERM + 1))
    is_sent_to(broker, leader=102, epoch=TERM + 1)
    assert wanted(broker) == (SNAPSHOT, 0)


def test_a_download_that_is_refused_begins_again() -> None:
    """The position may be past the end of what the leader has."""
    voter = QuorumController()
    voter.follows(102, TERM, snapshot=SNAPSHOT)
    voter.node.answers("metadata", snapshot_part(SNAPSHOT, b"x" * 40, size=100, leader=102))
    assert wanted(voter) == (SNAPSHOT, 40)
    part = m.PartitionSnapshotData(
        index=0,
        error_code=Error.POSITION_OUT_OF_RANGE,
        snapshot_id=SNAPSHOT,
        current_leader=m.LeaderIdAndEpoch(leader_id=102, leader_epoch=TERM),
        size=-1,
        position=40,
        unaligned_records=b"",
    )
    voter.node.answers("metadata", snapshot_answer(part))
    voter.node.passes(0.2)
    voter.follows(102, TERM, snapshot=SNAPSHOT)
    assert wanted(voter) == (SNAPSHOT, 0)


@pytest.mark.parametrize("end", [5, 6])
def test_a_log_that_is_cut_down_to_its_snapshot_keeps_that(end: int) -> None:
    """Only a leader that lacks the snapshot, too, has a node begin with nothing."""
    stored = DiskContents(
        snapshot=Snapshot(5, 3, rows(0, 3)), metadata=(rows(5, 3, 2),), vote=Vote(4)
    )
    controller = QuorumController(stored=stored)
    done = controller.follows(102, 5, diverging=m.EpochEndOffset(epoch=3, end_offset=end))
    cuts = [one for one in done if isinstance(one, e.Truncate | e.Delete)]
    assert cuts == [e.Truncate(LOG_NAME, 5)]
    assert controller.core.log.end == 5
