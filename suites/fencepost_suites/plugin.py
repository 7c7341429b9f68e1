"""The suites as a plugin: the clauses of the seed documents, and the rules for them.

See docs/decisions/27-rules-in-suites.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost import Clause, Rule, declared, hookimpl
from fencepost_suites import rules

DECLARED = declared("fencepost_suites", "clauses.toml", "availability.toml")


@hookimpl
def fencepost_clauses() -> Sequence[Clause]:
    return DECLARED.clauses


@hookimpl
def fencepost_rules() -> Sequence[Rule[Any]]:
    return rules.ALL
