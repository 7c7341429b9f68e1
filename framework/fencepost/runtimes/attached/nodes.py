"""The processes of nodes that somebody else started: found, stopped, ended, and started again.

A process is known by its id and by the time at which it started: an id alone may be another
process's by the time a signal is sent. A container is known by its name, and commanded by the
engine's own program. This module is used by the harness and by the guard, so neither heals in
another way than the other.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol, final

from msgspec import Struct

from fencepost.model.clock import poll
from fencepost.model.errors import EnvironmentFailed
from fencepost.model.system.attachment import AttachedNode, Attachment

ENGINE_LIMIT_S = 20.0
START_LIMIT_S = 30.0
_START_TIME = 19
"""Which field behind the name of a process, in its `stat`, is its start, in ticks since boot."""
PAUSED = "T"


class Found(Struct, frozen=True):
    """A live process of a node, as it was found."""

    pid: int
    started: int


class NodeProcess(Protocol):
    """How the process of one node is taken hold of."""

    def find(self) -> Found:
        """The process that runs now; raises EnvironmentFailed if none does."""
        ...

    def signal(self, found: Found, number: int) -> bool:
        """Whether that very process got the signal."""
        ...

    def state(self, found: Found) -> str:
        """Its state letter, `T` if it is stopped; empty if it is gone."""
        ...

    def exit(self, found: Found) -> tuple[int, int]:
        """The code and the signal by which it ended; a code of -1 is not known."""
        ...

    def start(self) -> Found:
        """Starts the next one; raises EnvironmentFailed if none runs in time."""
        ...


def process_of(node: AttachedNode, attachment: Attachment) -> NodeProcess:
    """How the process of a node of this attachment is taken hold of."""
    if node.container:
        return _Container(node, attachment.engine)
    return _Local(node)


def started_at(pid: int) -> int | None:
    """When a process started, in ticks since boot; None if there is none, or it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    # A zombie has ended: only its parent has not asked how.
    return None if fields[0] in "ZX" else int(fields[_START_TIME])


@final
class _Local:
    """A process of this host."""

    def __init__(self, node: AttachedNode) -> None:
        self._node = node
        self._pid = node.pid

    def find(self) -> Found:
        node = self._node
        pid, by = self._pid, f"process {self._pid}"
        if node.pid_file:
            by = node.pid_file
            try:
                pid = int(Path(node.pid_file).read_text().split()[0])
            except (OSError, ValueError, IndexError):
                raise EnvironmentFailed(f"{node.name} does not run: {by} names none") from None
        started = started_at(pid) if pid else None
        if started is None:
            raise EnvironmentFailed(f"{node.name} does not run: there is no process {pid} ({by})")
        try:
            os.kill(pid, 0)
        except PermissionError:
            raise EnvironmentFailed(
                f"{node.name} is process {pid} of another user, which gets no signal from this one"
            ) from None
        except ProcessLookupError:
            raise EnvironmentFailed(f"{node.name} has just ended") from None
        return Found(pid, started)

    def signal(self, found: Found, number: int) -> bool:
        try:
            # The descriptor stands for this process and no later one of its id.
            descriptor = os.pidfd_open(found.pid)
        except OSError:
            return False
        try:
            if started_at(found.pid) != found.started:
                return False
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)
        return True

    def state(self, found: Found) -> str:
        if started_at(found.pid) != found.started:
            return ""
        try:
            return Path(f"/proc/{found.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return ""

    def exit(self, found: Found) -> tuple[int, int]:
        return -1, 0

    def start(self) -> Found:
        node = self._node
        # Of a session of its own, and with no descriptor of the harness: it outlives this run, and
        # is no `Popen`, which its maker has to wait for.
        nowhere = (
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0),
            (os.POSIX_SPAWN_DUP2, 0, 1),
            (os.POSIX_SPAWN_DUP2, 0, 2),
        )
        try:
            child = os.posix_spawnp(
                node.start[0], node.start, os.environ, file_actions=nowhere, setsid=True
            )
        except OSError as failed:
            raise EnvironmentFailed(
                f"{node.name} was not started: {node.start[0]}: {failed.strerror}"
            ) from failed
        if not node.pid_file:
            self._pid = child
        found: list[Found] = []

        def runs() -> bool:
            with suppress(ChildProcessError):  # one that only begins the node ends soon
                os.waitpid(child, os.WNOHANG)
            try:
                found.append(self.find())
            except EnvironmentFailed:
                return False
            return True

        if not poll(runs, START_LIMIT_S):
            raise EnvironmentFailed(
                f"{node.name} did not run {START_LIMIT_S:g} s after {' '.join(node.start)}"
            )
        return found[-1]


@final
class _Container:
    """A container, by its engine's own program."""

    def __init__(self, node: AttachedNode, engine: str) -> None:
        self._node, self._engine = node, engine

    def find(self) -> Found:
        status, pid, _ = self._inspected()
        if status != "running":
            raise EnvironmentFailed(
                f"{self._node.name} does not run: the container {self._node.container} is {status}"
            )
        return Found(pid, started_at(pid) or 0)

    def signal(self, found: Found, number: int) -> bool:
        state = self.state(found)
        if not state:
            return False
        if number == signal.SIGCONT and state != PAUSED:
            return True  # the engine calls that an error
        match number:
            case signal.SIGSTOP:
                command = ["pause"]
            case signal.SIGCONT:
                command = ["unpause"]
            case _:
                command = ["kill", "--signal", signal.Signals(number).name]
        command_engine(self._engine, *command, self._node.container)
        return True

    def state(self, found: Found) -> str:
        status, pid, _ = self._inspected()
        if pid != found.pid or status not in ("running", "paused"):
            return ""
        return PAUSED if status == "paused" else "S"

    def exit(self, found: Found) -> tuple[int, int]:
        _, _, code = self._inspected()
        # An engine reports a signal as a shell does.
        return (0, code - 128) if code in (130, 137, 143) else (code, 0)

    def start(self) -> Found:
        command_engine(self._engine, "start", self._node.container)
        return self.find()

    def _inspected(self) -> tuple[str, int, int]:
        form = "{{.State.Status}} {{.State.Pid}} {{.State.ExitCode}}"
        said = command_engine(self._engine, "inspect", "--format", form, self._node.container)
        status, pid, code = said.split()
        return status, int(pid), int(code)


def command_engine(engine: str, *words: str) -> str:
    """What a command of the engine prints; raises EnvironmentFailed if it fails, or takes long."""
    try:
        done = subprocess.run(
            [engine, *words], capture_output=True, text=True, timeout=ENGINE_LIMIT_S, check=False
        )
    except FileNotFoundError:
        raise EnvironmentFailed(f"there is no program {engine} to command containers") from None
    except subprocess.TimeoutExpired:
        raise EnvironmentFailed(
            f"`{engine} {words[0]}` took more than {ENGINE_LIMIT_S:g} s"
        ) from None
    if done.returncode:
        said = " ".join(done.stderr.split())
        raise EnvironmentFailed(f"`{engine} {' '.join(words)}` failed: {said}")
    return done.stdout.strip()


def follows(node: AttachedNode, attachment: Attachment, since: str) -> Sequence[str]:
    """The argv of a program that prints what a node logs from now on, for a container from the time
    `since`; empty: it logs nowhere that the file names."""
    if node.logs:
        return ("tail", "--quiet", "--lines=0", "--follow=name", "--retry", *node.logs)
    if node.container:
        return (attachment.engine, "logs", "--follow", "--since", since, node.container)
    return ()
