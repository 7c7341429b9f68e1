"""KIP-380's bounces: a request meant for a broker's former process arrives at its new one, or a
controller does not see that a broker was away.

Each test forces the interleaving: a link holds the one request until the process that it was meant
for is gone. A held request outlives its connection, and is delivered to the next process.
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
"""A broker that cannot hand over all it leads ends after a while, so that its controlled shutdown
lasts until then."""


def elsewhere(cluster: KafkaCluster) -> KafkaNode:
    """A broker that is not the controller, and leads a partition of orders."""
    return cluster.leader("orders", led_elsewhere(cluster, "orders", PARTITIONS))


def answered(
    history: EventLog, broker: KafkaNode, such: Callable[[ControlRequestAnswered], bool], what: str
) -> Condition:
    """The broker has answered a control request for which `such` is true."""
    return history.event_where(
        ControlRequestAnswered,
        lambda body: body.broker_id == broker.id and such(body),
        f"{broker} to answer {what}",
    )


def registered_anew(history: EventLog, broker: KafkaNode) -> Condition:
    """A later process of the broker registers than those that have done so."""
    known = max(
        body.broker_epoch for body in history.of(BrokerRegistered) if body.broker_id == broker.id
    )
    return history.event_where(
        BrokerRegistered,
        lambda body: body.broker_id == broker.id and body.broker_epoch > known,
        f"{broker} to register anew",
    )


def has_old(api: str) -> Callable[[ControlRequestAnswered], bool]:
    """A request of this API that is meant for an earlier broker epoch."""
    return lambda body: body.api == api and body.request_epoch < body.broker_epoch


@SHORT_SHUTDOWN
@physical("signals")
@clause("BE-03")
def test_a_stop_replica_of_a_controlled_shutdown_does_not_stop_the_restarted_broker(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    clients.create_topic("orders", partitions=PARTITIONS)
    # Nothing can take over the partition that it alone has: it stays until the request is held.
    clients.create_topic("alone", replication=1)
    victim = elsewhere(cluster)
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
    victim = elsewhere(cluster)
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
def test_a_broker_that_bounces_before_it_is_seen_to_be_absent_is_initialised_again(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    clients.create_topic("orders", partitions=PARTITIONS)
    victim = elsewhere(cluster)
    anew = registered_anew(history, victim)
    # Its session has not ended yet: the new process replaces the znode of the old one.
    faults.bounce(victim, after_ms=0)
    cluster.eventually(anew)
    cluster.eventually(victim.active)
    cluster.eventually(cluster.recovered)
    assert clients.ask_metadata(victim, "orders").answered


@OUTLASTING_LEASE
@physical("signals")
@clause("BE-07")
def test_a_leader_and_isr_from_before_the_start_is_not_obeyed(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    clients.create_topic("orders", partitions=PARTITIONS)
    cluster.eventually(cluster.recovered)
    controller = cluster.active_controller
    victim, other = (broker for broker in cluster.brokers if broker.id != controller.id)
    # The requests for its new process wait behind the old one, which so may be its first.
    with faults.hold(controller, victim, "LeaderAndIsr", first=0) as held:
        # The leaderships of the other broker move: victim learns of new leaders.
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
def test_an_update_metadata_of_the_former_process_is_not_obeyed(
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
