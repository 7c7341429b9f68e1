"""Nodes whose metadata log belongs to two histories, after controllers lost their disks."""

from __future__ import annotations

import pytest
from quorum_bench import ROW, TOPIC, QuorumBroker, QuorumController

from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.quorum.raft import messages
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire import records as r

EPOCH = 5


@pytest.mark.parametrize(
    "record",
    [
        r.IsrChangeRecord(topic_id=TOPIC, partition_id=0, isr=(1,), leader=1, leader_epoch=1),
        r.PartitionRecord(topic_id=TOPIC, partition_id=0, replicas=(1,), isr=(1,)),
        r.DeleteTopicRecord(name=TOPIC),
    ],
)
def test_a_node_that_replays_a_record_about_an_unknown_partition_ends_with_a_sentence(
    record: r.Record,
) -> None:
    """Controllers that lost their disks give their followers logs that belong to two histories."""
    broker = QuorumBroker()
    broker.commits(ROW)
    done = broker.commits(record)
    (end,) = [one for one in done if isinstance(one, e.Exit)]
    assert end.code == e.EXIT_UNREADABLE
    assert "the metadata log cannot be read on: the record at offset 1" in end.reason
    assert str(TOPIC) in end.reason


def test_a_controller_that_is_elected_with_the_log_of_two_histories_ends_with_a_sentence() -> None:
    """The record is not committed: it is replayed only as the term begins."""
    controller = QuorumController()
    foreign = r.IsrChangeRecord(topic_id=TOPIC, partition_id=0, isr=(1,), leader=1, leader_epoch=1)
    controller.follows(102, EPOCH, record_batch.build([r.encode(foreign)], 0, EPOCH, 1))
    before = len(controller.node.effects)
    controller.stands()
    controller.node.answers(
        "quorum", messages.vote_answer(None, controller.core.raft.epoch, granted=True)
    )
    (end,) = [one for one in controller.node.effects[before:] if isinstance(one, e.Exit)]
    assert "unknown topic" in end.reason
