"""Correlates failures with faults, losses of authority, and pairs of both, over all runs.

A run is cut into windows (`WindowRow`): from each injection to the next one, or to the run's end,
and one from its beginning to the first. So each moment is in one window, the after-effects of a
fault count for that fault, and runs without faults count too.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

ANY = ""
SORTS = ("violation", "operation")
"""The sorts of failure that are counted apart: broken promises, and clients' operations."""


def correlation(cut: DataFrame) -> DataFrame:
    """For each sort of failure, and each fault, type of loss of authority, and pair of them:

    `windows` n, in how many of them it occurred (`occurred`), in how many there was such a failure
    (`failed`), in how many both (`both`); `support` = both / n, `confidence` = both / occurred,
    `lift` = confidence / (failed / n). A `fault` or `type` that is null stands for any.
    """
    both = [f.count_if(_has(sort)).alias(f"both_{sort}") for sort in SORTS]
    failed = [f.count_if(_has(sort)).alias(f"failed_{sort}") for sort in SORTS]
    counted = (
        cut.select("failed", f.explode(_antecedents()).alias("antecedent"))
        .groupBy("antecedent.fault", "antecedent.type")
        .agg(f.count("*").alias("occurred"), *both)
        .crossJoin(f.broadcast(cut.agg(f.count("*").alias("windows"), *failed)))
    )
    sorts = f.array(
        *(
            f.struct(
                f.lit(sort).alias("what"),
                f.col(f"failed_{sort}").alias("failed"),
                f.col(f"both_{sort}").alias("both"),
            )
            for sort in SORTS
        )
    )
    return _measures(counted.select("fault", "type", "occurred", "windows", f.inline(sorts)))


def _has(sort: str) -> Column:
    return f.array_contains("failed", sort)


def _antecedents() -> Column:
    """The possible correlates of failure in a window: each type, its fault, and pairs of both."""
    fault = f.col("fault")

    def pair(fault: Column, type_: Column) -> Column:
        return f.struct(fault.alias("fault"), type_.alias("type"))

    types = f.transform("types", lambda type_: pair(f.lit(ANY), type_))
    pairs = f.transform("types", lambda type_: pair(fault, type_))
    alone = f.array(pair(fault, f.lit(ANY)))
    return f.when(f.col("fault") == ANY, types).otherwise(f.concat(types, alone, pairs))


def _measures(counted: DataFrame) -> DataFrame:
    confidence = f.col("both") / f.col("occurred")
    return counted.where(f.col("failed") > 0).select(
        "what",
        f.nullif("fault", f.lit(ANY)).alias("fault"),
        f.nullif("type", f.lit(ANY)).alias("type"),
        "windows",
        "occurred",
        "failed",
        "both",
        (f.col("both") / f.col("windows")).alias("support"),
        confidence.alias("confidence"),
        (confidence / (f.col("failed") / f.col("windows"))).alias("lift"),
    )
