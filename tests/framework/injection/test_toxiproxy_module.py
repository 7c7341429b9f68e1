"""Our build of toxiproxy: its own tests, in Go, and `go vet`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.go_tool import go

from fencepost.injection import toxiproxies

MODULE = Path(toxiproxies.__file__).parent / "toxiproxy"

pytestmark = [
    pytest.mark.tool,
    pytest.mark.skipif(shutil.which("go") is None, reason="needs Go"),
]


@pytest.mark.parametrize(
    "asked", [["vet", "./..."], ["test", "./..."], ["mod", "verify"]], ids=lambda words: words[0]
)
def test_go_finds_nothing_wrong(asked: list[str]) -> None:
    done = go(*asked, cwd=MODULE)
    assert done.returncode == 0, done.stdout + done.stderr


def test_its_sources_are_formatted() -> None:
    done = subprocess.run(["gofmt", "-l", MODULE], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("", "")
