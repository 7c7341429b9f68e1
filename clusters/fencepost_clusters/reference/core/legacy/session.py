"""A node's session with ZooKeeper, and the tasks that ask in it.

A task is a generator: it yields a request and gets the answer. So what has to be asked in order
reads in order, and nothing else happens to the task in between. A task that needs the session's
connection ends with `Disconnected` where a request has no certain answer.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import final

from fencepost_clusters.reference.core.node.effects import (
    Address,
    Instant,
    OpenSession,
    Outbox,
    ToZooKeeper,
)
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_kafka import SessionChanged

MS = 1_000_000
REOPEN_NS = 200 * MS

Task = Generator[zk.Request, zk.Answer, None]


class Disconnected(Exception):
    """A request was not answered for certain: the connection is lost."""


def certain(answer: zk.Answer) -> zk.Answer:
    """The answer; raises Disconnected where it is none."""
    if isinstance(answer, zk.Unknown | zk.Unsent):
        raise Disconnected
    return answer


@final
class Session:
    """See the module. `connected` is the session while requests can be asked, otherwise None."""

    def __init__(
        self, servers: tuple[Address, ...], chroot: str, timeout_ms: int, out: Outbox
    ) -> None:
        self.connected: int | None = None
        self.known = 0
        """The newest session that there was, connected or not."""
        self._open = OpenSession(servers, timeout_ms, chroot)
        self._out = out
        self._tasks: dict[int, Task] = {}
        self._reopen_ns: int | None = None

    def open(self) -> None:
        """Begins the first session."""
        self._out.add(self._open)

    def deadline_ns(self) -> int | None:
        """When an ended session is followed by another."""
        return self._reopen_ns

    def tick(self, now: Instant) -> None:
        """Opens a session once it is time to."""
        if self._reopen_ns is not None and now.monotonic_ns >= self._reopen_ns:
            self._reopen_ns = None
            self._out.add(self._open)

    def changed(self, event: zk.Connected | zk.Suspended | zk.Ended, now: Instant) -> None:
        """Takes in what became of the session."""
        match event:
            case zk.Connected(session):
                self.connected = self.known = session
                self._out.note(SessionChanged(session=session, state="connected"))
            case zk.Suspended():
                self.connected = None
                self._out.note(SessionChanged(session=self.known, state="suspended"))
            case zk.Ended(how):
                self.connected = None
                self._reopen_ns = now.monotonic_ns + REOPEN_NS
                self._out.note(SessionChanged(session=self.known, state="ended", how=how.value))

    def start(self, task: Task) -> None:
        """Runs a task up to its first request."""
        self._step(task, None)

    def answered(self, request_id: int, answer: zk.Answer) -> None:
        """Goes on with the task that asked."""
        self._step(self._tasks.pop(request_id), answer)

    def _step(self, task: Task, answer: zk.Answer | None) -> None:
        try:
            request = next(task) if answer is None else task.send(answer)
        except (StopIteration, Disconnected):
            return
        number = self._out.next_call()
        self._tasks[number] = task
        self._out.add(ToZooKeeper(number, request))
