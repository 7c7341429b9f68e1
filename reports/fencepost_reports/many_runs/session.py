"""The Spark session of a report.

It is, in this order, that of a Spark Connect server, if one was asked for; the active session; that
of spark-submit, if it started this program; or a session with a Java process of its own, whose
master is a cluster or this machine. What the user has set is never set otherwise.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark import __version__ as spark_version
from pyspark.errors import PySparkException
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from fencepost import EnvironmentFailed, UsageError, last_words, telling_lines
from fencepost.reporting import ANY_ENGINE, Engine
from fencepost_reports.many_runs.java import archive_place, check_java

JAVA_LIMIT_S = 20.0
"""How long the Java process may take to end."""
# A short job gains nothing from the optimising compiler or a concurrent collector.
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
CONNECT_PORT, ANSWER_S = 15002, 10
LOG_LINES = 8
PARTITIONS = 2
"""The number of partitions of every shuffle on this machine: few, since each costs a task, and
little data is shuffled."""
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
_SETTING = re.compile(r"^\s*([^#\s=:]+)\s*[=:\s]\s*(.*?)\s*$", re.MULTILINE)


@contextmanager
def session(
    engine: Engine = ANY_ENGINE, *, ends_in_s: float = JAVA_LIMIT_S
) -> Iterator[SparkSession]:
    """The session of an engine, with its settings and its code for workers.

    An active session is left open. Any other ends with the block, and so does its Java process,
    whose logs and spilled data are removed; if it does not end in time, it is killed. Raises
    EnvironmentFailed when there is no Java for it, or it does not start; UsageError for a cluster
    beside an active session.
    """
    for archive in engine.py_files:
        if not Path(archive).is_file():
            raise UsageError(f"{archive} is no file: --py-files takes archives of code")
    with _interrupts_unlogged(), ExitStack() as ending:
        if engine.remote or "SPARK_REMOTE" in os.environ:
            started = ending.enter_context(_built(engine))
        elif (active := SparkSession.getActiveSession()) is not None:
            if engine.chosen:
                raise UsageError("a session of Spark is active: leave out the URL of a cluster")
            started = active
            for name, value in engine.conf.items():
                started.conf.set(name, value)
        elif _SUBMITTED in os.environ:
            started = ending.enter_context(_built(engine))
        else:
            started = ending.enter_context(_own(engine, ends_in_s))
        if engine.py_files:
            started.addArtifacts(*engine.py_files, pyfile=True)
        yield started


@contextmanager
def _built(engine: Engine) -> Iterator[SparkSession]:
    """A session that is made of what Spark knows already: a URL of Connect, or spark-submit."""
    builder = SparkSession.builder.config(map=dict(engine.conf))
    if engine.remote:
        _check_answers(engine.remote)
        builder = builder.remote(engine.remote)
    if engine.master:
        builder = builder.master(engine.master)
    try:
        started = builder.getOrCreate()
    except (PySparkException, ImportError) as failed:
        raise EnvironmentFailed(f"Spark did not answer: {failed}") from failed
    try:
        yield started
    finally:
        _ends_quietly()
        started.stop()


def _ends_quietly() -> None:
    """Keeps pyspark's server of accumulators from printing a traceback when Java stops, which
    closes its connection even amid an update, and from being waited for: it looks only once a
    second whether it is to end. No report reads an accumulator."""
    context = SparkContext._active_spark_context
    if context is not None:  # a client of Connect has none
        server = context._accumulatorServer
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
        ending = Thread(target=server.shutdown, daemon=True)
        server.shutdown = ending.start  # type: ignore[method-assign]


@contextmanager
def _interrupts_unlogged() -> Iterator[None]:
    """Keeps py4j from logging, with a traceback, that a call of Java was interrupted: the interrupt
    is raised, and its receiver reports it."""

    def is_ours(record: logging.LogRecord) -> bool:
        return Path(record.pathname).parent.name != "py4j"

    own = logging.getLogger("py4j")
    level = own.level
    own.setLevel(logging.CRITICAL)
    logging.root.addFilter(is_ours)  # py4j logs an interrupt there
    try:
        yield
    finally:
        logging.root.removeFilter(is_ours)
        own.setLevel(level)


def _check_answers(url: str) -> None:
    """Raises EnvironmentFailed if nothing listens there; a client of Connect tries for minutes."""
    parts = urlsplit(url)
    if parts.scheme != "sc" or not parts.hostname:
        raise UsageError(f"{url} is no URL of Spark Connect: write sc://host:port")
    try:
        socket.create_connection((parts.hostname, parts.port or CONNECT_PORT), ANSWER_S).close()
    except OSError as failed:
        raise EnvironmentFailed(f"nothing answers at {url}: {failed}") from failed


@contextmanager
def _own(engine: Engine, ends_in_s: float) -> Iterator[SparkSession]:
    """A session with a Java process of its own, which ends with the block."""
    archive = archive_place(check_java(), spark_version, _find_spark_home())
    with tempfile.TemporaryDirectory(prefix="fencepost-spark-") as scratch, ExitStack() as ending:
        log = Path(scratch) / "spark.log"
        asked = settings(engine, user_settings(), scratch, archive if archive.exists() else None)
        try:
            gateway = launch_gateway(  # type: ignore[no-untyped-call]
                SparkConf(loadDefaults=False).setAll(list(asked.items())),
                _speaking_into(ending.enter_context(log.open("wb"))),
            )
            ending.callback(_end, gateway, ends_in_s)
            context = SparkContext(gateway=gateway)
            ending.callback(context.stop)
            ending.callback(_ends_quietly)
            started = SparkSession(context)
        except Exception as failed:  # py4j's own errors, or pyspark's when the process ended
            said = log.read_text(errors="replace")
            words, last = last_words(said), "\n".join(telling_lines(said)[-LOG_LINES:])
            why = ": ".join(filter(None, (cause(failed).rstrip("."), words)))
            # An error of py4j cannot be shown once Java has ended, so it is no cause.
            raise EnvironmentFailed(f"Spark did not start: {why}", last) from None
        if "PYSPARK_PYTHON" not in os.environ:  # PySpark itself reads nothing but this
            context.pythonExec = context.getConf().get("spark.pyspark.python", context.pythonExec)
        yield started


@contextmanager
def failures_named() -> Iterator[None]:
    """Raises EnvironmentFailed, with its cause, for an error of Spark in the block.

    An error by which Spark's own clean-up after an interrupt fails is that interrupt.
    """
    try:
        yield
    except (PySparkException, Py4JError) as failed:
        if _interrupted(failed):
            raise KeyboardInterrupt from None
        # An error of py4j cannot be shown once Java has ended, so it is no cause.
        raise EnvironmentFailed(f"Spark did not end the report: {cause(failed)}") from None


def _interrupted(failed: BaseException) -> bool:
    """Whether an error was raised while an interrupt was handled."""
    found: BaseException | None = failed
    while found is not None and not isinstance(found, KeyboardInterrupt):
        found = found.__context__
    return found is not None


def cause(failed: Exception) -> str:
    """What an error of Spark says, in one line; that of Java, if there is one."""
    text = [line.strip() for line in str(failed).splitlines() if line.strip()]
    missing = [line for line in text if line.startswith("ModuleNotFoundError: ")]
    if missing:
        return f"its workers lack code, which --py-files brings ({missing[-1]})"
    if any("stopped SparkContext" in line for line in text):
        return "its master did not answer, or ended the session"
    java = [line.removeprefix(": ") for line in text if line.startswith(": ")]
    return (java or text or [type(failed).__name__])[0]


def settings(
    engine: Engine, users: Mapping[str, str], scratch: str, archive: Path | None = None
) -> Mapping[str, str]:
    """The settings that a session is started with, beside those of the user's files; on this
    machine Java takes classes from the archive, if there is one."""
    asked = {**engine.conf, **({"spark.master": engine.master} if engine.master else {})}
    master = {**users, **asked}.get("spark.master", "local[*]")
    ours = {"spark.master": master, "spark.app.name": "fencepost report"}
    if master.startswith("local") and "PYSPARK_SUBMIT_ARGS" not in os.environ:
        ours |= _local_settings(scratch, archive)
    return {**{name: value for name, value in ours.items() if name not in users}, **asked}


def _local_settings(scratch: str, archive: Path | None) -> Mapping[str, str]:
    """Settings of a session on this machine: small, quiet, out of reach of other machines."""
    options = f"{JAVA_OPTIONS} -Djava.io.tmpdir={scratch}"
    if archive is not None:
        options += f' "-XX:SharedArchiveFile={archive}"'
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": options,
        "spark.local.dir": scratch,
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        # Plans are many and their rows few: compiling a plan takes longer than interpreting it.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        # Workers find what this process finds: its interpreter, and plugins on its path.
        "spark.pyspark.python": sys.executable,
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }


def user_settings() -> Mapping[str, str]:
    """The settings of spark-defaults.conf, which spark-submit reads too."""
    folder = os.environ.get("SPARK_CONF_DIR") or f"{_find_spark_home()}/conf"
    try:
        text = (Path(folder) / "spark-defaults.conf").read_text(errors="replace")
    except OSError:
        return {}
    return dict(_SETTING.findall(text))


def _speaking_into(log: BinaryIO) -> Mapping[str, object]:
    """Starts the Java process so that its output, and that of the workers, goes into a file."""
    return {"stdout": log, "stderr": subprocess.STDOUT}


def _end(gateway: Any, limit_s: float) -> None:
    """Ends the Java process; pyspark would keep it, idle, until this process ends."""
    gateway.shutdown()
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(limit_s)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None
