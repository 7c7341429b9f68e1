"""Pytest's options, markers and fixtures; a run's life is in `fencepost.runs.run`.

A test that asks for `cluster`, `faults`, `clients` or `history` gets a run of its own. When its
body is over, everything heals, is read and judged within the test's call, so that a violation makes
the test failed, not an error of its teardown.

See docs/decisions/28-own-cluster.md.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import pytest

from fencepost.events import TestEnded, TestStarted
from fencepost.history.files import write_whole
from fencepost.history.run_folder import RunFolder
from fencepost.model.budget import Budget
from fencepost.model.check import Check
from fencepost.model.clock import now_ns
from fencepost.model.errors import (
    EXIT_INCONCLUSIVE,
    EXIT_INTERNAL,
    EXIT_USAGE,
    EnvironmentFailed,
    FencepostError,
    InternalError,
    NotApplicable,
    UsageError,
    Violation,
)
from fencepost.model.system.shape import Shape
from fencepost.model.text import printable
from fencepost.plugins.manager import Plugins, PluginWarning, load
from fencepost.plugins.raising import by_plugin
from fencepost.runs.apps import Apps
from fencepost.runs.faults import Faults
from fencepost.runs.project import checks_of, of_project, unique
from fencepost.runs.run import Run, RunSpec, check_runtime, check_spec, new_folder
from fencepost.testing.event_log import EventLog
from fencepost.testing.exit_codes import (
    NO_TIME,
    UNBEGUN,
    SessionCode,
    failure_of,
    is_timeout,
    note,
    uncollected,
)
from fencepost.testing.failures import shorten
from fencepost.testing.settings import LAST_SEED, Settings, add_options, settings_of
from fencepost.workloads.workers import Clients, Workers

_MOST_OF_AN_ERROR = 300
"""How many characters of a test's error its event has, at most."""
TIMED_OUT = (
    "pytest-timeout ended this test. This is no verdict: a slow machine and a cluster that hangs "
    "look the same"
)
_SETTINGS = pytest.StashKey[Settings]()
_BUDGET = pytest.StashKey[Budget]()
_BEGAN = "fencepost_began_ns"
"""What a worker of xdist is told: when the session began, for its budget."""
_PLUGINS = pytest.StashKey[Plugins]()


@final
@dataclass(slots=True)
class _Attempt:
    """What is known of the test that runs now; a plugin for reruns makes several attempts."""

    folder: RunFolder | None = None
    run: Run | None = None
    """Its run, once that has started."""
    violated: bool = False
    """Whether the run broke a promise."""


_ATTEMPT = pytest.StashKey[_Attempt]()
MOST_FAILED_STARTS = 2


@final
@dataclass(slots=True)
class _Starts:
    """Whether any cluster of this session has got ready. If none has, and those of one shape have
    failed twice, the others will not either: each would take its time, and say the same."""

    succeeded: bool = False
    failed: list[Shape] = field(default_factory=list)

    def give_up(self, shape: Shape) -> bool:
        """Notes a cluster that did not get ready; returns whether that was enough. A planted defect
        may keep clusters of some shapes from starting, and show itself in others."""
        self.failed.append(shape)
        enough = self.failed.count(shape) >= MOST_FAILED_STARTS
        return enough and not (self.succeeded or shape.defects)


_STARTS = pytest.StashKey[_Starts]()
SUITE = pytest.StashKey[str]()
"""The package of tests that takes the place of those that the command line named."""
_REMARK = "fencepost_remark"
"""The property of a report with what its run says though nothing failed."""
_RAN = "fencepost_run"
"""The property of a report that names the folder of the test's run."""
REFUSED = pytest.StashKey[str]()
"""Why no test was run, as a worker of xdist reported it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    # For each session: the command line imports this module before pytest can rewrite anything.
    pytest.register_assert_rewrite(
        "fencepost.testing.kit", "fencepost.testing.pure_checks", "fencepost_suites"
    )
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "clause(*ids): the promises this test checks; it passes only if each of them holds",
    )
    config.addinivalue_line(
        "markers",
        "only(*names, reason): the runtimes, or the systems, that can show what this test checks",
    )
    config.addinivalue_line(
        "markers",
        "physical(*what): real nodes show more here than simulated ones, of their sockets, disks, "
        "signals or clocks; `-m physical` selects what should run on them, too",
    )
    if _SETTINGS not in config.stash:
        config.stash[_SETTINGS] = settings_of(config)
    # Only a worker of xdist has this attribute. The exit code is the session's, so a worker decides
    # none.
    worker: Mapping[str, str] | None = getattr(config, "workerinput", None)
    began_ns = int((worker or {}).get(_BEGAN, now_ns()))
    config.stash[_BUDGET] = Budget(config.stash[_SETTINGS].budget_ns, now_ns, began_ns)
    if worker is None:
        config.pluginmanager.register(SessionCode(), "fencepost-exit-code")
    elif "fencepost_suite" in worker:
        config.args = [worker["fencepost_suite"]]


def prepare(config: pytest.Config, load: Callable[[str], Plugins]) -> tuple[Settings, Plugins]:
    """Decides the settings of a session and loads its plugins, before the session begins.

    Raises UsageError, NotApplicable or EnvironmentFailed for a system, a runtime, a workload or a
    cluster that does not exist or cannot be used here, pytest.UsageError for other bad settings.
    """
    settings = settings_of(config)
    plugins = load(settings.system)
    config.stash[_SETTINGS], config.stash[_PLUGINS] = settings, plugins
    _check_settings(settings, plugins)
    return settings, plugins


def _check_settings(settings: Settings, plugins: Plugins) -> None:
    system = plugins.system(settings.system)
    if settings.workload:
        plugins.workload(settings.workload)
    check_runtime(settings.runtime)
    check_spec(RunSpec(system, settings.shape, settings.runtime))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Xdist's hook: passes settings to a worker."""
    node.workerinput["fencepost_seed"] = str(node.config.stash[_SETTINGS].seed)
    node.workerinput[_BEGAN] = str(node.config.stash[_BUDGET].began_ns)
    if SUITE in node.config.stash:
        node.workerinput["fencepost_suite"] = node.config.stash[SUITE]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Xdist's hook: takes the report of a worker that ended."""
    refused = getattr(node, "workeroutput", {}).get("fencepost_refused")
    if refused is not None:
        node.config.stash[REFUSED] = str(refused)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A refusal by a worker ends this session with an error, too."""
    if REFUSED in session.config.stash:
        session.exitstatus = pytest.ExitCode.USAGE_ERROR


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    refused = config.stash.get(REFUSED, None)
    if refused is not None:
        terminalreporter.write_line(f"ERROR: {refused}", red=True)
    for report in (one for several in terminalreporter.stats.values() for one in several):
        for name, said in getattr(report, "user_properties", ()):
            if name == _REMARK and getattr(report, "when", "") == "call":
                terminalreporter.write_line(f"fencepost: {report.nodeid}: {said}", yellow=True)


def pytest_report_header(config: pytest.Config) -> str:
    settings = config.stash[_SETTINGS]
    return (
        f"fencepost: system={settings.system} runtime={settings.runtime} "
        f"seed={settings.seed} out={settings.out}"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuses a system, a runtime, a cluster or a clause that does not exist, before anything is
    started. What a test names that was deselected does not matter."""
    try:
        _check(config, items)
    except (pytest.UsageError, UsageError, NotApplicable, EnvironmentFailed) as refused:
        output = getattr(config, "workeroutput", None)
        if output is None:
            raise pytest.UsageError(str(refused)) from refused
        # A worker of xdist cannot end the session, so it runs nothing and reports. Pytest's code
        # for a usage error is Fencepost's for a failed environment.
        output["fencepost_refused"] = str(refused)
        items.clear()


def _check(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    marked = {clause for item in items for clause in clauses_of(item, {})}
    ours = [item for item in items if "fencepost_run" in getattr(item, "fixturenames", ())]
    # A session without tests of Fencepost loads no plugin: it may only be installed beside another
    # project's tests.
    if not marked and not ours:
        return
    plugins = _plugins(config)
    settings = config.stash[_SETTINGS]
    tested = plugins.systems.get(settings.system.partition("@")[0])
    for clause in sorted(marked):
        plugins.clause(clause, tested.plane if tested else "")
    if ours:
        _check_settings(settings, plugins)


@pytest.fixture
def fencepost_shape() -> Shape:
    """The cluster that a test runs against: the system's default. Override it for another.

    What it leaves open, `--fencepost-count`, `--fencepost-setting` and `--fencepost-defects` set.
    """
    return Shape()


@pytest.fixture
def fencepost_run(request: pytest.FixtureRequest, fencepost_shape: Shape) -> Iterator[Run]:
    """The test's run: a cluster of its own, started and ready."""
    settings = request.config.stash[_SETTINGS]
    plugins = _plugins(request.config)
    system = plugins.system(settings.system)
    # Three reasons to skip a test, before anything is started: it names other runtimes or systems;
    # its clauses bind another plane; the system lacks something (`NotApplicable`), which its start
    # tells.
    for mark in request.node.iter_markers("only"):
        if not {settings.runtime, settings.system.partition("@")[0]} & set(mark.args):
            pytest.skip(f"only {' and '.join(mark.args)}: {mark.kwargs['reason']}")
    marked = clauses_of(request.node, plugins.replaced)
    bound = [plugins.clause(clause) for clause in marked]
    named = any(
        settings.system.partition("@")[0] in mark.args for mark in request.node.iter_markers("only")
    )
    if bound and not any(
        clause.binds(system.plane) and (named or not clause.witnessed_on(system.plane))
        for clause in bound
    ):
        pytest.skip(f"{', '.join(marked)}: {bound[0].unbound(system.plane)}")
    shape = fencepost_shape.over(settings.shape)
    asked = RunSpec(
        system,
        shape,
        settings.runtime,
        settings.seed,
        settings.workload,
        checks=_checks_of(request.node),
    )
    spec = of_project(asked, request.config.rootpath)
    # From here on a failure names the folder and how to run the test again.
    folder = new_folder(settings.out, _label(request.node.name))
    write_whole(settings.out / LAST_SEED, f"{settings.seed}\n".encode())
    request.node.stash[_ATTEMPT].folder = folder
    request.node.user_properties += [
        ("fencepost_system", settings.system),
        ("fencepost_runtime", settings.runtime),
        ("fencepost_seed", str(settings.seed)),
        ("fencepost_clauses", " ".join(marked)),
        (_RAN, str(folder.path)),
        ("fencepost_again", settings.replay(_here(request.node))),
    ]
    starts = request.config.stash.setdefault(_STARTS, _Starts())
    try:
        started = Run.start(spec, plugins, folder)
    except NotApplicable as lacking:
        pytest.skip(str(lacking))
    except EnvironmentFailed:
        # The others would each take the whole limit of a start, and say the same.
        if starts.give_up(shape):
            times = len(starts.failed)
            request.session.shouldfail = f"{settings.system} did not start {times} times"
        raise
    starts.succeeded = True
    with started as run:
        run.record(TestStarted(nodeid=request.node.nodeid, clauses=marked))
        request.node.stash[_ATTEMPT].run = run
        yield run


def _checks_of(item: pytest.Item) -> tuple[Check, ...]:
    """The checks of a test's module and of the conftest.py files above it, each once."""
    modules = [one for one in item.config.pluginmanager.get_plugins() if inspect.ismodule(one)]
    files = [(one, Path(one.__file__ or "")) for one in modules]
    above = [
        one
        for one, file in files
        if file.name == "conftest.py" and item.path.is_relative_to(file.parent)
    ]
    module = getattr(item, "module", None)
    every = above if module is None else [*above, module]
    return unique(found for one in every for found in checks_of(vars(one).values()))


@pytest.fixture
def cluster(fencepost_run: Run) -> object:
    """The cluster under test, with its system's API; `eventually` is the only way to wait."""
    return fencepost_run.cluster


@pytest.fixture
def faults(fencepost_run: Run) -> Faults:
    """Faults by name, such as `faults.kill(node)`; each heals at the end of its `with`."""
    return fencepost_run.faults


@pytest.fixture
def clients(fencepost_run: Run) -> Clients:
    """The clients of the run's workload, each in a process of its own."""
    return fencepost_run.clients


@pytest.fixture
def workers(fencepost_run: Run) -> Workers:
    """Starts client workers of any workload; the run stops them and waits for them at its end."""
    return fencepost_run.workers


@pytest.fixture
def apps(fencepost_run: Run) -> Apps:
    """The programs of the user's own that the shape names (`Shape.apps`); see `fencepost.Apps`."""
    return fencepost_run.apps


@pytest.fixture
def history(fencepost_run: Run) -> EventLog:
    """The events of the test's run so far."""
    return EventLog(fencepost_run.runtime)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Forgets the attempt before this one: a plugin for reruns sets the same item up again. Begins
    no test for which the budget has no time."""
    again = _ATTEMPT in item.stash
    ours = ("fencepost_",)
    item.user_properties = [one for one in item.user_properties if not one[0].startswith(ours)]
    item.stash[_ATTEMPT] = _Attempt()
    # A second attempt is part of its test: without it, a failure would look as if it was skipped.
    if not again and not item.config.stash[_BUDGET].may_begin():
        item.user_properties.append(UNBEGUN)
        pytest.skip(f"not begun: {NO_TIME}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Finishes and judges the test's run within its call."""
    __tracebackhide__ = True
    run = item.stash[_ATTEMPT].run
    if run is None:
        return (yield)
    try:
        value = yield
    # The session is ending: nothing is judged, and `__exit__` of the run ends its processes.
    except pytest.exit.Exception:
        raise
    # `pytest.fail` raises no Exception: pytest derives its outcomes from BaseException.
    except (Exception, pytest.fail.Exception) as error:
        _finish_failed(item, run, error)
        raise
    # The body has passed. The run may still break a promise, which makes the test failed within its
    # call.
    run.record(TestEnded(nodeid=item.nodeid, outcome="passed"))
    result = run.finish()
    item.user_properties += [(_REMARK, said) for said in result.remarks()]
    try:
        result.check(clauses_of(item, _plugins(item.config).replaced))
    except (FencepostError, Violation) as found:
        item.stash[_ATTEMPT].violated = isinstance(found, Violation)
        # The test's author needs the sentences, not the traceback of the plugin.
        raise found.with_traceback(None) from None
    # Only after a pass: the disks of a failed run show what it left.
    run.folder.discard_data()
    return value


def _finish_failed(item: pytest.Item, run: Run, error: BaseException) -> None:
    """Judges the run of a test that has failed: a violation may be the cause."""
    said = next(iter(str(error).splitlines()), "") or type(error).__name__
    ended = TestEnded(nodeid=item.nodeid, outcome="failed", error=said[:_MOST_OF_AN_ERROR])
    run.record(ended)
    try:
        run.finish().check()
    except (FencepostError, Violation) as found:
        item.stash[_ATTEMPT].violated = isinstance(found, Violation)
        # A condition that was waited for in vain is both the test's error and the run's.
        if str(found) != str(error):
            error.add_note(str(found))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Prints the sentence of an error of Fencepost, the line that runs a failed test again, and
    where its run is kept."""
    report = yield
    shorten(item, call, report)
    if not report.failed:
        return report
    attempt = item.stash.get(_ATTEMPT, _Attempt())  # none if the set-up failed before ours
    failure = failure_of(item, call, violated=attempt.violated)
    if failure is not None:
        note(report, failure)
    if "fencepost_run" not in getattr(item, "fixturenames", ()):
        return report
    lines = []
    if call.excinfo is not None and failure is not None:
        if failure.code == EXIT_INTERNAL:
            lines.append(str(InternalError(call.excinfo.exconly())))
        # The traceback ends with the error itself, and says nothing of the plugin.
        elif failure.code == EXIT_USAGE and by_plugin(call.excinfo.value) is not None:
            lines.append(failure.message)
        if failure.code == EXIT_INCONCLUSIVE and is_timeout(call.excinfo):
            lines.append(TIMED_OUT)
    if attempt.folder is not None:
        line = item.config.stash[_SETTINGS].replay(_here(item))
        lines += [f"again: {line}", f"run:   {attempt.folder.path}"]
    report.sections.append(("fencepost", printable("\n".join(lines))))
    return report


def pytest_exception_interact(
    call: pytest.CallInfo[Any], report: pytest.TestReport | pytest.CollectReport
) -> None:
    """Notes why a file could not be collected: the report goes to the session, the error does
    not."""
    if isinstance(report, pytest.CollectReport):
        note(report, uncollected(call, report.nodeid))


def _plugins(config: pytest.Config) -> Plugins:
    """The loaded plugins, loaded when the first test needs them."""
    if _PLUGINS not in config.stash:
        try:
            config.stash[_PLUGINS] = load(system=config.stash[_SETTINGS].system)
        except (UsageError, PluginWarning) as wrong:  # a warning is raised under `-W error`
            raise pytest.UsageError(str(wrong)) from wrong
    return config.stash[_PLUGINS]


def clauses_of(item: pytest.Item, replaced: Mapping[str, str]) -> tuple[str, ...]:
    """The clauses a test is marked with, in order; by the ids that have replaced theirs."""
    marks = [clause for mark in item.iter_markers("clause") for clause in mark.args]
    return tuple(dict.fromkeys(replaced.get(mark, mark) for mark in marks))


def folder_in(report: pytest.TestReport) -> RunFolder | None:
    """The folder of the run that a test had, as its report names it."""
    path = dict(report.user_properties).get(_RAN)
    return None if path is None else RunFolder(Path(str(path)))


def _here(item: pytest.Item) -> str:
    """The node id of a test as the folder names it in which the command was given: pytest's own
    begins at its root directory."""
    config, (_, *inside) = item.config, item.nodeid.split("::")
    if config.invocation_params.dir == config.rootpath:
        return item.nodeid
    return "::".join((os.path.relpath(item.path, config.invocation_params.dir), *inside))


def _label(name: str) -> str:
    """A test's name as a part of a path."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name)[:60].strip("-")
