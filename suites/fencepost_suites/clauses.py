"""The clauses that rules judge, and their applicability on other planes, from the files beside
this."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files

from fencepost import Applicability, Clause, Promise


@cache
def clauses() -> tuple[Clause, ...]:
    """Every clause of the seed documents and of clients, and those of our own, in the order of the
    files."""
    return tuple(
        Clause(
            id=entry["id"],
            source=entry["seed"],
            planes=tuple(entry["planes"]),
            says=entry["says"],
            defect=entry["defect"],
            note=entry.get("note", ""),
            judges=entry.get("judges", ""),
            vocabulary=entry.get("vocabulary", ""),
        )
        for name in ("clauses.toml", "availability.toml")
        for entry in tomllib.loads(_text(name))["clause"]
    )


@cache
def applicability() -> tuple[Applicability, ...]:
    """The applicability of each clause on the planes that its document does not know, one file per
    plane."""
    return tuple(
        Applicability(
            entry["clause"],
            plane,
            Promise(entry["promise"]),
            entry["how"],
            entry.get("formerly", ""),
        )
        for plane in ("kraft", "raft", "zookeeper")
        for entry in tomllib.loads(_text(f"{plane}.toml"))["applicability"]
    )


def _text(name: str) -> str:
    return files("fencepost_suites").joinpath(name).read_text(encoding="utf-8")
