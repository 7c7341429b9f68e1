"""The sessions of a node with a real ZooKeeper, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, final

from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.zookeeper.port import Ended, Told, Unsent

if TYPE_CHECKING:
    from fencepost_clusters.zookeeper.kazoo_session import KazooSession


@final
class Sessions:
    """Carries out what a node wants of ZooKeeper; `hosts` has the address of each name.

    A session may answer within the very call that asks. The node is told of it in a step of its
    own, after the present one.
    """

    def __init__(self, hosts: Mapping[str, str], step: Callable[[e.FromZooKeeper], None]) -> None:
        self._hosts, self._step = hosts, step
        self._session: KazooSession | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def carry_out(self, effect: e.ZooKeeperEffect) -> None:
        """Opens a session, asks in it, or closes it; one that has ended is asked in vain."""
        match effect:
            case e.OpenSession():
                assert self._session is None, "a node has one session at a time"
                self._open(effect)
            case e.CloseSession():
                if self._session is not None:
                    self._session.close()
            case e.ToZooKeeper(request_id, request):
                if self._session is not None:
                    self._session.ask(request_id, request)
                else:
                    self._tell(e.ZooKeeperAnswer(request_id, Unsent()))

    async def wait_closed(self) -> None:
        """Waits until the sessions that have ended here are closed, or the servers out of reach."""
        await asyncio.gather(*self._closing)

    def _open(self, wanted: e.OpenSession) -> None:
        # Imported by the first session: a node of another plane needs no kazoo.
        from fencepost_clusters.zookeeper import kazoo_session as k  # noqa: PLC0415

        hosts = tuple(f"{self._hosts.get(name, name)}:{port}" for name, port in wanted.servers)
        self._session = k.KazooSession(
            k.Ensemble(hosts, wanted.chroot), wanted.timeout_ms, self._told, wanted.limit_ms
        )

    def _told(self, told: Told) -> None:
        if isinstance(told, Ended):
            session, self._session = self._session, None
            assert session is not None
            closing = asyncio.get_running_loop().create_task(session.wait_closed())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        self._tell(e.from_zookeeper(told))

    def _tell(self, what: e.FromZooKeeper) -> None:
        asyncio.get_running_loop().call_soon(self._step, what)
