"""Data as text that nothing obeys: neither a terminal nor a browser."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable

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


def _escaped(data: str, escape: Callable[[str], str]) -> str:
    return "\n".join(
        line if line.isprintable() else "".join(_character(one, escape) for one in line)
        for line in data.split("\n")
    )


def _character(one: str, escape: Callable[[str], str]) -> str:
    return escape(one) if one != "\t" and unicodedata.category(one) in _OBEYED else one
