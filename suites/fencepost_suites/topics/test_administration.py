"""Administration while clients work: placement, reassignment, leaders, adding and deleting
brokers."""

from __future__ import annotations

import pytest

from fencepost import Spare
from fencepost.testing import EventLog, Faults
from fencepost_kafka import BrokerCommitted, Role, TopicCommitted, kafka_shape
from fencepost_kafka.testing import KafkaClients, KafkaCluster
from fencepost_suites.common.places import led_elsewhere
from fencepost_suites.common.shapes import LONG_LEASE

clause = pytest.mark.clause
physical = pytest.mark.physical
FOUR = pytest.mark.parametrize("fencepost_shape", [kafka_shape(brokers=4)], ids=["four-brokers"])
ONE_LATER = pytest.mark.parametrize(
    "fencepost_shape", [kafka_shape(spares=(Spare(Role.BROKER, 4),))], ids=["one-later"]
)


@clause("RP-01", "RP-02", "RP-21")
def test_a_failed_brokers_leaderships_go_to_all_others_and_come_back(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders", partitions=6)
    # If the controller itself ended, its successor would know no former state.
    led = led_elsewhere(cluster, "orders")
    victim = cluster.leader("orders", led)
    with faults.kill(victim):
        cluster.eventually(victim.fenced_by_controller)
        for partition in range(6):
            cluster.eventually(cluster.another_leader("orders", partition, victim))
    cluster.eventually(victim.in_sync("orders", led))
    cluster.eventually(victim.leads("orders", led))


@clause("RP-28")
def test_a_topic_is_placed_on_live_brokers(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    dead = cluster.brokers[1]
    with faults.kill(dead):
        cluster.eventually(dead.fenced_by_controller)
        clients.create_topic("orders", partitions=4, replication=2)
        for partition in range(4):
            assert not cluster.holds(dead.in_sync("orders", partition))
    cluster.eventually(dead.active)


@pytest.mark.only(
    *("reference/quorum", "reference/legacy"),
    reason="Kafka places replicas at random, so the links in use differ too",
)
@FOUR
@physical("disks")
@clause("RP-20", "RP-19")
def test_a_partition_moves_while_it_is_written_to_and_the_controller_fails(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders", partitions=1)
    writes = clients.produce("orders", count=800, rate=200)
    cluster.eventually(writes.acked_at_least(50))
    first, second, third, fourth = cluster.brokers
    clients.reassign("orders", 0, [fourth, second, third])
    cluster.eventually(cluster.assigned("orders", 0, [fourth, second, third]))
    cluster.eventually(fourth.leads("orders", 0))
    # The new replica cannot catch up until the heal, so the move outlives a controller. A cut could
    # take the new replica's heartbeats, too: where the controller is a broker.
    with faults.hold(first, [second, third, fourth], "Fetch", first=0):
        clients.reassign("orders", 0, [first, second, third])
        assert clients.reassignments() == ("orders-0",)
        old = cluster.active_controller
        with faults.kill(old):
            cluster.eventually(cluster.another_controller(old))
            assert clients.reassignments() == ("orders-0",)
    cluster.eventually(cluster.assigned("orders", 0, [first, second, third]))
    cluster.eventually(writes.settled, within_ms=60_000)
    assert clients.reassignments() == ()
    assert writes.acked <= clients.read_all("orders")


@FOUR
@clause("RP-20")
def test_a_reassignment_under_way_can_be_cancelled(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders", partitions=8, replication=2)
    _, second, third, fourth = cluster.brokers
    # Broker 4 follows broker 2 in orders-5; in orders-1 it is to replace it.
    with faults.cut(fourth, second):
        clients.reassign("orders", 1, [fourth, third])
        assert clients.reassignments() == ("orders-1",)
        clients.reassign("orders", 1, [])
        cluster.eventually(cluster.assigned("orders", 1, [third, second]))
    # If broker 2 is the controller, it has missed heartbeats of broker 4.
    cluster.eventually(~fourth.fenced_by_controller)
    clients.reassign("orders", 1, [second, fourth])
    cluster.eventually(cluster.assigned("orders", 1, [second, fourth]))


@ONE_LATER
@clause("RP-03", "RP-33")
def test_an_added_broker_gets_its_share_and_a_rebalance_moves_all_partitions(
    cluster: KafkaCluster, clients: KafkaClients, history: EventLog
) -> None:
    clients.create_topic("orders", partitions=6, replication=2)
    writes = clients.produce("orders")
    cluster.eventually(writes.acked_at_least(50))
    added = cluster.node("broker-4")
    cluster.start(added)
    cluster.eventually(added.active)
    clients.add_brokers(added)
    cluster.eventually(cluster.assigned("orders", 0, [4, 2]))
    cluster.eventually(cluster.recovered)
    share = [p for p in range(6) if cluster.holds(added.in_sync("orders", p))]
    clients.rebalance()
    cluster.eventually(cluster.assigned("orders", 4, [1, 3]))
    cluster.eventually(added.leads("orders", 3))
    cluster.eventually(cluster.recovered)
    history.record_evidence(
        "RP-33",
        len(share) == 3,
        f"of 6 partitions with two replicas, {added} was given {share}, and leads orders-3 after "
        "the rebalance",
    )
    cluster.eventually(writes.acked_at_least(len(writes.acked) + 50))


@clause("QC-26")
def test_a_deleted_broker_leaves_every_isr_and_may_register_again(
    cluster: KafkaCluster, clients: KafkaClients
) -> None:
    writes = clients.produce("orders")
    deleted = cluster.leader("orders", 0)
    clients.delete_broker(deleted)
    cluster.eventually(deleted.active)
    cluster.eventually(deleted.in_sync("orders", 0))
    cluster.eventually(writes.acked_at_least(len(writes.acked) + 50))


@pytest.mark.only("reference/quorum", reason="Kafka refuses the second process")
@clause("QC-19")
def test_a_deleted_brokers_id_goes_to_no_process_that_lost_it(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    writes = clients.produce("orders")
    victim = cluster.leader("orders", 0)

    def registered(broker: BrokerCommitted) -> bool:
        return broker.broker_id == victim.id and broker.broker_epoch not in before

    with faults.duplicate_id(victim, disk="empty"):
        duplicate = cluster.node(f"{victim.name}-duplicate")
        cluster.eventually(duplicate.active)
        cluster.eventually(victim.disowned)
        before = {b.broker_epoch for b in history.of(BrokerCommitted) if b.broker_id == victim.id}
        # Both processes run, and both learn that no broker has the id.
        clients.delete_broker(victim)
        cluster.eventually(
            history.event_where(BrokerCommitted, registered, f"{victim} to come back")
        )
        cluster.eventually(writes.acked_at_least(len(writes.acked) + 200))  # for a few heartbeats
        cluster.eventually(duplicate.active)
    cluster.eventually(cluster.recovered)


@physical("disks")
@pytest.mark.only("reference/quorum", reason="a deleted broker of Kafka's does not register again")
def test_a_topic_deleted_while_a_broker_had_no_registration_is_removed_there(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    writes = clients.produce("orders", count=50)
    cluster.eventually(writes.settled)
    cluster.eventually(cluster.recovered)
    away = cluster.brokers[1]
    with faults.cut_from_controllers(away):
        cluster.eventually(away.fenced_by_controller)
        clients.delete_broker(away)
        clients.delete_topic("orders")
    cluster.eventually(away.active)


@clause("RP-25")
def test_a_topic_deleted_while_a_broker_was_down_is_removed_when_it_returns(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    writes = clients.produce("orders", count=50)
    cluster.eventually(writes.settled)
    cluster.eventually(cluster.recovered)
    away = cluster.brokers[2]
    with faults.kill(away):
        clients.delete_topic("orders")
    cluster.eventually(away.active)
    # Over ZooKeeper the topic is gone only once this broker has removed its replicas, too.
    cluster.eventually(
        history.event_where(
            TopicCommitted,
            lambda body: body.topic == "orders" and body.deleted,
            "the topic orders to be deleted",
        )
    )


@pytest.mark.only(
    "reference/quorum", "apache/kraft", reason="a follower may be the controller elsewhere"
)
@LONG_LEASE
def test_a_topics_setting_can_be_changed_and_leaders_elected_by_hand(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders", partitions=1)
    leader = cluster.leader("orders", 0)
    followers = [f.name for f in cluster.followers("orders", 0)]
    with faults.cut(followers, leader):
        assert clients.produce_directly(leader, "orders", 0, acks=1).answered
        cluster.eventually(~cluster.node(followers[0]).in_sync("orders", 0))
        cluster.eventually(~cluster.node(followers[1]).in_sync("orders", 0))
        cluster.eventually(leader.caught_up)
        assert clients.produce_directly(leader, "orders", 0).error == "NOT_ENOUGH_REPLICAS"
        clients.alter_settings("orders", {"min.insync.replicas": "1"})
        # The producer retries until the leader has applied the setting.
        writes = clients.produce("orders", count=1)
        cluster.eventually(writes.settled)
        assert len(writes.acked) == 1
    assert clients.elect_preferred("orders").outcome == "ok"
