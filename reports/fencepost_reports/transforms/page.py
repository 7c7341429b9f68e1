"""How much of the tables a page shows: the first of many, alike ones together."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

_ALIKE = (
    "run",
    "process",
    "outcome",
    "says",
    "topic",
    "partition",
    "explained_by",
    "explained_type",
    "how",
    "fault_ids",
)


def first_violations(failed: DataFrame, most: int) -> DataFrame:
    """The first violations of each clause in each run; `total` says how many there are."""
    each = Window.partitionBy("run", "clause")
    return (
        failed.where(f.col("what") == "violation")
        .withColumns(
            {
                "nth": f.row_number().over(each.orderBy("position", "id")),
                "total": f.count("*").over(each),
            }
        )
        .where(f.col("nth") <= most)
    )


def client_failures(failed: DataFrame, most: int) -> DataFrame:
    """Failed and unknown operations, alike ones counted together; the largest groups of a run."""
    groups = (
        failed.where(f.col("what") == "client")
        .groupBy(*_ALIKE)
        .agg(
            f.count("*").alias("count"),
            f.min("began_ns").alias("from_ns"),
            f.max("at_ns").alias("to_ns"),
        )
    )
    largest = Window.partitionBy("run").orderBy(f.desc("count"), "from_ns")
    return groups.withColumns(
        {
            "nth": f.row_number().over(largest),
            "groups": f.count("*").over(Window.partitionBy("run")),
        }
    ).where(f.col("nth") <= most)


def most_telling(shown: DataFrame, authority: DataFrame, failed: DataFrame, most: int) -> DataFrame:
    """The events of each run to be drawn by themselves; `total` says how many there are.

    Those that explain a failure come first, then changes of authority, then the rest in order.
    """
    explaining = (
        failed.select("run", f.col("explained_by").alias("position"))
        .where(f.col("position").isNotNull())
        .distinct()
        .withColumn("rank", f.lit(0))
    )
    changing = authority.select("run", "position").distinct().withColumn("rank", f.lit(1))
    ranks = (
        explaining.unionByName(changing).groupBy("run", "position").agg(f.min("rank").alias("rank"))
    )
    each = Window.partitionBy("run")
    return (
        shown.join(ranks, ["run", "position"], "left")
        .withColumns(
            {
                "nth": f.row_number().over(each.orderBy(f.coalesce("rank", f.lit(2)), "position")),
                "total": f.count("*").over(each),
            }
        )
        .where(f.col("nth") <= most)
        .drop("rank")
    )
