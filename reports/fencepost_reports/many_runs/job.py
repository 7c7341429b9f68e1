"""The Spark job: a task makes the row of each run, and Spark correlates the rows.

A task is `making.attempt`. It reads and writes files itself, so no run passes through the driver or
a shuffle; to the driver it returns the summary of its run. `table` gives one table of all runs as a
DataFrame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from fencepost import Codec
from fencepost.columns import EventTable, schema_of
from fencepost.reporting import Promises, read
from fencepost_reports import places
from fencepost_reports.making import RUNS, Report, attempt
from fencepost_reports.one_run.run import RunSource
from fencepost_reports.one_run.tables import RunSummary, RunTables

BATCH = 5_000
"""How many events are one Arrow batch."""
_SUMMARY = pa.schema([pa.field("summary", pa.binary(), nullable=False)])


def run_job(
    session: SparkSession, sources: Sequence[RunSource], report: Report
) -> Sequence[RunSummary]:
    """Makes the rows and pages of the runs, a task each, in one Spark job; their summaries, in
    order."""

    def made(source: RunSource) -> Iterator[pa.RecordBatch]:
        summary = msgspec.json.encode(attempt(report, source))
        yield pa.RecordBatch.from_arrays([pa.array([summary], pa.binary())], schema=_SUMMARY)

    rows = _spread(session, sources, made, _SUMMARY).collect()
    return [msgspec.json.decode(bytes(row.summary), type=RunSummary) for row in rows]


def _spread(
    session: SparkSession,
    sources: Sequence[RunSource],
    read_one: Callable[[RunSource], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
) -> DataFrame:
    """What `read_one` makes of each source, a task each, so that no task has two runs while another
    has none."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                yield from read_one(sources[number])

    numbered = session.range(0, len(sources), 1, max(1, len(sources)))
    return numbered.mapInArrow(rows, from_arrow_schema(schema))


def runs(session: SparkSession, out: str, rows: Sequence[str] | None = None) -> DataFrame:
    """The rows of the runs in a report, each a `RunTables`; `rows` are their places below `out`, by
    default those of every run that was ever reported there."""
    paths = [f"{out}/{row}" for row in ((RUNS,) if rows is None else rows)]
    reader = session.read.schema(from_arrow_schema(schema_of(RunTables)))
    return reader.parquet(*paths)


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

    return _spread(session, sources, rows, flat.schema)
