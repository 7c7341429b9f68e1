"""The order of tests."""

from __future__ import annotations

import nested
import pytest
from warm_start import runpytest

pytest_plugins = ["pytester"]


@pytest.mark.tool
def test_the_longest_test_is_first_and_the_others_keep_their_order(
    pytester: pytest.Pytester,
) -> None:
    nested.prepare(pytester)
    for name in ("tests/test_b", "tests/test_compiled", "tests/a/test_c", "tests/test_d"):
        path = pytester.path / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("def test_it(): pass\n")
    arguments = ("--collect-only", "-q", "-p", "no:cacheprovider")
    plain, ordered = (
        [line for line in done.outlines if "::" in line]
        for done in (
            runpytest(pytester, *arguments),
            runpytest(pytester, *arguments, "-p", "scheduling"),
        )
    )
    first = "tests/test_compiled.py::test_it"
    assert plain.index(first) > 0
    assert ordered == [first, *(one for one in plain if one != first)]
