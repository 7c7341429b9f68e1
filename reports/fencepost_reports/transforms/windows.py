"""When faults were on."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f


def fault_windows(events: DataFrame, runs: DataFrame) -> DataFrame:
    """One row a fault: from when applying it began until it was healed, or the run's end.

    `receipt` is whether striking was measured, `healed` whether it was undone at all, and
    `heal_receipt` whether that was measured too.
    """
    struck = events.where(f.col("kind") == "fault.injected").select(
        "run",
        "fault_id",
        "fault",
        "targets",
        "receipt",
        "evidence",
        f.when(f.col("began_at_ns") > 0, f.col("began_at_ns"))
        .otherwise(f.col("at_ns"))
        .alias("from_ns"),
    )
    healed = (
        events.where(f.col("kind") == "fault.healed")
        .groupBy("run", "fault_id")
        .agg(f.max("at_ns").alias("healed_ns"), f.bool_or("receipt").alias("heal_receipt"))
    )
    return (
        struck.join(healed, ["run", "fault_id"], "left")
        .join(f.broadcast(runs.select("run", "run_ended_ns")), "run")
        .select(
            *struck.columns,
            f.coalesce("healed_ns", "run_ended_ns").alias("to_ns"),
            f.col("healed_ns").isNotNull().alias("healed"),
            f.coalesce("heal_receipt", f.lit(False)).alias("heal_receipt"),
        )
    )
