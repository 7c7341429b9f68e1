"""Changes of authority that a report leaves out, read in columns, would have changed nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import astuple

from fencepost import Change, Event, ProcessExited
from fencepost.columns import schema_of
from fencepost.reporting import ChangeRow
from fencepost_reports.one_run.authority import AuthorityFold
from fencepost_reports.one_run.column_changes import telling
from fencepost_reports.one_run.history import Ends

PROCESSES = ("broker-1#1", "broker-2#1")
END_NS = 10_000


def change(position: int, **values: object) -> ChangeRow:
    about: dict[str, object] = {
        "process": PROCESSES[0],
        "scope": "broker 1",
        "change": str(Change.GAINED),
        "epoch": 1,
        "holder": "",
        "state": "",
        "matter": "",
        "record": "",
    }
    return ChangeRow(
        position=position,
        at_ns=position * 10,
        node_seq=position,
        kind="broker.lease_granted",
        node="",
        wide=False,
        refusal=False,
        **about | values,  # type: ignore[arg-type]
    )


def table(changes: Sequence[ChangeRow]) -> pa.Table:
    schema = schema_of(ChangeRow)
    columns = list(zip(*map(astuple, changes), strict=True)) or [()] * len(schema)
    arrays = [pa.array(one, field.type) for one, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def folded(changes: Sequence[ChangeRow], exits: Sequence[tuple[int, str]]) -> object:
    """The rows and the states of these changes, with processes that end between them."""
    fold = AuthorityFold()
    left = sorted(exits, reverse=True)
    for one in [*changes, None]:
        while left and (one is None or left[-1][0] <= one.position):
            position, process = left.pop()
            body = ProcessExited(ended=process, exit_code=0, signal=0, expected=True)
            fold.process(
                Event(run="r", process="harness", node_seq=0, at_ns=position * 10, body=body)
            )
        if one is not None:
            fold.change(one)
    return fold.rows, fold.spans(END_NS)


def left_of(changes: Sequence[ChangeRow], ends: Ends, at_once: int) -> Sequence[ChangeRow]:
    """The changes that are not left out, when so many are looked at at once."""
    kept: list[ChangeRow] = []
    for first in range(0, len(changes), at_once):
        some = changes[first : first + at_once]
        tells = telling(table(some), ends).to_pylist()
        kept += [one for one, tell in zip(some, tells, strict=True) if tell]
    return kept


def ends_of(exits: Sequence[tuple[int, str]]) -> Ends:
    return {name: sorted(at for at, ended in exits if ended == name) for name in PROCESSES}


CHANGES = st.builds(
    dict,
    process=st.sampled_from(PROCESSES),
    scope=st.sampled_from(("broker 1", "broker 2", "controller")),
    change=st.sampled_from([str(one) for one in Change]),
    epoch=st.integers(1, 2),
    holder=st.sampled_from(("", *PROCESSES)),
    state=st.sampled_from(("", "leader", "fenced")),
    matter=st.sampled_from(("", "renewal", "refused")),
    record=st.sampled_from(("", "", "record 1", "record 2")),
)


@settings(max_examples=300, deadline=None)
@given(
    made=st.lists(CHANGES, max_size=40),
    exits=st.lists(st.tuples(st.integers(0, 40), st.sampled_from(PROCESSES)), max_size=4),
    at_once=st.sampled_from((1, 3, 40)),
)
def test_changes_that_are_left_out_would_have_changed_nothing(
    made: Sequence[dict[str, object]], exits: Sequence[tuple[int, str]], at_once: int
) -> None:
    changes = [change(position, **values) for position, values in enumerate(made)]
    assert folded(left_of(changes, ends_of(exits), at_once), exits) == folded(changes, exits)


def test_what_repeats_is_left_out() -> None:
    replayed = [change(n, process=p, record="1") for n, p in enumerate(PROCESSES)]
    renewed = [change(n, matter="renewal", holder=PROCESSES[0], state="active") for n in (2, 3, 4)]
    changes = [*replayed, *renewed]
    assert left_of(changes, {}, at_once=40) == [replayed[0], renewed[0]]
    assert left_of(changes, {PROCESSES[0]: [3]}, at_once=40) == [replayed[0], *renewed[:2]]
    assert left_of(changes, {}, at_once=1) == changes
    assert left_of([], {}, at_once=1) == []
