"""The last row before a moment: what an as-of join is in other systems."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

_AFTER = 1
_ASKED = 0


def last_before(asked: DataFrame, known: DataFrame) -> DataFrame:
    """For each asked (run, key, position, id): `last`, the known row of that key just before it.

    `known` has run, key, position and anything else; `last` is a struct of its columns other than
    run and key, and rows of which nothing is known are left out. One sort a key, whatever the
    number of rows on either side.
    """
    payload = f.struct(*(c for c in known.columns if c not in {"run", "key"}))
    nothing = f.lit(None)
    moments = asked.select("run", "key", "position", "id", f.lit(_ASKED).alias("order"))
    facts = known.select("run", "key", "position", payload.alias("fact"))
    both = moments.withColumn("fact", nothing.cast(facts.schema["fact"].dataType)).unionByName(
        facts.withColumns({"id": nothing.cast("string"), "order": f.lit(_AFTER)})
    )
    until_here = (
        Window.partitionBy("run", "key")
        .orderBy("position", "order")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    return (
        both.withColumn("last", f.last("fact", ignorenulls=True).over(until_here))
        .where(f.col("id").isNotNull() & f.col("last").isNotNull())
        .select("run", "key", "id", "last")
    )
