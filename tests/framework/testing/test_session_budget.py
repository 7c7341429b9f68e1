"""A session with a budget: no test begins that may not end in time, and that decides nothing."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest
from warm_start import fencepost, runpytest

pytestmark = pytest.mark.tool

pytest_plugins = ["pytester"]

SLOW = """
    import threading
    import pytest

    @pytest.mark.parametrize("number", range(4))
    def test_slow(number):
        threading.Event().wait(0.4)
        assert number != {fails}
"""
LEFT_OUT = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
SHORT = "0.5s"
"""Not enough for the second test of 0.4 s, wherever in it the first one begins."""


@pytest.mark.parametrize("more", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_no_test_begins_that_may_not_end_in_time(
    pytester: pytest.Pytester, more: tuple[str, ...]
) -> None:
    pytester.makepyfile(SLOW.format(fails=9))
    result = runpytest(pytester, *LEFT_OUT, f"--fencepost-budget={SHORT}", *more)
    result.assert_outcomes(passed=1, skipped=3)
    assert result.ret == 3
    said = "the budget of the session had no time left"
    result.stdout.fnmatch_lines(
        [f"fencepost: 3 tests were not begun, from *::test_slow?1? on: {said}"]
    )
    whole = runpytest(pytester, *LEFT_OUT, "--fencepost-budget=1h", *more)
    whole.assert_outcomes(passed=4)
    assert whole.ret == 0


def test_a_failure_outweighs_what_was_not_begun(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SLOW.format(fails=0))
    result = runpytest(pytester, *LEFT_OUT, f"--fencepost-budget={SHORT}")
    result.assert_outcomes(failed=1, skipped=3)
    assert result.ret == 1


def test_another_attempt_at_a_test_is_part_of_it(pytester: pytest.Pytester) -> None:
    """If the budget had no time for it, a test that failed would look as if it was skipped."""
    pytester.makepyfile(SLOW.format(fails=0))
    again = ("-p", "rerunfailures", "--reruns=1")
    result = runpytest(pytester, *LEFT_OUT, *again, f"--fencepost-budget={SHORT}")
    outcomes = result.parseoutcomes()
    assert {**outcomes, "failed": 1, "rerun": 1, "skipped": 3} == outcomes
    assert result.ret == 1


def test_run_says_what_was_not_begun(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(dedent(SLOW.format(fails=9)))
    words = ("run", "test_it.py", "--runtime", "simulated", "--budget", SHORT)
    ended = fencepost(*words, folder=tmp_path)
    assert ended.returncode == 3, ended.stdout + ended.stderr
    last = ended.stdout.splitlines()[-2:]
    assert last[0].startswith("3 tests were not begun, since --budget had no time: test_it.py::")
    assert last[1] == "3 tests not begun: exit code 3"
    assert fencepost(*words[:-2], folder=tmp_path).returncode == 0
    told = json.loads(fencepost(*words, "--json", folder=tmp_path).stdout)
    assert (told["exit_code"], len(told["not_begun"])) == (3, 3)
    assert [one["outcome"] for one in told["tests"]] == ["passed", *["not begun"] * 3]


@pytest.mark.parametrize("words", [("run", "--budget=20"), ("run", "--", "--fencepost-budget=20")])
def test_a_time_that_is_none_is_refused(words: tuple[str, ...], tmp_path: Path) -> None:
    ended = fencepost(*words, folder=tmp_path)
    assert ended.returncode == 2
    assert "is no time such as 90s, 20m or 2h" in ended.stdout + ended.stderr
