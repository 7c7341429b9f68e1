"""A client worker as the harness starts one, without a harness."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
from msgspec import Struct

from fencepost.events import Codec
from fencepost.model.clock import poll
from fencepost_kafka import KINDS, ClientOptions

WORKER = [sys.executable, "-m", "fencepost_kafka.confluent"]
HOST = "127.0.0.1"
LIMIT_S = 30
"""How long a worker may take to start, or to end: both are slow on a busy machine."""


class Worker:
    """A worker as the harness starts one."""

    def __init__(self, folder: Path, options: ClientOptions, port: int) -> None:
        self.events = folder / "events.ndjson"
        config = folder / "config.json"
        content = {
            "run": "run-1",
            "process": "clients/one#1",
            "events": str(self.events),
            "bootstrap": [f"{HOST}:{port}"],
            "hosts": {"broker-1": HOST},
            "client_port": port,
            "options": msgspec.to_builtins(options),
        }
        config.write_text(json.dumps(content))
        self.process = subprocess.Popen(
            [*WORKER, str(config)], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def bodies(self) -> list[Struct]:
        """Every whole event so far."""
        if not self.events.exists():
            return []
        lines = self.events.read_bytes().splitlines(keepends=True)
        return [Codec(KINDS).decode(line).body for line in lines if line.endswith(b"\n")]

    def wait_for(self, kind: type[Struct], count: int = 1) -> None:
        assert poll(lambda: sum(isinstance(b, kind) for b in self.bodies()) >= count, LIMIT_S), kind

    def tell(self, command: Struct) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode(command) + b"\n")
        self.process.stdin.flush()

    def close_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait(self) -> int:
        return self.process.wait(timeout=LIMIT_S)
