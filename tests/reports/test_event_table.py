"""The flat table is a projection of the event classes, and loses nothing of them."""

from __future__ import annotations

from typing import Literal, get_args, get_origin

import msgspec
import pyarrow as pa
import pytest
from acme_lamps import LampSwitched
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from fencepost import Cause, Codec, Event, UsageError
from fencepost.columns import ENVELOPE, EventTable
from fencepost_kafka import KINDS

TABLE = EventTable.of((*KINDS, LampSwitched))
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXTS = pa.list_(pa.field("element", pa.string(), nullable=False))
NUMBERS = pa.list_(pa.field("element", pa.int64(), nullable=False))
VALUES = {
    pa.string(): st.text(),
    pa.int64(): INT64,
    pa.bool_(): st.booleans(),
    pa.float64(): st.floats(allow_nan=False),
    TEXTS: st.lists(st.text()).map(tuple),
    NUMBERS: st.lists(INT64).map(tuple),
}
TYPES = {field.name: field.type for field in TABLE.schema}


@st.composite
def events(draw: st.DrawFn) -> Event:
    name = draw(st.sampled_from(sorted(TABLE.kinds)))
    body = TABLE.kinds[name](
        **{
            field.name: draw(
                st.sampled_from(get_args(field.type))
                if get_origin(field.type) is Literal
                else VALUES[TYPES[TABLE.columns[name][field.name]]]
            )
            for field in msgspec.structs.fields(TABLE.kinds[name])
        }
    )
    cause = draw(st.none() | st.builds(Cause, st.text(), INT64, st.booleans()))
    return Event(
        run="run",
        process=draw(st.text()),
        node_seq=draw(INT64),
        at_ns=draw(INT64),
        body=body,
        cause=cause,
    )


def test_every_field_of_every_kind_has_a_column_of_its_type() -> None:
    expected = {
        str: pa.string(),
        int: pa.int64(),
        bool: pa.bool_(),
        float: pa.float64(),
        tuple[str, ...]: TEXTS,
        tuple[int, ...]: NUMBERS,
    }
    for name, kind in Codec((*KINDS, LampSwitched)).kinds.items():
        for field in msgspec.structs.fields(kind):
            plain = str if get_origin(field.type) is Literal else field.type
            assert TYPES[TABLE.columns[name][field.name]] == expected[plain]


def test_no_column_is_there_that_no_class_has() -> None:
    used = {column for columns in TABLE.columns.values() for column in columns.values()}
    assert set(TYPES) == used | set(ENVELOPE.names)


def test_a_name_that_is_taken_gets_its_kind_in_front() -> None:
    assert TABLE.columns["client.started"]["kind"] == "client_started_kind"
    assert TABLE.columns["acme.lamp"]["offset"] == "acme_lamp_offset"
    assert TABLE.columns["metadata.committed"]["offset"] == "offset"


@settings(max_examples=200, deadline=None)
@given(events())
def test_a_row_is_the_event(event: Event) -> None:
    rows = pa.Table.from_batches([TABLE.batch("run", [(7, event)])])
    assert TABLE.events(rows) == [(7, event)]
    assert TABLE.events(rows.select(TABLE.columns_of([event.kind]))) == [(7, event)]


@settings(max_examples=50, deadline=None)
@given(st.lists(events(), max_size=5))
def test_events_of_many_kinds_keep_their_order(some: list[Event]) -> None:
    placed = list(enumerate(some, 3))
    assert TABLE.events(pa.Table.from_batches([TABLE.batch("run", placed)])) == placed


class LampColoured(Struct, frozen=True, tag="acme.coloured"):
    colour: Literal["red", "green"]


def test_one_of_several_words_is_text() -> None:
    table = EventTable.of((LampColoured,))
    event = Event("run", "lamp", 0, 7, LampColoured("green"))
    rows = pa.Table.from_batches([table.batch("run", [(0, event)])])
    assert rows["colour"].to_pylist() == ["green"]
    assert table.events(rows) == [(0, event)]


def test_a_kind_that_is_not_flat_is_refused_by_name() -> None:
    class Deep(Struct, frozen=True, tag="acme.deep"):
        inside: dict[str, int]

    class Nested(Struct, frozen=True, tag="acme.nested"):
        inside: tuple[LampColoured, ...]

    for kind in (Deep, Nested):
        with pytest.raises(UsageError, match=r"is not flat: its field 'inside'"):
            EventTable.of((kind,))
