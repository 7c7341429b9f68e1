"""What goes with failure, over all runs: faults, changes of authority, and the two together.

A run is cut into windows: from each strike to the next one, or to the run's end, and one from its
beginning to the first strike. So each moment is in one window, what a fault leaves behind counts
for that fault, and runs without faults count too.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

ANY = ""


def strike_windows(windows: DataFrame, runs: DataFrame) -> DataFrame:
    """One row for each window of each run: run, window (its number), from_ns, until_ns, fault."""
    beginnings = runs.select("run", f.col("run_began_ns").alias("from_ns"))
    strikes = windows.groupBy("run", "from_ns").agg(f.array_sort(f.collect_set("fault")).alias("f"))
    cuts = (
        strikes.select("run", "from_ns", f.array_join("f", " + ").alias("fault"))
        .unionByName(beginnings.withColumn("fault", f.lit(None).cast("string")))
        .join(f.broadcast(runs.select("run", "run_ended_ns")), "run")
    )
    in_order = Window.partitionBy("run").orderBy("from_ns", f.col("fault").asc_nulls_first())
    return cuts.select(
        "run",
        f.row_number().over(in_order).alias("window"),
        "from_ns",
        f.lead("from_ns", 1).over(in_order).alias("next_ns"),
        "run_ended_ns",
        "fault",
    ).select(
        "run",
        "window",
        "from_ns",
        f.coalesce("next_ns", f.col("run_ended_ns") + 1).alias("until_ns"),
        "fault",
    )


def correlation(
    windows: DataFrame, authority: DataFrame, failed: DataFrame, runs: DataFrame
) -> DataFrame:
    """For each sort of failure, and each fault, type of authority event, and pair of them:

    `windows` n, in how many of them it occurred (`occurred`), in how many there was such a failure
    (`failed`), in how many both (`both`); `support` = both / n, `confidence` = both / occurred,
    `lift` = confidence / (failed / n). A `fault` or `type` that is null stands for any.
    """
    cut = strike_windows(windows, runs)
    n = cut.agg(f.count("*").alias("windows"))
    types = _within(cut, authority).select("run", "window", "fault", "type").distinct()
    faulty = cut.where(f.col("fault").isNotNull())
    antecedents = reduce(
        DataFrame.unionByName,
        (
            types.select("run", "window", f.lit(ANY).alias("fault"), "type"),
            faulty.select("run", "window", "fault", f.lit(ANY).alias("type")),
            types.where(f.col("fault").isNotNull()),
        ),
    )
    hit = _within(cut, failed).select("run", "window", "what").distinct()
    sorts = hit.groupBy("what").agg(f.count("*").alias("failed"))
    occurred = antecedents.groupBy("fault", "type").agg(f.count("*").alias("occurred"))
    both = (
        antecedents.join(hit, ["run", "window"])
        .groupBy("fault", "type", "what")
        .agg(f.count("*").alias("both"))
    )
    return _measures(
        occurred.crossJoin(f.broadcast(sorts))
        .join(both, ["fault", "type", "what"], "left")
        .crossJoin(f.broadcast(n))
    )


def _within(cut: DataFrame, events: DataFrame) -> DataFrame:
    """The events with the window they are in."""
    inside = (
        (f.col("c.run") == f.col("e.run"))
        & (f.col("e.at_ns") >= f.col("c.from_ns"))
        & (f.col("e.at_ns") < f.col("c.until_ns"))
    )
    return (
        events.alias("e")
        .join(f.broadcast(cut).alias("c"), inside)
        .select("e.*", "c.window", "c.fault")
    )


def _measures(counted: DataFrame) -> DataFrame:
    both = f.coalesce("both", f.lit(0))
    confidence = both / f.col("occurred")
    return counted.select(
        "what",
        f.nullif("fault", f.lit(ANY)).alias("fault"),
        f.nullif("type", f.lit(ANY)).alias("type"),
        "windows",
        "occurred",
        "failed",
        both.alias("both"),
        (both / f.col("windows")).alias("support"),
        confidence.alias("confidence"),
        (confidence / (f.col("failed") / f.col("windows"))).alias("lift"),
    )
