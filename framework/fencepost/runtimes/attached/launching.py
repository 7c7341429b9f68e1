"""The launcher of an attached cluster: it adopts the nodes that run, and starts clients itself.

The first process of a node's slot is the one that runs already. Each later one follows a fault that
ended the one before, and is started by the node's own command, or by its engine. What a node logs
is copied into the run's folder by a program that follows its log, so a log parser reads it as any
other node's output.

No process of a node is a child of the harness. So its end is seen by a descriptor of the process
(pidfd), nobody here learns its exit code, and nothing ends it when the run ends.
"""

from __future__ import annotations

import os
import select
import signal
from dataclasses import dataclass
from typing import final

from fencepost.model.clock import now_ns, wall_clock
from fencepost.model.errors import EnvironmentFailed
from fencepost.model.system.attachment import Attachment
from fencepost.runtimes.attached.guard import Act, Did
from fencepost.runtimes.attached.guarding import Guarding
from fencepost.runtimes.attached.nodes import PAUSED, Found, NodeProcess, follows, process_of
from fencepost.supervision.launcher import UNKNOWN_CODE, Child, Exit, Launcher

_LOG = "log/"
"""What the names of the programs begin with that follow logs."""
_ACTS: dict[int, Did] = {signal.SIGSTOP: "stop", signal.SIGCONT: "go on"}


@dataclass(slots=True)
class _Adopted:
    """A process of a node."""

    node: str
    found: Found
    descriptor: int
    """Of the process (pidfd); -1: the file does not name it, and nothing is known of it."""
    killed: bool = False
    exit: Exit | None = None
    told: bool = False
    """Whether `exits` has yielded its end."""


@final
class AttachedLaunching:
    """See `fencepost.runtimes.process.backend.Launching`."""

    def __init__(self, attachment: Attachment, launcher: Launcher, guard: Guarding) -> None:
        self._attachment = attachment
        self._launcher = launcher
        self._guard = guard
        self._nodes: dict[str, NodeProcess] = {}
        self._processes: dict[str, _Adopted] = {}
        """The name of a process -> it; the newest one of a node is the last."""
        self._waiting = select.epoll()
        self._waiting.register(launcher.fileno(), select.EPOLLIN)

    def fileno(self) -> int:
        """See `Launching.fileno`."""
        return self._waiting.fileno()

    def start(self, child: Child) -> tuple[int, int]:
        """Adopts the process that runs in the slot of a node, or starts its next one; starts a
        client. Raises EnvironmentFailed if the node does not run."""
        node = self._attachment.named.get(child.slot.name) if child.slot else None
        if node is None:
            return self._launcher.start(child)
        since = wall_clock().isoformat()
        if not node.container:  # a file is followed before anything can be written to it
            self._follow(child, since)
        at_ns = now_ns()
        if not node.has_process:
            self._processes[child.name] = _Adopted(node.name, Found(0, 0), -1)
            return 0, at_ns
        found = self._adopt(node.name)
        self._guard.tell(Act(node.name, "found", found))
        if node.container:
            self._follow(child, since)
        try:
            descriptor = os.pidfd_open(found.pid)
        except OSError as failed:
            raise EnvironmentFailed(f"{node.name} has just ended ({failed.strerror})") from failed
        self._processes[child.name] = _Adopted(node.name, found, descriptor)
        self._waiting.register(descriptor, select.EPOLLIN)
        return found.pid, at_ns

    def owns(self, name: str) -> bool:
        """See `Launching.owns`: clients alone."""
        return name not in self._processes

    def signal(self, name: str, number: int) -> bool:
        """See `Launching.signal`; a node's process is signalled alone."""
        one = self._processes.get(name)
        if one is None:
            return self._launcher.signal(name, number)
        # Before the act: a harness that is killed in between has left nothing that nobody heals.
        if number != signal.SIGCONT:
            self._guard.tell(Act(one.node, _ACTS.get(number, "end"), one.found))
        one.killed |= number == signal.SIGKILL
        delivered = self._nodes[one.node].signal(one.found, number)
        if number == signal.SIGCONT and delivered:
            self._guard.tell(Act(one.node, "go on", one.found))
        return delivered

    def state(self, name: str) -> str:
        """See `Launching.state`."""
        one = self._processes.get(name)
        if one is None:
            return self._launcher.state(name)
        if one.descriptor < 0:
            return ""
        return "" if one.exit else self._nodes[one.node].state(one.found)

    def kill_soon(self, name: str) -> None:
        """See `Launching.kill_soon`."""
        self._launcher.kill_soon(name)

    def wait(self, name: str, limit_s: float) -> Exit | None:
        """See `Launching.wait`."""
        one = self._processes.get(name)
        if one is None:
            return self._launcher.wait(name, limit_s)
        if one.exit is None and one.descriptor >= 0:
            select.select([one.descriptor], [], [], max(0.0, limit_s))
            self._look(name, one)
        return one.exit

    def exits(self) -> list[Exit]:
        """See `Launching.exits`."""
        ends = [one for one in self._launcher.exits() if not one.name.startswith(_LOG)]
        for name, one in self._processes.items():
            self._look(name, one)
            if one.exit is not None and not one.told:
                one.told = True
                ends.append(one.exit)
        return ends

    def close(self) -> None:
        """Ends the clients and what follows logs; the nodes go on."""
        self._launcher.close()
        self._waiting.close()
        for one in self._processes.values():
            if one.exit is None and one.descriptor >= 0:
                os.close(one.descriptor)

    def _adopt(self, name: str) -> Found:
        known = self._nodes.get(name)
        if known is not None:
            return known.start()
        node = self._attachment.named[name]
        process = process_of(node, self._attachment)
        found = process.find()
        if process.state(found) == PAUSED:
            raise EnvironmentFailed(f"{name} is stopped already, and not by this run")
        self._nodes[name] = process
        return found

    def _follow(self, child: Child, since: str) -> None:
        """Copies what the node logs from now on into the log of this process."""
        assert child.slot is not None
        node = self._attachment.named[child.slot.name]
        for former, one in self._processes.items():
            # The lines of the next process are not the former one's.
            if one.node == node.name:
                self._launcher.signal(f"{_LOG}{former}", signal.SIGTERM)
        argv = follows(node, self._attachment, since)
        child.log.touch()
        if argv:
            name = f"{_LOG}{child.name}"
            self._launcher.start(Child(name, argv, child.folder, child.log))

    def _look(self, name: str, one: _Adopted) -> None:
        """Notes the end of a process."""
        if one.exit is not None or one.descriptor < 0:
            return
        if not select.select([one.descriptor], [], [], 0)[0]:
            return
        code, number = self._nodes[one.node].exit(one.found)
        if code == UNKNOWN_CODE and one.killed:
            code, number = 0, int(signal.SIGKILL)
        one.exit = Exit(name, code, number, now_ns())
        self._waiting.unregister(one.descriptor)
        os.close(one.descriptor)
