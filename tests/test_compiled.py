"""The compiled build: its modules are compiled, and give the histories and the verdicts that
interpreted ones give.

The packages are those that `./dev compile` makes, and it makes them only if sources changed.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
COMPILED = ROOT / ".compiled"
SETTINGS: Mapping[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"][
    "build"
]["targets"]["wheel"]["hooks"]["custom"]
MISSING = 4
HARMLESS = {"frozen", "gc", "kw_only"}
SIMULATED = ("--runtime", "simulated")
SOAK = ("fencepost", "soak", *SIMULATED, "--runs", "2", "--minutes", "0.2", "--keep")
DEFECT = "serves-without-lease"
VERDICTS = "verdicts.json"
FILES = "import sys, importlib; print(*(importlib.import_module(n).__file__ for n in sys.argv[1:]))"


def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def chosen() -> list[Path]:
    """The sources of the modules that are compiled."""
    return [Path(one) for one in hook().chosen(ROOT, SETTINGS["compile"], SETTINGS["interpret"])]


def test_each_pattern_of_modules_names_some() -> None:
    patterns = [*SETTINGS["compile"], *SETTINGS["interpret"]]
    assert [one for one in patterns if not hook().chosen(ROOT, [one], [])] == []
    assert len(chosen()) > 70


def wrong_classes(is_wrong: Callable[[ast.ClassDef], bool]) -> list[str]:
    """The classes of compiled modules that are wrong."""
    return [
        f"{path}:{node.lineno}: {node.name}"
        for path in chosen()
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(node, ast.ClassDef) and is_wrong(node)
    ]


def test_a_compiled_module_has_no_class_that_needs_its_options() -> None:
    """mypyc loses the options of msgspec's classes. Without those in HARMLESS a class accepts what
    correct code does not do, or costs more; any other one, such as `tag`, changes what a message
    is. It loses most types of fields, too, so such a class cannot be decoded."""

    def needs_them(node: ast.ClassDef) -> bool:
        is_struct = any(ast.unparse(base).endswith("Struct") for base in node.bases)
        return is_struct and not HARMLESS.issuperset(option.arg for option in node.keywords)

    assert wrong_classes(needs_them) == []


def test_no_dataclass_of_a_compiled_module_has_a_variable_of_the_class() -> None:
    """mypyc loses that it is one, so the constructor assigns it, and raises: `SharedFold.kinds` of
    a dataclass stopped each rule that named the fold."""

    def has_one(node: ast.ClassDef) -> bool:
        made = [ast.unparse(one) for one in node.decorator_list]
        return any(one.startswith("dataclass") for one in made) and any(
            isinstance(one, ast.AnnAssign) and ast.unparse(one.annotation).startswith("ClassVar")
            for one in node.body
        )

    assert wrong_classes(has_one) == []


def ran(*words: str) -> str:
    """Runs a program to its end in this checkout, as if it were called from a shell: with the
    virtual environment of this test, and no packages but the installed ones."""
    done = subprocess.run(
        words,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "", "FENCEPOST_VENV": sys.prefix},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.fixture(scope="module")
def compiled() -> Path:
    """The folder with the compiled packages; skips the test without a C compiler."""
    try:
        ran("./dev", "compile")
    except subprocess.CalledProcessError as error:
        if error.returncode != MISSING:
            raise
        pytest.skip("the modules were not compiled: see above for what is missing")
    return COMPILED


def interpreted(program: str, *words: str) -> str:
    return ran(str(Path(sys.executable).with_name(program)), *words)


@pytest.mark.tool
@pytest.mark.nightly
def test_the_modules_that_are_named_are_compiled_and_no_others_of_the_checkout(
    compiled: Path,
) -> None:
    modules = [".".join(path.with_suffix("").parts[1:]) for path in chosen()]
    files = ran("./dev", "compiled", "python", "-c", FILES, *modules).split()
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    assert files == [str(compiled / f"{one.replace('.', '/')}{suffix}") for one in modules]
    files = interpreted("python", "-c", FILES, *modules).split()
    assert files == [str(ROOT / path) for path in chosen()]


def histories(out: Path) -> dict[str, bytes]:
    """The events and the verdicts of the runs below, without the names of the runs, by seed and
    file."""
    found = {}
    for described in sorted(out.glob("soak/*/run.json")):
        run = json.loads(described.read_bytes())
        for file in sorted((*described.parent.glob("events/*"), described.with_name(VERDICTS))):
            content = file.read_bytes().replace(run["run"].encode(), b"RUN")
            found[f"{run['seed']}/{file.name}"] = content
    return found


@pytest.mark.tool
@pytest.mark.nightly
@pytest.mark.usefixtures("compiled")
def test_compiled_and_interpreted_modules_give_the_same_histories_and_verdicts(
    tmp_path: Path,
) -> None:
    ran("./dev", "compiled", *SOAK, "--out", str(tmp_path / "compiled"))
    interpreted(*SOAK, "--out", str(tmp_path / "interpreted"))
    ours, theirs = (histories(tmp_path / one) for one in ("compiled", "interpreted"))
    harness = [content for name, content in ours.items() if name.endswith("/harness.ndjson")]
    assert len(harness) == 2
    assert all(content.count(b'"fault.injected"') > 1 for content in harness)
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []


@pytest.mark.tool
@pytest.mark.nightly
@pytest.mark.usefixtures("compiled")
def test_a_search_on_compiled_modules_finds_a_defect_and_accuses_no_healthy_run(
    tmp_path: Path,
) -> None:
    """A search reads the verdicts that it has written, and conducts runs by pytest."""
    words = ("--only", DEFECT, "--clean", "1", "--json", "--out", str(tmp_path))
    found = json.loads(ran("./dev", "compiled", "fencepost", "defects", *SIMULATED, *words))
    assert [(one["name"], one["found"]) for one in found["defects"]] == [(DEFECT, True)]
    assert found["clean"] == {"seeds": 1, "false_alarms": [], "forfeited": []}
