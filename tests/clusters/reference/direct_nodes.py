"""Shared by tests of node processes: nodes started directly, raw requests, and a real client.

Each node has a node.json, a disk, a loopback address of the run's own and no links, and is ended by
its process id.
"""

from __future__ import annotations

import gc
import json
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from fencepost import Codec
from fencepost.supervision.addresses import claim
from fencepost_kafka import KINDS, BrokerStateChanged

LIMIT_S = 30.0
PORTS = {"CLIENT": 9092, "CONTROLLER": 9093, "REPLICATION": 9094}
METRICS_PORT = 9095
PROPERTIES = {
    "controller.connect": "101@controller-1:9093",
    "registration.heartbeat.interval.ms": "300",
    "registration.lease.timeout.ms": "3000",
    "controller.quorum.election.timeout.ms": "300",
    "replica.fetch.wait.max.ms": "300",
    "log.segment.bytes": "4096",
}


@dataclass
class Nodes:
    """A controller and a broker on disks of their own, ended by their process ids."""

    folder: Path
    run: int
    finish: ExitStack
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)

    def address(self, node: str) -> str:
        index = 1 if node.startswith("controller") else 2
        return f"127.{self.run}.{index}.{index}"

    def config(self, node: str) -> dict[str, Any]:
        """A good configuration of the node's next process."""
        role = node.partition("-")[0]
        own = {"process.roles": role}
        controller = {"controller.id": "101", "controller.listeners": "CONTROLLER"}
        own |= controller if role == "controller" else {"broker.id": "1"}
        names = ("CONTROLLER",) if role == "controller" else ("CLIENT", "REPLICATION")
        process = f"{node}#{self.starts.get(node, 0) + 1}"
        return {
            "run": "direct",
            "process": process,
            "name": node,
            "events": str(self.events_path(process)),
            "data": str(self.folder / f"data-{node}"),
            "address": self.address(node),
            "advertised": self.address(node),
            "hosts": {name: self.address(name) for name in ("controller-1", "broker-1")},
            "ports": {name: PORTS[name] for name in names},
            "metrics_port": METRICS_PORT,
            "properties": {**PROPERTIES, **own, **self.properties},
            "defects": [],
            "seed": 1,
        }

    def events_path(self, process: str) -> Path:
        return self.folder / f"{process}.ndjson"

    def start(self, node: str) -> subprocess.Popen[bytes]:
        config = self.config(node)
        self.starts[node] = self.starts.get(node, 0) + 1
        path = self.folder / f"{config['process']}.json"
        path.write_text(json.dumps(config))
        with (self.folder / f"{config['process']}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "fencepost_clusters.reference.shell", str(path)],
                stdout=log,
                stderr=log,
            )
        self.finish.callback(end, process)
        self.processes[node] = process
        return process

    def start_both(self) -> None:
        """A controller and a broker; returns once the broker is active."""
        self.start("controller-1")
        self.start("broker-1")
        self.await_active()

    def bodies(self, process: str) -> list[object]:
        """The event bodies that a process has recorded so far; it may be writing the next one."""
        path = self.events_path(process)
        read = Codec(KINDS)
        *lines, _unfinished = path.read_bytes().split(b"\n") if path.exists() else [b""]
        return [read.decode(line).body for line in lines]

    def alive(self, node: str) -> bool:
        return self.processes[node].poll() is None

    def log(self, process: str) -> str:
        return (self.folder / f"{process}.log").read_text()

    @property
    def bootstrap(self) -> str:
        return f"{self.address('broker-1')}:{PORTS['CLIENT']}"

    def await_active(self) -> None:
        """Returns once the broker's newest process has its lease."""
        process = f"broker-1#{self.starts['broker-1']}"
        eventually(
            lambda: any(
                isinstance(body, BrokerStateChanged) and body.new == "ACTIVE"
                for body in self.bodies(process)
            ),
            f"{process} is active: {self.log(process)}",
        )


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a node at once."""
    process.kill()
    process.wait(LIMIT_S)


def eventually(holds: Callable[[], bool], what: str) -> None:
    """Polls until the limit: a node started directly can only be observed through its files."""
    deadline = time.monotonic() + LIMIT_S
    waiter, _keep = socket.socketpair()
    with waiter, _keep:
        waiter.settimeout(0.02)
        while not holds():
            assert time.monotonic() < deadline, f"not within {LIMIT_S:.0f} s: {what}"
            with suppress(TimeoutError):
                waiter.recv(1)


@contextmanager
def nodes_in(folder: Path) -> Iterator[Nodes]:
    with ExitStack() as finish:
        claimed = claim()
        finish.callback(claimed.close)
        yield Nodes(folder, claimed.run, finish)
    assert_no_librdkafka()


def assert_no_librdkafka() -> None:
    """No client of librdkafka may outlive its nodes in this process. It would dial their addresses,
    and the next owner of one may speak another protocol: librdkafka aborted pytest at such an
    answer, long after the test that had made the client."""
    gc.collect()  # a client in a cycle, as one whose error was caught, ends no earlier
    names = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # a thread that ends meanwhile
            names.append((task / "comm").read_text())
    assert not [name for name in names if name.startswith("rdk")], names


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def request(key: int, version: int, body: bytes, flexible: bool = False) -> bytes:
    """A frame with a whole header (client id "x") and this body."""
    tags = b"\0" if flexible else b""
    return frame(struct.pack(">hhih", key, version, 7, 1) + b"x" + tags + body)


def owner(listener: str) -> str:
    return "controller-1" if listener == "CONTROLLER" else "broker-1"


def dial(cluster: Nodes, listener: str) -> socket.socket:
    address = (cluster.address(owner(listener)), PORTS[listener])
    return socket.create_connection(address, timeout=LIMIT_S)


def answers(cluster: Nodes, listener: str) -> bool:
    """Whether a whole request on a new connection is answered."""
    with dial(cluster, listener) as connection:
        connection.sendall(request(18, 0, b""))
        return len(connection.recv(8, socket.MSG_WAITALL)) == 8


def hung_up(connection: socket.socket) -> bool:
    """Whether the node closes the connection within the limit."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:  # it closed before it had read all
        return True
    except TimeoutError:
        return False
    return True


def create(cluster: Nodes, topic: str, partitions: int = 1) -> None:
    """Creates a topic; the broker passes the controller's answer on, and may replay it later."""
    admin = AdminClient(quietly(cluster))
    made = admin.create_topics([NewTopic(topic, partitions, 1)], request_timeout=LIMIT_S)
    made[topic].result(LIMIT_S)

    def known() -> bool:
        known = admin.list_topics(timeout=LIMIT_S).topics.get(topic)
        return known is not None and len(known.partitions) == partitions

    eventually(known, f"the broker knows {topic}")


def quietly(cluster: Nodes, **own: object) -> dict[str, Any]:
    """confluent-kafka's settings; its log lines about brokers killed on purpose are left out."""
    return {
        "bootstrap.servers": cluster.bootstrap,
        "log_level": 0,
        "error_cb": lambda error: None,
        **{name.replace("_", "."): value for name, value in own.items()},
    }


def produce(cluster: Nodes, topic: str, values: list[str], **own: object) -> list[int]:
    """The offsets that the reports name; -1 with acks=0, which has no answer."""
    offsets: list[int] = []

    def reported(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        offset = message.offset()
        offsets.append(-1 if offset is None else offset)

    producer = Producer(quietly(cluster, linger_ms=0, **own))
    for value in values:
        producer.produce(topic, value.encode(), partition=0, on_delivery=reported)
    assert producer.flush(LIMIT_S) == 0
    return offsets


def read(cluster: Nodes, topic: str, count: int, start: int = 0) -> list[str]:
    """That many values from an offset on, by assign and then a seek."""
    consumer = Consumer(quietly(cluster, group_id="g", enable_auto_commit=False))
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        values: list[str] = []
        first = consumer.poll(LIMIT_S)
        assert first is not None
        consumer.seek(TopicPartition(topic, 0, start))
        while len(values) < count:
            message = consumer.poll(LIMIT_S)
            assert message is not None, values
            assert message.error() is None, message.error()
            value, offset = message.value(), message.offset()
            assert isinstance(value, bytes)
            if offset == start + len(values):  # messages fetched before the seek are skipped
                values.append(value.decode())
        return values
    finally:
        consumer.close()
