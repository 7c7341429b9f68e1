"""Real Kafka clients as a workload: confluent-kafka, each client in a process of its own.

librdkafka can take its process down with it (that of 2.16.1 does now and then, when an answer names
no leader for a partition); what such a client had begun is then unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fencepost import hookimpl


@hookimpl
def fencepost_workloads() -> Mapping[str, Sequence[str]]:
    return {"kafka_clients": ("-m", "fencepost_plugins.kafka_clients.worker")}
