"""The plane without a controller: replicas elect their leaders over ZooKeeper."""

from __future__ import annotations

import pytest

from fencepost import NodeStopped
from fencepost.testing import EventLog, Faults
from fencepost_kafka import (
    FollowingStarted,
    IsrPrepared,
    ReplicaRemoved,
    StateChangeCarriedOut,
    kafka_shape,
)
from fencepost_kafka.testing import KafkaClients, KafkaCluster
from fencepost_suites.common.shapes import shaped

pytestmark = pytest.mark.only("reference/classic", reason="elsewhere a controller elects leaders")
clause = pytest.mark.clause
physical = pytest.mark.physical
FOUR = pytest.mark.parametrize("fencepost_shape", [kafka_shape(brokers=4)], ids=["four-brokers"])
LONG_SESSION = shaped(
    "long-session", registration_lease_timeout_ms="6000", replica_lag_time_max_ms="2000"
)
"""A leader that is cut off from ZooKeeper wants a smaller ISR long before its session ends."""

TAKEN = "is taken by a live process"
"""Part of the sentence with which a process ends whose id belongs to another one."""


@clause("RP-14", "RP-16", "RP-34")
def test_a_new_leader_waits_for_a_live_member_of_the_isr_that_does_not_reach_it(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    # With three partitions each broker leads one, so that the link to be cut is in use.
    clients.create_topic("orders", partitions=3, config={"min.insync.replicas": "1"})
    old = cluster.leader("orders", 0)
    next_one, last = cluster.followers("orders", 0)
    # Both are live, and follow the old leader. Of the two, the next replica stands first.
    with faults.partition(next_one, last), faults.kill(old):
        cluster.eventually(cluster.another_leader("orders", 0, old))
        assert cluster.leader("orders", 0) == next_one
        cluster.eventually(~last.in_sync("orders", 0))
        assert clients.produce_directly(next_one, "orders", 0).answered
    assert any(body.waited_ms >= body.most_ms for body in history.of(IsrPrepared))


@physical("sockets")
@clause("RP-32", "RP-04")
@LONG_SESSION
def test_a_leader_that_is_cut_off_from_zookeeper_commits_on_the_stored_isr(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders", partitions=1)
    clients.produce("orders")
    leader = cluster.leader("orders", 0)
    follower = cluster.followers("orders", 0)[0]
    with faults.partition(leader, ["zookeeper-1", follower.name]):
        result = clients.produce_directly(leader, "orders", 0, acks="all")
        assert not result.answered
        cluster.eventually(leader.fenced_by_controller)
        cluster.eventually(cluster.another_leader("orders", 0, leader))
    cluster.eventually(cluster.recovered)


@FOUR
@physical("disks")
@clause("RP-20", "RP-19", "RP-22", "RP-23", "RP-30")
def test_a_partition_moves_while_it_is_written_to_and_its_leader_fails(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    clients.create_topic("orders", partitions=1)
    writes = clients.produce("orders", count=800, rate=200)
    cluster.eventually(writes.acked_at_least(50))
    first, second, third, fourth = cluster.brokers
    clients.reassign("orders", 0, [fourth, second, third])
    cluster.eventually(cluster.assigned("orders", 0, [fourth, second, third]))
    cluster.eventually(fourth.leads("orders", 0))
    # The new replica cannot catch up until the heal, so the move outlives a leader.
    with faults.hold(first, [second, third, fourth], "Fetch", first=0):
        clients.reassign("orders", 0, [first, second, third])
        assert clients.reassignments() == ("orders-0",)

        def begins(body: FollowingStarted) -> bool:
            return body.leader == fourth.id and body.log_end == 0

        cluster.eventually(
            history.event_where(FollowingStarted, begins, "the new replica to fetch")
        )
        with faults.kill(fourth):
            cluster.eventually(cluster.another_leader("orders", 0, fourth))
            assert clients.reassignments() == ("orders-0",)
    cluster.eventually(cluster.assigned("orders", 0, [first, second, third]))
    cluster.eventually(writes.settled, within_ms=60_000)
    assert clients.reassignments() == ()
    assert writes.acked <= clients.read_all("orders")


@FOUR
@clause("RP-23")
def test_a_replica_that_was_unassigned_while_its_broker_was_down_is_removed_when_it_returns(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    clients.create_topic("orders", partitions=1)
    writes = clients.produce("orders", count=50)
    cluster.eventually(writes.settled)
    first, second, third, fourth = cluster.brokers
    with faults.kill(third):
        cluster.eventually(third.fenced_by_controller)
        clients.reassign("orders", 0, [first, second, fourth])
        cluster.eventually(cluster.assigned("orders", 0, [first, second, fourth]))
    cluster.eventually(third.active)

    def removed(body: ReplicaRemoved) -> bool:
        return body.topic == "orders"

    cluster.eventually(history.event_where(ReplicaRemoved, removed, "the replica to be removed"))

    def unassigned(body: StateChangeCarriedOut) -> bool:
        return body.change == "unassigned"

    cluster.eventually(
        history.event_where(StateChangeCarriedOut, unassigned, "the request to be carried out")
    )


@pytest.mark.parametrize("disk", ["empty", pytest.param("copy", marks=physical("disks"))])
@clause("RP-24", "RP-06")
def test_a_second_process_with_a_live_id_ends_and_takes_nothing(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog, disk: str
) -> None:
    writes = clients.produce("orders")
    holder = cluster.leader("orders", 0)
    with faults.duplicate_id(holder, disk=disk):
        refused = history.event_where(
            NodeStopped, lambda body: TAKEN in body.reason, "the second process to be refused"
        )
        cluster.eventually(refused)
        cluster.eventually(writes.acked_at_least(len(writes.acked) + 50))
        assert cluster.leader("orders", 0) == holder
    cluster.eventually(cluster.recovered)


@clause("RP-24", "RP-06", "RP-10")
def test_a_holder_whose_session_ends_loses_its_id_to_the_second_process(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    """The holder is the one that ends, once it reaches ZooKeeper again."""
    writes = clients.produce("orders")
    holder = cluster.leader("orders", 0)
    with faults.duplicate_id(holder, disk="copy"):
        with faults.partition(holder, "zookeeper-1"):
            cluster.eventually(cluster.node(f"{holder.name}-duplicate").active)
        refused = history.event_where(
            NodeStopped, lambda body: TAKEN in body.reason, "the holder to be refused"
        )
        cluster.eventually(refused)
        cluster.eventually(writes.acked_at_least(len(writes.acked) + 50))
    cluster.eventually(cluster.recovered)
