"""Which releases of Apache Kafka were run at peace and after a bounce, and what each broke.

`docs/_ext/record_releases.py` records what `fencepost conformance` printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from fencepost_reference.text import code, table

RECORD = Path(__file__).parents[2] / "reference" / "releases.json"


class Release(Struct, frozen=True):
    """What was found of one release: how many clauses held, those that it broke, each with the
    known findings that this is (none: it is new), and those that were undecided, each with the
    reason."""

    version: str
    day: str
    held: int
    violated: Mapping[str, Sequence[str]]
    unknown: Mapping[str, str]


class _Row(Struct, frozen=True):
    """What is read of a row that the command prints."""

    clause: str
    system: str
    verdict: str
    known: tuple[str, ...] = ()
    reason: str = ""


def read() -> Sequence[Release]:
    """The record beside the pages."""
    return msgspec.json.decode(RECORD.read_bytes(), type=list[Release])


def numbers(version: str) -> tuple[int, ...]:
    """A version, to order by."""
    return tuple(map(int, version.split(".")))


def added(
    known: Iterable[Release], rows: Iterable[Mapping[str, object]], day: str
) -> Sequence[Release]:
    """The releases with those of one `--json`, in their order."""
    read_rows = [msgspec.convert(row, _Row) for row in rows]
    by_version = {one.version: one for one in known}
    for system in {row.system for row in read_rows}:
        of = [row for row in read_rows if row.system == system]
        version = system.partition("@")[2]
        by_version[version] = Release(
            version,
            day,
            sum(row.verdict == "holds" for row in of),
            {row.clause: row.known for row in of if row.verdict == "violated"},
            {row.clause: row.reason for row in of if row.verdict == "unknown"},
        )
    return sorted(by_version.values(), key=lambda one: numbers(one.version))


def releases() -> str:
    """One line a release."""
    rows = [
        (
            code(one.version),
            one.day,
            str(one.held),
            ", ".join(_broken(*item) for item in one.violated.items()) or "none",
            ", ".join(one.unknown) or "none",
        )
        for one in read()
    ]
    return table(("release", "run on", "held", "violated", "undecided"), rows)


def _broken(clause: str, known: Sequence[str]) -> str:
    return f"{clause} ({', '.join(map(code, known))})" if known else f"**{clause}**"
