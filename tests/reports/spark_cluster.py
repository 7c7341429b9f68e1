"""Spark's own standalone cluster, and a Spark Connect server, of the pyspark package.

Master, workers and server are processes of their own on loopback. Each worker has one core and a
folder of its own, and nothing of this project on the path of its programs.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import final

from pyspark.find_spark_home import _find_spark_home

LIMIT_S = 180
TICK_S = 0.05
# Short-lived processes gain nothing from the optimising compiler or a concurrent collector.
LEAN = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
CONF: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": LEAN,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": LEAN,
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.pyspark.python": sys.executable,
}


@final
@dataclass(frozen=True, slots=True)
class Cluster:
    """A master, and the worker processes."""

    url: str
    workers: Sequence[int]
    folder: Path

    def executors(self) -> Sequence[int]:
        """The executors that run now."""
        return [
            child
            for worker in self.workers
            for child in _children(worker)
            if b"CoarseGrainedExecutorBackend" in _read(f"/proc/{child}/cmdline")
        ]


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster of two workers, whose files are below the folder."""
    deploy = "org.apache.spark.deploy"
    common = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with ExitStack() as ending:
        url, _ = ending.enter_context(
            _started(
                folder / "master",
                ("bin/spark-class", f"{deploy}.master.Master", *common),
                r"Starting Spark master at (spark://\S+)",
            )
        )
        workers = [
            ending.enter_context(
                _started(
                    folder / name,
                    (
                        *("bin/spark-class", f"{deploy}.worker.Worker", url, *common),
                        *("--cores", "1", "--memory", "1g", "--work-dir", str(folder / name)),
                    ),
                    r"(Successfully registered) with master",
                )
            )[1]
            for name in ("worker-1", "worker-2")
        ]
        yield Cluster(url, workers, folder)


@contextmanager
def connect_server(folder: Path, master: str) -> Iterator[str]:
    """A Spark Connect server over a cluster; its URL."""
    conf = {
        **CONF,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.local.dir": str(folder / "server"),
    }
    words = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    with _started(
        folder / "server",
        ("bin/spark-submit", "--master", master, *words, "--class", server, "spark-internal"),
        r"Spark Connect server started at: \S*?:(\d+)",
    ) as (port, _):
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def _started(folder: Path, words: Sequence[str], ready: str) -> Iterator[tuple[str, int]]:
    """A process of Spark that has said that it is ready: the group of the pattern; and its id."""
    folder.mkdir(parents=True)
    program, *rest = words
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_DAEMON_JAVA_OPTS": LEAN,
        "PYSPARK_PYTHON": sys.executable,
    }
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [f"{_find_spark_home()}/{program}", *rest],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield _said(log, ready, process), process.pid
    finally:
        process.terminate()
        try:
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _said(log: Path, pattern: str, process: subprocess.Popen[bytes]) -> str:
    """What a process has written that matches the pattern."""
    for _ in ticks():
        found = re.search(pattern, log.read_text(errors="replace"))
        if found is not None:
            return found[1]
        if process.poll() is not None:
            break
    raise AssertionError(f"a process of Spark is not ready: {log.read_text(errors='replace')}")


def ticks() -> Iterator[None]:
    """Moments at which to look again, until the limit."""
    never = Event()
    for _ in range(int(LIMIT_S / TICK_S)):
        yield
        never.wait(TICK_S)


def kill(process: int) -> None:
    """Kills an executor."""
    os.kill(process, signal.SIGKILL)


def _children(process: int) -> Sequence[int]:
    threads = Path(f"/proc/{process}/task").iterdir()
    return [int(one) for thread in threads for one in _read(f"{thread}/children").split()]


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
