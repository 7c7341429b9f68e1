"""Apache Kafka at peace, and after one bounce.

A release that breaks a promise here prints other lines than those that are read, or has a defect
that everybody meets.

Each minor release is run through these two before a release of Fencepost; the guide to Apache Kafka
has the table.
"""

from __future__ import annotations

import pytest

from fencepost.testing import Faults
from fencepost_kafka.testing import KafkaClients, KafkaCluster

pytestmark = [
    pytest.mark.only("apache/kraft", reason="what a release of Kafka prints is under test"),
    pytest.mark.clause("REG-04", "KR-39"),
]


def test_at_peace_no_promise_is_broken(cluster: KafkaCluster, clients: KafkaClients) -> None:
    writes = clients.produce("orders", count=200, rate=100)
    cluster.eventually(writes.settled)
    assert writes.acked <= clients.read_all("orders")


def test_one_bounce_breaks_no_promise(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    writes = clients.produce("orders", rate=100)
    cluster.eventually(writes.acked_at_least(50))
    faults.bounce(cluster.leader("orders", 0), after_ms=0)
    cluster.eventually(cluster.recovered)
    cluster.eventually(writes.acked_at_least(len(writes.acked) + 50))
