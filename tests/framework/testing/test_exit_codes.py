"""Exit code 1 is for verdicts: any other failure of a test has a code of its own."""

from __future__ import annotations

import errno

import pytest
from warm_start import runpytest

from fencepost import EnvironmentFailed, Inconclusive, UsageError, Violation
from fencepost.testing.exit_codes import code_of, decisive

pytest_plugins = ["pytester"]

SMALL = """
    import pytest
    from fencepost_kafka import kafka_shape

    @pytest.fixture
    def fencepost_shape():
        settings = {"min.insync.replicas": "1", "default.replication.factor": "1"}
        return kafka_shape(controllers=1, brokers=1, settings=settings)
"""
SIMULATED = "--fencepost-runtime=simulated"
ALONE = ("-p", "no:hypothesispytest", "-p", "no:cacheprovider")
FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("error", "in_body", "code"),
    [
        (Violation("x"), True, 1),
        (AssertionError("x"), True, 1),
        (pytest.fail.Exception("x"), True, 1),
        (AssertionError("x"), False, 4),
        (UsageError("x"), True, 2),
        (Inconclusive("x"), True, 3),
        (EnvironmentFailed("x"), False, 4),
        (FULL, True, 4),
        (PermissionError(errno.EACCES, "no"), True, 70),
        (RuntimeError("x"), True, 70),
        (KeyError("x"), False, 70),
    ],
)
def test_an_error_stands_for_one_exit_code(error: BaseException, in_body: bool, code: int) -> None:
    assert code_of(error, in_body) == code


def test_a_violation_decides_and_then_a_bug() -> None:
    assert decisive({70, 1, 4}) == 1
    assert decisive({4, 70, 3}) == 70
    assert decisive({3, 4}) == 4
    assert decisive({3}) == 3
    assert decisive(()) == 1


@pytest.mark.tool
def test_a_session_in_which_only_a_bug_failed_a_run_ends_with_70(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(SMALL)
    pytester.makepyfile("def test_it(cluster): {}['no']")
    alone = runpytest(pytester, SIMULATED, *ALONE)
    assert alone.ret == 70
    alone.stdout.fnmatch_lines(
        ["internal error: KeyError: 'no'. This is no verdict, but a bug *: report it with the*"]
    )
    pytester.makepyfile(test_other="def test_it(): assert False")
    assert runpytest(pytester, SIMULATED, *ALONE).ret == 1


@pytest.mark.tool
def test_the_code_of_a_failure_reaches_the_session_from_workers_of_xdist(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile("def test_it(cluster): pass")
    pytester.makeconftest(
        SMALL.replace("return", "raise RuntimeError('in a fixture')\n        return")
    )
    assert runpytest(pytester, SIMULATED, "-n", "1", *ALONE).ret == 70


@pytest.mark.tool
def test_tests_without_a_run_keep_the_codes_of_pytest(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(): {}['no']")
    assert runpytest(pytester, *ALONE).ret == 1
