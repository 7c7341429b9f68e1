"""The archive of Spark's classes: sessions use it, and need none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import __version__ as spark_version
from pyspark.find_spark_home import _find_spark_home

from fencepost.reporting import Engine
from fencepost_reports.many_runs.class_archive import make_archive
from fencepost_reports.many_runs.java import archive_place, check_java
from fencepost_reports.many_runs.session import settings

pytestmark = pytest.mark.nightly
OPTIONS = "spark.driver.extraJavaOptions"
COUNTS = """
from fencepost_reports.many_runs.session import session
with session() as spark:
    print(spark.range(5).count())
"""


@pytest.mark.tool
def test_a_session_takes_classes_of_spark_from_the_archive(tmp_path: Path) -> None:
    made = make_archive()
    log = tmp_path / "classes.log"
    logging = {"JAVA_TOOL_OPTIONS": f"-Xlog:class+load:file={log}"}
    assert counted(logging) == "5"
    loaded = {line.split("] ")[-1] for line in log.read_text().splitlines()}
    assert "org.apache.spark.SparkContext source: shared objects file (top)" in loaded
    assert make_archive() == made


@pytest.mark.tool
def test_a_session_starts_with_an_archive_that_java_cannot_read(tmp_path: Path) -> None:
    home = tmp_path / "spark"
    home.mkdir()
    for one in Path(_find_spark_home()).iterdir():
        if one.suffix != ".jsa":
            (home / one.name).symlink_to(one)
    archive_place(check_java(), spark_version, str(home)).write_text("no archive")
    assert counted({"SPARK_HOME": str(home)}) == "5"


@pytest.mark.parametrize(
    ("master", "used"), [("", True), ("local[2]", True), ("spark://there:7077", False)]
)
def test_only_a_session_on_this_machine_uses_the_archive(master: str, used: bool) -> None:
    found = settings(Engine(master=master), {}, "scratch", Path("/of spark.jsa"))
    assert ('"-XX:SharedArchiveFile=/of spark.jsa"' in found.get(OPTIONS, "")) == used


def test_java_options_of_the_user_stand_alone() -> None:
    users = {OPTIONS: "-Xss4m"}
    assert OPTIONS not in settings(Engine(), users, "scratch", Path("/spark.jsa"))


def test_an_archive_is_of_one_java_and_one_spark() -> None:
    of = [(java, spark, home) for java in "12" for spark in "34" for home in ("/a", "/b")]
    places = [archive_place(*one) for one in of]
    assert len(set(places)) == len(of)
    assert places[0] == Path("/a/fencepost-3-java-1.jsa")


def counted(environment: dict[str, str]) -> str:
    """What a session in a process of its own counts."""
    done = subprocess.run(
        [sys.executable, "-c", COUNTS],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()[-1]
