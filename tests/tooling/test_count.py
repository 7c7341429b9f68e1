"""Lines of code are counted without what is no code."""

from __future__ import annotations

import pytest
from tests.tooling.count import Lines, counted


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", Lines(0, 0)),
        ('"""What it is."""\n\nx = 1\n', Lines(1, 0)),
        ("x = [\n    1,\n\n    2,  # why\n]\n# more\n", Lines(4, 2)),
        ('def f() -> str:\n    """It says.\n\n    More."""\n    return """a\nb"""\n', Lines(3, 0)),
        ('class A:\n    x: int\n    """The field."""\n', Lines(2, 0)),
        ("import os  # noqa: F401\n# ----- a ruler\n", Lines(1, 0)),
    ],
)
def test_what_is_counted(text: str, lines: Lines) -> None:
    assert counted(text) == lines
