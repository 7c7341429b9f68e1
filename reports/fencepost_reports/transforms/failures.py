"""What went wrong: promises that were broken, and clients' operations that did not succeed.

What a failure concerns, its `keys`, is what its event concerns, and the events it is because of:
partitions, brokers, the controller (`nodes.about`).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from fencepost_reports.transforms.nodes import about, about_partition, with_node

_REFS = "array<struct<process:string,seq:bigint,request:boolean>>"
_READ = (
    "run",
    "position",
    "process",
    "node_seq",
    "at_ns",
    "kind",
    "topic",
    "partition",
    "broker_id",
    "broker",
    "operation",
    "api",
    "outcome",
    "error",
    "sent_at_ns",
)
_COLUMNS = (
    "run",
    "id",
    "what",
    "clause",
    "witness",
    "outcome",
    "says",
    "process",
    "node_seq",
    "position",
    "at_ns",
    "began_ns",
    "topic",
    "partition",
    "because",
    "keys",
)


def failures(events: DataFrame, findings: DataFrame, runs: DataFrame) -> DataFrame:
    """Violations, and failed or unknown client operations; one row each."""
    placed = with_node(events.select(*_READ), runs).withColumn("about", about())
    return _violations(placed, findings, runs).unionByName(_operations(placed))


def _violations(events: DataFrame, findings: DataFrame, runs: DataFrame) -> DataFrame:
    """At the time and place of the event that broke the promise; at the run's end without one."""
    found = findings.where(f.col("finding") == "violated").select(
        "run",
        "clause",
        "witness",
        "at",
        "because",
        f.col("message").alias("says"),
        f.col("at.process").alias("process"),
        f.col("at.seq").alias("node_seq"),
        f.col("position").alias("found_position"),
        f.concat_ws("@", "clause", "at.process", "at.seq").alias("name"),
    )
    same = Window.partitionBy("run", "name").orderBy("found_position", "says")
    number = f.row_number().over(same)
    named = found.withColumn(
        "id", f.when(number == 1, f.col("name")).otherwise(f.concat_ws("/", "name", number))
    )
    ends = f.broadcast(runs.select("run", "events", "run_ended_ns"))
    return (
        named.join(_its_events(named, events), ["run", "id"], "left")
        .join(ends, "run")
        .withColumns(
            {
                "what": f.lit("violation"),
                "outcome": f.lit("violated"),
                "position": f.coalesce("position", f.least("found_position", "events")),
                "at_ns": f.coalesce("at_ns", "run_ended_ns"),
                "began_ns": f.coalesce("at_ns", "run_ended_ns"),
                "keys": f.coalesce("keys", f.array().cast("array<string>")),
            }
        )
        .select(*_COLUMNS)
    )


def _its_events(violations: DataFrame, events: DataFrame) -> DataFrame:
    """When and where a violation's event was, and `keys`: what it and its reasons concern."""
    refs = (
        violations.select(
            "run", "id", "at", f.explode(f.array_append("because", f.col("at"))).alias("ref")
        )
        .where(~f.col("ref.request"))
        .select(
            "run",
            "id",
            "ref.process",
            f.col("ref.seq").alias("node_seq"),
            (f.col("ref") == f.col("at")).alias("itself"),
        )
        .distinct()
    )
    itself = {
        name: f.max(f.when(f.col("itself"), f.col(name))).alias(name)
        for name in ("position", "at_ns", "topic", "partition")
    }
    return (
        refs.join(events, ["run", "process", "node_seq"])
        .groupBy("run", "id")
        .agg(*itself.values(), f.array_distinct(f.flatten(f.collect_list("about"))).alias("keys"))
    )


def _operations(events: DataFrame) -> DataFrame:
    completed = events.where(_failed())
    invoked = events.where(f.col("kind") == "client.produce_invoked").select(
        "run", "operation", f.col("at_ns").alias("invoked_ns")
    )
    return (
        completed.join(invoked, ["run", "operation"], "left")
        .withColumns(
            {
                "id": f.concat_ws("@", "process", "node_seq"),
                "what": f.lit("client"),
                "clause": f.lit(None).cast("string"),
                "witness": f.lit("client"),
                "outcome": _outcome(),
                "says": f.concat_ws(" ", _operation(), f.nullif("error", f.lit(""))),
                "began_ns": f.coalesce("invoked_ns", f.nullif("sent_at_ns", f.lit(0)), "at_ns"),
                "because": f.array().cast(_REFS),
                "keys": f.array_compact(f.array(about_partition())),
            }
        )
        .select(*_COLUMNS)
    )  # fmt: skip


def _operation() -> Column:
    kind, outcome = f.col("kind"), _outcome()
    return (
        f.when(kind == "client.failed", "the client library failed:")
        .when(kind == "client.read_completed", f.concat(f.lit("final reading "), outcome))
        .when(kind == "client.produce_completed", f.concat(f.lit("produce "), outcome))
        .otherwise(f.concat_ws(" ", "api", outcome))
    )


def _outcome() -> Column:
    lost = f.col("outcome").isin("closed", "timeout")
    return (
        f.when(f.col("kind") == "client.failed", "failed")
        .when(lost, "unknown")
        .otherwise(f.col("outcome"))
    )  # fmt: skip


def _failed() -> Column:
    """A probe that was refused did not fail: refusing is what it asks for."""
    kind, outcome = f.col("kind"), f.col("outcome")
    return (
        (kind == "client.failed")
        | (kind.isin("client.produce_completed", "client.admin_completed", "client.read_completed")
           & outcome.isin("failed", "unknown"))
        | ((kind == "client.probe_completed") & outcome.isin("closed", "timeout"))
    )  # fmt: skip
