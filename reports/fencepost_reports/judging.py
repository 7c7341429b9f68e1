"""Events to findings: the rule classes at work in Spark, each run, rule and key wherever it lands.

Every event is given to the rules that read it, as rows of run, rule and key; these are
repartitioned by all three, sorted by position, and folded, so that memory holds one key's state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, final

import msgspec
import pyarrow as pa
from msgspec import Struct
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from fencepost import (
    Cause,
    Clause,
    Codec,
    Event,
    Exercised,
    Finding,
    Key,
    Rule,
    RunEnd,
    Violated,
)
from fencepost.reporting import AT_END
from fencepost_reports.reading import batched, histories
from fencepost_reports.schema import arrow_schema

Row = Mapping[str, Any]
REF = StructType(
    [
        StructField("process", StringType(), False),
        StructField("seq", LongType(), False),
        StructField("request", BooleanType(), False),
    ]
)
_KEYED = StructType(
    [
        StructField("run", StringType(), False),
        StructField("rule", LongType(), False),
        StructField("key", StringType(), False),
        StructField("position", LongType(), False),
        StructField("nth", LongType(), False),
        StructField("line", StringType()),
        StructField("crashed", StringType()),
    ]
)
"""An event for one key of one rule; `nth` counts the keys of one event. Or: its keys crashed."""

FINDINGS = StructType(
    [
        StructField("run", StringType(), False),
        StructField("clause", StringType(), False),
        StructField("rule", LongType(), False),
        StructField("key", StringType(), False),
        StructField("finding", StringType(), False),
        StructField("witness", StringType()),
        StructField("at", REF),
        StructField("message", StringType()),
        StructField("because", ArrayType(REF, False)),
        StructField("position", LongType(), False),
        StructField("met", LongType(), False),
        StructField("nth", LongType(), False),
    ]
)
"""`finding` is exercised, violated, undecided or crashed. The last three columns say in what order
one judge would have found it: at the event at `position` (past all events: at the end, where keys
come in the order in which they were `met`), for the `nth` key of that event."""


@final
@dataclass(frozen=True, slots=True)
class Promises:
    """What runs are judged by: rules, clauses, and plugins' event kinds."""

    rules: tuple[Rule[Any], ...]
    clauses: Mapping[str, Clause]
    kinds: tuple[type[Struct], ...] = ()


# --------------------------------------------------------------------------- events to findings


def found(runs: DataFrame, ends: DataFrame, promises: Promises, partitions: int) -> DataFrame:
    """Everything that the rules find in the runs: one row a finding."""
    keyed = _arrow(
        runs.select("run", "path", "plane"), lambda batches: _keyed(batches, promises), _KEYED
    )
    by_key = keyed.repartition(partitions, "run", "rule", "key").join(
        f.broadcast(ends.select("run", "run_end")), "run"
    )
    in_order = by_key.sortWithinPartitions("run", "rule", "key", "position", "nth")
    return _arrow(in_order, lambda batches: _folded(batches, promises), FINDINGS)


def _arrow(
    table: DataFrame,
    rows: Callable[[Iterator[pa.RecordBatch]], Iterable[Row]],
    struct: StructType,
) -> DataFrame:
    columns = arrow_schema(struct)
    return table.mapInArrow(lambda batches: batched(rows(batches), columns), struct)


def _keyed(batches: Iterator[pa.RecordBatch], promises: Promises) -> Iterator[Row]:
    codec = Codec(promises.kinds)
    for batch in batches:
        planes = dict(zip(*(batch.column(c).to_pylist() for c in ("run", "plane")), strict=True))
        for run, history in histories([batch], promises.kinds):
            readers = _readers(promises, planes[run])
            for position, event in enumerate(history):
                groups = readers.get(type(event.body), ())
                line = codec.encode(event).decode() if groups else ""
                for keys, rules in groups:
                    for row in _keys(event, keys, rules, promises):
                        yield {"run": run, "position": position, "line": line, **row}


_Keys = Callable[[Event], Iterable[Key]]


def _readers(
    promises: Promises, plane: str
) -> Mapping[type[Struct], Sequence[tuple[_Keys, Sequence[int]]]]:
    """Event kind -> the rules that read it, those with one `keys` function together."""
    readers: dict[type[Struct], dict[_Keys, list[int]]] = {}
    for number, rule in enumerate(promises.rules):
        if promises.clauses[rule.clause].binds(plane):
            for kind in rule.kinds:
                readers.setdefault(kind, {}).setdefault(rule.keys, []).append(number)
    return {kind: tuple(groups.items()) for kind, groups in readers.items()}


def _keys(event: Event, keys: _Keys, rules: Sequence[int], promises: Promises) -> Iterator[Row]:
    try:
        named = [msgspec.json.encode(key).decode() for key in keys(event)]
    except Exception as error:  # a plugin's own code may raise anything
        for rule in rules:
            said = _crash(promises.rules[rule], error, f"on {event.kind} {event.ref}")
            yield {"rule": rule, "key": "", "nth": 0, "line": None, "crashed": said}
        return
    for nth, key in enumerate(named):
        for rule in rules:
            yield {"rule": rule, "key": key, "nth": nth}


def _crash(rule: Rule[Any], error: Exception, where: str) -> str:
    return f"the rule {type(rule).__name__} failed {where}: {type(error).__name__}: {error}"


def _folded(batches: Iterator[pa.RecordBatch], promises: Promises) -> Iterator[Row]:
    codec = Codec(promises.kinds)
    rows = (row for batch in batches for row in _plain(batch))
    for (run, number, key), group in groupby(rows, itemgetter(0, 1, 2)):
        rule = promises.rules[number]
        for finding in _fold(rule, key, group, codec):
            yield {"run": run, "clause": rule.clause, "rule": number, "key": key, **finding}


def _plain(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    names = ("run", "rule", "key", "position", "nth", "line", "crashed", "run_end")
    return zip(*(batch.column(name).to_pylist() for name in names), strict=True)


def _fold(
    rule: Rule[Any], key: str, rows: Iterable[tuple[Any, ...]], codec: Codec
) -> Iterator[Row]:
    """What a rule finds at one key, its own crash included; then it is at its end."""
    state: Any = None
    end: RunEnd | None = None
    first = (0, 0)
    for _, _, _, position, nth, line, crashed, run_end in rows:
        where = {"position": position, "met": position, "nth": nth}
        if crashed is not None:
            yield {"finding": "crashed", "message": crashed, **where}
            continue
        event = codec.decode(line.encode())
        try:
            if state is None:
                if end is None:
                    end = msgspec.json.decode(run_end, type=RunEnd)
                    first = (position, nth)
                state = rule.start(tuple(msgspec.json.decode(key)))
            state, findings = rule.step(state, event)
            for finding in findings:
                yield _row(finding) | where
        except Exception as error:
            said = _crash(rule, error, f"on {event.kind} {event.ref}")
            yield {"finding": "crashed", "message": said, **where}
            return
    if state is None or end is None:
        return
    where = {"position": AT_END, "met": first[0], "nth": first[1]}
    try:
        for finding in rule.end(state, end):
            yield _row(finding) | where
    except Exception as error:
        said = _crash(rule, error, "at the end of the history")
        yield {"finding": "crashed", "message": said, **where}


def _row(finding: Finding) -> dict[str, Any]:
    if isinstance(finding, Exercised):
        return {"finding": "exercised", "witness": str(finding.evidence), "at": as_row(finding.at)}
    if isinstance(finding, Violated):
        return {
            "finding": "violated",
            "witness": str(finding.evidence),
            "at": as_row(finding.at),
            "message": finding.message,
            "because": [as_row(cause) for cause in finding.because],
        }
    at = None if finding.at is None else as_row(finding.at)
    return {"finding": "undecided", "message": finding.message, "at": at}


def as_row(cause: Cause) -> Row:
    """The name of an event or request as a row of `REF`."""
    return {"process": cause.process, "seq": cause.seq, "request": cause.request}
