"""The documentation: it builds without a warning, and its code blocks are true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import fencepost
from fencepost.plugins.manager import load
from fencepost_reference import GENERATORS, PLACE

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


@pytest.mark.tool
def test_the_documentation_builds_without_a_warning(tmp_path: Path) -> None:
    sphinx = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet"]
    done = subprocess.run(
        [*sphinx, str(DOCS), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_each_generated_part_stands_on_one_page() -> None:
    used = [name for page in PAGES for name in PLACE.findall(page.read_text())]
    assert sorted(used) == sorted(GENERATORS)


def test_the_explanation_of_faults_names_each_of_them() -> None:
    text = (DOCS / "explanation" / "faults.md").read_text()
    assert [name for name in load().faults if f"`{name}`" not in text] == []


def test_the_reference_names_everything_that_plugins_offer() -> None:
    plugins = load()
    text = {name: generate() for name, generate in GENERATORS.items()}
    assert set(re.findall(r"^### (\S+)$", text["clauses"], re.MULTILINE)) == set(plugins.clauses)
    assert set(re.findall(r"^### `(\w+)`$", text["faults"], re.MULTILINE)) == set(plugins.faults)
    for kind in plugins.event_kinds:
        assert f"### `{fencepost.kind_name(kind)}`" in text["events"]
    for name in fencepost.__all__:
        assert f"| `{name}` |" in text["api"]
