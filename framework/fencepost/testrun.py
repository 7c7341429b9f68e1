"""`fencepost run`: pytest on the suites or on somebody's tests, with our exit codes."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

import pytest

from fencepost.errors import (
    EXIT_CLEAN,
    EXIT_ENVIRONMENT,
    EXIT_INCONCLUSIVE,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    EXIT_VIOLATED,
    FencepostError,
)

SUITES = "fencepost_suites"
_WEIGHT = (EXIT_VIOLATED, EXIT_USAGE, EXIT_ENVIRONMENT, EXIT_INCONCLUSIVE)
"""Which of several failures the exit code tells: a broken promise before all."""


@final
@dataclass
class _Outcomes:
    """Hears what became of each test, and why."""

    tests: list[dict[str, object]] = field(default_factory=list)
    codes: set[int] = field(default_factory=set)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.excinfo is not None and report.failed:
            error = call.excinfo.value
            code = error.exit_code if isinstance(error, FencepostError) else EXIT_VIOLATED
            self.codes.add(code if report.when == "call" else getattr(error, "exit_code", 4))
        if report.when == "call" or report.outcome != "passed":
            lines = dict(report.sections).get("fencepost", "")
            self.tests.append(
                {"test": item.nodeid, "outcome": report.outcome, "seconds": report.duration}
                | ({"again": lines} if lines else {})
            )
        return report


def run_tests(
    path: str | None,
    system: str,
    runtime: str,
    seed: int | None,
    out: Path,
    quiet: bool,
) -> tuple[int, Mapping[str, object]]:
    """Runs the tests at `path`, or the suites; the exit code, and what became of each test.

    `quiet` sends pytest's own words to standard error.
    """
    arguments = [path] if path is not None else ["--pyargs", SUITES]
    arguments += [
        # The command line has imported us already; pytest rewrites the tests' assertions only.
        "--override-ini=filterwarnings=default",
        "-Wignore::pytest.PytestAssertRewriteWarning",
        f"--fencepost-system={system}",
        f"--fencepost-runtime={runtime}",
        f"--fencepost-out={out.absolute()}",
    ]
    if seed is not None:
        arguments.append(f"--fencepost-seed={seed}")
    heard = _Outcomes()
    stdout = sys.stdout
    if quiet:
        sys.stdout = sys.stderr
    try:
        ended = pytest.main(arguments, plugins=[heard])
    finally:
        sys.stdout = stdout
    return _code(ended, heard), {"exit_code": _code(ended, heard), "tests": heard.tests}


def _code(ended: int, heard: _Outcomes) -> int:
    match ended:
        case pytest.ExitCode.OK:
            return EXIT_CLEAN
        case pytest.ExitCode.INTERRUPTED:
            return EXIT_INTERRUPTED
        case pytest.ExitCode.TESTS_FAILED:
            return next((code for code in _WEIGHT if code in heard.codes), EXIT_VIOLATED)
        case pytest.ExitCode.USAGE_ERROR | pytest.ExitCode.NO_TESTS_COLLECTED:
            return EXIT_USAGE
        case _:
            return EXIT_ENVIRONMENT
