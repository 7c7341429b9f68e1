"""A run that is folded in shares has the tables of the run that is folded whole."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from msgspec import structs
from sample_runs import ended, without_an_offset, write

import fencepost as f
import fencepost_kafka as k
from fencepost import UsageError
from fencepost.judging import columnar
from fencepost.reporting import Promises, RunFolder, judged_run
from fencepost.testing import HistoryBuilder
from fencepost_reports.making import Attempt, Report, attempt, fold_share, make_joined
from fencepost_reports.one_run.history import Share
from fencepost_reports.one_run.run import Run, opened, run_tables, sources
from fencepost_reports.one_run.shares import merged, reread, written

SHARES = (2, 5)
BUSY = ("fenced", "defect")
"""Runs with several scopes and clients."""


@pytest.fixture(scope="module")
def judged(
    runs: Mapping[str, Path], promises: Promises, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Path]:
    """Copies of the sample runs, judged, with their columns in many row groups."""
    root = tmp_path_factory.mktemp("judged")
    copies = {name: root / name for name in runs}
    with pytest.MonkeyPatch.context() as patch:
        for name, copy in copies.items():
            patch.setattr(columnar, "ROWS", 1_000 if name == "defect" else 9)
            shutil.copytree(runs[name], copy)
            judged_run(RunFolder(copy), promises)
    return copies


@pytest.fixture
def opened_runs(judged: Mapping[str, Path], promises: Promises) -> Mapping[str, Run]:
    found = {}
    for source in sources(judged.values()):
        with opened(source, promises) as run:
            found[source.run] = run
    return found


@pytest.mark.parametrize("number", SHARES)
def test_all_shares_together_are_the_whole_run(opened_runs: Mapping[str, Run], number: int) -> None:
    for run in opened_runs.values():
        shares = [run.folded(Share(n, number)) for n in range(number)]
        joined = merged(reread(written(one)) for one in shares)
        assert joined == run.folded()
        assert run.tables(joined) == run_tables(run.source, run.promises)


def test_row_groups_change_nothing(
    judged: Mapping[str, Path],
    runs: Mapping[str, Path],
    promises: Promises,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sample runs themselves have no columns: they are read event by event."""
    monkeypatch.setattr(columnar, "BATCH", 20)
    for name, path in judged.items():
        (there,), (here,) = sources([path]), sources([runs[name]])
        tables = run_tables(there, promises)
        about = structs.replace(tables.about, path=here.where)
        assert structs.replace(tables, about=about) == run_tables(here, promises)


def test_each_share_has_some_of_the_work(opened_runs: Mapping[str, Run]) -> None:
    for name in BUSY:
        shares = [opened_runs[name].folded(Share(n, 2)) for n in range(2)]
        scopes = [{row.scope for row in one.authority} for one in shares]
        assert all(scopes)
        assert scopes[0] & scopes[1] == set()


def felt() -> HistoryBuilder:
    """Four clients write around two faults; some writes fail, and some are left open."""
    h = HistoryBuilder("felt")
    for number in range(120):
        if number in (30, 70):
            h.add("harness", isolated(f"fault-{number}"))
        if number in (50, 90):
            h.add(
                "harness", f.FaultHealed(fault_id=f"fault-{number - 20}", receipt=True, evidence="")
            )
        client = f"clients/p{number % 4}#1"
        name = f"op-{number}"
        h.add(client, k.ProduceInvoked(operation=name, topic="orders", partition=0, acks=-1))
        if number % 7:
            outcome = "unknown" if number % 3 else "ok"
            h.after(number % 11).add(client, without_an_offset(name, outcome, ""))
    return h


def isolated(name: str) -> f.FaultInjected:
    return f.FaultInjected(
        fault_id=name, fault="isolate", targets=("broker-1",), receipt=True, evidence=""
    )


@pytest.mark.parametrize("number", SHARES)
def test_what_clients_felt_is_joined_of_several_shares(
    number: int, promises: Promises, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columnar, "ROWS", 9)
    (source,) = sources([write(tmp_path, "felt", ended(felt()))])
    by_events = run_tables(source, promises)
    judged_run(RunFolder(Path(source.where)), promises)
    with opened(source, promises) as run:
        shares = [run.folded(Share(n, number)) for n in range(number)]
        assert sum(bool(one.took and one.silences) for one in shares) > 1
        joined = run.tables(merged(reread(written(one)) for one in shares))
        assert joined == run.tables(run.folded()) == by_events
    assert len({row.process for row in joined.silences if row.missed}) == 4
    parts = {(row.fault_id, row.part) for row in joined.latencies if 0 < row.succeeded < row.count}
    assert parts == {(f"fault-{n}", p) for n in (30, 70) for p in ("before", "during", "after")}


def test_a_run_that_is_too_large_for_one_task_is_not_made_by_one(
    judged: Mapping[str, Path], promises: Promises, tmp_path: Path
) -> None:
    (source,) = sources([judged["fenced"]])
    report = Report(promises, str(tmp_path), "", most=10)
    events = run_tables(source, promises).about.events
    number = -(-events // 10)
    assert attempt(report, source) == Attempt(shares=number)
    assert list(tmp_path.iterdir()) == []
    for n in range(number):
        fold_share(report, source, Share(n, number))
    made = make_joined(report, source, number)
    whole = attempt(Report(promises, str(tmp_path / "whole"), ""), source)
    assert whole == Attempt(made)
    for place in (made.row, made.page):
        assert (tmp_path / place).read_bytes() == (tmp_path / "whole" / place).read_bytes()
    assert list((tmp_path / "tables" / "shares").iterdir()) == []


def test_a_run_without_columns_is_not_split(
    runs: Mapping[str, Path], promises: Promises, tmp_path: Path
) -> None:
    (source,) = sources([runs["fenced"]])
    made = attempt(Report(promises, str(tmp_path), "", most=1), source)
    assert made.summary is not None


def test_a_share_that_is_damaged_is_refused(
    judged: Mapping[str, Path], promises: Promises, tmp_path: Path
) -> None:
    (source,) = sources([judged["fenced"]])
    report = Report(promises, str(tmp_path), "")
    for n in range(2):
        fold_share(report, source, Share(n, 2))
    (file,) = tmp_path.rglob("1-of-2.ndjson")
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(UsageError, match=r"1-of-2\.ndjson is not what a task has written"):
        make_joined(report, source, 2)
    file.unlink()
    with pytest.raises(UsageError, match=r"1-of-2\.ndjson is not what a task has written"):
        make_joined(report, source, 2)


def test_the_text_of_a_share_is_read_back(opened_runs: Mapping[str, Run]) -> None:
    whole = opened_runs["defect"].folded()
    assert reread(written(whole)) == whole
    with pytest.raises(msgspec.DecodeError):
        reread(b"")
