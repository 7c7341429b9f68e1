"""Events as rows of one flat table: a projection of the event classes, and of nothing else.

One table for all kinds, not a table a kind: what is asked of events (what came before this failure,
what concerns this broker) crosses kinds, a kind that a plugin adds needs no table of its own, and
Parquet stores columns that are mostly null for next to nothing.

A row is the envelope, the event's `position` in its history, its `kind`, and one column for each
body field, shared by all kinds that have a field of that name and type. A field whose name is
taken by the envelope, or by a field of another type, gets its kind's name in front
(`client_started_kind`). `row` and `event` are each other's inverse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final, get_args, get_origin

import msgspec
import pyarrow as pa
from msgspec import Struct
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from fencepost import Cause, Codec, Event, UsageError
from fencepost_kafka import KINDS as KAFKA_KINDS

_SCALARS: Mapping[object, DataType] = {
    str: StringType(),
    int: LongType(),
    bool: BooleanType(),
    float: DoubleType(),
}
_ARROW: Mapping[type[DataType], pa.DataType] = {
    StringType: pa.string(),
    LongType: pa.int64(),
    BooleanType: pa.bool_(),
    DoubleType: pa.float64(),
}
ENVELOPE = StructType(
    [
        StructField("run", StringType(), False),
        StructField("position", LongType(), False),
        StructField("process", StringType(), False),
        StructField("node_seq", LongType(), False),
        StructField("at_ns", LongType(), False),
        StructField("kind", StringType(), False),
        StructField("cause_process", StringType()),
        StructField("cause_seq", LongType()),
        StructField("cause_request", BooleanType()),
    ]
)
"""`cause_*` are null for an event without a cause; `position` counts from 0 within a run."""


def column_type(annotation: Any) -> DataType | None:
    """The column type of a body field: a scalar or a tuple of one kind of scalar; None: neither.

    A `Literal` of words is text.
    """
    if get_origin(annotation) is Literal:
        words = all(isinstance(word, str) for word in get_args(annotation))
        return _SCALARS[str] if words else None
    if get_origin(annotation) is tuple:
        arguments = get_args(annotation)
        if len(arguments) != 2 or arguments[1] is not Ellipsis or arguments[0] not in _SCALARS:
            return None
        return ArrayType(_SCALARS[arguments[0]], False)
    return _SCALARS.get(annotation)


def arrow_schema(struct: StructType) -> pa.Schema:
    """The same columns for Arrow."""
    return pa.schema([pa.field(f.name, arrow_type(f.dataType), f.nullable) for f in struct.fields])


def arrow_type(column: DataType) -> pa.DataType:
    """The Arrow type of one of the types that rows here are made of."""
    if isinstance(column, ArrayType):
        return pa.list_(pa.field("element", arrow_type(column.elementType), column.containsNull))
    if isinstance(column, StructType):
        return pa.struct(list(arrow_schema(column)))
    return _ARROW[type(column)]


@final
@dataclass(frozen=True, slots=True)
class EventTable:
    """The flat table of Fencepost's kinds and those of plugins; `of` makes one."""

    kinds: Mapping[str, type[Struct]]
    columns: Mapping[str, Mapping[str, str]]
    """kind -> field -> column."""
    struct: StructType

    @classmethod
    def of(cls, plugin_kinds: Sequence[type[Struct]] = ()) -> EventTable:
        """The table of these kinds; raises UsageError for a body that is not flat."""
        kinds = Codec(tuple(plugin_kinds)).kinds
        types: dict[str, DataType] = {f.name: f.dataType for f in ENVELOPE.fields}
        reserved = set(types)
        columns: dict[str, dict[str, str]] = {}
        # The transforms read columns of Kafka's kinds by name: no other plugin's take these names.
        first = set(Codec(KAFKA_KINDS).kinds)
        for name, kind in sorted(kinds.items(), key=lambda item: item[0] not in first):
            columns[name] = {}
            for field in msgspec.structs.fields(kind):
                wanted = column_type(field.type)
                if wanted is None:
                    raise UsageError(
                        f"the event kind '{name}' is not flat: its field '{field.name}' is neither "
                        "text, a number, a truth value nor a tuple of one of them"
                    )
                column = field.name
                if column in reserved or types.get(column, wanted) != wanted:
                    column = f"{name.replace('.', '_')}_{field.name}"
                types[column] = wanted
                columns[name][field.name] = column
        body = [StructField(c, t) for c, t in types.items() if c not in reserved]
        return cls(kinds, columns, StructType([*ENVELOPE.fields, *body]))

    def row(self, run: str, position: int, event: Event) -> dict[str, Any]:
        """The event as a row: only the columns its kind has."""
        row: dict[str, Any] = {
            "run": run,
            "position": position,
            "process": event.process,
            "node_seq": event.node_seq,
            "at_ns": event.at_ns,
            "kind": event.kind,
        }
        cause = event.cause
        if cause is not None:
            row["cause_process"] = cause.process
            row["cause_seq"] = cause.seq
            row["cause_request"] = cause.request
        for field, column in self.columns[event.kind].items():
            row[column] = getattr(event.body, field)
        return row

    def event(self, row: Mapping[str, Any]) -> Event:
        """The event of a row that `row` made."""
        kind = self.kinds[row["kind"]]
        fields = {f: row[column] for f, column in self.columns[row["kind"]].items()}
        cause = None
        if row.get("cause_process") is not None:
            cause = Cause(row["cause_process"], row["cause_seq"], row["cause_request"])
        body = msgspec.convert(fields | {"type": row["kind"]}, kind)
        return Event(row["run"], row["process"], row["node_seq"], row["at_ns"], body, cause)
