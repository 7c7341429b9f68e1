"""What the failures of a session of pytest come to: exit code 1 stands for verdicts only.

Pytest ends with 1 for any failed test. Fencepost tells apart why tests failed: `fencepost run`
always does, and a session of pytest does if every failed test had a run of its own.

Why a test failed is known where it ran, which is a worker under pytest-xdist. So it is noted on
the report of the test, which xdist sends to the session: no plugin of the session sees more of it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import msgspec
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
from fencepost.plugins.raising import by_plugin

_WEIGHT = (EXIT_VIOLATED, EXIT_INTERNAL, EXIT_USAGE, EXIT_ENVIRONMENT, EXIT_INCONCLUSIVE)
"""Which of several failures decides: a violation before all others."""
_FAILURE = "fencepost_failure"
"""The attribute of a report that holds its `Failure`, as plain data, which xdist sends with it."""
_RERUN = "rerun"
"""The outcome of a failed attempt after which pytest-rerunfailures begins another one."""
_TIMEOUT = "pytest_timeout"
"""The module of the plugin pytest-timeout."""
_PHASES = ("setup", "call", "teardown")
UNBEGUN = ("fencepost_unbegun", "True")
"""The property of a test's report that was not begun, since the budget had no time for it."""
NO_TIME = "the budget of the session had no time left"


@final
class Failure(msgspec.Struct, frozen=True):
    """Why a test failed.

    `own`: the test had a run of its own. `violated`: that run broke a promise, whatever the error
    of the test was.
    """

    code: int
    message: str
    own: bool
    violated: bool


def failure_of(item: pytest.Item, call: pytest.CallInfo[Any], *, violated: bool) -> Failure | None:
    """Why a part of a test failed; None if no error was raised."""
    if call.excinfo is None:
        return None
    error, in_body = call.excinfo.value, call.when == "call"
    # A promise that the run broke outweighs the error of the test, which may only have followed
    # from it.
    if violated:
        code = EXIT_VIOLATED
    elif in_body and is_timeout(call.excinfo):
        code = EXIT_INCONCLUSIVE
    else:
        code = code_of(error, in_body)
    if code == EXIT_INTERNAL and (failed := by_plugin(error)) is not None:
        error, code = failed, failed.exit_code
    ours = isinstance(error, FencepostError | Violation)
    return Failure(
        code=code,
        message=str(error) if ours else f"{item.nodeid}: {call.excinfo.exconly()}",
        own="fencepost_run" in getattr(item, "fixturenames", ()),
        violated=violated,
    )


def is_timeout(raised: pytest.ExceptionInfo[BaseException]) -> bool:
    """Whether it is pytest-timeout that ended the test.

    It does so by `pytest.fail`, as a test may itself. So the module that called this tells.
    """
    if not isinstance(raised.value, pytest.fail.Exception):
        return False
    return any(entry.frame.f_globals.get("__name__") == _TIMEOUT for entry in raised.traceback)


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


def uncollected(call: pytest.CallInfo[Any], nodeid: str) -> Failure:
    """Why the tests of a file are not known: it cannot be imported, or what it says is wrong."""
    assert call.excinfo is not None
    error = call.excinfo.value
    cause = error.__cause__ if isinstance(error, pytest.Collector.CollectError) else None
    said = ": ".join(filter(None, (type(cause or error).__name__, *_first_line(cause or error))))
    return Failure(EXIT_USAGE, f"{nodeid} cannot be collected: {said}", own=False, violated=False)


def _first_line(error: BaseException) -> Sequence[str]:
    return str(error).splitlines()[:1]


def uncollected_in(report: pytest.CollectReport) -> str:
    """The sentence that was noted on the report of what could not be collected."""
    noted = report.__dict__.get(_FAILURE)
    if noted is None:
        return f"{report.nodeid} cannot be collected"
    return msgspec.convert(noted, Failure).message


def note(report: pytest.TestReport | pytest.CollectReport, failure: Failure) -> None:
    """Notes on a report why the test failed, or could not be collected."""
    report.__dict__[_FAILURE] = msgspec.to_builtins(failure)


def failure_in(report: pytest.TestReport) -> Failure | None:
    """What was noted on the report of a test that failed; None if it did not fail.

    A failed attempt that is followed by another one is no failure, unless it broke a promise: no
    later attempt undoes that. The simulator would repeat it, and on processes a promise that is
    broken now and then is broken.
    """
    noted = report.__dict__.get(_FAILURE)
    failure = None if noted is None else msgspec.convert(noted, Failure)
    if report.outcome == _RERUN:
        return failure if failure is not None and failure.violated else None
    if not report.failed:
        return None
    if failure is None and report.when not in _PHASES:
        # Of xdist: the worker that ran the test ended before it could report anything.
        return Failure(EXIT_ENVIRONMENT, report.longreprtext, own=False, violated=False)
    return failure or Failure(EXIT_VIOLATED, report.longreprtext, own=False, violated=False)


def is_unbegun(report: pytest.TestReport) -> bool:
    """Whether a test was skipped since the session's budget had no time for it."""
    return report.skipped and UNBEGUN in map(tuple, report.user_properties)


@final
@dataclass(eq=False)
class SessionCode:
    """A plugin of pytest that sets the exit code of the session."""

    codes: set[int] = field(default_factory=set)
    overtaken: list[str] = field(default_factory=list)
    """The tests of which an attempt broke a promise before another attempt."""
    unbegun: list[str] = field(default_factory=list)
    """The tests for which the session's budget had no time."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if is_unbegun(report):
            self.unbegun.append(report.nodeid)
            self.codes.add(EXIT_INCONCLUSIVE)
        failure = failure_in(report)
        if failure is not None:
            # A test without a run is the project's own: it fails with 1, as pytest would have it.
            self.codes.add(failure.code if failure.own else EXIT_VIOLATED)
            if report.outcome == _RERUN:
                self.overtaken.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.codes.add(EXIT_USAGE)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        failed = exitstatus == pytest.ExitCode.TESTS_FAILED
        # Only these two ends are decided here: a usage error, or an interrupt, keeps pytest's own
        # code.
        unsaid = self.overtaken or self.unbegun
        if failed or (exitstatus == pytest.ExitCode.OK and unsaid):
            session.exitstatus = decisive(self.codes)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for nodeid in dict.fromkeys(self.overtaken):
            terminalreporter.write_line(
                f"fencepost: {nodeid}: an attempt broke a promise, which no rerun undoes",
                yellow=True,
            )
        if self.unbegun:
            first, number = self.unbegun[0], len(self.unbegun)
            tests = "test was" if number == 1 else "tests were"
            terminalreporter.write_line(
                f"fencepost: {number} {tests} not begun, from {first} on: {NO_TIME}", yellow=True
            )
