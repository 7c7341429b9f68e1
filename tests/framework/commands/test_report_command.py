"""`fencepost report --follow`: its options, and what it prints of each new state of the report."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from io import StringIO

import pytest
from rich.console import Console

from fencepost import UsageError
from fencepost.commands import report as reports
from fencepost.commands import terminal
from fencepost.plugins.manager import Plugins
from fencepost.plugins.reports import Following, ReportedRun, ReportRequest, ReportUpdate

UPDATES = (
    ReportUpdate(report="out/report.html", runs=1, read=("a",), refused={}, waiting=2, removed=0),
    ReportUpdate(
        report="out/report.html",
        runs=2,
        read=("b", "c"),
        refused={"c": "c is not a run folder"},
        waiting=0,
        removed=3,
    ),
)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Sequence[ReportRequest]:
    """What a plugin was asked for, which is interrupted after it has made two reports."""
    asked: list[ReportRequest] = []

    def follow(plugins: Plugins, request: ReportRequest) -> str:
        asked.append(request)
        assert request.following is not None
        request.notify(ReportedRun(run="b", lacks="the run's end is not recorded"))
        for update in UPDATES:
            request.following.updated(update)
        raise KeyboardInterrupt

    monkeypatch.setattr(Plugins, "check_report", lambda *given: None)
    monkeypatch.setattr(Plugins, "report", follow)
    return asked


def test_each_new_state_of_the_report_is_a_line(
    requests: Sequence[ReportRequest], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        reports.report(follow="runs", every=2.5, patience=60, out="out")
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        "out/report.html (runs: 1, new: 1, not judged yet: 2)",
        "out/report.html (runs: 2, new: 2, removed before they were read: 3)",
    ]
    assert printed.err.splitlines() == ["b is not complete: the run's end is not recorded"]
    (request,) = requests
    assert isinstance(request.following, Following)
    assert (request.runs, request.out) == (("runs",), "out")
    assert (request.following.every_s, request.following.patience_s) == (2.5, 60)


def test_each_new_state_of_the_report_is_an_object(
    requests: Sequence[ReportRequest], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        reports.report(follow="runs", json=True)
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["read"] == ["a"]
    assert second == {
        "report": "out/report.html",
        "runs": 2,
        "read": ["b", "c"],
        "refused": {"c": "c is not a run folder"},
        "waiting": 0,
        "removed": 3,
    }


@pytest.mark.parametrize("seconds", [{"every": float("nan")}, {"patience": float("nan")}])
def test_what_is_no_number_of_seconds_is_refused(seconds: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="nan is no number"):
        reports.report(follow="runs", **seconds)


def test_a_report_by_a_plugin_that_follows_no_folder_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Plugins, "check_report", lambda *given: None)
    monkeypatch.setattr(Plugins, "report", lambda *given: "out/report.html")
    with pytest.raises(UsageError, match="no loaded plugin makes a report that follows a folder"):
        reports.report(follow="runs")


def test_a_terminal_shows_how_many_runs_were_read_and_a_file_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for is_terminal in (True, False):
        written = StringIO()
        console = Console(file=written, force_terminal=True, width=80)
        monkeypatch.setattr(terminal, "errors", lambda console=console: console)
        monkeypatch.setattr(sys.stderr, "isatty", lambda found=is_terminal: found)
        with terminal.progress_bar("runs") as progressed:
            progressed(3, 7)
        assert ("3/7" in written.getvalue()) is is_terminal


def test_runs_are_named_though_no_report_could_be_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(plugins: Plugins, request: ReportRequest) -> str:
        request.notify(ReportedRun(run="a", refused="a is not a run folder"))
        raise UsageError("no run can be reported")

    monkeypatch.setattr(Plugins, "check_report", lambda *given: None)
    monkeypatch.setattr(Plugins, "report", refuse)
    with pytest.raises(UsageError, match="no run can be reported"):
        reports.report(["a", "b"])
    assert capsys.readouterr().err.splitlines() == ["a is left out: a is not a run folder"]
