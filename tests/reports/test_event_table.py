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
from fencepost_kafka import KINDS
from fencepost_reports.event_table import ENVELOPE, EventTable

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
    batch = pa.RecordBatch.from_pylist([TABLE.row("run", 7, event)], TABLE.schema)
    (row,) = batch.to_pylist()
    assert TABLE.event(row) == event
    assert row["position"] == 7


class LampColoured(Struct, frozen=True, tag="acme.coloured"):
    colour: Literal["red", "green"]


def test_one_of_several_words_is_text() -> None:
    table = EventTable.of((LampColoured,))
    event = Event("run", "lamp", 0, 7, LampColoured("green"))
    row = table.row("run", 0, event)
    assert row["colour"] == "green"
    assert table.event({field.name: row.get(field.name) for field in table.schema}) == event


def test_a_kind_that_is_not_flat_is_refused_by_name() -> None:
    class Deep(Struct, frozen=True, tag="acme.deep"):
        inside: dict[str, int]

    class Nested(Struct, frozen=True, tag="acme.nested"):
        inside: tuple[LampColoured, ...]

    for kind in (Deep, Nested):
        with pytest.raises(UsageError, match=r"is not flat: its field 'inside'"):
            EventTable.of((kind,))
