"""Text to show: data that neither a terminal nor a browser obeys, and docstrings."""

from __future__ import annotations

import inspect
import json
import unicodedata
from collections.abc import Callable
from typing import Any

_OBEYED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of Unicode: control, format (marks of direction among them), lone surrogates, and two
separators at which some programs end a line."""


def printable(data: str) -> str:
    """The same text, with control characters and marks of direction as escapes (`\\x1b`).

    A terminal would obey them. Ends of lines and tabs stay.
    """
    return _escaped(data, lambda one: one.encode("unicode_escape").decode())


def printable_json(data: str) -> str:
    """The same JSON, with such characters as escapes of JSON (`\\u001b`)."""
    return _escaped(data, lambda one: json.dumps(one)[1:-1])


def docstring(thing: Any) -> str:
    """An object's own docstring: an inherited one, and the signature of a dataclass, do not
    count."""
    own = vars(thing).get("__doc__") if inspect.isclass(thing) else getattr(thing, "__doc__", "")
    text = own or ""
    return "" if text.startswith(f"{getattr(thing, '__name__', '')}(") else inspect.cleandoc(text)


def _escaped(data: str, escape: Callable[[str], str]) -> str:
    return "\n".join(
        line if line.isprintable() else "".join(_character(one, escape) for one in line)
        for line in data.split("\n")
    )


def _character(one: str, escape: Callable[[str], str]) -> str:
    return escape(one) if one != "\t" and unicodedata.category(one) in _OBEYED else one
