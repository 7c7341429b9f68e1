"""What goes before the violations of each clause, over all runs that decided it.

A run decides a clause if it holds or is violated there; the windows of all others say nothing of
it. Each run has counted its own windows (`ExposureRow`); here they are only added up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from fencepost.reporting import Outcome
from fencepost_reports.making import read_row
from fencepost_reports.many_runs.job import spread

ANY = "any"
_DECIDED = (Outcome.HOLDS, Outcome.VIOLATED)
_KEYS = [
    pa.field(name, pa.string(), nullable=False) for name in ("clause", "sort", "name", "other")
]
_COUNTS = [pa.field(name, pa.int64(), nullable=False) for name in ("occurred", "both")]
_COUNTED = pa.schema(_KEYS + _COUNTS)
_CORRELATED = pa.schema(
    _KEYS + _COUNTS + [pa.field(n, pa.int64()) for n in ("windows", "failed", "runs", "runs_with")]
)
"""The columns of `clause_correlation`."""


def correlated(session: SparkSession, rows: Sequence[str], violated: Collection[str]) -> pa.Table:
    """What went before the violations of these clauses in the runs whose rows are at these places;
    without a violation there is nothing to ask Spark."""
    if not violated:
        return _CORRELATED.empty_table()
    return clause_correlation(counted(session, rows, violated)).toArrow()


def counted(session: SparkSession, rows: Sequence[str], clauses: Collection[str]) -> DataFrame:
    """For each run that decided one of the clauses, its exposures; tasks read them from the rows at
    these places."""
    wanted = frozenset(clauses)

    def counts_of(where: str) -> Iterator[pa.RecordBatch]:
        found = read_row(where, "verdicts", "exposures")
        decided = {one["clause"] for one in found["verdicts"] if one["verdict"] in _DECIDED}
        yield pa.RecordBatch.from_pylist(
            [
                {
                    "clause": clause,
                    "sort": row["sort"],
                    "name": row["name"],
                    "other": row["other"],
                    "occurred": row["occurred"],
                    "both": sum(n["count"] for n in row["followed"] if n["name"] == clause),
                }
                for clause in sorted(decided & wanted)
                for row in found["exposures"]
            ],
            _COUNTED,
        )

    return spread(session, rows, counts_of, _COUNTED)


def clause_correlation(counts: DataFrame) -> DataFrame:
    """For each clause, and each thing that went before: in how many windows it `occurred`, and in
    how many of these the clause was violated afterwards (`both`).

    `windows` are those of all runs that decided the clause, `failed` those of them in which it was
    violated, `runs` the number of these runs, and `runs_with` how many of them it occurred in.
    """
    of_clause = Window.partitionBy("clause")
    keys = ["clause", "sort", "name", "other"]
    added = counts.groupBy(*keys).agg(
        f.sum("occurred").alias("occurred"), f.sum("both").alias("both"), f.count("*").alias("runs")
    )
    any_window = f.col("sort") == ANY

    def of_any(column: str) -> Column:
        return f.max(f.when(any_window, f.col(column))).over(of_clause)

    totals = added.select(
        *keys,
        "occurred",
        "both",
        of_any("occurred").alias("windows"),
        of_any("both").alias("failed"),
        of_any("runs").alias("runs"),
        f.col("runs").alias("runs_with"),
    )
    return totals.where(~any_window & (f.col("failed") > 0)).orderBy(*keys)
