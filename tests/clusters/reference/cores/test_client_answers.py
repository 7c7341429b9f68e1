"""The answers of one broker to clients that it does not serve, without a cluster."""

from __future__ import annotations

import pytest
from quorum_bench import ME, OTHER, TOPIC, QuorumBroker

from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error


@pytest.fixture
def broker() -> QuorumBroker:
    return QuorumBroker().activates()


def elsewhere(broker: QuorumBroker) -> QuorumBroker:
    """Another broker has the only replica of the topic."""
    part = r.PartitionRecord(
        partition_id=0, topic_id=TOPIC, replicas=(OTHER,), isr=(OTHER,), leader=OTHER,
        leader_epoch=0,
    )  # fmt: skip
    broker.commits(r.TopicRecord(name="orders", topic_id=TOPIC), part)
    return broker


def offset(broker: QuorumBroker, timestamp: int) -> m.ListOffsetsPartitionResponse:
    """Its answer to ListOffsets."""
    part = m.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topics = (m.ListOffsetsTopic(name="orders", partitions=(part,)),)
    (reply,) = broker.node.asks("CLIENT", m.ListOffsetsRequest(topics=topics))
    assert isinstance(reply.message, m.ListOffsetsResponse)
    return reply.message.topics[0].partitions[0]


def epoch_end(broker: QuorumBroker, epoch: int) -> m.OffsetForLeaderResult:
    """Its answer to OffsetForLeaderEpoch."""
    part = m.OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
    topics = (m.OffsetForLeaderTopic(topic="orders", partitions=(part,)),)
    (reply,) = broker.node.asks("CLIENT", m.OffsetForLeaderEpochRequest(topics=topics))
    assert isinstance(reply.message, m.OffsetForLeaderEpochResponse)
    return reply.message.topics[0].partitions[0]


def test_a_write_in_a_transaction_ends_the_connection_and_stores_nothing(
    broker: QuorumBroker,
) -> None:
    """A client that asks first is refused a producer id for transactions."""
    broker.holds(ME, isr=(ME,))
    data = m.PartitionProduceData(index=0, records=record_batch.build([b"x"], 0, -1, 1))
    topics = (m.TopicProduceData(name="orders", partition_data=(data,)),)
    request = m.ProduceRequest(
        transactional_id="payments", acks=-1, timeout=1000, topic_data=topics
    )
    assert broker.node.asks("CLIENT", request) == []
    (closed,) = (one for one in broker.node.effects if isinstance(one, e.Close))
    assert "transactions" in closed.reason
    assert broker.core.data.replicas.by_key[TOPIC, 0].log.end == 0


@pytest.mark.parametrize("timestamp", [-1, -2, 0], ids=["latest", "earliest", "a time"])
def test_only_the_leader_knows_the_offsets_of_a_partition(
    broker: QuorumBroker, timestamp: int
) -> None:
    """A follower's high watermark may be below the one that the leader named."""
    broker.holds(OTHER)
    refused = offset(broker, timestamp)
    assert (refused.error_code, refused.offset) == (Error.NOT_LEADER_OR_FOLLOWER, -1)
    broker.holds(ME, epoch=1)
    assert offset(broker, -2).error_code == Error.NONE


def test_only_the_leader_knows_where_an_epoch_ended(broker: QuorumBroker) -> None:
    """KIP-320: a follower may have yet to truncate its log."""
    broker.holds(OTHER)
    refused = epoch_end(broker, 0)
    assert (refused.error_code, refused.end_offset) == (Error.NOT_LEADER_OR_FOLLOWER, -1)
    broker.holds(ME, epoch=1)
    assert epoch_end(broker, 0).error_code == Error.NONE


def test_a_broker_without_a_replica_sends_the_client_to_the_leader(broker: QuorumBroker) -> None:
    elsewhere(broker)
    assert offset(broker, -1).error_code == Error.NOT_LEADER_OR_FOLLOWER
    assert epoch_end(broker, 0).error_code == Error.NOT_LEADER_OR_FOLLOWER
