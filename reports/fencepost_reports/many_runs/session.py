"""The Spark session of a report: the active one, or else a local one that ends with the report.

Only this module makes a session: local, one task per core, small, quiet, without a user interface.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from fencepost import EnvironmentFailed
from fencepost_reports.many_runs.java import check_java

JAVA_LIMIT_S = 20
LOG_LINES = 8
PARTITIONS = 2
"""The number of partitions of every shuffle: few, since each costs a task, and little data is
shuffled."""


@contextmanager
def session() -> Iterator[SparkSession]:
    """The active Spark session, as in a notebook or under spark-submit; it is left as it is.

    If none is active, it is a local session, which ends with the block, together with its Java
    process. No other machine can reach it. Its logs and spilled data are removed at its end. Raises
    EnvironmentFailed when there is no Java for it, or it does not start.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
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
        "spark.master": "local[*]",
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
        # A run named 2026 must stay text.
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        # Workers find what this process finds: its interpreter, and plugins on its path.
        "spark.pyspark.python": sys.executable,
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }


def _speaking_into(log: BinaryIO) -> Mapping[str, object]:
    """Starts the Java process so that its output, and that of the workers, goes into a file."""
    return {"stdout": log, "stderr": subprocess.STDOUT}


def _end(gateway: Any) -> None:
    """Ends the Java process; pyspark would keep it, idle, until this process ends."""
    gateway.shutdown()
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(JAVA_LIMIT_S)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None
