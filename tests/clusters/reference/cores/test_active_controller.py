"""A quorum of one controller: the work of an earlier controller that it finishes, and requests of
strangers that it refuses."""

from __future__ import annotations

import uuid

import pytest
from quorum_bench import CONTROLLER, QuorumController, replies

from fencepost_clusters.reference.assembly import DiskContents
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.quorum.raft.messages import fetch
from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error

GHOST = 109


@pytest.fixture
def controller() -> QuorumController:
    return QuorumController(CONTROLLER).elected()


def test_a_deletion_that_was_only_marked_is_finished_by_the_next_controller() -> None:
    """QC-26: the controller that marked the topic may fail before it deletes it."""
    topic = uuid.UUID(int=7)
    records = [
        r.TopicRecord(name="orders", topic_id=topic),
        r.TopicRecord(name="kept", topic_id=uuid.UUID(int=8)),
        r.TopicRecord(name="orders", topic_id=topic, deleting=True),
    ]
    data = record_batch.build([r.encode(one, 1) for one in records], 0, 1, 1)
    controller = QuorumController(CONTROLLER, stored=DiskContents(metadata=(data,))).elected()
    controller.node.give(e.Tick())
    assert list(controller.core.committed.image.topics) == ["kept"]


def test_a_controller_that_never_fetched_gets_no_vote(controller: QuorumController) -> None:
    """Otherwise the quorum would wait for a voter that may not exist."""
    listener = a.RaftVoterListener(name="CONTROLLER", host="nowhere", port=9093)
    (answer,) = controller.asks(
        a.AddRaftVoterRequest(cluster_id=None, timeout=1_000, voter_id=GHOST, listeners=(listener,))
    )
    assert isinstance(answer.message, a.AddRaftVoterResponse)
    assert answer.message.error_code == Error.REQUEST_TIMED_OUT
    assert controller.core.active


def test_a_fetch_that_asks_to_wait_for_weeks_is_answered_within_half_a_minute(
    controller: QuorumController,
) -> None:
    end, epoch = controller.core.log.end, controller.core.raft.epoch
    asked = fetch(end, epoch, epoch, 2**31 - 1, m.ReplicaState(replica_id=GHOST))
    controller.asks(asked)  # answered at once: it did not know the committed offset
    assert not controller.asks(asked), "it waits: there is nothing new"
    before = len(controller.node.effects)
    controller.node.passes(29)
    assert not replies(controller.node.effects[before:])
    controller.node.passes(2)
    (answer,) = replies(controller.node.effects[before:])
    assert isinstance(answer.message, m.FetchResponse)
