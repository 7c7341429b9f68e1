"""What the failures of a session of pytest come to: exit code 1 stands for verdicts only.

Pytest ends with 1 for any failed test. Fencepost tells apart why tests failed: `fencepost run`
always does, and a session of pytest does if every failed test had a run of its own.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import final

import pytest

from fencepost.model.disk import disk_failure
from fencepost.model.errors import (
    EXIT_ENVIRONMENT,
    EXIT_INCONCLUSIVE,
    EXIT_INTERNAL,
    EXIT_USAGE,
    EXIT_VIOLATED,
    FencepostError,
    Violation,
)

_WEIGHT = (EXIT_VIOLATED, EXIT_INTERNAL, EXIT_USAGE, EXIT_ENVIRONMENT, EXIT_INCONCLUSIVE)
"""Which of several failures decides: a violation before all others."""
_FAILED_AS = "fencepost_failed_as"
"""The attribute of a report that holds the exit code; xdist sends it with the report."""


def code_of(error: BaseException, in_body: bool) -> int:
    """The exit code that an error of a test stands for.

    A failed assertion is the test's own verdict, if it is `in_body`. An assertion of a fixture is a
    failed environment.
    """
    if isinstance(error, FencepostError | Violation):
        return error.exit_code
    if isinstance(error, AssertionError | pytest.fail.Exception):
        return EXIT_VIOLATED if in_body else EXIT_ENVIRONMENT
    if isinstance(error, OSError) and disk_failure(error) is not None:
        return EXIT_ENVIRONMENT
    return EXIT_INTERNAL


def decisive(codes: Collection[int]) -> int:
    """The exit code of a session with failures of these codes; 1 if none is known."""
    return next((code for code in _WEIGHT if code in codes), EXIT_VIOLATED)


def note_code(report: pytest.TestReport, code: int) -> None:
    """Notes why a test with a run of its own failed."""
    report.__dict__[_FAILED_AS] = code


@final
@dataclass(eq=False)
class SessionCode:
    """A plugin of pytest that sets the exit code of the session."""

    codes: set[int] = field(default_factory=set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.codes.add(report.__dict__.get(_FAILED_AS, EXIT_VIOLATED))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.codes.add(EXIT_VIOLATED)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.TESTS_FAILED:
            session.exitstatus = decisive(self.codes)
