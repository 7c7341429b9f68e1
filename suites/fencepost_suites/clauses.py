"""The clauses that the rules judge, and what they are on Kafka, from the files beside this one."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files

from fencepost import Applicability, Clause, Promise


@cache
def clauses() -> tuple[Clause, ...]:
    """Every clause of clauses.toml, in the file's order."""
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


@cache
def applicability() -> tuple[Applicability, ...]:
    """What each clause is on Apache Kafka, from kraft.toml."""
    text = files("fencepost_suites").joinpath("kraft.toml").read_text(encoding="utf-8")
    return tuple(
        Applicability(entry["clause"], "kraft", Promise(entry["promise"]), entry["how"])
        for entry in tomllib.loads(text)["applicability"]
    )
