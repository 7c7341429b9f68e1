"""The program that stands in for yours: replace it by the one that you want to test.

    python -m fencepost_acme.server CONFIGURATION
    python -m fencepost_acme.server --version

It knows nothing of Fencepost: it reads a configuration file, and prints a log for people. It hands
out tokens, each greater than all before, and keeps the newest on its disk. It answers one line for
each line: `PING` with `PONG`, `TAKE` with `TOKEN 7`, `STATUS` with `STATUS <run> 7`; its run is
another one after each start.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

VERSION = "1.0"
PING_EVERY_S = 0.1
PING_LIMIT_S = 1.0
_FILE = "token"
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def log(text: str) -> None:
    """Prints one line of the log."""
    print(f"{datetime.now(UTC).isoformat(timespec='microseconds')} {text}", flush=True)


@dataclass(slots=True)
class Tokens:
    """The newest token. It is on the disk before it is handed out, unless `forget` is set."""

    disk: Path
    forget: bool
    newest: int = 0
    run: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        if not self.forget and (self.disk / _FILE).exists():
            self.newest = int((self.disk / _FILE).read_text())

    def take(self) -> int:
        """The next token."""
        self.newest += 1
        if not self.forget:
            beside = self.disk / f"{_FILE}.new"
            with beside.open("w") as file:
                file.write(str(self.newest))
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.disk / _FILE)
        return self.newest


def answer(line: str, tokens: Tokens) -> str:
    """The answer to one line of a client or a peer."""
    if line.startswith("PING"):
        return "PONG"
    if line == "STATUS":
        return f"STATUS {tokens.run} {tokens.newest}"
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
            log(f"peer {peer} {'answers' if answered else 'is silent'}")
        await elapsed(stopping, PING_EVERY_S)
    if connection is not None:
        connection[1].close()


async def pinged(connection: Connection | None, address: str, port: int) -> Connection | None:
    """The connection over which a peer answered in time, this one or else a new one; None if it did
    not answer."""
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


async def run(address: str, port: int, tokens: Tokens, peers: Mapping[str, str]) -> None:
    """Serves until SIGTERM."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    await asyncio.start_server(lambda r, w: serve(tokens, r, w), address, port)
    log(f"ready, newest token {tokens.newest}")
    watching = [asyncio.create_task(watch(name, at, port, stopping)) for name, at in peers.items()]
    await stopping.wait()
    log("stopping")
    await asyncio.gather(*watching)


def main(words: Sequence[str]) -> None:
    """See the module."""
    if "--version" in words:
        print(f"acme server {VERSION}")
        return
    lines = [line.partition(" ") for line in Path(words[0]).read_text().splitlines()]
    peers = dict(value.split() for name, _, value in lines if name == "peer")
    known = {name: value for name, _, value in lines if name != "peer"}
    tokens = Tokens(Path(known["disk"]), known["forget"] == "yes")
    asyncio.run(run(known["bind"], int(known["port"]), tokens, peers))


if __name__ == "__main__":
    main(sys.argv[1:])
