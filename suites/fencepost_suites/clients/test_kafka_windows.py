"""The promises of Apache Kafka that are judged by its nodes' logs, request logs and disks.

Each test leads into the situation in which one of them matters.
"""

from __future__ import annotations

import pytest

from fencepost import Condition, Spare
from fencepost.testing import EventLog, Faults
from fencepost_kafka import (
    ControllerElected,
    FollowingStarted,
    LeadershipEnded,
    Role,
    TopicCommitted,
    kafka_shape,
)
from fencepost_kafka.testing import KafkaClients, KafkaCluster

clause = pytest.mark.clause
pytestmark = pytest.mark.only("apache/kraft", reason="the promise under test is Kafka's own")
TURNS = ((1, 2, 3), (1, 3, 2), (2, 3, 1), (2, 1, 3), (3, 1, 2), (3, 2, 1))
"""Replicas of six partitions: each broker leads two, and each other broker follows it in one."""
ELECTIONS = 10
"""How many elections the killed controller may win."""


@clause("RP-04", "RP-07", "RP-32", "RP-10")
@clause("RP-09", "RP-27")
def test_a_follower_that_stood_still_leaves_the_isr_and_returns(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    writes = clients.produce("orders", rate=100)
    reads = clients.consume("orders")
    cluster.eventually(writes.acked_at_least(50))
    victim = cluster.followers("orders", 0)[0]
    with faults.pause(victim):
        cluster.eventually(~victim.in_sync("orders", 0))
        cluster.eventually(writes.acked_at_least(len(writes.acked) + 100))
    cluster.eventually(cluster.recovered)
    with faults.kill(cluster.leader("orders", 0)):
        cluster.eventually(writes.acked_at_least(len(writes.acked) + 50))
    cluster.eventually(cluster.recovered)
    cluster.eventually(reads.polled_at_least(100))


@clause("QC-16", "REG-04", "KR-18", "KR-28", "RP-08")
def test_a_starting_broker_serves_once_a_controller_says_so(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    writes = clients.produce("orders", rate=100)
    cluster.eventually(writes.acked_at_least(50))
    victim = cluster.leader("orders", 0)
    with faults.kill(victim):
        cluster.eventually(victim.fenced_by_controller)
    cluster.eventually(cluster.recovered)
    with faults.cut_from_controllers(victim):
        faults.bounce(victim, after_ms=0)
        cluster.eventually(victim.started)
        assert not clients.fetch_directly(victim, "orders", 0).answered
        assert not clients.ask_metadata(victim, "orders").answered
    cluster.eventually(victim.active)
    cluster.eventually(cluster.recovered)


@clause("KR-19")
def test_a_process_that_lost_its_id_is_refused(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders")
    victim = cluster.leader("orders", 0)
    with faults.pause(victim):
        cluster.eventually(victim.fenced_by_controller)
        faults.duplicate_id(victim, disk="empty")
        cluster.eventually(cluster.node(f"{victim.name}-duplicate").active)
    cluster.eventually(victim.refused_with("STALE_BROKER_EPOCH"))


@clause("QC-22", "QC-08")
def test_a_controller_that_was_cut_off_drops_what_was_never_committed(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.produce("orders")
    old = cluster.active_controller
    with faults.partition(old, [one for one in cluster.controllers if one != old]):
        cluster.eventually(cluster.another_controller(old))
        clients.create_topic("meanwhile")
    cluster.eventually(cluster.recovered)
    clients.create_topic("later")
    cluster.eventually(old.caught_up)


@pytest.mark.parametrize("fencepost_shape", [kafka_shape(brokers=4)], ids=["four-brokers"])
@clause("KR-21", "RP-19")
def test_a_reassignment_waits_for_the_new_replica(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders", partitions=1)
    writes = clients.produce("orders", rate=100)
    cluster.eventually(writes.acked_at_least(50))
    leader, others = cluster.leader("orders", 0), cluster.followers("orders", 0)
    (new,) = (broker for broker in cluster.brokers if broker not in (leader, *others))
    with faults.cut(new, leader):
        clients.reassign("orders", 0, [leader, others[0], new])
        cluster.eventually(writes.acked_at_least(len(writes.acked) + 100))
        assert clients.reassignments() == ("orders-0",)
    cluster.eventually(cluster.assigned("orders", 0, [leader, others[0], new]))
    cluster.eventually(new.in_sync("orders", 0))


@clause("KR-29", "RP-21")
def test_the_leaderships_of_a_failed_broker_are_shared_and_come_back(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders", partitions=len(TURNS))
    for partition, turn in enumerate(TURNS):
        clients.reassign("orders", partition, list(turn))
    for partition, turn in enumerate(TURNS):
        cluster.eventually(cluster.assigned("orders", partition, list(turn)))
    cluster.eventually(cluster.node("broker-1").leads("orders", 0))
    cluster.eventually(cluster.node("broker-1").leads("orders", 1))
    victim = cluster.node("broker-1")
    with faults.kill(victim):
        cluster.eventually(victim.fenced_by_controller)
        for partition in (0, 1):
            cluster.eventually(cluster.another_leader("orders", partition, victim))
    cluster.eventually(victim.in_sync("orders", 0))
    cluster.eventually(victim.leads("orders", 0))


@clause("KR-22")
def test_an_unregistered_broker_leaves_every_isr_and_may_register_again(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    writes = clients.produce("orders")
    cluster.eventually(writes.acked_at_least(50))
    gone = cluster.leader("orders", 0)
    clients.delete_broker(gone)
    cluster.eventually(cluster.another_leader("orders", 0, gone))
    cluster.eventually(writes.acked_at_least(len(writes.acked) + 50))
    faults.bounce(gone, after_ms=0)
    cluster.eventually(gone.active)
    cluster.eventually(gone.in_sync("orders", 0))


@clause("KR-24", "QC-11", "KR-33", "KR-34")
def test_snapshots_of_the_metadata_hold_what_the_log_leads_to(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders", partitions=12)
    victim = cluster.brokers[0]
    with faults.kill(victim):
        cluster.eventually(victim.fenced_by_controller)
        clients.create_topic("payments", partitions=24)
        clients.alter_settings("orders", {"min.insync.replicas": "1"})
        clients.delete_topic("payments")
    cluster.eventually(cluster.recovered)
    clients.create_topic("returns", partitions=36)
    faults.bounce(cluster.active_controller, after_ms=0)
    cluster.eventually(cluster.led_by_controllers)
    clients.create_topic("refunds", partitions=36)
    cluster.eventually(cluster.recovered)


@clause("RP-25")
def test_a_broker_that_was_down_removes_the_logs_of_a_deleted_topic(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    writes = clients.produce("orders", count=50)
    cluster.eventually(writes.settled)
    cluster.eventually(cluster.recovered)
    away = cluster.brokers[2]
    with faults.kill(away):
        clients.delete_topic("orders")
        gone = history.event_where(
            TopicCommitted,
            lambda body: body.topic == "orders" and body.deleted,
            "the topic orders to be deleted",
        )
        cluster.eventually(gone)
    cluster.eventually(away.active)
    cluster.eventually(away.caught_up)


@clause("RP-31")
def test_a_leader_that_steps_down_fails_the_writes_that_wait(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    clients.create_topic("orders", partitions=1)
    writes = clients.produce("orders", rate=50)
    cluster.eventually(writes.acked_at_least(50))
    old = cluster.leader("orders", 0)
    ended = history.event_where(LeadershipEnded, lambda _: True, f"{old} to stop leading")
    # It does not know that it was deposed, and its clients wait for followers that it has lost.
    with faults.cut_from_controllers(old):
        cluster.eventually(cluster.another_leader("orders", 0, old))
        follows = history.event_where(
            FollowingStarted, lambda body: body.leader != old.id, "a follower to leave it"
        )
        cluster.eventually(follows)
    cluster.eventually(ended)
    cluster.eventually(cluster.recovered)


@pytest.mark.parametrize(
    "fencepost_shape", [kafka_shape(spares=(Spare(Role.CONTROLLER, 104),))], ids=["spare"]
)
@clause("QC-29")
def test_brokers_keep_their_sessions_with_a_controller_at_a_new_address(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    writes = clients.produce("orders", rate=100)
    spare = cluster.node("controller-4")
    cluster.start(spare)
    clients.quorum.add(spare)
    *others, last = cluster.controllers
    for old in others:
        clients.quorum.remove(old)
    # The last one stays a voter: brokers find the active controller only by those that they were
    # configured with. While it starts again, the new one stands for election first.
    for _ in range(ELECTIONS):
        if cluster.active_controller == spare:
            break
        newest = max(body.epoch for body in history.of(ControllerElected))
        with faults.kill(last):
            cluster.eventually(~last.alive)
        cluster.eventually(_elected_after(history, newest))
    assert cluster.active_controller == spare
    for broker in cluster.brokers:
        cluster.eventually(broker.renewed)
    cluster.eventually(writes.acked_at_least(len(writes.acked) + 50))
    cluster.eventually(cluster.recovered)


def _elected_after(history: EventLog, epoch: int) -> Condition:
    return history.event_where(
        ControllerElected, lambda body: body.epoch > epoch, f"an election after epoch {epoch}"
    )
