"""The conformance kit on the systems of this project, as programs. One cluster serves all checks of
its system; the simulated reference cluster is checked beside the kit's own tests."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from fencepost import Shape
from fencepost.testing import kit
from fencepost_clusters.apache_kafka.builds import cache
from fencepost_clusters.apache_kafka.cluster import DEFAULT_VERSION
from fencepost_kafka import kafka_shape

pytestmark = pytest.mark.real

OVER_ZOOKEEPER = "3.9.2"
"""The kit asks the plugin, and 2.1.1 has races that its bounces may meet."""


def test_the_reference_cluster_conforms_on_processes(tmp_path: Path) -> None:
    kit.check_system("reference/quorum", tmp_path)


@pytest.mark.skipif(shutil.which("java") is None, reason="ZooKeeper is a Java program")
def test_the_reference_cluster_over_zookeeper_conforms_on_processes(tmp_path: Path) -> None:
    kit.check_system("reference/legacy", tmp_path)


@pytest.mark.skipif(shutil.which("go") is None, reason="Go builds the etcd server")
def test_etcd_conforms_on_processes(tmp_path: Path) -> None:
    kit.check_system("etcd/cluster", tmp_path)


def brought(version: str) -> pytest.MarkDecorator:
    """Skips if that version of Kafka is not installed and cannot be downloaded."""
    return pytest.mark.skipif(
        shutil.which("mvn") is None and not (cache(os.environ) / version).exists(),
        reason=f"Kafka {version} is not here, and neither is Maven, which would bring it",
    )


@brought(DEFAULT_VERSION)
def test_apache_kafka_conforms_on_processes(tmp_path: Path) -> None:
    # Each node is a JVM: three are the fewest of which two follow a third.
    kit.check_system("apache/kraft", tmp_path, shape=kafka_shape(controllers=1, brokers=2))


@brought(OVER_ZOOKEEPER)
def test_apache_kafka_over_zookeeper_conforms_on_processes(tmp_path: Path) -> None:
    """An ISR that shrinks while ZooKeeper is cut off may never grow again (clusters/README.md). The
    cuts of these checks are too short for a follower to lag by ten seconds."""
    system = f"apache/zookeeper@{OVER_ZOOKEEPER}"
    settings = {"replica.lag.time.max.ms": "10000"}
    kit.check_system(system, tmp_path, shape=Shape({"broker": 2}, settings=settings))
