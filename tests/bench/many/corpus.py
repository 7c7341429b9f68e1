"""Makes run folders of any number and length out of a few simulated runs.

A copy has a name and a day of its own, and its files are links to those of the run that it copies.
A long run repeats the events of one run, each time later, with new positions and numbers; what
occurs once in a run (its start and end, its faults and phases) is in the first part only. Its
tables and columns are made of these events as in the pass that judges a run, without the rules.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from fencepost import Codec, Event, Shape
from fencepost.history.merge import read
from fencepost.history.run_folder import RunFolder
from fencepost.judging.columnar import TABLES, ColumnsWriter
from fencepost.judging.folder import judged_run
from fencepost.judging.tables.fold import TablesFold
from fencepost.judging.tables.packing import packed
from fencepost.plugins.manager import Plugins
from fencepost.runs.random_schedule import run_one
from fencepost.runs.run import RunSpec, new_folder

SYSTEM, DEFECT = "reference/quorum", "serves-without-lease"
_ONCE = re.compile(r"(run|fault|test|cluster)\.")
_LINKED = ("damage.json", "verdicts.json", "tables.json.gz", "history.ndjson")
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
    for name in (*_LINKED, *(f"columns/{one}.parquet" for one in TABLES)):
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
    """A run of at least so many events. Its history is that of `of`: its columns and tables are
    long."""
    _copied(of, to, timedelta())
    kinds = plugins.promises.kinds
    judged = judged_run(of, plugins.promises, keep=False)
    long = _Repeated.of(read(of, Codec(kinds)), events)
    end = replace(judged.end, ended_at_ns=judged.end.ended_at_ns + long.later_ns)
    (to / "tables.json.gz").unlink()
    with ColumnsWriter(to, to.name, kinds) as columns:
        fold = TablesFold(columns.operation)
        for event in columns.passing(long.events()):
            fold.take(event)
        (to / "tables.json.gz").write_bytes(packed(fold.end(end)))
        columns.close(judged.judgement.verdicts)
    (to / "columns" / "findings.parquet").unlink()
    os.link(of.path / "columns" / "findings.parquet", to / "columns" / "findings.parquet")
    _rejudge(of, to, ended_ns=long.later_ns)
    # The judgement is of the run that was repeated, and must be valid as it is.
    assert judged_run(RunFolder(to), plugins.promises, keep=False).columns
    return to


@dataclass(frozen=True, slots=True)
class _Repeated:
    """The events of a run, and how often those that may occur often come once more."""

    first: Sequence[Event]
    more: Sequence[Event]
    times: int

    @classmethod
    def of(cls, history: Iterable[Event], events: int) -> _Repeated:
        first = list(history)
        more = [event for event in first if not _ONCE.match(event.kind)]
        return cls(first, more, -(-(events - len(first)) // len(more)))

    @property
    def length_ns(self) -> int:
        """How much later each repetition is."""
        times = [event.at_ns for event in self.first]
        return max(times) - min(times) + 1

    @property
    def later_ns(self) -> int:
        """How much later the last one is."""
        return self.length_ns * self.times

    def events(self) -> Iterator[Event]:
        yield from self.first
        numbers = max(event.node_seq for event in self.first) + 1
        length_ns = self.length_ns
        for n in range(1, self.times + 1):
            for event in self.more:
                yield structs.replace(
                    event, node_seq=event.node_seq + n * numbers, at_ns=event.at_ns + n * length_ns
                )


def _rejudge(of: RunFolder, to: Path, ended_ns: int | None = None) -> None:
    """Writes judged.json: the judgement of `of`, for the files that are here."""
    judged: dict[str, Any] = msgspec.json.decode((of.path / "judged.json").read_bytes())
    judged["history"] = _digest(to, ("run.json", "history.ndjson", "damage.json"))
    if ended_ns is not None:
        judged["end"]["ended_at_ns"] += ended_ns
        for name in judged["columns"]:
            judged["columns"][name] = _sha256(to / "columns" / f"{name}.parquet").hexdigest()
        judged["tables"] = _sha256(to / "tables.json.gz").hexdigest()
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
