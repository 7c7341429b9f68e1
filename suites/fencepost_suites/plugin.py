"""The suites as a plugin: the clauses of the seed documents, and the rules for them.

See docs/decisions/27-rules-in-suites.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost import Applicability, Clause, Rule, hookimpl
from fencepost_suites import rules
from fencepost_suites.clauses import applicability, clauses


@hookimpl
def fencepost_clauses() -> Sequence[Clause]:
    return clauses()


@hookimpl
def fencepost_applicability() -> Sequence[Applicability]:
    return applicability()


@hookimpl
def fencepost_rules() -> Sequence[Rule[Any]]:
    return rules.ALL
