"""A weakness that a project knows: an expected failure, which must go on failing."""

from __future__ import annotations

from pathlib import Path

import pytest
from warm_start import fencepost, runpytest

from fencepost.testing.test_run import ResultCollector

pytestmark = pytest.mark.tool
pytest_plugins = ["pytester"]

SOURCE = Path(__file__).with_name("known_weakness.py")


@pytest.mark.parametrize(
    ("defects", "outcome", "code"),
    [("serves-without-lease", {"xfailed": 1}, 0), ("", {"failed": 1}, 1)],
    ids=["still there", "mended"],
)
def test_a_known_weakness_is_expected_until_it_is_mended(
    pytester: pytest.Pytester, defects: str, outcome: dict[str, int], code: int
) -> None:
    pytester.makepyfile(test_it=SOURCE.read_text())
    pytester.makeconftest("import sys; sys.modules['hypothesis'] = None")
    left_out = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    options = ("--fencepost-runtime=simulated", "--fencepost-seed=7")
    ran = runpytest(pytester, *left_out, *options, f"--fencepost-defects={defects}")
    ran.assert_outcomes(**outcome)
    assert ran.ret == code


def test_a_test_that_fails_as_expected_was_not_skipped() -> None:
    found = ResultCollector()
    report = pytest.TestReport(
        nodeid="test_it",
        location=("test_it.py", 1, "test_it"),
        keywords={},
        outcome="skipped",
        longrepr=None,
        when="call",
    )
    report.wasxfail = "it serves without a lease"
    found.pytest_runtest_logreport(report)
    assert [one["outcome"] for one in found.tests] == ["xfailed"]


def test_a_run_says_which_violation_is_expected_and_by_which_test(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(test_it=SOURCE.read_text())
    pytester.makeconftest("import sys; sys.modules['hypothesis'] = None")
    options = ("--runtime=simulated", "--seed=7", "--defects=serves-without-lease")
    of_pytest = ("--", "-p", "no:hypothesispytest")
    ran = fencepost("run", *options, "test_it.py", *of_pytest, folder=pytester.path)
    assert ran.returncode == 0
    pytest.LineMatcher(ran.stdout.splitlines()).fnmatch_lines(
        [
            "expected: QC-17 is violated in test_it.py::test_a_cut_off_broker_serves_no_client",
            "1 clause violated as expected: exit code 0",
        ]
    )
