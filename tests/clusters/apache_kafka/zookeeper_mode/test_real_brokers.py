"""Kafka in ZooKeeper mode for real: cut off, bounced and judged, over one server and over three."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from zookeeper_servers import available

from fencepost import Shape
from fencepost.history.run_folder import RunFolder
from fencepost.plugins.manager import Plugins, load
from fencepost.runs.run import Run, RunSpec
from fencepost.testing.event_log import EventLog
from fencepost_clusters.apache_kafka.distribution import cache
from fencepost_clusters.zookeeper.events import ServerServes, SessionExpired
from fencepost_clusters.zookeeper.view import ServersView
from fencepost_kafka import BrokerCommitted

pytestmark = [pytest.mark.real, available]
KEPT = ("RP-13", "JEPSEN-lost-write")


def brought(version: str) -> pytest.MarkDecorator:
    """Skips if that version is not installed and cannot be downloaded."""
    return pytest.mark.skipif(
        shutil.which("mvn") is None and not (cache(os.environ) / version).exists(),
        reason=f"Kafka {version} is not here, and neither is Maven, which would download it",
    )


CHROOTS = {"3.9.2": "/not/there", "2.1.1": ""}
"""By version, the folder of znodes in which a cluster lives. Brokers make one that is not there."""


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


@contextmanager
def running(plugins: Plugins, folder: Path, version: str, shape: Shape) -> Iterator[Run]:
    spec = RunSpec(plugins.system(f"apache/zookeeper@{version}"), shape)
    with Run.start(spec, plugins, RunFolder.create(folder)) as run:
        yield run


@pytest.mark.parametrize("version", [pytest.param(one, marks=brought(one)) for one in CHROOTS])
def test_a_controller_cut_off_from_zookeeper_is_replaced_and_comes_back_with_a_newer_epoch(
    tmp_path: Path, plugins: Plugins, version: str
) -> None:
    below = Shape(settings={"zookeeper.connect": f"zookeeper-1:2181{CHROOTS[version]}"})
    with running(plugins, tmp_path / "run", version, below) as run:
        writes = run.clients.produce("orders", count=200, rate=50)
        run.cluster.eventually(writes.acked_at_least(20))
        victim = run.cluster.active_controller
        with run.faults.cut(victim, "zookeeper-1"):
            run.cluster.eventually(run.cluster.another_controller(victim))
        run.cluster.eventually(writes.settled, within_ms=60_000)
        run.cluster.eventually(run.cluster.recovered)
        assert writes.acked <= run.clients.read_all("orders")
        history = EventLog(run.runtime)
        assert any(history.of(SessionExpired, "zookeeper-1#1"))
        registered = [
            one.broker_epoch
            for one in history.of(BrokerCommitted)
            if one.broker_id == victim.id and not one.fenced
        ]
        assert len(registered) == 2
        assert registered[0] < registered[1]
        result = run.finish()
    result.check(KEPT)


@brought("3.9.2")
def test_brokers_outlive_the_leader_of_their_ensemble(tmp_path: Path, plugins: Plugins) -> None:
    with running(plugins, tmp_path / "run", "3.9.2", Shape({"zookeeper": 3})) as run:
        serving = run.runtime.view.of(ServersView).serving
        (leader,) = (one for one, how in serving.items() if how.mode == "leader")
        leader = run.runtime.view.slot_of[leader]
        writes = run.clients.produce("orders", count=200, rate=50)
        run.cluster.eventually(writes.acked_at_least(20))
        others = [name for name in ("zookeeper-1", "zookeeper-2", "zookeeper-3") if name != leader]
        with run.faults.cut(leader, others):
            elected = EventLog(run.runtime).event_where(
                ServerServes, lambda one: one.mode == "leader" and one.epoch == 2, "epoch 2"
            )
            run.cluster.eventually(elected, within_ms=60_000)
        run.cluster.eventually(run.cluster.recovered)
        with run.faults.kill(others[0]):
            run.cluster.eventually(writes.settled, within_ms=60_000)
        run.cluster.eventually(run.cluster.recovered)
        assert writes.acked <= run.clients.read_all("orders")
        result = run.finish()
    result.check(("JEPSEN-lost-write",))
