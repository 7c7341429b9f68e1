"""What went wrong, the faults it fell into, and the change of authority that explains it.

A failure is a violated clause, or a client's operation that failed or of which nobody knows. What
explains it is a change of authority that came before it in the history: one that the rule, or the
event's own cause, names; else the latest that concerns the same partition or broker (for a client's
operation also the broker that led its partition then); else the latest of the controller. Time
plays no part in that; it only says which faults were on, since one host's clock stamps them all.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from fencepost_reports.transforms.asof import last_before
from fencepost_reports.transforms.nodes import CONTROLLER, about, about_partition, with_node

NAMED, SAME, QUORUM = 0, 1, 2
_HOW = {
    NAMED: "named by the rule or its cause",
    SAME: "the latest before it of the same partition or broker",
    QUORUM: "the latest before it of the controller",
}
_REFS = "array<struct<process:string,seq:bigint,request:boolean>>"
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
    """Violations and failed or unknown client operations; `keys` are what each concerns."""
    placed = with_node(events, runs).withColumn("about", about())
    return _violations(placed, findings, runs).unionByName(_operations(placed))


def _violations(events: DataFrame, findings: DataFrame, runs: DataFrame) -> DataFrame:
    found = findings.where(f.col("finding") == "violated").select(
        "run",
        "clause",
        "witness",
        "because",
        f.col("saying").alias("says"),
        f.col("at.process").alias("process"),
        f.col("at.seq").alias("node_seq"),
        f.col("at.request").alias("by_request"),
        f.col("position").alias("found_position"),
        f.concat_ws("@", "clause", "at.process", "at.seq").alias("name"),
    )
    same = Window.partitionBy("run", "name").orderBy("found_position", "says")
    number = f.row_number().over(same)
    named = found.withColumn(
        "id", f.when(number == 1, f.col("name")).otherwise(f.concat_ws("/", "name", number))
    )
    at = events.select(
        "run", "process", "node_seq", "position", "at_ns", "topic", "partition", "about"
    ).withColumn("by_request", f.lit(False))
    ends = f.broadcast(runs.select("run", "events", "run_ended_ns"))
    joined = named.join(at, ["run", "process", "node_seq", "by_request"], "left").join(ends, "run")
    position = f.coalesce("position", f.least("found_position", "events"))
    with_times = joined.withColumns(
        {
            "what": f.lit("violation"),
            "outcome": f.lit("violated"),
            "position": position,
            "at_ns": f.coalesce("at_ns", "run_ended_ns"),
            "began_ns": f.coalesce("at_ns", "run_ended_ns"),
        }
    )
    return _with_keys_of_reasons(with_times, events).select(*_COLUMNS)


def _with_keys_of_reasons(violations: DataFrame, events: DataFrame) -> DataFrame:
    """`keys`: what the violation's event concerns, and the events it is because of."""
    reasons = _reasons(violations).join(
        events.select("run", "process", "node_seq", "about"), ["run", "process", "node_seq"]
    )
    theirs = reasons.groupBy("run", "id").agg(
        f.array_distinct(f.flatten(f.collect_list("about"))).alias("theirs")
    )
    nothing = f.array().cast("array<string>")
    return violations.join(theirs, ["run", "id"], "left").withColumn(
        "keys", f.array_union(f.coalesce("about", nothing), f.coalesce("theirs", nothing))
    )


def _reasons(failed: DataFrame) -> DataFrame:
    """The events that a failure is said to be because of: run, id, process, node_seq."""
    return (
        failed.select("run", "id", f.explode("because").alias("ref"))
        .where(~f.col("ref.request"))
        .select("run", "id", "ref.process", f.col("ref.seq").alias("node_seq"))
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


def explained(failed: DataFrame, authority: DataFrame, windows: DataFrame) -> DataFrame:
    """The failures, with `fault_ids` that were on and the change of authority before each.

    `explained_by` is the place of that event in the history (null: there is none), `how` why it is
    that one.
    """
    changes = authority.where("changes")
    candidates = reduce(DataFrame.unionByName, (_named(failed, changes), *_latest(failed, changes)))
    best = candidates.groupBy("run", "id").agg(
        f.min_by("event", f.struct("rank", -f.col("event.position"))).alias("event"),
        f.min("rank").alias("rank"),
    )
    how = reduce(
        lambda so_far, rank: so_far.when(f.col("rank") == rank, _HOW[rank]),
        _HOW,
        f.when(f.lit(False), ""),
    )
    return (
        failed.join(best, ["run", "id"], "left")
        .join(_faults(failed, windows), ["run", "id"], "left")
        .select(
            *_COLUMNS,
            f.coalesce("fault_ids", f.array().cast("array<string>")).alias("fault_ids"),
            f.col("event.position").alias("explained_by"),
            f.col("event.type").alias("explained_type"),
            f.col("event.at_ns").alias("explained_at_ns"),
            how.alias("how"),
        )
    )


_EVENT = ("position", "at_ns", "type", "process", "node_seq", "leader")


def _named(failed: DataFrame, changes: DataFrame) -> DataFrame:
    event = f.struct(*(f.col(f"c.{name}").alias(name) for name in _EVENT)).alias("event")
    mine = failed.select("run", "id", f.col("position").alias("mine"))
    refs = _reasons(failed).join(mine, ["run", "id"])
    return (
        refs.alias("r")
        .join(changes.alias("c"), _same("run", "process", "node_seq"))
        .where(f.col("c.position") <= f.col("r.mine"))
        .select("r.run", "r.id", f.lit(NAMED).alias("rank"), event)
    )


def _same(*names: str) -> Column:
    return reduce(
        Column.__and__, (f.col(f"r.{name}") == f.col(f"c.{name}") for name in names)
    )  # fmt: skip


def _latest(failed: DataFrame, changes: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The latest change at each of the failure's keys; and at its partition's leader's."""
    keys = f.array_compact(
        f.array(
            about_partition(),
            f.when(f.col("broker").isNotNull(), f.concat(f.lit("broker "), "broker")),
            f.when(f.col("type").isin("new controller", "controller resigned"), CONTROLLER),
        )
    )
    known = changes.select("run", f.explode(keys).alias("key"), *_EVENT)
    asked = failed.select("run", "id", "position", f.explode("keys").alias("key"))
    rank = f.when(f.col("key") == CONTROLLER, QUORUM).otherwise(SAME)
    here = last_before(asked, known)
    clients = failed.where(f.col("what") == "client")
    of_partition = clients.select("run", "id", "position", about_partition().alias("key"))
    led = (
        last_before(of_partition, known.where(f.col("leader") >= 0))
        .join(failed.select("run", "id", "position"), ["run", "id"])
        .select("run", "id", "position", f.concat(f.lit("broker "), "last.leader").alias("key"))
    )  # fmt: skip
    chosen = ("run", "id", rank.alias("rank"), f.col("last").alias("event"))
    return here.select(*chosen), last_before(led, known).select(*chosen)


def _faults(failed: DataFrame, windows: DataFrame) -> DataFrame:
    on = (
        (f.col("w.run") == f.col("x.run"))
        & (f.col("w.from_ns") <= f.col("x.at_ns"))
        & (f.col("w.to_ns") >= f.col("x.began_ns"))
    )
    return (
        failed.alias("x")
        .join(f.broadcast(windows).alias("w"), on)
        .groupBy("x.run", "x.id")
        .agg(f.array_sort(f.collect_set("w.fault_id")).alias("fault_ids"))
    )
