"""Foreign znodes under the plane without a controller: one sentence names them, and they stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fencepost import EnvironmentFailed, Shape, SimulatedDisk, Slot
from fencepost.history.run_folder import RunFolder
from fencepost.plugins.manager import load
from fencepost.runs.run import Run, RunSpec
from fencepost.testing import EventLog
from fencepost_clusters.reference.classic.core import znodes
from fencepost_clusters.reference.classic.system import ReferenceClassic
from fencepost_clusters.reference.over_zookeeper.core.contents import encode
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_clusters.zookeeper.log_parser import ROLE as ZOOKEEPER
from fencepost_clusters.zookeeper.simulation.server import TreeDisk
from fencepost_clusters.zookeeper.simulation.tree import Tree
from fencepost_kafka import ZnodeUnreadable

OTHER = 7
"""Another client's session, which outlives the run."""
LONG_MS = 10**9


class Prepared:
    """`reference/classic` over servers that have znodes already."""

    def __init__(self, *made: zk.Create) -> None:
        self._system = ReferenceClassic()
        self.name = self._system.name
        self.tree = Tree()
        self.tree.begin(OTHER, LONG_MS, 0)
        for one in made:
            answer, _ = self.tree.request(OTHER, one, 0)
            assert isinstance(answer, zk.Created), answer

    def __getattr__(self, name: str) -> object:
        return getattr(self._system, name)

    def simulated_disk(self, slot: Slot) -> SimulatedDisk:
        return TreeDisk(self.tree) if slot.role == ZOOKEEPER else self._system.simulated_disk(slot)

    def data(self, path: str) -> bytes:
        read, _ = self.tree.request(OTHER, zk.GetData(path), 0)
        assert isinstance(read, zk.Data)
        return read.data


def spec(prepared: Any) -> RunSpec:
    return RunSpec(prepared, Shape(), "simulated", 1)


def test_a_cluster_of_a_former_format_ends_the_start(tmp_path: Path) -> None:
    former = b'{"version":0,"settings":{}}'
    prepared = Prepared(zk.Create(znodes.BROKERS, former))
    with (
        pytest.raises(EnvironmentFailed) as failed,
        Run.start(spec(prepared), load(), RunFolder.create(tmp_path / "run")),
    ):
        pass
    assert failed.value.exit_code == 4
    first, *_ = str(failed.value).splitlines()
    assert first.endswith(
        "#1 exited with code 4, but should be running: "
        f"{znodes.BROKERS} has format 0, but this broker reads format 1"
    )
    assert prepared.data(znodes.BROKERS) == former


def test_a_topic_of_a_former_format_is_named_and_stays_while_the_cluster_serves(
    tmp_path: Path,
) -> None:
    former, path = b'{"version":0}', znodes.topic("former")
    prepared = Prepared(
        zk.Create(znodes.BROKERS, encode(znodes.BrokerSettings(version=1))),
        zk.Create(znodes.TOPICS),
        zk.Create(path, former),
    )
    with Run.start(spec(prepared), load(), RunFolder.create(tmp_path / "run")) as run:
        writes = run.clients.produce("orders", count=20)
        run.cluster.eventually(writes.settled)
        assert writes.acked <= run.clients.read_all("orders")
        named = {one.reason for one in EventLog(run.runtime).of(ZnodeUnreadable)}
        result = run.finish()
    result.check(("JEPSEN-lost-write",))
    (reason,) = named
    assert reason.startswith(f"{path} ")
    assert "\n" not in reason
    assert prepared.data(path) == former


def test_a_broker_id_that_a_live_session_has_ends_the_start(tmp_path: Path) -> None:
    info = encode(znodes.BrokerInfo((("REPLICATION", "elsewhere", 9094),), version=1))
    path = znodes.broker(1)
    prepared = Prepared(
        zk.Create(znodes.BROKERS, encode(znodes.BrokerSettings(version=1))),
        zk.Create(znodes.BROKER_IDS),
        zk.Create(path, info, ephemeral=True),
    )
    with (
        pytest.raises(EnvironmentFailed) as failed,
        Run.start(spec(prepared), load(), RunFolder.create(tmp_path / "run")),
    ):
        pass
    assert failed.value.exit_code == 4
    assert str(failed.value).splitlines()[0] == (
        "broker-1#1 exited with code 4, but should be running: broker id 1 is taken by a live "
        f"process: {path} belongs to session {OTHER:x}"
    )
    assert prepared.data(path) == info
