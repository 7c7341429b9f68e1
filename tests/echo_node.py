"""A tiny node: listens, answers every frame, and talks to its peers, over TCP or simulated links.

The runtimes' own tests start it: it is cheap and quick, and records every frame that reached it. A
frame is Kafka's (length, API key, version, correlation, client id), so Kafka's probe works. Run as
a program it is a node (`echo_node.py node CONFIG`) or a client worker (`... client CONFIG`).
`SimulatedEcho` does the same in virtual time.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import struct
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from msgspec import Struct

from fencepost import (
    ClientStarted,
    Command,
    Fold,
    Host,
    Layout,
    Link,
    NodeStarted,
    NodeStopped,
    Place,
    Probe,
    Recorder,
    Shape,
    Signal,
    SimulatedDisk,
    Slot,
    View,
    WorkerConfig,
)
from fencepost.model.system.simulable import Chance
from fencepost_kafka import COUNTS, Role
from fencepost_kafka.probe import kafka_probe

PORT = 9092
PROBE = "fencepost-probe"
BEAT_S = 0.03
BURST = 5000
MISNAMED = "brokr"


class FrameReceived(Struct, frozen=True, tag="echo.frame_received"):
    """This node received a frame from a peer."""

    peer: str


class Answered(Struct, frozen=True, tag="echo.answered"):
    """A peer's answer to a frame of this process came back."""

    peer: str


class Closed(Struct, frozen=True, tag="echo.closed"):
    """A connection that this node had dialled to a peer was closed."""

    peer: str


class CommandReceived(Struct, frozen=True, tag="echo.command_received"):
    """This client worker got a command."""

    words: str


KINDS = (FrameReceived, Answered, Closed, CommandReceived)


@dataclass(frozen=True, slots=True)
class EchoSystem:
    """`echo/mesh`: every node dials every other, clients dial brokers.

    `modes` makes nodes ill: `dies` (at start, message why), `deaf` (does not listen), `leaves`
    (ends by itself, in an orderly way), `stubborn` (ignores SIGTERM), `bursts` (records BURST
    events and kills itself), `misnamed` (starts in the role MISNAMED). `port` is everyone's.
    """

    name: str = "echo/mesh"
    plane: str = "none"
    modes: tuple[tuple[str, str], ...] = ()
    port: int = PORT
    duplicates: bool = False
    clients: bool = True
    bypasses: bool = False
    """Nodes dial each other's own addresses, and no link."""

    @property
    def counts(self) -> Mapping[str, int]:
        return COUNTS

    @property
    def folds(self) -> Sequence[type[Fold]]:
        return ()

    @property
    def workload(self) -> str:
        return "echo"

    @property
    def probe(self) -> Probe:
        return kafka_probe

    def missing(self, view: View, layout: Layout) -> Sequence[str]:
        nodes = {slot.name: view.newest.get(slot.name, "") for slot in layout.nodes()}
        return [f"{name} is not started" for name, p in nodes.items() if p not in view.node_of]

    def recovery_bound_ms(self, shape: Shape) -> int:
        return 20_000

    def layout(self, shape: Shape) -> Layout:
        counts = {**COUNTS, **shape.counts}
        named = [("controller", Role.CONTROLLER, n) for n in range(1, counts["controller"] + 1)]
        named += [("broker", Role.BROKER, n) for n in range(1, counts["broker"] + 1)]
        nodes = [Slot(f"{w}-{n}", role, n, i) for i, (w, role, n) in enumerate(named, 1)]
        if self.duplicates:
            nodes += [
                Slot(f"{s.name}-duplicate", s.role, s.node_id, len(nodes) + s.index, True)
                for s in nodes
                if s.role is Role.BROKER
            ]
        links = [Link(a.name, b.name, self.port) for a in nodes for b in nodes if a != b]
        if not self.clients:
            return Layout(tuple(nodes), tuple(links))
        clients = Slot("clients", Role.CLIENT, -1, 250)
        links += [Link("clients", b.name, self.port) for b in nodes if b.role is Role.BROKER]
        bootstrap = tuple((b.name, self.port) for b in nodes if b.role == Role.BROKER)
        return Layout((*nodes, clients), tuple(links), bootstrap=bootstrap)

    def _dialled(self, place: Place, target: str) -> str:
        if not self.bypasses:
            return place.hosts[target]
        _, run, *_ = place.address.split(".")
        index = place.layout.slot(target).index
        return f"127.{run}.{index}.{index}"

    def _role(self, slot: Slot) -> str:
        return MISNAMED if dict(self.modes).get(slot.name) == "misnamed" else str(slot.role)

    def command(self, place: Place, shape: Shape) -> Command:
        config = {
            "run": place.run,
            "process": place.process,
            "events": str(place.events_path),
            "name": place.slot.name,
            "role": self._role(place.slot),
            "node_id": place.slot.node_id,
            "address": place.address,
            "port": self.port,
            "peers": {
                link.target: self._dialled(place, link.target)
                for link in place.layout.links
                if link.source == place.slot.name
            },
            "mode": dict(self.modes).get(place.slot.name, ""),
        }
        files = {"node.json": json.dumps(config)}
        if place.image:
            argv = ("python3", "echo_node.py", "node", "node.json")
            return Command(argv, {}, files | {"echo_node.py": Path(__file__).read_text()})
        return Command((sys.executable, __file__, "node", "node.json"), {}, files)

    def image(self, slot: Slot) -> str:
        return "fencepost/pod"

    def simulated_disk(self, slot: Slot) -> NoDisk:
        return NoDisk()

    def simulated_probe(self, port: int) -> object:
        return SimulatedFrame(PROBE)

    def simulated_node(
        self, place: Place, shape: Shape, disk: SimulatedDisk, host: Host
    ) -> SimulatedEcho:
        slot = place.slot
        peers = [link.target for link in place.layout.links if link.source == slot.name]
        mode = dict(self.modes).get(slot.name, "")
        first = NodeStarted(
            role=self._role(slot),
            node_id=slot.node_id,
            incarnation=str(place.process),
            log_end=0,
        )
        return SimulatedEcho(
            host=host, name=slot.name, first=first, peers=peers, port=self.port, mode=mode
        )

    def simulated_client(self, config: WorkerConfig, host: Host) -> SimulatedEcho:
        options = json.loads(bytes(config.options))
        number, mode = options.get("broker", 1), "leaves" if options.get("leaves") else ""
        name, _, port = config.bootstrap[number - 1].partition(":")
        first = ClientStarted(kind="echo", library="simulated")
        return SimulatedEcho(host, config.process, first, [name], int(port), mode=mode)


class NoDisk:
    """An echo node stores nothing."""

    def copy(self) -> Self:
        return self

    def lose_power(self, chance: Chance) -> None:
        """Loses nothing, since nothing is stored."""


class SimulatedFrame(Struct, frozen=True):
    """A frame of a peer, or of a probe."""

    peer: str


class SimulatedAnswer(Struct, frozen=True):
    """The answer to a frame."""


@dataclass(slots=True)
class SimulatedEcho:
    """A node or a client in the simulator; see `SimulatedProcess`. It sends a frame a beat."""

    host: Host
    name: str
    first: Struct
    peers: Sequence[str]
    port: int
    mode: str = ""
    dialled: dict[int, str] = field(default_factory=dict)
    """connection -> the peer at its other end."""
    next_ns: int | None = 0

    def wake(self) -> None:
        if self.next_ns == 0:
            if self.mode == "dies":
                self.host.exit(3)
                return
            self.host.record(self.first)
            if self.mode == "leaves":
                self.signalled(Signal.TERM)
                return
        for peer in self.peers:
            if peer not in self.dialled.values():
                self.dialled[self.host.dial(peer, self.port)] = peer
        for connection in self.dialled:
            self.host.send(connection, SimulatedFrame(self.name))
        self.next_ns = self.host.monotonic_ns() + int(BEAT_S * 1_000_000_000)

    def deadline_ns(self) -> int | None:
        return self.next_ns

    def accepted(self, connection: int, port: int) -> None:
        """A node sends nothing before it was asked."""

    def received(self, connection: int, message: object) -> None:
        if connection in self.dialled:
            self.host.record(Answered(self.dialled[connection]))
        elif self.mode != "deaf":
            assert isinstance(message, SimulatedFrame)
            if message.peer != PROBE:
                self.host.record(FrameReceived(message.peer))
            self.host.send(connection, SimulatedAnswer())

    def broken(self, connection: int, reason: str) -> None:
        peer = self.dialled.pop(connection, None)
        if peer is not None:
            self.host.record(Closed(peer))

    def signalled(self, what: Signal) -> None:
        if self.mode != "stubborn":
            self.host.record(NodeStopped(reason="asked"))
            self.host.exit(0)

    def command(self, command: Mapping[str, object]) -> None:
        self.host.record(CommandReceived(str(command["say"])))


def frame(client: str, correlation: int = 1) -> bytes:
    body = struct.pack(">hhih", 18, 0, correlation, len(client)) + client.encode()
    return struct.pack(">i", len(body)) + body


def answer(request: bytes) -> bytes:
    """No API is served. As KIP-511 says, the answer to a request of a newer version is that of
    version 0 with UNSUPPORTED_VERSION: librdkafka aborts at an answer of version 0 without it."""
    newer = request[2:4] != bytes(2)
    return struct.pack(">hi", 35 if newer else 0, 0)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(length)


async def serve(
    recorder: Recorder, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answers every frame of one connection."""
    with suppress(OSError, asyncio.IncompleteReadError):
        while True:
            body = await read_frame(reader)
            (length,) = struct.unpack(">h", body[8:10])
            peer = body[10 : 10 + length].decode()
            if not peer.startswith(PROBE):
                recorder.record(FrameReceived(peer))
            writer.write(struct.pack(">i", 10) + body[4:8] + answer(body))
            await writer.drain()
    writer.close()


async def talk(recorder: Recorder, me: str, peer: str, address: str, port: int) -> None:
    """Keeps one connection to a peer and sends a frame a beat, waiting for no answer."""

    async def listen(reader: asyncio.StreamReader) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                await read_frame(reader)
                recorder.record(Answered(peer))

    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(address, port)
            listening = asyncio.create_task(listen(reader))
            while not listening.done():
                writer.write(frame(me))
                await asyncio.wait([listening], timeout=BEAT_S)
            recorder.record(Closed(peer))
            writer.close()
        await asyncio.wait([asyncio.create_task(asyncio.Event().wait())], timeout=BEAT_S)


async def node(path: Path) -> None:
    config = json.loads(path.read_text())
    if config["mode"] == "dies":
        for number in range(30):
            print("line", number, "of my last words")
        sys.exit(3)
    recorder = Recorder.open(Path(config["events"]), config["run"], config["process"], KINDS)
    over = asyncio.Event()
    handler = (lambda: None) if config["mode"] == "stubborn" else over.set
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, handler)
    if config["mode"] != "deaf":
        await asyncio.start_server(
            lambda r, w: serve(recorder, r, w), config["address"], config["port"]
        )
    recorder.record(
        NodeStarted(
            role=config["role"],
            node_id=config["node_id"],
            incarnation=str(os.getpid()),
            log_end=0,
        )
    )
    if config["mode"] == "bursts":
        for number in range(BURST):
            recorder.record(FrameReceived(f"no peer, {number}"))
        os.kill(os.getpid(), signal.SIGKILL)
    talking = [
        asyncio.create_task(talk(recorder, config["name"], peer, address, config["port"]))
        for peer, address in config["peers"].items()
    ]
    if config["mode"] != "leaves":
        await over.wait()
    recorder.record(NodeStopped(reason="asked"))
    for task in talking:
        task.cancel()
    os._exit(0)  # not held up by open connections


async def client(path: Path) -> None:
    config = json.loads(path.read_text())
    recorder = Recorder.open(Path(config["events"]), config["run"], config["process"], KINDS)
    recorder.record(ClientStarted(kind="echo", library="asyncio"))
    if config["options"].get("crash"):
        os.kill(os.getpid(), signal.SIGSEGV)
    if config["options"].get("leaves"):
        os._exit(0)
    if config["options"].get("fail"):
        os._exit(3)
    number = config["options"].get("broker", 1)
    address, port = config["bootstrap"][number - 1].split(":")
    peer = f"broker-{number}"
    talking = asyncio.create_task(talk(recorder, config["process"], peer, address, int(port)))
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        recorder.record(CommandReceived(json.loads(line)["say"]))
    talking.cancel()
    recorder.record(NodeStopped(reason="asked"))
    os._exit(0)


if __name__ == "__main__":
    what, configured = sys.argv[1:]
    asyncio.run((node if what == "node" else client)(Path(configured)))
