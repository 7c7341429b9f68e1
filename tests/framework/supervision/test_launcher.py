"""Launcher and supervisor: children are started, watched and ended; every call has a limit.

Deaths of owners and supervisors are tested in tests/deaths.
"""

from __future__ import annotations

import os
import re
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost import EnvironmentFailed
from fencepost.commands import doctor
from fencepost.model.clock import SECOND, now_ns, poll
from fencepost.supervision import launcher
from fencepost.supervision.launcher import Child, Exit, Launcher, state_of, tail


@pytest.fixture
def children(tmp_path: Path, real: None) -> Iterator[Launcher]:
    children = Launcher(tmp_path / "supervisor.log")
    yield children
    children.close()
    children.close()


def python(tmp_path: Path, name: str, code: str, stdin: int | None = None) -> Child:
    argv = [sys.executable, "-c", code]
    return Child(
        name=name,
        argv=argv,
        folder=tmp_path,
        log=tmp_path / f"{name}.log",
        environment={"COLOUR": "blue"},
        stdin=stdin,
    )


def test_an_exit_code_is_reported_once_and_stays_known(tmp_path: Path, children: Launcher) -> None:
    before = now_ns()
    pid, at_ns = children.start(python(tmp_path, "a", "raise SystemExit(3)"))
    assert before < at_ns < now_ns()
    assert pid > 0
    exit_ = children.wait("a", 10)
    assert exit_ is not None
    assert (exit_.name, exit_.code, exit_.signal) == ("a", 3, 0)
    assert children.exits() == [exit_]
    assert children.exits() == []
    assert children.wait("a", 0) == exit_


def test_the_doctor_recognizes_a_supervisor(tmp_path: Path, children: Launcher) -> None:
    pid, _ = children.start(python(tmp_path, "a", "import signal; signal.pause()"))
    (parent,) = re.findall(r"^PPid:\s+(\d+)$", Path(f"/proc/{pid}/status").read_text(), re.M)
    assert doctor.is_supervisor(Path(f"/proc/{parent}/cmdline").read_bytes().split(b"\0"))
    assert not doctor.is_supervisor(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"))


def test_an_exit_wakes_a_select(tmp_path: Path, children: Launcher) -> None:
    children.start(python(tmp_path, "a", "pass"))
    assert select.select([children], [], [], 10)[0]
    assert [exit_.name for exit_ in children.exits()] == ["a"]


def test_a_signal_is_delivered_and_reported(tmp_path: Path, children: Launcher) -> None:
    pid, _ = children.start(python(tmp_path, "a", "import signal; signal.pause()"))
    assert children.wait("a", 0.05) is None
    assert children.signal("a", signal.SIGSTOP)
    assert poll(lambda: state_of(pid) == "T", 5)
    assert children.signal("a", signal.SIGKILL)
    exit_ = children.wait("a", 5)
    assert exit_ is not None
    assert str(exit_) == "was ended by SIGKILL"
    assert not children.signal("a", signal.SIGTERM)


def test_a_kill_that_waits_for_nothing(tmp_path: Path, children: Launcher) -> None:
    children.start(python(tmp_path, "a", "import signal; signal.pause()"))
    children.kill_soon("a")
    children.kill_soon("missing")
    assert children.wait("a", 5) is not None


def test_a_kill_also_ends_processes_that_the_child_started(
    tmp_path: Path, children: Launcher
) -> None:
    code = (
        "import os, signal, sys\n"
        "child = os.fork()\n"
        "if child: print(child, flush=True)\n"
        "signal.pause()\n"
    )
    children.start(python(tmp_path, "a", code))
    log = tmp_path / "a.log"
    assert poll(lambda: log.exists() and log.read_text().endswith("\n"), 10)
    grandchild = int(log.read_text())
    assert state_of(grandchild) not in ("", "Z")
    children.signal("a", signal.SIGKILL)
    assert poll(lambda: state_of(grandchild) in ("", "Z"), 5)


def test_a_child_has_its_folder_environment_log_and_input(
    tmp_path: Path, children: Launcher
) -> None:
    theirs, ours = os.pipe()
    code = "import os, sys; print(os.getcwd(), os.environ['COLOUR'], sys.stdin.read())"
    children.start(python(tmp_path, "a", code, theirs))
    os.close(theirs)
    os.write(ours, b"hello")
    os.close(ours)
    assert children.wait("a", 10) == Exit("a", 0, 0, children.exits()[0].at_ns)
    assert (tmp_path / "a.log").read_text() == f"{tmp_path} blue hello\n"


def test_a_child_without_input_reads_its_end(tmp_path: Path, children: Launcher) -> None:
    children.start(python(tmp_path, "a", "import sys; raise SystemExit(len(sys.stdin.read()))"))
    exit_ = children.wait("a", 10)
    assert exit_ is not None
    assert exit_.code == 0


@pytest.mark.real
def test_a_child_does_not_ignore_the_signals_that_its_owner_ignores(tmp_path: Path) -> None:
    """As under nohup, or a shell's background job, which ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        children = Launcher(tmp_path / "supervisor.log")
    finally:
        signal.signal(signal.SIGINT, before)
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    children.start(python(tmp_path, "a", code))
    children.wait("a", 10)
    children.close()
    assert (tmp_path / "a.log").read_text() == "True\n"


def test_a_program_that_is_not_there_is_named(tmp_path: Path, children: Launcher) -> None:
    child = Child("a", ["/no/such/program"], tmp_path, tmp_path / "a.log")
    with pytest.raises(EnvironmentFailed, match=r"a could not be started.*/no/such/program"):
        children.start(child)
    children.start(python(tmp_path, "a", "pass"))  # the name is free


def test_two_living_children_of_one_name_are_refused(tmp_path: Path, children: Launcher) -> None:
    children.start(python(tmp_path, "a", "import signal; signal.pause()"))
    with pytest.raises(EnvironmentFailed, match="of that name"):
        children.start(python(tmp_path, "a", "pass"))


def test_close_ends_every_child(tmp_path: Path, children: Launcher) -> None:
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
    pids = [children.start(python(tmp_path, name, code))[0] for name in "abc"]
    children.close()
    assert [state_of(pid) for pid in pids] == ["", "", ""]


def test_close_is_noticed_even_if_a_fork_holds_the_pair_open(
    tmp_path: Path, children: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "ANSWER_LIMIT_S", 120)  # the time of a close that is not noticed
    children.start(python(tmp_path, "a", "import signal; signal.pause()"))
    inheritor = os.fork()
    if inheritor == 0:
        signal.pause()
    try:
        began = now_ns()
        children.close()
        assert now_ns() - began < 60 * SECOND
    finally:
        os.kill(inheritor, signal.SIGKILL)
        os.waitpid(inheritor, 0)


def test_a_dead_supervisor_is_an_environment_failure(tmp_path: Path, children: Launcher) -> None:
    pid, _ = children.start(python(tmp_path, "a", "import signal; signal.pause()"))
    os.kill(children.pid, signal.SIGKILL)
    with pytest.raises(EnvironmentFailed, match=r"supervisor .* is gone"):
        children.wait("a", 5)
    with pytest.raises(EnvironmentFailed, match=r"supervisor .* is gone"):
        children.start(python(tmp_path, "b", "pass"))
    assert poll(lambda: state_of(pid) in ("", "Z"), 5)


def test_a_stopped_supervisor_blocks_no_call(
    tmp_path: Path, children: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, _ = children.start(python(tmp_path, "a", "import signal; signal.pause()"))
    monkeypatch.setattr(launcher, "ANSWER_LIMIT_S", 0.3)
    os.kill(children.pid, signal.SIGSTOP)
    with pytest.raises(EnvironmentFailed, match="did not answer"):
        children.signal("a", signal.SIGTERM)
    children.close()
    assert poll(lambda: state_of(pid) in ("", "Z"), 5)


def test_the_tail_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert tail(log) == ""
    log.write_text("".join(f"line {n}\n" for n in range(100_000)))
    assert tail(log).splitlines() == [f"line {n}" for n in range(99_985, 100_000)]
