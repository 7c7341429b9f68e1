"""Which node wrote an event, and what the event is about."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f


def with_node(events: DataFrame, runs: DataFrame) -> DataFrame:
    """Adds `slot`, `slot_role` and `slot_node` (its node id, or null) of the writing process."""
    slots = runs.select("run", f.inline("slots").alias("slot", "slot_role", "slot_node"))
    named = events.withColumn("slot", f.substring_index("process", "#", 1))
    clients = f.col("process").startswith("clients/")
    return named.join(f.broadcast(slots), ["run", "slot"], "left").withColumns(
        {
            "slot_role": f.when(clients, "client").otherwise(
                f.coalesce("slot_role", f.lit("harness"))
            ),
        }
    )


def about_partition() -> Column:
    """The key of the partition an event is about, or null."""
    named = f.col("topic").isNotNull() & (f.col("topic") != "") & (f.col("partition") >= 0)
    key = f.concat(f.lit("partition "), f.col("topic"), f.lit("-"), f.col("partition"))
    return f.when(named, key)


def about_broker() -> Column:
    """The key of the broker an event is about, or that wrote it; or null."""
    writer = f.when(f.col("slot_role") == "broker", f.col("slot_node"))
    broker = f.coalesce("broker_id", "broker", writer)
    return f.when(broker >= 0, f.concat(f.lit("broker "), broker))


def about_controller() -> Column:
    """The key of the quorum, for what a controller wrote; or null."""
    return f.when(f.col("slot_role") == "controller", f.lit(CONTROLLER))


CONTROLLER = "controller"


def about() -> Column:
    """All keys of an event of `with_node`: partition, broker, controller."""
    return f.array_compact(f.array(about_partition(), about_broker(), about_controller()))
