"""A node's session with ZooKeeper, and the tasks that send requests in it.

A task is a generator: it yields a request and gets the answer, so that a sequence of requests is
written as a sequence of statements. If a request has no certain answer, a task that needs it ends
with `Disconnected`.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import final

from fencepost import MS
from fencepost_clusters.reference.core.node.effects import (
    Address,
    Instant,
    OpenSession,
    ToZooKeeper,
)
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_kafka import SessionChanged

REOPEN_NS = 200 * MS
TRY_AGAIN_NS = 1_000 * MS
"""After this time a node looks again at a znode that was missing or unreadable."""

Task = Generator[zk.Request, zk.Answer, None]


@dataclass(slots=True)
class Clock:
    """The time of the current input, for tasks: an answer that resumes one brings no time."""

    now: Instant


class Disconnected(Exception):
    """The connection was lost before a request had a certain answer."""


def certain(answer: zk.Answer) -> zk.Answer:
    """Returns the answer; raises Disconnected if the request was not answered or not sent."""
    if isinstance(answer, zk.Unknown | zk.Unsent):
        raise Disconnected
    return answer


@final
class Session:
    """See the module. `connected` is the session while it takes requests, otherwise None."""

    def __init__(
        self, servers: tuple[Address, ...], chroot: str, timeout_ms: int, out: Outbox
    ) -> None:
        self.connected: int | None = None
        self.known = 0
        """The newest session, connected or not."""
        self._open = OpenSession(servers, timeout_ms, chroot)
        self._out = out
        # Request -> the task that waits for its answer. Each request is answered, if only by
        # Unknown, so no task stays here for good.
        self._tasks: dict[int, Task] = {}
        self._reopen_ns: int | None = None

    def open(self) -> None:
        """Opens the first session."""
        self._out.add(self._open)

    def deadline_ns(self) -> int | None:
        """When the next session is opened, after one has ended."""
        return self._reopen_ns

    def tick(self, now: Instant) -> None:
        """Opens the next session when it is due."""
        if self._reopen_ns is not None and now.monotonic_ns >= self._reopen_ns:
            self._reopen_ns = None
            self._out.add(self._open)

    def changed(self, event: zk.Connected | zk.Suspended | zk.Ended, now: Instant) -> None:
        """Applies a change of the session's state."""
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
                ended, self.known = self.known, 0  # the next attempt may never make a session
                self._out.note(SessionChanged(session=ended, state="ended", how=how.value))

    def start(self, task: Task) -> None:
        """Runs a task up to its first request."""
        self._step(task, None)

    def answered(self, request_id: int, answer: zk.Answer) -> None:
        """Resumes the task that sent the request."""
        self._step(self._tasks.pop(request_id), answer)

    def _step(self, task: Task, answer: zk.Answer | None) -> None:
        try:
            request = next(task) if answer is None else task.send(answer)
        # A task that does not handle the loss of its connection just ends: whoever started it
        # starts it again in the next connection.
        except (StopIteration, Disconnected):
            return
        number = self._out.next_call()
        self._tasks[number] = task
        self._out.add(ToZooKeeper(number, request))
