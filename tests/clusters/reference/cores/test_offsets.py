"""Offsets by time, as clients of Kafka ask for them."""

from __future__ import annotations

import pytest
from batches import timed
from quorum_bench import ME, OTHER, TOPIC, QuorumBroker
from world import World

from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error

BASE_MS = 1_700_000_000_000
FIRST = tuple(BASE_MS + 100 * n for n in range(10))
SECOND = (BASE_MS + 50, BASE_MS + 3000, BASE_MS + 2000)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A healthy cluster; the partition has two batches, of ten records and of three."""
    made = World(tmp_path_factory.mktemp("offsets") / "run")
    assert made.until(made.healthy, 20)
    for name in ("orders", "empty"):
        topic = m.CreatableTopic(name=name, num_partitions=1, replication_factor=3)
        made.answer("broker-1", m.CreateTopicsRequest(topics=(topic,), timeout=2000))
    made.run(2)
    for times in (FIRST, SECOND):
        data = m.PartitionProduceData(index=0, records=timed(times))
        topics = (m.TopicProduceData(name="orders", partition_data=(data,)),)
        request = m.ProduceRequest(acks=-1, timeout=2000, topic_data=topics)
        answer = made.answer(made.leader("orders"), request)
        assert isinstance(answer, m.ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == Error.NONE
    return made


def listed(
    world: World, timestamp: int, topic: str = "orders", epoch: int = -1
) -> m.ListOffsetsPartitionResponse:
    """The leader's answer to ListOffsets."""
    part = m.ListOffsetsPartition(
        partition_index=0, timestamp=timestamp, current_leader_epoch=epoch
    )
    request = m.ListOffsetsRequest(topics=(m.ListOffsetsTopic(name=topic, partitions=(part,)),))
    answer = world.answer(world.leader(topic), request)
    assert isinstance(answer, m.ListOffsetsResponse)
    (found,) = answer.topics[0].partitions
    return found


def epoch_end(world: World, wanted: int, known: int) -> m.OffsetForLeaderResult:
    """The leader's answer to a client that knows leader epoch `known`: where `wanted` ended."""
    part = m.OffsetForLeaderPartition(partition=0, leader_epoch=wanted, current_leader_epoch=known)
    topics = (m.OffsetForLeaderTopic(topic="orders", partitions=(part,)),)
    answer = world.answer(world.leader("orders"), m.OffsetForLeaderEpochRequest(topics=topics))
    assert isinstance(answer, m.OffsetForLeaderEpochResponse)
    (found,) = answer.topics[0].partitions
    return found


def offset(world: World, timestamp: int, topic: str = "orders") -> tuple[int, int, int]:
    """(error, offset, time) of the answer."""
    found = listed(world, timestamp, topic)
    return found.error_code, found.offset, found.timestamp


@pytest.mark.parametrize(
    ("wanted_ms", "found"),
    [
        (0, (0, BASE_MS)),
        (BASE_MS + 350, (4, BASE_MS + 400)),
        (BASE_MS + 900, (9, BASE_MS + 900)),
        (BASE_MS + 901, (11, BASE_MS + 3000)),
        (BASE_MS + 3001, (-1, -1)),
    ],
)
def test_a_time_gives_the_first_record_of_it_not_its_batch(
    world: World, wanted_ms: int, found: tuple[int, int]
) -> None:
    assert offset(world, wanted_ms) == (Error.NONE, *found)


def test_the_special_times_are_the_ends_of_the_log_and_the_greatest_time(world: World) -> None:
    assert offset(world, -1) == (Error.NONE, 13, -1)
    assert offset(world, -2) == (Error.NONE, 0, -1)
    assert offset(world, -3) == (Error.NONE, 11, BASE_MS + 3000)
    assert offset(world, -3, "empty") == (Error.NONE, -1, -1)


@pytest.mark.parametrize("timestamp", [-4, -5, -6, -1000])
def test_other_negative_times_are_refused(world: World, timestamp: int) -> None:
    """They are of tiered storage, or unknown: no record has such a time."""
    assert offset(world, timestamp) == (Error.UNSUPPORTED_VERSION, -1, -1)


def test_an_answer_is_of_the_leader_epoch_that_the_client_knows(world: World) -> None:
    epoch = world.partition("orders").leader_epoch
    assert listed(world, -1, epoch=epoch).leader_epoch == epoch
    assert listed(world, BASE_MS, epoch=epoch).leader_epoch == epoch
    assert listed(world, -1, epoch=epoch + 1).error_code == Error.UNKNOWN_LEADER_EPOCH
    assert epoch_end(world, epoch, epoch).end_offset == 13
    assert epoch_end(world, epoch, epoch + 1).error_code == Error.UNKNOWN_LEADER_EPOCH
    world.kill(world.leader("orders"))
    assert world.until(lambda: world.partition("orders").leader_epoch > epoch)
    world.run(3)
    assert listed(world, BASE_MS, epoch=epoch).error_code == Error.FENCED_LEADER_EPOCH
    assert epoch_end(world, epoch, epoch).error_code == Error.FENCED_LEADER_EPOCH
    assert epoch_end(world, epoch, -1).end_offset == 13
    assert listed(world, BASE_MS).leader_epoch == epoch, "the record's own epoch"
    assert listed(world, -1).leader_epoch > epoch


def test_no_offset_of_a_group_is_committed(world: World) -> None:
    """Consumer groups do not exist here; a client that asks begins where its own setting says."""
    asked = m.OffsetFetchRequestTopic(name="orders", partition_indexes=(0, 7))
    for topics, expected in (((asked,), [("orders", 0), ("orders", 7)]), (None, [])):
        request = m.OffsetFetchRequest(group_id="readers", topics=topics)
        answer = world.answer(world.leader("orders"), request)
        assert isinstance(answer, m.OffsetFetchResponse)
        parts = [(topic.name, part) for topic in answer.topics for part in topic.partitions]
        assert [(name, part.partition_index) for name, part in parts] == expected
        assert {(part.committed_offset, part.error_code) for _, part in parts} <= {(-1, 0)}


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [
        (-1, (Error.LEADER_NOT_AVAILABLE, -1)),
        (BASE_MS, (Error.LEADER_NOT_AVAILABLE, -1)),
        (-2, (Error.NONE, 0)),
    ],
    ids=["latest", "a time", "earliest"],
)
def test_a_new_leader_names_no_offset_that_may_be_below_one_that_was_named_before(
    timestamp: int, found: tuple[Error, int]
) -> None:
    """KIP-207: it does not know yet how much of its log is committed."""
    broker = QuorumBroker().activates().holds(OTHER)
    records = m.PartitionData(
        partition_index=0, error_code=Error.NONE, high_watermark=0, records=timed(FIRST)
    )
    broker.replicates(records)
    broker.holds(ME, epoch=1)
    part = m.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = m.ListOffsetsRequest(topics=(m.ListOffsetsTopic(name="orders", partitions=(part,)),))
    (reply,) = broker.node.asks("CLIENT", request)
    assert isinstance(reply.message, m.ListOffsetsResponse)
    (answer,) = reply.message.topics[0].partitions
    assert (answer.error_code, answer.offset) == found
    assert broker.core.data.replicas.by_key[TOPIC, 0].log.end == len(FIRST)
