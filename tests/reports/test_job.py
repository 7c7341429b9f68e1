"""The job's requirements to the machine and its caller, before Spark is started."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import pytest
from py4j.protocol import Py4JError
from pyspark import SparkConf
from pyspark.errors import PySparkRuntimeError

from fencepost import EnvironmentFailed, FencepostError, UsageError
from fencepost.reporting import (
    ANY_ENGINE,
    Engine,
    Promises,
    ReportRequest,
    RunFolder,
    RunInfo,
    load,
)
from fencepost_reports import report
from fencepost_reports.many_runs import java as javas
from fencepost_reports.many_runs import session as sessions
from fencepost_reports.many_runs.session import failures_named, session, settings, user_settings
from fencepost_reports.one_run.run import run_tables, sources
from fencepost_reports.plugin import fencepost_report_lacks

pytestmark = pytest.mark.tool


def java(tmp_path: Path, script: str) -> Path:
    """A JAVA_HOME whose java is this shell script."""
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (
            "echo 'openjdk version \"11.0.2\" 2019-01-15' >&2",
            "is Java 11: the report needs Java 17",
        ),
        ("echo 'java version \"1.8.0_292\"' >&2", "is Java 8: the report needs Java 17"),
        ("echo nonsense >&2; exit 1", "is Java of an unknown version"),
    ],
)
def test_a_java_too_old_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, says: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path, script)))
    with pytest.raises(EnvironmentFailed, match=says) as failed, session():
        pass
    assert "\n" not in str(failed.value)


def test_a_java_that_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path, "exec sleep 60")))
    monkeypatch.setattr(javas, "LIMIT_S", 0.2)
    with pytest.raises(EnvironmentFailed, match="does not run"):
        javas.check_java()


def test_a_spark_that_does_not_start_is_named_with_its_reason_and_no_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = 'Exception in thread "main" java.lang.IllegalArgumentException: basedir must be absolute'
    frames = [f"\tat org.apache.spark.Submit.step{n}(Submit.scala:{n})" for n in range(20)]

    def ends(conf: SparkConf, started: Mapping[str, BinaryIO]) -> None:
        started["stdout"].write("\n".join([why, *frames, ""]).encode())
        started["stdout"].flush()
        raise PySparkRuntimeError("Java gateway process exited before sending its port number.")

    monkeypatch.setattr(sessions, "launch_gateway", ends)
    with pytest.raises(EnvironmentFailed) as failed, session():
        pass
    assert str(failed.value) == (
        "Spark did not start: Java gateway process exited before sending its port number: " + why
    )
    assert failed.value.detail == why


@pytest.mark.parametrize("home", ["", "nowhere"])
def test_a_java_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / home) if home else "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentFailed, match="Java is missing: the report needs Java 17"):
        javas.check_java()


def test_only_a_report_over_several_runs_lacks_a_java_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert fencepost_report_lacks(1, ANY_ENGINE) == ""
    for runs, engine in ((2, ANY_ENGINE), (1, Engine(master="spark://there:7077"))):
        lacks = fencepost_report_lacks(runs, engine)
        assert "Java is missing: the report needs Java 17" in lacks


def test_the_java_of_this_machine_will_do() -> None:
    assert int(javas.check_java().partition(".")[0]) >= javas.JAVA


def test_a_plugin_that_reports_is_loaded_without_spark() -> None:
    code = "import fencepost_reports.plugin, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"pyspark", "jinja2", "pandas", "pyarrow"} & set(done.stdout.split()) == set()


def test_what_the_user_has_set_is_set_by_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# ours\nspark.driver.memory  3g\nspark.ui.enabled=true\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    conf = {"spark.local.dir": "/fast", "spark.sql.shuffle.partitions": "9"}
    found = settings(Engine(conf=conf), user_settings(), "scratch")
    assert {"spark.driver.memory", "spark.ui.enabled"} & set(found) == set()
    assert conf.items() <= found.items()
    assert found["spark.master"] == "local[*]"


def test_on_a_cluster_nothing_but_the_name_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    found = settings(Engine(master="spark://there:7077"), user_settings(), "scratch")
    assert found == {"spark.master": "spark://there:7077", "spark.app.name": "fencepost report"}
    (tmp_path / "spark-defaults.conf").write_text("spark.master yarn\n")
    assert settings(ANY_ENGINE, user_settings(), "scratch") == {
        "spark.app.name": "fencepost report"
    }


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sc://127.0.0.1:1", "nothing answers at sc://127.0.0.1:1: .*refused"),
        ("http://127.0.0.1", "http://127.0.0.1 is no URL of Spark Connect"),
    ],
)
def test_a_connect_server_that_is_not_there_is_named(url: str, says: str) -> None:
    with pytest.raises(FencepostError, match=says), session(Engine(remote=url)):
        pass


def test_an_archive_that_is_not_there_is_named(tmp_path: Path) -> None:
    engine = Engine(py_files=(str(tmp_path / "code.zip"),))
    with pytest.raises(UsageError, match=r"code\.zip is no file"), session(engine):
        pass


def info(run: str, system: str) -> RunInfo:
    return RunInfo(
        run=run,
        system=system,
        runtime="process",
        seed=1,
        counts={"controller": 3, "broker": 3},
        settings={},
        defects=(),
        slots=(),
        versions={},
        started_at="2026-01-01T00:00:00Z",
        clock_origin_ns=0,
    )


PROMISES = Promises((), {}, planes={"reference/quorum": "quorum"})


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a run folder"):
        run_tables(sources([tmp_path])[0], PROMISES)


def test_an_unknown_system_is_named_with_the_nearest(tmp_path: Path) -> None:
    RunFolder(tmp_path).write_info(info("run", "reference/quorun"))
    with pytest.raises(UsageError, match="did you mean 'reference/quorum'"):
        run_tables(sources([tmp_path])[0], PROMISES)


def test_no_folder_at_all_is_refused_before_spark_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="no run to report on"):
        report.report(ReportRequest.of([], tmp_path / "out"), load())


def test_a_run_that_is_named_twice_is_one(tmp_path: Path) -> None:
    found = sources([tmp_path / "run", f"file://{tmp_path}/run", f"{tmp_path}/other/"])
    assert [source.run for source in found] == ["other", "run"]


def interrupted_call() -> None:
    """A call of Java that is interrupted, and whose clean-up fails."""
    empty = Py4JError("Answer from Java side is empty")
    try:
        raise KeyboardInterrupt
    finally:
        raise empty


def empty_answer() -> None:
    """A call of Java that fails by itself."""
    raise Py4JError("Answer from Java side is empty")


def test_an_error_of_the_clean_up_after_an_interrupt_is_the_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt), failures_named():
        interrupted_call()
    with pytest.raises(EnvironmentFailed, match="Answer from Java side is empty"), failures_named():
        empty_answer()
