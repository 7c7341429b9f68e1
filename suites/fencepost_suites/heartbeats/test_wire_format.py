"""KIP-343's messages as bytes, encoded and decoded by the document: their fields, and which
requests the controller refuses."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeVar

import pytest

from fencepost import Shape
from fencepost.testing import EventLog, Faults
from fencepost_kafka import (
    BrokerRegistered,
    ControllerBegan,
    ControllerEnded,
    IsrChangeJudged,
    MetadataHeartbeatReceived,
    PartitionCommitted,
)
from fencepost_kafka.testing import KafkaClients, KafkaCluster, KafkaNode
from fencepost_suites.heartbeats import wire_format as w
from fencepost_suites.heartbeats.wire_format import WantedIsr

clause = pytest.mark.clause
physical = pytest.mark.physical
pytestmark = pytest.mark.only("reference/legacy", reason="KIP-343 is of the plane over ZooKeeper")
STRANGER = 59
NO_STATE = 9
HIDDEN = {"replication.listener.advertised": "0"}
Result = TypeVar("Result")


def of_controller(
    cluster: KafkaCluster, history: EventLog, ask: Callable[[KafkaNode], Result]
) -> tuple[KafkaNode, Result]:
    """The controller, and the result of `ask` in one term of it.

    If another controller was elected meanwhile, `ask` is called again, since the former controller
    rightly refuses.
    """

    def changes() -> int:
        return len(history.of(ControllerBegan)) + len(history.of(ControllerEnded))

    while True:
        before, name = changes(), cluster.active_controller.name
        controller = next(broker for broker in cluster.brokers if broker.name == name)
        answer = ask(controller)
        if changes() == before:
            return controller, answer


def incarnation(history: EventLog, broker: KafkaNode) -> int:
    """The czxid of a broker's newest registration."""
    return max(b.broker_epoch for b in history.of(BrokerRegistered) if b.broker_id == broker.id)


@physical("sockets")
@clause("HB-26", "HB-27")
def test_a_heartbeat_and_its_answer_have_the_fields_of_the_document(
    cluster: KafkaCluster, clients: KafkaClients, history: EventLog
) -> None:
    def heartbeats(controller: KafkaNode) -> dict[KafkaNode, bytes]:
        one = next(broker for broker in cluster.brokers if broker != controller)
        frame = w.metadata_heartbeat(one.id, incarnation(history, one), w.ACTIVE)
        return {
            node: clients.send_bytes(node, frame, to_controller=True).answer
            for node in cluster.brokers
        }

    controller, frames = of_controller(cluster, history, heartbeats)
    for node, frame in frames.items():
        answer = w.read_heartbeat_answer(frame)
        if node == controller:
            held = (answer.error, answer.state, answer.left) == (w.NONE, w.ACTIVE, 0)
        else:
            held = (answer.error, answer.left) == (w.NOT_CONTROLLER, 0)
        history.record_evidence("HB-26", held, f"{node} answered a MetadataHeartbeat: {answer}")


@pytest.mark.parametrize(
    ("broker", "target"),
    [
        pytest.param(-1, w.ACTIVE, marks=physical("sockets")),
        *((None, target) for target in (w.INITIAL, w.INACTIVE, NO_STATE)),
    ],
    ids=["negative-id", "to-initial", "to-inactive", "to-no-state"],
)
@clause("HB-15")
def test_a_malformed_heartbeat_is_refused_and_changes_nothing(
    broker: int | None,
    target: int,
    cluster: KafkaCluster,
    clients: KafkaClients,
    history: EventLog,
) -> None:
    """If `broker` is None, the heartbeat names a live broker. The rule judges that the controller
    declares no state for it."""

    def malformed(controller: KafkaNode) -> w.HeartbeatAnswer:
        one = next(node for node in cluster.brokers if node != controller)
        number = one.id if broker is None else broker
        frame = w.metadata_heartbeat(number, incarnation(history, one), target)
        sent = clients.send_bytes(controller, frame, to_controller=True)
        return w.read_heartbeat_answer(sent.answer)

    controller, answer = of_controller(cluster, history, malformed)
    held = answer.error == w.INVALID_REQUEST
    history.record_evidence("HB-15", held, f"{controller} answered a malformed heartbeat: {answer}")


@pytest.mark.parametrize(
    "fencepost_shape",
    [Shape(own={f"broker-{number}#2": HIDDEN for number in (1, 2, 3)})],
    ids=["hidden"],
)
@pytest.mark.parametrize(
    "slow_watch",
    [False, pytest.param(True, marks=physical("sockets"))],
    ids=["at-once", "before-its-watch"],
)
@clause("HB-15")
def test_heartbeats_for_a_registration_without_an_address_are_refused(
    slow_watch: bool,
    cluster: KafkaCluster,
    faults: Faults,
    clients: KafkaClients,
    history: EventLog,
) -> None:
    """The broker's second process registers without the listener that other brokers use. Its first
    heartbeat may come before the controller has read that registration."""
    clients.create_topic("orders")
    controller = cluster.active_controller.name
    victim = next(broker for broker in cluster.brokers if broker.name != controller)

    def refused(body: MetadataHeartbeatReceived) -> bool:
        return body.broker_id == victim.id and body.error == "INVALID_REQUEST"

    with ExitStack() as late:
        if slow_watch:
            late.enter_context(faults.slow_link(controller, "zookeeper-1", latency_ms=150))
        faults.bounce(victim, after_ms=0)
        cluster.eventually(
            history.event_where(MetadataHeartbeatReceived, refused, f"{victim} to be refused")
        )
    faults.bounce(victim, after_ms=0)
    cluster.eventually(victim.active)
    cluster.eventually(cluster.recovered)


@physical("sockets")
@clause("HB-18", "HB-19", "HB-20", "HB-26")
def test_invalid_isr_changes_are_refused_in_the_order_of_the_request(
    cluster: KafkaCluster, clients: KafkaClients, history: EventLog
) -> None:
    clients.create_topic("payments", partitions=1)
    cluster.eventually(cluster.recovered)
    leader = cluster.leader("payments", 0)
    epoch = max(
        body.leader_epoch
        for body in history.of(PartitionCommitted)
        if (body.topic, body.partition) == ("payments", 0)
    )
    everyone = [broker.id for broker in cluster.brokers]
    unfit = (
        WantedIsr(epoch, 0, []),
        WantedIsr(epoch, 0, [broker for broker in everyone if broker != leader.id]),
        WantedIsr(epoch, 0, [*everyone, STRANGER]),
    )
    not_led = WantedIsr(epoch + 1, 0, everyone)
    unchanged = WantedIsr(epoch, 0, everyone)
    missing = WantedIsr(epoch, 1, everyone)
    wanted = {"payments": (unfit[0], missing, not_led, unchanged, *unfit[1:])}
    expected = (
        *(w.INVALID_REQUEST, w.UNKNOWN_PARTITION, w.NOT_LEADER, w.NONE),
        *(w.INVALID_REQUEST, w.INVALID_REQUEST),
    )

    def ask(controller: KafkaNode) -> tuple[w.IsrChangeAnswer, w.IsrChangeAnswer]:
        own = incarnation(history, leader)
        asked, overwritten = (
            clients.send_bytes(
                controller, w.isr_change(leader.id, number, wanted), to_controller=True
            )
            for number in (own, own - 1)
        )
        return (
            w.read_isr_change_answer(asked.answer),
            w.read_isr_change_answer(overwritten.answer),
        )

    controller, (answer, to_overwritten) = of_controller(cluster, history, ask)
    text = f"{controller} answered an IsrChange: {answer}"
    whole = (len(answer.results), answer.left) == (len(expected), 0)
    history.record_evidence("HB-26", whole, text)
    for clause_id, error in (("HB-19", w.NOT_LEADER), ("HB-20", w.INVALID_REQUEST)):
        places = [index for index, wanted in enumerate(expected) if wanted == error]
        held = whole and all(answer.results[index] == error for index in places)
        history.record_evidence(clause_id, held, text)
    text = f"{controller} answered an overwritten process: {to_overwritten}"
    history.record_evidence("HB-26", to_overwritten.left == 0, text)
    refused = to_overwritten.error == w.INVALID_INCARNATION_ID
    history.record_evidence("HB-18", refused, text)

    def ours(body: IsrChangeJudged) -> bool:
        return body.client == w.NAME

    cluster.comes_to(history.event_where(IsrChangeJudged, ours, f"{controller} to judge it"))
    cluster.eventually(cluster.recovered)
