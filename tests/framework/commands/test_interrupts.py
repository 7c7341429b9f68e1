"""Commands of many runs, or of many tests, that are interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from fencepost.model.clock import poll

COMMAND = (sys.executable, "-c", "from fencepost.commands.cli import main; main()")
LIMIT_S = 180


@pytest.mark.tool
@pytest.mark.parametrize(
    "command",
    [
        ("soak",),
        ("compare", "--system", "reference/legacy", "--system", "reference/classic"),
    ],
    ids=lambda command: command[0],
)
def test_a_command_of_many_runs_shows_those_that_have_ended_when_it_is_interrupted(
    command: Sequence[str], tmp_path: Path
) -> None:
    many = ("--runtime", "simulated", "--runs", "500", "--minutes", "0.05", "--jobs", "1")
    with subprocess.Popen(
        [*COMMAND, *command, *many, "--json", "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as search:
        # The folder of the third run is there, so the first has ended; clean ones are deleted.
        begun = poll(lambda: any(tmp_path.glob(f"{command[0]}/*-3*/run.json")), LIMIT_S)
        search.send_signal(signal.SIGTERM)
        said, error = search.communicate(timeout=60)
    assert begun
    assert search.returncode == 130, error
    found = json.loads(said)["runs"]
    assert found
    assert {one["trouble"] for one in found} == {""}


@pytest.mark.tool
def test_a_search_for_defects_shows_what_it_found_when_it_is_interrupted(tmp_path: Path) -> None:
    one = ("--only", "serves-without-lease", "--clean", "5000", "--jobs", "1")
    with subprocess.Popen(
        [*COMMAND, "defects", *one, "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as search:
        begun = poll(lambda: any(tmp_path.glob("defects/*random-2*/run.json")), LIMIT_S)
        search.send_signal(signal.SIGTERM)
        said, error = search.communicate(timeout=60)
    assert begun
    assert search.returncode == 130, error
    assert said.splitlines()[0] == "1 of 1 defect found by a clause they break"
    assert "  serves-without-lease: found by QC-" in error  # though it is no terminal
    assert "healthy seed" not in error


@pytest.mark.real
def test_a_command_that_runs_the_suites_ends_when_it_is_interrupted(tmp_path: Path) -> None:
    """The command itself ends, not only the session of pytest that it has begun."""
    with subprocess.Popen(
        [*COMMAND, "conformance", "--runtime", "simulated", "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as matrix:
        begun = poll(lambda: any(tmp_path.glob("conformance/*/run.json")), LIMIT_S)
        matrix.send_signal(signal.SIGTERM)
        said, error = matrix.communicate(timeout=60)
    assert begun
    assert (matrix.returncode, said) == (130, ""), error
    assert "interrupted" in error
