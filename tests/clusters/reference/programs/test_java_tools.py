"""The tools and the client that come with Apache Kafka, and others, on the same topic of one
broker: each reads the same offsets, settings and partitions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from direct_nodes import LIMIT_S, Nodes, create, eventually, nodes_in, quietly

from fencepost_clusters.apache_kafka.cluster import DEFAULT_VERSION
from fencepost_clusters.apache_kafka.distribution import cache
from fencepost_clusters.java import (
    Artifact,
    alone,
    cache_folder,
    class_path,
    download_one,
    find_java,
)

pytestmark = pytest.mark.real

TOOLS = Artifact("org.apache.kafka", "kafka-tools", DEFAULT_VERSION)
TOOL_LIMIT_S = 90.0
BASE_MS = 1_700_000_000_000
RECORDS = 10
"""Each is a second after the one before; all are in one batch."""
Tool = Callable[[str, str], subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """A controller and an active broker, with a batch in the topic `timed`."""
    with nodes_in(tmp_path_factory.mktemp("cluster")) as made:
        made.start_both()
        create(made, "timed")
        producer = Producer(quietly(made, linger_ms=1000))
        for number in range(RECORDS):
            at_ms = BASE_MS + 1000 * number
            producer.produce("timed", b"%d" % number, partition=0, timestamp=at_ms)
        assert producer.flush(LIMIT_S) == 0
        yield made


@pytest.fixture(scope="module")
def tool(cluster: Nodes) -> Tool:
    """Runs a tool of Kafka's by its class; skips if Kafka is not here."""
    kafka = cache(os.environ) / DEFAULT_VERSION / "lib"
    jar = cache_folder(os.environ) / "kafka-tools" / TOOLS.jar
    if not kafka.exists() or (shutil.which("mvn") is None and not jar.exists()):
        pytest.skip(f"Kafka {DEFAULT_VERSION} or its tools are not here")
    jar.parent.mkdir(parents=True, exist_ok=True)
    with alone(jar.with_suffix(".lock")):
        if not jar.exists():
            download_one(TOOLS, jar, os.environ)
    java, java_version = find_java(os.environ, "Kafka")
    # The archive of a node's classes has many of a tool's. It begins with the same class path.
    archive = cache(os.environ) / DEFAULT_VERSION / f"classes-{java_version}.jsa"
    options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-XX:SharedArchiveFile={archive}")

    def run(name: str, arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                *(java, *options, "-cp", f"{class_path(kafka)}:{jar}"),
                *(f"org.apache.kafka.tools.{name}", "--bootstrap-server", cluster.bootstrap),
                *arguments.split(),
            ],
            capture_output=True,
            text=True,
            timeout=TOOL_LIMIT_S,
            check=False,
        )

    return run


def done(ended: subprocess.CompletedProcess[str]) -> str:
    """What a tool that succeeded has printed."""
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_javas_tool_creates_extends_and_describes_a_topic(tool: Tool) -> None:
    settings = "--config retention.ms=86400000 --config cleanup.policy=delete"
    done(tool("TopicCommand", f"--create --topic java.tool --partitions 2 {settings}"))
    collides = tool("TopicCommand", "--create --topic java_tool")
    assert collides.returncode == 1
    assert "collides" in collides.stdout + collides.stderr
    done(tool("TopicCommand", "--alter --topic java.tool --partitions 3"))

    def described() -> bool:
        text = done(tool("TopicCommand", "--describe --topic java.tool"))
        return "PartitionCount: 3" in text and "retention.ms=86400000" in text

    eventually(described, "the broker knows the new partition")


@pytest.mark.parametrize(("time", "offset"), [(BASE_MS + 3500, 4), (-3, 9), (-1, 10), (-2, 0)])
def test_javas_tool_finds_the_record_of_a_time(tool: Tool, time: int, offset: int) -> None:
    found = done(tool("GetOffsetShell", f"--topic timed --time {time}"))
    assert found.strip() == f"timed:0:{offset}"


def test_javas_consumer_reads_without_a_group_and_hears_that_there_are_none(tool: Tool) -> None:
    read = "--topic timed --max-messages 2 --timeout-ms 30000"
    found = done(tool("consumer.ConsoleConsumer", f"{read} --partition 0 --offset 8"))
    assert found.split() == ["8", "9"]
    refused = tool("consumer.ConsoleConsumer", f"{read} --from-beginning")
    assert "group id does not exist" in refused.stdout + refused.stderr


def test_javas_tool_verifies_and_calls_off_a_reassignment(
    cluster: Nodes, tool: Tool, tmp_path: Path
) -> None:
    create(cluster, "moved")
    plan = tmp_path / "plan.json"
    move = {"topic": "moved", "partition": 0, "replicas": [1]}
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}))

    def reassign(action: str) -> str:
        arguments = f"--reassignment-json-file {plan} {action}"
        return done(tool("reassign.ReassignPartitionsCommand", arguments))

    reassign("--execute")
    assert "moved-0 is completed" in reassign("--verify")
    reassign("--cancel")


def test_other_clients_find_the_record_of_a_time(cluster: Nodes) -> None:
    asked = BASE_MS + 3500
    confluent = Consumer(quietly(cluster, group_id="g", enable_auto_commit=False))
    try:
        (place,) = confluent.offsets_for_times([TopicPartition("timed", 0, asked)], LIMIT_S)
        assert place.offset == 4
    finally:
        confluent.close()
    kafka = pytest.importorskip("kafka")
    consumer = kafka.KafkaConsumer(bootstrap_servers=cluster.bootstrap, group_id=None)
    try:
        place = kafka.TopicPartition("timed", 0)
        (found,) = consumer.offsets_for_times({place: asked}).values()
        assert (found.offset, found.timestamp) == (4, BASE_MS + 4000)
    finally:
        consumer.close(autocommit=False)
