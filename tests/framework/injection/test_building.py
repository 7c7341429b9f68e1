"""Where `fencepost setup` puts toxiproxy."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from fencepost import EnvironmentFailed
from fencepost.injection import building

GO = """#!/bin/sh
while [ "$1" != -o ]; do shift; done
echo built >"$2"
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A PATH with a Go that builds at once."""
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(GO)
    go.chmod(0o755)
    return {"PATH": f"{go.parent}{os.pathsep}{os.defpath}", "HOME": str(tmp_path)}


@pytest.mark.tool
def test_the_folder_that_is_asked_for_is_made(tmp_path: Path, environment: dict[str, str]) -> None:
    into = tmp_path / "new" / "folder"
    program = building.build_toxiproxy(into, environment)
    assert program == into / "fencepost-toxiproxy"
    assert program.read_text() == "built\n"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentFailed, match="file/new cannot be written: Not a directory"):
        building.build_toxiproxy(tmp_path / "file" / "new", environment)


def test_a_user_without_a_home_has_the_folder_of_python_only(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    def unknown(user: int) -> None:
        raise KeyError(user)

    assert len(building.places({**environment, "PATH": f"{environment['HOME']}/.local/bin"})) == 2
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    del environment["HOME"]
    assert len(building.places(environment)) == 1


def test_folders_that_cannot_be_written_are_named(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    monkeypatch.setattr(building, "places", lambda environment: [Path("/proc")])
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != "/proc")
    with pytest.raises(EnvironmentFailed) as failed:
        building.build_toxiproxy(None, environment)
    assert str(failed.value) == "/proc cannot be written: name a folder by --into"
