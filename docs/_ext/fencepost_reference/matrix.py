"""The outcome of each clause on each system and runtime, as `fencepost conformance` found it.

`docs/_ext/record_conformance.py` records what the command printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from fencepost_reference.loaded import plugins
from fencepost_reference.text import code, table

RECORD = Path(__file__).parents[2] / "reference" / "conformance.json"
RUNTIMES = ("simulated", "process", "docker")


class Outcome(Struct, frozen=True, array_like=True):
    """The joined verdict of one clause's tests, and how often they exercised it."""

    clause: str
    system: str
    runtime: str
    verdict: str
    exercised: int


class Record(Struct, frozen=True):
    """What the command found, and on which day that was for each system and runtime."""

    made: Mapping[str, str]
    outcomes: Sequence[Outcome]


def read() -> Record:
    """The record beside the page."""
    return msgspec.json.decode(RECORD.read_bytes(), type=Record)


def conformance() -> str:
    """One line a clause, one column a system and runtime; a clause that binds no plane of these
    systems has no line."""
    record = read()
    columns = sorted(record.made, key=_order)
    found = {(one.clause, _column(one)): one for one in record.outcomes}
    rows = [
        (clause, *(_cell(found.get((clause, column))) for column in columns))
        for clause in plugins().clauses
        if any((clause, column) in found for column in columns)
    ]
    days = sorted(set(record.made.values()))
    return "\n".join(
        (
            f"Recorded on {' and '.join(days)}.\n",
            table(("clause", *map(code, columns)), rows),
        )
    )


def _cell(one: Outcome | None) -> str:
    if one is None:
        return ""
    return f"{one.exercised}" if one.verdict == "holds" else f"**{one.verdict}**"


def _column(one: Outcome) -> str:
    return f"{one.system} {one.runtime}"


def _order(column: str) -> tuple[str, int]:
    system, runtime = column.split()
    return system, RUNTIMES.index(runtime)


def added(record: Record, rows: Iterable[Mapping[str, object]], today: str) -> Record:
    """The record with the rows of one `--json`; rows that bind another plane are left out."""
    news = [
        msgspec.convert([row[name] for name in Outcome.__struct_fields__], Outcome) for row in rows
    ]
    replaced = {_column(one) for one in news}
    kept = [one for one in record.outcomes if _column(one) not in replaced]
    outcomes = [*kept, *(one for one in news if one.verdict != "not-applicable")]
    return Record(
        {**record.made, **dict.fromkeys(sorted(replaced), today)},
        sorted(outcomes, key=lambda one: (one.clause, *_order(_column(one)))),
    )
