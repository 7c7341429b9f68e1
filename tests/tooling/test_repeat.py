"""`./dev flaky`: so many repetitions under CPU pressure, and the folder of each failure."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import nested
import pytest
import repeat

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.tool

PROGRAM = Path(repeat.__file__)
TEST = """
    from pathlib import Path

    def test_every_second_time():
        count = len(list(Path.cwd().glob("ran.*")))
        Path(f"ran.{count}").touch()
        assert count % 2 == 0
"""


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(PROGRAM), *arguments]
    return subprocess.run(words, cwd=project, capture_output=True, text=True, check=False)


def test_failures_are_counted_and_kept(pytester: pytest.Pytester) -> None:
    nested.prepare(pytester)
    pytester.makepyfile(test_it=TEST)
    done = run(pytester.path, "2", "test_it.py::test_every_second_time")
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "1 of 2 failed"
    assert [line for line in lines if " of 2: " in line] == [*("1 of 2: passed", "2 of 2: failed")]
    (log,) = re.findall(r"output: (\S+)", done.stdout)
    assert "assert (" in (pytester.path / log).read_text()
    assert run(pytester.path, "1", "no_such_test.py").returncode == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize("words", [(), ("3",), ("many", "test_it.py"), ("0", "test_it.py")])
def test_wrong_words_are_answered_with_the_usage(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = run(tmp_path, *words)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ./dev flaky N TEST")


def test_the_busy_processes_end_with_the_pressure() -> None:
    def children() -> int:
        listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
        return len(listed.split())

    before = children()
    with repeat.pressure():
        assert children() > before
    assert children() == before
