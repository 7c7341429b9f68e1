"""The example of a program of the user's: a service that commits before it writes is found in each
language, and one that writes first is not accused."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "docs" / "examples" / "billing"
BUILT = {
    "python": "",
    "java": "mvn --file {folder} package",
    "go": "go build -C {folder} -o billing .",
    "node": "npm ci --prefix {folder}",
}
"""language -> the command that builds its program, as the documentation has it."""
LANGUAGES = [
    "python",
    *(pytest.param(one, marks=pytest.mark.nightly) for one in BUILT if one != "python"),
]
pytestmark = pytest.mark.real


def built(language: str, folder: Path, *, careful: bool = False) -> Path:
    """A copy of the example in that language, built; skips the test if a tool is not there."""
    made_before = shutil.ignore_patterns("target", "node_modules", "billing", "__pycache__")
    example = folder / language
    shutil.copytree(EXAMPLE / language, example, ignore=made_before)
    words = BUILT[language].format(folder=example).split()
    if words:
        if shutil.which(words[0]) is None:
            pytest.skip(f"the example in {language} is built by {words[0]}, which is not here")
        alone = {**os.environ, "GOWORK": "off"}
        made = subprocess.run(words, env=alone, check=False, capture_output=True, text=True)
        assert made.returncode == 0, made.stdout + made.stderr
    if careful:
        test = example / "test_billing.py"
        text, changed = re.subn(r'"\{bootstrap\}"\]', '"{bootstrap}", "careful"]', test.read_text())
        assert changed == 1
        test.write_text(text)
    return example


def run(tests: Path, out: Path) -> tuple[int, dict[str, str], str]:
    """The exit code, the verdicts by their clauses, and what was printed."""
    words = ("run", str(tests), "--system", "apache/kraft", "--out", str(out), "--json")
    argv = [str(Path(sys.executable).with_name("fencepost")), *words]
    ended = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=300)
    return ended.returncode, json.loads(ended.stdout)["verdicts"], ended.stderr


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_service_that_commits_before_it_writes_loses_orders(
    language: str, tmp_path: Path
) -> None:
    code, verdicts, printed = run(built(language, tmp_path), tmp_path / "out")
    assert (code, verdicts.get("CHECK-all-billed")) == (1, "violated"), printed
    assert verdicts["APP-runs"] == "holds"


@pytest.mark.nightly
@pytest.mark.parametrize("language", BUILT)
def test_one_that_writes_first_loses_none(language: str, tmp_path: Path) -> None:
    careful = built(language, tmp_path, careful=True)
    code, verdicts, printed = run(careful, tmp_path / "out")
    assert (code, verdicts.get("CHECK-all-billed")) == (0, "holds"), printed
