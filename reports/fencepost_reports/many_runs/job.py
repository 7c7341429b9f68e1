"""The Spark job: reads run folders, and writes one row per run and a table over all runs.

A task reads one run and makes its `RunTables`, which are one row: each table of the run is a column
of it. `tables/runs.parquet` holds these rows, and `tables/correlation.parquet` the correlates of
failure over all runs. `table` gives one table of all runs as a DataFrame.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from fencepost import Codec
from fencepost.columns import EventTable, schema_of
from fencepost.reporting import Promises, RunFolder, read
from fencepost_reports.many_runs.correlation import correlation
from fencepost_reports.one_run.run import RunSource, run_tables
from fencepost_reports.one_run.tables import RunTables

BATCH = 5_000
"""How many events are one Arrow batch."""
_SOURCE = "label string, path string"


@final
@dataclass(frozen=True, slots=True)
class Report:
    """The tables that a job wrote: `runs`, one row per run, and `correlation`."""

    runs: DataFrame
    correlation: DataFrame


def run_job(
    session: SparkSession, sources: Sequence[RunSource], promises: Promises, out: str
) -> Report:
    """Reads every run, one task each, and writes the tables below the folder `out`.

    It starts two Spark jobs for any number of runs: one makes the rows of runs, one correlates
    them.
    """
    schema = schema_of(RunTables)

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for source in _sources(batches):
            made = msgspec.to_builtins(run_tables(source, promises))
            yield pa.RecordBatch.from_pylist([made], schema)

    made = _spread(session, sources).mapInArrow(rows, from_arrow_schema(schema))
    runs = _written(session, made, f"{out}/runs.parquet")
    across = correlation(table(runs, "windows"))
    return Report(runs, _written(session, across, f"{out}/correlation.parquet"))


def _written(session: SparkSession, made: DataFrame, path: str) -> DataFrame:
    made.write.mode("overwrite").parquet(path)
    return session.read.parquet(path)


def _spread(session: SparkSession, sources: Sequence[RunSource]) -> DataFrame:
    """The sources, one in each partition, so that no task has two runs while another has none."""
    named = [(source.label, source.path) for source in sources]
    numbered = session.createDataFrame(named, _SOURCE)
    return numbered.repartitionByRange(max(1, len(named)), "path")


def _sources(batches: Iterator[pa.RecordBatch]) -> Iterator[RunSource]:
    for batch in batches:
        for row in batch.to_pylist():
            yield RunSource(row["label"], row["path"])


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

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        codec = Codec(promises.kinds)
        for source in _sources(batches):
            history = enumerate(read(RunFolder(Path(source.path)), codec))
            while some := list(islice(history, BATCH)):
                yield flat.batch(source.label, some)

    return _spread(session, sources).mapInArrow(rows, from_arrow_schema(flat.schema))


def collected(runs: DataFrame) -> Iterator[RunTables]:
    """The rows as values, in the order in which the runs were started, one at a time."""
    in_order = runs.orderBy("about.started_at", "about.run")
    for row in in_order.toLocalIterator():
        yield msgspec.convert(row.asDict(recursive=True), RunTables)
