"""Events as rows of one flat table: a projection of the event classes only.

All kinds share one table. Queries (which events came before this failure, which concern this
broker) cross kinds; a kind that a plugin adds needs no table of its own; and Parquet stores columns
that are mostly null in almost no space.

A row is the envelope, the event's `position` in its history, its `kind`, and one column for each
body field, shared by all kinds that have a field of that name and type. A field whose name is
taken by the envelope, or by a field of another type, gets its kind's name in front
(`client_started_kind`). `row` and `event` are each other's inverse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import msgspec
import pyarrow as pa
from msgspec import Struct

from fencepost import Cause, Codec, Event, UsageError
from fencepost_reports.columns import column_type

ENVELOPE = pa.schema(
    [
        pa.field("run", pa.string(), nullable=False),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("process", pa.string(), nullable=False),
        pa.field("node_seq", pa.int64(), nullable=False),
        pa.field("at_ns", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("cause_process", pa.string()),
        pa.field("cause_seq", pa.int64()),
        pa.field("cause_request", pa.bool_()),
    ]
)
"""`cause_*` are null for an event without a cause; `position` counts from 0 within a run."""


@final
@dataclass(frozen=True, slots=True)
class EventTable:
    """The flat table of Fencepost's kinds and those of plugins; `of` makes it."""

    kinds: Mapping[str, type[Struct]]
    columns: Mapping[str, Mapping[str, str]]
    """kind -> field -> column."""
    schema: pa.Schema

    @classmethod
    def of(cls, plugin_kinds: Sequence[type[Struct]] = ()) -> EventTable:
        """The table of these kinds; raises UsageError for a body that is not flat."""
        kinds = Codec(tuple(plugin_kinds)).kinds
        types: dict[str, pa.DataType] = {f.name: f.type for f in ENVELOPE}
        reserved = set(types)
        columns: dict[str, dict[str, str]] = {}
        for name, kind in kinds.items():
            columns[name] = {}
            for field in msgspec.structs.fields(kind):
                wanted = column_type(field.type)
                if wanted is None or _holds_rows(wanted):
                    raise UsageError(
                        f"the event kind '{name}' is not flat: its field '{field.name}' is neither "
                        "text, a number, a truth value nor a tuple of one of them"
                    )
                column = field.name
                if column in reserved or types.get(column, wanted) != wanted:
                    column = f"{name.replace('.', '_')}_{field.name}"
                types[column] = wanted
                columns[name][field.name] = column
        body = [pa.field(c, t) for c, t in types.items() if c not in reserved]
        return cls(kinds, columns, pa.schema([*ENVELOPE, *body]))

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
        encoded = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
        fields = {encoded[f]: row[column] for f, column in self.columns[row["kind"]].items()}
        cause = None
        if row.get("cause_process") is not None:
            cause = Cause(row["cause_process"], row["cause_seq"], row["cause_request"])
        body = msgspec.convert(fields | {"type": row["kind"]}, kind)
        return Event(
            run=row["run"],
            process=row["process"],
            node_seq=row["node_seq"],
            at_ns=row["at_ns"],
            body=body,
            cause=cause,
        )


def _holds_rows(column: pa.DataType) -> bool:
    return bool(pa.types.is_struct(column.value_type if pa.types.is_list(column) else column))
