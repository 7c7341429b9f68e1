"""A report is the same from this machine, a standalone cluster, a Connect server, spark-submit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import acme_lamps
import pyarrow as pa
import pytest
import spark_cluster
from pyspark.find_spark_home import _find_spark_home as find_spark_home
from sample_runs import NIGHT, Loaded, ended, lamps, write
from spark_cluster import CONF, LEAN, Cluster

from fencepost.reporting import Engine, Promises, ReportedRun, ReportRequest, load
from fencepost_reports.many_runs.session import session
from fencepost_reports.report import report

pytestmark = [pytest.mark.real, pytest.mark.slow]
ROOT = Path(__file__).parent.parent.parent
LIMIT_S = 300


@dataclass(frozen=True)
class Here:
    """Reports that this machine has made: of all runs, with the rules of a plugin of this module;
    and of a few, and of the sample runs, with installed plugins only."""

    outcomes: Sequence[ReportedRun]
    files: Mapping[str, bytes]
    few: Sequence[str]
    few_files: Mapping[str, bytes]
    sample_files: Mapping[str, bytes]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with spark_cluster.cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The code of a report for workers that have none: the wheel, and a plugin's module."""
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = out.glob("*.whl")
    return str(wheel.rename(out / "fencepost.zip")), str(acme_lamps.__file__)


@pytest.fixture(scope="module")
def many(runs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Sequence[Path]:
    """The sample runs, and more, so that a job takes some seconds."""
    root = tmp_path_factory.mktemp("many")
    more = [write(root, f"night-{n}", ended(lamps(*NIGHT * 200))) for n in range(12)]
    return [*runs.values(), *more]


def reported(folders: Sequence[Path], out: Path, promises: Promises) -> Sequence[ReportedRun]:
    outcomes: list[ReportedRun] = []
    request = ReportRequest(tuple(map(str, folders)), str(out), notify=outcomes.append)
    report(request, Loaded(promises))
    return outcomes


def written(out: Path) -> Mapping[str, bytes]:
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in out.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


@pytest.fixture(scope="module")
def here(
    runs: Mapping[str, Path],
    many: Sequence[Path],
    promises: Promises,
    tmp_path_factory: pytest.TempPathFactory,
) -> Here:
    """The reports that this machine makes."""
    out, installed, all_ = (tmp_path_factory.mktemp(name) for name in ("here", "installed", "all"))
    few = (runs["defect"], runs["fenced"])
    with session():
        outcomes = reported(many, out, promises)
        reported(few, installed, load().promises)
        reported(tuple(runs.values()), all_, load().promises)
    return Here(outcomes, written(out), tuple(map(str, few)), written(installed), written(all_))


@pytest.mark.nightly
def test_a_cluster_that_lacks_the_code_makes_the_same_report_though_an_executor_is_killed(
    cluster: Cluster,
    code: tuple[str, ...],
    many: Sequence[Path],
    promises: Promises,
    here: Here,
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    made: list[int] = []

    def kill() -> None:
        for _ in spark_cluster.ticks():
            made_rows, executors = rows(out), cluster.executors()
            if made_rows and executors:
                spark_cluster.kill(executors[0])
                made.append(len(made_rows))
                return

    def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import fencepost_reports  # noqa: PLC0415

        for _ in batches:
            yield pa.RecordBatch.from_pylist([{"file": str(fencepost_reports.__file__)}])

    with session(Engine(master=cluster.url, conf=CONF, py_files=code)) as spark:
        files = spark.range(0, 2, 1, 2).mapInArrow(where, "file string").collect()
        assert all("/fencepost.zip/" in row.file for row in files)
        killer = Thread(target=kill)
        killer.start()
        outcomes = reported(many, out, promises)
        killer.join()
    assert (outcomes, written(out)) == (here.outcomes, here.files)
    assert 0 < made[0] < len(many)
    used = [path for path in cluster.folder.glob("worker-*/app-*/*") if path.is_dir()]
    assert {path.parent.parent.name for path in used} == {"worker-1", "worker-2"}


def command(words: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env={**os.environ, **environment},
    )


INTERRUPTED = "fencepost: interrupted; everything that was started has ended"
FENCEPOST = "from fencepost.commands.cli import main; main()"


def test_a_connect_server_makes_the_same_report(
    cluster: Cluster,
    code: tuple[str, ...],
    here: Here,
    tmp_path: Path,
) -> None:
    pytest.importorskip("grpc", reason="the extra 'connect' is not installed")
    out = tmp_path / "out"
    with spark_cluster.connect_server(tmp_path / "connect", cluster.url) as url:
        options = ["--out", str(out), "--remote", url, "--py-files", code[0], "--json"]
        ended = command([sys.executable, "-c", FENCEPOST, "report", *here.few, *options])
    assert ended.returncode == 1, ended.stderr
    printed = json.loads(ended.stdout)
    assert (printed["report"], printed["refused"]) == (f"{out}/report.html", {})
    assert printed["clauses"]
    assert written(out) == here.few_files


def test_a_follower_that_is_interrupted_leaves_whole_files_and_goes_on_where_it_stopped(
    here: Here, runs: Mapping[str, Path], tmp_path: Path
) -> None:
    root, out = runs["night"].parent, tmp_path / "out"
    pace = ["--every", "0.2", "--patience", "1"]  # most of these runs are not judged
    words = [sys.executable, "-c", FENCEPOST, "report", "--follow", str(root), *pace]
    for number, until in ((signal.SIGTERM, 1), (signal.SIGINT, len(runs))):
        with subprocess.Popen(
            [*words, "--out", str(out), "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as follower:
            for _ in spark_cluster.ticks():
                if follower.poll() is not None or len(rows(out)) >= until:
                    break
            assert follower.stdout is not None
            while until > 1 and json.loads(follower.stdout.readline())["runs"] < until:
                pass
            follower.send_signal(number)
            _, error = follower.communicate(timeout=LIMIT_S)
        assert (follower.returncode, error.splitlines()[-1:]) == (130, [INTERRUPTED])
        assert "Traceback" not in error, error
        for row in rows(out):
            assert row.read_bytes() == here.sample_files[str(row.relative_to(out))]
    index = "report.html"  # it says what is new since the interrupt
    assert {**written(out), index: b""} == {**here.sample_files, index: b""}


def rows(out: Path) -> Sequence[Path]:
    return list(out.glob("tables/runs/*/*/run.parquet"))


def test_a_session_that_ends_in_an_update_of_java_prints_no_traceback() -> None:
    ended = command([sys.executable, str(Path(__file__).with_name("stopped_in_an_update.py"))])
    assert (ended.returncode, ended.stderr) == (0, "")


def test_spark_submit_makes_the_same_report(here: Here, tmp_path: Path) -> None:
    script = tmp_path / "report.py"
    script.write_text(f"{FENCEPOST}\n")
    out = tmp_path / "out"
    submit = f"{find_spark_home()}/bin/spark-submit"
    options = ["--master", "local[1]", "--driver-java-options", LEAN]
    words = [submit, *options, str(script), "report", *here.few, "--out", str(out)]
    ended = command(words, PYSPARK_PYTHON=sys.executable)
    assert ended.returncode == 1, ended.stderr
    assert written(out) == here.few_files
