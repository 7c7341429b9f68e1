"""The bytes that a client's fetch wants at least and allows at most, and those of a replica."""

from __future__ import annotations

import pytest
from world import World

from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire.errors import Error

BATCH = record_batch.build([b"." * 1000], 0, -1, 1)
SIZE = len(BATCH)
BROKER = "broker-1"
MANY = 1 << 20


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A healthy cluster; broker 1 leads three partitions with three batches of equal size each."""
    made = World(tmp_path_factory.mktemp("limits") / "run")
    assert made.until(made.healthy, 20)
    places = tuple(
        m.CreatableReplicaAssignment(partition_index=n, broker_ids=(1, 2)) for n in range(3)
    )
    topic = m.CreatableTopic(
        name="orders", num_partitions=-1, replication_factor=-1, assignments=places
    )
    made.answer(BROKER, m.CreateTopicsRequest(topics=(topic,), timeout=2000))
    made.run(2)
    for index in (0, 1, 2) * 3:
        produce(made, index)
    return made


def produce(world: World, index: int) -> None:
    data = m.PartitionProduceData(index=index, records=BATCH)
    topics = (m.TopicProduceData(name="orders", partition_data=(data,)),)
    answer = world.answer(BROKER, m.ProduceRequest(acks=-1, timeout=2000, topic_data=topics))
    assert isinstance(answer, m.ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == Error.NONE


def fetch(
    offsets: tuple[int, ...] = (0, 0, 0),
    *,
    max_wait: int = 0,
    min_bytes: int = 1,
    max_bytes: int = MANY,
    partition_max_bytes: int = MANY,
) -> m.FetchRequest:
    parts = tuple(
        m.FetchPartition(
            partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes
        )
        for index, offset in enumerate(offsets)
    )
    return m.FetchRequest(
        max_wait=max_wait,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=(m.FetchTopic(partitions=parts, topic="orders"),),
    )


def sizes(answer: m.Response | None) -> list[int]:
    """The bytes of each partition in an answer without an error."""
    assert isinstance(answer, m.FetchResponse)
    (topic,) = answer.responses
    assert {part.error_code for part in topic.partitions} == {Error.NONE}
    return [len(part.records) for part in topic.partitions if isinstance(part.records, bytes)]


@pytest.mark.parametrize(
    ("most", "of_partition", "batches"),
    [
        (MANY, MANY, [3, 3, 3]),
        (4 * SIZE, MANY, [3, 1, 0]),
        (4 * SIZE - 1, MANY, [3, 0, 0]),
        (4 * SIZE, 2 * SIZE, [2, 2, 0]),
        (MANY, SIZE, [1, 1, 1]),
        (SIZE - 1, MANY, [1, 0, 0]),
        (MANY, SIZE - 1, [1, 0, 0]),
        (0, 0, [1, 0, 0]),
    ],
)
def test_an_answer_has_no_more_bytes_than_allowed_but_one_batch_at_least(
    world: World, most: int, of_partition: int, batches: list[int]
) -> None:
    answer = world.answer(BROKER, fetch(max_bytes=most, partition_max_bytes=of_partition))
    assert sizes(answer) == [count * SIZE for count in batches]


def test_a_fetch_gets_less_than_it_wants_when_its_time_is_up(world: World) -> None:
    began_ns = world.now_ns
    answer = world.answer(BROKER, fetch((2, 9, 9), max_wait=500, min_bytes=MANY))
    assert isinstance(answer, m.FetchResponse), "offset 9 is beyond the log: an error at once"
    assert world.now_ns - began_ns < 400_000_000
    began_ns = world.now_ns
    assert sizes(world.answer(BROKER, fetch((2, 2, 2), max_wait=500, min_bytes=MANY)))
    assert world.now_ns - began_ns > 400_000_000


def test_a_fetch_does_not_wait_for_bytes_that_its_limit_does_not_allow(world: World) -> None:
    began_ns = world.now_ns
    answer = world.answer(
        BROKER, fetch(max_wait=5000, min_bytes=MANY, max_bytes=2 * SIZE, partition_max_bytes=SIZE)
    )
    assert sizes(answer) == [SIZE, SIZE, 0]
    assert world.now_ns - began_ns < 1_000_000_000


def test_a_fetch_that_wants_nothing_is_answered_at_once(world: World) -> None:
    began_ns = world.now_ns
    end = world.answer(BROKER, fetch((0,), max_wait=0))
    (whole,) = sizes(end)
    assert sizes(world.answer(BROKER, fetch((whole // SIZE,), max_wait=5000, min_bytes=0))) == [0]
    assert world.now_ns - began_ns < 1_000_000_000


@pytest.mark.parametrize(
    ("wanted", "partitions"),
    [(None, [0, 1, 2]), ((0, 2, 9), [0, 2]), ((), [])],
)
def test_a_broker_tells_the_sizes_of_its_replicas(
    world: World, wanted: tuple[int, ...] | None, partitions: list[int]
) -> None:
    named = (
        None if wanted is None else (a.DescribableLogDirTopic(topic="orders", partitions=wanted),)
    )
    answer = world.answer(BROKER, a.DescribeLogDirsRequest(topics=named))
    assert isinstance(answer, a.DescribeLogDirsResponse)
    (folder,) = answer.results
    sizes_of = {
        part.partition_index: part.partition_size
        for topic in folder.topics
        for part in topic.partitions
    }
    assert sizes_of == dict.fromkeys(partitions, 3 * SIZE)


def test_a_fetch_waits_for_the_bytes_that_it_wants(world: World) -> None:
    asked = world.ask(BROKER, fetch((3, 2, 3), max_wait=5000, min_bytes=3 * SIZE))
    world.run(1)
    produce(world, 0)
    world.run(1)
    assert not asked.over, "two batches are there, and three are wanted"
    produce(world, 2)
    assert world.until(lambda: asked.over, 1)
    assert sizes(asked.answer) == [SIZE, SIZE, SIZE]
