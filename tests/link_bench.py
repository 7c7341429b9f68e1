"""Shared by tests of links: three slots with an echoing server each, on addresses of their own."""

from __future__ import annotations

import http.client
import json
import socket
import stat
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from fencepost import Layout, Link, LinkState, Slot
from fencepost.history.run_folder import RunFolder
from fencepost.injection.links import Links
from fencepost.injection.toxiproxies import PROGRAM, HostToxiproxies, connect
from fencepost.supervision.addresses import Addresses, claim
from fencepost.supervision.launcher import Launcher
from fencepost_kafka import Role

PORT = 9092
PATIENCE_S = 5.0
"""How long an answer may take on a machine that stalls now and then."""
SILENCE_S = 0.3
"""How long nothing has to come for a link to be mute."""
SLOTS = tuple(Slot(f"broker-{n}", Role.BROKER, n, n) for n in (1, 2, 3))
ONE_TWO = Link("broker-1", "broker-2", PORT)
TWO_ONE = Link("broker-2", "broker-1", PORT)
ONE_THREE = Link("broker-1", "broker-3", PORT)
LAYOUT = Layout(SLOTS, (ONE_TWO, TWO_ONE, ONE_THREE))
CUT = LinkState(cut_upstream=True, cut_downstream=True)


@dataclass(frozen=True)
class Bench:
    """Three slots with an echoing server each, and servers that a test adds."""

    finish: ExitStack
    folder: RunFolder
    launcher: Launcher
    addresses: Addresses
    heard: Counter[str] = field(default_factory=Counter)
    """slot -> bytes that reached its server."""

    def serve(self, slot: Slot) -> None:
        """An echoing server at the slot's own address."""
        server = socket.create_server((self.addresses.own(slot), PORT))
        self.finish.callback(server.close)
        self.finish.callback(server.shutdown, socket.SHUT_RDWR)

        def echo(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                while data := connection.recv(65536):
                    self.heard[slot.name] += len(data)
                    connection.sendall(data)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    threading.Thread(target=echo, args=[connection], daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()

    def links(self, layout: Layout = LAYOUT) -> Links:
        links = Links(layout, self.toxiproxies(layout))
        links.open(layout.slots)
        return links

    def toxiproxies(self, layout: Layout = LAYOUT) -> HostToxiproxies:
        return HostToxiproxies(layout, self.addresses, self.launcher, self.folder)

    def dial(self, links: Links, link: Link) -> socket.socket:
        connection = socket.create_connection(links.end(link), 5)
        self.finish.callback(connection.close)
        return connection

    def api(self, slot: Slot, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        """A raw request to a slot's toxiproxy, beside the module under test."""
        connection = http.client.HTTPConnection("toxiproxy", timeout=5)
        (listening,) = self.folder.sockets.glob(f"toxiproxy.{slot.name}#*")
        try:
            connection.sock = connect(listening, 5)
            connection.request(method, path, json.dumps(body))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@contextmanager
def open_bench(tmp_path: Path) -> Iterator[Bench]:
    with ExitStack() as finish:
        claimed = claim()
        finish.callback(claimed.close)
        folder = RunFolder.create(tmp_path / "run")
        launcher = Launcher(folder.log_of("supervisor"), [claimed.fileno()])
        finish.callback(launcher.close)
        bench = Bench(finish, folder, launcher, Addresses(claimed.run))
        for slot in SLOTS:
            bench.serve(slot)
        yield bench


def echoes(connection: socket.socket, limit_s: float = PATIENCE_S) -> bool:
    """Whether sent bytes come back."""
    try:
        connection.settimeout(limit_s)
        connection.sendall(b"ping")
        return connection.recv(100) == b"ping"
    except OSError:
        return False


def answers(bench: Bench, links: Links, link: Link, limit_s: float = PATIENCE_S) -> bool:
    """Whether a new connection over the link echoes."""
    with suppress(OSError):
        return echoes(bench.dial(links, link), limit_s)
    return False


def mute(bench: Bench, links: Links, link: Link) -> bool:
    """Whether nothing comes back over a new connection."""
    return not answers(bench, links, link, SILENCE_S)


def process_of(bench: Bench, slot: str) -> int:
    """The process id of a slot's toxiproxy."""
    started = bench.launcher._pids
    return started[max(name for name in started if name.startswith(f"toxiproxy/{slot}#"))]


def program(folder: Path, script: str) -> Path:
    path = folder / PROGRAM
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path
