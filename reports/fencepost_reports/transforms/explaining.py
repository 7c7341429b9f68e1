"""Why it went wrong: the faults a failure fell into, and the loss of authority before it.

What explains a failure is an event before it in the history that took authority from somebody:
one that the rule names; else the latest that concerns the same partition or broker (for a client's
operation also the broker that led its partition then); else the latest of the controller. Time
plays no part in that; it only says which faults were on, since one host's clock stamps all events.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from fencepost_reports.transforms.asof import last_before
from fencepost_reports.transforms.authority import TAKES
from fencepost_reports.transforms.nodes import CONTROLLER, about_partition

NAMED, SAME, QUORUM = 0, 1, 2
_HOW = {
    NAMED: "named by the rule",
    SAME: "the latest before it of the same partition or broker",
    QUORUM: "the latest before it of the controller",
}


def explained(failed: DataFrame, authority: DataFrame, windows: DataFrame) -> DataFrame:
    """The failures, with `fault_ids` that were on and the loss of authority before each.

    `explained_by` is the place of that event in the history (null: there is none), `how` why it is
    that one.
    """
    changes = authority.where(f.col("effect") == TAKES)
    candidates = reduce(DataFrame.unionByName, (_named(failed, changes), *_latest(failed, changes)))
    best = candidates.groupBy("run", "id").agg(
        f.min_by("event", f.struct("rank", -f.col("event.position"))).alias("event"),
        f.min("rank").alias("rank"),
    )
    faults = windows.groupBy("run").agg(
        f.collect_list(f.struct("fault_id", "from_ns", "to_ns")).alias("faults")
    )
    how = reduce(
        lambda so_far, rank: so_far.when(f.col("rank") == rank, _HOW[rank]),
        _HOW,
        f.when(f.lit(False), ""),
    )
    return (
        failed.join(best, ["run", "id"], "left")
        .join(f.broadcast(faults), "run", "left")
        .select(
            *(failed[name] for name in failed.columns),
            _faults_on().alias("fault_ids"),
            f.col("event.position").alias("explained_by"),
            f.col("event.type").alias("explained_type"),
            f.col("event.at_ns").alias("explained_at_ns"),
            how.alias("how"),
        )
    )


_FAULTS = "array<struct<fault_id:string,from_ns:bigint,to_ns:bigint>>"
_EVENT = ("position", "at_ns", "type", "process", "node_seq", "leader")


def _named(failed: DataFrame, changes: DataFrame) -> DataFrame:
    event = f.struct(*(f.col(f"c.{name}").alias(name) for name in _EVENT)).alias("event")
    return (
        _reasons(failed)
        .alias("r")
        .join(changes.alias("c"), _same("run", "process", "node_seq"))
        .where(f.col("c.position") <= f.col("r.mine"))
        .select("r.run", "r.id", f.lit(NAMED).alias("rank"), event)
    )


def _reasons(failed: DataFrame) -> DataFrame:
    """The events that a failure is said to be because of: run, id, mine, process, node_seq."""
    return (
        failed.select("run", "id", f.col("position").alias("mine"), f.explode("because").alias("r"))
        .where(~f.col("r.request"))
        .select("run", "id", "mine", "r.process", f.col("r.seq").alias("node_seq"))
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


def _faults_on() -> Column:
    """The ids of those faults in `faults` that were on while the failure lasted."""
    then = f.filter(
        f.coalesce("faults", f.array().cast(_FAULTS)),
        lambda w: (w["from_ns"] <= f.col("at_ns")) & (w["to_ns"] >= f.col("began_ns")),
    )
    return f.array_sort(f.transform(then, lambda w: w["fault_id"]))
