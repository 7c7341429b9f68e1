"""Apache Kafka for real: brought, started, struck and judged; and a node that cannot start."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from fencepost import BrokerCommitted, EnvironmentFailed, LeadershipStarted, MetadataApplied, Shape
from fencepost.happened import Happened
from fencepost.plugin_manager import Plugins, load
from fencepost.run import Run, RunSpec
from fencepost.run_folder import RunFolder
from fencepost_clusters.apache_kafka.cluster import DEFAULT_VERSION
from fencepost_clusters.apache_kafka.distribution import cache
from fencepost_clusters.apache_kafka.metrics import MetricsTold

pytestmark = pytest.mark.skipif(
    shutil.which("mvn") is None and not (cache(os.environ) / DEFAULT_VERSION).exists(),
    reason="Kafka is not here, and neither is Maven, which would bring it",
)


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


def test_a_killed_leader_is_fenced_and_nothing_acknowledged_is_lost(
    tmp_path: Path, plugins: Plugins
) -> None:
    folder = RunFolder.create(tmp_path / "run")
    with Run.start(RunSpec(plugins.system("apache/kraft")), plugins, folder) as run:
        clients, cluster = run.clients, run.cluster
        writes = clients.produce("orders", count=200, rate=100)
        cluster.eventually(writes.acked_at_least(50))
        with run.faults.kill(cluster.leader("orders", 0)):
            cluster.eventually(writes.settled, within_ms=60_000)
        cluster.eventually(cluster.recovered)
        assert writes.acked <= clients.read_all("orders")
        history = Happened(run.runtime)
        assert {body.broker_id for body in history.of(BrokerCommitted)} == {1, 2, 3}
        assert len(list(history.of(LeadershipStarted))) >= 4
        assert any(history.of(MetadataApplied, "broker-1#1"))
        nodes = {node.name for node in (*cluster.controllers, *cluster.brokers)}
        assert {told.slot for told in history.of(MetricsTold)} == nodes
        result = run.finish()
    result.check(("KR-02", "KR-08", "QC-21", "QC-30", "RP-13", "JEPSEN-lost-write"))
    assert folder.info().versions["apache/kraft"] == DEFAULT_VERSION


def test_a_node_that_dies_at_its_start_is_named_with_its_last_words(
    tmp_path: Path, plugins: Plugins
) -> None:
    shape = Shape(controllers=1, brokers=1, own={"broker-1": {"num.io.threads": "0"}})
    folder = RunFolder.create(tmp_path / "run")
    with pytest.raises(EnvironmentFailed, match=r"broker-1#1 .* exit code 1, and should") as failed:
        Run.start(RunSpec(plugins.system("apache/kraft"), shape), plugins, folder)
    assert "num.io.threads" in failed.value.detail
    assert failed.value.exit_code == 4
