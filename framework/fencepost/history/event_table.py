"""Events as rows of one flat table: a projection of the event classes only.

All kinds share one table. Queries (which events came before this failure, which concern this
node) cross kinds; a kind that a plugin adds needs no table of its own; and Parquet stores columns
that are mostly null in almost no space.

A row is the envelope, the event's `position` in its history, its `kind`, and one column for each
body field, shared by all kinds that have a field of that name and type. A field whose name is
taken by the envelope, or by a field of another type, gets its kind's name in front
(`client_started_kind`). `batch` and `events` are each other's inverse.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import msgspec
import pyarrow as pa
from msgspec import Struct

from fencepost.events import Cause, Codec, Event
from fencepost.history.columns import column_type
from fencepost.model.errors import UsageError

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
        return _of(tuple(plugin_kinds))

    def batch(self, run: str, placed: Sequence[tuple[int, Event]]) -> pa.RecordBatch:
        """The events, each with its position, as rows in this order; `run` names their run."""
        rows = len(placed)
        columns: dict[str, list[Any]] = {
            "run": [run] * rows,
            "position": [position for position, _ in placed],
            "process": [event.process for _, event in placed],
            "node_seq": [event.node_seq for _, event in placed],
            "at_ns": [event.at_ns for _, event in placed],
            "kind": [event.kind for _, event in placed],
            "cause_process": [event.cause and event.cause.process for _, event in placed],
            "cause_seq": [event.cause and event.cause.seq for _, event in placed],
            "cause_request": [event.cause and event.cause.request for _, event in placed],
        }
        # A column of a body exists only once an event has it. Most kinds do not occur in a batch,
        # and their columns become nulls at once, below.
        for row, (_, event) in enumerate(placed):
            body = event.body
            for field, column in self.columns[columns["kind"][row]].items():
                values = columns.get(column)
                if values is None:
                    values = columns[column] = [None] * rows
                values[row] = getattr(body, field)
        arrays = [
            pa.array(columns[field.name], field.type)
            if field.name in columns
            else pa.nulls(rows, field.type)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def columns_of(self, kinds: Collection[str]) -> Sequence[str]:
        """The columns that `events` needs for events of these kinds, and no other."""
        needed = {column for kind in kinds for column in self.columns[kind].values()}
        return [name for name in self.schema.names if name in ENVELOPE.names or name in needed]

    def events(self, rows: pa.Table) -> Sequence[tuple[int, Event]]:
        """The events of rows that `batch` made, each with its position, in the order of the rows.

        The rows need only the columns that kinds among them have. Raises msgspec.ValidationError
        for values that no such kind has, KeyError for a kind that is not of this table.
        """
        bodies: list[Any] = [None] * rows.num_rows
        kinds = rows["kind"].to_pylist()
        # Rows are grouped by kind, and the bodies of each kind are converted in one call.
        at: dict[str, list[int]] = {}
        for row, kind in enumerate(kinds):
            at.setdefault(kind, []).append(row)
        for name, places in at.items():
            columns = self.columns[name]
            some = rows.select(list(columns.values())).take(places) if columns else None
            lists = [] if some is None else [column.to_pylist() for column in some.columns]
            for place, body in zip(places, self._bodies(name, lists, len(places)), strict=True):
                bodies[place] = body
        fields = (rows[name].to_pylist() for name in ENVELOPE.names if name != "kind")
        envelopes = zip(*fields, strict=True)
        return [
            (
                position,
                Event(
                    run=run,
                    process=process,
                    node_seq=node_seq,
                    at_ns=at_ns,
                    body=body,
                    cause=None if whence is None else Cause(whence, seq, request),
                ),
            )
            for (run, position, process, node_seq, at_ns, whence, seq, request), body in zip(
                envelopes, bodies, strict=True
            )
        ]

    def _bodies(self, name: str, columns: Sequence[list[Any]], rows: int) -> Sequence[Struct]:
        """The bodies of events of one kind, from the columns of its fields in their order."""
        kind = self.kinds[name]
        # A column is named by the field in Python; a conversion wants the name by which it is
        # encoded.
        encoded = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
        fields = [encoded[field] for field in self.columns[name]]
        values = zip(*columns, strict=True) if columns else iter([()] * rows)
        # `type` is the tag of an event kind: with it the value is checked as a line of a file is.
        named = [dict(zip(("type", *fields), (name, *row), strict=True)) for row in values]
        return msgspec.convert(named, list[kind])  # type: ignore[valid-type]


def _holds_rows(column: pa.DataType) -> bool:
    return bool(pa.types.is_struct(column.value_type if pa.types.is_list(column) else column))


@lru_cache(maxsize=8)
def _of(plugin_kinds: tuple[type[Struct], ...]) -> EventTable:
    """See `EventTable.of`. It is kept: resolving the types of all fields takes 35 ms."""
    kinds = Codec(plugin_kinds).kinds
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
            # A name that is free, or taken by a field of the same type, is shared: one column
            # `role` for all kinds that have a role.
            if column in reserved or types.get(column, wanted) != wanted:
                column = f"{name.replace('.', '_')}_{field.name}"
            types[column] = wanted
            columns[name][field.name] = column
    body = [pa.field(c, t) for c, t in types.items() if c not in reserved]
    return EventTable(kinds, columns, pa.schema([*ENVELOPE, *body]))
