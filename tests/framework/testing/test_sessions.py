"""Sessions of pytest: what deselected tests name, and what the summary says."""

from __future__ import annotations

import pytest
from warm_start import runpytest

pytestmark = pytest.mark.tool

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


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    left_out = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    return runpytest(pytester, *left_out, *args)


def test_an_unknown_clause_of_a_deselected_test_refuses_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.clause("NO-SUCH-1")
        def test_unknown(cluster):
            pass

        def test_it():
            pass
        """
    )
    run(pytester, "-k", "test_it").assert_outcomes(passed=1, deselected=1)
    assert run(pytester).ret == pytest.ExitCode.USAGE_ERROR


def test_a_stall_of_the_harness_is_named_in_the_summary(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(SMALL)
    pytester.makepyfile(
        """
        from fencepost import Condition, Stalled

        def test_it(fencepost_run):
            runtime, never = fencepost_run.runtime, Condition("nothing", lambda view: False)
            runtime.advance(never, runtime.now_ns() + 10_000_000_000)
            fencepost_run.record(Stalled(stalled_ns=10_000_000_000))
        """
    )
    result = run(pytester, SIMULATED)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["fencepost: *::test_it: this machine stalled: the harness did not run for 10.0 s*"]
    )


def test_a_system_that_does_not_start_says_so_once_and_not_for_each_test(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        """
        import pytest
        from fencepost_kafka import kafka_shape

        @pytest.fixture
        def fencepost_shape():
            never = {"controller.quorum.election.timeout.ms": "600000"}
            return kafka_shape(brokers=1, settings=never)

        @pytest.mark.parametrize("number", range(9))
        def test_one(cluster, number):
            pass
        """
    )
    result = run(pytester, SIMULATED)
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["*reference/quorum did not start 2 times*"])
    assert result.ret == 4
