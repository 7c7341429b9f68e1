"""Clauses, and how clauses apply on a plane, as the TOML files of a package declare them.

A file has tables `[[clause]]`, whose keys are fields of `Clause`, and tables `[[applicability]]`,
which say for `clauses`, a list of ids, what `promise` is made on the file's `plane`, and `how`.
Where they stand follows one rule: a clause stands in the package of its rules, and how clauses of
others apply on a plane stands in the package of that plane's system.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import final

import msgspec
from msgspec import Struct, structs

from fencepost.judging.rules import Applicability, Clause, Promise
from fencepost.model.errors import UsageError


class _Clause(Struct, forbid_unknown_fields=True):
    """A table `[[clause]]`."""

    id: str
    source: str
    says: str
    planes: tuple[str, ...] = ()
    defect: str = ""
    note: str = ""
    vocabulary: str = ""
    bounded: bool = False
    judges: str = ""


class _Applicability(Struct, forbid_unknown_fields=True):
    """A table `[[applicability]]`: one statement about several clauses."""

    clauses: tuple[str, ...]
    promise: Promise
    how: str
    formerly: str = ""


class _File(Struct, forbid_unknown_fields=True):
    clause: tuple[_Clause, ...] = ()
    plane: str = ""
    applicability: tuple[_Applicability, ...] = ()


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
            text = files(package).joinpath(name).read_text(encoding="utf-8")
            found = msgspec.convert(tomllib.loads(text), _File)
        except (OSError, ValueError) as wrong:
            raise UsageError(f"{package}/{name}: {wrong}") from None
        if found.applicability and not found.plane:
            raise UsageError(f"{package}/{name}: it says how clauses apply, and not on which plane")
        clauses += [Clause(**structs.asdict(one)) for one in found.clause]
        marks += [
            Applicability(clause, found.plane, one.promise, one.how, one.formerly)
            for one in found.applicability
            for clause in one.clauses
        ]
    return Declared(tuple(clauses), tuple(marks))
