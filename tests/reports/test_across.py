"""What is computed over many runs: the correlation of each clause, and the distributions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from threading import Event

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from fencepost.reporting import Promises
from fencepost_reports.making import Report, maker
from fencepost_reports.many_runs.across import write_across
from fencepost_reports.many_runs.certainty import with_significance
from fencepost_reports.many_runs.clauses import correlated
from fencepost_reports.many_runs.distributions import SILENCE
from fencepost_reports.many_runs.job import run_job, spread
from fencepost_reports.many_runs.progress import counted
from fencepost_reports.many_runs.session import session
from fencepost_reports.one_run.run import RunSource, run_tables, sources
from fencepost_reports.one_run.tables import RunSummary

pytestmark = pytest.mark.tool


@dataclass(frozen=True)
class Job:
    """Tables over every sample run, written by a session that is still active."""

    session: SparkSession
    sources: tuple[RunSource, ...]
    summaries: Sequence[RunSummary]
    made: Report
    out: Path


@pytest.fixture(scope="module")
def job(
    runs: Mapping[str, Path], promises: Promises, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Job]:
    out = tmp_path_factory.mktemp("out")
    made = Report(promises, str(out), maker(promises))
    given = sources(list(runs.values()))
    with session() as started:
        summaries = run_job(started, given, made)
        write_across(started, summaries, made, None)
        yield Job(started, given, summaries, made, out)


def test_what_goes_before_violations_is_added_up_over_the_runs_that_decided_the_clause(
    job: Job, promises: Promises
) -> None:
    expected: Counter[tuple[str, str, str, str]] = Counter()
    after: Counter[tuple[str, str, str, str]] = Counter()
    tables = [run_tables(source, promises) for source in job.sources]
    violated = {v.clause for run in tables for v in run.verdicts if v.verdict == "violated"}
    for run in tables:
        decided = {v.clause for v in run.verdicts if v.verdict in ("holds", "violated")}
        for clause in decided & violated:
            for row in run.exposures:
                key = (clause, row.sort, row.name, row.other)
                expected[key] += row.occurred
                after[key] += sum(one.count for one in row.followed if one.name == clause)
    found = parquet.read_table(job.out / "tables" / "clause_correlation.parquet").to_pylist()
    assert {row["sort"] for row in found} >= {"loss", "transition", "fault"}
    keys = [(row["clause"], row["sort"], row["name"], row["other"]) for row in found]
    assert set(keys) == {
        key for key in expected if key[1] != "any" and after[key[0], "any", "", ""]
    }
    for row, key in zip(found, keys, strict=True):
        of_any = (key[0], "any", "", "")
        assert (row["occurred"], row["both"]) == (expected[key], after[key])
        assert (row["windows"], row["failed"]) == (expected[of_any], after[of_any])
        assert row["low"] <= row["both"] / row["occurred"] <= row["high"]


def test_without_a_violation_the_table_of_clauses_has_its_columns_and_no_rows(job: Job) -> None:
    by_spark = correlated(job.session, [], ["a clause that no run decided"])
    without = correlated(job.session, [], [])
    assert without.num_rows == by_spark.num_rows == 0
    assert {f.name: f.type for f in without.schema} == {f.name: f.type for f in by_spark.schema}
    assert with_significance(without).num_rows == 0


def test_times_have_medians_and_tails_and_name_their_runs(job: Job, promises: Promises) -> None:
    taken: dict[tuple[str, str, str, str], list[tuple[int, str]]] = {}
    for source in job.sources:
        run = run_tables(source, promises)
        times = [(d.what, d.of, d.to_ns - d.from_ns) for d in run.delays if d.to_ns >= 0]
        times += [(SILENCE, s.what, s.to_ns - s.from_ns) for s in run.silences if s.missed]
        for what, of, took_ns in times:
            key = (run.about.system, run.about.version, what, of)
            taken.setdefault(key, []).append((took_ns, source.run))
    found = parquet.read_table(job.out / "tables" / "distributions.parquet").to_pylist()
    measured = [row for row in found if row["n"]]
    assert {row["what"] for row in measured} >= {"fault to fencing", "heal to unfenced", SILENCE}
    keys = [(row["system"], row["version"], row["what"], row["of"]) for row in measured]
    assert set(keys) == taken.keys()
    for row, key in zip(measured, keys, strict=True):
        times_ns = [took_ns for took_ns, _ in taken[key]]
        assert (row["n"], row["max_ns"]) == (len(times_ns), max(times_ns))
        assert row["measured_in"] == sorted({run for _, run in taken[key]})
        assert row["p50_ns"] == pytest.approx(median(times_ns))
        assert row["p50_ns"] <= row["p95_ns"] <= row["p99_ns"] <= row["max_ns"]
        assert (row["max_ns"], row["slowest"]) in taken[key]


MOST_JOBS = 12
"""Of three tables over all runs, each a task that reads rows, and few shuffles."""


def test_the_tables_over_runs_need_few_jobs(job: Job) -> None:
    context = job.session.sparkContext
    context.setJobGroup("across", "across")
    write_across(job.session, job.summaries, job.made, None)
    context.setJobGroup("", "")
    jobs = context.statusTracker().getJobIdsForGroup("across")
    assert len(jobs) <= MOST_JOBS


SLOW_S = 0.7
"""Longer than the time between two looks at the tasks."""


def test_tasks_are_counted_while_their_job_runs(job: Job) -> None:
    tasks = 4 * job.session.sparkContext.defaultParallelism
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])

    def slow(number: int) -> Iterator[pa.RecordBatch]:
        Event().wait(SLOW_S)
        yield pa.RecordBatch.from_pylist([{"n": number}], schema)

    said: list[tuple[int, int]] = []
    with counted(job.session, tasks, lambda *one: said.append(one)):
        assert spread(job.session, range(tasks), slow, schema, each=1).count() == tasks
    ended = [n for n, of in said if of == tasks]
    assert len(ended) == len(said)
    assert (ended[0], ended[-1]) == (0, tasks)
    assert ended == sorted(set(ended))
    assert any(0 < n < tasks for n in ended)
