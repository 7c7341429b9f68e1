"""Three etcd members on loopback addresses, and a forwarder on each directed link between them.

Slot s lives at 127.N.s.s and reaches peer p at 127.N.s.p, as in the process runtime. Slot 4 is the
clients'. A forwarder is a minimal stand-in for toxiproxy: a link passes, refuses or is mute.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import Thread
from typing import IO, Literal, final

from fencepost.model.clock import poll
from fencepost_clusters.etcd.clients import messages
from fencepost_clusters.etcd.clients.http import Gateway
from fencepost_clusters.etcd.clients.observing import observed
from fencepost_clusters.etcd.events import MemberObserved

Mode = Literal["pass", "refuse", "mute", "mute-up", "mute-down"]
PEER_PORT, CLIENT_PORT = 2380, 2379
MEMBERS = (1, 2, 3)
CLIENTS = 4


def name(member: int) -> str:
    return f"etcd-{member}"


def host(member: int) -> str:
    return f"{name(member)}.fencepost"


@final
class Forwarder:
    """The connections that `source` dials to a port of `target`."""

    def __init__(self, listen: tuple[str, int], target: tuple[str, int]) -> None:
        self._target = target
        self._listen = listen
        self.mode: Mode = "pass"
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._dialled: set[socket.socket] = set()
        """The ends towards the target: what comes from them is the answer."""
        self._selector = selectors.DefaultSelector()
        self._listener: socket.socket | None = None
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._wanted: list[Mode | None] = []
        self._open()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def set(self, mode: Mode) -> None:
        """`refuse` closes all connections and the listener; `mute` keeps both and passes nothing.

        `mute-up` stops only what the source sends, `mute-down` only what the target sends.
        """
        self._wanted.append(mode)
        self._wake.send(b".")

    def close(self) -> None:
        """Closes all connections and sockets."""
        self._wanted.append(None)
        self._wake.send(b".")
        self._thread.join(5)
        self._wake.close()

    def _open(self) -> None:
        self._listener = socket.create_server(self._listen)
        self._selector.register(self._listener, selectors.EVENT_READ)

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                ready = key.fileobj
                assert isinstance(ready, socket.socket)
                if ready is self._woken:
                    self._woken.recv(1)
                    mode = self._wanted.pop(0)
                    self._change(mode or "refuse")
                    if mode is None:
                        self._selector.close()
                        self._woken.close()
                        return
                elif ready is self._listener:
                    self._accept()
                elif ready in self._pairs:
                    self._move(ready)

    def _change(self, mode: Mode) -> None:
        for one in list(self._pairs):
            if mode == "refuse":
                self._close(one)
            elif self._muted(one, mode) and not self._muted(one, self.mode):
                self._selector.unregister(one)
            elif self._muted(one, self.mode) and not self._muted(one, mode):
                self._selector.register(one, selectors.EVENT_READ)
        if mode == "refuse" and self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None
        if mode != "refuse" and self._listener is None:
            self._open()
        self.mode = mode

    def _muted(self, one: socket.socket, mode: Mode) -> bool:
        return mode in {"mute", "mute-down" if one in self._dialled else "mute-up"}

    def _accept(self) -> None:
        assert self._listener is not None
        near, _ = self._listener.accept()
        try:
            far = socket.create_connection(self._target, timeout=2)
        except OSError:
            near.close()
            return
        far.settimeout(None)
        self._pairs |= {near: far, far: near}
        self._dialled.add(far)
        for one in (near, far):
            if not self._muted(one, self.mode):
                self._selector.register(one, selectors.EVENT_READ)

    def _move(self, ready: socket.socket) -> None:
        try:
            come = ready.recv(65536)
            if come:
                self._pairs[ready].sendall(come)
                return
        except OSError:
            pass
        self._close(ready)

    def _close(self, one: socket.socket) -> None:
        other = self._pairs.pop(one, None)
        if other is None:
            return
        del self._pairs[other]
        self._dialled -= {one, other}
        for each in (one, other):
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(each)
            each.close()


@final
class Members:
    """The cluster: processes, links, and one log a process in `folder`."""

    def __init__(
        self,
        binary: Path,
        folder: Path,
        network: int,
        heartbeat_ms: int = 100,
        election_ms: int = 1000,
        level: str = "info",
        extra: Iterable[str] = (),
    ) -> None:
        self._binary, self.folder, self._network = binary, folder, network
        self._timing = (
            f"--heartbeat-interval={heartbeat_ms}", f"--election-timeout={election_ms}",
            f"--log-level={level}", *extra,
        )  # fmt: skip
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._starts: dict[str, int] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self.links: dict[tuple[int, int], Forwarder] = {}
        for source in (*MEMBERS, CLIENTS):
            for target in MEMBERS:
                if source != target:
                    port = CLIENT_PORT if source == CLIENTS else PEER_PORT
                    self.links[source, target] = Forwarder(
                        (self.seen(source, target), port), (self.seen(target, target), port)
                    )

    def seen(self, source: int, target: int) -> str:
        return f"127.{self._network}.{source}.{target}"

    def log(self, process: str) -> Path:
        return self.folder / f"{process}.log"

    def start(self, member: int, address: str = "", data: str = "", state: str = "new") -> str:
        """Starts a process of the member; `address` and `data` are those of a duplicate."""
        at = address or self.seen(member, member)
        data = data or name(member)
        number = self._starts[data] = self._starts.get(data, 0) + 1
        process = f"{data}#{number}"
        hosts = self.folder / f"{process}.hosts"
        hosts.write_text("".join(f"{self.seen(member, p)} {host(p)}\n" for p in MEMBERS))
        cluster = ",".join(f"{name(p)}=http://{host(p)}:{PEER_PORT}" for p in MEMBERS)
        argv = [
            str(self._binary), f"--name={name(member)}", f"--data-dir={self.folder / data}",
            f"--listen-peer-urls=http://{at}:{PEER_PORT}",
            f"--listen-client-urls=http://{at}:{CLIENT_PORT}",
            f"--initial-advertise-peer-urls=http://{host(member)}:{PEER_PORT}",
            f"--advertise-client-urls=http://{host(member)}:{CLIENT_PORT}",
            f"--initial-cluster={cluster}", f"--initial-cluster-state={state}",
            "--initial-cluster-token=fencepost", "--logger=zap", "--log-outputs=stdout",
            *self._timing,
        ]  # fmt: skip
        out: IO[bytes] = self.log(process).open("wb")
        self.processes[process] = subprocess.Popen(
            argv, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            env={**os.environ, "FENCEPOST_HOSTS": str(hosts)},
        )  # fmt: skip
        out.close()
        return process

    def signal(self, process: str, number: signal.Signals) -> None:
        self.processes[process].send_signal(number)

    def end(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
        for link in self.links.values():
            link.close()

    def isolate(self, member: int, mode: Mode) -> None:
        """Sets all links between a member and its peers; clients reach it as before."""
        for (source, target), link in self.links.items():
            if source != CLIENTS and member in (source, target):
                link.set(mode)

    def status(self, member: int) -> MemberObserved:
        """A member's status, past all links."""
        gateway = Gateway({name(member): self.seen(member, member)}, CLIENT_PORT)
        seen = observed(name(member), gateway.ask(name(member), messages.status(), 500))
        gateway.close()
        return seen

    def leader(self, among: Iterable[int] = MEMBERS) -> int:
        """The member that leads by its own word; waits for one."""
        found: list[int] = []

        def leads() -> bool:
            for member in among:
                seen = self.status(member)
                if seen.answers and seen.leader == seen.member:
                    found.append(member)
            return bool(found)

        assert poll(leads, 15.0, 0.02), "no member leads"
        return found[0]

    def bootstrap(self) -> Mapping[int, tuple[str, int]]:
        """Where clients reach each member."""
        return {member: (self.seen(CLIENTS, member), CLIENT_PORT) for member in MEMBERS}
