"""The columnar part of a judged run as Parquet: its events, changes of authority, operations,
findings and verdicts.

It is written in the pass that judges the run, one row group after the other, so memory does not
grow with the run. Events of the kinds that every run has are in row groups of their own: they are
few, and a report reads them as such, and hardly any others. `judged.json` has the digest of each
file, beside the digest of the history and the fingerprint of the rules. A file with another digest
is not read.

Only this module of the framework needs pyarrow, which a plain installation does not have. Without
it no columns are written, and a report reads the history itself.

See docs/decisions/33-columns.md.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import os
import shutil
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, final

import msgspec
import pyarrow as pa
from msgspec import Struct
from pyarrow import compute, parquet

from fencepost.events import KINDS, Event, kind_name
from fencepost.history.columns import schema_of
from fencepost.history.event_table import ENVELOPE, EventTable
from fencepost.history.files import MOST_EVENTS_BYTES, opened
from fencepost.judging.facts import ChangeRow, OperationRow, OperationsFold, changes_of
from fencepost.judging.findings import (
    Exercised,
    Finding,
    Violated,
)
from fencepost.judging.reading_ahead import reading_ahead
from fencepost.judging.verdicts import AT_END, Verdict
from fencepost.model.errors import UsageError

FOLDER = "columns"
EVENTS = "events"
"""The table of events (`EventTable`)."""
CHANGES = "changes"
"""The table of changes of authority (`ChangeRow`)."""
OPERATIONS = "operations"
"""The table of clients' operations (`OperationRow`)."""
FINDINGS, VERDICTS = "findings", "verdicts"
TABLES = (EVENTS, CHANGES, OPERATIONS, FINDINGS, VERDICTS)
ROWS = 20_000
"""How many events are one row group."""
BATCH = 200_000
"""How many rows of some columns are read at once, about."""
_COMPRESSION = "zstd"
_GROWING = ("position", "at_ns", "node_seq", "seq", "cause_seq", "began_ns", "ended_ns")
"""Columns of numbers that grow: their differences take little space, and little time to read."""
OF_EVERY_RUN = frozenset(map(kind_name, KINDS))
"""The kinds whose events are in row groups of their own."""
_OWN_GROUPS = b"fencepost.own_groups"
_BLOCK = 1 << 20
_NAME = ("process", "node_seq")
_WORDS = ("run", "process", "kind", "cause_process")
"""Columns of every event that hold few texts: read as dictionaries, they take half the time."""

Ref = tuple[str, int]


class FindingRow(Struct, frozen=True, kw_only=True):
    """A finding of a rule, and the `position` of the event at which it was made (-1: the end).

    `process` and `seq` name the event that it is about (empty and -1: none), `because` the events
    that prove a violation, as `process:seq`.
    """

    position: int
    clause: str
    finding: str
    process: str
    seq: int
    evidence: str
    message: str
    because: tuple[str, ...]


class ClauseRow(Struct, frozen=True, kw_only=True):
    """The verdict of a clause."""

    clause: str
    verdict: str
    exercised: int
    violated: int
    excused: int
    evidence: str
    reason: str
    known: tuple[str, ...]


def _schemas(events: EventTable) -> Mapping[str, pa.Schema]:
    """table -> its columns."""
    return {
        EVENTS: events.schema,
        CHANGES: schema_of(ChangeRow),
        OPERATIONS: schema_of(OperationRow),
        FINDINGS: schema_of(FindingRow),
        VERDICTS: schema_of(ClauseRow),
    }


@final
class ColumnsWriter:
    """Writes the columnar part of a run below its folder, whole or not at all.

    A context manager: `passing` and `finding` take what the judge meets, `close` completes the
    files and returns their digests. Without `close`, nothing is left.
    """

    def __init__(self, folder: Path, run: str, kinds: Sequence[type[Struct]]) -> None:
        self._run = run
        self._table = EventTable.of(kinds)
        self._final = folder / FOLDER
        self._path = folder / f".{FOLDER}.{os.getpid()}"
        self._position = -1
        self._events: list[tuple[int, Event]] = []
        self._own: list[tuple[int, Event]] = []
        self._rows: dict[str, list[Struct]] = {name: [] for name in TABLES if name != EVENTS}
        self._operations = OperationsFold()
        self._files: dict[str, TableFile] = {}

    def __enter__(self) -> Self:
        _remove(self._path)
        self._path.mkdir()
        for name, schema in _schemas(self._table).items():
            self._files[name] = TableFile(self._path / f"{name}.parquet", schema)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for file in self._files.values():
            file.close()
        if self._path.exists():
            _remove(self._path)

    def passing(self, events: Iterable[Event]) -> Iterator[Event]:
        """Passes the events of a history on, which it takes, too."""
        for event in events:
            self._event(event)
            yield event

    def _event(self, event: Event) -> None:
        self._position += 1
        own = event.kind in OF_EVERY_RUN
        (self._own if own else self._events).append((self._position, event))
        self._rows[CHANGES] += changes_of(self._position, event)
        self._rows[OPERATIONS] += self._operations.apply(self._position, event)
        if len(self._events) >= ROWS:
            self._flush()
        if len(self._own) >= ROWS:
            self._flush_own()

    def finding(self, clause: str, finding: Finding, position: int) -> None:
        """Takes a finding that was made at the event with this position, or at the end."""
        at = finding.at
        evidence = finding.evidence if isinstance(finding, (Exercised, Violated)) else ""
        self._rows[FINDINGS].append(
            FindingRow(
                position=-1 if position == AT_END else position,
                clause=clause,
                finding=type(finding).__name__.lower(),
                process="" if at is None else at.process,
                seq=-1 if at is None else at.seq,
                evidence=str(evidence),
                message="" if isinstance(finding, Exercised) else finding.message,
                because=tuple(map(str, finding.because)) if isinstance(finding, Violated) else (),
            )
        )

    def close(self, verdicts: Mapping[str, Verdict], ended_ns: int) -> Mapping[str, str]:
        """Completes the files, in place of former ones; the digest of each by its name."""
        self._rows[VERDICTS] += (
            ClauseRow(
                clause=clause,
                verdict=str(one.verdict),
                exercised=one.exercised,
                violated=one.violated,
                excused=one.excused,
                evidence=str(one.evidence or ""),
                reason=one.reason,
                known=one.known,
            )
            for clause, one in verdicts.items()
        )
        self._rows[OPERATIONS] += self._operations.unended(ended_ns)
        self._flush()
        self._flush_own()
        for file in self._files.values():
            file.close()
        _remove(self._final)
        self._path.rename(self._final)
        return {name: _digest(self._final.parent, name) for name in self._files}

    def _flush(self) -> None:
        if self._events:
            self._files[EVENTS].write(self._table.batch(self._run, self._events))
            self._events.clear()
        for name, rows in self._rows.items():
            if rows:
                schema = self._files[name].schema
                values = zip(*map(msgspec.structs.astuple, rows), strict=True)
                arrays = [pa.array(v, f.type) for v, f in zip(values, schema, strict=True)]
                self._files[name].write(pa.RecordBatch.from_arrays(arrays, schema=schema))
                rows.clear()

    def _flush_own(self) -> None:
        if self._own:
            self._files[EVENTS].write(self._table.batch(self._run, self._own), own=True)
            self._own.clear()


@final
class TableFile:
    """Writes one table of the columnar part, a row group at a time."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.schema = schema
        growing = {name: "DELTA_BINARY_PACKED" for name in schema.names if name in _GROWING}
        self._writer = parquet.ParquetWriter(
            path,
            schema,
            compression=_COMPRESSION,
            use_dictionary=[name for name in schema.names if name not in growing],
            column_encoding=growing,
        )
        self._groups = 0
        self._own: list[int] = []

    def write(self, rows: pa.RecordBatch, *, own: bool = False) -> None:
        """Writes rows as one row group; `own`: all are events of kinds that every run has."""
        self._writer.write_batch(rows, row_group_size=max(rows.num_rows, 1))
        if own:
            self._own.append(self._groups)
        self._groups += 1

    def close(self) -> None:
        """Completes the file; a second time it does nothing."""
        if self._writer.is_open:
            found = json.dumps(self._own)
            self._writer.add_key_value_metadata({_OWN_GROUPS: found})
            self._writer.close()


def _remove(path: Path) -> None:
    """Removes what is there: a folder, or what somebody put in its place."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _digest(folder: Path, name: str) -> str:
    """The digest of a file of the columnar part; raises as `opened`."""
    digest = hashlib.sha256()
    path = folder / FOLDER / f"{name}.parquet"
    with opened(folder, path, MOST_EVENTS_BYTES) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


@final
class Columns:
    """The columnar part of a run folder, whose digests `judged.json` has confirmed.

    The digests tell that the files belong to that judgement, and nothing of the author of both. So
    all methods raise UsageError for a file that cannot be read as what a judge writes.
    """

    def __init__(self, folder: Path, table: EventTable) -> None:
        self._folder = folder / FOLDER
        self._table = table
        self._metadata: dict[str, parquet.FileMetaData] = {}

    def path(self, name: str) -> Path:
        """The Parquet file of a table: one of `TABLES`."""
        return self._folder / f"{name}.parquet"

    def well_formed(self) -> bool:
        """Whether each file has a footer, and the columns of its table and no others."""
        try:
            for name, schema in _schemas(self._table).items():
                with self._opened(name) as found:
                    if not found.schema_arrow.equals(schema):
                        return False
        except UsageError:
            return False
        return True

    def __len__(self) -> int:
        """How many events there are."""
        with self._opened(EVENTS) as found:
            return int(found.metadata.num_rows)

    def events(
        self, kinds: Collection[str], refs: Collection[tuple[str, int]] = ()
    ) -> Iterator[tuple[int, Event]]:
        """The events of some kinds, and those with some names, each with its position, in order.

        The first event is always among them, since times are counted from it.
        """
        names = pa.array(sorted(kinds), pa.string())
        every = bool(refs) or not OF_EVERY_RUN.issuperset(kinds)

        def chosen(group: pa.Table) -> pa.Array:
            listed = compute.is_in(group["kind"], names)
            rows = compute.indices_nonzero(compute.or_(listed, compute.equal(group["position"], 0)))
            if not refs:
                return rows
            return pa.array(sorted({*rows.to_pylist(), *_named(group, refs)}), pa.int64())

        def read(group: _Group) -> bool:
            return every or group.own or group.least("position") == 0

        return self._chosen((*(_NAME if refs else ()), "position", "kind"), chosen, read)

    def at(self, positions: Collection[int]) -> Iterator[tuple[int, Event]]:
        """The events at these positions, in order."""
        wanted = sorted(positions)
        sought = pa.array(wanted, pa.int64())

        def read(group: _Group) -> bool:
            nearest = bisect_left(wanted, group.least("position"))
            return nearest < len(wanted) and wanted[nearest] <= group.most("position")

        return self._chosen(
            ("position", "kind"),
            lambda group: compute.indices_nonzero(compute.is_in(group["position"], sought)),
            read,
        )

    def rows(
        self,
        name: str,
        columns: Sequence[str],
        words: Sequence[str] = (),
        share: tuple[int, int] = (0, 1),
    ) -> Iterator[pa.Table]:
        """Some columns of a table, many rows at a time; of its row groups, the `share` (n, of so
        many).

        The rows of `events` are in no order, those of all other tables in theirs. Columns whose
        names are in `words` hold few texts, and become dictionaries.
        """
        part, parts = share
        with self._opened(name, words) as found, reading_ahead() as ahead:

            def read(groups: Sequence[int]) -> pa.Table:
                some = found.read_row_groups(groups, columns=list(columns), use_threads=False)
                return some.unify_dictionaries().combine_chunks()

            yield from ahead(
                read, _batches(found.metadata, range(part, found.num_row_groups, parts))
            )

    def _chosen(
        self,
        by: Sequence[str],
        choose: Callable[[pa.Table], pa.Array],
        read: Callable[[_Group], bool],
    ) -> Iterator[tuple[int, Event]]:
        """The events that are chosen by some columns, in order: only row groups, and columns, of
        chosen events are read."""

        def rows(group: _Group) -> pa.Table | None:
            some = _group(found, group.number, by)
            places = choose(some)
            if len(places) == 0:
                return None
            kinds = some["kind"].take(places).unique().to_pylist()
            whole = _group(found, group.number, self._table.columns_of(kinds))
            return whole.take(places).cast(_without_dictionaries(whole.schema))

        def events(groups: Iterable[_Group]) -> Iterator[tuple[int, Event]]:
            for some in ahead(rows, groups):
                if some is not None:
                    yield from self._table.events(some)

        with self._opened(EVENTS, _WORDS) as found, reading_ahead() as ahead:
            groups = [group for group in _groups(found.metadata) if read(group)]
            own = events(group for group in groups if group.own)
            others = events(group for group in groups if not group.own)
            yield from heapq.merge(own, others, key=lambda placed: placed[0])

    @contextmanager
    def _opened(self, name: str, words: Sequence[str] = ()) -> Iterator[parquet.ParquetFile]:
        path = self.path(name)
        try:
            with (
                opened(self._folder.parent, path, MOST_EVENTS_BYTES) as file,
                parquet.ParquetFile(
                    file, metadata=self._metadata.get(name), read_dictionary=list(words)
                ) as found,
            ):
                self._metadata[name] = found.metadata  # of a long run it takes long to read
                yield found
        except UsageError:
            raise
        except Exception as broken:
            # Only reading happens here. For hostile bytes pyarrow raises any of its errors, or an
            # OSError without a number.
            if isinstance(broken, OSError) and broken.errno is not None:
                raise
            raise UsageError(f"{path} is no table of a judged run: {broken!r}") from broken


@final
@dataclass(frozen=True, slots=True)
class _Group:
    """A row group of events; `own`: all are of kinds that every run has."""

    metadata: parquet.FileMetaData
    number: int
    own: bool

    def least(self, column: str) -> int:
        """The least number in a column of the envelope."""
        return int(self._statistics(column).min)

    def most(self, column: str) -> int:
        """The greatest one."""
        return int(self._statistics(column).max)

    def _statistics(self, column: str) -> parquet.Statistics:
        place = ENVELOPE.get_field_index(column)
        return self.metadata.row_group(self.number).column(place).statistics


def _groups(metadata: parquet.FileMetaData) -> Iterator[_Group]:
    own = frozenset(json.loads((metadata.metadata or {}).get(_OWN_GROUPS, "[]")))
    for number in range(metadata.num_row_groups):
        yield _Group(metadata, number, number in own)


def _batches(metadata: parquet.FileMetaData, numbers: Iterable[int]) -> Iterator[list[int]]:
    """Row groups that are read at once."""
    some: list[int] = []
    rows = 0
    for number in numbers:
        some.append(number)
        rows += metadata.row_group(number).num_rows
        if rows >= BATCH:
            yield some
            some, rows = [], 0
    if some:
        yield some


def _group(file: parquet.ParquetFile, number: int, columns: Sequence[str]) -> pa.Table:
    # Threads of pyarrow would not survive a fork.
    return file.read_row_group(number, columns=list(columns), use_threads=False)


def _without_dictionaries(schema: pa.Schema) -> pa.Schema:
    return pa.schema(
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in schema
    )


def _named(group: pa.Table, refs: Collection[Ref]) -> Iterator[int]:
    """Which rows have one of these names."""
    process, seq = _NAME
    processes = pa.array(sorted({name for name, _ in refs}), pa.string())
    numbers = pa.array(sorted({number for _, number in refs}), pa.int64())
    near = compute.indices_nonzero(
        compute.and_(compute.is_in(group[seq], numbers), compute.is_in(group[process], processes))
    )
    some = group.select(_NAME).take(near)
    found = zip(near.to_pylist(), *(c.to_pylist() for c in some.columns), strict=True)
    return (row for row, *ref in found if tuple(ref) in refs)


def confirmed(
    folder: Path, digests: Mapping[str, str], kinds: Sequence[type[Struct]]
) -> Columns | None:
    """The columnar part of a run folder, if each of its files has the recorded digest and the
    columns that a judge writes."""
    try:
        for name in TABLES:
            if _digest(folder, name) != digests.get(name):
                return None
    except (FileNotFoundError, UsageError):
        return None
    columns = Columns(folder, EventTable.of(kinds))
    return columns if columns.well_formed() else None
