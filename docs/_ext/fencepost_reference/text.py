"""Markdown from docstrings, signatures and source."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


def prose(text: str) -> str:
    """A docstring as Markdown: text that is not between backticks is escaped."""
    parts = re.split(r"(`[^`]*`)", inspect.cleandoc(text))
    return "".join(p if p.startswith("`") else re.sub(r"([<*_|\[\]])", r"\\\1", p) for p in parts)


def line(text: str) -> str:
    """As `prose`, in one line, for the cell of a table."""
    return " ".join(prose(text).split())


def code(text: object) -> str:
    """Words between backticks, fit for the cell of a table; nothing for no words."""
    return "`" + str(text).replace("|", "\\|") + "`" if str(text) else ""


def docstring(thing: Any) -> str:
    """An object's own docstring: an inherited one, and the signature of a dataclass, do not
    count."""
    own = vars(thing).get("__doc__") if inspect.isclass(thing) else getattr(thing, "__doc__", "")
    text = own or ""
    return "" if text.startswith(f"{getattr(thing, '__name__', '')}(") else inspect.cleandoc(text)


def first_sentence(text: str) -> str:
    """Up to the first full stop that ends a sentence."""
    return re.split(r"(?<=[.])\s", " ".join(text.split()), maxsplit=1)[0]


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are Markdown already."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def source(module: Any) -> Path:
    """The file of a module."""
    return Path(inspect.getfile(module))


def attribute_docstrings(cls: type) -> dict[str, str]:
    """The string that follows a field in the source of its class, by the field's name."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for field, after in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            found[field.target.id] = after.value.value
    return found
