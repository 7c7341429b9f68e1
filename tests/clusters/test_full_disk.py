"""A broker whose disk is full: the error names the broker and has the last lines of its log."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost import EnvironmentFailed, Shape
from fencepost.history.run_folder import RunFolder
from fencepost.plugins.manager import load
from fencepost.runs.run import Run, RunSpec
from fencepost_clusters.apache_kafka.builds import cache
from fencepost_clusters.apache_kafka.cluster import DEFAULT_VERSION
from fencepost_kafka import kafka_shape

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
SIZES = {"reference/quorum": "4m", "apache/kraft": "24m"}
"""How large the disk is: enough to start on, and soon full."""
ONE_LOG = {
    "min.insync.replicas": "1",
    "log.segment.bytes": "1073741824",
    "log.index.interval.bytes": "2147483647",
}
"""Kafka maps its index files into memory: if a write to one meets the full disk first, the JVM gets
SIGBUS, and Kafka hangs in its own shutdown. So only the log grows."""
SHAPES = {
    "reference/quorum": Shape(),
    "apache/kraft": kafka_shape(controllers=1, brokers=1, settings=ONE_LOG),
}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


@pytest.fixture
def system(request: pytest.FixtureRequest, folder: RunFolder, real: None) -> Iterator[str]:
    """The system's name, with a small disk where broker 1 keeps its data."""
    name = str(request.param)
    if name == "apache/kraft" and not (shutil.which("mvn") or cached()):
        pytest.skip("Kafka is not here, and neither is Maven, which would bring it")
    disk = folder.data_of("broker-1")
    disk.mkdir(parents=True)
    size = f"size={SIZES[name]}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", disk], check=True)
    yield name
    subprocess.run(["umount", disk], check=True)


def cached() -> bool:
    return (cache(os.environ) / DEFAULT_VERSION).exists()


@pytest.mark.parametrize("system", SIZES, indirect=True)
def test_a_broker_whose_disk_is_full_is_named_with_its_last_lines(
    system: str, folder: RunFolder
) -> None:
    plugins = load()
    with Run.start(RunSpec(plugins.system(system), SHAPES[system]), plugins, folder) as run:
        writes = run.clients.produce("orders", rate=400, size=20_000)
        many = writes.acked_at_least(10_000)
        with pytest.raises(
            EnvironmentFailed, match=r"broker-1#1 .* but should be running"
        ) as failed:
            run.cluster.eventually(many, within_ms=60_000)
    assert "No space left on device" in failed.value.detail
    assert failed.value.exit_code == 4
