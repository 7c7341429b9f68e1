"""Every code block of the documentation is tested, or is taken from a file that a test runs.

Simulated commands are run. Of other commands, which start real clusters or need the project of a
user, the options are read by the parser of their program."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from tests.clusters.apache_kafka.test_billing import BUILT
from warm_start import COMMAND_LINE, PYTEST, Ended, python

from fencepost.commands.cli import app
from fencepost.model.configuration import configured
from fencepost_reference import api
from fencepost_reports.many_runs import class_archive

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
IMAGES = ROOT / "images"
TUTORIAL = DOCS / "examples" / "tutorial"
TESTED = (
    *(TUTORIAL / name for name in ("test_orders.py", "explanation.txt")),
    DOCS / "examples" / "billing",
    DOCS / "examples" / "clients",
    DOCS / "examples" / "attach",
    *(ROOT / "clusters" / "fencepost_clusters" / "etcd", ROOT / "tests", ROOT / "pyproject.toml"),
    ROOT / "framework" / "fencepost" / "skeleton",
    ROOT / "framework" / "fencepost" / "skeleton_program",
    ROOT / "suites" / "fencepost_suites" / "replication" / "watermarks.py",
)
"""Files that other tests import or run, and folders of them."""
FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """One block: its place, the line that opens it, and its lines."""

    page: Path
    line: int
    info: str
    body: str

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(DOCS)}:{self.line}"


def blocks() -> Iterator[Block]:
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text()
        for found in FENCE.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            yield Block(page, line, found["info"].strip(), found["body"])


BLOCKS = [block for block in blocks() if block.info != "{toctree}"]


def parser() -> Any:
    """The command line, whose commands do nothing."""
    made: Any = typer.main.get_command(app)

    def silence(command: Any) -> None:
        for sub in getattr(command, "commands", {}).values():
            sub.callback = None if hasattr(sub, "commands") else lambda **given: None
            silence(sub)

    silence(made)
    return made


def check_words(words: Sequence[str]) -> None:
    """Raises for a command line that its program would refuse."""
    program, *arguments = words
    match program:
        case "fencepost":
            parser().main(arguments, prog_name="fencepost", standalone_mode=False)
        case "pytest":
            collected = api.option_names()
            for word in arguments:
                name, equals, _ = word.partition("=")
                if name.startswith("--fencepost-"):
                    assert equals, word
                    assert name in collected, word
        case "./dev":
            said = subprocess.run(
                [ROOT / "dev", "help"], capture_output=True, text=True, check=True
            ).stdout
            assert re.search(rf"^  {arguments[0]}\b", said, re.MULTILINE), words
            if arguments[0] == "images":
                assert [name for name in arguments[1:] if not (IMAGES / name).is_dir()] == []
        case "python":
            pip = ["-m", "pip", "install"]
            assert arguments in [
                [*pip, "--requirement", "requirements.txt"],
                [*pip, "fencepost"],
                ["-m", class_archive.__name__],
            ]
        case "echo":
            pass
        case "mvn" | "go" | "npm":
            folder = "docs/examples/billing/{}"
            assert words in [
                built.format(folder=folder.format(language)).split()
                for language, built in BUILT.items()
            ]
        case _:
            pytest.fail(f"no test knows the program {program}")


VARIABLE = re.compile(r"\$\{\{.*?\}\}|\$[A-Z_]+")
"""What a CI puts into a command; here it is a number each time."""


def check_shell(text: str) -> None:
    for line in text.splitlines():
        for command in VARIABLE.sub("7", line).split("||"):
            if command.strip():
                check_words(shlex.split(command))


def steps_of(text: str) -> Sequence[str]:
    """The commands of a workflow of GitHub's, or of a file of GitLab's."""
    found: dict[str, Any] = yaml.safe_load(text)
    if "jobs" in found:
        return [step.get("run", "") for job in found["jobs"].values() for step in job["steps"]]
    return [
        line
        for job in found.values()
        for part in ("before_script", "script")
        for line in job.get(part, ())
    ]


@pytest.mark.tool
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_a_code_block_is_true(block: Block) -> None:
    language, _, argument = block.info.partition(" ")
    match language:
        case "{literalinclude}":
            path = (block.page.parent / argument).resolve()
            assert path.is_file()
            assert any(path.is_relative_to(one) for one in TESTED), f"{path} is tested nowhere"
        case "console":
            check_shell(block.body)
        case "toml":
            assert tomllib.loads(block.body)
            configured(block.body)
        case "yaml":
            steps = steps_of(block.body)
            assert any("fencepost" in step for step in steps)
            for step in steps:
                check_shell(step)
        case _:
            pytest.fail(f"a block of {language!r} is tested by nothing: include a tested file")


def shell_lines(block: Block) -> Sequence[str]:
    """The commands of a block."""
    if block.info == "yaml":
        return steps_of(block.body)
    return block.body.splitlines() if block.info == "console" else ()


SIMULATED = re.compile(r"(pytest|fencepost run) (tests/faults|test_orders\.py) .*=?simulated")
"""Commands over the tutorial's test, in the simulator; over whole suites they take minutes."""
RUN = sorted(
    {
        line
        for block in BLOCKS
        for line in shell_lines(block)
        if SIMULATED.match(line) or line in {"fencepost plugins", "fencepost new-system my_db"}
    }
)


def test_the_commands_that_run_are_found() -> None:
    programs = [line.split(" ")[0] for line in RUN]
    assert (programs.count("pytest"), programs.count("fencepost")) == (3, 4)


PROGRAMS = {"pytest": PYTEST, "fencepost": COMMAND_LINE}


@pytest.mark.tool
@pytest.mark.parametrize("line", RUN)
def test_a_simulated_command_runs(line: str, tmp_path: Path) -> None:
    (tmp_path / "tests" / "faults").mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "tests" / "faults"):
        (folder / "test_orders.py").write_text((TUTORIAL / "test_orders.py").read_text())
    program, *arguments = shlex.split(line)
    left_out = "-p no:hypothesispytest -p no:cacheprovider"
    code = PROGRAMS[program]
    done = python(code, *arguments, folder=tmp_path, PYTEST_ADDOPTS=left_out)
    assert done.returncode == (1 if "--fencepost-defects" in line else 0), done.stdout


NIGHTS = [block for block in BLOCKS if block.info == "yaml"]


@pytest.mark.tool
@pytest.mark.parametrize("block", NIGHTS, ids=lambda block: block.name)
def test_the_commands_of_a_night_run_one_after_the_other(block: Block, tmp_path: Path) -> None:
    """As they are there, but for how many runs there are, and how long each is."""
    shorter = {"--runs": "1", "--minutes": "0.05"}
    steps = [one for one in shell_lines(block) if re.match("fencepost (soak|report)", one)]
    assert [one.split()[1] for one in steps] == ["soak", "report"]
    assert "--budget" in steps[0]
    for step in steps:
        _, *words = shlex.split(VARIABLE.sub("7", step).split("||")[0])
        words = [
            shorter.get(before, word) for before, word in zip(["", *words], words, strict=False)
        ]
        done = python(COMMAND_LINE, *words, folder=tmp_path)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "public" / "report.html").is_file()


def test_a_wrong_option_is_found() -> None:
    with pytest.raises(Exception, match="--sede"):
        check_words(["fencepost", "demo", "--sede", "7"])
    with pytest.raises(AssertionError):
        check_words(["pytest", "--fencepost-sede=7"])


def run_tutorial(folder: Path, *options: str) -> Ended:
    """The tutorial's test in the simulator, in a folder of its own."""
    (folder / "test_orders.py").write_text((TUTORIAL / "test_orders.py").read_text())
    simulated = ["--fencepost-runtime=simulated", "--fencepost-seed=7", "-p", "no:cacheprovider"]
    return python(PYTEST, "-p", "no:hypothesispytest", *simulated, *options, folder=folder)


@pytest.mark.tool
def test_the_tutorials_test_passes(tmp_path: Path) -> None:
    done = run_tutorial(tmp_path)
    assert done.returncode == 0, done.stdout


@pytest.mark.tool
def test_the_tutorials_failure_is_printed_as_it_shows(tmp_path: Path) -> None:
    """Figures may differ; the sentences and their order may not."""

    def sentences(text: str) -> list[str]:
        without = re.sub(r"\b(?=[0-9a-f]*\d)[0-9a-f.]+\b|\(\d+ times\)", "N", text)
        return [line.strip().removeprefix("E").strip() for line in without.splitlines()]

    done = run_tutorial(tmp_path, "--fencepost-defects=serves-without-lease")
    assert done.returncode == 1, done.stdout
    seen = iter(sentences(done.stdout.replace("fencepost.model.errors.Violation: ", "")))
    for line in sentences((TUTORIAL / "explanation.txt").read_text()):
        assert line in seen, f"{line}\nis not in\n{done.stdout}"
