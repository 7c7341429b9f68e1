"""A host without /proc, inotify and 127.0.0.0/8: what is simulated runs there, and what is not says
why.

Each of the three is denied to every Python of a command, by an audit hook; O_PATH is not there
either. Such a host need not be another system: containers hide /proc, and some kernels have no
inotify.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from warm_start import COMMAND_LINE, PYTEST

pytestmark = pytest.mark.tool

TUTORIAL = Path(__file__).parent.parent.parent.parent / "docs" / "examples" / "tutorial"
LIMIT_S = 300
DENIES = """
import errno, os, sys
denied = os.environ["DENIED"].split()
del os.O_PATH

def deny(event, arguments):
    if "/proc" in denied and event in ("open", "os.listdir", "os.scandir"):
        if str(arguments[0]).startswith("/proc"):
            raise PermissionError(errno.EACCES, "Permission denied", arguments[0])
    elif "inotify" in denied and event == "import" and arguments[0] == "inotify_simple":
        raise ImportError("inotify is denied")
    elif "127.0.0.0/8" in denied and event == "socket.bind" and isinstance(arguments[1], tuple):
        if str(arguments[1][0]).startswith("127.") and arguments[1][0] != "127.0.0.1":
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")

sys.addaudithook(deny)
"""
ALL = "/proc inotify 127.0.0.0/8"


@pytest.fixture
def hook(tmp_path: Path) -> Path:
    """The folder of the hook that every Python imports at its start."""
    folder = tmp_path / "hook"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(DENIES)
    return folder


def run(hook: Path, code: str, *words: str, denied: str = ALL) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(hook), "DENIED": denied}
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=hook.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def test_the_hook_denies_all_three(hook: Path) -> None:
    """Otherwise the tests below show nothing."""
    tries = (
        *("open('/proc/self/stat')", "import inotify_simple"),
        "import socket; socket.socket().bind(('127.0.0.2', 0))",
    )
    for one in tries:
        code = f"try:\\n    {one}\\nexcept Exception as error:\\n    print(type(error).__name__)"
        done = run(hook, code.replace("\\n", "\n"))
        assert done.stdout.strip() in ("PermissionError", "ImportError", "OSError"), one
    assert run(hook, "import os; print(hasattr(os, 'O_PATH'))").stdout.strip() == "False"


def test_a_soak_and_its_report_are_made_in_the_simulator(hook: Path) -> None:
    soak = ("soak", "--runtime=simulated", "--runs=2", "--minutes=0.05", "--jobs=2", "--keep")
    done = run(hook, COMMAND_LINE, *soak)
    assert done.returncode == 0, done.stderr
    assert "clean (2 of 2 runs)" in done.stdout
    first, _ = sorted((hook.parent / ".fencepost" / "soak").glob("*-soak-?"))
    report = run(hook, COMMAND_LINE, "report", str(first))
    assert report.returncode == 0, report.stderr
    assert (hook.parent / report.stdout.strip()).is_file()
    replayed = run(hook, COMMAND_LINE, "replay", str(first))
    assert replayed.returncode == 0, replayed.stderr


def test_tests_run_in_the_simulator(hook: Path) -> None:
    (hook.parent / "test_orders.py").write_text((TUTORIAL / "test_orders.py").read_text())
    simulated = (
        "--fencepost-runtime=simulated",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:hypothesispytest",
    )
    done = run(hook, PYTEST, *simulated)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


@pytest.mark.parametrize(
    ("denied", "says"),
    [
        ("/proc", "real processes need /proc, which cannot be read here (Permission denied)"),
        ("inotify", "real processes need inotify, which is not to be had here"),
        ("127.0.0.0/8", "real processes need every address of 127.0.0.0/8"),
    ],
)
def test_real_processes_say_what_they_lack(hook: Path, denied: str, says: str) -> None:
    done = run(hook, COMMAND_LINE, "cluster", "up", "--out", "up", denied=denied)
    assert (done.returncode, done.stdout) == (4, "")
    (line,) = done.stderr.splitlines()
    assert says in line
    assert line.endswith("the simulated runtime needs none of it")
    assert not (hook.parent / "up").exists()


def test_doctor_says_what_the_host_lacks_and_claims_nothing_that_it_cannot_see(hook: Path) -> None:
    done = run(hook, COMMAND_LINE, "doctor", denied="/proc")
    assert done.returncode == 4
    assert "lacks kernel: real processes need /proc" in done.stdout
    # os.stat is not audited, so the hook cannot hide that /proc is there.
    assert "leftovers:" in done.stdout
