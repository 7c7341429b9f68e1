"""Three etcd members on loopback addresses, and a forwarder on each directed link between them.

Slot s has the address 127.N.s.s and reaches peer p at 127.N.s.p, as in the process runtime. Slot 4
is the clients'. A forwarder is a minimal stand-in for toxiproxy: a link passes, refuses or is mute.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, final

from forwarder import Forwarder, Mode

from fencepost.model.clock import poll
from fencepost_clusters.etcd.clients import messages
from fencepost_clusters.etcd.clients.http import Gateway
from fencepost_clusters.etcd.clients.observing import observed
from fencepost_clusters.etcd.events import MemberObserved

PEER_PORT, CLIENT_PORT = 2380, 2379
MEMBERS = (1, 2, 3)
CLIENTS = 4


def name(member: int) -> str:
    return f"etcd-{member}"


def host(member: int) -> str:
    return f"{name(member)}.fencepost"


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
        """The member that leads by its own report; waits for one."""
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
