"""The probe by which it is measured that a link answers in a cluster of Kafka over ZooKeeper."""

from __future__ import annotations

from fencepost_clusters.zookeeper.probe import PORTS, server_probe
from fencepost_kafka.probe import kafka_probe

BROKER_PORTS = frozenset({9092, 9093, 9094})
"""The ports on which brokers listen: those of `fencepost_kafka.layout.Ports`, which needs more than
a pod has installed."""


def probe(address: str, port: int, timeout_s: float, size: int = 0) -> bool:
    """Sends the question that fits the port: to a server of ZooKeeper, or to a broker.

    Any other port stands for one of them, as those of the clients' pod do. It is asked both
    questions: a server closes the connection at once upon the one that it does not know.
    """
    if port in PORTS:
        return server_probe(address, port, timeout_s, size)
    known = port in BROKER_PORTS
    return kafka_probe(address, port, timeout_s, size) or (
        not known and server_probe(address, port, timeout_s, size)
    )
