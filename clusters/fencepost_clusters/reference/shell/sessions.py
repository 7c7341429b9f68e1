"""The sessions of a node with a real ZooKeeper, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import final

from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.zookeeper.client.port import Ended, Session, SessionEvent, Unsent


@dataclass(frozen=True, slots=True)
class _Open:
    session: Session
    wait_closed: Callable[[], Coroutine[None, None, None]]


@final
class Sessions:
    """Carries out a node's effects on ZooKeeper; `hosts` has the address of each name.

    A session may answer within the call that asks. The node handles the answer in a step of its
    own, after the present one.
    """

    def __init__(self, hosts: Mapping[str, str], step: Callable[[e.FromZooKeeper], None]) -> None:
        self._hosts, self._step = hosts, step
        self._open: _Open | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def carry_out(self, effect: e.ZooKeeperEffect) -> None:
        """Opens a session, sends a request in it, or closes it; an ended session answers no
        request."""
        match effect:
            case e.OpenSession():
                assert self._open is None, "a node has one session at a time"
                self._open = self._opened(effect)
            case e.CloseSession():
                if self._open is not None:
                    self._open.session.close()
            case e.ToZooKeeper(request_id, request):
                if self._open is not None:
                    self._open.session.ask(request_id, request)
                else:
                    self._tell(e.ZooKeeperAnswer(request_id, Unsent()))

    async def wait_closed(self) -> None:
        """Waits until the ended sessions are closed, or their servers cannot be reached."""
        await asyncio.gather(*self._closing)

    def _opened(self, wanted: e.OpenSession) -> _Open:
        # Imported by the first session: a node of another plane needs no kazoo.
        from fencepost_clusters.zookeeper.client import kazoo_session as k  # noqa: PLC0415

        hosts = tuple(f"{self._hosts.get(name, name)}:{port}" for name, port in wanted.servers)
        session = k.KazooSession(
            k.Ensemble(hosts, wanted.chroot), wanted.timeout_ms, self._deliver, wanted.limit_ms
        )
        return _Open(session, session.wait_closed)

    def _deliver(self, event: SessionEvent) -> None:
        if isinstance(event, Ended):
            ended, self._open = self._open, None
            assert ended is not None
            closing = asyncio.get_running_loop().create_task(ended.wait_closed())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        self._tell(e.from_zookeeper(event))

    def _tell(self, what: e.FromZooKeeper) -> None:
        asyncio.get_running_loop().call_soon(self._step, what)
