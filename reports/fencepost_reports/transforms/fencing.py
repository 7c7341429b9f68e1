"""Where a fence came down, was lifted, or turned somebody away."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from fencepost_reports.transforms.authority import ENFORCES, GIVES, TAKES, authority, first_told

FAMILY = "fencing"
_READ = (
    *("run", "position", "at_ns", "process", "node_seq", "kind"),
    *("broker_id", "broker_epoch", "offset", "fenced", "lease_period_ms"),
    *("old", "new", "reason", "error", "api", "requester"),
    *("topic", "partition", "leader_epoch", "epoch"),
)
FENCING_REASONS = (
    "fenced",
    "stale_broker_epoch",
    "stale_leader_epoch",
    "taken_over",
    "not_leader",
    "not_controller",
)
"""Why a node that holds to fences and epochs turns a request away."""


def fencing_events(events: DataFrame) -> DataFrame:
    """Every fencing event; see `authority`.

    Types: lease expired, broker fenced, broker unfenced (as committed), broker fenced itself,
    broker became active (by its own word), leadership taken, controller resigned, heartbeat
    refused, request refused.
    """
    read = events.select(*_READ)
    return reduce(
        DataFrame.unionByName,
        (_expired(read), _committed(read), _own_word(read), _lost(read), _refused(read)),
    )


def _is(kind: str) -> Column:
    return f.col("kind") == kind


def _expired(events: DataFrame) -> DataFrame:
    return authority(
        events.where(_is("controller.lease_expired")),
        FAMILY,
        "lease expired",
        TAKES,
        broker="broker_id",
        epoch="broker_epoch",
        detail=f.concat("lease_period_ms", f.lit(" ms without a heartbeat")),
    )


def _committed(events: DataFrame) -> DataFrame:
    """Where the committed record of a broker says something else about its fence than before."""
    told = first_told(events.where(_is("metadata.broker")), "offset", "broker_id")
    earlier = Window.partitionBy("run", "broker_id").orderBy("position")
    flipped = told.withColumn("before", f.lag("fenced").over(earlier)).where(
        f.col("before") != f.col("fenced")
    )
    type_ = f.when(f.col("fenced"), "broker fenced").otherwise("broker unfenced")
    effect = f.when(f.col("fenced"), TAKES).otherwise(GIVES)
    return authority(flipped, FAMILY, type_, effect, broker="broker_id", epoch="broker_epoch")


def _own_word(events: DataFrame) -> DataFrame:
    changed = events.where(_is("broker.state_changed") & (f.col("new") != f.col("old")))
    stopped = changed.where((f.col("old") == "ACTIVE") & (f.col("new") == "FENCED"))
    acting = changed.where(f.col("new") == "ACTIVE")
    return reduce(
        DataFrame.unionByName,
        (
            authority(
                rows,
                FAMILY,
                type_,
                effect,
                broker="broker_id",
                epoch="broker_epoch",
                detail="reason",
            )
            for rows, type_, effect in (
                (stopped, "broker fenced itself", TAKES),
                (acting, "broker became active", GIVES),
            )
        ),
    )


def _lost(events: DataFrame) -> DataFrame:
    leaders = events.where(
        _is("replica.leadership_ended") & f.col("reason").isin("fenced", "taken_over")
    )
    resigned = events.where(_is("quorum.controller_resigned"))
    return authority(
        leaders,
        FAMILY,
        "leadership taken",
        TAKES,
        topic="topic",
        partition="partition",
        epoch="leader_epoch",
        detail="reason",
    ).unionByName(
        authority(resigned, FAMILY, "controller resigned", TAKES, epoch="epoch", detail="reason")
    )


def _refused(events: DataFrame) -> DataFrame:
    stale = f.col("error") != "NOT_CONTROLLER"
    heartbeats = events.where(_is("broker.heartbeat_refused") & stale)
    requests = events.where(_is("broker.request_refused") & f.col("reason").isin(*FENCING_REASONS))
    return authority(
        heartbeats,
        FAMILY,
        "heartbeat refused",
        ENFORCES,
        broker="broker_id",
        epoch="broker_epoch",
        detail="error",
    ).unionByName(
        authority(
            requests,
            FAMILY,
            "request refused",
            ENFORCES,
            broker=f.when(f.col("requester") >= 0, f.col("requester")),
            topic=f.nullif("topic", f.lit("")),
            partition=f.when(f.col("partition") >= 0, f.col("partition")),
            detail=f.concat_ws(" ", "api", "reason", "error"),
        )
    )
