"""Simulated runs of the plane over ZooKeeper in which the controller or a leader changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.history.run_folder import RunFolder
from fencepost.plugins.manager import Plugins, load
from fencepost.runs.run import Run, RunSpec
from fencepost.testing.event_log import EventLog
from fencepost_kafka import BrokerDeclared, KafkaView, kafka_shape


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


def start(plugins: Plugins, seed: int, folder: Path, **settings: str) -> Run:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    shape = kafka_shape(settings=named)
    spec = RunSpec(plugins.system("reference/legacy"), shape, "simulated", seed)
    return Run.start(spec, plugins, RunFolder.create(folder))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_controller_that_bounces_with_a_damaged_disk_inherits_no_isr(
    seed: int, plugins: Plugins, tmp_path: Path
) -> None:
    """It registers again before its former session has ended. So the next controller finds it
    registered, and leader in ZooKeeper of partitions that its disk has lost."""
    with start(plugins, seed, tmp_path / "run") as run:
        cluster, clients = run.cluster, run.clients
        clients.create_topic("orders", partitions=3)
        writes = clients.produce("orders", acks="all")
        for _ in range(2):
            cluster.eventually(writes.acked_at_least(len(writes.acked) + 50))
            controller = cluster.active_controller
            with run.faults.lose_power(controller.name):
                pass
            cluster.eventually(cluster.recovered)
        writes.stop()
        cluster.eventually(writes.settled, within_ms=60_000)
        assert writes.acked <= clients.read_all("orders")
        result = run.finish()
    result.check(marked=("RP-06", "RP-13", "JEPSEN-lost-write"))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_broker_that_reaches_zookeeper_but_not_the_controller_fences_itself_and_returns(
    seed: int, plugins: Plugins, tmp_path: Path
) -> None:
    """The case of KIP-343: the broker's znode stays, but the controller gets no heartbeats, and
    declares the broker inactive."""
    with start(plugins, seed, tmp_path / "run") as run:
        cluster, clients = run.cluster, run.clients
        writes = clients.produce("orders", acks="all")
        cluster.eventually(writes.acked_at_least(50))
        controller = cluster.active_controller
        away = next(b for b in cluster.brokers if b.name != controller.name)
        with run.faults.partition(away.name, controller.name):
            cluster.eventually(away.fenced_by_controller)
            cluster.eventually(away.fenced)
            cluster.eventually(writes.acked_at_least(len(writes.acked) + 50))
        cluster.eventually(away.active)
        cluster.eventually(cluster.recovered)
        result = run.finish()
    result.check(marked=("JEPSEN-lost-write",))


def test_a_broker_that_ends_in_order_checkpoints_its_high_watermarks(
    plugins: Plugins, tmp_path: Path
) -> None:
    """The next process begins with them, and not with those of the last interval."""
    with start(plugins, 1, tmp_path / "run") as run:
        cluster, kafka = run.cluster, run.runtime.view.of(KafkaView)
        writes = run.clients.produce("orders", acks="all", count=40, rate=400)
        cluster.eventually(writes.settled)
        leader = cluster.leader("orders", 0)
        process = leader.process(run.runtime.view)
        committed = kafka.partitions["orders", 0].high_watermark
        assert kafka.checkpointed.get((process, "orders", 0), 0) < committed
        with run.faults.terminate(leader):
            assert kafka.checkpointed[process, "orders", 0] == committed


def test_a_new_controller_declares_a_dead_broker_with_replicas_absent(
    plugins: Plugins, tmp_path: Path
) -> None:
    """HB-02: every broker has a state in a term, one without a registration too."""
    with start(plugins, 1, tmp_path / "run") as run:
        cluster, history = run.cluster, EventLog(run.runtime)
        run.clients.create_topic("orders", partitions=3)
        controller = cluster.active_controller
        dead = next(b for b in cluster.brokers if b.name != controller.name)
        with run.faults.kill(dead):
            cluster.eventually(dead.fenced_by_controller)
            absent = history.event_where(
                BrokerDeclared,
                lambda body: (body.broker_id, body.old, body.new) == (dead.id, "Absent", "Absent"),
                f"{dead} to be declared absent",
            )
            with run.faults.kill(controller):
                declared = cluster.eventually(absent)
                assert declared.process == cluster.active_controller.process(run.runtime.view)
    assert isinstance(declared.body, BrokerDeclared)
    assert declared.body.reason == "controller_elected"


def test_a_dead_broker_is_elected_by_no_later_change_and_gets_no_replicas(
    plugins: Plugins, tmp_path: Path
) -> None:
    """It stays in the ISR that only it is in, so a controller that took it for live would elect
    it."""
    soon = "1000"  # its session is over before its heartbeats are missed
    with start(plugins, 1, tmp_path / "run", zookeeper_session_timeout_ms=soon) as run:
        cluster, kafka = run.cluster, run.runtime.view.of(KafkaView)
        run.clients.create_topic("alone", partitions=3, replication=1)
        dead, other = (b for b in cluster.brokers if b.name != cluster.active_controller.name)
        led = next(place for place, one in kafka.partitions.items() if one.leader == dead.id)
        with run.faults.kill(dead):
            cluster.eventually(cluster.leaderless(*led))
            with run.faults.kill(other):
                cluster.eventually(other.fenced_by_controller)
            cluster.eventually(other.active)
            assert not cluster.comes_to(cluster.led(*led), within_ms=10_000)
            run.clients.create_topic("later", partitions=6, replication=2)
            placed = [
                one.replicas for (name, _), one in kafka.partitions.items() if name == "later"
            ]
            assert len(placed) == 6
            assert all(dead.id not in replicas for replicas in placed)
        cluster.eventually(cluster.led(*led))
