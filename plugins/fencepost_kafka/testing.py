"""For tests of Kafka clusters: what the fixtures `cluster` and `clients` return."""

from __future__ import annotations

from fencepost_kafka.clients import KafkaClients, kafka_clients
from fencepost_kafka.cluster import KafkaCluster, kafka_cluster
from fencepost_kafka.node import KafkaNode
from fencepost_kafka.probe_result import ProbeResult
from fencepost_kafka.recovery import missing
from fencepost_kafka.started import Reads, Writes

__all__ = [
    "KafkaClients",
    "KafkaCluster",
    "KafkaNode",
    "ProbeResult",
    "Reads",
    "Writes",
    "kafka_clients",
    "kafka_cluster",
    "missing",
]
