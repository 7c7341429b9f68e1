"""The clauses that the rules judge, read from clauses.toml beside this file."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files

from fencepost import Clause


@cache
def clauses() -> tuple[Clause, ...]:
    """Every clause of the file, in its order."""
    text = files("fencepost_suites").joinpath("clauses.toml").read_text(encoding="utf-8")
    return tuple(
        Clause(
            entry["id"],
            entry["seed"],
            tuple(entry["planes"]),
            entry["says"],
            entry["defect"],
            entry.get("note", ""),
        )
        for entry in tomllib.loads(text)["clause"]
    )
