"""Findings to verdicts: what each clause came to in each run, and why what was broken was broken.

The findings of each run are put back into the order in which one judge would have met them, and
concluded as it concludes. A rule that crashes is at its end there: what it would find later, at
other keys, does not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from fencepost import Cause, Evidence, Exercised, Finding, RunEnd, Undecided, Violated
from fencepost.reporting import (
    AT_END,
    Broken,
    Tally,
    conclude,
)
from fencepost_reports.judging import REF, Promises, Row, as_row
from fencepost_reports.schema import arrow_schema

VERDICTS = StructType(
    [
        StructField("run", StringType(), False),
        StructField("clause", StringType(), False),
        StructField("verdict", StringType(), False),
        StructField("exercised", LongType(), False),
        StructField("witness", StringType()),
        StructField("sentence", StringType(), False),
        StructField("reason", StringType(), False),
        StructField("violated", LongType(), False),
        StructField(
            "violations",
            ArrayType(
                StructType(
                    [
                        StructField("at", REF, False),
                        StructField("witness", StringType(), False),
                        StructField("message", StringType(), False),
                        StructField("because", ArrayType(REF, False), False),
                    ]
                ),
                False,
            ),
            False,
        ),
    ]
)


def concluded(runs: DataFrame, findings: DataFrame, promises: Promises) -> DataFrame:
    """The verdict of every clause that a rule judges, in every run; `runs` with their ends."""
    columns = arrow_schema(VERDICTS)
    known = runs.select("run", "plane", "missed", "run_end")

    def conclusion(run: pa.Table, rows: pa.Table) -> pa.Table:
        (about,) = run.to_pylist()
        return pa.Table.from_pylist(_verdicts(about, rows.to_pylist(), promises), columns)

    return (
        known.groupBy("run").cogroup(findings.groupBy("run")).applyInArrow(conclusion, VERDICTS)
    )  # fmt: skip


def _verdicts(run: Row, findings: Iterable[Row], promises: Promises) -> list[Row]:
    by_rule: dict[int, Tally] = {}
    in_order = sorted(findings, key=itemgetter("rule", "position", "met", "nth"))
    for number, rows in groupby(in_order, itemgetter("rule")):
        by_rule[number] = _tally(rows)
    tallies: dict[str, Tally] = {}
    for number, tally in sorted(by_rule.items()):
        tallies.setdefault(promises.rules[number].clause, Tally()).merge(tally)
    judgement = conclude(
        {rule.clause for rule in promises.rules},
        promises.clauses,
        run["plane"],
        tallies,
        msgspec.json.decode(run["run_end"], type=RunEnd),
        run["missed"],
    )
    return [
        {"run": run["run"], "clause": clause, **msgspec.to_builtins(verdict)}
        | {"violations": [_violation(broken) for broken in verdict.violations]}
        for clause, verdict in judgement.verdicts.items()
    ]


def _tally(rows: Iterable[Row]) -> Tally:
    """One rule's findings, in the order in which one judge meets them, up to its first crash."""
    tally = Tally()
    crashed_at = -1
    for row in rows:
        # The other keys of the event it crashed on had their turn; at the end there is no event.
        if tally.crashed and (row["position"] > crashed_at or row["position"] == AT_END):
            break
        if row["finding"] == "crashed":
            tally.crashed = tally.crashed or row["message"]
            crashed_at = row["position"]
        else:
            tally.add(_finding(row), row["position"])
    return tally


def _finding(row: Row) -> Finding:
    if row["finding"] == "exercised":
        return Exercised(_cause(row["at"]), Evidence(row["witness"]))
    if row["finding"] == "violated":
        because = tuple(_cause(ref) for ref in row["because"])
        return Violated(_cause(row["at"]), Evidence(row["witness"]), row["message"], because)
    return Undecided(row["message"], None if row["at"] is None else _cause(row["at"]))


def _cause(ref: Row) -> Cause:
    return Cause(ref["process"], ref["seq"], ref["request"])


def _violation(broken: Broken) -> Row:
    return {
        "at": as_row(broken.at),
        "witness": str(broken.evidence),
        "message": broken.message,
        "because": [as_row(cause) for cause in broken.because],
    }
