"""Columns that every change of authority has, be it of an epoch or a fence.

`family` is epoch or fencing, `type` its name. Its `effect`: it `takes` authority from somebody (and
so may explain a failure), `gives` it, or `enforces` it, when an old epoch or a fenced broker is
turned away. `broker`, `topic`, `partition` and `epoch` say of what; `was` is the epoch before.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

TAKES, GIVES, ENFORCES = "takes", "gives", "enforces"
_ABOUT: Mapping[str, str] = {
    "broker": "bigint",
    "topic": "string",
    "partition": "bigint",
    "epoch": "bigint",
    "was": "bigint",
    "leader": "bigint",
    "detail": "string",
}
_WHERE = ("run", "position", "at_ns", "process", "node_seq")


def authority(
    events: DataFrame, family: str, type_: str | Column, effect: str | Column, **about: str | Column
) -> DataFrame:
    """These events as authority events; `about` gives columns by name or expression."""
    given = {n: f.col(c) if isinstance(c, str) else c for n, c in about.items()}
    return events.select(
        *_WHERE,
        f.lit(family).alias("family"),
        _text(type_).alias("type"),
        _text(effect).alias("effect"),
        *(
            given.get(name, f.lit(None)).cast(sql_type).alias(name)
            for name, sql_type in _ABOUT.items()
        ),
    )


def _text(given: str | Column) -> Column:
    return f.lit(given) if isinstance(given, str) else given


def first_told(events: DataFrame, *same: str) -> DataFrame:
    """Of events that many nodes write alike, the first one in each run."""
    by_place = Window.partitionBy("run", *same).orderBy("position")
    return (
        events.withColumn("nth", f.row_number().over(by_place)).where(f.col("nth") == 1).drop("nth")
    )
