"""Where a module gets a name from, and what the source says about it."""

from __future__ import annotations

import ast
import importlib
import textwrap
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

from fencepost_reference.text import source

OURS = "fencepost"
"""What the names of our packages begin with."""


def names_in(annotation: str) -> Iterator[str]:
    """The names in the words of an annotation."""
    for node in ast.walk(ast.parse(annotation, mode="eval")):
        if isinstance(node, ast.Name):
            yield node.id


@cache
def home(module: str, name: str) -> str:
    """The module of ours that defines a name which `module` uses; empty if none of ours does."""
    for node in tree(module).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    ours = node.module.split(".")[0].startswith(OURS)
                    return home(node.module, alias.name) if ours else ""
        elif name in _defined(node):
            return module
    return ""


def _defined(node: ast.stmt) -> tuple[str, ...]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return (node.name,)
    if isinstance(node, ast.Assign):
        return tuple(target.id for target in node.targets if isinstance(target, ast.Name))
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return (node.target.id,)
    return ()


def assigned(module: str, name: str) -> str:
    """The right-hand side of the assignment of a name; empty for a name that is not assigned."""
    for node in tree(module).body if module else ():
        if isinstance(node, ast.Assign | ast.AnnAssign) and name in _defined(node) and node.value:
            return ast.unparse(node.value)
    return ""


def assigned_docstring(module: str, name: str) -> str:
    """The string after the assignment of a value or of the name of a type."""
    origin = home(module, name)
    body = tree(origin).body if origin else []
    for node, after in pairwise(body):
        if name in _defined(node) and (says := string(after)):
            return textwrap.dedent(says)
    return ""


def string(node: ast.stmt | None) -> str:
    """The text of a statement that is one string."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return str(node.value.value)
    return ""


@cache
def tree(module: str) -> ast.Module:
    """The source of a module."""
    return ast.parse(source(importlib.import_module(module)).read_text(encoding="utf-8"))
