"""The supervisor: a small program of its own that starts, owns and ends every process of a run.

It is run by path, isolated from site packages, and imports the standard library only, so that it
starts within some 30 ms. Its standard input is one end of a SOCK_SEQPACKET pair whose other end its
owner holds (`fencepost.supervision.launcher`); each packet is one JSON object.

    asked      {"id": 1, "do": "start", "name", "argv", "environment", "inherits", "folder", "log",
               "preload"} with one descriptor attached, if the child is to have a standard input
               {"id": 2, "do": "signal", "name", "signal"}
    answered   {"id": 1, "pid": 71, "at_ns": ...} or {"id": 1, "error": "...", "errno": 13}
               {"id": 2, "delivered": true}
    reported   {"exited": name, "code": 0, "signal": 9, "at_ns": ...}

A child that inherits has this program's whole environment, and the others what `node_environment`
leaves of it; `environment` is added to either.

If `preload` is true, `argv` is that of a Python program, `[python, "-m", module, ...]`. The child
is forked from a process that has imported the module (`fencepost.supervision.template`). If that
process is not ready in time, the child is executed like any other.

Three lines of defence keep any process from outliving its owner:

1. When the owner's end closes, or an owner's process ends (a fork of it may hold the pair open, and
   a pytest-xdist worker outlives its session by many seconds, so there can be two of them),
   every child's process group gets SIGKILL and the supervisor ends.
2. The supervisor leads a session of its own, so no terminal's Ctrl-C or hang-up reaches it.
3. Each child has asked the kernel for SIGKILL when the supervisor dies, however it dies.

The claim on the run's addresses (`fencepost.supervision.addresses`) is a descriptor that every
child inherits: it is free again when the last of them is gone.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO, Any

PACKET_BYTES = 1 << 20
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LAST_WAIT_S = 3.0
_TEMPLATE_LIMIT_S = 2.5
"""How long a start waits for a template. It is shorter than the time in which the owner expects an
answer."""


_INHERITED = (
    "PATH",
    "HOME",
    "TMPDIR",
    "TZ",
    "LANG",
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "PYTHONHOME",
    "PYTHONPATH",
)
"""What a program needs to be found and loaded, Python's own packages among it."""


def node_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What a node gets of the user's environment: as little as in a container.

    Programs read variables for settings. With ETCD_NAME, JAVA_TOOL_OPTIONS or HTTP_PROXY of a job
    in CI a node would not start, or would leave the links of the run.
    """
    return {
        name: value
        for name, value in environment.items()
        if name in _INHERITED or name.startswith("LC_")
    }


Execute = Callable[[list[str], int], "subprocess.Popen[bytes]"]
"""Executes a program with that standard input."""


class Forked:
    """A child that a template forked, with the part of `subprocess.Popen` that is needed here."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._pidfd = os.pidfd_open(pid)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, or the negative number of the signal that ended it. Raises TimeoutExpired
        if it goes on."""
        ended = select.poll()
        ended.register(self._pidfd, select.POLLIN)
        if not ended.poll(None if timeout is None else timeout * 1000):
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        _, status = os.waitpid(self.pid, 0)
        os.close(self._pidfd)
        return os.waitstatus_to_exitcode(status)


class Template:
    """A process that has imported a module of Python, and forks children that run it."""

    def __init__(self, python: str, module: str, execute: Execute) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(_TEMPLATE_LIMIT_S)
        words = [python, "-P", "-m", "fencepost.supervision.template", module, str(os.getpid())]
        with theirs:
            self.process = execute(words, theirs.fileno())
        self._ready = False

    def fork(self, request: dict[str, Any], stdin: int, log: int) -> Forked | None:
        """A child that runs the module; None if the template is still importing, or never could.

        Raises ConnectionError if it has ended since it was ready, another OSError if it does not
        answer.
        """
        if not self._ready:
            try:
                self._ready = bool(self._socket.recv(PACKET_BYTES))
            except TimeoutError:
                return None
        if not self._ready:
            return None
        asked = {key: request[key] for key in ("name", "environment", "folder")}
        packet = json.dumps({**asked, "argv": request["argv"][3:]}).encode()
        socket.send_fds(self._socket, [packet], [stdin, log])
        try:
            answer = self._socket.recv(PACKET_BYTES)
        except TimeoutError:
            limit = f"{_TEMPLATE_LIMIT_S:.1f} s"
            raise TimeoutError(f"its template did not fork it within {limit}") from None
        if not answer:
            raise ConnectionResetError("its template ended before it forked")
        return Forked(json.loads(answer)["pid"])

    def end(self) -> None:
        """Ends the template; the children that it forked go on."""
        self._socket.close()
        self.process.kill()
        self.process.wait()


class Supervisor:
    """The children by name, and the socket to their owner."""

    def __init__(self, owner: socket.socket, inherited: tuple[int, ...]) -> None:
        self._owner = owner
        self._inherited = inherited
        self._children: dict[str, subprocess.Popen[bytes] | Forked] = {}
        self._templates: dict[tuple[str, str, bool], Template] = {}
        self._waiting = selectors.DefaultSelector()
        self._pid = os.getpid()
        self._prctl = ctypes.CDLL(None, use_errno=True).prctl
        # A template's children become this program's when the process between them ends.
        # Without this they would become children of process 1: nobody would report their end.
        self._prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def run(self, owner_pids: list[int]) -> None:
        """Serves until an owner is gone; the first owner is the process that started this
        program."""
        try:
            for pid in owner_pids:
                self._waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, None)
        except ProcessLookupError:
            return
        # The owner may have ended before this program looked at it. Its id may even be that of
        # another process by then, for whose end this program would wait.
        if os.getppid() != owner_pids[0]:
            return
        self._waiting.register(self._owner, selectors.EVENT_READ, None)
        while True:
            for key, _ in self._waiting.select():
                # A child's descriptor carries the child's name. The others are the socket and the
                # owners' own.
                if isinstance(key.data, str):
                    self._report_exit(key.data, key.fd)
                # An owner's process has ended, or its end of the socket is closed: both end the
                # run.
                elif key.fileobj is not self._owner or not self._serve():
                    return

    def end_all(self) -> None:
        """Sends SIGKILL to every child's process group; waits a bounded time until each is gone."""
        # Templates first, so that none forks another child while the children are being killed.
        for template in self._templates.values():
            template.end()
        for child in self._children.values():
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        # All have the signal by then, so one limit for all of them is enough. A process that is in
        # the kernel and cannot be interrupted must not keep this program alive.
        deadline = time.monotonic() + _LAST_WAIT_S
        for child in self._children.values():
            with suppress(subprocess.TimeoutExpired):
                child.wait(max(0.01, deadline - time.monotonic()))

    def _serve(self) -> bool:
        """Carries out one request; False when the owner has closed its end."""
        try:
            packet, descriptors, _, _ = socket.recv_fds(self._owner, PACKET_BYTES, 1)
        except ConnectionError:
            return False
        if not packet:
            return False
        request = json.loads(packet)
        try:
            if request["do"] == "start":
                answer = self._start(request, descriptors[0] if descriptors else None)
            else:
                answer = self._signal(request["name"], request["signal"])
        finally:
            # The child has a copy of its own. If the reading end of a client's input stayed open
            # here, a command to a client that has ended would seem to succeed.
            for descriptor in descriptors:
                os.close(descriptor)
        self._send({"id": request["id"], **answer})
        return True

    def _start(self, request: dict[str, Any], stdin: int | None) -> dict[str, Any]:
        if request["name"] in self._children:
            return {"error": "a process of that name is running"}
        # Taken before the process exists, so that `process.spawned` comes before all events of the
        # process itself. Taken afterwards, a quick program would have written first.
        before_ns = time.monotonic_ns()
        try:
            with open(request["log"], "ab", buffering=0) as log:
                child = self._fork(request, stdin, log) or self._execute(
                    request["argv"],
                    subprocess.DEVNULL if stdin is None else stdin,
                    log,
                    request["folder"],
                    {**_base(request["inherits"]), **request["environment"]},
                )
        except (OSError, subprocess.SubprocessError) as failed:
            return {"error": str(failed), "errno": getattr(failed, "errno", None)}
        self._children[request["name"]] = child
        # A descriptor of the process, not SIGCHLD: it names which process ended, and no signal
        # interrupts this program. Until `_report_exit` waits for the child, its id cannot be given
        # to another process.
        self._waiting.register(os.pidfd_open(child.pid), selectors.EVENT_READ, request["name"])
        return {"pid": child.pid, "at_ns": before_ns}

    def _execute(
        self,
        argv: list[str],
        stdin: int,
        log: IO[bytes] | None = None,
        folder: str | None = None,
        environment: dict[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Executes a program, tied to this one, in a session of its own."""
        return subprocess.Popen(
            argv,
            cwd=folder,
            env=environment,
            stdin=stdin,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=self._inherited,
            preexec_fn=self._tie_to_me,  # noqa: PLW1509 this program has one thread
        )

    def _fork(self, request: dict[str, Any], stdin: int | None, log: IO[bytes]) -> Forked | None:
        """The child, forked from its template; None if it has no template, or none in time."""
        if not request["preload"]:
            return None
        python, _, module, *_ = request["argv"]
        # A fork cannot lose the variables that its template inherited. So a client, which inherits,
        # and a node, which does not, need two templates of one module.
        which = python, module, request["inherits"]
        template = self._templates.get(which)
        if template is None:
            base = _base(request["inherits"])
            template = Template(
                python, module, lambda argv, given: self._execute(argv, given, environment=base)
            )
            self._templates[which] = template
        with open(os.devnull, "rb") as nothing:
            try:
                given = nothing.fileno() if stdin is None else stdin
                return template.fork(request, given, log.fileno())
            except OSError as failed:
                # It ended, or a late answer of it would be taken for the next child's.
                self._templates.pop(which).end()
                # It ended: the child is executed instead, which loses time only. Any other failure
                # is an answer that did not come, so whether a child exists is unknown: executing a
                # second one could start it twice.
                if isinstance(failed, ConnectionError):
                    return None
                raise

    def _tie_to_me(self) -> None:
        """Runs in the child: makes it die with the supervisor, which may have died already."""
        self._prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # Between the fork and the call the supervisor may have died. The kernel sends nothing for a
        # death that was earlier, so it is asked who the parent is.
        if os.getppid() != self._pid:
            os._exit(1)

    def _signal(self, name: str, number: int) -> dict[str, Any]:
        child = self._children.get(name)
        if child is None:
            return {"delivered": False}
        if number == signal.SIGKILL:
            os.killpg(child.pid, number)  # including every process that it started itself
        else:
            os.kill(child.pid, number)
        return {"delivered": True}

    def _report_exit(self, name: str, pidfd: int) -> None:
        at_ns = time.monotonic_ns()
        code = self._children.pop(name).wait()
        self._waiting.unregister(pidfd)
        os.close(pidfd)
        # `Popen` gives an end by signal 9 as -9.
        killed_by = -code if code < 0 else 0
        self._send({"exited": name, "code": max(code, 0), "signal": killed_by, "at_ns": at_ns})

    def _send(self, message: dict[str, Any]) -> None:
        with suppress(ConnectionError):  # an owner that is gone shows as end of file
            self._owner.send(json.dumps(message).encode())


def _base(inherits: bool) -> dict[str, str]:
    return dict(os.environ) if inherits else node_environment(os.environ)


def main(arguments: list[str]) -> None:
    """`supervisor.py OWNER_PIDS [INHERITED_FD ...]`, the process ids joined by commas."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        # children must not inherit the owner's ignored signals
        signal.signal(number, signal.SIG_DFL)
    # The socket moves away from descriptor 0, so that no child inherits it as its standard input.
    owner = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    supervisor = Supervisor(owner, tuple(int(fd) for fd in arguments[1:]))
    try:
        supervisor.run([int(pid) for pid in arguments[0].split(",")])
    finally:
        supervisor.end_all()


if __name__ == "__main__":
    main(sys.argv[1:])
