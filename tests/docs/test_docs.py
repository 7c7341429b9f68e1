"""The documentation: it builds without a warning, and its code blocks are true."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fencepost
from fencepost.plugins.manager import load
from fencepost_reference import GENERATORS, PLACE, stable

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
    for module in stable.MODULES:
        for name in importlib.import_module(module).__all__:
            assert f"| `{name}` |" in text["api"]


def test_every_type_in_a_stable_signature_can_be_imported() -> None:
    assert stable.unlisted() == {}


def test_a_class_whose_objects_fencepost_makes_is_listed() -> None:
    assert stable.OBTAINED - {one.name for one in stable.listed()} == set()


def without_meaning(text: str) -> Iterator[str]:
    """The names in a table with an empty meaning; of members, only those that are called."""
    meaning = -1
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if "meaning" in cells:
            meaning = cells.index("meaning")
            members = cells[0] == "member"
        elif (
            meaning != -1
            and cells
            and not cells[meaning]
            and (not members or "(" in cells[0].partition(":")[0])
        ):
            yield cells[0]


@pytest.mark.parametrize("name", ["api", "exit-codes", "markers", "options", "commands"])
def test_nothing_in_the_reference_has_an_empty_meaning(name: str) -> None:
    assert list(without_meaning(GENERATORS[name]())) == []


def test_an_empty_meaning_is_seen() -> None:
    table = "| name | meaning |\n| --- | --- |\n| `A` | a letter |\n| `B` |  |"
    assert list(without_meaning(table)) == ["`B`"]
