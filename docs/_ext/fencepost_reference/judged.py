"""Clauses, with the rules that judge them and the tests that exercise them."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from fencepost import Clause, kind_name
from fencepost.reporting import docstring
from fencepost_reference.loaded import plugins
from fencepost_reference.text import code, line, prose, table

DEFAULT_SUITE = "fencepost_suites"


def clauses() -> str:
    """Every clause by the document it comes from, with its rules and tests."""
    loaded, tests = plugins(), tests_of_clauses()
    by_source: dict[str, list[Clause]] = defaultdict(list)
    for clause in loaded.clauses.values():
        by_source[clause.source].append(clause)
    parts = []
    for source, found in sorted(by_source.items()):
        parts.append(f"## {source}\n")
        for clause in found:
            parts += _described(clause, tests.get(clause.id, ()))
    return "\n".join(parts)


def _described(clause: Clause, tests: Sequence[str]) -> Iterator[str]:
    yield f"### {clause.id}\n"
    yield f"{prose(clause.says)}\n"
    yield f"* Binds: {', '.join(map(code, clause.planes)) or 'every system'}."
    if clause.note:
        yield f"* Note: {line(clause.note)}."
    if clause.defect:
        yield f"* Broken when: {line(clause.defect)}."
    rules = [rule for rule in plugins().rules if rule.clause == clause.id]
    for rule in rules:
        kinds = ", ".join(code(kind_name(kind)) for kind in sorted(rule.kinds, key=kind_name))
        kind = type(rule)
        yield f"* Rule {code(kind.__name__)}: {line(docstring(kind))} It reads {kinds}."
    if not rules:
        yield "* Rule: none."
    yield f"* Tests: {', '.join(map(code, tests)) or 'none'}.\n"


def applicability() -> str:
    """How clauses apply on planes that their documents do not mention."""
    marks = [mark for clause in plugins().clauses.values() for mark in clause.applicability]
    rows = [(mark.clause, code(mark.plane), mark.promise.value, line(mark.how)) for mark in marks]
    return table(("clause", "plane", "promise there", "how"), rows)


def tests_of_clauses() -> Mapping[str, Sequence[str]]:
    """Clause -> `file::test` of the suites that are marked with it."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in _suite_files():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for clause in _marked(node.decorator_list):
                    found[clause].append(f"{path.name}::{node.name}")
    return found


def _suite_files() -> Iterable[Path]:
    named = {getattr(system, "suite", DEFAULT_SUITE) for system in plugins().systems.values()}
    for package in sorted({DEFAULT_SUITE, *named}):
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            yield from sorted(Path(folder).rglob("test_*.py"))


def _marked(decorators: Iterable[ast.expr]) -> Iterator[str]:
    for one in decorators:
        if isinstance(one, ast.Call) and ast.unparse(one.func).split(".")[-1] == "clause":
            for argument in one.args:
                if isinstance(argument, ast.Constant):
                    yield str(argument.value)
