"""The columnar part of a judged run: its events, findings, operations and verdicts as Parquet.

It is written in the pass that judges the run, one row group after the other, so memory does not
grow with the run. `judged.json` has the digest of each file, beside the digest of the history and
the fingerprint of the rules. A file with another digest is not read.

Only this module of the framework needs pyarrow, which a plain installation does not have. Without
it no columns are written, and a report reads the history itself.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, final

import msgspec
import pyarrow as pa
from msgspec import Struct
from pyarrow import compute, parquet

from fencepost.events import Event
from fencepost.events.traits import tells_operations
from fencepost.history.columns import schema_of
from fencepost.history.event_table import EventTable
from fencepost.history.files import MOST_EVENTS_BYTES, opened
from fencepost.judging.judge import AT_END, Verdict
from fencepost.judging.rules import Exercised, Finding, Violated
from fencepost.model.errors import UsageError

FOLDER = "columns"
EVENTS, FINDINGS, OPERATIONS, VERDICTS = "events", "findings", "operations", "verdicts"
TABLES = (EVENTS, FINDINGS, OPERATIONS, VERDICTS)
ROWS = 20_000
"""How many events are one row group."""
_COMPRESSION = "zstd"
_BLOCK = 1 << 20
_ENVELOPE = ("process", "position", "at_ns", "kind")

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


class OperationRow(Struct, frozen=True, kw_only=True):
    """An operation of a client, at its end, or at the run's if it had none (`outcome` is empty).

    `position` is that of its last event.
    """

    position: int
    process: str
    name: str
    what: str
    subject: str
    outcome: str
    error: str
    began_ns: int
    ended_ns: int


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
        self._rows: dict[str, list[Struct]] = {FINDINGS: [], OPERATIONS: [], VERDICTS: []}
        self._invoked: dict[str, OperationRow] = {}
        self._files: dict[str, parquet.ParquetWriter] = {}

    def __enter__(self) -> Self:
        _remove(self._path)
        self._path.mkdir()
        schemas = {
            EVENTS: self._table.schema,
            FINDINGS: schema_of(FindingRow),
            OPERATIONS: schema_of(OperationRow),
            VERDICTS: schema_of(ClauseRow),
        }
        for name, schema in schemas.items():
            self._files[name] = parquet.ParquetWriter(
                self._path / f"{name}.parquet", schema, compression=_COMPRESSION
            )
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
        self._events.append((self._position, event))
        if tells_operations(event.body):
            self._operations(event)
        if len(self._events) >= ROWS:
            self._flush()

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
        self._rows[OPERATIONS] += (
            msgspec.structs.replace(one, ended_ns=ended_ns) for one in self._invoked.values()
        )
        self._flush()
        for file in self._files.values():
            file.close()
        _remove(self._final)
        self._path.rename(self._final)
        return {name: _digest(self._final.parent, name) for name in self._files}

    def _operations(self, event: Event) -> None:
        assert tells_operations(event.body)
        for one in event.body.client_operations():
            row = OperationRow(
                position=self._position,
                process=event.process,
                name=one.name,
                what=one.what,
                subject=one.subject,
                outcome=str(one.outcome or ""),
                error=one.error,
                began_ns=event.at_ns,
                ended_ns=event.at_ns,
            )
            if one.outcome is None:
                self._invoked[one.name] = row
                continue
            invoked = self._invoked.pop(one.name, None) if one.name else None
            if invoked is not None:
                row = msgspec.structs.replace(row, began_ns=invoked.began_ns)
            self._rows[OPERATIONS].append(row)

    def _flush(self) -> None:
        if self._events:
            self._files[EVENTS].write_batch(self._table.batch(self._run, self._events))
            self._events.clear()
        for name, rows in self._rows.items():
            if rows:
                schema = self._files[name].schema
                values = zip(*map(msgspec.structs.astuple, rows), strict=True)
                arrays = [pa.array(v, f.type) for v, f in zip(values, schema, strict=True)]
                self._files[name].write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
                rows.clear()


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
    """The columnar part of a run folder, whose digests `judged.json` has confirmed."""

    def __init__(self, folder: Path, table: EventTable) -> None:
        self._folder = folder / FOLDER
        self._table = table

    def path(self, name: str) -> Path:
        """The Parquet file of a table: `events`, `findings`, `operations` or `verdicts`."""
        return self._folder / f"{name}.parquet"

    def events(
        self, kinds: Collection[str], refs: Collection[tuple[str, int]] = ()
    ) -> Iterator[tuple[int, Event]]:
        """The events of some kinds, and those with some names, each with its position, in order.

        The first event is always among them, since times are counted from it.
        """
        needed = set(kinds)
        for group in self._groups(("process", "node_seq", "position", "kind")):
            needed.update(group.filter(_chosen(group, (), refs))["kind"].to_pylist())
        for group in self._groups(self._table.columns_of(needed)):
            yield from self._table.events(group.filter(_chosen(group, kinds, refs)))

    def other_than(self, kinds: Collection[str]) -> Iterator[pa.Table]:
        """The columns of the envelope of all events that `events` leaves out, in order."""
        for group in self._groups(_ENVELOPE):
            yield group.filter(compute.invert(_chosen(group, kinds, ())))

    def _groups(self, columns: Collection[str] | None) -> Iterator[pa.Table]:
        with (
            opened(self._folder.parent, self.path(EVENTS), MOST_EVENTS_BYTES) as file,
            parquet.ParquetFile(file) as found,
        ):
            wanted = None if columns is None else list(columns)
            for number in range(found.num_row_groups):
                # Threads of pyarrow would not survive a fork.
                yield found.read_row_group(number, columns=wanted, use_threads=False)


def _chosen(
    group: pa.Table, kinds: Collection[str], refs: Collection[Ref]
) -> pa.Array | pa.ChunkedArray:
    """Which rows are of these kinds, have one of these names, or are the first of all."""
    listed = compute.is_in(group["kind"], pa.array(sorted(kinds), pa.string()))
    chosen = compute.or_(listed, compute.equal(group["position"], 0))
    if not refs:
        return chosen
    processes = pa.array(sorted({process for process, _ in refs}), pa.string())
    near = compute.is_in(group["process"], processes).to_pylist()
    names = zip(group["process"].to_pylist(), group["node_seq"].to_pylist(), strict=True)
    named = [maybe and name in refs for maybe, name in zip(near, names, strict=True)]
    return compute.or_(chosen, pa.array(named, pa.bool_()))


def confirmed(
    folder: Path, digests: Mapping[str, str], kinds: Sequence[type[Struct]]
) -> Columns | None:
    """The columnar part of a run folder, if each of its files has the recorded digest."""
    try:
        for name in TABLES:
            if _digest(folder, name) != digests.get(name):
                return None
    except (FileNotFoundError, UsageError):
        return None
    return Columns(folder, EventTable.of(kinds))
