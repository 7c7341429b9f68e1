"""A judged run has tables and a columnar part, from which a report is made."""

from __future__ import annotations

import gzip
import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from msgspec import structs
from pyarrow import parquet
from sample_runs import ended, fenced, write

from fencepost import Codec
from fencepost.columns import Columns, confirmed
from fencepost.judging import columnar
from fencepost.judging import folder as judging
from fencepost.judging.tables.packing import packed, unpacked
from fencepost.reporting import Promises, RunFolder, judged_run, read
from fencepost_reports.one_run.history import EventHistory
from fencepost_reports.one_run.run import history_of, run_tables, sources


@pytest.fixture(scope="module")
def judged(
    runs: Mapping[str, Path], promises: Promises, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Path]:
    """Copies of the sample runs, all judged and recorded."""
    root = tmp_path_factory.mktemp("judged")
    copies = {name: root / name for name in runs}
    for name, copy in copies.items():
        shutil.copytree(runs[name], copy)
        judged_run(RunFolder(copy), promises)
    return copies


@pytest.fixture
def run(tmp_path: Path, promises: Promises) -> RunFolder:
    """A judged run of its own."""
    folder = RunFolder(write(tmp_path, "fenced", ended(fenced())))
    judged_run(folder, promises)
    return folder


def columns_of(folder: RunFolder, promises: Promises) -> Columns | None:
    recorded = judged_run(folder, promises, keep=False)
    return confirmed(folder.path, recorded.columns, promises.kinds)


def test_a_report_of_what_was_kept_is_that_of_the_events(
    judged: Mapping[str, Path], runs: Mapping[str, Path], promises: Promises
) -> None:
    for name, path in judged.items():
        (source,), (unjudged,) = sources([path]), sources([runs[name]])
        folder = RunFolder(path)
        recorded = judged_run(folder, promises, keep=False)
        assert isinstance(history_of(folder, recorded, promises), Columns)
        made = run_tables(source, promises)
        shutil.rmtree(path / "columns")
        assert isinstance(history_of(folder, recorded, promises), EventHistory)
        assert run_tables(source, promises) == made
        about = structs.replace(made.about, path=unjudged.where)
        assert run_tables(unjudged, promises) == structs.replace(made, about=about)


def test_kept_tables_are_believed(run: RunFolder, promises: Promises) -> None:
    tables = judged_run(run, promises).tables
    rewrite(run, packed(structs.replace(tables, test="as kept")))
    assert run_tables(sources([run.path])[0], promises).about.test == "as kept"


def rewrite(run: RunFolder, tables: bytes) -> None:
    """Puts other tables in their place, with a digest that fits."""
    run.tables.write_bytes(tables)
    judged = msgspec.json.decode((run.path / "judged.json").read_bytes())
    judged["tables"] = hashlib.sha256(tables).hexdigest()
    (run.path / "judged.json").write_bytes(msgspec.json.encode(judged))


def lost(run: RunFolder) -> None:
    run.tables.unlink()


def torn(run: RunFolder) -> None:
    rewrite(run, run.tables.read_bytes()[:-9])


def of_other_bytes(run: RunFolder) -> None:
    rewrite(run, b"{}")


def of_no_bytes(run: RunFolder) -> None:
    rewrite(run, b"")


def changed(run: RunFolder) -> None:
    """Nobody has written another digest."""
    tables = unpacked(run.tables.read_bytes())
    run.tables.write_bytes(packed(structs.replace(tables, test="changed")))


def of_no_digest(run: RunFolder) -> None:
    """As those of former versions."""
    judged = msgspec.json.decode((run.path / "judged.json").read_bytes())
    del judged["tables"]
    (run.path / "judged.json").write_bytes(msgspec.json.encode(judged))


def of_another_schema(run: RunFolder) -> None:
    tables = msgspec.json.decode(gzip.decompress(run.tables.read_bytes()))
    tables["spans"] = {"rows": tables["spans"]}
    rewrite(run, gzip.compress(msgspec.json.encode(tables)))


def of_wide_numbers(run: RunFolder) -> None:
    tables = msgspec.json.decode(gzip.decompress(run.tables.read_bytes()))
    tables["authority"][0]["at_ns"] = 10**40
    rewrite(run, gzip.compress(msgspec.json.encode(tables)))


@pytest.mark.parametrize(
    "damage",
    [
        lost,
        torn,
        changed,
        of_other_bytes,
        of_no_bytes,
        of_no_digest,
        of_another_schema,
        of_wide_numbers,
    ],
)
def test_tables_that_cannot_be_read_are_folded_again(
    run: RunFolder, promises: Promises, damage: Callable[[RunFolder], None]
) -> None:
    (source,) = sources([run.path])
    made = run_tables(source, promises)
    damage(run)
    assert run_tables(source, promises) == made


def test_the_columns_hold_every_event(run: RunFolder, promises: Promises) -> None:
    columns = columns_of(run, promises)
    assert columns is not None
    expected = list(enumerate(read(run, Codec(promises.kinds))))
    assert list(columns.events(Codec(promises.kinds).kinds)) == expected
    named = columns.events((), {(expected[7][1].process, expected[7][1].node_seq)})
    assert list(named) == [expected[0], expected[7]]


def test_only_row_groups_that_have_an_event_are_read_for_it(
    tmp_path: Path, promises: Promises, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columnar, "ROWS", 4)
    folder = RunFolder(write(tmp_path, "fenced", ended(fenced())))
    judged_run(folder, promises)
    columns = columns_of(folder, promises)
    assert columns is not None
    placed = list(enumerate(read(folder, Codec(promises.kinds))))
    read_groups = _watched(monkeypatch)
    assert list(columns.at([9, 11])) == [placed[9], placed[11]]
    assert read_groups == {2}
    kinds = {"fault.injected"}
    faults = [(position, event) for position, event in placed if event.kind in kinds]
    assert list(columns.events(kinds)) == [placed[0], *faults]


def _watched(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The numbers of the row groups that are read from now on."""
    found: set[int] = set()
    group = columnar._group

    def watched(file: parquet.ParquetFile, number: int, names: Sequence[str]) -> pa.Table:
        found.add(number)
        return group(file, number, names)

    monkeypatch.setattr(columnar, "_group", watched)
    return found


def test_findings_operations_and_verdicts_are_columns_too(
    run: RunFolder, promises: Promises
) -> None:
    columns = columns_of(run, promises)
    assert columns is not None
    operations = parquet.read_table(columns.path("operations")).to_pylist()
    assert [(o["name"], o["outcome"], o["error"]) for o in operations] == [
        ("op-1", "unknown", "TIMED_OUT"),
        ("op-2", "failed", "NOT_LEADER"),
    ]
    assert all(o["began_ns"] < o["ended_ns"] for o in operations)
    verdicts = judged_run(run, promises).judgement.verdicts
    clauses = parquet.read_table(columns.path("verdicts")).to_pylist()
    assert {c["clause"]: c["verdict"] for c in clauses} == {
        clause: str(verdict.verdict) for clause, verdict in verdicts.items()
    }
    findings = parquet.read_table(columns.path("findings")).to_pylist()
    for clause, verdict in verdicts.items():
        exercised = [f for f in findings if (f["clause"], f["finding"]) == (clause, "exercised")]
        assert len(exercised) == verdict.exercised
    assert any(verdict.exercised for verdict in verdicts.values())


def _one_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _a_link(path: Path) -> None:
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


@pytest.mark.parametrize("damage", [_one_byte, _a_link, Path.unlink])
@pytest.mark.parametrize("table", ["events", "findings", "operations", "verdicts"])
def test_damaged_columns_are_not_read(
    run: RunFolder, promises: Promises, table: str, damage: Callable[[Path], None]
) -> None:
    damage(run.path / "columns" / f"{table}.parquet")
    assert columns_of(run, promises) is None


def test_columns_of_other_rules_are_not_read_and_a_report_writes_none(
    run: RunFolder, promises: Promises
) -> None:
    other = Promises(promises.rules[1:], promises.clauses, promises.kinds, promises.planes)
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    assert judged_run(run, other, keep=False).columns == {}
    run_tables(sources([run.path])[0], other)
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before


def test_without_pyarrow_no_columns_are_written(
    tmp_path: Path, promises: Promises, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "find_spec", lambda name: None)
    folder = RunFolder(write(tmp_path, "plain", ended(fenced())))
    assert judged_run(folder, promises).columns == {}
    assert not (folder.path / "columns").exists()
    assert run_tables(sources([folder.path])[0], promises).about.events > 0


def test_what_was_in_the_place_of_the_columns_is_replaced(
    tmp_path: Path, promises: Promises
) -> None:
    folder = RunFolder(write(tmp_path / "a", "run", ended(fenced())))
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "events.parquet").write_text("mine")
    (folder.path / "columns").symlink_to(outside)
    judged_run(folder, promises)
    assert columns_of(folder, promises) is not None
    assert (outside / "events.parquet").read_text() == "mine"
