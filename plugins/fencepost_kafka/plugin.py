"""The entry point: Kafka's event kinds, and confluent-kafka's clients as the workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from fencepost import FaultFactory, Workload, hookimpl
from fencepost_kafka.clients.printed import parse
from fencepost_kafka.clients.workers import kafka_clients
from fencepost_kafka.events import KINDS
from fencepost_kafka.faults.administration import OPERATIONS
from fencepost_kafka.faults.hold import hold
from fencepost_kafka.faults.roles import cut_from_controllers

WORKLOAD = "kafka_clients"


@hookimpl
def fencepost_event_kinds() -> Sequence[type[Struct]]:
    """The event kinds of Kafka's controllers, brokers and clients."""
    return KINDS


@hookimpl
def fencepost_faults() -> Mapping[str, FaultFactory]:
    """`cut_from_controllers` and `hold`."""
    return {"cut_from_controllers": cut_from_controllers, "hold": hold}


@hookimpl
def fencepost_workloads() -> Mapping[str, Workload]:
    """`kafka_clients`: confluent-kafka, each client in a process of its own.

    librdkafka can crash its process (that of 2.16.1 sometimes does when an answer names no leader
    for a partition); the open operations of that client are then unknown.
    """
    return {
        WORKLOAD: Workload(
            ("-m", "fencepost_kafka.confluent"), kafka_clients, True, OPERATIONS, parse
        )
    }
