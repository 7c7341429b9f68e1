"""Every way for the owner of a run to die leaves no process of the run after 5 s.

An owner is a program that starts a run and makes a file `ready` once it is up. To test another
owner, such as a command, add it to `OWNERS`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.echo_node import KINDS

from fencepost import Codec
from fencepost.history import merge as history
from fencepost.history.run_folder import RunFolder
from fencepost.model.clock import poll

pytestmark = pytest.mark.real

LIMIT_S = 5.0
OWN_LIMIT_S = 30
"""How long an owner may take to begin its teardown, and to end: that is its own affair."""
HERE = Path(__file__).parent
PYTEST = (
    *(sys.executable, "-m", "pytest", "-q"),
    *("-p", "no:cacheprovider", "-p", "no:hypothesispytest"),
)
ECHO = ("supervisor.py", "fencepost-toxiproxy", "echo_node.py node", "echo_node.py client")
NODES = ("supervisor.py", "fencepost-toxiproxy", "reference.shell")


@dataclass(frozen=True)
class Owner:
    """A program that owns a run, and words in the commands of its run's processes."""

    argv: tuple[str, ...]
    parts: tuple[str, ...] = ECHO


def program(name: str, *words: str) -> tuple[str, ...]:
    return (sys.executable, os.fspath(HERE / name), "{folder}", *words)


OWNERS: Mapping[str, Owner] = {
    "python": Owner(program("python_owner.py")),
    "python-with-a-fork": Owner(program("python_owner.py", "fork")),
    "pytest": Owner((*PYTEST, os.fspath(HERE / "pytest_owner.py"))),
    "pytest-xdist": Owner((*PYTEST, "-n", "1", os.fspath(HERE / "pytest_owner.py"))),
    "plugin": Owner(
        (
            *PYTEST,
            "-W",
            "default",
            "--fencepost-out={folder}/out",
            os.fspath(HERE / "plugin_owner.py"),
        ),
        NODES,
    ),
    "cli": Owner(program("cli_owner.py"), NODES),
}


@dataclass(frozen=True)
class Seen:
    """A process as /proc shows it; with its start time, so that a reused id is another process."""

    pid: int
    parent: int
    started: str
    command: str

    @property
    def lives(self) -> bool:
        now = look(self.pid)
        return now is not None and now.started == self.started


def look(pid: int) -> Seen | None:
    """The process of that id, unless it is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if stat[0] == "Z" else Seen(pid, int(stat[1]), stat[19], command)


def descendants(pid: int) -> list[Seen]:
    """Every process that a process has started, directly or indirectly."""
    everyone = [look(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    found: list[Seen] = []
    parents = {pid}
    while parents:
        children = [seen for seen in everyone if seen is not None and seen.parent in parents]
        found += children
        parents = {seen.pid for seen in children}
    return found


@dataclass(frozen=True)
class Owned:
    """A run that is up: its owner, and every process below it."""

    owner: subprocess.Popen[bytes]
    folder: Path
    below: list[Seen]
    parts: tuple[str, ...]

    @property
    def supervisor(self) -> Seen:
        (only,) = [seen for seen in self.below if "supervisor.py" in seen.command]
        return only

    @property
    def run(self) -> list[Seen]:
        """The processes that must not be left: the supervisor and all that it started."""
        mine = [self.supervisor, *descendants(self.supervisor.pid)]
        for part in self.parts:  # a test would prove nothing about a process that never ran
            assert any(part in seen.command for seen in mine), part
        return mine


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[[str], Owned]]:
    started: list[Owned] = []

    def start(name: str) -> Owned:
        argv = [word.format(folder=tmp_path) for word in OWNERS[name].argv]
        with (tmp_path / "owner.log").open("wb") as log:
            owner = subprocess.Popen(
                argv,
                stdout=log,
                stderr=log,
                env={**os.environ, "DEATHS_FOLDER": os.fspath(tmp_path)},
                process_group=0,
            )
        ready = tmp_path / "ready"
        poll(lambda: ready.exists() or owner.poll() is not None, 60, 0.02)
        owned = Owned(owner, tmp_path, descendants(owner.pid), OWNERS[name].parts)
        started.append(owned)
        assert ready.exists(), (tmp_path / "owner.log").read_text()
        return owned

    yield start
    for owned in started:
        for seen in [*owned.below, *descendants(owned.owner.pid)]:
            if seen.lives:
                os.kill(seen.pid, signal.SIGKILL)
        owned.owner.kill()
        owned.owner.wait()


def assert_nothing_is_left(run: list[Seen]) -> None:
    gone = poll(lambda: not any(seen.lives for seen in run), LIMIT_S, 0.02)
    assert gone, [seen.command for seen in run if seen.lives]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
@pytest.mark.parametrize("owner", ["python", "pytest", "pytest-xdist", "plugin", "cli"])
def test_a_signal_that_ends_the_owner_at_once(
    begin: Callable[[str], Owned], owner: str, how: signal.Signals
) -> None:
    owned = begin(owner)
    run = owned.run
    os.kill(owned.owner.pid, how)
    assert_nothing_is_left(run)


@pytest.mark.parametrize("owner", ["python", "pytest"])
def test_death_in_the_middle_of_an_interrupts_teardown(
    begin: Callable[[str], Owned], owner: str
) -> None:
    owned = begin(owner)
    run = owned.run
    os.kill(owned.owner.pid, signal.SIGINT)
    assert poll((owned.folder / "closing").exists, OWN_LIMIT_S), "no teardown began"
    os.kill(owned.owner.pid, signal.SIGKILL)
    assert_nothing_is_left(run)


def test_an_interrupt_of_pytest_xdist(begin: Callable[[str], Owned]) -> None:
    """xdist gives its workers some 10 s to end; then the run ends with them."""
    owned = begin("pytest-xdist")
    run = owned.run
    os.killpg(owned.owner.pid, signal.SIGINT)
    owned.owner.wait(OWN_LIMIT_S)
    assert_nothing_is_left(run)


@pytest.mark.parametrize("owner", ["python", "pytest"])
def test_a_second_interrupt_during_teardown(begin: Callable[[str], Owned], owner: str) -> None:
    owned = begin(owner)
    run = owned.run
    os.kill(owned.owner.pid, signal.SIGINT)
    assert poll((owned.folder / "closing").exists, OWN_LIMIT_S)
    os.kill(owned.owner.pid, signal.SIGINT)
    assert_nothing_is_left(run)
    owned.owner.wait(OWN_LIMIT_S)


@pytest.mark.parametrize("interrupts", [1, 2])
def test_interrupts_of_the_command_line(begin: Callable[[str], Owned], interrupts: int) -> None:
    owned = begin("cli")
    run = owned.run
    for _ in range(interrupts):
        os.kill(owned.owner.pid, signal.SIGINT)
    assert_nothing_is_left(run)
    owned.owner.wait(OWN_LIMIT_S)


def test_an_interrupt_of_the_plugins_own_run(begin: Callable[[str], Owned]) -> None:
    owned = begin("plugin")
    run = owned.run
    os.kill(owned.owner.pid, signal.SIGINT)
    owned.owner.wait(OWN_LIMIT_S)
    assert_nothing_is_left(run)


@pytest.mark.parametrize("owner", ["python", "pytest"])
def test_an_interrupt_from_the_terminal_reaches_the_owner_only(
    begin: Callable[[str], Owned], owner: str
) -> None:
    """Ctrl-C is sent to the whole foreground group; the run continues until the owner's
    teardown."""
    owned = begin(owner)
    run = owned.run
    os.killpg(owned.owner.pid, signal.SIGINT)
    assert poll((owned.folder / "closing").exists, OWN_LIMIT_S)
    assert all(seen.lives for seen in run)
    os.killpg(owned.owner.pid, signal.SIGINT)
    assert_nothing_is_left(run)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
def test_a_crash_of_a_pytest_xdist_worker(
    begin: Callable[[str], Owned], how: signal.Signals
) -> None:
    owned = begin("pytest-xdist")
    run = owned.run
    worker = owned.supervisor.parent
    assert worker != owned.owner.pid
    os.kill(worker, how)
    assert_nothing_is_left(run)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_death_of_the_supervisor_itself(
    begin: Callable[[str], Owned], how: signal.Signals
) -> None:
    """The kernel ends its children then, one by one."""
    owned = begin("python")
    run = owned.run
    os.kill(owned.supervisor.pid, how)
    assert_nothing_is_left(run)


def test_the_death_of_owner_and_supervisor_at_once(begin: Callable[[str], Owned]) -> None:
    owned = begin("python")
    run = owned.run
    os.kill(owned.supervisor.pid, signal.SIGSTOP)  # it can do nothing more itself
    os.kill(owned.owner.pid, signal.SIGKILL)
    os.kill(owned.supervisor.pid, signal.SIGKILL)
    assert_nothing_is_left(run)


def test_a_fork_of_the_owner_does_not_keep_the_run_alive(begin: Callable[[str], Owned]) -> None:
    """Such a fork holds the pair open, so the supervisor cannot notice the owner's end by its
    closing alone."""
    owned = begin("python-with-a-fork")
    run = owned.run
    forks = [seen for seen in owned.below if seen.parent == owned.owner.pid and seen not in run]
    os.kill(owned.owner.pid, signal.SIGKILL)
    assert_nothing_is_left(run)
    (fork,) = forks
    assert fork.lives


def test_stopped_processes_end_too(begin: Callable[[str], Owned]) -> None:
    owned = begin("python")
    run = owned.run
    for seen in run[1:]:
        os.kill(seen.pid, signal.SIGSTOP)
    os.kill(owned.owner.pid, signal.SIGKILL)
    assert_nothing_is_left(run)


def test_a_killed_run_can_be_read_as_far_as_it_went(begin: Callable[[str], Owned]) -> None:
    owned = begin("python")
    run = owned.run
    os.kill(owned.owner.pid, signal.SIGKILL)
    assert_nothing_is_left(run)
    (path,) = owned.folder.glob("run-*")
    folder, codec = RunFolder(path), Codec(KINDS)
    assert folder.info().system == "echo/mesh"
    reading = history.read(folder, codec)
    events = list(reading)
    assert {event.process for event in events} == {
        "harness",
        "controller-1#1",
        "broker-1#1",
        "clients/one#1",
    }
    assert not reading.end.complete
    # The client's standard input ends with its owner: it may have ended in order before SIGKILL.
    assert set(reading.end.damage) - {"how clients/one#1 ended is not recorded"} == {
        "how controller-1#1 ended is not recorded",
        "how broker-1#1 ended is not recorded",
        "the run's end is not recorded",
    }
