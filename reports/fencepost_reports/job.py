"""The Spark job: any number of run folders in, one Parquet table for each thing known out.

The only place where a Spark session is made: local, two cores, small, quiet, no user interface.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, final

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession

from fencepost import EnvironmentFailed
from fencepost_reports import judging, reading, verdicts
from fencepost_reports.judging import Promises
from fencepost_reports.transforms import timeline
from fencepost_reports.transforms.correlation import correlation, strike_windows
from fencepost_reports.transforms.epochs import epoch_changes
from fencepost_reports.transforms.explaining import explained
from fencepost_reports.transforms.failures import failures
from fencepost_reports.transforms.fencing import fencing_events
from fencepost_reports.transforms.windows import fault_windows

JAVA = 17
"""The oldest Java that Spark 4 runs on."""
JAVA_LIMIT_S = 20
LOG_LINES = 8
PARTITIONS = 4
"""Of every shuffle: few, since each costs a task and there are two cores."""


@contextmanager
def session() -> Iterator[SparkSession]:
    """A local Spark session, which ends with the block, and its Java process with it.

    Raises EnvironmentFailed when there is no Java for it, or it does not start. Nothing of it is
    reached from another machine; what it logs and spills is removed with it.
    """
    check_java()
    with tempfile.TemporaryDirectory(prefix="fencepost-spark-") as scratch, ExitStack() as ending:
        log = Path(scratch) / "spark.log"
        conf = SparkConf().setAll(list(_settings(scratch).items()))
        try:
            gateway = launch_gateway(  # type: ignore[no-untyped-call]
                conf, _speaking_into(ending.enter_context(log.open("wb")))
            )
            ending.callback(_end, gateway)
            context = SparkContext(conf=conf, gateway=gateway)
        except Exception as failed:  # py4j's own errors, or pyspark's when the process ended
            last = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])
            raise EnvironmentFailed(f"Spark did not start: {failed}", last) from failed
        ending.callback(context.stop)
        yield SparkSession(context)


def _settings(scratch: str) -> Mapping[str, str]:
    # A short job gains nothing from the optimising compiler or a concurrent collector.
    options = f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.io.tmpdir={scratch}"
    return {
        "spark.master": "local[2]",
        "spark.app.name": "fencepost report",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": options,
        "spark.local.dir": scratch,
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        "spark.sql.session.timeZone": "UTC",
        # A run may be called 2026, and is not a number for it.
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        # Workers find what this process finds: its interpreter, and plugins on its path.
        "spark.pyspark.python": sys.executable,
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }


def _speaking_into(log: BinaryIO) -> Mapping[str, object]:
    """How the Java process is started: what it and the workers print goes into a file."""
    return {"stdout": log, "stderr": subprocess.STDOUT}


def _end(gateway: Any) -> None:
    """Ends the Java process; pyspark would keep it, idle, for as long as this one lives."""
    gateway.shutdown()
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(JAVA_LIMIT_S)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None


def check_java() -> None:
    """Raises EnvironmentFailed unless Spark will find a Java that is new enough."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    needed = f"the report needs Java {JAVA} or newer"
    if java is None or not Path(java).exists():
        raise EnvironmentFailed(f"Java is missing: {needed}, as JAVA_HOME or on the path")
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=False, timeout=JAVA_LIMIT_S
        ).stderr
    except (OSError, subprocess.TimeoutExpired) as failed:
        raise EnvironmentFailed(f"{java} does not run: {needed}") from failed
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is None or int(found[1]) < JAVA:
        version = found[1] if found else "of an unknown version"
        raise EnvironmentFailed(f"{java} is Java {version}: {needed}")


@final
@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of some runs: one Parquet folder each, below one folder; `NAMES` lists them."""

    session: SparkSession
    folder: Path

    def write(self, name: str, table: DataFrame, by_run: bool = False) -> DataFrame:
        """Writes one table, in place of an older one, and gives it back as written."""
        path = str(self.folder / f"{name}.parquet")
        writer = table.write.mode("overwrite")
        (writer.partitionBy("run") if by_run else writer).parquet(path)
        if by_run and not any(Path(path).rglob("*.parquet")):
            # Partitions of nothing leave no file behind, and so no schema to read.
            table.limit(0).write.mode("overwrite").parquet(path)
        return self.read(name, table.schema.fieldNames())

    def read(self, name: str, columns: Sequence[str] = ("*",)) -> DataFrame:
        """A table that was written."""
        return self.session.read.parquet(str(self.folder / f"{name}.parquet")).select(*columns)


def correlate(
    session: SparkSession, described: Sequence[Mapping[str, object]], promises: Promises, out: Path
) -> Tables:
    """Reads and judges the runs (`reading.described` each), and writes every table below `out`."""
    tables = Tables(session, out)
    bare = reading.runs(session, described).localCheckpoint()
    ends = tables.write("ends", reading.ends(bare, promises.kinds))
    runs = tables.write("runs", bare.join(ends, "run"))
    # Judging and transforming share two cores: while one is planned, the other is computed.
    with ThreadPoolExecutor(1) as beside:
        judging_them = beside.submit(_judge, tables, bare, runs, promises)
        events = tables.write("events", reading.events(bare, promises.kinds), by_run=True)
        windows = tables.write("fault_windows", fault_windows(events, runs))
        changes = epoch_changes(events).unionByName(fencing_events(events))
        authority = tables.write("authority", changes, by_run=True)
        lived = tables.write("processes", timeline.processes(events, runs))
        # What follows uses it many times: once computed, it is not planned again.
        failed = failures(events, judging_them.result(), runs).localCheckpoint()
        failed = tables.write("failures", explained(failed, authority, windows), by_run=True)
        correlating = beside.submit(
            _correlate, tables, strike_windows(windows, authority, failed, runs)
        )
        tables.write("spans", timeline.spans(events, lived))
        tables.write("density", timeline.density(events, runs))
        tables.write("shown", timeline.shown(events, authority, failed), by_run=True)
        correlating.result()
    return tables


def _judge(tables: Tables, bare: DataFrame, runs: DataFrame, promises: Promises) -> DataFrame:
    found = judging.found(bare, runs, promises, PARTITIONS)
    findings = tables.write("findings", found, by_run=True)
    tables.write("verdicts", verdicts.concluded(runs, findings, promises))
    return findings


def _correlate(tables: Tables, cut: DataFrame) -> None:
    tables.write("correlation", correlation(tables.write("strike_windows", cut)))
