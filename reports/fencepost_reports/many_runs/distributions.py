"""How long changes of authority and times without service took, over all runs, by system and
version: medians and tails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from fencepost_reports.making import read_row
from fencepost_reports.many_runs.job import spread

_SUBJECT = ("system", "version", "what", "of")
QUANTILES = {"p50_ns": 0.5, "p95_ns": 0.95, "p99_ns": 0.99}
SILENCE = "longest time without a success"
_TIMES = pa.schema(
    [pa.field(n, pa.string(), nullable=False) for n in ("system", "version", "what", "of", "run")]
    + [pa.field("took_ns", pa.int64())]
)


def times(session: SparkSession, rows: Sequence[str]) -> DataFrame:
    """Each delay of each run, and the longest time without a success of each client, by what it did
    and to what, if it tried meanwhile. A time is null if what was waited for did not come."""

    def times_of(where: str) -> Iterator[pa.RecordBatch]:
        found = read_row(where, "about", "delays", "silences")
        about = found["about"]
        same = {name: about[name] for name in ("system", "version", "run")}
        yield pa.RecordBatch.from_pylist(
            [
                {**same, **one}
                for one in (*map(_delay, found["delays"]), *_silences(found["silences"]))
            ],
            _TIMES,
        )

    return spread(session, rows, times_of, _TIMES)


def _delay(row: Mapping[str, Any]) -> Mapping[str, Any]:
    took_ns = None if row["to_ns"] < 0 else row["to_ns"] - row["from_ns"]
    return {"what": row["what"], "of": row["of"], "took_ns": took_ns}


def _silences(rows: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for row in rows:
        if row["missed"]:
            yield {"what": SILENCE, "of": row["what"], "took_ns": row["to_ns"] - row["from_ns"]}


def distributions(found: DataFrame) -> DataFrame:
    """The quantiles of each sort of time, by system and version.

    `n` times were measured, in the runs that `measured_in` names; in `never` further cases what was
    waited for did not come. `slowest` is the run with the longest time.
    """
    took = f.col("took_ns")
    here = f.when(took.isNotNull(), f.col("run"))
    quantiles = f.percentile(took, f.array(*map(f.lit, QUANTILES.values())))
    counted = found.groupBy(*_SUBJECT).agg(
        f.count(took).alias("n"),
        f.count_if(took.isNull()).alias("never"),
        quantiles.alias("quantiles"),
        f.max(took).alias("max_ns"),
        f.struct(
            f.max_by("run", took).alias("slowest"),
            f.array_sort(f.collect_set(here)).alias("measured_in"),
        ).alias("runs"),
    )
    named = [f.col("quantiles")[n].alias(name) for n, name in enumerate(QUANTILES)]
    columns: list[Column | str] = [*_SUBJECT, "n", "never", *named, "max_ns", "runs.*"]
    return counted.select(*columns).orderBy(*_SUBJECT)
