"""The client core against confluent-kafka: the same work on real processes has the same events."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fencepost.history.run_folder import RunFolder
from fencepost.plugins.manager import Plugins, load
from fencepost.runs.run import Run, RunSpec
from fencepost_kafka import KafkaView, LogAppended, Polled, ProduceCompleted

pytestmark = pytest.mark.real

MESSAGES = 120
REAL, CORE = "kafka_clients", "core_clients"


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


@pytest.fixture(scope="module")
def results(
    plugins: Plugins, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """The results of the same work with each kind of clients."""
    return {
        workload: work(workload, plugins, tmp_path_factory.mktemp(workload) / "run")
        for workload in (REAL, CORE)
    }


def work(workload: str, plugins: Plugins, path: Path) -> dict[str, Any]:
    """Topics, writes through a leader's death, probes, a seek, a whole reading."""
    spec = RunSpec(plugins.system("reference/quorum"), seed=5, workload=workload)
    found: dict[str, Any] = {}
    with Run.start(spec, plugins, RunFolder.create(path)) as run:
        cluster, clients = run.cluster, run.clients
        clients.create_topic("orders")
        clients.create_topic("gone", 1)
        clients.delete_topic("gone")
        asked = (clients.list_topics(), clients.describe_cluster())
        found["administration"] = [(a.api, a.outcome, a.error) for a in asked]
        found["kinds"] = {}
        for acks in ("0", "1", "all"):
            writes = clients.produce("orders", acks=acks, count=30)
            cluster.eventually(writes.settled)
            found["kinds"][acks] = outcomes(run, writes.process)
        writes = clients.produce("orders", count=18, rate=10, linger_ms=300)
        cluster.eventually(writes.settled)
        found["batches"] = largest_batch(run, writes.process)
        reads = clients.consume("orders")
        writes = clients.produce("orders", acks="all", count=MESSAGES, rate=60)
        cluster.eventually(writes.acked_at_least(20))
        victim = cluster.leader("orders", 0)
        with run.faults.kill(victim):
            cluster.eventually(writes.settled, within_ms=60_000)
        cluster.eventually(cluster.recovered)
        found["through a death"] = outcomes(run, writes.process)
        leader = cluster.leader("orders", 0)
        other = next(b for b in cluster.brokers if b != leader)
        found["probes"] = [
            (a.body.api, a.body.outcome, a.body.error, a.body.records > 0, a.body.base_offset >= 0)
            for a in (
                clients.fetch_directly(leader, "orders", 0),
                clients.fetch_directly(other, "orders", 0),
                clients.fetch_directly(leader, "orders", 0, offset=10_000),
                clients.produce_directly(leader, "orders", 0),
                clients.produce_directly(other, "orders", 0),
                clients.produce_directly(leader, "none", 0),
                clients.ask_metadata(leader, "orders"),
            )
        ]
        found["acked"] = len(writes.acked & clients.read_all("orders"))
        shown = run.runtime.view.of(KafkaView).shown
        stored = sum(end for (topic, _), end in shown.items() if topic == "orders")
        cluster.eventually(reads.polled_at_least(stored))
        reads.seek("orders", 0, 0)
        # Nothing else is left to read, so this message is one that the seek has brought.
        cluster.eventually(reads.polled_at_least(stored + 1))
        found["order"] = in_order(run, reads.process)
        run.finish().check()
    return found


def outcomes(run: Run, process: str) -> dict[str, int]:
    """The number of a producer's messages per outcome, and of those with a known offset."""
    bodies = [
        e.body
        for e in run.runtime.events()
        if e.process == process and isinstance(e.body, ProduceCompleted)
    ]
    counted = Counter(body.outcome for body in bodies)
    counted["with an offset"] = sum(body.offset >= 0 for body in bodies)
    return dict(counted)


def largest_batch(run: Run, process: str) -> int:
    """The most messages of a producer that a leader appended in one batch."""
    events = run.runtime.events()
    own = {
        (e.body.partition, e.body.offset)
        for e in events
        if e.process == process and isinstance(e.body, ProduceCompleted)
    }
    stored = [e.body for e in events if isinstance(e.body, LogAppended) and e.body.as_leader]
    return max(
        batch.log_end - batch.base_offset
        for batch in stored
        if (batch.partition, batch.base_offset) in own
    )


def in_order(run: Run, process: str) -> bool:
    """Whether a consumer got each partition's messages without a gap, but for one seek."""
    jumps = 0
    expected: dict[int, int] = {}
    for event in run.runtime.events():
        if event.process == process and isinstance(event.body, Polled):
            for offset in event.body.offsets:
                jumps += offset != expected.get(event.body.partition, offset)
                expected[event.body.partition] = offset + 1
    return jumps == 1


@pytest.mark.parametrize(
    "what", ["administration", "kinds", "batches", "through a death", "probes", "acked", "order"]
)
def test_the_core_records_what_librdkafka_records(
    what: str, results: dict[str, dict[str, Any]]
) -> None:
    assert results[CORE][what] == results[REAL][what]


def test_the_work_was_done(results: dict[str, dict[str, Any]]) -> None:
    for found in results.values():
        assert found["through a death"] == {"ok": MESSAGES, "with an offset": MESSAGES}
        assert found["batches"] == 3
        assert found["acked"] == MESSAGES
        assert found["order"]
