"""A pytest plugin: `--outcomes FILE` writes the outcome of each test, `--again FILE` repeats some
tests.

The file has one row a test: its outcome, how long it ran, whether it is real (see `real_tests`),
and if it failed, its seed and the folder of its run. Under xdist the session that the caller
started writes the file; its workers send the facts with their reports.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, final

import msgspec
import pytest
from costs import processor_seconds
from real_tests import is_real

KEPT = "failed"
"""The folder beside the file to which the runs of failed tests are copied, if pytest would remove
them with its temporary files."""
_FACTS = "tooling_facts"
_TEMPORARY = pytest.StashKey[pytest.TempPathFactory]()


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one test. `seed`, `run` and `error` are empty unless it failed. What is shared
    counts for the first test that needed it, and its end for the last."""

    test: str
    outcome: str
    real: bool
    seconds: float
    processor_seconds: float = 0.0
    seed: str = ""
    run: str = ""
    error: str = ""


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a session of pytest. `uncollected` names the modules with import errors."""

    exit_code: int
    outcomes: tuple[Outcome, ...]
    uncollected: tuple[str, ...] = ()

    def of(self, outcome: str) -> list[Outcome]:
        return [one for one in self.outcomes if one.outcome == outcome]


def read(path: Path) -> Session:
    """The file of a session that has ended."""
    return msgspec.json.decode(path.read_bytes(), type=Session)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tooling", "tooling of this repository's tests")
    group.addoption("--outcomes", metavar="FILE", help="write what became of each test")
    group.addoption("--again", metavar="FILE", help="run only the tests that failed in FILE")


def pytest_configure(config: pytest.Config) -> None:
    if path := config.getoption("outcomes"):
        file = config.rootpath / path
        config.pluginmanager.register(_Facts(file.parent / KEPT), "tooling-facts")
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(_Recorder(file), "tooling-recorder")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if path := config.getoption("again"):
        wanted = {one.test for one in read(config.rootpath / path).of("failed")}
        rest = [item for item in items if item.nodeid not in wanted]
        items[:] = [item for item in items if item.nodeid in wanted]
        config.hook.pytest_deselected(items=rest)


@pytest.fixture(scope="session", autouse=True)
def _temporary(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> None:
    pytestconfig.stash[_TEMPORARY] = tmp_path_factory


@final
class _Facts:
    """Adds the facts to each report that only the process of the test knows."""

    def __init__(self, kept: Path) -> None:
        self._kept = kept
        self._temporary = kept  # until the first test is called
        self._begun_ns = 0
        self._used = 0.0

    def pytest_collection_finish(self) -> None:
        self._used = processor_seconds()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        self._temporary = item.config.stash[_TEMPORARY].getbasetemp()
        clock = self._temporary / ".begun"
        clock.touch()
        self._begun_ns = clock.stat().st_mtime_ns
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        before, self._used = self._used, processor_seconds()
        facts: dict[str, object] = {"real": is_real(item), "used": self._used - before}
        if report.failed:
            run = self._run_of(item, report)
            facts["run"] = "" if run is None else os.fspath(run)
            facts["seed"] = "" if run is None else _seed_of(run)
            facts["error"] = "" if call.excinfo is None else call.excinfo.exconly()
        report.__dict__[_FACTS] = facts
        return report

    def _run_of(self, item: pytest.Item, report: pytest.TestReport) -> Path | None:
        """The folder that Fencepost names; or a copy of the newest one that code under test has
        made among pytest's temporary files since the test began."""
        named = re.search(r"^run: +(.+)$", dict(report.sections).get("fencepost", ""), re.MULTILINE)
        if named is not None:
            return Path(named[1])
        found = [(_changed_ns(path.parent), path.parent) for path in _runs_in(self._temporary)]
        changed_ns, newest = max(found, default=(0, None))
        if newest is None or changed_ns < self._begun_ns:
            return None
        kept = self._kept / re.sub(r"[^A-Za-z0-9_.-]+", "-", item.name)[:60].strip("-")
        shutil.rmtree(kept, ignore_errors=True)
        with suppress(OSError):  # a pipe or a socket is left out
            shutil.copytree(newest, kept)
        return kept


def _runs_in(folder: Path) -> Iterator[Path]:
    for path, _, files in os.walk(folder):
        if "run.json" in files:
            yield Path(path, "run.json")


def _changed_ns(folder: Path) -> int:
    """When any file of the run's events was last changed."""
    files = [folder / "run.json", *folder.glob("events/*")]
    return max(path.stat().st_mtime_ns for path in files)


def _seed_of(run: Path) -> str:
    try:
        info = msgspec.json.decode((run / "run.json").read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError):
        return ""
    return str(info.get("seed", ""))


@final
class _Recorder:
    """Writes the file when the session ends."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._reports: dict[str, list[pytest.TestReport]] = {}
        self._uncollected: dict[str, None] = {}
        file.unlink(missing_ok=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.setdefault(report.nodeid, []).append(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._uncollected[report.nodeid] = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, exitstatus: int) -> Generator[None, object, object]:
        value = yield
        ended = Session(
            exit_code=int(exitstatus),
            outcomes=tuple(_outcome(test, each) for test, each in self._reports.items()),
            uncollected=tuple(self._uncollected),
        )
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_bytes(msgspec.json.format(msgspec.json.encode(ended), indent=1))
        return value


def _facts(report: pytest.TestReport) -> dict[str, Any]:
    facts: dict[str, Any] = getattr(report, _FACTS, {})
    return facts


def _outcome(test: str, reports: list[pytest.TestReport]) -> Outcome:
    """One row of a test's set-up, call and tear-down. A test whose process died has no facts and
    is not real: the crash of a test process is no race of the processes that it started."""
    failed = next((report for report in reports if report.failed), None)
    skipped = any(report.skipped for report in reports)
    facts = _facts(failed or reports[0])
    return Outcome(
        test=test,
        outcome="failed" if failed else "skipped" if skipped else "passed",
        real=bool(facts.get("real", False)),
        seconds=round(sum(report.duration for report in reports), 3),
        processor_seconds=round(sum(_facts(report).get("used", 0.0) for report in reports), 3),
        seed=facts.get("seed", ""),
        run=facts.get("run", ""),
        error=facts.get("error", ""),
    )
