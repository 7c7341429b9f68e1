"""Apache Kafka for real: installed, started, broken and judged; and a node that cannot start."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.suites.partition_histories import stated

from fencepost import Condition, EnvironmentFailed, Inconclusive
from fencepost.history.run_end import DISKS
from fencepost.history.run_folder import RunFolder
from fencepost.judging.folder import judge_folder
from fencepost.judging.verdicts import Outcome
from fencepost.model.system.subject import Subject
from fencepost.plugins.manager import Plugins, load
from fencepost.runs.disks import supply
from fencepost.runs.run import Run, RunSpec
from fencepost.testing.event_log import EventLog
from fencepost_clusters.apache_kafka.cluster import DEFAULT_VERSION, OBSERVER
from fencepost_clusters.apache_kafka.disks import stored_batches
from fencepost_clusters.apache_kafka.distribution import cache
from fencepost_clusters.apache_kafka.metrics import MetricsObserved
from fencepost_kafka import (
    BrokerCommitted,
    LeadershipStarted,
    MetadataApplied,
    TopicCommitted,
    kafka_shape,
)

pytestmark = pytest.mark.real

ONE_BROKER = {"min.insync.replicas": "1"}
CUT_LOG = {
    "metadata.log.max.record.bytes.between.snapshots": "500",
    "metadata.max.retention.bytes": "500",
}
"""A controller takes snapshots all the time, and truncates its log before one when it starts."""


def brought(version: str) -> pytest.MarkDecorator:
    """Skips if that version is not installed and cannot be downloaded."""
    return pytest.mark.skipif(
        shutil.which("mvn") is None and not (cache(os.environ) / version).exists(),
        reason=f"Kafka {version} is not here, and neither is Maven, which would download it",
    )


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


@brought(DEFAULT_VERSION)
def test_a_killed_leader_is_fenced_and_nothing_acknowledged_is_lost(
    tmp_path: Path, plugins: Plugins
) -> None:
    folder = RunFolder.create(tmp_path / "run")
    spec = RunSpec(plugins.system("apache/kraft"), kafka_shape(controllers=1))
    with Run.start(spec, plugins, folder) as run:
        clients, cluster = run.clients, run.cluster
        clients.create_topic("orders", partitions=1)
        writes = clients.produce("orders", count=200, rate=100)
        cluster.eventually(writes.acked_at_least(50))
        with run.faults.kill(cluster.leader("orders", 0)):
            # Those above may all be stored before the kill; these need the next leader.
            later = clients.produce("orders", count=20, rate=100)
            for some in (writes, later):
                cluster.eventually(some.settled, within_ms=60_000)
        cluster.eventually(cluster.recovered)
        assert writes.acked | later.acked <= clients.read_all("orders")
        history = EventLog(run.runtime)
        assert {body.broker_id for body in history.of(BrokerCommitted)} == {1, 2, 3}
        assert len(list(history.of(LeadershipStarted))) >= 2
        assert any(history.of(MetadataApplied, "broker-1#1"))
        nodes = {node.name for node in (*cluster.controllers, *cluster.brokers)}
        for name in nodes:  # each page is waited for on its own, again if none came in time
            of_it = history.event_where(
                MetricsObserved, lambda page, name=name: page.slot == name, f"a page of {name}"
            )
            cluster.eventually(of_it)
        assert {page.slot for page in history.of(MetricsObserved)} == nodes
        result = run.finish()
    result.check(
        (
            "KR-02",
            "KR-08",
            "QC-21",
            "QC-30",
            "RP-13",
            "RP-05",
            "RP-12",
            "RP-27",
            "JEPSEN-lost-write",
        )
    )
    assert folder.info().versions["apache/kraft"] == DEFAULT_VERSION
    lose_last_batch(folder.data_of("broker-2") / "orders-0")
    folder.events_of(DISKS).unlink()
    supply(Subject(spec.system, spec.shape, spec.seed, plugins.event_kinds), folder)
    judgement, _ = judge_folder(folder, plugins.promises)
    (broken,) = judgement.verdicts["RP-05"].violations
    assert stated(broken, "slot", "broker", "partition") == ("broker-2", "broker 2", "orders-0")


def lose_last_batch(log: Path) -> None:
    """As a disk that did not keep what was written to it last."""
    (segment,) = log.glob("*.log")
    data = segment.read_bytes()
    *_, last = stored_batches(data)
    at = 0
    for batch in stored_batches(data):
        if batch == last:
            break
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    segment.write_bytes(data[:at])


@pytest.mark.parametrize(
    "version",
    [
        pytest.param("4.1.0", marks=[brought("4.1.0"), pytest.mark.nightly]),
        pytest.param("3.9.2", marks=brought("3.9.2")),
    ],
)
def test_another_version_acknowledges_keeps_and_is_judged(
    tmp_path: Path, plugins: Plugins, version: str
) -> None:
    shape = kafka_shape(controllers=1, brokers=1, settings=ONE_BROKER)
    folder = RunFolder.create(tmp_path / "run")
    spec = RunSpec(plugins.system(f"apache/kraft@{version}"), shape)
    with Run.start(spec, plugins, folder) as run:
        writes = run.clients.produce("orders", count=30)
        run.cluster.eventually(writes.settled)
        assert len(writes.acked) == 30
        (broker,) = run.cluster.brokers
        with run.faults.kill(broker):
            run.cluster.eventually(broker.fenced_by_controller)
        run.cluster.eventually(run.cluster.recovered)
        assert writes.acked <= run.clients.read_all("orders")
        result = run.finish()
    result.check(("KR-02", "KR-08", "QC-21", "JEPSEN-lost-write"))
    assert folder.info().versions["apache/kraft"] == version


def built(checkout: Path, installed: Path) -> None:
    """Puts the jars of an installed version where `./gradlew jar` puts those of a checkout."""
    (checkout / "gradlew").parent.mkdir(parents=True)
    (checkout / "gradlew").touch()
    places = {"kafka_2.13-": "core/build/libs", "kafka-clients-": "clients/build/libs"}
    for jar in (installed / "lib").glob("*.jar"):
        below = next((place for begins, place in places.items() if jar.name.startswith(begins)), "")
        folder = checkout / (below or "core/build/dependant-libs-2.13.16")
        folder.mkdir(parents=True, exist_ok=True)
        if not jar.name.startswith("log4j-"):  # a build brings no library that logs
            shutil.copyfile(jar, folder / jar.name)


@pytest.mark.nightly
@brought(DEFAULT_VERSION)
def test_a_checkout_is_run_as_it_was_built(tmp_path: Path, plugins: Plugins) -> None:
    built(tmp_path / "kafka", Path(plugins.system("apache/kraft").fetch()))
    shape = kafka_shape(controllers=1, brokers=1, settings=ONE_BROKER)
    folder = RunFolder.create(tmp_path / "run")
    system = plugins.system(f"apache/kraft@{tmp_path / 'kafka'}")
    with Run.start(RunSpec(system, shape), plugins, folder) as run:
        writes = run.clients.produce("orders", count=30)
        run.cluster.eventually(writes.settled)
        shutil.rmtree(tmp_path / "kafka")  # it is made anew while nodes run
        with run.faults.kill(run.cluster.brokers[0]):
            pass
        run.cluster.eventually(run.cluster.recovered)
        assert writes.acked <= run.clients.read_all("orders")
        result = run.finish()
    result.check(("QC-21", "JEPSEN-lost-write"))
    assert folder.info().release == f"apache/kraft@{tmp_path / 'kafka'} {DEFAULT_VERSION}"


def by(process: str, kind: str) -> Condition:
    """A process wrote an event of this kind."""
    return Condition(f"{kind} by {process}", lambda view: (process, kind) in view.latest)


@brought(DEFAULT_VERSION)
def test_an_observer_that_comes_too_late_for_the_log_records_it_and_nothing_holds(
    tmp_path: Path, plugins: Plugins
) -> None:
    system = plugins.system("apache/kraft")
    shape = kafka_shape(controllers=1, brokers=1, settings=ONE_BROKER | CUT_LOG)
    folder = RunFolder.create(tmp_path / "run")
    with Run.start(RunSpec(system, shape), plugins, folder) as run:
        for topic in ("orders", "bills", "notes"):
            run.clients.create_topic(topic)
        run.faults.bounce(run.cluster.active_controller, after_ms=0)
        run.cluster.eventually(run.cluster.recovered)
        observer = next(one for one in system.observers(shape) if one.workload == OBSERVER)
        late = run.runtime.client(replace(observer, name="late")).process
        # The content of a snapshot comes after its name, and before later committed records.
        run.cluster.eventually(by(late, "snapshot.loaded"))
        run.clients.create_topic("last")
        run.cluster.eventually(by(late, "metadata.committed"))
        seen = {body.topic for body in EventLog(run.runtime).of(TopicCommitted, late)}
        assert seen - {"last"} == {"orders", "bills", "notes"}
        result = run.finish()
    assert result.judgement.of(Outcome.HOLDS) == ()
    with pytest.raises(Inconclusive, match=r"metadata records 0 to \d+ were not read: the log had"):
        result.check()


@brought(DEFAULT_VERSION)
def test_a_node_that_dies_at_its_start_is_named_with_its_last_lines(
    tmp_path: Path, plugins: Plugins
) -> None:
    shape = kafka_shape(
        controllers=1, brokers=1, own={"broker-1": {"compression.type": "none-such"}}
    )
    folder = RunFolder.create(tmp_path / "run")
    with pytest.raises(EnvironmentFailed, match=r"broker-1#1 .* exit code 1, but should") as failed:
        Run.start(RunSpec(plugins.system("apache/kraft"), shape), plugins, folder)
    assert "compression.type" in failed.value.detail
    assert failed.value.exit_code == 4
