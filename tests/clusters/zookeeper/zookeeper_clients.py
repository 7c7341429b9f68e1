"""A client of a real ZooKeeper for tests: it asks, waits, and keeps all events of its session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import final

from fencepost_clusters.zookeeper.client.kazoo_session import Ensemble, KazooSession
from fencepost_clusters.zookeeper.client.port import (
    Answer,
    Answered,
    Connected,
    Ended,
    Fired,
    Request,
    SessionEvent,
    Suspended,
)

LIMIT_S = 60.0


@final
class Client:
    """One session."""

    def __init__(self, host: str, timeout_ms: int = 30_000, limit_ms: int = 30_000) -> None:
        self.delivered: list[SessionEvent] = []
        self.answers: dict[int, Answer] = {}
        self.also: Callable[[SessionEvent], None] = lambda event: None
        """Gets every event, too."""
        self._changed = asyncio.Event()
        self._number = 0
        hosts, slash, chroot = host.partition("/")
        self.session = KazooSession(
            Ensemble(tuple(hosts.split(",")), slash + chroot), timeout_ms, self._deliver, limit_ms
        )

    def _deliver(self, event: SessionEvent) -> None:
        self.delivered.append(event)
        if isinstance(event, Answered):
            self.answers[event.number] = event.answer
        self.also(event)
        self._changed.set()

    def start(self, request: Request) -> int:
        """Asks, and returns the request's number."""
        self._number += 1
        self.session.ask(self._number, request)
        return self._number

    async def wait(self, holds: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
        """Waits until an event makes it true."""
        async with asyncio.timeout(limit_s):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    async def answer(self, number: int) -> Answer:
        """Waits for an answer."""
        await self.wait(lambda: number in self.answers)
        return self.answers[number]

    async def ask(self, request: Request) -> Answer:
        """Asks, and waits for the answer."""
        return await self.answer(self.start(request))

    async def connected(self) -> int:
        """Waits for the session; its id."""
        await self.wait(lambda: any(isinstance(one, Connected) for one in self.delivered))
        (first, *_) = (one.session for one in self.delivered if isinstance(one, Connected))
        return first

    @property
    def fired(self) -> list[Fired]:
        return [one for one in self.delivered if isinstance(one, Fired)]

    @property
    def states(self) -> list[SessionEvent]:
        """The session's changes."""
        return [one for one in self.delivered if isinstance(one, Connected | Suspended | Ended)]

    async def close(self) -> None:
        self.session.close()
        await self.session.wait_closed()
