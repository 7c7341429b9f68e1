"""A pytest plugin: the markers `real` and `tool`, for tests that start processes, `slow` and
`nightly`.

* `real`: processes run beside the test, such as the nodes of a cluster. The kernel schedules them,
  so the outcome can depend on timing.
* `tool`: the test runs a program to its end, such as a linter, and reads its output. The outcome
  does not depend on timing.

A test without either is pure, or simulated: it runs in its own process alone. One that keeps a
processor busy for long is marked `slow`: `./dev test --fast` leaves it out. What takes long and
breaks seldom is marked `nightly`: `./dev test --all` alone runs it.

A test is marked by `@pytest.mark.real`, or by `pytestmark` in its module. It is also real if one of
its fixtures requests the fixture `real`, or if it has a run of Fencepost on a runtime other than
the simulated one.

Python's audit events show each process that a test starts. A test that starts one without a marker
fails; so does a test that starts Fencepost's supervisor and is not marked `real`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Sequence, Set
from functools import cache
from pathlib import Path
from typing import Any, final

import msgspec
import pytest

REAL, TOOL = "real", "tool"
_STARTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"})
_SUPERVISOR = "supervisor.py"
_LOOKUP = "/sbin/ldconfig"
"""The program by which ctypes finds a C library, when a module that needs one is imported."""
_started: list[str] = []
"""What this process has started, oldest first: the event and the command. All pytest sessions in
this process share the list, because an audit hook cannot be removed."""


def _audit(event: str, arguments: tuple[Any, ...], starts: Set[str] = _STARTS) -> None:
    """`starts` is an argument since Python audits on after it has emptied this module."""
    if event in starts:
        command = arguments[1] if event == "subprocess.Popen" else arguments[:1]
        words = command.split() if isinstance(command, str) else [*map(str, command)]
        if _LOOKUP not in words:
            _started.append(" ".join([event, *words]))


sys.addaudithook(_audit)


@pytest.fixture(scope="session")
def real() -> None:
    """Marks each test as real that uses this fixture, or a fixture that requests it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tooling", "tooling of this repository's tests")
    group.addoption("--note-real", metavar="FILE", help="write which files have real tests")
    group.addoption("--noted-real", metavar="FILE", help="of tests/, collect only these files")


def pytest_configure(config: pytest.Config) -> None:
    for line in (
        "real: processes run beside the test, so its outcome can depend on timing",
        "tool: the test runs a program to its end; its outcome does not depend on timing",
        "slow: a search, or a random schedule, that keeps a processor busy for long",
        "nightly: it takes long, and what it holds breaks seldom",
    ):
        config.addinivalue_line("markers", line)
    config.pluginmanager.register(_Check(), "tooling-check")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Adds the marker before `-m` selects by it."""
    chosen = config.getoption("fencepost_runtime") or config.getini("fencepost_runtime")
    fixtures = {REAL} if chosen == "simulated" else {REAL, "fencepost_run"}
    for item in items:
        if fixtures & set(getattr(item, "fixturenames", ())):
            item.add_marker(REAL)
    if (path := config.getoption("note_real")) and _is_first(config):
        noted = {item.path for item in items if is_real(item) or _has_run(item)}
        file = config.rootpath / path
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(
            msgspec.json.encode(sorted(os.path.relpath(one, config.rootpath) for one in noted))
        )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A worker imports what it collects: all of tests/ takes each of them ten seconds. So a session
    of real tests asks only those files that an earlier session has noted, which imported all."""
    if not (path := config.getoption("noted_real")) or collection_path.suffix != ".py":
        return None
    file = os.path.relpath(collection_path, config.rootpath)
    return (
        True if file.startswith("tests/") and file not in _noted(config.rootpath / path) else None
    )


@cache
def _noted(file: Path) -> Set[str]:
    return frozenset(msgspec.json.decode(file.read_bytes(), type=list[str]))


def _is_first(config: pytest.Config) -> bool:
    """Under xdist all workers collect the same."""
    workers = getattr(config, "workerinput", {"workerid": "gw0"})
    return str(workers["workerid"]) == "gw0"


def _has_run(item: pytest.Item) -> bool:
    return "fencepost_run" in getattr(item, "fixturenames", ())


def is_real(item: pytest.Item) -> bool:
    """Whether the outcome of the test can depend on timing."""
    return item.get_closest_marker(REAL) is not None


@final
class _Check:
    """Fails a test that starts a process without the marker for it."""

    def __init__(self) -> None:
        self._shared: dict[tuple[str, str], Sequence[str]] = {}
        """What a fixture of several tests started, by the fixture's place and name."""

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any]
    ) -> Generator[None, object, object]:
        before = len(_started)
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":  # set up anew for each of its parameters
                self._shared[fixturedef.baseid, fixturedef.argname] = _started[before:]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        before = len(_started)
        value = yield
        _refuse(item, [*_started[before:], *self._by_fixtures(item)])
        return value

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        before = len(_started)
        value = yield
        _refuse(item, _started[before:])
        return value

    def _by_fixtures(self, item: pytest.Item) -> list[str]:
        names = getattr(item, "fixturenames", ())
        return [
            process
            for (base, name), processes in self._shared.items()
            if name in names and item.nodeid.startswith(base)
            for process in processes
        ]


def _refuse(item: pytest.Item, started: Sequence[str]) -> None:
    if is_real(item):
        return
    lacking = "real" if any(_SUPERVISOR in process for process in started) else "real` or `tool"
    if started and (lacking == "real" or item.get_closest_marker(TOOL) is None):
        pytest.fail(
            f"the test started a process and is not marked `{lacking}`: {started[0][:200]}\n"
            "tests/tooling/real_tests.py tells the difference",
            pytrace=False,
        )
