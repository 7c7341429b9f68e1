"""Many runs: the Spark job gives the tables that each run alone gives, and correlates them."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from acme_lamps import CLAUSES
from followed import EVERY_S, PATIENCE_S, arrive, followed
from notebook import worst_clauses
from pyarrow import parquet
from pyspark.sql import SparkSession
from sample_runs import NIGHT, Loaded, ended, lamps, write

from fencepost import Codec, UsageError
from fencepost.columns import EventTable
from fencepost.model.shares import interval
from fencepost.reporting import Following, Promises, ReportedRun, ReportRequest, RunFolder, read
from fencepost_reports import making, places
from fencepost_reports.making import Report, maker
from fencepost_reports.many_runs.job import events, run_job, table
from fencepost_reports.many_runs.job import runs as all_runs
from fencepost_reports.many_runs.session import session
from fencepost_reports.one_run.run import RunSource, run_tables, sources
from fencepost_reports.one_run.tables import RunTables
from fencepost_reports.report import report

pytestmark = pytest.mark.tool


@dataclass(frozen=True)
class Job:
    """A report that was made of every sample run, in a session that is still active."""

    session: SparkSession
    sources: tuple[RunSource, ...]
    outcomes: Sequence[ReportedRun]
    out: Path


@pytest.fixture(scope="module")
def job(
    runs: Mapping[str, Path], promises: Promises, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Job]:
    with session() as started:
        out = tmp_path_factory.mktemp("out")
        outcomes = reported(list(runs.values()), out, promises)
        yield Job(started, sources(list(runs.values())), outcomes, out)


def reported(folders: Sequence[object], out: Path, promises: Promises) -> Sequence[ReportedRun]:
    outcomes: list[ReportedRun] = []
    request = ReportRequest(tuple(map(str, folders)), str(out), notify=outcomes.append)
    assert report(request, Loaded(promises)) == f"{out}/report.html"
    return outcomes


def written(out: Path) -> Mapping[str, bytes]:
    return {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}


def rows(out: Path) -> Mapping[str, dict[str, Any]]:
    found = [parquet.ParquetFile(path).read() for path in out.glob("tables/runs/**/run.parquet")]
    return {row["about"]["run"]: row for one in found for row in one.to_pylist()}


def test_the_tables_are_those_of_each_run_alone(job: Job, promises: Promises) -> None:
    made = rows(job.out)
    for source in job.sources:
        assert msgspec.convert(made[source.run], RunTables) == run_tables(source, promises)


def test_a_partition_is_a_date_and_a_run(job: Job) -> None:
    found = {path.parent.relative_to(job.out) for path in job.out.glob("**/run.parquet")}
    assert found == {
        Path(f"tables/runs/date={date(source)}/run={source.run}") for source in job.sources
    }


def date(source: RunSource) -> str:
    return RunFolder(Path(source.where)).info().started_at[:10]


def test_one_table_has_the_rows_of_all_runs(job: Job, promises: Promises) -> None:
    expected = {
        (source.run, row.id, row.explained_by)
        for source in job.sources
        for row in run_tables(source, promises).failures
    }
    failed = table(all_runs(job.session, str(job.out)), "failures")
    found = {(row.run, row.id, row.explained_by) for row in failed.collect()}
    assert found == expected
    about = table(all_runs(job.session, str(job.out)), "about")
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


def test_the_job_has_a_task_for_each_run_and_nothing_else(
    job: Job, promises: Promises, tmp_path: Path
) -> None:
    made = Report(promises, str(tmp_path), maker(promises))
    context = job.session.sparkContext
    context.setJobGroup("counted", "counted")
    run_job(job.session, job.sources, made)
    context.setJobGroup("", "")
    tracker = context.statusTracker()
    (only,) = tracker.getJobIdsForGroup("counted")
    stages = [tracker.getStageInfo(stage) for stage in tracker.getJobInfo(only).stageIds]
    assert [stage and stage.numTasks for stage in stages] == [len(job.sources)]


def test_every_event_is_a_row_that_says_the_same(
    job: Job, promises: Promises, runs: Mapping[str, Path]
) -> None:
    flat = EventTable.of(promises.kinds)
    some = tuple(source for source in job.sources if source.run in ("fenced", "torn"))
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in events(job.session, some, promises).orderBy("run", "position").collect():
        rows.setdefault(row["run"], []).append(row.asDict())
    for source in some:
        here = list(read(RunFolder(runs[source.run]), Codec(promises.kinds)))
        batch = pa.Table.from_pylist(rows[source.run], flat.schema)
        there = [event for _, event in flat.events(batch)]
        assert [(e.process, e.node_seq, e.at_ns, e.cause, e.body) for e in there] == [
            (e.process, e.node_seq, e.at_ns, e.cause, e.body) for e in here
        ]


def test_correlates_of_failure_are_counted_in_windows(job: Job, promises: Promises) -> None:
    found = parquet.read_table(job.out / "tables" / "correlation.parquet").to_pylist()
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
    assert isolated["elsewhere"] == pytest.approx((isolated["failed"] - 1) / (windows - 1))
    compared = sum(row["what"] == "operation" for row in found)
    assert (isolated["low"], isolated["high"]) == interval(1, 1, compared)
    for row in found:
        assert row["low"] <= row["confidence"] <= row["high"]
        assert row["differs"] is not (row["low"] <= row["elsewhere"] <= row["high"])


# ------------------------------------------------------------------------ again, and one run more


@pytest.fixture
def nights(tmp_path: Path) -> Sequence[Path]:
    """Three runs."""
    return [write(tmp_path / "runs", name, ended(lamps(*NIGHT))) for name in ("a", "b", "c")]


def test_a_report_that_is_made_again_writes_the_same(
    job: Job, nights: Sequence[Path], promises: Promises, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    outcomes = reported(nights, out, promises)
    first = written(out)
    index = out / "report.html"
    assert reported(nights, out, promises) == outcomes
    assert "Since the last report: 0 new runs, and 0 clauses" in index.read_text()
    assert {**written(out), index.name: b""} == {**first, index.name: b""}
    shutil.rmtree(out)
    reported(nights, out, promises)
    assert written(out) == first


def test_only_a_new_run_is_read(
    job: Job, nights: Sequence[Path], promises: Promises, tmp_path: Path
) -> None:
    reported(nights[:2], tmp_path / "out", promises)
    before = rows(tmp_path / "out")
    for night in nights[:2]:  # a history that cannot be read, but seems to be as it was
        history = RunFolder(night).history
        seen = history.stat()
        history.write_bytes(b"\n" * seen.st_size)
        os.utime(history, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    outcomes = reported(nights, tmp_path / "out", promises)
    assert [run.lacks for run in outcomes] == ["", "", ""]
    after = rows(tmp_path / "out")
    assert {name: after[name] for name in before} == before
    assert set(after) == {"a", "b", "c"}


def test_a_run_that_changed_is_read_again(
    job: Job, nights: Sequence[Path], promises: Promises, tmp_path: Path
) -> None:
    reported(nights, tmp_path / "out", promises)
    RunFolder(nights[1]).history.write_bytes(b"")
    outcomes = {run.run: run.lacks for run in reported(nights, tmp_path / "out", promises)}
    assert outcomes == {"a": "", "b": "it has no events", "c": ""}


def test_other_rules_judge_every_run_again(
    job: Job, nights: Sequence[Path], promises: Promises, tmp_path: Path
) -> None:
    reported(nights, tmp_path / "out", promises)
    fewer = Promises(promises.rules[:-2], promises.clauses, promises.kinds, promises.planes)
    made = rows(tmp_path / "out")
    reported(nights, tmp_path / "out", fewer)
    assert all(rows(tmp_path / "out")[name] != row for name, row in made.items())


def test_a_row_that_was_cut_short_is_made_again(
    job: Job, nights: Sequence[Path], promises: Promises, tmp_path: Path
) -> None:
    reported(nights, tmp_path / "out", promises)
    first = written(tmp_path / "out")
    row = next((tmp_path / "out").glob("**/run=b/run.parquet"))
    row.write_bytes(row.read_bytes()[:100])
    reported(nights, tmp_path / "out", promises)
    assert row.read_bytes() == first[str(row.relative_to(tmp_path / "out"))]


def test_no_run_folder_is_written_to(
    job: Job, nights: Sequence[Path], promises: Promises, tmp_path: Path
) -> None:
    unmerged = RunFolder(nights[0])
    unmerged.events.mkdir(exist_ok=True)
    unmerged.history.rename(unmerged.events_of("harness"))
    before = written(nights[0].parent)
    outcomes = reported(nights, tmp_path / "out", promises)
    assert written(nights[0].parent) == before
    assert [run.lacks for run in outcomes] == ["", "", ""]


# --------------------------------------------------------------------------- a folder is followed


def test_a_followed_folder_has_the_report_of_its_runs(
    job: Job, nights: Sequence[Path], promises: Promises, tmp_path: Path
) -> None:
    root = tmp_path / "nightly"
    (root / "soak").mkdir(parents=True)
    said = followed(
        root,
        tmp_path / "out",
        promises,
        [
            lambda: None,
            lambda: arrive(nights[0], root, promises),
            lambda: [arrive(night, root / "soak", promises) for night in nights[1:]],
            lambda: None,
        ],
    )
    assert [(one.read, one.runs) for one in said.updates] == [(("a",), 1), (("b", "c"), 3)]
    assert [one.run for one in said.outcomes] == ["a", "b", "c"]
    reported([root / "a", root / "soak" / "b", root / "soak" / "c"], tmp_path / "once", promises)
    assert written(tmp_path / "out") == written(tmp_path / "once")


def test_a_follower_goes_on_where_it_stopped_though_the_folders_of_runs_are_gone(
    job: Job, nights: Sequence[Path], promises: Promises, tmp_path: Path
) -> None:
    root = tmp_path / "nightly"
    root.mkdir()
    here = [arrive(night, root, promises) for night in nights]
    for runs in (here[:2], here):
        reported(runs, tmp_path / "twice", promises)
    shutil.rmtree(here[2])
    followed(root, tmp_path / "out", promises)

    arrive(nights[2], root, promises)
    once = followed(root, tmp_path / "out", promises)
    assert [one.runs for one in once.updates] == [3]
    assert written(tmp_path / "out") == written(tmp_path / "twice")
    shutil.rmtree(here[0])
    index = tmp_path / "out" / "report.html"
    index.write_text("older: an interrupt came before it was written")
    again = followed(root, tmp_path / "out", promises)
    assert [(one.read, one.runs) for one in again.updates] == [(("b", "c"), 3)]
    assert "runs/a.html" in index.read_text()


def test_what_other_code_has_made_of_a_run_that_is_gone_is_left_out(
    job: Job, nights: Sequence[Path], promises: Promises, tmp_path: Path
) -> None:
    root = tmp_path / "nightly"
    root.mkdir()
    here = [arrive(night, root, promises) for night in nights]
    followed(root, tmp_path / "out", promises)
    shutil.rmtree(here[0])
    fewer = Promises(promises.rules[:-2], promises.clauses, promises.kinds, promises.planes)
    again = followed(root, tmp_path / "out", fewer)
    assert [one.runs for one in again.updates] == [2]


def test_a_run_that_is_removed_before_or_while_it_is_read_is_not_in_the_report(
    job: Job,
    nights: Sequence[Path],
    promises: Promises,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = tmp_path / "nightly"
    root.mkdir()
    clean = arrive(nights[1], root, promises)
    found = places.runs_in

    def removed(*given: Any) -> Iterator[tuple[str, bool]]:
        """Finds the runs, of which one is removed before any task begins."""
        yield from list(found(*given))
        shutil.rmtree(clean, ignore_errors=True)

    monkeypatch.setattr(places, "runs_in", removed)
    out = tmp_path / "out"
    said = followed(root, out, promises, [lambda: arrive(nights[0], root, promises)])
    assert [(one.read, one.removed, one.refused) for one in said.updates] == [(("a",), 1, {})]
    assert set(rows(out)) == {"a"}

    monkeypatch.undo()
    half = arrive(nights[2], root, promises)

    def removing(source: RunSource, promises: Promises) -> RunTables:
        tables = run_tables(source, promises)
        shutil.rmtree(half)
        return tables

    monkeypatch.setattr(making, "run_tables", removing)
    with pytest.raises(UsageError, match="was removed while it was read"):
        making.make(Report(promises, str(out), ""), sources([half])[0])
    assert set(rows(out)) == {"a"}


def test_a_run_that_goes_on_is_waited_for_and_named_if_it_never_ends(
    job: Job, nights: Sequence[Path], promises: Promises, tmp_path: Path
) -> None:
    root = tmp_path / "nightly"
    root.mkdir()
    for name in ("b", "c"):
        unended = write(root, name, lamps(*NIGHT).events())
        RunFolder(unended).history.rename(RunFolder(unended).events_of("harness"))

    def ends() -> None:
        shutil.rmtree(root / "b")
        arrive(nights[1], root, promises)

    steps = [lambda: arrive(nights[0], root, promises), ends]
    steps += [lambda: None] * int(PATIENCE_S / EVERY_S)
    said = followed(root, tmp_path / "out", promises, steps)
    assert [(one.read, one.waiting) for one in said.updates] == [
        (("a",), 2), (("b",), 1), (("c",), 0)
    ]  # fmt: skip
    assert {one.run: one.lacks for one in said.outcomes if one.lacks} == {
        "c": "the run's end is not recorded"
    }
    reported([root / name for name in ("a", "b", "c")], tmp_path / "once", promises)
    assert written(tmp_path / "out") == written(tmp_path / "once")


def test_a_run_with_the_id_of_another_one_and_what_is_no_run_are_named(
    job: Job, nights: Sequence[Path], promises: Promises, tmp_path: Path
) -> None:
    root = tmp_path / "nightly"
    (root / "copies").mkdir(parents=True)
    arrive(nights[0], root, promises)

    def more() -> None:
        arrive(nights[0], root / "copies", promises)
        later(arrive(nights[1], root, promises))

    def one_is_gone() -> None:
        shutil.rmtree(root / "b")
        arrive(nights[2], root, promises)

    said = followed(root, tmp_path / "out", promises, [more, one_is_gone])
    _, second, third = said.updates
    assert (second.runs, set(second.refused)) == (1, {"a", "b"})
    assert "has the id of" in second.refused["a"]
    assert "this Fencepost knows" in second.refused["b"]
    assert (third.runs, set(third.refused)) == (2, {"a"})
    here = [root / "a", root / "c", root / "copies" / "a"]
    reported(here, tmp_path / "once", promises)
    assert written(tmp_path / "out") == written(tmp_path / "once")


def test_a_folder_that_is_not_there_cannot_be_followed(promises: Promises, tmp_path: Path) -> None:
    following = Following(every_s=1, patience_s=1, updated=lambda update: None)
    request = ReportRequest((str(tmp_path / "no"),), str(tmp_path), following=following)
    with pytest.raises(UsageError, match="no is no folder: make it before it is followed"):
        report(request, Loaded(promises))


# -------------------------------------------------------------------------------------- bad input


def later(folder: Path) -> None:
    path = folder / "run.json"
    path.write_bytes(path.read_bytes().replace(b'"layout": 2', b'"layout": 3'))


def test_what_cannot_be_reported_is_named_and_the_other_runs_are_reported(
    job: Job, nights: Sequence[Path], promises: Promises, tmp_path: Path
) -> None:
    no_run = tmp_path / "no-run"
    no_run.mkdir()
    later(nights[1])
    copy = tmp_path / "copies" / "a"
    shutil.copytree(nights[0], copy)
    unanswered = "s3a://bucket/x?scheme=http&endpoint_override=127.0.0.1:9&region=none"
    given = [*nights, no_run, tmp_path / "nowhere", copy, unanswered, "ftp://there/y"]
    outcomes = {run.run: run for run in reported(given, tmp_path / "out", promises)}
    whole = outcomes["c"]
    assert whole == ReportedRun(run="c", violated=whole.violated, broken=True, counts=whole.counts)
    assert set(whole.violated) <= whole.counts.keys()
    refused = {name: run.refused for name, run in outcomes.items() if run.refused}
    assert refused["no-run"] == f"{no_run} is not a run folder: it has no run.json"
    assert "is not a run folder" in refused["nowhere"]
    assert "run.json has layout 3; this Fencepost knows 1 to 2" in refused["b"]
    assert refused["x"].startswith(f"{unanswered} does not answer: ")
    assert refused["y"].startswith("ftp://there/y cannot be opened: ")
    assert "has the id of" in refused["a"]
    assert set(refused) == {"no-run", "nowhere", "a", "b", "x", "y"}
    assert not any("\n" in why for why in refused.values())
    kept = parquet.read_table(tmp_path / "out" / "tables" / "refused.parquet").to_pylist()
    assert {row["run"]: row["why"] for row in kept} == refused
    assert set(rows(tmp_path / "out")) == {"a", "c"}


def test_a_report_without_any_run_that_can_be_read_is_refused(
    job: Job, promises: Promises, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"no run can be reported: .*; and 1 more"):
        reported([tmp_path / str(n) for n in range(4)], tmp_path / "out", promises)


def test_a_run_that_goes_on_is_incomplete_until_it_has_ended(
    job: Job, nights: Sequence[Path], promises: Promises, tmp_path: Path
) -> None:
    going = RunFolder(nights[0])
    going.events.mkdir(exist_ok=True)
    lines = going.history.read_bytes().splitlines(keepends=True)
    going.history.unlink()
    going.events_of("harness").write_bytes(b"".join(lines[:3]) + lines[3][:20])
    outcomes = reported(nights, tmp_path / "out", promises)
    assert "the run's end is not recorded" in outcomes[0].lacks
    going.events_of("harness").write_bytes(b"".join(lines))
    assert reported(nights, tmp_path / "out", promises)[0].lacks == ""


def test_a_clause_of_the_index_has_its_sentence(job: Job) -> None:
    index = (job.out / "report.html").read_text()
    assert CLAUSES["ACME-1"].says in index
