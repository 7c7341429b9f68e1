"""Apache Kafka in the user's cache folder, one folder per build (`builds`).

`$XDG_CACHE_HOME/fencepost/kafka/<build>/` (`~/.cache` unless set) holds `lib` (the class path),
the metadata of a newly formatted disk, made by Kafka's own StorageTool (see `FORMATTED`), and class
data archives, one per Java, which halve the cost of a start. Beside the builds is the agent
that shows a JVM's metrics, one for all. It is on no class path, since an archive is valid
for one class path only. Existing files are used as they are, so a second start needs neither
network nor Maven. Runs side by side wait for each other.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from fencepost import EnvironmentFailed
from fencepost_clusters.apache_kafka.builds import Build, cache
from fencepost_clusters.apache_kafka.metadata.first_snapshot import FILE as FIRST_SNAPSHOT
from fencepost_clusters.java import (
    Artifact,
    alone,
    check_class_path,
    check_jars,
    class_path,
    download,
    download_one,
    find_java,
    jvm_environment,
    known_jars,
    make_cache,
    no_archive,
    run,
    run_until,
)

MAIN = "kafka.Kafka"
FORMATTED = (Path("bootstrap.checkpoint"), Path("__cluster_metadata-0", FIRST_SNAPSHOT))
"""The files on a formatted disk of which one has the metadata to begin with: the first one up to
Kafka 4.3, the snapshot that begins the metadata log from 4.4 on."""
STARTED = re.compile(r"Kafka Server started|\[KafkaServer id=1\] started")
"""What a node logs, with and without KRaft."""
LOG4J = "2.25.4"
"""Without a binding of SLF4J, Kafka logs nothing. Kafka 3 also uses the classes of Log4j 1."""
_OTHER_LOGGING = (
    *("slf4j-log4j12-*.jar", "log4j-1.2.1*.jar"),
    *("slf4j-reload4j-*.jar", "reload4j-*.jar", "logback-*.jar"),
)
"""Jars that would log beside Log4j 2."""
ZOOKEEPER_CLIENT = "3.5.9"
AGENT = "1.0.1"
"""The version of Prometheus's `jmx_prometheus_javaagent`."""
AGENT_IN_IMAGE = "metrics-agent.jar"
IN_FOREIGN = Path("/opt/fencepost/kafka")
"""Where an image that was made on somebody else's has what nodes need: its own jars by links."""
_AGENT = Artifact("io.prometheus.jmx", "jmx_prometheus_javaagent", AGENT)
_ZOOKEEPER = (
    "-Dzookeeper.admin.enableServer=false",
    "org.apache.zookeeper.server.ZooKeeperServerMain",
)
"""The server that is in the jar of Kafka 2's client."""
_JVM_LIMIT_S = 90


@dataclass(frozen=True, slots=True)
class Distribution:
    """One build of Kafka, ready to start; `archive` is the class data archive for `java`.

    `agent` is the jar of the agent that shows metrics.
    """

    build: Build
    home: Path
    java: str
    archive: Path
    agent: Path


def in_image(build: Build) -> Distribution:
    """That build of Kafka in its image, with the archive that `archive.sh` made there."""
    home = IN_FOREIGN if build.image else Path("/opt/kafka")
    return Distribution(build, home, "java", home / "classes.jsa", home / AGENT_IN_IMAGE)


def installed(build: Build, environment: Mapping[str, str], logging: str) -> Distribution:
    """That build of Kafka, downloaded or copied, and prepared if necessary, which takes a minute.

    `logging` is the Log4j configuration to prepare with. Raises EnvironmentFailed without a Java of
    17 or newer, without Maven if the class path is missing, if either fails, or if a jar in the
    cache is missing or damaged.
    """
    java, java_version = find_java(environment, "Kafka")
    home = home_of(build, environment)
    check_class_path(home)
    archive = home / f"classes-{java_version}.jsa"
    found = Distribution(build, home, java, archive, agent_in(environment))
    make_cache(home.parent)
    if not home.exists():
        with alone(_lock(home)):
            if not home.exists():
                _bring(build, home, environment)
    _check(f"Kafka {build.version}", home / "lib", home)
    if not archive.exists():
        with alone(_lock(home)):
            if not archive.exists():
                _prepare(found, logging)
    bring_agent(environment)
    return found


def agent_in(environment: Mapping[str, str]) -> Path:
    """Where the agent that shows metrics is, or would be."""
    return cache(environment) / f"jmx_prometheus_javaagent-{AGENT}.jar"


def bring_agent(environment: Mapping[str, str]) -> Path:
    """Downloads that agent, unless it is there; raises EnvironmentFailed."""
    agent = agent_in(environment)
    if not agent.exists():
        with alone(agent.parent / "agent.lock"):
            if not agent.exists():
                download_one(_AGENT, agent, environment)
    _check("Kafka's agent for metrics", agent.parent, agent)
    return agent


def _lock(home: Path) -> Path:
    return home.parent / f"{home.name}.lock"


def _check(what: str, folder: Path, remove: Path) -> None:
    check_jars(what, folder, known_jars(what, folder, remove), remove)


def home_of(build: Build, environment: Mapping[str, str]) -> Path:
    """Where a build is, or would be, installed."""
    return cache(environment) / build.key


def artifacts(build: Build) -> Sequence[Artifact]:
    """The artifacts to download: Kafka, and its logging library.

    Kafka 2's own client of ZooKeeper resolves no address on Java 17, so it gets a newer one.
    """
    clients = ("zookeeper", "zookeeper-jute") if build.release < (3,) else ()
    return (
        Artifact("org.apache.kafka", _kafka(build), build.version),
        *_logging_library(build),
        *(Artifact("org.apache.zookeeper", name, ZOOKEEPER_CLIENT) for name in clients),
    )


def _logging_library(build: Build) -> Sequence[Artifact]:
    bindings = ["log4j-slf4j-impl", "log4j-core"]
    if build.release < (4,):
        bindings.append("log4j-1.2-api")
    return [Artifact("org.apache.logging.log4j", name, LOG4J) for name in bindings]


def _kafka(build: Build) -> str:
    """The artifact that is the broker, by the Scala that a version is built for."""
    return "kafka_2.13" if build.release >= (3,) else "kafka_2.12"


def _has_kraft(build: Build) -> bool:
    """Whether a version runs without ZooKeeper, and has the tool that formats a disk."""
    return build.release >= (3,)


def _bring(build: Build, home: Path, environment: Mapping[str, str]) -> None:
    """Downloads or copies the class path into a folder beside `home`, and renames it once it is
    complete."""
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=f".{home.name}-") as made:
        whole = Path(made) / "whole"
        lib = whole / "lib"
        if build.jars:
            _copy(build, lib, environment)
        else:
            what = f"Kafka {build.version}"
            download(what, artifacts(build), lib, home.parent, environment)
            if not list(lib.glob(f"{_kafka(build)}-*.jar")):
                raise EnvironmentFailed(f"Maven downloaded no {_kafka(build)} for {what}")
        for jar in other_logging(lib):  # of ZooKeeper's client, or of a release
            jar.unlink()
        whole.rename(home)


def other_logging(lib: Path) -> Sequence[Path]:
    """The jars of a folder that would log beside Log4j 2."""
    return [jar for other in _OTHER_LOGGING for jar in lib.glob(other)]


def bring_logging(build: Build, lib: Path, into: Path, environment: Mapping[str, str]) -> None:
    """Downloads the library by which Kafka logs, unless it is among the jars of `lib`."""
    bound = list(lib.glob("log4j-slf4j-impl-2*.jar")) and list(lib.glob("log4j-core-2*.jar"))
    if not bound:
        folder = cache(environment)
        download("Log4j for Kafka", _logging_library(build), into, folder, environment)


def _copy(build: Build, lib: Path, environment: Mapping[str, str]) -> None:
    """Copies the jars of a folder, and adds the library by which Kafka logs, unless it has one: a
    build may be made anew in its folder while nodes run."""
    lib.mkdir(parents=True)
    for jar in build.jars:
        shutil.copyfile(jar, lib / jar.name)
    bring_logging(build, lib, lib, environment)


def _prepare(kafka: Distribution, logging: str) -> None:
    """Formats a disk to keep its first metadata, and runs one node to archive its classes."""
    with tempfile.TemporaryDirectory(dir=kafka.home, prefix=".node-") as made, ExitStack() as after:
        folder = Path(made)
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            other.bind(("127.0.0.1", 0))
            ports = one.getsockname()[1], other.getsockname()[1]
        (folder / "log4j2.properties").write_text(logging)
        settings = folder / "server.properties"
        java = [
            kafka.java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-Dlog4j2.configurationFile=log4j2.properties",
        ]  # fmt: skip
        classes = ["-cp", class_path(kafka.home / "lib")]
        if _has_kraft(kafka.build):
            settings.write_text(_one_node(*ports))
            run(
                [*java, *classes, "kafka.tools.StorageTool", "format",
                 "-t", "AAAAAAAAAAAAAAAAAAAAZQ", "-c", settings.name],
                folder,
                _JVM_LIMIT_S,
                f"StorageTool of Kafka {kafka.build.version} failed",
                environment=jvm_environment(os.environ),
            )  # fmt: skip
            _keep_formatted(kafka, folder / "data")
        else:
            settings.write_text(_one_broker(*ports))
            beside_it = [*java, *classes, *_ZOOKEEPER, str(ports[1]), "znodes"]
            server = after.enter_context(
                subprocess.Popen(
                    beside_it,
                    cwd=folder,
                    env=jvm_environment(os.environ),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
            after.callback(server.kill)
        partial = kafka.archive.with_suffix(".partial")
        said = run_until(
            [*java, f"-XX:ArchiveClassesAtExit={partial}", *classes, MAIN, settings.name],
            folder,
            STARTED,
            _JVM_LIMIT_S,
            f"a node of Kafka {kafka.build.version} did not start",
        )
        if not partial.exists():
            raise no_archive(kafka.java, "Kafka", said)
        partial.rename(kafka.archive)


def _keep_formatted(kafka: Distribution, disk: Path) -> None:
    """Copies the first metadata of a formatted disk into the cache."""
    made = next((disk / name for name in FORMATTED if (disk / name).exists()), None)
    if made is None:
        names = " nor ".join(str(name) for name in FORMATTED)
        raise EnvironmentFailed(f"StorageTool of Kafka {kafka.build.version} wrote neither {names}")
    shutil.copyfile(made, kafka.home / made.name)


def first_metadata(build: Build, environment: Mapping[str, str], system: str) -> bytes:
    """The file of `FORMATTED` that StorageTool of an installed build wrote.

    Raises EnvironmentFailed if the build is not in the cache, as on a host whose nodes run in
    containers of an image that was made elsewhere; `system` is the name to install it by.
    """
    made = _formatted(home_of(build, environment))
    if made is None:
        raise EnvironmentFailed(
            f"Kafka {build.version}, whose first metadata a new disk needs, is not in "
            f"{cache(environment)}: fencepost setup --system {system} installs it"
        )
    return made.read_bytes()


def has_first_metadata(home: Path) -> bool:
    """Whether the folder of a build has the metadata of a formatted disk."""
    return _formatted(home) is not None


def _formatted(home: Path) -> Path | None:
    return next((home / one.name for one in FORMATTED if (home / one.name).exists()), None)


def _one_node(client_port: int, controller_port: int) -> str:
    listeners = f"CLIENT://127.0.0.1:{client_port},CONTROLLER://127.0.0.1:{controller_port}"
    return "\n".join(
        [
            "process.roles=broker,controller",
            "node.id=1",
            f"controller.quorum.voters=1@127.0.0.1:{controller_port}",
            f"listeners={listeners}",
            "listener.security.protocol.map=CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names=CONTROLLER",
            "inter.broker.listener.name=CLIENT",
            "log.cleaner.dedupe.buffer.size=4194304",
            "log.dirs=data",
            "",
        ]
    )


def _one_broker(client_port: int, zookeeper_port: int) -> str:
    return "\n".join(
        [
            "broker.id=1",
            f"listeners=PLAINTEXT://127.0.0.1:{client_port}",
            f"zookeeper.connect=127.0.0.1:{zookeeper_port}",
            "zookeeper.connection.timeout.ms=60000",
            "log.cleaner.dedupe.buffer.size=4194304",
            "log.dirs=data",
            "",
        ]
    )
