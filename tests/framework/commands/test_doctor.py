"""What the doctor says of this machine."""

from __future__ import annotations

import pwd
from pathlib import Path

import pytest

from fencepost.commands.doctor import Finding, examine

pytestmark = pytest.mark.tool


def said_of(what: str) -> Finding:
    (found,) = (one for one in examine() if one.what == what)
    return found


@pytest.mark.parametrize("path", ["", "/usr/bin:/bin"], ids=["no other", "another in the PATH"])
def test_it_asks_the_java_that_a_run_would_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"25.0.2\" 2026-01-20' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert said_of("Java") == Finding("Java", True, f"25 at {java}")
    monkeypatch.setenv("JAVA_HOME", "/nope")
    lacks = "/nope/bin/java, by JAVA_HOME, is no program; the Spark report needs 17 or newer"
    assert said_of("Java") == Finding("Java", False, lacks)


def test_it_says_that_a_user_has_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(user: int) -> None:
        raise KeyError(user)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    found = said_of("folder for software")
    assert found.good
    assert found.message.startswith("none, which only software that is fetched needs: the user ")
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert said_of("folder for software").message == "/c/fencepost"
