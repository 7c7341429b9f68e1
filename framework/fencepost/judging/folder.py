"""The judgement of one run folder: it is recorded beside the history, and made again once it is
stale.

`verdicts.json` holds the verdicts, and `tables.json.gz` what a report needs of the events
(`tables/`). `judged.json` identifies what they were made from: a digest of the history, and a
fingerprint of the rules. As long as both are the same, they are the judgement. Otherwise the
history is judged again. All of it is made in one pass, and so is the columnar part (`columnar.py`),
if pyarrow is installed.

See docs/decisions/26-recorded-verdicts.md.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, final

import msgspec
from msgspec import Struct

from fencepost.events import Codec, Event
from fencepost.history import merge
from fencepost.history.files import MOST_EVENTS_BYTES, content, decoded, opened, write_whole
from fencepost.history.run_end import RunEnd
from fencepost.history.run_folder import RunFolder
from fencepost.judging.attribution import attributed
from fencepost.judging.checks import clauses_of, rules_of
from fencepost.judging.explanation import explained
from fencepost.judging.judge import OnFinding, judge
from fencepost.judging.known_findings import KnownFinding, bearing_on, elsewhere
from fencepost.judging.rules import Clause, Rule
from fencepost.judging.tables.fold import TablesFold
from fencepost.judging.tables.packing import MOST_BYTES, packed, unpacked
from fencepost.judging.tables.rows import OperationRow, Tables
from fencepost.judging.verdicts import (
    Forfeited,
    Judgement,
    Outcome,
    Verdict,
    read_verdicts,
    write_verdicts,
)
from fencepost.model.errors import UsageError, no_such

_BLOCK = 1 << 20
_SOURCES = frozenset({".py", ".toml"})


@final
@dataclass(frozen=True, slots=True)
class Promises:
    """What runs are judged by: rules, clauses, known findings, and the event kinds of plugins.

    `planes` maps each system's name, without a version, to its plane.
    """

    rules: tuple[Rule[Any], ...]
    clauses: Mapping[str, Clause]
    kinds: tuple[type[Struct], ...] = ()
    planes: Mapping[str, str] = field(default_factory=dict)
    known_findings: tuple[KnownFinding, ...] = ()

    def plane(self, system: str) -> str:
        """The plane of a system, `name@version` too; raises UsageError with the nearest name."""
        family = system.partition("@")[0]
        if family not in self.planes:
            raise no_such("system", system, self.planes)
        return self.planes[family]

    def fingerprint(self) -> str:
        """A digest of every source file of the packages that rules and event kinds come from.

        It changes with each change of a rule, of what a rule calls, and of the judge. Empty when
        one of them has no source file: then no recorded verdict can be trusted.
        """
        types = {*(type(rule) for rule in self.rules), *self.kinds, type(self)}
        causes = {one.caused for one in self.known_findings}
        names = sorted({f"{one.__module__}.{one.__qualname__}" for one in types})
        packages = sorted({one.__module__.partition(".")[0] for one in {*types, *causes}})
        digests = [digest_of_package(package) for package in packages]
        if not all(digests):
            return ""
        clauses = msgspec.json.encode(sorted((c.id, repr(c)) for c in self.clauses.values()))
        findings = msgspec.json.encode([(f.id, f.versions) for f in self.known_findings])
        return _digest([clauses, findings, *(text.encode() for text in (*names, *digests))])


@cache
def digest_of_package(package: str) -> str:
    """A digest of the source files of an imported package or module, the same in a folder and in an
    archive; empty for the main program and where there is no source file.

    Computed once per process: a program does not change its own sources.
    """
    module = sys.modules.get(package)
    spec = getattr(module, "__spec__", None)
    if package == "__main__" or spec is None or spec.origin is None:
        return ""
    if spec.submodule_search_locations is None:
        return _digest([Path(spec.origin).read_bytes()])
    found = sorted(_sources(files(package), ""))
    return _digest(part for name, data in found for part in (name.encode(), data))


def _sources(folder: Traversable, below: str) -> Iterator[tuple[str, bytes]]:
    """Each source file below a folder: its path, and its contents."""
    for part in folder.iterdir():
        path = f"{below}/{part.name}"
        if part.is_dir():
            yield from _sources(part, path)
        elif Path(part.name).suffix in _SOURCES:
            yield path, part.read_bytes()


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8))
        digest.update(part)
    return digest.hexdigest()


class ColumnSink(Protocol):
    """What takes the columnar part of a run while it is judged."""

    @property
    def finding(self) -> OnFinding | None:
        """What is called with each finding."""
        ...

    def passing(self, events: Iterable[Event]) -> Iterable[Event]:
        """Passes the events on, which it takes, too."""
        ...

    def operation(self, row: OperationRow) -> None:
        """Takes an operation of a client."""
        ...

    def close(self, verdicts: Mapping[str, Verdict]) -> Mapping[str, str]:
        """Completes the files; the digest of each by its name, none if there are no files."""
        ...


@final
class _NoColumns:
    """Takes nothing."""

    finding: OnFinding | None = None

    def passing(self, events: Iterable[Event]) -> Iterable[Event]:
        return events

    def operation(self, row: OperationRow) -> None:
        pass

    def close(self, verdicts: Mapping[str, Verdict]) -> Mapping[str, str]:
        return {}


def _columns(
    folder: RunFolder, kinds: tuple[type[Struct], ...], *, wanted: bool
) -> AbstractContextManager[ColumnSink]:
    if not wanted or find_spec("pyarrow") is None:
        return nullcontext(_NoColumns())
    from fencepost.judging.columnar import ColumnsWriter  # noqa: PLC0415

    return ColumnsWriter(folder.path, folder.run, kinds)


class Judged(Struct, frozen=True):
    """judged.json: what the verdicts beside it were made of, and how the history ended.

    `tables` is the digest of tables.json.gz, and `columns` has that of each file of the columnar
    part; empty: there is none.
    """

    history: str
    rules: str
    end: RunEnd
    columns: Mapping[str, str] = {}
    forfeited: Forfeited | None = None
    tables: str = ""


@final
@dataclass(frozen=True, slots=True)
class JudgedRun:
    """A run's judgement, what its history lacks, the digests of its columnar part, if any, and what
    a report needs of its events."""

    judgement: Judgement
    end: RunEnd
    columns: Mapping[str, str]
    tables: Tables


def judge_folder(
    folder: RunFolder, promises: Promises, *, keep: bool = True
) -> tuple[Judgement, RunEnd]:
    """The verdicts of a run, explained, with known findings marked; and what its history lacks.

    They are the recorded ones if those were made of this history by these promises. Otherwise the
    history is judged, and the result is recorded unless `keep` is false. If the history was not
    merged yet, it is merged first. Raises UsageError for a folder without a run, or of an unknown
    system.
    """
    judged = judged_run(folder, promises, keep=keep)
    return judged.judgement, judged.end


def judged_run(folder: RunFolder, promises: Promises, *, keep: bool = True) -> JudgedRun:
    """As `judge_folder`. If the run is judged and recorded now, its columnar part is written too,
    where pyarrow is installed."""
    info = folder.info()
    plane = promises.plane(info.system)
    codec = Codec(promises.kinds)
    reading = merge.read(folder, codec)
    mark = (_digest_of_history(folder), promises.fingerprint())
    recorded = _recorded(folder, mark)
    if recorded is not None:
        return recorded
    with _columns(folder, promises.kinds, wanted=keep) as columns:
        fold = TablesFold(columns.operation)
        judgement = judge(
            fold.passing(columns.passing(reading)),
            (*promises.rules, *rules_of(info.checks)),
            {**promises.clauses, **clauses_of(info.checks)},
            lambda: reading.end,
            plane,
            found=columns.finding,
            release=info.release,
        )
        tables = fold.end(reading.end)
        if judgement.of(Outcome.VIOLATED):
            about = promises.known_findings, info.system, info.versions
            judgement = attributed(
                judgement,
                bearing_on(*about),
                merge.read(folder, codec),
                elsewhere(*about),
                info.version,
            )
            verdicts = explained(judgement.verdicts, merge.read(folder, codec))
            judgement = replace(judgement, verdicts=verdicts)
        if not keep:
            return JudgedRun(judgement, reading.end, {}, tables)
        digests = columns.close(judgement.verdicts)
    write_verdicts(folder.path / "verdicts.json", judgement.verdicts)
    rows = packed(tables)
    write_whole(folder.tables, rows)
    judged = Judged(
        *mark, reading.end, digests, judgement.forfeited, hashlib.sha256(rows).hexdigest()
    )
    write_whole(folder.path / "judged.json", msgspec.json.format(msgspec.json.encode(judged)))
    return JudgedRun(judgement, reading.end, digests, tables)


def _digest_of_history(folder: RunFolder) -> str:
    digest = hashlib.sha256()
    for path in (folder.path / "run.json", folder.history, folder.damage):
        with suppress(FileNotFoundError), opened(folder.path, path, MOST_EVENTS_BYTES) as file:
            while block := file.read(_BLOCK):
                digest.update(block)
        digest.update(b"\0")
    return digest.hexdigest()


def _recorded(folder: RunFolder, mark: tuple[str, str]) -> JudgedRun | None:
    """The recorded judgement, if it has this mark and can be read."""
    try:
        judged = decoded(content(folder.path, folder.path / "judged.json"), Judged)
        if not mark[1] or (judged.history, judged.rules) != mark:
            return None
        verdicts = read_verdicts(folder.path / "verdicts.json")
        rows = content(folder.path, folder.tables, MOST_BYTES)
        if hashlib.sha256(rows).hexdigest() != judged.tables:
            return None
        judgement = Judgement(verdicts, judged.forfeited)
        return JudgedRun(judgement, judged.end, judged.columns, unpacked(rows))
    except (OSError, msgspec.DecodeError, UsageError):
        return None
