"""KIP-631's metrics: a node's report about itself agrees with the history."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from fencepost import Shape, Spare
from fencepost.testing import EventLog, Faults
from fencepost_kafka import MetricsReported, Role
from fencepost_kafka.testing import KafkaClients, KafkaCluster, KafkaNode

clause = pytest.mark.clause
physical = pytest.mark.physical
seldom = pytest.mark.parametrize(
    "fencepost_shape",
    [
        Shape(
            settings={"metadata.snapshot.interval.records": "30"},
            spares=(Spare(Role.BROKER, 4),),
        )
    ],
    ids=["snapshots"],
)

CONTROLLER = "kafka.controller:type=KafkaController,name="
BROKER = "kafka.controller:type=KafkaServer,name="
SAMPLE = re.compile(r'(kafka\w+)\{name="([^"]+)",node="(\d+)"\} (\S+)')


def figures(report: MetricsReported) -> Mapping[str, float]:
    """The figures of an event, under the seed's full names."""
    if report.role == "broker":
        return {f"{BROKER}MetadataLag": report.metadata_lag}
    return {
        f"{CONTROLLER}MetadataLag": report.metadata_lag,
        f"{CONTROLLER}MetadataCommitLatencyMs": report.commit_latency_ms,
        f"{CONTROLLER}MetadataCommitRate": report.commit_rate,
        f"{CONTROLLER}MetadataSnapshotLag": report.snapshot_lag,
        f"{CONTROLLER}ControllerRequestsRate": report.requests_rate,
    }


@seldom
@clause("QC-25")
def test_a_node_that_lags_reports_its_lag(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    clients.create_topic("orders", partitions=12)
    standby = next(c for c in cluster.controllers if c != cluster.active_controller)
    with faults.isolate(standby):
        # It lags so far that the log no longer holds its next record: it learns the end of the
        # metadata, and must load a snapshot before it can follow.
        clients.create_topic("payments", partitions=24)
        with faults.kill(cluster.brokers[2]):
            cluster.eventually(cluster.brokers[2].fenced_by_controller)
        cluster.eventually(cluster.recovered)
        clients.create_topic("returns", partitions=12)
    cluster.eventually(standby.from_snapshot)
    newcomer = cluster.node("broker-4")
    cluster.start(newcomer)
    cluster.eventually(newcomer.active)
    cluster.eventually(cluster.recovered)
    behind = {body.role for body in history.of(MetricsReported) if body.metadata_lag}
    assert behind == {"controller", "broker"}


@pytest.mark.only("process", "docker", reason="the metrics page is read over HTTP")
@seldom
@physical("sockets")
@clause("QC-25", "QC-37")
def test_a_nodes_metrics_page_has_the_seeds_names_and_says_what_the_history_shows(
    cluster: KafkaCluster, clients: KafkaClients, history: EventLog
) -> None:
    clients.create_topic("orders", partitions=36)
    writes = clients.produce("orders", count=200)
    cluster.eventually(writes.settled)
    for node in (*cluster.controllers, *cluster.brokers):
        result = clients.read_metrics(node)
        page = result.answer.decode()
        assert result.answered, result.body
        samples = {
            name: float(value) for _, name, of, value in SAMPLE.findall(page) if int(of) == node.id
        }

        def same(body: MetricsReported, node: KafkaNode = node, samples: object = samples) -> bool:
            return body.node_id == node.id and figures(body) == samples

        shown = history.event_where(
            MetricsReported, same, f"{node}'s own list of what its page shows"
        )
        held = cluster.comes_to(shown)
        history.record_evidence("QC-25", held, f"{node} shows {samples} to a client")
        history.record_evidence(
            "QC-37", "ZooKeeper" not in page, f"{node}'s page has {sorted(samples)}"
        )
