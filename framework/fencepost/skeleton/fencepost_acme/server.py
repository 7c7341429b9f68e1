"""The server: it hands out tokens, each greater than all before, and keeps the newest on its disk.

    python -m fencepost_acme.server ADDRESS PORT DISK [--forget] [NAME=ADDRESS ...]

It knows nothing of Fencepost. It answers one line for each line: `PING` with `PONG`, `TAKE` with
`TOKEN 7`. It asks its peers for a `PONG` again and again. It prints its log: one JSON object a
line, each with the time in nanoseconds since 1970.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

VERSION = "1.0"
PING_EVERY_S = 0.1
PING_LIMIT_S = 1.0
_FILE = "token"
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def log(kind: str, **fields: object) -> None:
    """Prints one line of the log."""
    print(json.dumps({"type": kind, "at": time.time_ns(), **fields}), flush=True)


class Tokens:
    """The newest token. It is on the disk before it is handed out, unless `forget` is set."""

    def __init__(self, disk: Path, forget: bool) -> None:
        self._path = disk / _FILE
        self._forget = forget
        self.newest = 0 if forget or not self._path.exists() else int(self._path.read_text())

    def take(self) -> int:
        """The next token."""
        self.newest += 1
        if not self._forget:
            beside = self._path.with_suffix(".new")
            with beside.open("w") as file:
                file.write(str(self.newest))
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
        return self.newest


def answer(line: str, tokens: Tokens) -> str:
    """The answer to one line of a client or a peer."""
    if line.startswith("PING"):
        return "PONG"
    if line == "TAKE":
        return f"TOKEN {tokens.take()}"
    return "ERROR unknown request"


async def serve(tokens: Tokens, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers every line of one connection."""
    try:
        while line := await reader.readline():
            writer.write(f"{answer(line.decode().strip(), tokens)}\n".encode())
            await writer.drain()
    except (OSError, ValueError):
        pass  # the peer is gone, or its line is too long
    finally:
        writer.close()


async def watch(peer: str, address: str, port: int, stopping: asyncio.Event) -> None:
    """Asks a peer again and again; prints when it begins or ceases to answer."""
    answered = None
    connection: Connection | None = None
    while not stopping.is_set():
        connection = await pinged(connection, address, port)
        if answered is not (connection is not None):
            answered = connection is not None
            log("peer", peer=peer, answers=answered)
        await elapsed(stopping, PING_EVERY_S)
    if connection is not None:
        connection[1].close()


async def pinged(connection: Connection | None, address: str, port: int) -> Connection | None:
    """The connection over which a peer answered in time, this one or else a new one.

    None if it did not answer. The connection stays open in between, so that it can be measured
    whether a fault met one.
    """
    try:
        async with asyncio.timeout(PING_LIMIT_S):
            connection = connection or await asyncio.open_connection(address, port)
            reader, writer = connection
            writer.write(b"PING\n")
            if await reader.readline() == b"PONG\n":
                return connection
    except OSError:  # TimeoutError is one, too
        pass
    if connection is not None:
        connection[1].close()
    return None


async def elapsed(stopping: asyncio.Event, seconds: float) -> None:
    """Returns after that time, or when the server stops."""
    try:
        async with asyncio.timeout(seconds):
            await stopping.wait()
    except TimeoutError:
        pass


async def run(address: str, port: int, disk: Path, forget: bool, peers: Mapping[str, str]) -> None:
    """Serves until SIGTERM."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    tokens = Tokens(disk, forget)
    await asyncio.start_server(lambda r, w: serve(tokens, r, w), address, port)
    log("started", token=tokens.newest)
    watching = [asyncio.create_task(watch(name, at, port, stopping)) for name, at in peers.items()]
    await stopping.wait()
    log("stopping")
    await asyncio.gather(*watching)


def main(words: Sequence[str]) -> None:
    """See the module."""
    forget = "--forget" in words
    address, port, disk, *peers = [word for word in words if word != "--forget"]
    named = dict(peer.split("=", 1) for peer in peers)
    asyncio.run(run(address, int(port), Path(disk), forget, named))


if __name__ == "__main__":
    main(sys.argv[1:])
