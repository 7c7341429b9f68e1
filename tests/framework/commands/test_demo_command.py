"""The demo prints its verdicts even if the report fails."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import typer

from fencepost import EnvironmentFailed, RunEnd, System
from fencepost.commands import demo as command
from fencepost.commands import report as reports
from fencepost.history.run_folder import RunFolder
from fencepost.judging.verdicts import Judgement, Outcome, Verdict
from fencepost.model.configuration import DEFAULTS
from fencepost.model.extras import EXTRAS, installing
from fencepost.plugins.manager import Plugins, load
from fencepost.plugins.reports import ReportedRun, ReportRequest
from fencepost.runs import demo as demos
from fencepost.runs.run import RunResult


def act(result: RunResult) -> demos.Act:
    broken = demos.DemoRun("serves-without-lease", result, ())
    return demos.Act("reference/quorum", demos.DemoRun(None, result, ()), broken, ("QC-17",))


def test_verdicts_are_printed_before_a_report_that_failed_ends_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    verdicts = {"QC-17": Verdict(Outcome.HOLDS, 3, None, "It holds.")}
    result = RunResult(RunFolder(Path("run")), Judgement(verdicts), RunEnd(True, 0))
    trouble = EnvironmentFailed("Spark did not start")
    shown = demos.DemoResult([act(result)], None, trouble, 5.0)

    def demo(*given: object, ended: Callable[[demos.Act], None], **rest: object) -> object:
        ended(shown.acts[0])
        return shown

    monkeypatch.setattr(demos, "demo", demo)
    with pytest.raises(EnvironmentFailed, match="Spark did not start"):
        command.demo("reference/quorum", 1, Path("out"), json=False)
    assert "1 of 1 clause held" in capsys.readouterr().out


def test_a_demo_with_a_report_ends_with_its_own_code(monkeypatch: pytest.MonkeyPatch) -> None:
    result = RunResult(RunFolder(Path("run")), Judgement({}), RunEnd(True, 0))
    shown = demos.DemoResult([act(result)], Path("page.html"), None, 5.0)
    monkeypatch.setattr(demos, "demo", lambda *given, **rest: shown)
    with pytest.raises(typer.Exit) as ended:
        command.demo("reference/quorum", 1, Path("out"), json=False)
    assert ended.value.exit_code == 3


def test_without_a_system_the_demo_shows_the_reference_cluster_on_both_planes() -> None:
    shown = demos.systems_shown(DEFAULTS.system, load())
    assert [system.name for system in shown] == ["reference/quorum", "reference/legacy"]


def test_with_a_system_the_demo_shows_that_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def demo(systems: Sequence[System], *rest: object, **more: object) -> demos.DemoResult:
        asked.extend(system.name for system in systems)
        return demos.DemoResult([], None, None, 0.0)

    monkeypatch.setattr(demos, "demo", demo)
    with pytest.raises(typer.Exit):
        command.demo("reference/quorum", 1, Path("out"), json=True)
    assert asked == ["reference/quorum"]


def test_what_a_later_act_lacks_ends_the_demo_after_the_report_about_the_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    result = RunResult(RunFolder(tmp_path), Judgement({}), RunEnd(True, 0))
    plugins = load()

    def shown(system: System, *given: object, **rest: object) -> demos.Act:
        if system.name == "reference/legacy":
            raise EnvironmentFailed("ZooKeeper's jars are missing")
        return act(result)

    monkeypatch.setattr(demos, "_act", shown)
    monkeypatch.setattr(type(plugins), "check_report", lambda *given: None)
    monkeypatch.setattr(type(plugins), "report", lambda *given: tmp_path / "index.html")
    systems = demos.systems_shown("reference/quorum", plugins)
    ended = demos.demo(systems, plugins, tmp_path, 1, report=print, ended=lambda one: None)
    assert [one.system for one in ended.acts] == ["reference/quorum"]
    assert ended.page == tmp_path / "index.html"
    assert str(ended.trouble) == "ZooKeeper's jars are missing"


def test_without_spark_each_run_of_the_demo_has_a_page_and_the_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in EXTRAS["spark"]:
        monkeypatch.setitem(sys.modules, module, None)
    folder = RunFolder(tmp_path / "healthy")
    held = RunResult(folder, Judgement({}), RunEnd(True, 0))
    broken = {"QC-17": Verdict(Outcome.VIOLATED, 3, None, "It is broken.")}
    planted = RunResult(RunFolder(tmp_path / "planted"), Judgement(broken), RunEnd(True, 0))
    shown = demos.Act(
        "reference/quorum",
        demos.DemoRun(None, held, ()),
        demos.DemoRun("serves-without-lease", planted, ()),
        ("QC-17",),
    )
    asked: list[ReportRequest] = []

    def made(self: Plugins, request: ReportRequest) -> str:
        asked.append(request)
        return f"{request.out}/index.html"

    monkeypatch.setattr(demos, "_act", lambda *given, **rest: shown)
    monkeypatch.setattr(demos, "check_runtime", lambda name: None)
    monkeypatch.setattr(Plugins, "report", made)
    monkeypatch.setattr(command, "explain_violations", lambda verdicts: "It is broken, since")
    with pytest.raises(typer.Exit) as ended:
        command.demo("reference/quorum", 1, tmp_path, json=False)
    assert ended.value.exit_code == 0
    assert [request.runs for request in asked] == [
        (str(tmp_path / "healthy"),),
        (str(tmp_path / "planted"),),
    ]
    said = capsys.readouterr().out
    assert "It is broken, since" in said
    assert f"The page of planted: {tmp_path}/planted/report/index.html" in said.replace("\n", "")
    assert said.replace("\n", "").count(installing("spark")) == 1


def test_what_the_demo_needs_is_checked_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plugins = load()
    systems = demos.systems_shown("reference/quorum", plugins)
    monkeypatch.setenv("JAVA_HOME", "/no/such")
    for lacking in ("Java is missing", "FENCEPOST_TOXIPROXY names /no/such"):
        with pytest.raises(EnvironmentFailed, match=lacking):
            demos.demo(systems, plugins, tmp_path / "out", 1, report=print, ended=print)
        assert not (tmp_path / "out").exists()
        monkeypatch.setenv("FENCEPOST_TOXIPROXY", "/no/such")


def test_a_report_names_what_was_violated_before_a_page_that_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(self: Plugins, request: ReportRequest) -> str:
        request.notify(ReportedRun(run="night", violated=("QC-17",), broken=True))
        raise EnvironmentFailed("the disk is full")

    monkeypatch.setattr(Plugins, "report", fail)
    with pytest.raises(EnvironmentFailed, match="the disk is full"):
        reports.report(["night"], "out")
    assert capsys.readouterr().err == "night violates QC-17\n"
