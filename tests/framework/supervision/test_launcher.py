"""Launcher and supervisor: children are started, watched and ended; every call has a limit.

Deaths of owners and supervisors are tested in tests/deaths.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from fencepost import EnvironmentFailed
from fencepost.commands import doctor
from fencepost.model.clock import SECOND, now_ns, poll
from fencepost.supervision import launcher
from fencepost.supervision.launcher import Child, Exit, Launcher, state_of, tail
from fencepost.supervision.supervisor import Template, node_environment

MODULE = "program_of_launcher_tests"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that runs its first argument, and that children can import."""
    text = "import sys\n\nif __name__ == '__main__':\n    exec(sys.argv[1])\n"
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / f"{MODULE}.py").write_text(text)
    paths = [str(tmp_path / "modules"), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))


@pytest.fixture
def children(tmp_path: Path, module: None, real: None) -> Iterator[Launcher]:
    children = Launcher(tmp_path / "supervisor.log")
    yield children
    children.close()
    children.close()


Python = Callable[..., Child]


@pytest.fixture(params=["executed", "forked"])
def python(tmp_path: Path, request: pytest.FixtureRequest) -> Python:
    """Makes children of that name which run that code, each way in which a program can start."""

    def child(name: str, code: str, stdin: int | None = None) -> Child:
        return Child(
            name=name,
            argv=[sys.executable, "-m", MODULE, code],
            folder=tmp_path,
            log=tmp_path / f"{name}.log",
            environment={"COLOUR": "blue"},
            stdin=stdin,
            preload=request.param == "forked",
        )

    return child


def test_an_exit_code_is_reported_once_and_stays_known(
    tmp_path: Path, children: Launcher, python: Python
) -> None:
    before = now_ns()
    pid, at_ns = children.start(python("a", "raise SystemExit(3)"))
    assert before < at_ns < now_ns()
    assert pid > 0
    exit_ = children.wait("a", 10)
    assert exit_ is not None
    assert (exit_.name, exit_.code, exit_.signal) == ("a", 3, 0)
    assert children.exits() == [exit_]
    assert children.exits() == []
    assert children.wait("a", 0) == exit_


def test_the_doctor_recognizes_a_supervisor(
    tmp_path: Path, children: Launcher, python: Python
) -> None:
    pid, _ = children.start(python("a", "import signal; signal.pause()"))
    (parent,) = re.findall(r"^PPid:\s+(\d+)$", Path(f"/proc/{pid}/status").read_text(), re.M)
    assert doctor.is_supervisor(Path(f"/proc/{parent}/cmdline").read_bytes().split(b"\0"))
    assert not doctor.is_supervisor(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"))


def test_an_exit_wakes_a_select(tmp_path: Path, children: Launcher, python: Python) -> None:
    children.start(python("a", "pass"))
    assert select.select([children], [], [], 10)[0]
    assert [exit_.name for exit_ in children.exits()] == ["a"]


def test_a_signal_is_delivered_and_reported(
    tmp_path: Path, children: Launcher, python: Python
) -> None:
    pid, _ = children.start(python("a", "import signal; signal.pause()"))
    assert children.wait("a", 0.05) is None
    assert children.signal("a", signal.SIGSTOP)
    assert poll(lambda: state_of(pid) == "T", 5)
    assert children.signal("a", signal.SIGKILL)
    exit_ = children.wait("a", 5)
    assert exit_ is not None
    assert str(exit_) == "was ended by SIGKILL"
    assert not children.signal("a", signal.SIGTERM)


def test_a_kill_that_waits_for_nothing(tmp_path: Path, children: Launcher, python: Python) -> None:
    children.start(python("a", "import signal; signal.pause()"))
    children.kill_soon("a")
    children.kill_soon("missing")
    assert children.wait("a", 5) is not None


def test_a_kill_also_ends_processes_that_the_child_started(
    tmp_path: Path, children: Launcher, python: Python
) -> None:
    code = (
        "import os, signal, sys\n"
        "child = os.fork()\n"
        "if child: print(child, flush=True)\n"
        "signal.pause()\n"
    )
    children.start(python("a", code))
    log = tmp_path / "a.log"
    assert poll(lambda: log.exists() and log.read_text().endswith("\n"), 10)
    grandchild = int(log.read_text())
    assert state_of(grandchild) not in ("", "Z")
    children.signal("a", signal.SIGKILL)
    assert poll(lambda: state_of(grandchild) in ("", "Z"), 5)


def test_a_child_has_its_folder_environment_log_and_input(
    tmp_path: Path, children: Launcher, python: Python
) -> None:
    theirs, ours = os.pipe()
    code = "import os, sys; print(os.getcwd(), os.environ['COLOUR'], sys.stdin.read())"
    children.start(python("a", code, theirs))
    os.close(theirs)
    os.write(ours, b"hello")
    os.close(ours)
    assert children.wait("a", 10) == Exit("a", 0, 0, children.exits()[0].at_ns)
    assert (tmp_path / "a.log").read_text() == f"{tmp_path} blue hello\n"


def test_a_child_without_input_reads_its_end(
    tmp_path: Path, children: Launcher, python: Python
) -> None:
    children.start(python("a", "import sys; raise SystemExit(len(sys.stdin.read()))"))
    exit_ = children.wait("a", 10)
    assert exit_ is not None
    assert exit_.code == 0


@pytest.mark.real
def test_a_child_does_not_ignore_the_signals_that_its_owner_ignores(
    tmp_path: Path, module: None, python: Python
) -> None:
    """As under nohup, or a shell's background job, which ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        children = Launcher(tmp_path / "supervisor.log")
    finally:
        signal.signal(signal.SIGINT, before)
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    children.start(python("a", code))
    children.wait("a", 10)
    children.close()
    assert (tmp_path / "a.log").read_text() == "True\n"


def test_a_program_that_is_not_there_is_named(
    tmp_path: Path, children: Launcher, python: Python
) -> None:
    child = Child("a", ["/no/such/program"], tmp_path, tmp_path / "a.log")
    with pytest.raises(EnvironmentFailed, match=r"a could not be started.*/no/such/program"):
        children.start(child)
    children.start(python("a", "pass"))  # the name is free


def test_a_program_on_a_file_system_without_execution_is_said_to_be_there(
    tmp_path: Path, children: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program"
    program.touch(mode=0o644)
    child = Child("a", [str(program)], tmp_path, tmp_path / "a.log")
    denied = rf"a could not be started.*Permission denied: '{program}'"
    with pytest.raises(EnvironmentFailed, match=f"{denied}$"):
        children.start(child)
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_NOEXEC))
    with pytest.raises(EnvironmentFailed, match=f"{denied}; {tmp_path} is mounted noexec"):
        children.start(child)


def test_two_living_children_of_one_name_are_refused(
    tmp_path: Path, children: Launcher, python: Python
) -> None:
    children.start(python("a", "import signal; signal.pause()"))
    with pytest.raises(EnvironmentFailed, match="of that name"):
        children.start(python("a", "pass"))


def test_close_ends_every_child(tmp_path: Path, children: Launcher, python: Python) -> None:
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
    pids = [children.start(python(name, code))[0] for name in "abc"]
    children.close()
    assert [state_of(pid) for pid in pids] == ["", "", ""]


def test_close_is_noticed_even_if_a_fork_holds_the_pair_open(
    tmp_path: Path, children: Launcher, python: Python, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "ANSWER_LIMIT_S", 120)  # the time of a close that is not noticed
    children.start(python("a", "import signal; signal.pause()"))
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


def test_a_dead_supervisor_is_an_environment_failure(
    tmp_path: Path, children: Launcher, python: Python
) -> None:
    pid, _ = children.start(python("a", "import signal; signal.pause()"))
    os.kill(children.pid, signal.SIGKILL)
    with pytest.raises(EnvironmentFailed, match=r"supervisor .* is gone"):
        children.wait("a", 5)
    with pytest.raises(EnvironmentFailed, match=r"supervisor .* is gone"):
        children.start(python("b", "pass"))
    assert poll(lambda: state_of(pid) in ("", "Z"), 5)


def test_a_stopped_supervisor_blocks_no_call(
    tmp_path: Path, children: Launcher, python: Python, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, _ = children.start(python("a", "import signal; signal.pause()"))
    monkeypatch.setattr(launcher, "ANSWER_LIMIT_S", 0.3)
    os.kill(children.pid, signal.SIGSTOP)
    with pytest.raises(EnvironmentFailed, match="did not answer"):
        children.signal("a", signal.SIGTERM)
    children.close()
    assert poll(lambda: state_of(pid) in ("", "Z"), 5)


def test_a_forked_child_differs_in_nothing_that_its_program_sees(
    tmp_path: Path, children: Launcher
) -> None:
    code = (
        "import os, random, signal, sys, threading\n"
        "print(__name__, sys.argv, sorted(os.environ.items()), os.getsid(0) == os.getpid())\n"
        "print(signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))\n"
        "print(sorted(os.listdir('/proc/self/fd')), threading.active_count(), __file__)\n"
        "print(os.getppid(), os.getcwd())\n"
        "raise SystemExit(7)\n"
    )
    for name, preload in (("a", False), ("b", True), ("c", True)):
        argv = [sys.executable, "-m", MODULE, code]
        children.start(Child(name, argv, tmp_path, tmp_path / f"{name}.log", preload=preload))
        ended = children.wait(name, 10)
        assert ended is not None
        assert ended.code == 7
    texts = [(tmp_path / f"{name}.log").read_text() for name in "abc"]
    assert texts[0] == texts[1] == texts[2]


@pytest.mark.parametrize("preload", [False, True], ids=["executed", "forked"])
def test_a_child_that_does_not_inherit_gets_what_a_container_would_give_it(
    tmp_path: Path, module: None, real: None, monkeypatch: pytest.MonkeyPatch, preload: bool
) -> None:
    for name in ("ETCD_NAME", "JAVA_TOOL_OPTIONS", "HTTP_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "of the job in CI")
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")
    monkeypatch.setenv("LC_TIME", "C")
    code = "import os; print(__debug__, sorted(os.environ.items()))"
    argv = [sys.executable, "-m", MODULE, code]
    children = Launcher(tmp_path / "supervisor.log")
    try:
        for name, inherits in (("node", False), ("worker", True)):
            log = tmp_path / f"{name}.log"
            own = {"COLOUR": "blue", "HTTP_PROXY": "its own"} if name == "node" else {}
            children.start(
                Child(name, argv, tmp_path, log, own, preload=preload, inherits=inherits)
            )
            assert children.wait(name, 10) is not None
    finally:
        children.close()
    kept = {**node_environment(os.environ), "COLOUR": "blue", "HTTP_PROXY": "its own"}
    assert (tmp_path / "node.log").read_text() == f"True {sorted(kept.items())}\n"
    assert {"PATH", "PYTHONPATH", "LC_TIME"} <= kept.keys()
    worker = (tmp_path / "worker.log").read_text()
    assert worker.startswith("False")
    assert "('ETCD_NAME', 'of the job in CI')" in worker


def test_a_forked_child_draws_chance_of_its_own(tmp_path: Path, children: Launcher) -> None:
    code = "import random, uuid; print(random.random(), uuid.uuid4())"
    argv = [sys.executable, "-m", MODULE, code]
    for name in "ab":
        log = tmp_path / f"{name}.log"
        children.start(Child(name, argv, tmp_path, log, preload=True))
        assert children.wait(name, 10) is not None
    assert (tmp_path / "a.log").read_text() != (tmp_path / "b.log").read_text()


@pytest.mark.parametrize(
    "text",
    [
        "raise ImportError('no such library')",
        "import threading; threading.Timer(60, print).start()",
    ],
    ids=["fails", "starts-a-thread"],
)
def test_a_module_that_cannot_be_a_template_is_executed(
    tmp_path: Path, children: Launcher, text: str
) -> None:
    program = f"if __name__ == '__main__':\n    print('executed')\nelse:\n    {text}\n"
    (tmp_path / "modules" / "broken.py").write_text(program)
    for name in "ab":
        argv = [sys.executable, "-m", "broken"]
        children.start(Child(name, argv, tmp_path, tmp_path / f"{name}.log", preload=True))
        assert children.wait(name, 10) is not None
        assert (tmp_path / f"{name}.log").read_text() == "executed\n"


def test_a_template_that_was_killed_is_replaced(tmp_path: Path, children: Launcher) -> None:
    def templates() -> Sequence[int]:
        return [pid for pid in processes_of(children.pid) if MODULE in command_of(pid)]

    argv = [sys.executable, "-m", MODULE, "import os; print(os.getppid())"]
    seen: list[Sequence[int]] = []
    for name in "abc":
        log = tmp_path / f"{name}.log"
        children.start(Child(name, argv, tmp_path, log, preload=True))
        assert children.wait(name, 10) is not None
        assert int(log.read_text()) == children.pid
        seen.append(templates())
        if name == "a":
            os.kill(seen[0][0], signal.SIGKILL)
    assert [len(one) for one in seen] == [1, 0, 1]
    assert seen[0] != seen[2]


def test_a_template_that_ends_with_a_request_unanswered_is_replaced(
    tmp_path: Path, real: None
) -> None:
    dies_when_asked = (
        "import socket; at = socket.socket(fileno=0); at.send(b'{}'); at.recv(1 << 20)"
    )

    def execute(words: list[str], stdin: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", dies_when_asked], stdin=stdin)

    template = Template(sys.executable, MODULE, execute)
    request = {"name": "a", "environment": {}, "folder": str(tmp_path), "argv": ["", "", ""]}
    with open(os.devnull, "r+b") as nothing, pytest.raises(ConnectionError):
        template.fork(request, nothing.fileno(), nothing.fileno())
    template.end()


def processes_of(parent: int) -> Sequence[int]:
    text = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    return [int(pid) for pid in text.split()]


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def test_the_tail_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert tail(log) == ""
    log.write_text("".join(f"line {n}\n" for n in range(100_000)))
    assert tail(log).splitlines() == [f"line {n}" for n in range(99_985, 100_000)]


def test_the_tail_of_a_log_leaves_out_what_a_logger_says_for_debugging(tmp_path: Path) -> None:
    log = tmp_path / "log"
    detail = "".join(f"@{n} DEBUG kafka.request.logger {'x' * 4096}\n" for n in range(40))
    log.write_text(f"@1 ERROR No space left on device\n\tat kafka.log\n{detail}@2 TRACE a\nend\n")
    assert tail(log).splitlines() == ["@1 ERROR No space left on device", "\tat kafka.log", "end"]
