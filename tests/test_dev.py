"""./dev: names each missing tool in one sentence, and makes nothing before all are there."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOXIPROXY = "framework/fencepost/injection/toxiproxy"
TOOLS = (
    *("bash", "cat", "cksum", "dirname", "env", "find", "flock", "grep", "head", "rm", "sed"),
    *("sort", "xargs"),
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout as `./dev setup` first meets it, with a folder of tools beside it."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name in ("dev", "hatch_build.py", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / TOXIPROXY, folder / TOXIPROXY)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    return folder


def add(checkout: Path, name: str, script: str) -> None:
    """Puts a tool of that name on the path."""
    tool = checkout.parent / "bin" / name
    tool.write_text(f"#!/usr/bin/env bash\n{script}\n")
    tool.chmod(0o755)


def dev(checkout: Path, *args: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["./dev", *args],
        cwd=checkout,
        env={"PATH": str(checkout.parent / "bin"), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def java(version: str) -> str:
    return f"echo 'openjdk version \"{version}\" 2025-04-15' >&2"


@pytest.mark.tool
def test_python_go_java_and_room_on_the_disk_are_each_asked_for_by_name(checkout: Path) -> None:
    def refusal() -> str:
        done = dev(checkout, "setup")
        assert done.returncode == 4
        assert not (checkout / ".venv").exists()
        (sentence,) = done.stderr.splitlines()
        return sentence

    assert "Python 3.11 or newer is missing" in refusal()
    add(checkout, "python3", f'exec {sys.executable} "$@"')
    assert "Go 1.23 or newer is missing" in refusal()
    add(checkout, "go", "exit 1")
    assert "Java 17 or newer is missing" in refusal()
    add(checkout, "java", java("11.0.2"))
    assert "'java' is version 11" in refusal()
    add(checkout, "java", java("17.0.15"))
    add(checkout, "df", r"printf 'Filesystem 1M-blocks\n/dev/vda 9000 8000 1200 99%% /\n'")
    assert refusal() == "Only 1200 MB of disk are free here, and the environment needs 3000."


@pytest.mark.tool
def test_a_python_that_is_too_old_does_not_count(checkout: Path) -> None:
    add(checkout, "python3", "exit 1")
    assert "Python 3.11 or newer is missing" in dev(checkout, "setup").stderr


@pytest.mark.tool
def test_unknown_words_are_refused_with_the_known_ones(checkout: Path) -> None:
    done = dev(checkout, "tset")
    assert done.returncode == 2
    assert "usage: ./dev COMMAND" in done.stderr
    assert dev(checkout, "--help").returncode == 0


def set_up(checkout: Path, **programs: str) -> None:
    """Makes these scripts the programs of .venv, and that the work of `./dev setup`."""
    folder = checkout / ".venv" / "bin"
    folder.mkdir(parents=True)
    for name, script in programs.items():
        (folder / name).write_text(f"#!/usr/bin/env bash\n{script}\n")
        (folder / name).chmod(0o755)
    fingerprint = "source <(sed -n '/^TOXIPROXY=/p; /^fingerprint()/,/^}/p' dev); fingerprint"
    with (checkout / ".venv" / ".set-up").open("wb") as stamp:
        subprocess.run(["bash", "-c", fingerprint], cwd=checkout, stdout=stamp, check=True)


@pytest.mark.tool
def test_a_c_compiler_is_asked_for_by_name(checkout: Path) -> None:
    for folder in ("plugins", "clusters", "suites", "reports"):
        (checkout / folder).mkdir()
    set_up(checkout, python=f'exec {sys.executable} "$@"')
    for command in (["compile"], ["compiled", "python"]):
        (checkout / ".compiled").mkdir()  # of other sources
        done = dev(checkout, *command, CC="no-such-compiler")
        assert (done.returncode, done.stdout) == (4, "")
        (sentence,) = done.stderr.splitlines()
        assert "A C compiler is missing" in sentence
        assert not (checkout / ".compiled").exists()


@pytest.mark.tool
def test_only_a_program_of_the_environment_runs_compiled(checkout: Path) -> None:
    set_up(checkout, python="")
    for words in ([], ["fencepsot"], ["../bin"]):
        done = dev(checkout, "compiled", *words)
        assert done.returncode == 2
        assert "usage: ./dev compiled COMMAND" in done.stderr


@pytest.mark.tool
def test_kafka_may_be_left_out_of_containers_unless_they_are_required(checkout: Path) -> None:
    set_up(checkout, python="", pytest="")
    for required, code in (("", 0), ("required", 4)):
        done = dev(checkout, "test-docker", FENCEPOST_DOCKER=required)
        assert (done.returncode, done.stdout) == (code, "")
        (sentence,) = done.stderr.splitlines()
        assert "Apache Kafka was left out: Maven (mvn)" in sentence


@pytest.mark.tool
@pytest.mark.parametrize("absolute", [False, True])
def test_toxiproxy_is_built_into_the_environment_wherever_that_is(
    checkout: Path, absolute: bool
) -> None:
    programs = checkout / "elsewhere" / "bin"
    programs.mkdir(parents=True)
    add(checkout, "go", 'while [ "$1" != -o ]; do shift; done; echo built >"$2"')
    words = "/^TOXIPROXY=/p; /^VENV=/p; /^BIN=/p; /^say()/,/^}/p; /^install_toxiproxy()/,/^}/p"
    subprocess.run(
        ["bash", "-c", f"source <(sed -n '{words}' dev); install_toxiproxy"],
        cwd=checkout,
        env={
            "PATH": str(checkout.parent / "bin"),
            "FENCEPOST_VENV": str(checkout / "elsewhere") if absolute else "elsewhere",
        },
        check=True,
    )
    assert (programs / "fencepost-toxiproxy").read_text() == "built\n"


@dataclass(frozen=True)
class SuiteTest:
    """A test of the suites: the runtimes it is marked for, what it shows of real nodes, and the
    faults it injects."""

    name: str
    only: frozenset[str]
    physical: frozenset[str]
    faults: frozenset[str]


def suite_tests() -> Iterator[SuiteTest]:
    for path in sorted((ROOT / "suites" / "fencepost_suites").rglob("test_*.py")):
        module = import_module(f"fencepost_suites.{path.parent.name}.{path.stem}")
        shared = getattr(module, "pytestmark", [])
        for function in ast.parse(path.read_text()).body:
            if isinstance(function, ast.FunctionDef) and function.name.startswith("test_"):
                marks = [
                    *(shared if isinstance(shared, list) else [shared]),
                    *getattr(getattr(module, function.name), "pytestmark", []),
                ]
                marks += [
                    of_case
                    for mark in marks
                    if mark.name == "parametrize"
                    for case in mark.args[1]
                    for of_case in getattr(case, "marks", ())
                ]
                yield SuiteTest(
                    function.name,
                    frozenset(name for mark in marks if mark.name == "only" for name in mark.args),
                    frozenset(w for mark in marks if mark.name == "physical" for w in mark.args),
                    frozenset(re.findall(r"\bfaults\.(\w+)\(", ast.unparse(function))),
                )


def test_real_nodes_run_what_the_simulator_cannot_and_every_kind_of_fault() -> None:
    """`./dev test` runs the suites in the simulator, and those marked `physical` on processes."""
    tests = [test for test in suite_tests() if "apache/kraft" not in test.only]
    physical = [test for test in tests if test.physical]
    assert {what for test in physical for what in test.physical} == {
        *("sockets", "disks", "signals", "clocks"),
    }
    of_processes = [test for test in tests if "process" in test.only]
    assert of_processes
    assert [test.name for test in of_processes if not test.physical] == []
    injected = {fault for test in physical for fault in test.faults}
    assert injected == {f for test in tests if test.only != {"simulated"} for f in test.faults}


def test_the_lock_holds_exact_versions_and_no_places() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    packages = [line for line in lines if not line.startswith("#")]
    assert len(packages) > 30
    assert all(line.count("==") == 1 for line in packages)
    assert not any("/" in line or "@" in line for line in packages)


def test_the_lock_holds_all_that_the_project_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    named = [*project["dependencies"], *(name for extra in extras for name in extra)]
    locked = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / "requirements.lock").read_text().splitlines()
    }
    wanted = {re.split(r"[\[>]", name)[0].lower().replace("_", "-") for name in named}
    assert wanted - {"fencepost"} <= locked  # an extra may name others
