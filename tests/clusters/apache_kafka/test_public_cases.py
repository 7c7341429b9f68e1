"""Defects of other clients of Kafka, as they were reported in public: each client runs as a program
of a stranger's, in an environment of its own, and is judged."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "clients"
pytestmark = [pytest.mark.real, pytest.mark.nightly]


def done(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, **environment}
    return subprocess.run(words, env=variables, check=False, capture_output=True, text=True)


def with_sarama(version: str, folder: Path) -> Sequence[str]:
    """The writer, built with that version of sarama."""
    if shutil.which("go") is None:
        pytest.skip("sarama is built by go, which is not here")
    shutil.copytree(EXAMPLE / "sarama", folder / "sarama")
    module, alone = str(folder / "sarama"), {"GOWORK": "off", "GOFLAGS": "-mod=mod"}
    for words in (
        ("go", "get", "-C", module, f"github.com/IBM/sarama@{version}"),
        ("go", "build", "-C", module, "-o", "writer", "."),
    ):
        made = done(*words, **alone)
        assert made.returncode == 0, made.stderr
    return [str(folder / "sarama" / "writer")]


def with_package(package: str, program: str, folder: Path) -> Sequence[str]:
    """The writer with that package, in a virtual environment of its own."""
    made = done(sys.executable, "-m", "venv", str(folder / "venv"))
    assert made.returncode == 0, made.stderr
    python = str(folder / "venv" / "bin" / "python")
    words = ("-m", "pip", "-q", "install", "--only-binary=:all:", package)
    brought = done(python, *words)
    if "No matching distribution" in brought.stderr:
        pytest.skip(f"there is no {package} for this Python")
    assert brought.returncode == 0, brought.stderr
    return [python, str(EXAMPLE / program)]


def verdicts(argv: Sequence[str], case: str, out: Path) -> tuple[int, dict[str, str], str]:
    """The exit code, the verdicts by their clauses, and what was printed."""
    words = (str(EXAMPLE / "test_writer.py"), "-k", case, "--system", "apache/kraft", "--json")
    fencepost = str(Path(sys.executable).with_name("fencepost"))
    ended = done(fencepost, "run", *words, "--out", str(out), WRITER=json.dumps(argv))
    return ended.returncode, json.loads(ended.stdout)["verdicts"], ended.stderr


def test_sarama_1_46_0_loses_messages_under_reassignments(tmp_path: Path) -> None:
    argv = with_sarama("v1.46.0", tmp_path)
    code, found, printed = verdicts(argv, "reassignments", tmp_path / "out")
    assert (code, found.get("CHECK-none-missing")) == (1, "violated"), printed
    assert found["APP-runs"] == "holds"
    assert [clause for clause, one in found.items() if one == "violated"] == ["CHECK-none-missing"]


@pytest.mark.parametrize(
    ("client", "case"),
    [
        ("sarama v1.61.1", "reassignments"),
        ("confluent-kafka==2.2.0", "dead_leader"),
        ("aiokafka==0.12.0", "cut_off"),
    ],
)
def test_other_clients_lose_nothing(client: str, case: str, tmp_path: Path) -> None:
    """Neither the client nor the cluster is accused."""
    name, _, version = client.replace("==", " ").partition(" ")
    if name == "sarama":
        argv = with_sarama(version, tmp_path)
    else:
        argv = with_package(client, f"write_{name.partition('-')[0]}.py", tmp_path)
    code, found, printed = verdicts(argv, case, tmp_path / "out")
    assert (code, found.get("CHECK-none-missing")) == (0, "holds"), printed
    assert found["APP-runs"] == "holds"
