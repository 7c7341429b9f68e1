"""An example of a notebook that uses a report."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from fencepost_reports.many_runs.job import runs, table


def worst_clauses(spark: SparkSession, report: str) -> DataFrame:
    """How often each clause was violated over all runs of a report, most often first."""
    failed = table(runs(spark, report), "failures").where("what = 'violation'")
    return failed.groupBy("clause").count().orderBy("count", "clause", ascending=[False, True])
