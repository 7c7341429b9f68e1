"""An archive of the classes that Spark loads: with it, a report's own Java process starts sooner.

    python -m fencepost_reports.many_runs.class_archive

makes the archive of this Spark and this Java, unless it is there, and prints its place, which is
beside Spark's jars; exit code 4 says that it failed. Every later session of this Spark on this
machine uses it (`session.py`). Without one Java reads each class from its jar, which takes longer.
Java itself ignores an archive of another Java, or of other jars.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pyspark import __version__ as spark_version
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from fencepost import EnvironmentFailed, FencepostError
from fencepost.reporting import Engine
from fencepost_reports.many_runs.clauses import correlated
from fencepost_reports.many_runs.correlation import correlation
from fencepost_reports.many_runs.distributions import distributions, times
from fencepost_reports.many_runs.java import archive_place, check_java
from fencepost_reports.many_runs.job import windows
from fencepost_reports.many_runs.session import JAVA_OPTIONS, session

LIMIT_S = 180.0
"""How long Java may take to write the archive, which is about 160 MB."""


def make_archive() -> Path:
    """The archive; makes it if it is not there. Raises EnvironmentFailed if that fails."""
    archive = archive_place(check_java(), spark_version, _find_spark_home())
    if archive.exists():
        return archive
    try:
        with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".") as made:
            partial = Path(made) / archive.name
            options = f'{JAVA_OPTIONS} "-XX:ArchiveClassesAtExit={partial}"'
            engine = Engine(master="local[*]", conf={"spark.driver.extraJavaOptions": options})
            with session(engine, ends_in_s=LIMIT_S) as spark:
                _load_classes(spark)
            if not partial.exists():
                raise EnvironmentFailed("Java wrote no archive of the classes that Spark loads")
            partial.rename(archive)
    except OSError as failed:
        raise EnvironmentFailed(f"the classes of Spark cannot be archived: {failed}") from failed
    return archive


def _load_classes(spark: SparkSession) -> None:
    """Has Java load the classes that a report needs: it correlates no runs."""
    correlation(windows(spark, [])).orderBy("what", "fault", "type").toArrow()
    correlated(spark, [], ["none"])
    distributions(times(spark, [])).toArrow()


if __name__ == "__main__":
    try:
        print(make_archive())
    except FencepostError as failed:
        print(f"fencepost: {failed}", file=sys.stderr)
        sys.exit(failed.exit_code)
