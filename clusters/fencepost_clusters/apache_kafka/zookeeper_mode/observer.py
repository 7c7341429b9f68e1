"""The client that watches a Kafka cluster's znodes, in a session of its own.

It works until its standard input ends. When a session ends, it opens the next one.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import final

import msgspec

from fencepost import ClientStarted, Recorder, WorkerConfig, run_worker
from fencepost_clusters.apache_kafka.zookeeper_mode.znodes import Znodes
from fencepost_clusters.zookeeper.client.kazoo_session import Ensemble, KazooSession
from fencepost_clusters.zookeeper.client.port import (
    Answered,
    Connected,
    Ended,
    Fired,
    Request,
    SessionEvent,
)
from fencepost_clusters.zookeeper.log_parser import ROLE
from fencepost_clusters.zookeeper.server import CLIENT_PORT
from fencepost_kafka import KINDS

SESSION_MS = 6000
LIMIT_MS = 60_000


class Options(msgspec.Struct, frozen=True):
    """`chroot`: the path below which all znodes are that it watches (empty: none)."""

    chroot: str = ""


@final
class Observer:
    """One worker's sessions, one after the other."""

    def __init__(self, ensemble: Ensemble, recorder: Recorder) -> None:
        self._ensemble, self._recorder = ensemble, recorder
        self._znodes = Znodes()
        self._asked: dict[int, Request] = {}
        self._number = 0
        self._ended = asyncio.Event()
        self._begin()

    async def run(self) -> None:
        """Opens a session after each that ends; until it is cancelled."""
        while True:
            await self._ended.wait()
            self._ended.clear()
            await self._session.wait_closed()
            self._begin()

    async def close(self) -> None:
        """Ends the present session."""
        self._session.close()
        await self._session.wait_closed()

    def _begin(self) -> None:
        self._session = KazooSession(self._ensemble, SESSION_MS, self._take, LIMIT_MS)

    def _take(self, event: SessionEvent) -> None:
        match event:
            case Connected():
                self._ask(self._znodes.begin())
            case Fired():
                self._ask(self._znodes.fired(event))
            case Answered(number, answer):
                requests, bodies = self._znodes.answered(self._asked.pop(number), answer)
                for body in bodies:
                    self._recorder.record(body)
                self._ask(requests)
            case Ended():
                self._ended.set()
            case _:
                pass

    def _ask(self, requests: Sequence[Request]) -> None:
        for request in requests:
            self._number += 1
            self._asked[self._number] = request
            self._session.ask(self._number, request)


async def _observe(ensemble: Ensemble, recorder: Recorder) -> str:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, stopped.set)
    observer = Observer(ensemble, recorder)
    running = asyncio.create_task(observer.run())
    await stopped.wait()
    running.cancel()
    await observer.close()
    return "stopped"


def work(config: WorkerConfig, options: Options, recorder: Recorder) -> str:
    """Runs until it is asked to stop."""
    servers = sorted(name for name in config.hosts if name.startswith(f"{ROLE}-"))
    hosts = tuple(f"{config.hosts[name]}:{CLIENT_PORT}" for name in servers)
    return asyncio.run(_observe(Ensemble(hosts, options.chroot), recorder))


def main(argv: Sequence[str]) -> int:
    """See `run_worker`."""
    return run_worker(
        argv, Options, lambda _: ClientStarted(kind="observer", library="kazoo"), work, KINDS
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv))
