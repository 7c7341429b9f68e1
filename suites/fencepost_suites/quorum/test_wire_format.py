"""KIP-631's bytes on the wire, as a client sees them that encodes and decodes them by the
document."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from fencepost.testing import EventLog
from fencepost_kafka import ControllerElected, ControllerResigned, HeartbeatAnswered
from fencepost_kafka.testing import KafkaClients, KafkaCluster, KafkaNode
from fencepost_suites.quorum import wire_format as w

clause = pytest.mark.clause
physical = pytest.mark.physical

NOT_CONTROLLER, NOT_REGISTERED = 41, 102
STRANGER = 59
UNKNOWN_STATE = 99
OBSOLETE = {4: "LeaderAndIsr", 5: "StopReplica", 6: "UpdateMetadata", 7: "ControlledShutdown"}
UNKNOWN_TAG = b"\1\x63\2ab"
"""One tagged field, number 99, of two bytes."""
Result = TypeVar("Result")


def of_active(
    cluster: KafkaCluster, history: EventLog, ask: Callable[[KafkaNode], Result]
) -> tuple[KafkaNode, Result]:
    """The active controller, and its answer, given while it was active.

    If another controller was elected meanwhile, the question is asked again: the former one rightly
    refuses.
    """

    def changes() -> int:
        return len(history.of(ControllerElected)) + len(history.of(ControllerResigned))

    while True:
        before, active = changes(), cluster.active_controller
        answer = ask(active)
        if changes() == before:
            return active, answer


@physical("sockets")
@clause("QC-34", "QC-22")
def test_heartbeats_have_the_seeds_fields_and_are_served_to_no_client(
    cluster: KafkaCluster, clients: KafkaClients, history: EventLog
) -> None:
    frames = w.broker_heartbeat(STRANGER, epoch=5), w.controller_heartbeat(STRANGER, -1)
    active, answers = of_active(
        cluster,
        history,
        lambda _: {n: [clients.send_bytes(n, f) for f in frames] for n in cluster.controllers},
    )
    for node, (to_broker, to_controller) in answers.items():
        answer = w.read_heartbeat_answer(to_broker.answer)
        held = answer.left == 0 and answer.broker_epoch == -1
        if node == active:
            held = held and answer.error == NOT_REGISTERED and answer.active_controller == active.id
        else:
            held = held and answer.error == NOT_CONTROLLER
        history.record_evidence("QC-34", held, f"{node} answered a BrokerHeartbeat: {answer}")
        error, start, left = w.read_controller_answer(to_controller.answer)
        held = left == 0 and not start and (error == NOT_CONTROLLER) is (node != active)
        history.record_evidence(
            "QC-34", held, f"{node} answered a ControllerHeartbeat: error {error}"
        )
    broker = cluster.brokers[0]
    for frame in (w.broker_heartbeat(STRANGER), w.controller_heartbeat(101, -1)):
        result = clients.send_bytes(broker, frame)
        history.record_evidence(
            "QC-34", result.refused, f"{broker} on its client listener: {result.body.outcome}"
        )


@clause("QC-27")
def test_an_unknown_state_is_read_as_unknown(
    cluster: KafkaCluster, clients: KafkaClients, history: EventLog
) -> None:
    frame = w.broker_heartbeat(STRANGER, target=UNKNOWN_STATE, epoch=5)
    active, result = of_active(cluster, history, lambda node: clients.send_bytes(node, frame))
    answer = w.read_heartbeat_answer(result.answer)

    def ours(body: HeartbeatAnswered) -> bool:
        return body.broker_id == STRANGER and body.request_epoch == 5

    cluster.comes_to(
        history.event_where(HeartbeatAnswered, ours, f"{active}'s own event of its answer")
    )
    read = {body.target_state for body in history.of(HeartbeatAnswered) if ours(body)}
    held = answer.error == NOT_REGISTERED and read == {"UNKNOWN"}
    history.record_evidence(
        "QC-27", held, f"the state {UNKNOWN_STATE} was read as {read}: {answer}"
    )
    assert cluster.holds(active.alive)


@physical("sockets")
@clause("QC-23")
def test_the_requests_of_zookeepers_controllers_are_not_served(
    cluster: KafkaCluster, clients: KafkaClients, history: EventLog
) -> None:
    for node in (cluster.brokers[0], cluster.active_controller):
        for key, name in OBSOLETE.items():
            result = clients.send_bytes(node, w.header(key, 0, flexible=False))
            # Kafka 3.9 still knows the names, for its migration, and answers with an error.
            held = result.refused or w.leading_error(result.answer) != 0
            history.record_evidence(
                "QC-23", held, f"{name} to {node}: {result.body.outcome} {result.body.answer}"
            )


@physical("sockets")
@clause("QC-10")
def test_metadata_records_are_written_as_the_seed_has_them(
    cluster: KafkaCluster, clients: KafkaClients, history: EventLog
) -> None:
    clients.create_topic("orders", config={"min.insync.replicas": "1"})
    clients.delete_topic("orders")
    active, result = of_active(
        cluster, history, lambda node: clients.send_bytes(node, w.fetch_metadata(0))
    )
    values = w.record_values(result.answer)
    kinds = set()
    for no_key, value in values:
        kind, at = w.varint(value, 0)
        version, at = w.varint(value, at)
        kinds.add(kind)
        held = no_key and 0 <= kind <= 7 and version in (0, 1) and len(value) > at
        history.record_evidence(
            "QC-10", held, f"a record of type {kind}, version {version}: {value.hex()}"
        )
    # A broker, a topic, its partitions, a setting, and the deletion of the topic.
    history.record_evidence(
        "QC-10", {0, 1, 2, 3, 7} <= kinds, f"types of records in the log: {sorted(kinds)}"
    )
    frame = w.broker_heartbeat(STRANGER, epoch=5, tagged=UNKNOWN_TAG)
    result = clients.send_bytes(active, frame)
    history.record_evidence("QC-10", result.answered, "an unknown tagged field was skipped")
