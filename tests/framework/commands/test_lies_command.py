"""`fencepost lies --acquit` on the reference cluster, and what it refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from warm_start import fencepost

from fencepost.commands.cli import main
from fencepost.plugins.manager import load
from fencepost.runs.random_schedule import run_one
from fencepost.runs.run import RunSpec, new_folder

pytestmark = pytest.mark.tool


def test_each_violated_clause_of_a_defects_run_is_tried_and_the_same_seed_tries_the_same() -> None:
    words = ("--only", "writes-newer-format", "--places", "2", "--json")
    first, second = (fencepost("lies", "--acquit", *words, "--jobs", jobs) for jobs in ("1", "2"))
    assert (first.returncode, first.stdout) == (second.returncode, second.stdout)
    assert first.returncode == 0
    found = json.loads(first.stdout)
    assert found["tried"] == len(found["lies"]) > 50
    assert found["acquitted"] == sum(one["became"] == "acquitted" for one in found["lies"])
    assert sum(found["became"].values()) == found["tried"]
    assert {one["clause"] for one in found["words"]} == {"QC-33"}
    assert found["not_found"] == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--only", "never-fences"), "--only names defects to be searched for"),
        (("--acquit", "--only", "never-fence"), "did you mean 'never-fences'?"),
        (("--acquit", "--system", "apache/kraft"), "has no defects"),
        (("--acquit", "--places", "0"), "--places"),
        (("--acquit", "no-such-folder"), "no run"),
    ],
)
def test_what_cannot_be_tried_is_refused_in_one_line(
    words: tuple[str, ...],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["fencepost", "lies", *words])
    with pytest.raises(SystemExit) as exited:
        main()
    printed = capsys.readouterr()
    assert (exited.value.code, printed.out) == (2, "")
    assert why in printed.err
    assert "Traceback" not in printed.err


def test_a_run_without_a_violation_has_nobody_to_acquit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = load()
    folder = new_folder(tmp_path, "healthy")
    run_one(RunSpec(loaded.system("reference/quorum"), runtime="simulated"), loaded, folder, 10, ())
    monkeypatch.setattr(sys, "argv", ["fencepost", "lies", "--acquit", str(folder.path)])
    with pytest.raises(SystemExit) as exited:
        main()
    assert exited.value.code == 2
    assert "no clause is violated there" in capsys.readouterr().err
