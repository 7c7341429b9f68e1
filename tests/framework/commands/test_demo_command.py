"""The demo prints its verdicts, whatever becomes of the report."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from fencepost import EnvironmentFailed, RunEnd
from fencepost.commands import demo as command
from fencepost.history.run_folder import RunFolder
from fencepost.judging.judge import Judgement, Outcome, Verdict
from fencepost.runs import demo as demos
from fencepost.runs.run import RunResult


def test_verdicts_are_printed_before_a_report_that_failed_ends_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    verdicts = {"QC-17": Verdict(Outcome.HOLDS, 3, None, "It holds.")}
    result = RunResult(RunFolder(Path("run")), Judgement(verdicts), RunEnd(True, 0))
    runs = [demos.DemoRun(defect, result, ()) for defect in (None, "serves-without-lease")]
    trouble = EnvironmentFailed("Spark did not start")
    shown = demos.DemoResult(runs, ("QC-17",), None, trouble, 5.0)
    monkeypatch.setattr(demos, "demo", lambda *given: shown)
    with pytest.raises(EnvironmentFailed, match="Spark did not start"):
        command.demo("reference/quorum", 1, Path("out"), json=False)
    assert "QC-17" in capsys.readouterr().out


def test_a_demo_with_a_report_ends_with_its_own_code(monkeypatch: pytest.MonkeyPatch) -> None:
    result = RunResult(RunFolder(Path("run")), Judgement({}), RunEnd(True, 0))
    runs = [demos.DemoRun(defect, result, ()) for defect in (None, "serves-without-lease")]
    shown = demos.DemoResult(runs, ("QC-17",), Path("page.html"), None, 5.0)
    monkeypatch.setattr(demos, "demo", lambda *given: shown)
    with pytest.raises(typer.Exit) as ended:
        command.demo("reference/quorum", 1, Path("out"), json=False)
    assert ended.value.exit_code == 3
