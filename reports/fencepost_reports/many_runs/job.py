"""The Spark job: a task makes the row of each run, and Spark correlates the rows.

A task is `making.attempt`. It reads and writes files itself, so no run passes through the driver or
a shuffle; to the driver it returns the summary of its run. `table` gives one table of all runs as a
DataFrame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

import msgspec
import pyarrow as pa
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from fencepost import Codec
from fencepost.columns import EventTable, schema_of
from fencepost.reporting import Promises, read
from fencepost_reports import places
from fencepost_reports.making import RUNS, Report, attempt, read_row, stamp_of
from fencepost_reports.one_run.run import RunSource
from fencepost_reports.one_run.tables import RunSummary, RunTables, WindowRow

Source = TypeVar("Source")
BATCH = 5_000
"""How many events are one Arrow batch."""
ROWS = 100
"""The rows of how many runs one task reads."""
_WINDOWS = schema_of(WindowRow)
_RESULT = pa.schema([pa.field("made", pa.binary(), nullable=False)])


def run_job(
    session: SparkSession, sources: Sequence[RunSource], report: Report
) -> Sequence[RunSummary]:
    """Makes the rows and pages of the runs, a task each, in one Spark job; their summaries, in
    order."""
    frame = spread(
        session, sources, lambda source: iter([_batch(attempt(report, source))]), _RESULT, each=1
    )
    return _summaries(frame)


def _summaries(frame: DataFrame) -> Sequence[RunSummary]:
    return [msgspec.json.decode(bytes(row.made), type=RunSummary) for row in frame.collect()]


def _batch(made: Struct) -> pa.RecordBatch:
    found = pa.array([msgspec.json.encode(made)], pa.binary())
    return pa.RecordBatch.from_arrays([found], schema=_RESULT)


def written(session: SparkSession, rows: Sequence[str], maker: str) -> Sequence[RunSummary]:
    """The summaries of the rows at these places that this code has made; those of other code, and
    damaged ones, are left out."""

    def summary_of(where: str) -> Iterator[pa.RecordBatch]:
        stamp = stamp_of(where)
        if maker and stamp is not None and stamp.maker == maker:
            yield _batch(stamp.summary)

    return _summaries(spread(session, rows, summary_of, _RESULT))


def windows(session: SparkSession, rows: Sequence[str]) -> DataFrame:
    """The windows of the runs whose rows are at these places; tasks read them, as they wrote
    them."""

    def windows_of(where: str) -> Iterator[pa.RecordBatch]:
        found = read_row(where, "windows")["windows"]
        yield pa.RecordBatch.from_pylist(found, _WINDOWS)

    return spread(session, rows, windows_of, _WINDOWS)


def spread(
    session: SparkSession,
    of: Sequence[Source],
    read_one: Callable[[Source], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
    each: int = ROWS,
) -> DataFrame:
    """What `read_one` makes of each source, with so many sources in `each` task."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                yield from read_one(of[number])

    numbered = session.range(0, len(of), 1, max(1, -(-len(of) // each)))
    return numbered.mapInArrow(rows, from_arrow_schema(schema))


def runs(session: SparkSession, out: str) -> DataFrame:
    """The rows of all runs that were ever reported to `out`, each a `RunTables`."""
    reader = session.read.schema(from_arrow_schema(schema_of(RunTables)))
    return reader.parquet(f"{out}/{RUNS}")


def table(runs: DataFrame, name: str) -> DataFrame:
    """One table of all runs, such as `failures`: the fields of its rows, and the `run` of each.

    `runs` are rows of `RunTables`; `name` is one of its fields, or `about` for one row a run.
    """
    if name == "about":
        return runs.select("about.*")
    return runs.select(f.col("about.run").alias("run"), f.inline(name))


def events(session: SparkSession, sources: Sequence[RunSource], promises: Promises) -> DataFrame:
    """Every event of the runs as rows of `EventTable`. They are read on demand and never
    written."""
    flat = EventTable.of(promises.kinds)

    def rows(source: RunSource) -> Iterator[pa.RecordBatch]:
        with places.run_folder(source.where) as folder:
            history = enumerate(read(folder, Codec(promises.kinds)))
            while some := list(islice(history, BATCH)):
                yield flat.batch(source.run, some)

    return spread(session, sources, rows, flat.schema, each=1)
