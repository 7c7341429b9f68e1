"""Pytest on the suites or on a user's tests, with Fencepost's exit codes and each run's result."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Generator
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from traceback import walk_tb
from typing import Literal, final

import pytest

from fencepost.history.run_folder import RunFolder
from fencepost.model.errors import (
    EXIT_CLEAN,
    EXIT_ENVIRONMENT,
    EXIT_INCONCLUSIVE,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    EXIT_VIOLATED,
    FencepostError,
    Violation,
)
from fencepost.model.system.capabilities import HasSuite, System
from fencepost.testing.pytest_plugin import clauses_of, folder_of

SUITES = "fencepost_suites"
"""The tests of a system that has none of its own."""
_WEIGHT = (EXIT_VIOLATED, EXIT_USAGE, EXIT_ENVIRONMENT, EXIT_INCONCLUSIVE)
"""Which of several failures decides the exit code: a violation before all others."""


@final
@dataclass(frozen=True, slots=True)
class Wanted:
    """The system under test and its options. `clauses`: only tests marked with one of them (empty:
    all)."""

    system: str
    runtime: str
    out: Path
    _: KW_ONLY
    seed: int | None = None
    defects: tuple[str, ...] = ()
    clauses: frozenset[str] = frozenset()
    workload: str = ""
    suite: str = SUITES
    """The package of the tests that run when no path is given."""


def suite_of(system: System) -> str:
    """The package of the system's own tests, or of the suites."""
    return system.suite if isinstance(system, HasSuite) else SUITES


@final
@dataclass(frozen=True, slots=True)
class Ran:
    """A test that had a run of its own."""

    nodeid: str
    outcome: Literal["passed", "failed", "skipped"]
    folder: RunFolder


@final
@dataclass(eq=False)
class ResultCollector:
    """Collects the outcome of each test, and its reason; `stop_when` may end the session after a
    test, and `report` gets a line for each one that ended.

    Pytest may keep its plugins in sets, so two collectors must not be equal.
    """

    clauses: frozenset[str] = frozenset()
    stop_when: Callable[[Ran], bool] = lambda ran: False
    report: Callable[[str], None] = lambda line: None
    tests: list[dict[str, object]] = field(default_factory=list)
    codes: dict[int, str] = field(default_factory=dict)
    """The exit codes of the failures, each with the message of the first."""
    runs: list[Ran] = field(default_factory=list)
    interrupted: bool = False
    """Whether the session was interrupted, other than by `stop_when`."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.clauses:
            items[:] = [item for item in items if self.clauses & set(clauses_of(item))]

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        # The exception that ends a session is of the same family.
        self.interrupted = not isinstance(excinfo.value, pytest.Session.Interrupted)
        # Python may be interrupted in code without a line number, which pytest cannot print.
        lines = zip(excinfo.traceback, walk_tb(excinfo.tb), strict=True)
        excinfo.traceback = excinfo.traceback.filter(
            {entry for entry, (_, line) in lines if line is not None}.__contains__
        )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.excinfo is not None and report.failed:
            error = call.excinfo.value
            if isinstance(error, (FencepostError, Violation)):
                self.codes.setdefault(error.exit_code, str(error))
            else:
                blamed = EXIT_VIOLATED if report.when == "call" else EXIT_ENVIRONMENT
                self.codes.setdefault(blamed, f"{item.nodeid}: {call.excinfo.exconly()}")
        if report.when == "call" or report.outcome != "passed":
            lines = dict(report.sections).get("fencepost", "")
            self.tests.append(
                {"test": item.nodeid, "outcome": report.outcome, "seconds": report.duration}
                | ({"again": lines} if lines else {})
            )
            self.report(f"  {item.nodeid}: {report.outcome}")
        folder = folder_of(item)
        if report.when == "call" and folder is not None:
            ran = Ran(item.nodeid, report.outcome, folder)
            self.runs.append(ran)
            if self.stop_when(ran):
                item.session.shouldstop = "found"
        return report


def listen_quietly(wanted: Wanted, results: ResultCollector) -> int:
    """Runs the suites without pytest's own output; returns its exit code.

    Raises KeyboardInterrupt when it is interrupted, as any other command.
    """
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        # Only the sentence of a failure is read. Warnings about resources left open concern the
        # caller.
        options = ("-p", "no:cacheprovider", "-p", "no:unraisableexception", "--tb=no")
        ended = listen(None, wanted, results, *options)
    if results.interrupted:
        raise KeyboardInterrupt
    return ended


def run_tests(path: str | None, wanted: Wanted, quiet: bool) -> tuple[int, ResultCollector]:
    """Runs the tests at `path`, or the suites; returns the exit code and the outcome of each test.

    `quiet` sends pytest's own output to standard error.
    """
    results = ResultCollector(wanted.clauses)
    stdout = sys.stdout
    if quiet:
        sys.stdout = sys.stderr
    try:
        ended = listen(path, wanted, results)
    finally:
        sys.stdout = stdout
    return _code(ended, results), results


def listen(path: str | None, wanted: Wanted, results: ResultCollector, *options: str) -> int:
    """Runs the tests at `path`, or the suites, with `results` as a plugin; returns pytest's exit
    code."""
    arguments = [path] if path is not None else ["--pyargs", wanted.suite]
    arguments += [
        # The command line has imported the plugin already; pytest rewrites the assertions of tests
        # only.
        "--override-ini=filterwarnings=default",
        "-Wignore::pytest.PytestAssertRewriteWarning",
        f"--fencepost-system={wanted.system}",
        f"--fencepost-runtime={wanted.runtime}",
        f"--fencepost-out={wanted.out.absolute()}",
        f"--fencepost-defects={','.join(wanted.defects)}",
        f"--fencepost-workload={wanted.workload}",
        *options,
    ]
    if wanted.seed is not None:
        arguments.append(f"--fencepost-seed={wanted.seed}")
    return int(pytest.main(arguments, plugins=[results]))


def _code(ended: int, results: ResultCollector) -> int:
    match ended:
        case pytest.ExitCode.OK:
            return EXIT_CLEAN
        case pytest.ExitCode.INTERRUPTED:
            return EXIT_INTERRUPTED
        case pytest.ExitCode.TESTS_FAILED:
            return next((code for code in _WEIGHT if code in results.codes), EXIT_VIOLATED)
        case pytest.ExitCode.USAGE_ERROR | pytest.ExitCode.NO_TESTS_COLLECTED:
            return EXIT_USAGE
        case _:
            return EXIT_ENVIRONMENT
