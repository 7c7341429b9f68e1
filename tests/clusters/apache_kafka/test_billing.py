"""The example of a program of the user's: a service that commits before it writes is found, and one
that writes first is not accused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "docs" / "examples" / "billing"
pytestmark = pytest.mark.real


def run(tests: Path, out: Path) -> tuple[int, dict[str, str], str]:
    """The exit code, the verdicts by their clauses, and what was printed."""
    words = ("run", str(tests), "--system", "apache/kraft", "--out", str(out), "--json")
    argv = [sys.executable, "-m", "fencepost", *words]
    ended = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=300)
    return ended.returncode, json.loads(ended.stdout)["verdicts"], ended.stderr


def test_a_service_that_commits_before_it_writes_loses_orders(tmp_path: Path) -> None:
    code, verdicts, printed = run(EXAMPLE / "python", tmp_path)
    assert (code, verdicts["CHECK-all-billed"]) == (1, "violated"), printed
    assert verdicts["APP-runs"] == "holds"


@pytest.mark.nightly
def test_one_that_writes_first_loses_none(tmp_path: Path) -> None:
    careful = tmp_path / "careful"
    careful.mkdir()
    for file in (EXAMPLE / "python").glob("*.py"):
        text = file.read_text()
        if file.name.startswith("test_"):
            text, changed = re.subn(r'"\{bootstrap\}"\]', '"{bootstrap}", "careful"]', text)
            assert changed == 1
        (careful / file.name).write_text(text)
    code, verdicts, printed = run(careful, tmp_path / "out")
    assert (code, verdicts["CHECK-all-billed"]) == (0, "holds"), printed
