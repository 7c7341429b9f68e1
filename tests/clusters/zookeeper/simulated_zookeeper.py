"""A ZooKeeper server and nodes with a session each, in the simulated runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

from msgspec import Struct

from fencepost import (
    Fold,
    Host,
    Layout,
    Link,
    NodeStarted,
    Place,
    Probe,
    Shape,
    Signal,
    SimulatedDisk,
    SimulatedProcess,
    Slot,
    View,
    WorkerConfig,
)
from fencepost_clusters.zookeeper.client.port import Answered, Fired, Request, SessionEvent
from fencepost_clusters.zookeeper.events import KINDS as EVENTS
from fencepost_clusters.zookeeper.probe import zookeeper_probe
from fencepost_clusters.zookeeper.server import CLIENT_PORT
from fencepost_clusters.zookeeper.simulation.messages import Ping
from fencepost_clusters.zookeeper.simulation.server import SimulatedServer, TreeDisk
from fencepost_clusters.zookeeper.simulation.session import Server, SimulatedSession
from fencepost_clusters.zookeeper.simulation.tree import Tree

SERVER, ABSENT, NODE = "zookeeper", "absent", "node"


class Noted(Struct, frozen=True, tag="test.noted"):
    """ZooKeeper's session gave a node this event."""

    what: str


KINDS = (Noted, *EVENTS)


@final
class Node:
    """A process with one session at a time; `react` is called with every event of it."""

    def __init__(self, slot: Slot, host: Host, react: Callable[[Node, SessionEvent], None]) -> None:
        self._slot, self._host, self._react = slot, host, react
        self.delivered: list[SessionEvent] = []
        self._number = 0
        self._started = False
        self.begin()

    def begin(self) -> None:
        """Begins a session."""
        self.session = SimulatedSession(
            Server(SERVER, CLIENT_PORT), 2000, self._deliver, self._host
        )

    def ask(self, *requests: Request) -> None:
        for request in requests:
            self._number += 1
            self.session.ask(self._number, request)

    @property
    def answers(self) -> list[object]:
        return [one.answer for one in self.delivered if isinstance(one, Answered)]

    @property
    def fired(self) -> list[Fired]:
        return [one for one in self.delivered if isinstance(one, Fired)]

    def _deliver(self, event: SessionEvent) -> None:
        self.delivered.append(event)
        self._host.record(Noted(repr(event)))
        self._react(self, event)

    def wake(self) -> None:
        if not self._started:
            self._started = True
            self._host.record(
                NodeStarted(
                    role=NODE,
                    node_id=self._slot.node_id,
                    incarnation=self._slot.name,
                    log_end=0,
                )
            )
        self.session.wake()

    def deadline_ns(self) -> int | None:
        return self.session.deadline_ns()

    def accepted(self, connection: int, port: int) -> None:
        """Nothing dials a node."""

    def received(self, connection: int, message: object) -> None:
        if self.session.owns(connection):
            self.session.received(message)

    def broken(self, connection: int, reason: str) -> None:
        if self.session.owns(connection):
            self.session.broken()

    def signalled(self, what: Signal) -> None:
        self._host.exit(0)

    def command(self, command: Mapping[str, object]) -> None:
        """A node takes no commands."""


@dataclass(frozen=True, slots=True)
class OverZooKeeper:
    """One server, a slot for another, and two nodes. `react` is the behaviour of each node; `nodes`
    holds the nodes by slot.

    `others` makes a process of another kind in the place of a node.
    """

    react: Mapping[str, Callable[[Node, SessionEvent], None]]
    others: Mapping[str, Callable[[Host], SimulatedProcess]] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    name: str = "test/over-zookeeper"
    plane: str = "none"
    workload: str = "none"
    folds: Sequence[type[Fold]] = ()
    counts: Mapping[str, int] = field(default_factory=lambda: {NODE: 2})

    @property
    def probe(self) -> Probe:
        return zookeeper_probe

    def missing(self, view: View, layout: Layout) -> Sequence[str]:
        return ()

    def recovery_bound_ms(self, shape: Shape) -> int:
        return 20_000

    def layout(self, shape: Shape) -> Layout:
        nodes = [Slot(f"{NODE}-{n}", NODE, n, n + 1) for n in (1, 2)]
        servers = (Slot(SERVER, SERVER, 1, 1), Slot(ABSENT, SERVER, 2, 4, spare=True))
        links = (Link(node.name, server.name, CLIENT_PORT) for node in nodes for server in servers)
        return Layout((*servers, *nodes), tuple(links))

    def simulated_disk(self, slot: Slot) -> SimulatedDisk:
        return TreeDisk(Tree())

    def simulated_probe(self, port: int) -> object:
        return Ping()

    def simulated_node(
        self, place: Place, shape: Shape, disk: SimulatedDisk, host: Host
    ) -> SimulatedProcess:
        if place.slot.role == SERVER:
            assert isinstance(disk, TreeDisk)
            return SimulatedServer(place.slot.node_id, disk, host)
        if place.slot.name in self.others:
            host.record(
                NodeStarted(
                    role=NODE,
                    node_id=place.slot.node_id,
                    incarnation=place.slot.name,
                    log_end=0,
                )
            )
            return self.others[place.slot.name](host)
        node = Node(place.slot, host, self.react[place.slot.name])
        self.nodes[place.slot.name] = node
        return node

    def simulated_client(self, config: WorkerConfig, host: Host) -> SimulatedProcess:
        raise AssertionError("the test starts no client")
