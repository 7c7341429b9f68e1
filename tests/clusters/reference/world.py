"""The simulated runtime, as the tests of the reference cluster's cores use it.

Time, network, disks, processes and faults are the simulator's. This layer adds access to the core
of each node, and clients that send one given message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct

from fencepost import (
    ClientSpec,
    Condition,
    Host,
    Place,
    Shape,
    Signal,
    SimulatedDisk,
    SimulatedProcess,
    WorkerConfig,
    one_way,
    two_way,
)
from fencepost.history.run_folder import RunFolder
from fencepost.model.system.subject import Subject
from fencepost.runtimes.simulated.runtime import SimulatedRuntime
from fencepost_clusters.reference.classic.system import ReferenceClassic
from fencepost_clusters.reference.cluster import ReferenceQuorum
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.quorum.broker.broker import BrokerNode
from fencepost_clusters.reference.core.quorum.controller.controller import ControllerNode
from fencepost_clusters.reference.legacy.system import ReferenceLegacy
from fencepost_clusters.reference.simulation.disk import MemoryDisk
from fencepost_clusters.reference.simulation.shell import Shell, ShellIdentity
from fencepost_clusters.reference.wire import messages as m
from fencepost_kafka import KafkaView
from fencepost_kafka.layout import FIRST_CONTROLLER_ID
from fencepost_kafka.view import PartitionView

SECOND = 1_000_000_000
CONTROLLERS = ("controller-1", "controller-2", "controller-3")
BROKERS = ("broker-1", "broker-2", "broker-3")
ANSWER_LIMIT_MS = 10_000
Reference = ReferenceQuorum | ReferenceLegacy | ReferenceClassic
PLANES: tuple[Reference, ...] = (ReferenceQuorum(), ReferenceLegacy(), ReferenceClassic())


@dataclass
class Request:
    """The core of a client that sends one message, and ends when it is answered or refused."""

    call: e.Call
    sent: bool = False
    over: bool = False
    answer: m.Response | None = None
    """None before the answer, and after a refusal."""

    def handle(self, what: object, now: e.Instant) -> tuple[e.Effect, ...]:
        if not self.sent:
            self.sent = True
            return (self.call,)
        if isinstance(what, e.Answered):
            self.answer = what.message
        self.over = True
        return (e.Exit("the request was answered or refused"),)

    def deadline_ns(self) -> int | None:
        return None


class OpenCluster:
    """A reference cluster for the simulator. It keeps the shells of its nodes; the test chooses the
    clients."""

    def __init__(self, system: Reference) -> None:
        self.system = system
        self.name, self.folds, self.layout = system.name, system.folds, system.layout
        self.simulated_disk, self.simulated_probe = system.simulated_disk, system.simulated_probe
        self.next_client: Callable[[Host], Shell]
        self.shells: dict[str, Shell] = {}
        """slot -> the shell of its newest process."""

    def simulated_node(
        self, place: Place, shape: Shape, disk: SimulatedDisk, host: Host
    ) -> SimulatedProcess:
        process = self.system.simulated_node(place, shape, disk, host)
        if isinstance(process, Shell):  # and no server of ZooKeeper
            self.shells[place.slot.name] = process
        return process

    def simulated_client(self, config: WorkerConfig, host: Host) -> Shell:
        return self.next_client(host)


class World:
    """See the module. The nodes have just been started."""

    def __init__(
        self,
        folder: Path,
        seed: int = 1,
        defects: tuple[str, ...] = (),
        system: Reference | None = None,
    ) -> None:
        """`system` is the plane, the quorum's unless it is given."""
        shape = Shape(defects=defects)
        self._open = OpenCluster(system or ReferenceQuorum())
        self.runtime = SimulatedRuntime(Subject(self._open, shape, seed), RunFolder.create(folder))  # type: ignore[arg-type]
        self.layout = self.runtime.layout
        for slot in self.layout.nodes():
            self.runtime.start(slot)

    # ---------------------------------------------------------------------------------- processes

    def start(self, slot: str) -> None:
        self.runtime.start(self.layout.slot(slot))

    def lives(self, slot: str) -> bool:
        return self.runtime.living(self.layout.slot(slot)) is not None

    def signal(self, slot: str, what: Signal) -> None:
        """Sends a signal to the process in a slot."""
        process = self.runtime.living(self.layout.slot(slot))
        assert process is not None, f"nothing lives in {slot}"
        assert self.runtime.signal(process, what).true

    def kill(self, slot: str) -> None:
        self.signal(slot, Signal.KILL)

    # --------------------------------------------------------------------------------------- time

    @property
    def now_ns(self) -> int:
        return self.runtime.now_ns()

    def run(self, seconds: float) -> None:
        """Lets time pass."""
        self.until(lambda: False, seconds)

    def until(self, holds: Callable[[], bool], seconds: float = 30.0) -> bool:
        """Lets time pass until `holds` is true, which is tested after each event; whether it is."""
        wanted = Condition("what the test waits for", lambda view: holds())
        self.runtime.advance(wanted, self.now_ns + int(seconds * SECOND))
        return holds()

    # --------------------------------------------------------------------------------------- cuts

    def cut(self, source: str, target: str) -> None:
        """Nothing that `source` sends reaches `target`."""
        self.runtime.apply_cut(one_way([source], [target]))

    def isolate(self, slot: str, *others: str) -> None:
        """Cuts both ways between a node and the named others, or all others. Clients reach it."""
        rest = others or [node.name for node in self.layout.nodes() if node.name != slot]
        self.runtime.apply_cut(two_way([slot], rest))

    def heal(self) -> None:
        """Lifts every cut."""
        self.runtime.heal_links()

    # ----------------------------------------------------------------------------------- requests

    def ask(self, slot: str, message: m.Request, client: str = "clients/probe#1") -> Request:
        """Sends a message under a client's name; returns at once."""
        address = (slot, self.layout.client_port(slot))
        request = Request(e.Call(1, address, "request", message, ANSWER_LIMIT_MS))
        self._open.next_client = lambda host: Shell(
            ShellIdentity(client), lambda now: request, MemoryDisk(), host
        )
        self.runtime.client(ClientSpec("request", workload=""))
        return request

    def answer(self, slot: str, message: m.Request, seconds: float = 10.0) -> m.Response | None:
        """Sends a message and returns its answer; None if it was refused or not answered."""
        request = self.ask(slot, message)
        self.until(lambda: request.over, seconds)
        return request.answer

    def certain(self, slot: str, message: m.Request, seconds: float = 10.0) -> m.Response:
        """The answer to a message that is sent again while it gets none, such as during a start."""
        end_ns = self.now_ns + int(seconds * SECOND)
        while (answer := self.answer(slot, message)) is None:
            assert self.now_ns < end_ns, f"{slot} answers no {type(message).__name__}"
            self.run(0.2)
        return answer

    # -------------------------------------------------------------------------------------- state

    def core(self, slot: str) -> BrokerNode | ControllerNode:
        """The core of the newest process in a slot."""
        core = self._open.shells[slot].core
        assert isinstance(core, BrokerNode | ControllerNode)
        return core

    def disk(self, slot: str) -> MemoryDisk:
        return self._open.shells[slot]._disk

    def active(self) -> str | None:
        """The slot of the active controller of the newest epoch."""
        found = self.runtime.view.of(KafkaView).active_controller
        return None if found is None else CONTROLLERS[found - FIRST_CONTROLLER_ID]

    def partition(self, topic: str) -> PartitionView:
        """The topic's partition 0 by its newest committed record."""
        return self.runtime.view.of(KafkaView).partitions[topic, 0]

    def leader(self, topic: str) -> str:
        """The slot of the partition's leader, by the committed metadata."""
        return f"broker-{self.partition(topic).leader}"

    def healthy(self) -> bool:
        """See `System.missing`."""
        return not self._open.system.missing(self.runtime.view, self.layout)

    def bodies(self, kind: type[Struct]) -> list[tuple[str, Struct]]:
        """(process, body) of every event of a kind."""
        return [(x.process, x.body) for x in self.runtime.events() if isinstance(x.body, kind)]
