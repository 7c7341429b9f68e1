"""Makes run folders of any number and length out of a few simulated runs.

A copy has a name and a day of its own, and its files are links to those of the run that it copies.
A long run repeats the events of one run, each time later, with new positions and numbers; what
occurs once in a run (its start and end, its faults and phases) is in the first part only.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import compute, parquet

from fencepost import Shape
from fencepost.history.run_folder import RunFolder
from fencepost.judging.columnar import OF_EVERY_RUN, ROWS, TableFile
from fencepost.judging.folder import judged_run
from fencepost.plugins.manager import Plugins
from fencepost.runs.random_schedule import run_one
from fencepost.runs.run import RunSpec, new_folder

SYSTEM, DEFECT = "reference/quorum", "serves-without-lease"
_ONCE = r"^(run|fault|test|cluster)\."
_LINKED = ("damage.json", "verdicts.json", "history.ndjson")
_COLUMNS = ("events", "changes", "operations", "findings", "verdicts")
_BLOCK = 1 << 20


def simulated(plugins: Plugins, out: Path, span_ms: int) -> Sequence[RunFolder]:
    """Two judged runs under random schedules: of a healthy cluster, and of one with a defect."""
    made = []
    for seed, defects in ((1, ()), (2, (DEFECT,))):
        spec = RunSpec(
            plugins.system(SYSTEM), Shape(defects=defects), "simulated", seed, lossy=True
        )
        folder = new_folder(out, f"seed-{seed}")
        run_one(spec, plugins, folder, span_ms, plugins.faults)
        made.append(folder)
    return made


def copies(of: Sequence[RunFolder], out: Path, number: int) -> Sequence[Path]:
    """So many runs, in turns copies of these; a hundred of them start on one day."""
    return [
        _copied(of[n % len(of)], out / f"run-{n:05}", timedelta(days=n // 100))
        for n in range(number)
    ]


def _copied(of: RunFolder, to: Path, later: timedelta) -> Path:
    (to / "columns").mkdir(parents=True)
    (to / "events").mkdir()
    for name in (*_LINKED, *(f"columns/{one}.parquet" for one in _COLUMNS)):
        if (of.path / name).exists():
            os.link(of.path / name, to / name)
    info = of.info()
    began = datetime.fromisoformat(info.started_at) + later
    RunFolder(to).write_info(
        msgspec.structs.replace(info, run=to.name, started_at=began.isoformat())
    )
    _rejudge(of, to)
    return to


def repeated(of: RunFolder, to: Path, plugins: Plugins, events: int) -> Path:
    """A run of at least so many events. Its history is that of `of`: only its columns are long."""
    _copied(of, to, timedelta())
    first = parquet.read_table(of.path / "columns" / "events.parquet")
    more = first.filter(_often(first["kind"]))
    length_ns = compute.max(first["at_ns"]).as_py() - compute.min(first["at_ns"]).as_py() + 1
    numbers = compute.max(first["node_seq"]).as_py() + 1
    parts = -(-(events - first.num_rows) // more.num_rows)
    # The position of an event in a repetition, from 0, by its position in the first part.
    nth = dict(zip(more["position"].to_pylist(), range(more.num_rows), strict=True))
    shifts = {"at_ns": length_ns, "began_ns": length_ns, "ended_ns": length_ns}
    shifts |= dict.fromkeys(("node_seq", "seq", "cause_seq"), numbers)
    for name in ("events", "changes", "operations"):
        table = parquet.read_table(of.path / "columns" / f"{name}.parquet")
        (to / "columns" / f"{name}.parquet").unlink()
        again = table.filter(compute.is_in(table["position"], pa.array(list(nth))))
        again = _with(again, "position", [nth[p] for p in again["position"].to_pylist()])
        again = _plus(again, "position", first.num_rows)
        file = _Long(
            TableFile(to / "columns" / f"{name}.parquet", table.schema), split=name == "events"
        )
        file.write(table)
        for _ in range(parts):
            for column in shifts.keys() & set(table.column_names):
                again = _plus(again, column, shifts[column])
            file.write(again)
            again = _plus(again, "position", more.num_rows)
        file.close()
    _rejudge(of, to, ended_ns=length_ns * parts)
    # The judgement is of the run that was repeated, and must be valid as it is.
    assert judged_run(RunFolder(to), plugins.promises, keep=False).columns
    return to


class _Long:
    """A long table, in row groups as a judged run has them."""

    def __init__(self, file: TableFile, *, split: bool) -> None:
        self._file, self._split = file, split
        self._own: list[pa.Table] = []

    def write(self, rows: pa.Table) -> None:
        if self._split:
            of_every_run = compute.is_in(rows["kind"], pa.array(sorted(OF_EVERY_RUN)))
            self._own.append(rows.filter(of_every_run))
            rows = rows.filter(compute.invert(of_every_run))
            if sum(one.num_rows for one in self._own) >= ROWS:
                self._write_own()
        self._write(rows)

    def close(self) -> None:
        if self._own:
            self._write_own()
        self._file.close()

    def _write_own(self) -> None:
        self._write(pa.concat_tables(self._own), own=True)
        self._own.clear()

    def _write(self, rows: pa.Table, *, own: bool = False) -> None:
        (whole,) = rows.combine_chunks().to_batches()
        self._file.write(whole, own=own)


def _often(kinds: pa.ChunkedArray) -> pa.ChunkedArray:
    return compute.invert(compute.match_substring_regex(kinds, _ONCE))


def _plus(table: pa.Table, name: str, more: int) -> pa.Table:
    return _with(table, name, compute.add(table[name], more))


def _with(table: pa.Table, name: str, values: Any) -> pa.Table:
    at = table.schema.get_field_index(name)
    field = table.schema.field(at)
    return table.set_column(
        at, field, pa.array(values, field.type) if isinstance(values, list) else values
    )


def _rejudge(of: RunFolder, to: Path, ended_ns: int | None = None) -> None:
    """Writes judged.json: the judgement of `of`, for the files that are here."""
    judged: dict[str, Any] = msgspec.json.decode((of.path / "judged.json").read_bytes())
    judged["history"] = _digest(to, ("run.json", "history.ndjson", "damage.json"))
    if ended_ns is not None:
        judged["end"]["ended_at_ns"] += ended_ns
        for name in judged["columns"]:
            judged["columns"][name] = _sha256(to / "columns" / f"{name}.parquet").hexdigest()
    (to / "judged.json").write_bytes(msgspec.json.encode(judged))


def _digest(folder: Path, names: Sequence[str]) -> str:
    """The digest by which a judgement knows its history."""
    digest = hashlib.sha256()
    for name in names:
        if (folder / name).exists():
            digest = _sha256(folder / name, digest)
        digest.update(b"\0")
    return digest.hexdigest()


def _sha256(path: Path, into: Any = None) -> Any:
    digest = hashlib.sha256() if into is None else into
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest
