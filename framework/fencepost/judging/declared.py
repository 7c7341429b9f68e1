"""Clauses, and how clauses apply on a plane, as the TOML files of a package declare them.

A file has tables `[[clause]]`, whose keys are the fields of `Clause`, and tables
`[[applicability]]`, which say for `clauses`, a list of ids, what `promise` is made on the file's
`plane`, and `how`. Where they stand follows one rule: a clause stands in the package of its rules,
and how clauses of others apply on a plane stands in the package of that plane's system.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar, final

import msgspec

from fencepost.judging.rules import Applicability, Clause
from fencepost.model.errors import UsageError

T = TypeVar("T", Clause, Applicability)


@final
@dataclass(frozen=True, slots=True)
class Declared:
    """What the files of a package declare, in their order."""

    clauses: tuple[Clause, ...]
    applicability: tuple[Applicability, ...]


@cache
def declared(package: str, *names: str) -> Declared:
    """What these files of a package declare.

    Raises UsageError, with the file, if it is no TOML, or if a table lacks a key, or has one that
    is unknown or of another type.
    """
    clauses: list[Clause] = []
    marks: list[Applicability] = []
    for name in names:
        try:
            found = tomllib.loads(files(package).joinpath(name).read_text(encoding="utf-8"))
            clauses += [_made(entry, Clause) for entry in found.pop("clause", ())]
            plane, entries = found.pop("plane", ""), found.pop("applicability", ())
            marks += [_made(one, Applicability) for entry in entries for one in _each(entry, plane)]
            _refuse(found, "the file")
        except (OSError, ValueError, TypeError, AttributeError) as wrong:
            raise UsageError(f"{package}/{name}: {wrong}") from None
    return Declared(tuple(clauses), tuple(marks))


def _each(entry: Mapping[str, Any], plane: str) -> Iterator[Mapping[str, Any]]:
    """An entry about several clauses, as one about each."""
    rest = {key: value for key, value in entry.items() if key != "clauses"}
    for clause in entry.get("clauses", ()):
        yield {**rest, "clause": clause, "plane": plane}


def _made(entry: Mapping[str, Any], kind: type[T]) -> T:
    named = entry.get("id") or entry.get("clause")
    _refuse({key for key in entry if key not in {field.name for field in fields(kind)}}, named)
    return msgspec.convert(entry, kind)


def _refuse(unknown: Mapping[str, Any] | set[str], where: object) -> None:
    if unknown:
        raise ValueError(f"{where} has unknown keys: {', '.join(sorted(unknown))}")
