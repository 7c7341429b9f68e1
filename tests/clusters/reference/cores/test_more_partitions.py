"""CreatePartitions: a topic gets more partitions, which serve at once, or keeps those it has."""

from __future__ import annotations

import pytest
from world import BROKERS, PLANES, Reference, World

from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import KafkaView

BROKER = "broker-1"


@pytest.fixture(params=PLANES, ids=lambda plane: plane.name)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A healthy cluster of each plane, with a topic of two partitions on two brokers each."""
    plane: Reference = request.param
    made = World(tmp_path_factory.mktemp("more") / "run", system=plane)
    assert made.until(made.healthy, 20)
    topic = m.CreatableTopic(name="orders", num_partitions=2, replication_factor=2)
    made.certain(BROKER, m.CreateTopicsRequest(topics=(topic,), timeout=2000))
    made.run(2)
    return made


def extend(world: World, *asked: a.CreatePartitionsTopic, validate_only: bool = False) -> list[int]:
    """The error of each topic."""
    request = a.CreatePartitionsRequest(topics=asked, timeout=2000, validate_only=validate_only)
    answer = world.answer(BROKER, request)
    assert isinstance(answer, a.CreatePartitionsResponse)
    world.run(2)
    return [one.error_code for one in answer.results]


def to(count: int, *brokers: tuple[int, ...], name: str = "orders") -> a.CreatePartitionsTopic:
    placed = tuple(a.CreatePartitionsAssignment(broker_ids=one) for one in brokers)
    return a.CreatePartitionsTopic(name=name, count=count, assignments=placed or None)


def replicas(world: World) -> dict[int, tuple[int, ...]]:
    """The replicas of each partition, by the committed metadata."""
    known = world.runtime.view.of(KafkaView).partitions
    return {index: one.replicas for (topic, index), one in known.items() if topic == "orders"}


def produce(world: World, index: int) -> int:
    leader = world.runtime.view.of(KafkaView).partitions["orders", index].leader
    data = m.PartitionProduceData(index=index, records=record_batch.build([b"x"], 0, -1, 1))
    topics = (m.TopicProduceData(name="orders", partition_data=(data,)),)
    request = m.ProduceRequest(acks=-1, timeout=2000, topic_data=topics)
    answer = world.answer(f"broker-{leader}", request)
    assert isinstance(answer, m.ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code


def test_new_partitions_are_placed_after_the_old_ones_and_serve(world: World) -> None:
    before = replicas(world)
    assert extend(world, to(4)) == [Error.NONE]
    after = replicas(world)
    assert sorted(after) == [0, 1, 2, 3]
    assert {index: after[index] for index in before} == before
    assert {len(set(one)) for one in after.values()} == {2}
    assert [produce(world, index) for index in range(4)] == [Error.NONE] * 4


def test_new_partitions_are_placed_where_the_request_says(world: World) -> None:
    assert extend(world, to(4, (3, 1), (2, 3))) == [Error.NONE]
    assert (replicas(world)[2], replicas(world)[3]) == ((3, 1), (2, 3))


def test_a_new_partition_may_be_placed_on_all_live_brokers(world: World) -> None:
    topic = m.CreatableTopic(name="everywhere", num_partitions=1, replication_factor=len(BROKERS))
    world.certain(BROKER, m.CreateTopicsRequest(topics=(topic,), timeout=2000))
    world.run(2)
    assert extend(world, to(2, (3, 1, 2), name="everywhere")) == [Error.NONE]


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (to(2), Error.INVALID_PARTITIONS),
        (to(1), Error.INVALID_PARTITIONS),
        (to(10_001), Error.INVALID_PARTITIONS),
        (to(3, name="nowhere"), Error.UNKNOWN_TOPIC_OR_PARTITION),
        (to(4, (1, 2)), Error.INVALID_REPLICA_ASSIGNMENT),
        (to(3, (1, 1)), Error.INVALID_REPLICA_ASSIGNMENT),
        (to(3, (1, 9)), Error.INVALID_REPLICA_ASSIGNMENT),
        (to(3, (1, 2, 3)), Error.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_topic_keeps_its_partitions(
    world: World, asked: a.CreatePartitionsTopic, error: Error
) -> None:
    assert extend(world, asked) == [error]
    assert sorted(replicas(world)) == [0, 1]


def test_a_request_that_only_asks_changes_nothing(world: World) -> None:
    assert extend(world, to(3), validate_only=True) == [Error.NONE]
    assert extend(world, to(3), to(4)) == [Error.INVALID_REQUEST] * 2
    assert extend(world, to(10_000), validate_only=True) == [Error.NONE], "the most there may be"
    assert sorted(replicas(world)) == [0, 1]


def test_a_topic_is_deleted_with_its_new_partitions(world: World) -> None:
    assert extend(world, to(4)) == [Error.NONE]
    world.certain("broker-2", m.DeleteTopicsRequest(topic_names=("orders",), timeout=2000))
    assert world.until(lambda: "orders" not in world.runtime.view.of(KafkaView).topics)
    logs = {log for slot in BROKERS for log in world.disk(slot).logs}
    assert not [log for log in logs if "orders" in log]
