"""An archive of the classes that Spark loads, which halves the cost of the start of its Java.

`python -m fencepost_reports.many_runs.classes` makes it, once per Java and per PySpark, in
`$XDG_CACHE_HOME/fencepost/spark` (`~/.cache` unless set). A session of this machine uses it if it
is there. Java checks that an archive is of its own build and of the same jars. Otherwise it goes on
without the archive.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyspark
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import Row, SparkSession

from fencepost import EnvironmentFailed
from fencepost_reports.many_runs.java import check_java

LEAN = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""A short job gains nothing from the optimising compiler or a concurrent collector."""
_LIMIT_S = 900
_LAST_LINES = 8
_PROGRAM = "from fencepost_reports.many_runs.classes import _load; _load()\n"


def java_options(environment: Mapping[str, str]) -> str:
    """The options of each Java process of Spark on this machine: `LEAN`, and the archive if it is
    there."""
    found = archive(environment)
    known = [f'"-XX:SharedArchiveFile={found}"'] if found.exists() else []
    return " ".join([*LEAN, *known])


def archive(environment: Mapping[str, str]) -> Path:
    """The archive's file, whether it exists or not. Another Java, or another Spark, has another."""
    root = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "/")) / ".cache"
    home = environment.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java", path=environment.get("PATH"))
    program = Path(java or "java").resolve()
    changed_ns = program.stat().st_mtime_ns if program.exists() else 0
    of = f"{program} {changed_ns} {_find_spark_home()} {pyspark.__version__}"
    name = f"classes-{hashlib.sha256(of.encode()).hexdigest()[:12]}.jsa"
    return Path(root) / "fencepost" / "spark" / name


def make(environment: Mapping[str, str]) -> Path:
    """The archive; makes it if it is not there, which takes half a minute.

    Raises EnvironmentFailed without a Java of 17 or newer, or if Spark fails.
    """
    made = archive(environment)
    if made.exists():
        return made
    check_java()
    made.parent.mkdir(parents=True, exist_ok=True)
    # Made beside its place and renamed, so that no process ever finds a partial archive.
    with tempfile.TemporaryDirectory(dir=made.parent, prefix=".classes-") as folder:
        partial, program = Path(folder) / "classes.jsa", Path(folder) / "load.py"
        program.write_text(_PROGRAM)
        options = " ".join([*LEAN, f'"-XX:ArchiveClassesAtExit={partial}"'])
        submit = [f"{_find_spark_home()}/bin/spark-submit", "--master", "local[2]"]
        words = [*submit, "--driver-java-options", options, str(program)]
        ended = subprocess.run(
            words,
            cwd=folder,
            env={**environment, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        if ended.returncode or not partial.exists():
            last = "\n".join(ended.stdout.splitlines()[-_LAST_LINES:])
            raise EnvironmentFailed("Java made no archive of Spark's classes", last)
        partial.rename(made)
    return made


def _load() -> None:
    """In spark-submit: has Spark load the classes of a job like a report, by a small one."""
    with tempfile.TemporaryDirectory() as folder:
        session = (
            SparkSession.builder.config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
            .getOrCreate()
        )
        numbers = session.range(0, 4, 1, 2).mapInArrow(lambda batches: batches, "id long")
        numbers.groupBy("id").count().collect()
        session.createDataFrame([Row(name="a", at=1)]).write.parquet(f"{folder}/table")
        session.read.parquet(f"{folder}/table").groupBy("name").max("at").collect()
        session.stop()


if __name__ == "__main__":
    print(make(os.environ))
