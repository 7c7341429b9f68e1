"""KIP-380's bounces: a request for a broker's former process arrives at its new process, or a
controller does not see that a broker was absent.

Each test forces the interleaving: a link holds the request until its target process has ended. A
held request outlives its connection, and is delivered to the next process. The conditions need no
broker epochs, so releases before KIP-380 run the same tests. The end of a run waits for recovery.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fencepost import Condition, View
from fencepost.testing import EventLog, Faults
from fencepost_kafka import (
    BrokerRegistered,
    ControlledShutdownAnswered,
    ControlRequestAnswered,
    ControlRequestSent,
    KafkaView,
)
from fencepost_kafka.facade.node import KafkaNode
from fencepost_kafka.testing import KafkaClients, KafkaCluster
from fencepost_suites.common.places import led_elsewhere
from fencepost_suites.common.shapes import OUTLASTING_LEASE, shaped

clause = pytest.mark.clause
physical = pytest.mark.physical
PARTITIONS = 6
OUTLASTING_PAUSE = shaped("outlasting-pause", registration_lease_timeout_ms="30000")
"""A controller that is paused while a broker restarts keeps its session."""


def leading_elsewhere(cluster: KafkaCluster) -> KafkaNode:
    """A broker that leads a partition of orders and is not the controller."""
    return cluster.leader("orders", led_elsewhere(cluster, "orders", PARTITIONS))


def answered(
    history: EventLog, broker: KafkaNode, test: Callable[[ControlRequestAnswered], bool], what: str
) -> Condition:
    """The broker has answered a control request that meets `test`."""
    return history.event_where(
        ControlRequestAnswered,
        lambda body: body.broker_id == broker.id and test(body),
        f"{broker} to answer {what}",
    )


def registered_anew(history: EventLog, broker: KafkaNode) -> Condition:
    """The broker registers once more than it had when this was called."""

    def times() -> int:
        return sum(body.broker_id == broker.id for body in history.of(BrokerRegistered))

    known = times()
    return history.event_where(
        BrokerRegistered, lambda _: times() > known, f"{broker} to register anew"
    )


def once_more(history: EventLog, broker: KafkaNode, api: str) -> Condition:
    """The broker answers one more request of this API than it had when this was called."""

    def times() -> int:
        return sum(
            body.api == api and body.broker_id == broker.id
            for body in history.of(ControlRequestAnswered)
        )

    known = times()
    return answered(history, broker, lambda _: times() > known, f"one more {api}")


def leads_alone(broker: KafkaNode) -> Condition:
    """The ISR of a partition has that broker only."""

    def holds(view: View) -> bool:
        known = view.of(KafkaView).partitions.values()
        return any(one.isr == (broker.id,) for one in known)

    return Condition(f"{broker} to lead a partition alone", holds)


@OUTLASTING_LEASE
@physical("signals")
@clause("BE-03")
def test_a_stop_replica_of_a_controlled_shutdown_does_not_stop_the_restarted_broker(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    clients.create_topic("orders", partitions=PARTITIONS)
    clients.create_topic("alone", partitions=PARTITIONS, replication=2)
    controller, victim = cluster.active_controller, leading_elsewhere(cluster)
    (other,) = (one for one in cluster.brokers if one.id not in (controller.id, victim.id))
    with faults.hold(controller, victim, "StopReplica", topic="orders") as held:
        # No other broker can lead what it leads alone, so its shutdown lasts until the request is
        # held. A follower that lacks nothing would stay in the ISR.
        with faults.cut(other, victim):
            clients.produce("alone", acks=1, count=60, rate=30)
            cluster.eventually(leads_alone(victim))
            anew = registered_anew(history, victim)
            faults.bounce(victim, after_ms=0, signal="SIGTERM")
            cluster.eventually(anew)
            assert held.await_receipt().true
            cluster.eventually(victim.active)
        arrived = once_more(history, victim, "StopReplica")
    cluster.eventually(arrived)


@OUTLASTING_LEASE
@physical("signals")
@clause("BE-04")
def test_a_controlled_shutdown_that_arrives_after_the_bounce_is_rejected(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    clients.create_topic("orders", partitions=PARTITIONS)
    victim = leading_elsewhere(cluster)
    with faults.hold(victim, cluster.active_controller, "ControlledShutdown") as held:
        anew = registered_anew(history, victim)
        faults.bounce(victim, after_ms=0, signal="SIGTERM")
        cluster.eventually(anew)
        assert held.receipt.true or held.await_receipt().true
        cluster.eventually(victim.active)
        cluster.eventually(cluster.recovered)
        known = len(history.of(ControlledShutdownAnswered))
    cluster.eventually(
        history.event_where(
            ControlledShutdownAnswered,
            lambda _: len(history.of(ControlledShutdownAnswered)) > known,
            f"the old ControlledShutdown of {victim} to be answered",
        )
    )


@OUTLASTING_PAUSE
@physical("signals")
@clause("BE-05", "BE-06", "BE-01")
def test_a_broker_that_bounces_before_its_absence_is_detected_is_initialised_again(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    clients.create_topic("orders", partitions=PARTITIONS)
    victim = leading_elsewhere(cluster)
    # When the controller looks for brokers again, the new process is there in place of the old.
    with faults.pause(cluster.active_controller):
        anew = registered_anew(history, victim)
        faults.bounce(victim, after_ms=0, signal="SIGTERM")
        cluster.eventually(anew)
    cluster.eventually(victim.active)
    cluster.eventually(cluster.recovered)
    assert clients.ask_metadata(victim, "orders").answered


@OUTLASTING_LEASE
@physical("signals")
@clause("BE-07")
def test_a_leader_and_isr_for_the_former_process_is_not_obeyed(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    clients.create_topic("orders", partitions=PARTITIONS)
    cluster.eventually(cluster.recovered)
    controller = cluster.active_controller
    victim, other = (broker for broker in cluster.brokers if broker.id != controller.id)
    # Requests for the new process wait behind the held one, which may so arrive first.
    with faults.hold(controller, victim, "LeaderAndIsr", first=0) as held:
        # The other broker's leaderships move, so the victim is sent a LeaderAndIsr.
        faults.bounce(other, after_ms=0)
        assert held.await_receipt().true
        anew = registered_anew(history, victim)
        faults.bounce(victim, after_ms=0)
        cluster.eventually(anew)
        cluster.eventually(victim.active)
        arrived = once_more(history, victim, "LeaderAndIsr")
    cluster.eventually(arrived)


@OUTLASTING_LEASE
@clause("BE-02")
def test_an_update_metadata_for_the_former_process_is_not_obeyed(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    clients.create_topic("orders", partitions=PARTITIONS)
    controller = cluster.active_controller
    victim = next(broker for broker in cluster.brokers if broker.id != controller.id)
    with faults.hold(controller, victim, "UpdateMetadata") as held:
        clients.create_topic("payments")
        assert held.await_receipt().true
        anew = registered_anew(history, victim)
        faults.bounce(victim, after_ms=0)
        cluster.eventually(anew)
        cluster.eventually(victim.active)
        arrived = once_more(history, victim, "UpdateMetadata")
    cluster.eventually(arrived)
    cluster.eventually(cluster.recovered)
    assert clients.ask_metadata(victim, "payments").answered


@OUTLASTING_LEASE
@physical("signals")
@clause("BE-08")
def test_a_request_of_a_deposed_controller_is_rejected(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    clients.create_topic("orders", partitions=PARTITIONS)
    old = cluster.active_controller
    victim = next(broker for broker in cluster.brokers if broker.id != old.id)
    epoch = max(body.controller_epoch for body in history.of(ControlRequestSent))
    with faults.hold(old, victim, "UpdateMetadata") as held:
        clients.create_topic("payments")
        assert held.await_receipt().true
        faults.bounce(old, after_ms=0)
        cluster.eventually(
            answered(history, victim, lambda b: b.controller_epoch > epoch, "a new controller")
        )
    cluster.eventually(
        answered(
            history,
            victim,
            lambda body: body.controller_epoch < body.seen_epoch,
            "the old controller's request",
        )
    )


@clause("BE-09")
def test_every_control_request_for_the_current_process_is_carried_out(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    clients.create_topic("orders", partitions=PARTITIONS)
    clients.create_topic("short-lived", partitions=PARTITIONS)
    cluster.eventually(cluster.recovered)
    clients.delete_topic("short-lived")
    for broker in cluster.brokers:
        cluster.eventually(
            answered(history, broker, lambda body: body.deletes, "the StopReplica of a deletion")
        )
