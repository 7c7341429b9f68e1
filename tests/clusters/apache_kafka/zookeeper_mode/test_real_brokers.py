"""Kafka in ZooKeeper mode for real: cut off, bounced and judged, over one server and over three."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec import Struct
from zookeeper_servers import available

from fencepost import Codec, Event, EvidenceMissed, EvidenceSupplied, ProcessSpawned, Shape
from fencepost.history.merge import read
from fencepost.history.run_folder import RunFolder
from fencepost.plugins.manager import Plugins, load
from fencepost.runs.run import Run, RunSpec
from fencepost.testing.event_log import EventLog
from fencepost_clusters.apache_kafka.distribution import cache
from fencepost_clusters.zookeeper.events import ServerServes, SessionExpired
from fencepost_clusters.zookeeper.view import ServersView
from fencepost_kafka import BrokerCommitted, IsrChangeAnswered, PartitionCommitted
from fencepost_kafka.testing import Writes

pytestmark = [pytest.mark.real, available]
KEPT = ("RP-13", "JEPSEN-lost-write")


def brought(version: str) -> pytest.MarkDecorator:
    """Skips if that version is not installed and cannot be downloaded."""
    return pytest.mark.skipif(
        shutil.which("mvn") is None and not (cache(os.environ) / version).exists(),
        reason=f"Kafka {version} is not here, and neither is Maven, which would download it",
    )


EARLY, LATE = "2.1.1", "3.9.2"
SERVERS = ("zookeeper-1", "zookeeper-2", "zookeeper-3")
BELOW = {"zookeeper.connect": f"{','.join(f'{one}:2181' for one in SERVERS)}/not/there"}
"""The folder of znodes in which a cluster lives. Brokers make one that is not there."""


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


@contextmanager
def running(plugins: Plugins, folder: Path, version: str, shape: Shape) -> Iterator[Run]:
    spec = RunSpec(plugins.system(f"apache/zookeeper@{version}"), shape)
    with Run.start(spec, plugins, RunFolder.create(folder)) as run:
        yield run


@contextmanager
def paused_observer(run: Run) -> Iterator[None]:
    """The client that watches znodes runs no instruction meanwhile."""
    (pid,) = (
        one.pid
        for one in EventLog(run.runtime).of(ProcessSpawned)
        if one.started.startswith("clients/observer#")
    )
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def history_of(folder: RunFolder, plugins: Plugins, kind: type[Struct]) -> Sequence[Event]:
    """The events of a kind in a run's history."""
    return [one for one in read(folder, Codec(plugins.event_kinds)) if isinstance(one.body, kind)]


def a_controller_cut_off_from_zookeeper_is_replaced_and_comes_back_with_a_newer_epoch(
    run: Run, version: str, servers: Sequence[str]
) -> Writes:
    """Returns writes that were sent meanwhile."""
    assert list((cache(os.environ) / version).glob("classes-*.jsa")), "no archive of classes"
    writes = run.clients.produce("orders", count=200, rate=50)
    run.cluster.eventually(writes.acked_at_least(20))
    victim = run.cluster.active_controller
    with run.faults.cut(victim, servers):
        run.cluster.eventually(run.cluster.another_controller(victim))
    run.cluster.eventually(writes.settled, within_ms=60_000)
    run.cluster.eventually(run.cluster.recovered)
    assert writes.acked <= run.clients.read_all("orders")
    history = EventLog(run.runtime)
    assert any(history.of(SessionExpired, f"{one}#1") for one in servers)
    registered = [
        one.broker_epoch
        for one in history.of(BrokerCommitted)
        if one.broker_id == victim.id and not one.fenced
    ]
    assert len(registered) == 2
    assert registered[0] < registered[1]
    return writes


@pytest.mark.nightly
@brought(EARLY)
def test_a_controller_is_replaced_over_one_server(tmp_path: Path, plugins: Plugins) -> None:
    with running(plugins, tmp_path / "run", EARLY, Shape()) as run:
        a_controller_cut_off_from_zookeeper_is_replaced_and_comes_back_with_a_newer_epoch(
            run, EARLY, SERVERS[:1]
        )
        result = run.finish()
    result.check(KEPT)


@brought(LATE)
def test_brokers_outlive_a_session_and_the_leader_of_their_ensemble(
    tmp_path: Path, plugins: Plugins
) -> None:
    with running(plugins, tmp_path / "run", LATE, Shape({"zookeeper": 3}, BELOW)) as run:
        early = a_controller_cut_off_from_zookeeper_is_replaced_and_comes_back_with_a_newer_epoch(
            run, LATE, SERVERS
        )
        serving = run.runtime.view.of(ServersView).serving
        (leader,) = (one for one, how in serving.items() if how.mode == "leader")
        leader = run.runtime.view.slot_of[leader]
        writes = run.clients.produce("orders", count=200, rate=50)
        run.cluster.eventually(writes.acked_at_least(20))
        others = [name for name in SERVERS if name != leader]
        with run.faults.cut(leader, others):
            elected = EventLog(run.runtime).event_where(
                ServerServes, lambda one: one.mode == "leader" and one.epoch == 2, "epoch 2"
            )
            run.cluster.eventually(elected, within_ms=60_000)
        run.cluster.eventually(run.cluster.recovered)
        with run.faults.kill(others[0]):
            run.cluster.eventually(writes.settled, within_ms=60_000)
        run.cluster.eventually(run.cluster.recovered)
        more = run.clients.produce("orders", count=100, rate=50)
        run.cluster.eventually(more.acked_at_least(10))
        history = EventLog(run.runtime)
        epoch = max(
            one.leader_epoch
            for one in history.of(PartitionCommitted)
            if (one.topic, one.partition) == ("orders", 0)
        )
        with paused_observer(run):
            with run.faults.kill(run.cluster.leader("orders", 0)):
                run.cluster.eventually(more.settled, within_ms=60_000)
            rejoined = history.event_where(
                IsrChangeAnswered,
                lambda one: (
                    (one.topic, one.partition, len(one.isr)) == ("orders", 0, 3)
                    and one.leader_epoch > epoch
                ),
                "orders-0 has a full ISR under another leader",
            )
            run.cluster.eventually(rejoined, within_ms=60_000)
        run.cluster.eventually(run.cluster.recovered)
        assert early.acked | writes.acked | more.acked <= run.clients.read_all("orders")
        result = run.finish()
    result.check(KEPT)
    supplied = history_of(result.folder, plugins, EvidenceSupplied)
    missed = history_of(result.folder, plugins, EvidenceMissed)
    assert {one.cause for one in supplied} == {one.ref for one in missed}
    assert missed, "the observer was paused for two states of a partition, and has not missed one"
    assert result.end.gaps == ()
