"""Where epochs changed: of the controller, of brokers, of partitions' leaders."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from fencepost_reports.transforms.authority import authority, first_told

FAMILY = "epoch"


def epoch_changes(events: DataFrame) -> DataFrame:
    """Every epoch that came into force, once, where it was first told; see `authority`.

    Types: new controller, new broker epoch, new leader, new ISR (each ISR change has a leader epoch
    of its own).
    """
    return (
        _controllers(events).unionByName(_brokers(events)).unionByName(_leaders(events))
    )  # fmt: skip


def _controllers(events: DataFrame) -> DataFrame:
    elected = events.where(f.col("kind") == "quorum.controller_elected")
    earlier = Window.partitionBy("run").orderBy("position")
    return authority(
        elected.withColumn("was", f.lag("epoch").over(earlier)),
        FAMILY,
        "new controller",
        True,
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
        True,
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
    before = f.lag("leader").over(earlier)
    isr = f.concat(f.lit("ISR "), f.array_join("isr", ", "))
    return authority(
        committed.withColumns({"before": before, "was": f.lag("leader_epoch").over(earlier)}),
        FAMILY,
        f.when(f.col("leader") == f.col("before"), "new ISR").otherwise("new leader"),
        True,
        topic="topic",
        partition="partition",
        epoch="leader_epoch",
        was="was",
        leader="leader",
        detail=isr,
    )
