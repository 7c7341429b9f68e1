"""Reassignments, as the active controller of the quorum decides them at once."""

from __future__ import annotations

import pytest
from quorum_bench import CONTROLLER, QuorumController

from fencepost_clusters.reference.core.quorum.broker_state import BrokerState
from fencepost_clusters.reference.core.replication.cluster_state import Partition
from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error


@pytest.fixture
def controller() -> QuorumController:
    """The active controller of a quorum of one, with three active brokers; leaderships stay."""
    settings = {"auto.leader.rebalance.enable": "false"}
    return QuorumController(CONTROLLER, settings=settings).elected().activates(1, 2, 3)


def create(controller: QuorumController, replicas: tuple[int, ...]) -> None:
    at = m.CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
    topic = m.CreatableTopic(
        name="orders", num_partitions=-1, replication_factor=-1, assignments=(at,)
    )
    controller.asks(m.CreateTopicsRequest(topics=(topic,), timeout=1000))


def reassign(controller: QuorumController, replicas: tuple[int, ...] | None) -> int:
    """The error of the answer; without replicas, the reassignment under way is called off."""
    part = a.ReassignablePartition(partition_index=0, replicas=replicas)
    topic = a.ReassignableTopic(name="orders", partitions=(part,))
    (reply,) = controller.asks(a.AlterPartitionReassignmentsRequest(timeout=1000, topics=(topic,)))
    assert isinstance(reply.message, a.AlterPartitionReassignmentsResponse)
    return reply.message.responses[0].partitions[0].error_code


def partition(controller: QuorumController) -> Partition:
    found = controller.core.committed.image.partition("orders", 0)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "replicas", [(), (1, 1), (-1,), (1, -1), (1, 9)], ids=["none", "twice", "-1", "1 -1", "unknown"]
)
def test_a_target_that_is_no_set_of_live_brokers_is_refused(
    controller: QuorumController, replicas: tuple[int, ...]
) -> None:
    create(controller, (1, 2))
    assert reassign(controller, replicas) == Error.INVALID_REPLICA_ASSIGNMENT
    assert partition(controller).replicas == (1, 2)


def test_a_leader_leads_on_while_a_new_replica_catches_up(controller: QuorumController) -> None:
    create(controller, (1, 2))
    assert reassign(controller, (3, 2, 1)) == Error.NONE
    one = partition(controller)
    assert (one.replicas, one.isr, one.leader, one.adding) == ((3, 2, 1), (2, 1), 1, (3,))


def test_a_leader_that_is_no_replica_any_more_is_followed_by_a_live_member_of_the_isr(
    controller: QuorumController,
) -> None:
    create(controller, (1, 2))
    assert reassign(controller, (2,)) == Error.NONE
    one = partition(controller)
    assert (one.replicas, one.isr, one.leader) == ((2,), (2,), 2)


def test_a_leader_leads_on_when_a_reassignment_is_called_off(controller: QuorumController) -> None:
    """Though it is not the preferred one."""
    create(controller, (1, 2))
    controller.beat(1, target=BrokerState.SHUTDOWN)
    controller.beat(1)
    assert partition(controller).leader == 2
    assert reassign(controller, (3, 1, 2)) == Error.NONE
    assert reassign(controller, None) == Error.NONE
    one = partition(controller)
    assert (one.replicas, one.isr, one.leader, one.adding) == ((1, 2), (1, 2), 2, ())
    assert reassign(controller, None) == Error.NO_REASSIGNMENT_IN_PROGRESS


def test_a_partition_that_a_request_names_twice_is_reassigned_once(
    controller: QuorumController,
) -> None:
    create(controller, (1, 2))
    parts = tuple(
        a.ReassignablePartition(partition_index=0, replicas=one) for one in ((1, 3), (2, 3))
    )
    topics = (a.ReassignableTopic(name="orders", partitions=parts),)
    (reply,) = controller.asks(a.AlterPartitionReassignmentsRequest(timeout=1000, topics=topics))
    assert isinstance(reply.message, a.AlterPartitionReassignmentsResponse)
    errors = [one.error_code for one in reply.message.responses[0].partitions]
    assert errors == [Error.NONE, Error.INVALID_REQUEST]
    assert partition(controller).replicas == (1, 3, 2)


@pytest.mark.parametrize(
    ("named", "listed"),
    [
        (None, ["orders"]),
        ((("orders", 0),), ["orders"]),
        ((("orders", 1),), []),
        ((("refunds", 0),), []),
        ((), []),
    ],
)
def test_reassignments_under_way_are_listed_for_the_partitions_that_are_named_or_for_all(
    controller: QuorumController, named: tuple[tuple[str, int], ...] | None, listed: list[str]
) -> None:
    create(controller, (1, 2))
    reassign(controller, (1, 3))
    topics = None
    if named is not None:
        topics = tuple(
            a.ListPartitionReassignmentsTopics(name=name, partition_indexes=(index,))
            for name, index in named
        )
    (reply,) = controller.asks(a.ListPartitionReassignmentsRequest(timeout=1000, topics=topics))
    assert isinstance(reply.message, a.ListPartitionReassignmentsResponse)
    assert [topic.name for topic in reply.message.topics] == listed
    for topic in reply.message.topics:
        (one,) = topic.partitions
        assert (one.replicas, one.adding_replicas, one.removing_replicas) == ((1, 3, 2), (3,), (2,))


def rebalanced(controller: QuorumController, brokers: tuple[int, ...]) -> tuple[int, int, str]:
    """The error, the number of partitions that move, and the message."""
    (reply,) = controller.asks(a.RebalanceRequest(brokers=brokers, timeout=1000))
    assert isinstance(reply.message, a.RebalanceResponse)
    answer = reply.message
    return answer.error_code, answer.moved, answer.error_message or ""


def test_partitions_are_moved_to_live_brokers_only(controller: QuorumController) -> None:
    create(controller, (1, 2))
    refused = Error.INVALID_REPLICA_ASSIGNMENT
    assert rebalanced(controller, (9,)) == (refused, 0, "broker 9 is not live")
    assert rebalanced(controller, (3, 9)) == (refused, 0, "broker 9 is not live")
    alone = QuorumController(CONTROLLER).elected()
    assert rebalanced(alone, ()) == (refused, 0, "no broker is live")
