"""Markdown from docstrings, signatures and source."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Sequence
from functools import cache
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


def first_sentence(text: str) -> str:
    """Up to the first full stop that ends a sentence."""
    return re.split(r"(?<=[.])\s", " ".join(text.split()), maxsplit=1)[0]


def first_paragraph(text: str) -> str:
    """Up to the first empty line, in one line."""
    return " ".join(text.strip().split("\n\n", maxsplit=1)[0].split())


def signature(function: Any) -> str:
    """A function's parameters and result as they are written, without `self`."""
    found = inspect.signature(function, eval_str=False)
    parameters = [
        p.replace(annotation=_annotation(p.annotation), default=_default(p.default))
        for p in found.parameters.values()
        if p.name not in {"self", "cls"}
    ]
    returned = found.return_annotation
    result = "" if returned in (found.empty, "None") else f" -> {returned}"
    return f"{found.replace(parameters=parameters, return_annotation=found.empty)}{result}"


def _annotation(words: Any) -> Any:
    return words if words is inspect.Parameter.empty else _AsWritten(str(words))


def _default(value: Any) -> Any:
    return _AsWritten(value.__name__) if inspect.isroutine(value) else value


class _AsWritten:
    """Words that are shown without quotation marks."""

    def __init__(self, words: str) -> None:
        self._words = words

    def __repr__(self) -> str:
        return self._words


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are Markdown already."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def source(module: Any) -> Path:
    """The file of a module."""
    return Path(inspect.getfile(module))


@cache
def class_source(cls: type) -> ast.ClassDef:
    """The definition of a class."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    return body


def attribute_docstrings(cls: type) -> dict[str, str]:
    """The string that follows a field in the source of its class, by the field's name."""
    body = class_source(cls)
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
