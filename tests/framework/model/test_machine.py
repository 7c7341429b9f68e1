"""What runs need of their machine: found, or named in one sentence."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost import EnvironmentFailed, cache_folder, java_program
from fencepost.model.machine import home_folder, with_home
from fencepost.supervision.addresses import check_loopback


@pytest.fixture
def nameless(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user is in no list of users, as in many containers."""

    def unknown(user: int) -> None:
        raise KeyError(user)

    monkeypatch.setattr(pwd, "getpwuid", unknown)


def test_the_cache_is_the_users() -> None:
    assert cache_folder({"XDG_CACHE_HOME": "/c", "HOME": "/h"}) == Path("/c/fencepost")
    assert cache_folder({"HOME": "/h"}) == Path("/h/.cache/fencepost")
    assert cache_folder({}) == Path("~/.cache/fencepost").expanduser()


def test_a_tool_is_told_the_home_that_the_list_of_users_says() -> None:
    assert with_home({"HOME": "/h", "A": "b"}) == {"HOME": "/h", "A": "b"}
    assert with_home({"A": "b"}) == {"HOME": pwd.getpwuid(os.getuid()).pw_dir, "A": "b"}


def test_without_a_home_a_tool_is_told_none(nameless: None) -> None:
    assert with_home({"A": "b"}) == {"A": "b"}


def test_a_user_without_a_home_needs_another_folder(nameless: None) -> None:
    assert home_folder({}) is None
    assert cache_folder({"XDG_CACHE_HOME": "/c"}) == Path("/c/fencepost")
    with pytest.raises(EnvironmentFailed, match=r"has no home .* XDG_CACHE_HOME"):
        cache_folder({})


def test_java_is_that_of_its_home_or_of_the_path(tmp_path: Path) -> None:
    assert java_program({"JAVA_HOME": "/j", "PATH": str(tmp_path)}) == "/j/bin/java"
    assert java_program({"PATH": str(tmp_path)}) is None
    (tmp_path / "java").touch(0o755)
    assert java_program({"PATH": str(tmp_path)}) == str(tmp_path / "java")


def test_the_loopback_of_this_machine_will_do() -> None:
    check_loopback()


@pytest.mark.tool
def test_a_loopback_interface_that_is_down_is_named_at_once() -> None:
    apart = ["unshare", "--net", "--map-root-user"]
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not make a network namespace")
    code = "from fencepost.supervision.addresses import claim; claim()"
    ended = subprocess.run(
        [*apart, sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=10,
    )
    assert ended.stderr.splitlines()[-1] == (
        "fencepost.model.errors.EnvironmentFailed: the loopback address 127.222.1.1 cannot be "
        "reached: Network is unreachable; is the interface lo up?; real processes need every "
        "address of 127.0.0.0/8, and the simulated runtime needs none of it"
    )
