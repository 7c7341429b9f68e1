"""For tests of Kafka clusters: the types of the fixtures `cluster` and `clients`."""

from __future__ import annotations

from fencepost_kafka.clients.messages import Message
from fencepost_kafka.clients.probe_result import ProbeResult
from fencepost_kafka.clients.started import Reads, Writes
from fencepost_kafka.clients.workers import KafkaClients, kafka_clients
from fencepost_kafka.facade.cluster import KafkaCluster, kafka_cluster
from fencepost_kafka.facade.node import KafkaNode
from fencepost_kafka.facade.voters import Voters
from fencepost_kafka.recovery import missing

__all__ = [
    "KafkaClients",
    "KafkaCluster",
    "KafkaNode",
    "Message",
    "ProbeResult",
    "Reads",
    "Voters",
    "Writes",
    "kafka_clients",
    "kafka_cluster",
    "missing",
]
