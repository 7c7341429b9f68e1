"""Many runs: the Spark job gives the tables that each run alone gives, and correlates them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from notebook import worst_clauses
from pyarrow import parquet
from pyspark.sql import SparkSession

from fencepost import Codec
from fencepost.columns import EventTable
from fencepost.reporting import Promises, RunFolder, read
from fencepost_reports.many_runs.job import Report, collected, events, run_job, table
from fencepost_reports.many_runs.session import session
from fencepost_reports.one_run.run import RunSource, run_tables, sources

pytestmark = pytest.mark.tool


@dataclass(frozen=True)
class Job:
    """A job that was run over every sample run."""

    session: SparkSession
    sources: tuple[RunSource, ...]
    report: Report
    out: Path


@pytest.fixture(scope="module")
def job(
    runs: Mapping[str, Path], promises: Promises, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Job]:
    with session() as started:
        out = tmp_path_factory.mktemp("out")
        found = sources(list(runs.values()))
        yield Job(started, found, run_job(started, found, promises, str(out / "tables")), out)


def test_the_tables_are_those_of_each_run_alone(job: Job, promises: Promises) -> None:
    made = {tables.about.run: tables for tables in collected(job.report.runs)}
    assert made == {source.label: run_tables(source, promises) for source in job.sources}


def test_the_tables_can_be_read_without_spark(job: Job) -> None:
    rows = parquet.read_table(job.out / "tables" / "runs.parquet").to_pylist()
    assert {row["about"]["run"] for row in rows} == {source.label for source in job.sources}


def test_one_table_has_the_rows_of_all_runs(job: Job, promises: Promises) -> None:
    expected = {
        (source.label, row.id, row.explained_by)
        for source in job.sources
        for row in run_tables(source, promises).failures
    }
    failed = table(job.report.runs, "failures")
    found = {(row.run, row.id, row.explained_by) for row in failed.collect()}
    assert found == expected
    about = table(job.report.runs, "about")
    assert about.count() == len(job.sources)


def test_a_notebook_asks_the_tables_of_all_runs(job: Job, promises: Promises) -> None:
    counted = Counter(
        row.clause
        for source in job.sources
        for row in run_tables(source, promises).failures
        if row.what == "violation"
    )
    found = [tuple(row) for row in worst_clauses(job.session, str(job.out)).collect()]
    assert found == sorted(counted.items(), key=lambda item: (-item[1], item[0]))


def test_two_jobs_are_enough_for_any_number_of_runs(
    job: Job, promises: Promises, tmp_path: Path
) -> None:
    def jobs(some: tuple[RunSource, ...], out: Path) -> int:
        context = job.session.sparkContext
        context.setJobGroup(out.name, "counted")
        run_job(job.session, some, promises, str(out))
        return len(context.statusTracker().getJobIdsForGroup(out.name))

    # Else Spark runs one job more or less, by which part of a plan happened to end first.
    job.session.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        few = jobs(job.sources[:2], tmp_path / "few")
        assert jobs(job.sources, tmp_path / "all") == few
    finally:
        job.session.conf.unset("spark.sql.adaptive.enabled")


def test_every_event_is_a_row_that_says_the_same(
    job: Job, promises: Promises, runs: Mapping[str, Path]
) -> None:
    flat = EventTable.of(promises.kinds)
    some = tuple(source for source in job.sources if source.label in ("fenced", "torn"))
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in events(job.session, some, promises).orderBy("run", "position").collect():
        rows.setdefault(row["run"], []).append(row.asDict())
    for source in some:
        here = list(read(RunFolder(runs[source.label]), Codec(promises.kinds)))
        batch = pa.Table.from_pylist(rows[source.label], flat.schema)
        there = [event for _, event in flat.events(batch)]
        assert [(e.process, e.node_seq, e.at_ns, e.cause, e.body) for e in there] == [
            (e.process, e.node_seq, e.at_ns, e.cause, e.body) for e in here
        ]


def test_correlates_of_failure_are_counted_in_windows(job: Job, promises: Promises) -> None:
    found = [row.asDict() for row in job.report.correlation.collect()]
    windows = sum(len(run_tables(source, promises).windows) for source in job.sources)
    assert {row["windows"] for row in found} == {windows}
    paused = [r for r in found if r["fault"] == "pause" and r["type"] is None]
    assert {(r["what"], r["occurred"], r["both"], r["lift"]) for r in paused} == {
        ("violation", 1, 0, 0.0),
        ("operation", 1, 0, 0.0),
    }
    wanted = ("operation", "isolate", "broker lost: controller.lease_expired")
    (isolated,) = (r for r in found if (r["what"], r["fault"], r["type"]) == wanted)
    assert (isolated["occurred"], isolated["both"], isolated["confidence"]) == (1, 1, 1.0)
    assert isolated["support"] == pytest.approx(1 / windows)
    assert isolated["lift"] == pytest.approx(windows / isolated["failed"])
