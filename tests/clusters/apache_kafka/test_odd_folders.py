"""Apache Kafka below a folder whose name means something else to Java, Kafka or a shell."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from fencepost import Shape
from fencepost.history.run_folder import RunFolder
from fencepost.plugins.manager import load
from fencepost.runs.run import Run, RunSpec
from fencepost_clusters.apache_kafka.cluster import DEFAULT_VERSION as KRAFT
from fencepost_clusters.apache_kafka.distribution import cache
from fencepost_clusters.apache_kafka.zookeeper_mode.cluster import DEFAULT_VERSION as ZOOKEEPER

pytestmark = pytest.mark.real

ODD = "a,b c=d:e j\u00f6rg back\\slash #%$x'"
ONE_OF_EACH = {"broker": 1}


def brought(version: str) -> pytest.MarkDecorator:
    """Skips if that version is not installed and cannot be downloaded."""
    return pytest.mark.skipif(
        shutil.which("mvn") is None and not (cache(os.environ) / version).exists(),
        reason=f"Kafka {version} is not here, and neither is Maven, which would download it",
    )


@pytest.mark.parametrize(
    ("system", "counts"),
    [
        pytest.param(
            "apache/kraft", {"controller": 1, **ONE_OF_EACH}, marks=brought(KRAFT), id="kraft"
        ),
        pytest.param(
            "apache/zookeeper", ONE_OF_EACH, marks=brought(ZOOKEEPER), id="over ZooKeeper"
        ),
    ],
)
def test_every_disk_is_in_the_folder_of_the_run_whatever_its_name(
    system: str, counts: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    plugins = load()
    folder = RunFolder.create(tmp_path / ODD / "run")
    settings = {"min.insync.replicas": "1", "offsets.topic.replication.factor": "1"}
    shape = Shape(counts, settings)
    with Run.start(RunSpec(plugins.system(system), shape), plugins, folder) as run:
        for codec in ("snappy", "zstd"):
            run.clients.create_topic(codec, partitions=1, config={"compression.type": codec})
            written = run.clients.produce(codec, count=5)
            run.cluster.eventually(written.settled)
            assert len(written.acked) == 5
        held = {path.name for path in folder.data_of("broker-1").iterdir()}
        assert {"meta.properties", "snappy-0", "zstd-0"} <= held
        assert any((folder.work_of("broker-1#1") / "tmp").glob("*snappy*"))
        run.finish()
    assert [path.name for path in tmp_path.iterdir()] == [ODD]
    assert [path.name for path in (tmp_path / ODD).iterdir()] == ["run"]
