"""Brokers over ZooKeeper: heartbeats to the controller, self-fencing, and ISR changes (KIP-343)."""

from __future__ import annotations

import pytest

from fencepost import Shape
from fencepost.testing import EventLog, Faults
from fencepost_kafka import (
    BrokerDeclared,
    BrokerStateChanged,
    ChangeAnswered,
    ControlRequestSent,
    PartitionCommitted,
)
from fencepost_kafka.testing import KafkaClients, KafkaCluster, KafkaNode
from fencepost_suites.common.places import led_elsewhere
from fencepost_suites.common.shapes import LONG_LEASE, shaped

clause = pytest.mark.clause
physical = pytest.mark.physical
pytestmark = pytest.mark.only("reference/legacy", reason="KIP-343 is of the plane over ZooKeeper")

ZOOKEEPER = "zookeeper-1"
OLD = ("broker-1", "broker-2")
OLD_PROTOCOL = {"inter.broker.protocol": "2"}


def controlling(cluster: KafkaCluster) -> KafkaNode:
    """The broker that is the controller."""
    name = cluster.active_controller.name
    return next(broker for broker in cluster.brokers if broker.name == name)


def others(cluster: KafkaCluster) -> tuple[KafkaNode, KafkaNode]:
    """The two brokers that are not the controller."""
    controller = controlling(cluster)
    one, two = (broker for broker in cluster.brokers if broker != controller)
    return one, two


@clause("HB-06", "HB-07", "HB-08", "HB-11")
@clause("HB-01", "HB-09", "HB-10", "HB-14")
def test_a_broker_that_reaches_zookeeper_but_not_the_controller_fences_itself(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.produce("orders", acks="all")
    cluster.eventually(cluster.led("orders", 0))
    controller = controlling(cluster)
    victim, _ = others(cluster)
    with faults.partition(victim, controller):
        cluster.eventually(victim.fenced_by_controller)
        cluster.eventually(victim.fenced)
        assert not clients.fetch_directly(victim, "orders", 0).answered
    cluster.eventually(victim.active)
    cluster.eventually(cluster.recovered)


@physical("sockets")
@clause("HB-06", "HB-07")
def test_a_broker_cut_off_from_the_controller_serves_no_stale_metadata(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    """KIP-343's case: the broker keeps its session with ZooKeeper, and misses a new topic."""
    clients.create_topic("orders", partitions=1)
    controller = controlling(cluster)
    victim, _ = others(cluster)
    with faults.partition(victim, controller):
        clients.create_topic("payments", partitions=1, replication=2)
        cluster.eventually(victim.fenced_by_controller)
        cluster.eventually(victim.fenced)
        assert clients.ask_metadata(victim, "orders").refused
        assert clients.ask_metadata(victim, "payments").refused
    cluster.eventually(victim.active)
    cluster.eventually(cluster.recovered)
    assert clients.ask_metadata(victim, "payments").answered


@clause("HB-16", "HB-21")
def test_a_broker_that_was_inactive_returns_to_the_isr_by_an_isr_change(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    writes = clients.produce("orders", acks="all")
    controller = controlling(cluster)
    leader = cluster.leader("orders", 0)
    victim = next(one for one in cluster.brokers if one not in (leader, controller))
    with faults.partition(victim, controller):
        cluster.eventually(victim.fenced_by_controller)
        cluster.eventually(writes.acked_at_least(len(writes.acked) + 100))
        cluster.eventually(victim.fenced)
        sent = {(one.controller_epoch, one.correlation) for one in history.of(ControlRequestSent)}

    def announced(one: ControlRequestSent) -> bool:
        new = (one.controller_epoch, one.correlation) not in sent and one.broker_id != victim.id
        return new and one.api == "UpdateMetadata" and "orders-0" in one.partitions

    cluster.eventually(victim.in_sync("orders", 0))
    what = "the other brokers to be sent the ISR that the leader has requested"
    cluster.eventually(history.event_where(ControlRequestSent, announced, what))


@clause("HB-17", "HB-27")
def test_a_controller_without_zookeeper_answers_not_controller(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    writes = clients.produce("orders", acks="all")
    controller = controlling(cluster)
    leads = (cluster.leader("orders", index) for index in range(3))
    leader = next(one for one in leads if one != controller)
    follower = next(one for one in cluster.brokers if one not in (leader, controller))
    # The leader requests a smaller ISR while it still knows only the old controller.
    with faults.partition(follower, leader), faults.partition(controller, ZOOKEEPER):
        cluster.eventually(cluster.another_controller(cluster.active_controller))
    cluster.eventually(cluster.recovered)
    cluster.eventually(writes.acked_at_least(len(writes.acked) + 50))


# The client may ask the victim first, and another broker ten seconds later: the lease is longer.
@shaped(request_timeout_ms="500", registration_lease_timeout_ms="30000")
def test_an_update_metadata_without_an_answer_is_sent_again(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    clients.create_topic("orders", partitions=1)
    controller = controlling(cluster)
    # The broker by which the client reaches the controller must not lose the controller.
    forwarder = history.of(ChangeAnswered)[-1].client
    victim = next(one for one in others(cluster) if not forwarder.startswith(f"{one.name}#"))

    def again(one: ControlRequestSent) -> bool:
        return one.attempt == 2 and one.broker_id == victim.id

    with faults.partition(victim, controller):
        clients.create_topic("payments", partitions=1, replication=2)
        cluster.eventually(history.event_where(ControlRequestSent, again, "a second attempt"))
    cluster.eventually(cluster.recovered)


@clause("HB-03")
def test_an_inactive_broker_is_left_out_of_the_metadata(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders", partitions=3)
    controller = controlling(cluster)
    victim, other = others(cluster)
    with faults.partition(victim, controller):
        cluster.eventually(victim.fenced_by_controller)
        clients.create_topic("refunds", partitions=1, replication=2)
        with faults.kill(other):
            cluster.eventually(other.fenced_by_controller)
    cluster.eventually(cluster.recovered)


@clause("HB-28")
def test_a_broker_without_a_session_is_absent_though_it_reaches_the_controller(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    clients.produce("orders", acks="all")
    victim, _ = others(cluster)

    def gone(one: BrokerDeclared) -> bool:
        return one.broker_id == victim.id and (one.old, one.reason) == ("Active", "gone")

    def ended(one: BrokerStateChanged) -> bool:
        return one.broker_id == victim.id and one.reason == "session_ended"

    with faults.partition(victim, ZOOKEEPER):
        # Its heartbeats go on until its session has ended.
        cluster.eventually(history.event_where(BrokerDeclared, gone, f"{victim} to be absent"))
    cluster.eventually(history.event_where(BrokerStateChanged, ended, f"{victim} to notice"))
    cluster.eventually(cluster.recovered)


@shaped(
    "late-heartbeats", controller_heartbeat_timeout_ms="8000", broker_heartbeat_timeout_ms="9000"
)
@clause("HB-28")
def test_a_dead_broker_is_absent_once_its_session_ends_before_its_heartbeat_timeout(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    clients.produce("orders", acks="all")
    victim, _ = others(cluster)

    def gone(one: BrokerDeclared) -> bool:
        return one.broker_id == victim.id and one.reason == "gone"

    with faults.kill(victim):
        cluster.eventually(history.event_where(BrokerDeclared, gone, f"{victim} to be absent"))
    cluster.eventually(cluster.recovered)


@clause("HB-02")
def test_a_failover_alone_makes_no_broker_inactive(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.produce("orders", acks="all")
    old = controlling(cluster)
    with faults.kill(old):
        cluster.eventually(cluster.another_controller(old))
    cluster.eventually(cluster.recovered)


@clause("HB-12", "HB-24", "HB-29")
def test_an_overwritten_process_is_refused(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    clients.produce("orders", acks="all")
    victim, _ = others(cluster)

    def refused(one: BrokerStateChanged) -> bool:
        return one.broker_id == victim.id and one.reason == "refused"

    # The old process cannot see in ZooKeeper that another one has its id. On a slow machine its
    # session ends soon after it has fenced itself, and then it is fenced no more.
    with faults.partition(victim, ZOOKEEPER), faults.duplicate_id(victim, disk="empty"):
        duplicate = cluster.node(f"{victim.name}-duplicate")
        cluster.eventually(duplicate.active)
        cluster.eventually(history.event_where(BrokerStateChanged, refused, f"{victim} refused"))
    cluster.eventually(cluster.recovered)


@clause("HB-24")
def test_an_overwritten_process_does_not_take_its_id_back(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    """Its session has ended meanwhile, so that it opens a new one, in which it might register."""
    writes = clients.produce("orders", acks="all")
    victim, _ = others(cluster)

    def ended(one: BrokerStateChanged) -> bool:
        return one.broker_id == victim.id and one.reason == "session_ended"

    def gave_up(one: BrokerStateChanged) -> bool:
        return one.broker_id == victim.id and one.reason == "taken_over"

    with (
        faults.partition(victim, ZOOKEEPER) as apart,
        faults.duplicate_id(victim, disk="empty"),
    ):
        duplicate = cluster.node(f"{victim.name}-duplicate")
        cluster.eventually(duplicate.active)
        cluster.eventually(history.event_where(BrokerStateChanged, ended, f"{victim} to notice"))
        apart.heal()
        cluster.eventually(history.event_where(BrokerStateChanged, gave_up, f"{victim} to stop"))
        cluster.eventually(writes.acked_at_least(len(writes.acked) + 100))
        cluster.eventually(duplicate.active)
    cluster.eventually(cluster.recovered)


@clause("HB-24")
def test_the_fetches_of_an_overwritten_process_outside_the_isr_do_not_count(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    """The leader epoch does not change, so only the broker epoch distinguishes the two
    processes."""
    writes = clients.produce("orders", acks="all")
    controller = controlling(cluster)
    index = led_elsewhere(cluster, "orders")
    leader = cluster.leader("orders", index)
    victim = next(one for one in cluster.brokers if one not in (leader, controller))

    def without(one: PartitionCommitted) -> bool:
        return (one.topic, one.partition) == ("orders", index) and victim.id not in one.isr

    with faults.partition(victim, leader) as apart:
        cluster.eventually(
            history.event_where(PartitionCommitted, without, f"an ISR without {victim}")
        )
        with faults.partition(victim, ZOOKEEPER), faults.duplicate_id(victim, disk="empty"):
            cluster.eventually(cluster.node(f"{victim.name}-duplicate").active)
            apart.heal()
            # 500 writes take long enough for the leader to learn the new broker epoch.
            cluster.eventually(writes.acked_at_least(len(writes.acked) + 500))
    cluster.eventually(cluster.recovered)


@clause("HB-01")
def test_a_process_that_restarts_at_once_sends_its_own_incarnation_id(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.produce("orders", acks="all")
    victim, _ = others(cluster)
    faults.bounce(victim, after_ms=0)
    cluster.eventually(victim.active)
    cluster.eventually(cluster.recovered)


@LONG_LEASE
@clause("HB-13")
def test_a_bounce_is_handled_when_the_new_heartbeat_comes_before_the_watch(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.produce("orders", acks="all")
    controller = controlling(cluster)
    victim, _ = others(cluster)
    with faults.slow_link(controller, ZOOKEEPER, latency_ms=150):
        faults.bounce(victim, after_ms=0)
        cluster.eventually(victim.active)
    cluster.eventually(cluster.recovered)


@shaped(controlled_shutdown_timeout_ms="3000")
@clause("HB-04", "HB-14")
def test_a_stopping_broker_serves_until_its_time_limit(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("alone", partitions=3, replication=1)
    clients.produce("alone", acks="1")
    victim = next(
        one
        for one in (cluster.leader("alone", index) for index in range(3))
        if one != controlling(cluster)
    )
    with faults.terminate(victim) as stopped:
        assert stopped.receipt.true
    cluster.eventually(cluster.recovered)


@clause("HB-05", "HB-14")
def test_a_stopping_broker_hands_its_leaderships_over(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders", partitions=3)
    clients.produce("orders", acks="all")
    victim = next(
        one
        for one in (cluster.leader("orders", index) for index in range(3))
        if one != controlling(cluster)
    )
    with faults.terminate(victim) as stopped:
        assert stopped.receipt.true
    cluster.eventually(victim.active)
    cluster.eventually(cluster.recovered)


@pytest.mark.parametrize(
    "fencepost_shape",
    [Shape(own=dict.fromkeys(OLD, OLD_PROTOCOL))],
    ids=["first-roll"],
)
@clause("HB-22", "HB-23")
def test_brokers_of_both_protocols_run_in_one_cluster(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    clients.create_topic("orders", partitions=1)
    writes = clients.produce("orders", acks="all")
    leader = cluster.leader("orders", 0)
    assert leader.name in OLD
    follower = next(one for one in cluster.brokers if one != leader)

    def read_without(one: PartitionCommitted) -> bool:
        return one.role == "controller" and follower.id not in one.isr

    with faults.partition(leader, follower):
        cluster.eventually(writes.acked_at_least(len(writes.acked) + 50))
        # The leader has written the ISR to its znode, which the controller watches.
        what = f"the controller to read the ISR without {follower}"
        cluster.eventually(history.event_where(PartitionCommitted, read_without, what))
    cluster.eventually(cluster.recovered)
