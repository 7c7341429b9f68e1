"""ElectLeaders at one active controller of the quorum, without a cluster (RP-21)."""

from __future__ import annotations

import pytest
from quorum_bench import CONTROLLER, QuorumController

from fencepost_clusters.reference.core.quorum.broker_state import BrokerState
from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error

ORDERS = a.TopicPartitions(topic="orders", partitions=(0,))
REFUNDS = a.TopicPartitions(topic="refunds", partitions=(0,))


@pytest.fixture
def controller() -> QuorumController:
    """Broker 1 is preferred for `orders` and no longer leads it; broker 2 leads `refunds`, for
    which it is preferred."""
    settings = {"auto.leader.rebalance.enable": "false"}
    made = QuorumController(CONTROLLER, settings=settings).elected().activates(1, 2)
    for name, replicas in (("orders", (1, 2)), ("refunds", (2, 1))):
        placed = m.CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
        topic = m.CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=(placed,)
        )
        made.asks(m.CreateTopicsRequest(topics=(topic,), timeout=1000))
    made.beat(1, target=BrokerState.SHUTDOWN)
    made.beat(1)
    assert leader(made, "orders") == leader(made, "refunds") == 2
    return made


def leader(controller: QuorumController, topic: str) -> int:
    found = controller.core.committed.image.partition(topic, 0)
    assert found is not None
    return found.leader


def elected(
    controller: QuorumController, *partitions: a.TopicPartitions
) -> dict[str, list[tuple[int, Error]]]:
    """The partitions in the answer to a request that names these, or all; with their errors."""
    asked = a.ElectLeadersRequest(
        election_type=0, topic_partitions=partitions or None, timeout=1000
    )
    (reply,) = controller.asks(asked)
    assert isinstance(reply.message, a.ElectLeadersResponse)
    return {
        topic.topic: [(one.partition_id, Error(one.error_code)) for one in topic.partition_result]
        for topic in reply.message.replica_election_results
    }


def test_an_election_in_every_partition_names_only_those_that_have_another_leader_now(
    controller: QuorumController,
) -> None:
    assert elected(controller) == {"orders": [(0, Error.NONE)]}
    assert leader(controller, "orders") == 1


def test_an_election_in_named_partitions_answers_for_each_of_them(
    controller: QuorumController,
) -> None:
    assert elected(controller, ORDERS, REFUNDS) == {
        "orders": [(0, Error.NONE)],
        "refunds": [(0, Error.ELECTION_NOT_NEEDED)],
    }
    assert (leader(controller, "orders"), leader(controller, "refunds")) == (1, 2)
    nowhere = a.TopicPartitions(topic="nowhere", partitions=(0,))
    unknown = [(0, Error.UNKNOWN_TOPIC_OR_PARTITION)]
    assert elected(controller, nowhere) == {"nowhere": unknown}
