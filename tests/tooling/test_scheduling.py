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


@pytest.mark.tool
def test_a_worker_that_dies_late_leaves_every_test_to_others(pytester: pytest.Pytester) -> None:
    """Once a session waited for good here: it gave the files that the dead worker had finished to
    the living ones, and each of these waited for a second test to come."""
    nested.prepare(pytester)
    finished = "".join(f"def test_{number}(): pass\n" for number in range(20))
    dies = "import os, pathlib\ndef test_last():\n    here = pathlib.Path('died')\n"
    dies += "    if not here.exists():\n        here.touch(); os.abort()\n"
    path = pytester.path / "suites" / "test_alone.py"
    path.parent.mkdir()
    path.write_text(finished + dies)
    done = runpytest(
        pytester, "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider", "-p", "scheduling"
    )
    done.assert_outcomes(passed=21, failed=1)
