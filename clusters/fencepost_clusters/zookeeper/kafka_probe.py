"""The probe by which it is measured that a link answers in a cluster of Kafka over ZooKeeper."""

from __future__ import annotations

from fencepost_clusters.zookeeper.probe import PORTS, server_probe
from fencepost_kafka.probe import kafka_probe


def probe(address: str, port: int, timeout_s: float, size: int = 0) -> bool:
    """Sends the question that fits the port: to a server of ZooKeeper, or to a broker."""
    asks = server_probe if port in PORTS else kafka_probe
    return asks(address, port, timeout_s, size)
