"""DescribeQuorum: which node votes, how far each has fetched, and when."""

from __future__ import annotations

from pathlib import Path

import pytest
from quorum_bench import QuorumController
from world import CONTROLLERS, World

from fencepost_clusters.reference.core.quorum.raft.serving import NO_FETCH, Fetched
from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire.errors import Error
from fencepost_clusters.reference.wire.messages import METADATA_TOPIC

VOTERS, OBSERVERS = {101, 102, 103}, {1, 2, 3}
LATE_MS = 1000
"""Every node fetches more often than that."""


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path / "run")
    assert made.until(made.healthy, 20)
    made.run(2)
    return made


def described(world: World) -> dict[int, a.QuorumReplica]:
    """The voters and observers by id, as a client sees them."""
    part = a.QuorumPartition(partition_index=0)
    topic = a.QuorumTopic(topic_name="__cluster_metadata", partitions=(part,))
    answer = world.answer("broker-1", a.DescribeQuorumRequest(topics=(topic,)))
    assert isinstance(answer, a.DescribeQuorumResponse)
    (known,) = answer.topics[0].partitions
    assert {one.replica_id for one in known.current_voters} == VOTERS
    assert {one.replica_id for one in known.observers} == OBSERVERS
    return {one.replica_id: one for one in (*known.current_voters, *known.observers)}


def test_every_node_has_fetched_and_caught_up_just_now(world: World) -> None:
    leader = 101 + CONTROLLERS.index(world.active() or "")
    found = described(world)
    now_ms = found[leader].last_fetch_timestamp
    assert found[leader].last_caught_up_timestamp == now_ms > 0
    for one in found.values():
        assert now_ms - LATE_MS < one.last_fetch_timestamp <= now_ms
        assert now_ms - LATE_MS < one.last_caught_up_timestamp <= one.last_fetch_timestamp


def test_a_node_that_is_cut_off_has_fetched_before(world: World) -> None:
    active = world.active() or ""
    node, slot = next((n, s) for n, s in enumerate(CONTROLLERS, 101) if s != active)
    world.isolate(slot)
    world.run(0.5)
    before = described(world)[node]
    world.run(3)
    after = described(world)[node]
    assert after.last_fetch_timestamp == before.last_fetch_timestamp
    assert after.last_caught_up_timestamp == before.last_caught_up_timestamp


@pytest.mark.parametrize(
    ("offset", "caught_up_ms"),
    [(40, 2000), (30, 1000), (29, 500)],
    ids=("it has all", "it had all at its fetch before", "it lacks what was there then"),
)
def test_a_node_has_caught_up_when_it_last_had_the_whole_log(
    offset: int, caught_up_ms: int
) -> None:
    before = Fetched(offset=20, at_ms=1000, end=30, caught_up_ms=500)
    assert before.next(offset, end=40, now_ms=2000) == Fetched(offset, 2000, 40, caught_up_ms)


def test_a_node_that_has_never_had_the_whole_log_has_not_caught_up() -> None:
    assert NO_FETCH.next(0, end=40, now_ms=2000).caught_up_ms == -1


def test_a_leader_knows_no_fetch_of_its_former_term() -> None:
    """Other leaders answered the fetches in between."""
    controller = QuorumController().elected()
    controller.fetched(1)
    assert controller.core.raft.observed.keys() == {1, 102, 103}
    controller.node.passes(10)
    assert not controller.core.active
    controller.elected()
    assert controller.core.raft.observed.keys() == {102, 103}


def test_a_broker_whose_id_is_0_is_an_observer_and_a_client_without_an_id_is_none() -> None:
    controller = QuorumController().elected()
    for node in (-1, 0):
        controller.fetched(node)
    part = a.QuorumPartition(partition_index=0)
    topic = a.QuorumTopic(topic_name=METADATA_TOPIC, partitions=(part,))
    (reply,) = controller.asks(a.DescribeQuorumRequest(topics=(topic,)))
    assert isinstance(reply.message, a.DescribeQuorumResponse)
    (known,) = reply.message.topics[0].partitions
    assert [one.replica_id for one in known.observers] == [0]


@pytest.mark.parametrize(("name", "index"), [("orders", 0), (METADATA_TOPIC, 1)])
def test_only_the_one_partition_of_the_metadata_is_described(name: str, index: int) -> None:
    controller = QuorumController().elected()
    part = a.QuorumPartition(partition_index=index)
    topic = a.QuorumTopic(topic_name=name, partitions=(part,))
    (reply,) = controller.asks(a.DescribeQuorumRequest(topics=(topic,)))
    assert isinstance(reply.message, a.DescribeQuorumResponse)
    (unknown,) = reply.message.topics[0].partitions
    assert unknown == a.QuorumPartitionResult(
        partition_index=index, error_code=Error.UNKNOWN_TOPIC_OR_PARTITION
    )
