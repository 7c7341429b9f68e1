"""Kafka over a ZooKeeper that is in a bad state, for real: one sentence says why a cluster cannot
start, or brokers go on and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from zookeeper_clients import Client
from zookeeper_servers import available

from fencepost import EnvironmentFailed, EvidenceMissed, Shape
from fencepost.history.run_folder import RunFolder
from fencepost.judging.verdicts import Outcome
from fencepost.plugins.manager import Plugins, load
from fencepost.runs.run import Run, RunSpec
from fencepost.runtimes.process.runtime import ProcessRuntime
from fencepost.testing.event_log import EventLog
from fencepost_clusters.apache_kafka.distribution import cache
from fencepost_clusters.zookeeper.client.port import Create, Created, Request
from fencepost_clusters.zookeeper.server import CLIENT_PORT

pytestmark = [pytest.mark.real, available]
LATE = "3.9.2"


def brought(version: str) -> pytest.MarkDecorator:
    """Skips if that version is not installed and cannot be downloaded."""
    return pytest.mark.skipif(
        shutil.which("mvn") is None and not (cache(os.environ) / version).exists(),
        reason=f"Kafka {version} is not here, and neither is Maven, which would download it",
    )


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load()


def started(plugins: Plugins, folder: Path, version: str, shape: Shape) -> Run:
    spec = RunSpec(plugins.system(f"apache/zookeeper@{version}"), shape)
    return Run.start(spec, plugins, RunFolder.create(folder))


async def put(host: str, requests: Sequence[Request]) -> None:
    """Creates these znodes, in a session that is no broker's."""
    client = Client(host)
    await client.connected()
    for request in requests:
        assert isinstance(await client.ask(request), Created)
    await client.close()


@brought(LATE)
def test_a_zookeeper_that_does_not_answer_is_named_with_the_brokers_last_lines(
    tmp_path: Path, plugins: Plugins
) -> None:
    nowhere = {"zookeeper.connect": "127.0.0.1:1", "zookeeper.connection.timeout.ms": "2000"}
    shape = Shape({"broker": 1}, nowhere)
    with pytest.raises(EnvironmentFailed, match=r"broker-1#1 .* exit code 1, but should") as failed:
        started(plugins, tmp_path / "run", LATE, shape)
    assert "Timed out waiting for connection" in failed.value.detail
    assert failed.value.exit_code == 4


@pytest.mark.nightly
@brought(LATE)
def test_rubbish_in_a_znode_and_a_lost_majority_stop_no_broker(
    tmp_path: Path, plugins: Plugins
) -> None:
    with started(plugins, tmp_path / "run", LATE, Shape({"zookeeper": 3})) as run:
        assert isinstance(run.runtime, ProcessRuntime)
        place = run.runtime.place(run.runtime.layout.slot("clients"))
        host, broker = f"{place.hosts['zookeeper-1']}:{CLIENT_PORT}", "/brokers/ids/rubbish"
        # The controller rewrites the first one at once.
        rubbish = (Create("/brokers/topics/rubbish", b"{"), Create(broker, b"\xff"))
        asyncio.run(put(host, rubbish))
        history = EventLog(run.runtime)
        named = history.event_where(EvidenceMissed, lambda one: broker in one.what, broker)
        run.cluster.eventually(named)
        writes = run.clients.produce("orders", count=200, rate=50)
        run.cluster.eventually(writes.acked_at_least(20))
        with run.faults.kill("zookeeper-2"), run.faults.kill("zookeeper-3"):
            run.cluster.eventually(writes.settled, within_ms=60_000)
        run.cluster.eventually(run.cluster.recovered)
        assert writes.acked <= run.clients.read_all("orders")
        result = run.finish()
    assert result.judgement.broken == ()
    # The topic's znode may tell of a deletion, which a lost write could be: that is left open.
    verdict = result.judgement.verdicts["JEPSEN-lost-write"]
    assert verdict.verdict is Outcome.HOLDS or "rubbish" in verdict.reason, verdict
