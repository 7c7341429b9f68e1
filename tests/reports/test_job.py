"""The job's requirements to the machine and its caller, before Spark is started."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from fencepost import EnvironmentFailed, UsageError
from fencepost.reporting import Promises, RunFolder, RunInfo, load
from fencepost_reports import report
from fencepost_reports.many_runs import java as javas
from fencepost_reports.many_runs.session import session
from fencepost_reports.one_run.run import check, sources
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
    assert fencepost_report_lacks(1) == ""
    assert "Java is missing: the report needs Java 17" in fencepost_report_lacks(2)


def test_the_java_of_this_machine_will_do() -> None:
    javas.check_java()


def test_a_plugin_that_reports_is_loaded_without_spark() -> None:
    code = "import fencepost_reports.plugin, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"pyspark", "jinja2", "pandas", "pyarrow"} & set(done.stdout.split()) == set()


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


def checked(paths: Sequence[Path]) -> None:
    for source in sources(paths):
        check(source, Promises((), {}, planes={"reference/quorum": "quorum"}))


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a run folder"):
        checked([tmp_path])


def test_an_unknown_system_is_named_with_the_nearest(tmp_path: Path) -> None:
    RunFolder(tmp_path).write_info(info("run", "reference/quorun"))
    with pytest.raises(UsageError, match="did you mean 'reference/quorum'"):
        checked([tmp_path])


def test_no_folder_at_all_is_refused_before_spark_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="no run to report on"):
        report.report([], tmp_path / "out", load())


def test_runs_of_one_name_are_distinguished(tmp_path: Path) -> None:
    paths = [tmp_path / "a" / "run", tmp_path / "b" / "run", tmp_path / "other"]
    labels = [source.label for source in sources([*paths, paths[0]])]
    assert labels == ["a/run", "b/run", "other"]
