"""The framework's own surfaces: hooks, fixtures, markers and pytest's options."""

from __future__ import annotations

import ast
import inspect
from typing import Any

from fencepost.model.configuration import DEFAULTS
from fencepost.plugins import hookspecs
from fencepost.reporting import docstring
from fencepost.testing import pytest_plugin
from fencepost_reference.text import code, line, prose, signature, source, table


def hooks() -> str:
    """Every hook with its signature and contract."""
    parts = []
    for name, hook in vars(hookspecs).items():
        if name.startswith("fencepost_") and inspect.isfunction(hook):
            called = code(name + signature(hook))
            parts.append(f"## `{name}`\n\n{called}\n\n{prose(docstring(hook))}\n")
    return "\n".join(parts)


def fixtures() -> str:
    """Every fixture of the pytest plugin."""
    rows = [
        (code(node.name), code(ast.unparse(node.returns)) if node.returns else "", line(says))
        for node in _module().body
        if isinstance(node, ast.FunctionDef) and (says := ast.get_docstring(node))
        if any(ast.unparse(one).startswith("pytest.fixture") for one in node.decorator_list)
    ]
    return table(("fixture", "type", "what it is"), rows)


def markers() -> str:
    """Every marker of the pytest plugin."""
    rows = []
    for node in ast.walk(_module()):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("addinivalue_line"):
            _, text = (one.value for one in node.args if isinstance(one, ast.Constant))
            name, _, says = str(text).partition(": ")
            rows.append((code(name), line(says)))
    return table(("marker", "meaning"), rows)


def options() -> str:
    """Every option of pytest's command line, which is a setting of its ini file, too."""
    rows = [
        (code(option), code(ini), code(default), line(says))
        for option, ini, default, says in _added()
    ]
    return table(("option", "ini setting", "default", "meaning"), rows)


def option_names() -> frozenset[str]:
    """The names of these options."""
    return frozenset(option for option, *_ in _added())


def _added() -> list[tuple[str, str, str, str]]:
    collected = _Group()
    pytest_plugin.pytest_addoption(collected)  # type: ignore[arg-type] # what it uses of a Parser
    return collected.rows


class _Group:
    """The part of pytest's parser that `pytest_addoption` uses; remembers the added options."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str, str]] = []

    def getgroup(self, name: str, description: str) -> _Group:
        return self

    def addoption(self, name: str, **rest: Any) -> None:
        self.rows.append((name, "", "", str(rest["help"])))

    def addini(self, name: str, says: str, **rest: Any) -> None:
        """The setting of the ini file beside the option that was added last."""
        default = getattr(DEFAULTS, name.removeprefix("fencepost_"))
        option, *_ = self.rows.pop()
        self.rows.append((option, name, str(default or ""), says))


def _module() -> ast.Module:
    return ast.parse(source(pytest_plugin).read_text(encoding="utf-8"))
