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
from fencepost.judging.folder import judged_run
from fencepost.plugins.manager import Plugins
from fencepost.runs.random_schedule import run_one
from fencepost.runs.run import RunSpec, new_folder

SYSTEM, DEFECT = "reference/quorum", "serves-without-lease"
_ONCE = r"^(run|fault|test|cluster)\."
_LINKED = ("damage.json", "verdicts.json", "history.ndjson")
_COLUMNS = ("events", "findings", "operations", "verdicts")
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
    long = to / "columns" / "events.parquet"
    long.unlink()
    first = parquet.read_table(of.path / "columns" / "events.parquet")
    more = first.filter(compute.invert(compute.match_substring_regex(first["kind"], _ONCE)))
    length_ns = compute.max(first["at_ns"]).as_py() - compute.min(first["at_ns"]).as_py() + 1
    numbers = compute.max(first["node_seq"]).as_py() + 1
    with parquet.ParquetWriter(long, first.schema, compression="zstd") as file:
        file.write_table(first)
        written, part = first.num_rows, 1
        while written < events:
            shifted = _plus(more, "node_seq", numbers * part)
            shifted = _plus(shifted, "cause_seq", numbers * part)
            shifted = _plus(shifted, "at_ns", length_ns * part)
            at = shifted.schema.get_field_index("position")
            positions = pa.array(range(written, written + more.num_rows), pa.int64())
            file.write_table(shifted.set_column(at, shifted.schema.field(at), positions))
            written, part = written + more.num_rows, part + 1
    _rejudge(of, to, ended_ns=length_ns * part)
    # The judgement is of the run that was repeated, and must be valid as it is.
    assert judged_run(RunFolder(to), plugins.promises, keep=False).columns
    return to


def _plus(table: pa.Table, name: str, more: int) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), compute.add(table[name], more))


def _rejudge(of: RunFolder, to: Path, ended_ns: int | None = None) -> None:
    """Writes judged.json: the judgement of `of`, for the files that are here."""
    judged: dict[str, Any] = msgspec.json.decode((of.path / "judged.json").read_bytes())
    judged["history"] = _digest(to, ("run.json", "history.ndjson", "damage.json"))
    if ended_ns is not None:
        judged["end"]["ended_at_ns"] += ended_ns
        judged["columns"]["events"] = _sha256(to / "columns" / "events.parquet").hexdigest()
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
