"""What a timeline shows: processes, the states they were in, and how much went on when."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from fencepost_reports.transforms.authority import ENFORCES
from fencepost_reports.transforms.nodes import with_node

BINS = 600
"""Into how many bars a run's length is divided."""
SHOWN = (
    "run.started",
    "run.phase",
    "run.ended",
    "test.started",
    "test.ended",
    "cluster.recovered",
    "fault.injected",
    "fault.healed",
    "process.spawned",
    "process.exited",
    "process.stalled",
    "node.started",
    "node.stopped",
    "node.connection_closed",
    "quorum.election_started",
    "replica.leadership_started",
    "replica.leadership_ended",
    "replica.log_truncated",
    "metadata.truncated",
    "metadata.state_reverted",
    "client.failed",
)
"""Kinds of which every event is shown by itself, beside authority events and failures."""


def processes(events: DataFrame, runs: DataFrame) -> DataFrame:
    """One row a process: its slot, role, and from when to when it is known to have lived."""
    exits = (
        events.where(f.col("kind") == "process.exited")
        .groupBy("run", f.col("ended").alias("process"))
        .agg(f.max("at_ns").alias("exited_ns"), f.max("signal").alias("signal"))
    )
    return (
        with_node(events, runs)
        .groupBy("run", "process", "slot", "slot_role", "slot_node")
        .agg(
            f.min("at_ns").alias("from_ns"),
            f.max("at_ns").alias("last_ns"),
            f.count("*").alias("events"),
        )
        .join(exits, ["run", "process"], "left")
        .withColumn("to_ns", f.greatest("last_ns", "exited_ns"))
        .drop("last_ns")
    )


def spans(events: DataFrame, lived: DataFrame) -> DataFrame:
    """The states of brokers by their own word, and the reigns of active controllers."""
    brokers = events.where(f.col("kind") == "broker.state_changed").select(
        "run",
        "process",
        "at_ns",
        "position",
        f.col("old").alias("before"),
        f.col("new").alias("state"),
        f.col("broker_epoch").alias("span_epoch"),
    )
    reigns = events.where(
        f.col("kind").isin("quorum.controller_elected", "quorum.controller_resigned")
    ).select(
        "run",
        "process",
        "at_ns",
        "position",
        f.lit("follower").alias("before"),
        f.when(f.col("kind") == "quorum.controller_elected", "CONTROLLER")
        .otherwise("follower")
        .alias("state"),
        f.col("epoch").alias("span_epoch"),
    )
    changes = brokers.unionByName(reigns).join(
        lived.select("run", "process", "from_ns", "to_ns"), ["run", "process"]
    )
    in_order = Window.partitionBy("run", "process").orderBy("position")
    after = changes.select(
        "run",
        "process",
        "state",
        "span_epoch",
        f.col("at_ns").alias("from_ns"),
        f.coalesce(f.lead("at_ns").over(in_order), "to_ns").alias("until_ns"),
    )
    first = changes.withColumn("nth", f.row_number().over(in_order)).where("nth = 1")
    before = first.select(
        "run",
        "process",
        f.col("before").alias("state"),
        f.lit(-1).cast("bigint").alias("span_epoch"),
        "from_ns",
        f.col("at_ns").alias("until_ns"),
    )
    return after.unionByName(before).where(
        (f.col("state") != "follower") & (f.col("until_ns") > f.col("from_ns"))
    )


def density(events: DataFrame, runs: DataFrame) -> DataFrame:
    """How many events of each sort a process had in each of `BINS` equal parts of the run.

    Sorts: ok, failed, unknown of a client's operations; refused, what a node turned away; other.
    """
    span = runs.select("run", "run_began_ns", "run_ended_ns")
    length = f.greatest(f.col("run_ended_ns") - f.col("run_began_ns"), f.lit(1))
    bin_ = f.least(
        f.floor((f.col("at_ns") - f.col("run_began_ns")) * BINS / length), f.lit(BINS - 1)
    )
    return (
        events.join(f.broadcast(span), "run")
        .withColumns({"bin": bin_.cast("int"), "sort": _sort()})
        .where(f.col("sort").isNotNull())
        .groupBy("run", "process", "sort", "bin")
        .agg(f.count("*").alias("count"))
    )


def _sort() -> Column:
    kind = f.col("kind")
    done = kind.startswith("client.") & kind.endswith("_completed")
    return (
        f.when(done & f.col("outcome").isin("failed", "unknown"), f.col("outcome"))
        .when(done & f.col("outcome").isin("closed", "timeout"), "unknown")
        .when(done | (kind == "client.polled"), "ok")
        .when(kind.startswith("client."), f.lit(None))
        .when(kind.isin("broker.request_refused", "broker.heartbeat_refused"), "refused")
        .otherwise("other")
    )


def shown(events: DataFrame, authority: DataFrame, failed: DataFrame) -> DataFrame:
    """The events that are shown by themselves, whole: `SHOWN`, authority, violations, reasons."""
    by_place = (
        authority.where(f.col("effect") != ENFORCES)
        .select("run", "process", "node_seq")
        .unionByName(failed.where("what = 'violation'").select("run", "process", "node_seq"))
        .unionByName(
            failed.select("run", f.explode("because").alias("ref")).select(
                "run", f.col("ref.process").alias("process"), f.col("ref.seq").alias("node_seq")
            )
        )
        .distinct()
        .withColumn("wanted", f.lit(True))
    )
    return (
        events.join(by_place, ["run", "process", "node_seq"], "left")
        .where(f.col("wanted") | f.col("kind").isin(*SHOWN))
        .drop("wanted")
    )
