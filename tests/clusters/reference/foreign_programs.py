"""Foreign clients of Kafka that are programs of their own: the tools that come with Apache Kafka,
and clients of Go's world, which `foreign/` carries out commands with."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreign_clients import LIMIT_MS, Described

from fencepost import cache_folder
from fencepost_clusters.apache_kafka.builds import cache
from fencepost_clusters.apache_kafka.cluster import DEFAULT_VERSION
from fencepost_clusters.java import Artifact, alone, class_path, download_one, find_java

TOOLS = Artifact("org.apache.kafka", "kafka-tools", DEFAULT_VERSION)
TOOL_LIMIT_S = 90.0
BUILD_LIMIT_S = 600.0
MODULE = Path(__file__).parent / "foreign"


class Missing(Exception):
    """A program cannot be started here, and why."""


class Refused(Exception):
    """A program has printed an error."""


# ------------------------------------------------------------------------------------------- Java


@dataclass(frozen=True)
class JavaTools:
    """Kafka's own tools. Each use starts a JVM, so a test asks for few compressions."""

    bootstrap: str
    command: tuple[str, ...]
    codecs: Sequence[str] = ("snappy", "zstd")

    def run(self, name: str, arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Runs a tool by its class to its end."""
        tool = f"org.apache.kafka.tools.{name}"
        return subprocess.run(
            [*self.command, tool, "--bootstrap-server", self.bootstrap, *arguments.split()],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TOOL_LIMIT_S,
            check=False,
        )

    def done(self, name: str, arguments: str, stdin: str = "") -> str:
        """What a tool that succeeded has printed."""
        ended = self.run(name, arguments, stdin)
        if ended.returncode != 0:
            raise Refused(ended.stdout + ended.stderr)
        return ended.stdout

    def create(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        given = " ".join(f"--config {name}={value}" for name, value in settings.items())
        self.done("TopicCommand", f"--create --topic {topic} --partitions {partitions} {given}")

    def extend(self, topic: str, partitions: int) -> None:
        self.done("TopicCommand", f"--alter --topic {topic} --partitions {partitions}")

    def delete(self, topic: str) -> None:
        self.done("TopicCommand", f"--delete --topic {topic}")

    def topics(self) -> set[str]:
        return set(self.done("TopicCommand", "--list").split())

    def described(self, topic: str) -> Described:
        text = self.done("TopicCommand", f"--describe --topic {topic}")
        count = re.search(r"PartitionCount: (\d+)", text)
        settings = re.search(r"Configs: (\S*)", text)
        assert count is not None, text
        assert settings is not None, text
        named = dict(one.split("=", 1) for one in filter(None, settings[1].split(",")))
        return int(count[1]), named

    def produce(self, topic: str, codec: str, values: Sequence[str]) -> None:
        lines = "".join(f"{value}\n" for value in values)
        self.done("ConsoleProducer", f"--topic {topic} --compression-codec {codec}", lines)

    def read(self, topic: str, count: int) -> Sequence[str]:
        place = f"--topic {topic} --partition 0 --offset earliest"
        limits = f"--max-messages {count} --timeout-ms {LIMIT_MS}"
        return self.done("consumer.ConsoleConsumer", f"{place} {limits}").split()

    def offsets_at(self, topics: Sequence[str], time_ms: int) -> Sequence[int]:
        places = ",".join(f"{topic}:0" for topic in topics)
        text = self.done("GetOffsetShell", f"--topic-partitions {places} --time {time_ms}")
        found = dict(line.rsplit(":0:", 1) for line in text.split())
        return [int(found[topic]) for topic in topics]

    def largest_fetch(self, topic: str, partitions: int, count: int, max_bytes: int) -> int | None:
        return None

    def refusal(self, topic: str) -> str:
        limits = f"--max-messages 1 --timeout-ms {LIMIT_MS}"
        ended = self.run("consumer.ConsoleConsumer", f"--topic {topic} {limits} --from-beginning")
        return ended.stdout + ended.stderr


def java_tools(bootstrap: str) -> JavaTools:
    """The tools; their jar is downloaded once. Raises Missing without Kafka or Maven."""
    kafka = cache(os.environ) / DEFAULT_VERSION / "lib"
    jar = cache_folder(os.environ) / "kafka-tools" / TOOLS.jar
    if not kafka.exists() or (shutil.which("mvn") is None and not jar.exists()):
        raise Missing(f"Kafka {DEFAULT_VERSION} or its tools are not here")
    jar.parent.mkdir(parents=True, exist_ok=True)
    with alone(jar.with_suffix(".lock")):
        if not jar.exists():
            download_one(TOOLS, jar, os.environ)
    java, java_version = find_java(os.environ, "Kafka")
    # The archive of a node's classes has many of a tool's. It begins with the same class path.
    archive = cache(os.environ) / DEFAULT_VERSION / f"classes-{java_version}.jsa"
    options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-XX:SharedArchiveFile={archive}")
    return JavaTools(bootstrap, (java, *options, "-cp", f"{class_path(kafka)}:{jar}"))


# --------------------------------------------------------------------------------------------- Go


@dataclass(frozen=True)
class GoClient:
    """A client of the program in `foreign/`, which answers a command on each line."""

    program: subprocess.Popen[str]
    codecs: Sequence[str] = ("gzip", "snappy", "lz4", "zstd")

    def _ask(self, do: str, topic: str = "", **more: object) -> Any:
        assert self.program.stdin is not None
        assert self.program.stdout is not None
        self.program.stdin.write(json.dumps({"do": do, "topic": topic, **more}) + "\n")
        self.program.stdin.flush()
        answer = json.loads(self.program.stdout.readline())
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["answer"]

    def create(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        self._ask("create", topic, partitions=partitions, settings=settings)

    def extend(self, topic: str, partitions: int) -> None:
        self._ask("extend", topic, partitions=partitions)

    def delete(self, topic: str) -> None:
        self._ask("delete", topic)

    def topics(self) -> set[str]:
        return set(self._ask("topics"))

    def described(self, topic: str) -> Described:
        return self._ask("partitions", topic), self._ask("settings", topic)

    def produce(self, topic: str, codec: str, values: Sequence[str]) -> None:
        self._ask("produce", topic, codec=codec, values=values)

    def read(self, topic: str, count: int) -> Sequence[str]:
        return list(self._ask("read", topic, count=count))

    def offsets_at(self, topics: Sequence[str], time_ms: int) -> Sequence[int]:
        return [self._ask("offset_at", topic, time_ms=time_ms) for topic in topics]

    def largest_fetch(self, topic: str, partitions: int, count: int, max_bytes: int) -> int | None:
        given = {"partitions": partitions, "count": count, "max_bytes": max_bytes}
        return int(self._ask("largest_fetch", topic, **given))

    def refusal(self, topic: str) -> str:
        return str(self._ask("refusal", topic))


def go_program() -> Path:
    """The program in `foreign/`, which is built once for its sources. Raises Missing without Go."""
    go = shutil.which("go")
    sources = sorted(one for one in MODULE.iterdir() if one.suffix in (".go", ".mod", ".sum"))
    whole = hashlib.sha256(b"".join(one.read_bytes() for one in sources)).hexdigest()[:12]
    program = cache_folder(os.environ) / "foreign-clients" / f"foreign-{whole}"
    program.parent.mkdir(parents=True, exist_ok=True)
    with alone(program.with_suffix(".lock")):
        if not program.exists():
            if go is None:
                raise Missing("Go is not here")
            made = program.with_suffix(".new")
            argv = [go, "build", "-trimpath", "-ldflags=-s -w", "-o", str(made), "."]
            subprocess.run(
                argv,
                cwd=MODULE,
                env={**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"},
                check=True,
                timeout=BUILD_LIMIT_S,
            )
            made.replace(program)
    return program


@contextmanager
def go_client(name: str, bootstrap: str) -> Iterator[GoClient]:
    """The client `franz-go` or `sarama`."""
    with subprocess.Popen(
        [str(go_program()), name, bootstrap],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        yield GoClient(program)
        assert program.stdin is not None
        program.stdin.close()
