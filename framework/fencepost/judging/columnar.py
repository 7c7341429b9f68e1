"""The columnar part of a judged run as Parquet: its events, operations, findings and verdicts.

It is written in the pass that judges the run, one row group after the other, so memory does not
grow with the run. Nothing is folded of the columns: what a report needs beside some events is in
the tables (`tables/`). `judged.json` has the digest of each file, beside the digest of the history
and the fingerprint of the rules. A file with another digest is not read.

Only this module of the framework needs pyarrow, which a plain installation does not have. Without
it no columns are written, and a report reads the history itself.

See docs/decisions/33-columns.md.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self, final

import msgspec
import pyarrow as pa
from msgspec import Struct
from pyarrow import compute, parquet

from fencepost.events import Event
from fencepost.history.columns import schema_of
from fencepost.history.event_table import ENVELOPE, EventTable
from fencepost.history.files import MOST_EVENTS_BYTES, opened
from fencepost.judging.findings import Exercised, Finding, Violated
from fencepost.judging.tables.rows import OperationRow
from fencepost.judging.verdicts import AT_END, Verdict
from fencepost.model.errors import UsageError

FOLDER = "columns"
EVENTS = "events"
"""The table of events (`EventTable`)."""
OPERATIONS = "operations"
"""The table of clients' operations (`OperationRow`)."""
FINDINGS, VERDICTS = "findings", "verdicts"
TABLES = (EVENTS, OPERATIONS, FINDINGS, VERDICTS)
ROWS = 20_000
"""How many events are one row group."""
_COMPRESSION = "zstd"
_GROWING = ("position", "at_ns", "node_seq", "seq", "cause_seq", "began_ns", "ended_ns")
"""Columns of numbers that grow: their differences take little space, and little time to read."""
_BLOCK = 1 << 20
_NAME = ("process", "node_seq")
_POSITION = ENVELOPE.get_field_index("position")
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
        self._rows: dict[str, list[Struct]] = {name: [] for name in TABLES if name != EVENTS}
        self._files: dict[str, parquet.ParquetWriter] = {}

    def __enter__(self) -> Self:
        _remove(self._path)
        self._path.mkdir()
        for name, schema in _schemas(self._table).items():
            self._files[name] = _writer(self._path / f"{name}.parquet", schema)
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
            self._position += 1
            self._events.append((self._position, event))
            if len(self._events) >= ROWS:
                self._flush()
            yield event

    def operation(self, row: OperationRow) -> None:
        """Takes an operation of a client."""
        self._rows[OPERATIONS].append(row)

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

    def close(self, verdicts: Mapping[str, Verdict]) -> Mapping[str, str]:
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
        self._flush()
        for file in self._files.values():
            file.close()
        _remove(self._final)
        self._path.rename(self._final)
        return {name: _digest(self._final.parent, name) for name in self._files}

    def _flush(self) -> None:
        if self._events:
            self._write(EVENTS, self._table.batch(self._run, self._events))
            self._events.clear()
        for name, rows in self._rows.items():
            if rows:
                schema = self._files[name].schema
                values = zip(*map(msgspec.structs.astuple, rows), strict=True)
                arrays = [pa.array(v, f.type) for v, f in zip(values, schema, strict=True)]
                self._write(name, pa.RecordBatch.from_arrays(arrays, schema=schema))
                rows.clear()

    def _write(self, name: str, rows: pa.RecordBatch) -> None:
        """Writes rows of a table as one row group."""
        self._files[name].write_batch(rows, row_group_size=rows.num_rows)


def _writer(path: Path, schema: pa.Schema) -> parquet.ParquetWriter:
    growing = {name: "DELTA_BINARY_PACKED" for name in schema.names if name in _GROWING}
    return parquet.ParquetWriter(
        path,
        schema,
        compression=_COMPRESSION,
        use_dictionary=[name for name in schema.names if name not in growing],
        column_encoding=growing,
    )


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

    def events(
        self, kinds: Collection[str], refs: Collection[tuple[str, int]] = ()
    ) -> Iterator[tuple[int, Event]]:
        """The events of some kinds, and those with some names, each with its position, in order.

        The first event is always among them, since times are counted from it.
        """
        names = pa.array(sorted(kinds), pa.string())

        def chosen(group: pa.Table) -> pa.Array:
            listed = compute.is_in(group["kind"], names)
            rows = compute.indices_nonzero(compute.or_(listed, compute.equal(group["position"], 0)))
            if not refs:
                return rows
            return pa.array(sorted({*rows.to_pylist(), *_named(group, refs)}), pa.int64())

        return self._chosen((*_NAME, "position", "kind"), chosen, lambda least, most: True)

    def at(self, positions: Collection[int]) -> Iterator[tuple[int, Event]]:
        """The events at these positions, in order."""
        wanted = sorted(positions)
        sought = pa.array(wanted, pa.int64())

        def has_some(least: int, most: int) -> bool:
            return bisect_left(wanted, least) < bisect_right(wanted, most)

        return self._chosen(
            ("position", "kind"),
            lambda group: compute.indices_nonzero(compute.is_in(group["position"], sought)),
            has_some,
        )

    def _chosen(
        self,
        by: Sequence[str],
        choose: Callable[[pa.Table], pa.Array],
        has_some: Callable[[int, int], bool],
    ) -> Iterator[tuple[int, Event]]:
        """The events that are chosen by some columns, in order: only row groups, and columns, of
        chosen events are read. A row group may have some by its least and greatest position."""
        with self._opened(EVENTS, _WORDS) as found:
            for number in range(found.num_row_groups):
                column = found.metadata.row_group(number).column(_POSITION)
                if not has_some(column.statistics.min, column.statistics.max):
                    continue
                some = _group(found, number, by)
                places = choose(some)
                if len(places) == 0:
                    continue
                kinds = some["kind"].take(places).unique().to_pylist()
                whole = _group(found, number, self._table.columns_of(kinds)).take(places)
                yield from self._table.events(whole.cast(_without_dictionaries(whole.schema)))

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
