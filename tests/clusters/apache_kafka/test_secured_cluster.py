"""A secured cluster of Apache Kafka for real: who gets in, who does not, and what is kept of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.clusters.apache_kafka.test_real_cluster import brought

from fencepost import Condition, Shape, UsageError
from fencepost.history.run_folder import RunFolder
from fencepost.plugins.manager import load
from fencepost.runs.run import Run, RunSpec
from fencepost.testing.event_log import EventLog
from fencepost_clusters.apache_kafka.cluster import DEFAULT_VERSION
from fencepost_kafka import OperationRefused
from fencepost_kafka.security import STRANGER, Access, security_named
from fencepost_kafka.testing import KafkaClients, KafkaCluster

pytestmark = pytest.mark.real


def let_a_stranger_write(cluster: KafkaCluster, clients: KafkaClients) -> None:
    """Sends a message as a user without rights, and waits until a broker has refused that."""
    refusal = Condition("a refusal", lambda view: view.kinds["kafka.operation_refused"] > 0)
    clients.produce("orders", count=1, idempotent=False, user=STRANGER)
    cluster.eventually(refusal)


@brought(DEFAULT_VERSION)
def test_a_secured_cluster_is_broken_and_judged_as_an_open_one_and_keeps_no_secret(
    tmp_path: Path,
) -> None:
    plugins, folder = load(), RunFolder.create(tmp_path / "run")
    spec = RunSpec(plugins.system("apache/kraft"), Shape(security="SASL_SSL"))
    with Run.start(spec, plugins, folder) as run:
        cluster, clients, secrets = run.cluster, run.clients, run.runtime.secrets
        assert isinstance(cluster, KafkaCluster)
        assert isinstance(clients, KafkaClients)
        assert secrets is not None
        hidden = [path.read_bytes() for path in secrets.glob("*.password")]
        writes, reads = clients.produce("orders"), clients.consume("orders")
        cluster.eventually(reads.polled_at_least(20))

        # Who has no right is refused, and who has no password does not get so far.
        let_a_stranger_write(cluster, clients)
        assert OperationRefused(
            principal="User:stranger",
            operation="DESCRIBE",
            resource="Topic:orders",
            api="Metadata",
            host="127.0.0.1",
        ) in list(EventLog(run.runtime).of(OperationRefused))
        host, _, port = run.runtime.bootstrap[0].rpartition(":")
        of_clients = Access(security_named("SASL_SSL"), secrets, "clients")
        of_clients.connect((host, int(port)), 10).close()
        (secrets / "nobody.password").write_text("no password")
        with pytest.raises(PermissionError, match="refused the login"):
            replace(of_clients, user="nobody").connect((host, int(port)), 10)

        # Faults of links and processes do what they do to an open cluster; requests are sealed.
        leader = cluster.leader("orders", 0)
        with run.faults.isolate(leader):
            cluster.eventually(cluster.another_leader("orders", 0, leader))
        with pytest.raises(UsageError, match="the links carry TLS"):
            run.faults.hold(leader, cluster.active_controller, "Fetch")
        with run.faults.kill(cluster.active_controller):
            cluster.eventually(cluster.led_by_controllers)
        cluster.eventually(cluster.recovered)
        before = len(writes.acked)
        cluster.eventually(writes.acked_at_least(before + 20))
        # Requests that no library has: a probe's, and an administrator's.
        assert clients.fetch_directly(cluster.leader("orders", 0), "orders", 0).body.records
        clients.reassign("orders", 0, cluster.brokers)
        result = run.finish()
    result.check()
    assert not result.missed
    assert not secrets.exists()
    kept = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    assert folder.path / "work" / "broker-1#1" / "server.properties" in kept
    assert [path for path, data in kept.items() if any(word in data for word in hidden)] == []
