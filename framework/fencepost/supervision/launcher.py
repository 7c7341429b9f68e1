"""The owner's end of the supervisor: starts and signals processes, and reports the loss of any.

`fencepost.supervision.supervisor` defines what happens when the owner dies. Here every call has a
time limit, and a supervisor that is gone, or does not answer, raises `EnvironmentFailed`.
"""

from __future__ import annotations

import errno
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, final

from fencepost.model.clock import SECOND, now_ns
from fencepost.model.disk import if_noexec
from fencepost.model.errors import EnvironmentFailed
from fencepost.model.last_words import last_words
from fencepost.model.system.topology import Slot
from fencepost.supervision import supervisor

ANSWER_LIMIT_S = 5.0
_NO_ANSWER_WANTED = 0
UNKNOWN_CODE = -1
"""The exit code of a process that is no child of this program's."""


@dataclass(frozen=True, slots=True)
class Child:
    """A process to start: `log` receives its standard output and errors, `stdin` is a descriptor.

    Before it starts, `folder` is made if it does not exist, and `files` (path below it, text) are
    written. It starts there, or in `directory`. `slot` is its slot, if it is a node or a client.
    `preload` is that of `fencepost.model.system.capabilities.Command`. `environment` is added to
    this program's own, or to what `fencepost.supervision.supervisor.node_environment` leaves of it
    if the child does not inherit. In a container it gets `environment` alone, and `image` is the
    container's, if that is not the one of its slot.
    """

    name: str
    argv: Sequence[str]
    folder: Path
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    stdin: int | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    slot: Slot | None = None
    preload: bool = False
    inherits: bool = True
    directory: Path | None = None
    image: str = ""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: `code`, or the `signal` that ended it (else 0), and when that was seen.
    Of one that is nobody's child here, the code is `UNKNOWN_CODE`."""

    name: str
    code: int
    signal: int
    at_ns: int

    def __str__(self) -> str:
        if not self.signal and self.code == UNKNOWN_CODE:
            return "ended, and only its parent knows how"
        if not self.signal:
            return f"ended with exit code {self.code}"
        return f"was ended by {signal.Signals(self.signal).name}"


@final
class Launcher:
    """Children by name, owned by one supervisor process. For one thread only, except
    `kill_soon`."""

    def __init__(self, log: Path, inherited: Sequence[int] = ()) -> None:
        """Starts the supervisor; `inherited` descriptors stay open as long as any child runs."""
        # Packets keep their bounds, so a request is read whole or not at all, and a descriptor
        # travels with the packet that it belongs to.
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, log.open("ab") as output:
            owners = ",".join(map(str, _owners(os.environ)))
            # By path and without site packages: no `.pth` file and no variable such as PYTHONPATH
            # can slow down or break the one program on which the end of all others depends.
            argv = [sys.executable, "-I", "-S", supervisor.__file__, owners]
            self._process = subprocess.Popen(
                [*argv, *map(str, inherited)],
                stdin=theirs.fileno(),
                stdout=output,
                stderr=output,
                pass_fds=inherited,
                # A Ctrl-C in the terminal reaches the harness alone, which then ends the run in
                # order.
                start_new_session=True,
            )
        self._readable = select.poll()
        self._readable.register(self._socket, select.POLLIN)
        self._log = log
        self._sending = Lock()
        self._last_id = _NO_ANSWER_WANTED
        self._exits: deque[Exit] = deque()
        self._ended: dict[str, Exit] = {}
        self._pids: dict[str, int] = {}

    @property
    def pid(self) -> int:
        """The supervisor's own process id."""
        return self._process.pid

    def fileno(self) -> int:
        """The descriptor to select on: readable when `exits` may return an end."""
        return self._socket.fileno()

    def start(self, child: Child) -> tuple[int, int]:
        """The child's process id, and the moment just before it was made.

        Raises EnvironmentFailed when its program cannot be started.
        """
        # A name may be used again once its process has ended. `wait` would find the earlier end
        # otherwise.
        self._ended.pop(child.name, None)
        child.folder.mkdir(parents=True, exist_ok=True)
        for name, text in child.files.items():
            path = child.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        answer = self._ask(
            {
                "do": "start",
                "name": child.name,
                "argv": list(child.argv),
                "environment": dict(child.environment),
                "folder": os.fspath(child.directory or child.folder),
                "log": os.fspath(child.log),
                "preload": child.preload,
                "inherits": child.inherits,
            },
            child.stdin,
        )
        if "error" in answer:
            # The program may well have its execute bit, on a file system that is mounted noexec.
            # "Permission denied" alone would send its user to the rights of the file.
            denied = answer.get("errno") == errno.EACCES
            why = if_noexec(Path(child.argv[0])) if denied else ""
            raise EnvironmentFailed(f"{child.name} could not be started: {answer['error']}{why}")
        self._pids[child.name] = int(answer["pid"])
        return int(answer["pid"]), int(answer["at_ns"])

    def owns(self, name: str) -> bool:
        """Every child ends with the run."""
        return True

    def signal(self, name: str, number: int) -> bool:
        """Whether a living child received the signal; SIGKILL is sent to its whole process
        group."""
        return bool(self._ask({"do": "signal", "name": name, "signal": number})["delivered"])

    def state(self, name: str) -> str:
        """The state letter of a child in /proc, or empty if it is gone."""
        return state_of(self._pids[name])

    def kill_soon(self, name: str) -> None:
        """Sends SIGKILL without waiting for an answer; the only call that any thread may make."""
        self._send(
            # The answer carries the id 0, which `_ask` never uses, so whoever receives it passes it
            # over.
            {"id": _NO_ANSWER_WANTED, "do": "signal", "name": name, "signal": signal.SIGKILL}
        )

    def wait(self, name: str, limit_s: float) -> Exit | None:
        """How the child ended, or None if it did not within the limit.

        `exits` yields that end as well.
        """
        # Each packet that is received may be an end of another child, or a late answer: so the
        # limit is one time for all of them.
        deadline = now_ns() + int(limit_s * SECOND)
        while name not in self._ended:
            left = deadline - now_ns()
            if self._receive(max(0, left) / SECOND) is None and left <= 0:
                break
        return self._ended.get(name)

    def exits(self) -> list[Exit]:
        """The ends seen since the last call, oldest first; never waits."""
        while self._receive(0) is not None:
            pass
        seen = list(self._exits)
        self._exits.clear()
        return seen

    def close(self) -> None:
        """Ends every child and the supervisor, in bounded time; safe to call twice."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # a fork of this process may hold it open
        self._socket.close()
        try:
            self._process.wait(ANSWER_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # each child then gets its own SIGKILL from the kernel
            self._process.wait()

    def _ask(self, request: dict[str, Any], descriptor: int | None = None) -> dict[str, Any]:
        self._last_id += 1
        # Answers are matched by number: the answer to a request that took too long may still come,
        # and must not be taken for that of the next one.
        asked = self._last_id
        self._send({"id": asked, **request}, descriptor)
        deadline = now_ns() + int(ANSWER_LIMIT_S * SECOND)
        while (left := deadline - now_ns()) > 0:
            answer = self._receive(left / SECOND)
            if answer is not None and answer.get("id") == asked:
                return answer
        raise EnvironmentFailed(f"the supervisor did not answer within {ANSWER_LIMIT_S:.0f} s")

    def _send(self, request: dict[str, Any], descriptor: int | None = None) -> None:
        packet = json.dumps(request).encode()
        with self._sending:
            try:
                attached = [] if descriptor is None else [descriptor]
                # A supervisor that is stopped takes nothing. Without MSG_DONTWAIT the harness would
                # hang with it, as soon as the socket's buffer is full.
                socket.send_fds(self._socket, [packet], attached, socket.MSG_DONTWAIT)
            except BlockingIOError as full:
                raise EnvironmentFailed("the supervisor is stopped: it takes no request") from full
            except OSError as failed:
                raise self._gone() from failed

    def _receive(self, limit_s: float) -> dict[str, Any] | None:
        """One answer; ends of children are kept for `exits`. None if the limit passes first."""
        try:
            if not self._readable.poll(limit_s * 1000):
                return None
            packet = self._socket.recv(supervisor.PACKET_BYTES, socket.MSG_DONTWAIT)
        except OSError as failed:
            raise self._gone() from failed
        if not packet:
            raise self._gone()
        message: dict[str, Any] = json.loads(packet)
        if "exited" in message:
            # An end may arrive in the middle of any call, also of one that waits for an answer. It
            # is kept twice: `exits` reports each end once, and `wait` may ask for it later.
            seen = Exit(message["exited"], message["code"], message["signal"], message["at_ns"])
            self._exits.append(seen)
            self._ended[seen.name] = seen
        return message

    def _gone(self) -> EnvironmentFailed:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(ANSWER_LIMIT_S)
        return failed_with(
            f"the supervisor (process {self._process.pid}) is gone, and every process with it",
            self._log,
        )


def _owners(environment: Mapping[str, str]) -> Sequence[int]:
    """This process and, for a pytest-xdist worker, the one that started it, which may end first."""
    if "PYTEST_XDIST_WORKER" in environment:
        # A worker of pytest-xdist may go on for many seconds after its session was killed, with a
        # run that nobody waits for.
        return os.getpid(), os.getppid()
    return (os.getpid(),)


def state_of(pid: int) -> str:
    """The process's state letter in /proc (`T` for stopped), or nothing when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    # The name in brackets may itself contain brackets and spaces.
    return stat.rpartition(")")[2].split()[0]


_DETAIL = re.compile(r"\S+ (?:DEBUG|TRACE) ")
"""How a line begins that says nothing about an end: a time, then such a level."""
_TAIL_BYTES = 1 << 20
_LAST_LINES = 15
_ENOUGH = 200
"""The last lines of a log among which its reason is looked for: a stack has many."""


def failed_with(sentence: str, log: Path) -> EnvironmentFailed:
    """The error of a program that failed as the sentence says, with its last words and its log."""
    words = last_said(log)
    quoted = f'; it last said "{words}"' if words else ""
    return EnvironmentFailed(f"{sentence}{quoted} ({log})", tail(log), log)


def last_said(log: Path) -> str:
    """The last line of a program's log that tells something; empty if there is none."""
    return last_words(tail(log, _ENOUGH))


def tail(log: Path, lines: int = _LAST_LINES) -> str:
    """The last lines of a log, without those of the levels DEBUG and TRACE; empty if there is no
    log."""
    try:
        with log.open("rb") as file:
            # Only the end is read: a node that logs every request may have written gigabytes.
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    said = [line for line in text.splitlines() if not _DETAIL.match(line)]
    return "\n".join(said[-lines:])
