"""Real ZooKeeper servers for tests: one alone, or the members of an ensemble, without links."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import final

import pytest

from fencepost.model.clock import poll
from fencepost_clusters.zookeeper.distribution import VERSION, cache, installed
from fencepost_clusters.zookeeper.probe import ask
from fencepost_clusters.zookeeper.server import Server, command, mode

NOT_DURABLE: Mapping[str, str] = {"forceSync": "no"}
"""Nothing here loses power, and a disk that is shared by many tests is slow."""

available = pytest.mark.skipif(
    shutil.which("mvn") is None and not (cache(os.environ) / VERSION).exists(),
    reason=f"ZooKeeper {VERSION} is not here, and neither is Maven, which would download it",
)


def free_port(address: str = "127.0.0.1") -> int:
    with socket.socket() as held:
        held.bind((address, 0))
        return int(held.getsockname()[1])


@final
class RunningServer:
    """One process; its work folder is `folder`."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self._folder = server, folder
        made = command(installed(os.environ), server)
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in made.files.items():
            (folder / name).write_text(text)
        with (folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                made.argv, cwd=folder, env={**os.environ, **made.environment}, stdout=log,
                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    @property
    def host(self) -> str:
        return f"{self.server.address}:{self.server.port}"

    def said(self, word: str) -> str:
        """The answer to a four-letter word; nothing while the server does not listen."""
        try:
            return ask(self.server.address, self.server.port, word, 2.0)
        except OSError:
            return ""

    def mode(self) -> str | None:
        return mode(self.said("srvr"))

    def wait(self, limit_s: float = 60.0) -> None:
        """Waits until it serves."""
        assert poll(lambda: self.mode() is not None, limit_s, 0.05), self.log()

    def log(self) -> str:
        return (self._folder / "log").read_text()

    def has_mapped(self, file: Path) -> bool:
        """Whether the process has this file in its memory."""
        return str(file) in Path(f"/proc/{self._process.pid}/maps").read_text()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def standalone(folder: Path, **settings: str) -> RunningServer:
    """One server that serves."""
    server = Server(
        "127.0.0.1", str(folder / "data"), free_port(), settings={**NOT_DURABLE, **settings}
    )
    running = RunningServer(server, folder)
    running.wait()
    return running
