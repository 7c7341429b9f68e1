"""Data as text that nothing obeys: neither a terminal nor a browser."""

from __future__ import annotations

import unicodedata

_OBEYED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of Unicode: control, format (marks of direction among them), lone surrogates, and the
two separators that end a line for some programs only."""


def printable(data: str) -> str:
    """The same text, with control characters and marks of direction as escapes (`\\x1b`).

    A terminal would obey them. Ends of lines and tabs stay.
    """
    if data.isascii() and data.isprintable():
        return data
    return "".join(
        character
        if character in "\n\t" or unicodedata.category(character) not in _OBEYED
        else character.encode("unicode_escape").decode()
        for character in data
    )
