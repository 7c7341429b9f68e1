"""Pytest on the suites or on a user's tests, with Fencepost's exit codes and each run's result."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from traceback import walk_tb
from typing import Literal, final

import pytest

from fencepost.history.run_folder import RunFolder
from fencepost.model.errors import (
    EXIT_CLEAN,
    EXIT_INCONCLUSIVE,
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    UsageError,
)
from fencepost.model.system.capabilities import HasSuite, System
from fencepost.model.system.shape import DEFAULT_SHAPE, Shape, options_of
from fencepost.plugins.manager import Plugins
from fencepost.testing.exit_codes import decisive, failure_in, is_unbegun, uncollected_in
from fencepost.testing.pytest_plugin import REFUSED, SUITE, clauses_of, folder_in, prepare

SUITES = "fencepost_suites"
"""The tests of a system that has none of its own."""
_PROMISES = SUITES
"""The package whose clauses those tests are about."""
_XDIST = "xdist.dsession"
"""The module whose error ends a session of xdist early: at an interrupt, and at `--maxfail`."""


@final
@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of a session of pytest. For an option that is not given, pytest decides: by the
    environment, the ini file, pyproject.toml or the default."""

    system: str | None = None
    runtime: str | None = None
    out: Path | None = None
    _: KW_ONLY
    seed: int | str | None = None
    """A number, or `last`."""
    shape: Shape = DEFAULT_SHAPE
    """Of the clusters, but for what a test asks for itself."""
    clauses: frozenset[str] = frozenset()
    """Only tests marked with one of them; empty: all."""
    workload: str = ""
    tests: tuple[str, ...] = ()
    """Files, folders or node ids; none: the suite."""
    options: tuple[str, ...] = ()
    """Further words of pytest's command line."""
    budget: str = ""
    """The time that the tests may take, such as 20m; empty: any."""
    image: str = ""
    """`SYSTEM=IMAGE`: the image in which the system's nodes run; empty: none of somebody else's."""
    suite: str = ""
    """The package of the tests that run when no path is given; empty: that of the system."""


def suite_of(system: System) -> str:
    """The package of the system's own tests, or of the suites."""
    return system.suite if isinstance(system, HasSuite) else SUITES


def check_suite(system: System, plugins: Plugins, command: str) -> None:
    """Raises UsageError for a system without tests of its own that makes no promise of the suites'
    documents: their tests would not fit it. A clause about a vocabulary, such as what clients of
    any log expect, is no such promise."""
    promises = [one for one in plugins.clauses_of(_PROMISES) if not one.vocabulary]
    if isinstance(system, HasSuite) or any(one.binds(system.plane) for one in promises):
        return
    raise UsageError(
        f"there are no suites for {system.name}: name your tests, such as "
        f"`fencepost {command} tests`"
    )


@final
@dataclass(frozen=True, slots=True)
class Chosen:
    """What the settings of a session chose, and the plugins that offer it."""

    system: System
    runtime: str
    plugins: Plugins


@final
@dataclass(frozen=True, slots=True)
class Ran:
    """A test that had a run of its own."""

    nodeid: str
    outcome: Literal["passed", "failed", "skipped", "rerun"]
    """`rerun`: it failed, and pytest-rerunfailures began another attempt."""
    folder: RunFolder
    expected: bool = False
    """Whether the test failed as it was expected to (`xfail`), so that pytest counts no failure."""


@final
@dataclass(eq=False)
class ResultCollector:
    """Collects the outcome of each test, and its reason; `stop_when` may end the session after a
    test, and `report` gets a line for each one that ended.

    It reads reports only, so that it sees a test that ran in a worker of xdist, too. Pytest may
    keep its plugins in sets, so two collectors must not be equal.
    """

    clauses: frozenset[str] = frozenset()
    stop_when: Callable[[Ran], bool] = lambda ran: False
    report: Callable[[str], None] = lambda line: None
    load: Callable[[str], Plugins] | None = None
    """Loads the plugins within the session, so that pytest rewrites the assertions of modules that
    they import. None: they are loaded already."""
    chosen: Chosen | None = None
    """What the session's settings chose, if it loaded the plugins."""
    tests: list[dict[str, object]] = field(default_factory=list)
    codes: dict[int, str] = field(default_factory=dict)
    """The exit codes of the failures, each with the message of the first."""
    runs: list[Ran] = field(default_factory=list)
    unbegun: list[str] = field(default_factory=list)
    """The tests for which the session's budget had no time."""
    interrupted: bool = False
    """Whether the session was interrupted, other than by `stop_when`."""
    uncollected: dict[str, str] = field(default_factory=dict)
    """What could not be collected -> why, in one sentence."""
    paths: dict[str, Path] = field(default_factory=dict)
    """The file of each test that was collected here; xdist's are collected in its workers."""
    refused: str = ""
    """Why workers of xdist ran no test, in words that the session's own output has, too."""
    ended: int | None = None
    """Pytest's own exit code, once the session has ended."""
    _session: pytest.Session | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> None:
        """Raises UsageError, NotApplicable or EnvironmentFailed, out of pytest, for a system, a
        runtime, a workload or a cluster that does not exist or cannot be used here, and UsageError
        for a system without a suite if no tests were named."""
        if self.load is None:
            return
        settings, plugins = prepare(config, self.load)
        system = plugins.system(settings.system)
        self.chosen = Chosen(system, settings.runtime, plugins)
        if config.args == [SUITES]:
            check_suite(system, plugins, "run")
            config.args = [suite_of(system)]
            config.stash[SUITE] = suite_of(system)  # a worker of xdist reads the words anew

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.clauses:
            replaced = self.chosen.plugins.replaced if self.chosen else {}
            items[:] = [i for i in items if self.clauses & set(clauses_of(i, replaced))]
        self.paths |= {item.nodeid: item.path for item in items}

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        self.ended = int(exitstatus)
        self.refused = session.config.stash.get(REFUSED, "")

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        # The exceptions that end a session are of the same family.
        stopped = isinstance(excinfo.value, pytest.Session.Interrupted)
        # xdist ends a session at the first failure by the same exception as at an interrupt. A
        # failure before it tells the two apart.
        failed = excinfo.type.__module__ == _XDIST and bool(self.codes)
        self.interrupted = not (stopped or failed)
        # Python may be interrupted in code without a line number, which pytest cannot print.
        lines = zip(excinfo.traceback, walk_tb(excinfo.tb), strict=True)
        excinfo.traceback = excinfo.traceback.filter(
            {entry for entry, (_, line) in lines if line is not None}.__contains__
        )

    def place_of(self, nodeid: str) -> str:
        """The words that name a test of this session in any folder: a node id begins at pytest's
        root directory, or at the folder of a package."""
        path = self.paths.get(nodeid)
        return nodeid if path is None else "::".join((str(path), *nodeid.split("::")[1:]))

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            why = self.uncollected.setdefault(report.nodeid, uncollected_in(report))
            self.codes.setdefault(EXIT_USAGE, why)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if (failure := failure_in(report)) is not None:
            self.codes.setdefault(failure.code, failure.message)
        if unbegun := is_unbegun(report):
            self.unbegun.append(report.nodeid)
        # A test has three reports. That of its call counts; those of its set-up and teardown only
        # if they failed or skipped it.
        expected = report.skipped and hasattr(report, "wasxfail")
        if report.when == "call" or report.outcome != "passed":
            lines = dict(report.sections).get("fencepost", "")
            outcome = "xfailed" if expected else "not begun" if unbegun else report.outcome
            self.tests.append(
                {"test": report.nodeid, "outcome": outcome, "seconds": report.duration}
                | ({"again": lines} if lines else {})
            )
            self.report(f"  {report.nodeid}: {outcome}")
        folder = folder_in(report)
        if report.when == "call" and folder is not None:
            ran = Ran(report.nodeid, report.outcome, folder, expected)
            self.runs.append(ran)
            # Pytest then ends after this test, in order.
            if self.stop_when(ran) and self._session is not None:
                self._session.shouldfail = "found"


def listen_quietly(
    wanted: Wanted, results: ResultCollector, *options: str, beside: Sequence[object] = ()
) -> int:
    """Runs the suites without pytest's own output; returns its exit code. `options` are pytest's,
    and `beside` are further plugins.

    The tests run here, one after the other, whatever the project has set for pytest-xdist: the
    caller may want to stop after a test, and has plugins that workers have not. Raises
    KeyboardInterrupt when it is interrupted, as any other command.
    """
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        # Only the sentence of a failure is read. Warnings about resources left open concern the
        # caller. `dsession` is the plugin of xdist that hands tests out to workers.
        quiet = (
            "-p",
            "no:dsession",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:unraisableexception",
            "--tb=no",
        )
        ended = listen(wanted, results, *quiet, *options, beside=beside)
    if results.interrupted:
        raise KeyboardInterrupt
    return ended


def run_tests(
    wanted: Wanted, quiet: bool, load: Callable[[str], Plugins]
) -> tuple[int, ResultCollector]:
    """Runs the tests; returns the exit code and the outcome of each test.

    `quiet` keeps standard output free: pytest's own output is progress then, which goes to standard
    error, and to a terminal only.
    """
    results = ResultCollector(wanted.clauses, load=load)
    with ExitStack() as finish:
        if quiet:
            shown = sys.stderr
            if not shown.isatty():
                shown = finish.enter_context(open(os.devnull, "w"))
            finish.enter_context(contextlib.redirect_stdout(shown))
        ended = listen(wanted, results)
    return _code(ended, results), results


def listen(
    wanted: Wanted, results: ResultCollector, *options: str, beside: Sequence[object] = ()
) -> int:
    """Runs the tests with `results` and `beside` as plugins; returns pytest's exit code."""
    given = {
        "system": wanted.system,
        "runtime": wanted.runtime,
        "out": wanted.out and wanted.out.absolute(),
        "seed": wanted.seed,
        "workload": wanted.workload or None,
        "budget": wanted.budget or None,
        "image": wanted.image or None,
    }
    arguments = [
        *(wanted.tests or ("--pyargs", wanted.suite or SUITES)),
        # A project may load no plugin by itself. Where it does, this one is not loaded twice.
        *("-p", "fencepost"),
        # The command line has imported this plugin's own modules already, which assert nothing
        # about a test.
        "-Wignore::pytest.PytestAssertRewriteWarning",
        *(f"--fencepost-{name}={value}" for name, value in given.items() if value is not None),
        *(f"--fencepost-{name}={value}" for name, value in options_of(wanted.shape)),
        *options,
        *wanted.options,
    ]
    code = int(pytest.main(arguments, plugins=[results, *beside]))
    return code if results.ended is None else results.ended


def _code(ended: int, results: ResultCollector) -> int:
    match ended:
        case pytest.ExitCode.OK:  # a rerun may have passed after an attempt that broke a promise
            unsaid = EXIT_INCONCLUSIVE if results.unbegun else EXIT_CLEAN
            return decisive(results.codes) if results.codes else unsaid
        case pytest.ExitCode.INTERRUPTED:
            return EXIT_INTERRUPTED if results.interrupted else decisive(results.codes)
        case pytest.ExitCode.TESTS_FAILED:
            return decisive(results.codes)
        case pytest.ExitCode.USAGE_ERROR | pytest.ExitCode.NO_TESTS_COLLECTED:
            return EXIT_USAGE
        case _:
            return EXIT_INTERNAL
