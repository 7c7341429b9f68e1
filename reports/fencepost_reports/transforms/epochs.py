"""Where epochs changed: of the controller, of brokers, of partitions' leaders."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from fencepost_reports.transforms.authority import GIVES, TAKES, authority, first_told

FAMILY = "epoch"
_READ = (
    *("run", "position", "at_ns", "process", "node_seq", "kind", "epoch"),
    *("broker_id", "broker_epoch", "incarnation"),
    *("topic", "partition", "leader", "leader_epoch", "isr"),
)


def epoch_changes(events: DataFrame) -> DataFrame:
    """Every epoch that came into force, once, where it was first told; see `authority`.

    Types: new controller, new broker epoch, new leader, no leader, ISR shrank, ISR grew (each
    change of the ISR has a leader epoch of its own).
    """
    read = events.select(*_READ)
    return _controllers(read).unionByName(_brokers(read)).unionByName(_leaders(read))


def _controllers(events: DataFrame) -> DataFrame:
    elected = events.where(f.col("kind") == "quorum.controller_elected")
    earlier = Window.partitionBy("run").orderBy("position")
    return authority(
        elected.withColumn("was", f.lag("epoch").over(earlier)),
        FAMILY,
        "new controller",
        TAKES,
        epoch="epoch",
        was="was",
        detail="process",
    )


def _brokers(events: DataFrame) -> DataFrame:
    committed = first_told(
        events.where(f.col("kind") == "metadata.broker"), "broker_id", "broker_epoch"
    )
    earlier = Window.partitionBy("run", "broker_id").orderBy("position")
    return authority(
        committed.withColumn("was", f.lag("broker_epoch").over(earlier)),
        FAMILY,
        "new broker epoch",
        TAKES,
        broker="broker_id",
        epoch="broker_epoch",
        was="was",
        detail="incarnation",
    )


def _leaders(events: DataFrame) -> DataFrame:
    committed = first_told(
        events.where(f.col("kind") == "metadata.partition"),
        "topic",
        "partition",
        "leader_epoch",
        "leader",
    )
    earlier = Window.partitionBy("run", "topic", "partition").orderBy("position")
    before, was = f.lag("leader").over(earlier), f.lag("leader_epoch").over(earlier)
    members = f.lag(f.size("isr")).over(earlier)
    grew = (f.col("leader") == f.col("before")) & (f.size("isr") > f.col("members"))
    type_ = (
        f.when(f.col("leader") < 0, "no leader")
        .when(grew, "ISR grew")
        .when(f.col("leader") == f.col("before"), "ISR shrank")
        .otherwise("new leader")
    )
    isr = f.concat(f.lit("ISR "), f.array_join("isr", ", "))
    return authority(
        committed.withColumns({"before": before, "members": members, "was": was}),
        FAMILY,
        type_,
        f.when(grew, GIVES).otherwise(TAKES),
        topic="topic",
        partition="partition",
        epoch="leader_epoch",
        was="was",
        leader="leader",
        detail=isr,
    )
