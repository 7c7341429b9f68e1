"""The client that reads the nodes' metrics pages, without links, so that no fault cuts it off.

Each page is read twice a second; the page of a node that does not answer, or knows no epoch of the
quorum yet, only every two seconds, since a starting JVM is busy. `metrics` decides which events a
page makes. So a change is recorded within half a second plus the time of a page, and within two
more seconds after a start or a pause. A change that ended between two pages is never recorded.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence

import msgspec

from fencepost import ClientStarted, Recorder, WorkerConfig, run_worker
from fencepost_clusters.apache_kafka.metrics import (
    Figures,
    MetricsObserved,
    PageHistory,
    figures,
    query,
)
from fencepost_kafka import KINDS

EVERY_S = 0.5
SELDOM_S = 2.0
LIMIT_S = 1.0
MOST_BYTES = 1 << 20


class Options(msgspec.Struct, frozen=True):
    """The worker's options: the port of the pages."""

    port: int


async def read_page(address: str, port: int) -> Figures:
    """The text of the page; empty if none came within the limit, or it is not a page."""
    asked = f"GET /metrics?{query()} HTTP/1.0\r\nHost: {address}\r\n\r\n"
    try:
        async with asyncio.timeout(LIMIT_S):
            reader, writer = await asyncio.open_connection(address, port)
            try:
                writer.write(asked.encode())
                answer = await reader.read(MOST_BYTES)
                while more := await reader.read(MOST_BYTES):
                    answer += more
            finally:
                writer.close()
    except OSError:  # the node is down or paused; a timeout counts, too
        return {}
    head, _, body = answer.partition(b"\r\n\r\n")
    # A node that dies while it answers may leave half a number.
    whole = head.split(b" ", 2)[1:2] == [b"200"] and body.endswith(b"\n")
    return figures(body.decode(errors="replace")) if whole else {}


async def follow(
    slot: str, address: str, port: int, recorder: Recorder, stopped: asyncio.Event
) -> None:
    """Reads one node's page repeatedly, until it is asked to stop."""
    following = PageHistory(slot)
    said: Figures = {}
    while not await within(stopped, EVERY_S if said.get("epoch", 0) > 0 else SELDOM_S):
        asked_ns = time.monotonic_ns()
        said = await read_page(address, port)
        observed = following.take(said, asked_ns, time.monotonic_ns())
        if observed is not None:
            recorder.record(observed)


async def within(happened: asyncio.Event, limit_s: float) -> bool:
    """Whether the event is set within the limit."""
    try:
        async with asyncio.timeout(limit_s):
            return await happened.wait()
    except TimeoutError:
        return False


async def follow_all(config: WorkerConfig, port: int, recorder: Recorder) -> None:
    """Reads the pages of all nodes side by side, until standard input ends."""
    stopped = asyncio.Event()

    def on_input() -> None:
        if not os.read(0, 4096):
            asyncio.get_running_loop().remove_reader(0)
            stopped.set()

    asyncio.get_running_loop().add_reader(0, on_input)
    async with asyncio.TaskGroup() as group:
        for slot, address in config.own.items():
            if slot.startswith(("controller-", "broker-")):
                group.create_task(follow(slot, address, port, recorder, stopped))


def work(config: WorkerConfig, options: Options, recorder: Recorder) -> str:
    """Runs until it is asked to stop."""
    asyncio.run(follow_all(config, options.port, recorder))
    return "stopped"


def main(argv: Sequence[str]) -> int:
    """See `run_worker`."""
    started = ClientStarted(kind="metrics reader", library="asyncio")
    return run_worker(argv, Options, lambda _: started, work, (MetricsObserved, *KINDS))


if __name__ == "__main__":
    sys.exit(main(sys.argv))
