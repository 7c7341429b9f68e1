"""KIP-380's bounces: a request for a broker's former process arrives at its new process, or a
controller does not see that a broker was absent.

Each test forces the interleaving: a link holds the request until its target process has ended. A
held request outlives its connection, and is delivered to the next process.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fencepost import Condition
from fencepost.testing import EventLog, Faults
from fencepost_kafka import (
    BrokerRegistered,
    ControlledShutdownAnswered,
    ControlRequestAnswered,
    ControlRequestSent,
)
from fencepost_kafka.facade.node import KafkaNode
from fencepost_kafka.testing import KafkaClients, KafkaCluster
from fencepost_suites.common.places import led_elsewhere
from fencepost_suites.common.shapes import LONG_LEASE, OUTLASTING_LEASE, shaped

clause = pytest.mark.clause
physical = pytest.mark.physical
pytestmark = [
    pytest.mark.only("reference/legacy", reason="control requests with broker epochs are KIP-380's")
]
PARTITIONS = 6
SHORT_SHUTDOWN = shaped(
    "short-shutdown", controlled_shutdown_timeout_ms="3000", registration_lease_timeout_ms="6000"
)
"""A broker that cannot hand over all leaderships ends at the time limit: its controlled shutdown
lasts that long."""


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
    """The broker registers with a broker epoch above all that it had when this was called."""
    known = max(
        body.broker_epoch for body in history.of(BrokerRegistered) if body.broker_id == broker.id
    )
    return history.event_where(
        BrokerRegistered,
        lambda body: body.broker_id == broker.id and body.broker_epoch > known,
        f"{broker} to register anew",
    )


def has_old(api: str) -> Callable[[ControlRequestAnswered], bool]:
    """Tests for a request of this API with an earlier broker epoch."""
    return lambda body: body.api == api and body.request_epoch < body.broker_epoch


@SHORT_SHUTDOWN
@physical("signals")
@clause("BE-03")
def test_a_stop_replica_of_a_controlled_shutdown_does_not_stop_the_restarted_broker(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    clients.create_topic("orders", partitions=PARTITIONS)
    # No other broker can lead this partition, so the shutdown lasts until the request is held.
    clients.create_topic("alone", replication=1)
    victim = leading_elsewhere(cluster)
    with faults.hold(cluster.active_controller, victim, "StopReplica") as held:
        anew = registered_anew(history, victim)
        faults.bounce(victim, after_ms=0, signal="SIGTERM")
        cluster.eventually(anew)
        assert held.await_receipt().true
        cluster.eventually(victim.active)
    cluster.eventually(answered(history, victim, has_old("StopReplica"), "the old StopReplica"))
    cluster.eventually(cluster.recovered)


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
    newest = max(b.broker_epoch for b in history.of(BrokerRegistered) if b.broker_id == victim.id)
    cluster.eventually(
        history.event_where(
            ControlledShutdownAnswered,
            lambda body: (
                body.broker_id == victim.id and body.request_epoch < newest <= body.known_epoch
            ),
            f"the old ControlledShutdown of {victim} to be answered",
        )
    )
    cluster.eventually(cluster.recovered)


@LONG_LEASE
@physical("signals")
@clause("BE-05", "BE-06", "BE-01")
def test_a_broker_that_bounces_before_its_absence_is_detected_is_initialised_again(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    clients.create_topic("orders", partitions=PARTITIONS)
    victim = leading_elsewhere(cluster)
    anew = registered_anew(history, victim)
    # The old session has not ended: the new process replaces the old znode.
    faults.bounce(victim, after_ms=0)
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
    cluster.eventually(answered(history, victim, has_old("LeaderAndIsr"), "the old LeaderAndIsr"))
    cluster.eventually(cluster.recovered)


@OUTLASTING_LEASE
@physical("signals")
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
    cluster.eventually(answered(history, victim, has_old("UpdateMetadata"), "the old one"))
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
    cluster.eventually(cluster.recovered)


@clause("BE-09", "BE-01")
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
    cluster.eventually(cluster.recovered)
