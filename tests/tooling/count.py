"""Counts lines of code and of comments: `./dev count`.

A line of code has something on it besides blanks, comments and docstrings. A comment line has a
comment, alone or behind code; what a tool reads, such as `# noqa`, is none.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

SOURCES = ("framework", "plugins", "clusters", "suites", "reports")
_NOTHING = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT}
_FOR_TOOLS = re.compile(r"#\s*(noqa|type:|fmt:|pragma|ruff:|!|-{5,})")


class Lines(NamedTuple):
    """How many lines of each sort."""

    code: int
    comments: int

    def __add__(self, other: object) -> Lines:
        assert isinstance(other, Lines)
        return Lines(self.code + other.code, self.comments + other.comments)


def counted(text: str) -> Lines:
    """The lines of one module."""
    docstrings = set(_docstrings(ast.parse(text)))
    code: set[int] = set()
    comments: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not _FOR_TOOLS.match(token.string):
            comments.add(token.start[0])
        elif token.type not in _NOTHING and token.type != tokenize.ENDMARKER:
            code.update(range(token.start[0], token.end[0] + 1))
    return Lines(len(code - docstrings), len(comments))


def _docstrings(tree: ast.AST) -> Iterator[int]:
    """The lines of every string that stands alone: of a module, a class, a function or a field."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            assert node.end_lineno is not None
            yield from range(node.lineno, node.end_lineno + 1)


def total(folders: Iterable[Path]) -> Lines:
    """The lines of every module below these folders."""
    paths = sorted(path for folder in folders for path in folder.rglob("*.py"))
    return sum((counted(path.read_text("utf-8")) for path in paths), Lines(0, 0))


def main(root: Path) -> None:
    """Prints the figures of the sources and of the tests."""
    for name, folders in (("sources", SOURCES), ("tests", ("tests",))):
        lines = total(root / folder for folder in folders)
        print(f"{name}: {lines.code:,} lines of code, {lines.comments:,} with a comment")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd())
