"""Run folders as rows, read by the workers: one task reads one folder, as the local judge does.

A folder is read through `fencepost.reporting.read`, not by Spark's own JSON reader: so a history
is merged if it was not, a line cut short ends it, kinds nobody declared are kept, and what is
missing is named in the same words as everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, final

import msgspec
import pyarrow as pa
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from fencepost import Codec, Event, FaultInjected, no_such
from fencepost.reporting import RunFolder, Verdict, read, read_verdicts
from fencepost_reports.schema import EventTable, arrow_schema

T = TypeVar("T")
BATCH = 5_000
_TEXTS = ArrayType(StringType(), False)

_EXPLANATION = StructType(
    [
        StructField("process", StringType(), False),
        StructField("node_seq", LongType(), False),
        StructField("lines", _TEXTS, False),
    ]
)
RUNS = StructType(
    [
        StructField("run", StringType(), False),
        StructField("path", StringType(), False),
        StructField("system", StringType(), False),
        StructField("plane", StringType(), False),
        StructField("runtime", StringType(), False),
        StructField("seed", LongType(), False),
        StructField(
            "counts",
            ArrayType(
                StructType(
                    [
                        StructField("name", StringType(), False),
                        StructField("count", LongType(), False),
                    ]
                ),
                False,
            ),
            False,
        ),
        StructField("defects", _TEXTS, False),
        StructField("started_at", StringType(), False),
        StructField(
            "slots",
            ArrayType(
                StructType(
                    [
                        StructField("name", StringType(), False),
                        StructField("role", StringType(), False),
                        StructField("node_id", LongType(), False),
                    ]
                ),
                False,
            ),
            False,
        ),
        StructField(
            "recorded",
            ArrayType(
                StructType(
                    [
                        StructField("clause", StringType(), False),
                        StructField("verdict", StringType(), False),
                        StructField("known", _TEXTS, False),
                        StructField("explanations", ArrayType(_EXPLANATION, False), False),
                    ]
                ),
                False,
            ),
            False,
        ),
    ]
)
"""One row a run, of what its run.json says; `recorded` are the verdicts its folder holds, with the
ids of known findings and the chains of events that led to their violations."""

ENDS = StructType(
    [
        StructField("run", StringType(), False),
        StructField("events", LongType(), False),
        StructField("run_began_ns", LongType(), False),
        StructField("run_ended_ns", LongType(), False),
        StructField("complete", BooleanType(), False),
        StructField("damage", _TEXTS, False),
        StructField("missed", _TEXTS, False),
        StructField("run_end", StringType(), False),
    ]
)
"""One row a run, of what reading its history found; `run_end` is its `RunEnd` as JSON."""


@final
@dataclass(frozen=True, slots=True)
class RunSource:
    """A run to be read: the label it has in the tables, and its folder."""

    label: str
    folder: RunFolder


def sources(paths: Sequence[Path]) -> tuple[RunSource, ...]:
    """Each folder once, labelled by its name; two of one name by their parents' names too."""
    unique = sorted({path.absolute() for path in paths})
    names = [path.name for path in unique]
    return tuple(
        RunSource(
            path.name if names.count(path.name) == 1 else f"{path.parent.name}/{path.name}",
            RunFolder(path),
        )
        for path in unique
    )


def runs(session: SparkSession, rows: Sequence[Mapping[str, object]]) -> DataFrame:
    """The runs of which `described` made these rows, one partition each."""
    return session.createDataFrame(list(rows), RUNS).repartition(max(1, len(rows)), "run")


def described(source: RunSource, planes: Mapping[str, str]) -> dict[str, object]:
    """A row of `RUNS`; `planes` maps the name of each known system to its plane.

    Raises UsageError when the source is no run folder, or of a system nobody knows.
    """
    info = source.folder.info()
    family = info.system.partition("@")[0]  # a version is of its system's plane
    if family not in planes:
        raise no_such("system", info.system, planes)
    path = source.folder.path / "verdicts.json"
    recorded = read_verdicts(path) if path.exists() else {}
    return {
        "run": source.label,
        "path": str(source.folder.path),
        "system": info.system,
        "plane": planes[family],
        "runtime": info.runtime,
        "seed": info.seed,
        "counts": [{"name": name, "count": n} for name, n in info.counts.items() if n],
        "defects": list(info.defects),
        "started_at": info.started_at,
        "slots": [{"name": s.name, "role": s.role, "node_id": s.node_id} for s in info.slots],
        "recorded": [_recorded(clause, verdict) for clause, verdict in recorded.items()],
    }


def _recorded(clause: str, verdict: Verdict) -> dict[str, object]:
    explanations = [
        {"process": v.at.process, "node_seq": v.at.seq, "lines": list(v.explanation)}
        for v in verdict.violations
        if v.explanation
    ]
    return {
        "clause": clause,
        "verdict": str(verdict.verdict),
        "known": list(verdict.known),
        "explanations": explanations,
    }


def events(of: DataFrame, kinds: tuple[type[Struct], ...]) -> DataFrame:
    """Every whole event of the runs, as rows of `EventTable`."""
    table = EventTable.of(kinds)
    columns = arrow_schema(table.struct)

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for run, history in histories(batches, kinds):
            flat = (table.row(run, position, event) for position, event in enumerate(history))
            yield from batched(flat, columns)

    return of.select("run", "path").mapInArrow(rows, table.struct)


def ends(of: DataFrame, kinds: tuple[type[Struct], ...]) -> DataFrame:
    """How each run ended, and what its history lacks."""
    columns = arrow_schema(ENDS)

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for run, history in histories(batches, kinds):
            yield from batched([_end(run, history)], columns)

    return of.select("run", "path").mapInArrow(rows, ENDS)


def _end(run: str, history: Iterable[Event]) -> dict[str, object]:
    count, began = 0, 0
    missed: list[str] = []
    for event in history:
        began = event.at_ns if count == 0 else min(began, event.at_ns)
        count += 1
        body = event.body
        if isinstance(body, FaultInjected) and not body.receipt:
            missed.append(f"{body.fault} ({body.fault_id})")
    end = history.end  # type: ignore[attr-defined]
    return {
        "run": run,
        "events": count,
        "run_began_ns": began,
        "run_ended_ns": end.ended_at_ns,
        "complete": end.complete,
        "damage": list(end.damage),
        "missed": missed,
        "run_end": msgspec.json.encode(end).decode(),
    }


def histories(
    batches: Iterable[pa.RecordBatch], kinds: tuple[type[Struct], ...]
) -> Iterator[tuple[str, Iterable[Event]]]:
    """The label and the history of each run among rows with `run` and `path`."""
    for batch in batches:
        for row in batch.to_pylist():
            yield row["run"], read(RunFolder(Path(row["path"])), Codec(kinds))


def batched(rows: Iterable[Mapping[str, Any]], columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows in batches; a column that a row lacks is null."""
    remaining = iter(rows)
    while some := list(islice(remaining, BATCH)):
        yield pa.RecordBatch.from_pylist(some, columns)
