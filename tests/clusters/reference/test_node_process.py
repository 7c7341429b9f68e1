"""A node as a process of its own: what it makes of foreign bytes, bad orders, its end and its disk.

Nodes are started directly, each with a node.json, on a run's own loopback addresses and without
links; only real clients and raw sockets speak to them.
"""

from __future__ import annotations

import json
import random  # noqa: TID251 - seeded: always the same bytes
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGTERM
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost import BrokerStateChanged, Codec, ConnectionClosed, NodeStopped, ProbeProduce
from fencepost.addresses import claim
from fencepost_clusters.reference.wire import codec
from fencepost_clusters.reference.wire import messages as m
from fencepost_plugins.kafka_clients.probe import build, frame_request

LIMIT_S = 10.0
OUT_OF_SCOPE_S = 5.0
PORTS = {"CLIENT": 9092, "CONTROLLER": 9093, "REPLICATION": 9094}
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

    def address(self, node: str) -> str:
        index = 1 if node.startswith("controller") else 2
        return f"127.{self.run}.{index}.{index}"

    def config(self, node: str) -> dict[str, Any]:
        """A good configuration of the node's next process."""
        role = node.partition("-")[0]
        own = {"process.roles": role}
        own |= {"controller.id": "101"} if role == "controller" else {"broker.id": "1"}
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
            "properties": {**PROPERTIES, **own},
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
        """What a process has recorded so far."""
        path = self.events_path(process)
        read = Codec()
        lines = path.read_bytes().splitlines() if path.exists() else []
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
    """Ends a node whatever it is doing."""
    process.kill()
    process.wait(LIMIT_S)


def eventually(holds: Callable[[], bool], what: str) -> None:
    """Files are all that a node tells, so they are looked at until the limit."""
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


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    """Nothing started yet."""
    with nodes_in(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """A controller and an active broker that many tests share: malformed bytes change nothing."""
    with nodes_in(tmp_path_factory.mktemp("cluster")) as made:
        made.start_both()
        yield made


@pytest.fixture
def own_cluster(nodes: Nodes) -> Nodes:
    """A controller and an active broker for one test, whose requests may be believed."""
    nodes.start_both()
    return nodes


# ----------------------------------------------------------------------------------- foreign bytes


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def request(key: int, version: int, body: bytes, flexible: bool = False) -> bytes:
    """A frame with a whole header (client id "x") and whatever follows it."""
    tags = b"\0" if flexible else b""
    return frame(struct.pack(">hhih", key, version, 7, 1) + b"x" + tags + body)


HUGE_VARINT = b"\xff\xff\xff\xff\x0f"
NOISE = random.Random(3).randbytes(200)

ANYWHERE = {
    "random bytes": (b"\x7f" + NOISE, "a frame of"),
    "random bytes in a frame": (frame(b"\x7a" + NOISE), "is not served"),
    "a huge length": (struct.pack(">i", 2**31 - 1), "a frame of 2147483647 bytes"),
    "a negative length": (struct.pack(">i", -1), "a frame of -1 bytes"),
    "an empty frame": (struct.pack(">i", 0), "a frame of 0 bytes"),
    "half a header": (frame(b"\0\x01\0"), "shorter than any request header"),
    "an unknown API key": (request(9999, 0, b""), "API 9999 is not served"),
    "an unknown version": (request(1, 99, b""), "version 99 of Fetch is not served"),
    "a client id without end": (
        frame(struct.pack(">hhih", 18, 0, 7, 3000)),
        "a string or blob of 3000 bytes with 0 left",
    ),
    "a corrupt compact length": (
        request(18, 3, HUGE_VARINT, flexible=True),
        "a string or blob of 4294967294 bytes",
    ),
}
BETWEEN_NODES = {
    "a corrupt compact array length": (
        # Fetch 16 up to its topics: three numbers of four bytes, one of one, two of four.
        request(1, 16, bytes(21) + HUGE_VARINT, flexible=True),
        "an array of 4294967294",
    ),
    "a body cut short": (request(1, 16, bytes(9), flexible=True), "cut short"),
}
FROM_CLIENTS = {
    "a corrupt array length": (request(3, 8, b"\x7f\xff\xff\xff"), "an array of 2147483647"),
    "a body cut short": (request(0, 7, b"\xff\xff\0"), "cut short"),
}
CASES = [
    pytest.param(listener, data, why, id=f"{listener}: {name}")
    for listener, own in (
        ("CLIENT", FROM_CLIENTS),
        ("CONTROLLER", BETWEEN_NODES),
        ("REPLICATION", BETWEEN_NODES),
    )
    for name, (data, why) in {**ANYWHERE, **own}.items()
]


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


@pytest.mark.parametrize(("listener", "data", "why"), CASES)
def test_malformed_bytes_close_that_connection_only(
    cluster: Nodes, listener: str, data: bytes, why: str
) -> None:
    with dial(cluster, listener) as other, dial(cluster, listener) as connection:
        peer = "{}:{}".format(*connection.getsockname())
        connection.sendall(data)
        assert hung_up(connection)
        other.sendall(request(18, 0, b""))
        assert other.recv(8, socket.MSG_WAITALL), "another connection suffered"
    closed = [
        body
        for body in cluster.bodies(f"{owner(listener)}#1")
        if isinstance(body, ConnectionClosed) and body.peer == peer
    ]
    assert [body.listener for body in closed] == [listener]
    assert why in closed[0].reason
    assert cluster.alive(owner(listener))


@pytest.mark.parametrize("listener", PORTS)
def test_a_frame_that_never_ends_holds_up_nobody(cluster: Nodes, listener: str) -> None:
    with dial(cluster, listener) as connection:
        connection.sendall(request(18, 0, b"")[:-2])
        assert answers(cluster, listener)
        connection.sendall(request(18, 0, b"")[-2:])
        assert connection.recv(8, socket.MSG_WAITALL), "the rest came, so must the answer"


def unharmed(cluster: Nodes, listener: str) -> bool:
    """Whether the node lives on after the step that took in all that was sent to it."""
    node = owner(listener)
    # Answered twice: the first answer may come before the step that would have broken the node.
    return answers(cluster, listener) and answers(cluster, listener) and cluster.alive(node)


@pytest.mark.parametrize("listener", PORTS)
def test_requests_with_random_contents_leave_the_node_alive(
    own_cluster: Nodes, listener: str
) -> None:
    draw = random.Random(listener)
    pool = bytes(40) + b"\xff\xff\xff\xff\x01\x02\x03\x7f\x80"
    log = f"{owner(listener)}#1"
    for api in codec.LISTENERS[listener].values():
        for version in range(api.min_version, api.max_version + 1):
            for size in (0, 8, 20, 40, 60, 90, 120, 200):
                body = bytes(draw.choice(pool) for _ in range(size))
                flexible = listener != "CLIENT" or (api.key, version) == (18, 3)
                with dial(own_cluster, listener) as connection:
                    connection.sendall(request(api.key, version, body, flexible))
                    connection.sendall(request(api.key, version, bytes(size), flexible))
            assert unharmed(own_cluster, listener), (api.name, version, own_cluster.log(log))


@pytest.mark.parametrize("listener", PORTS)
def test_a_null_array_is_refused_where_the_schema_has_none(
    own_cluster: Nodes, listener: str
) -> None:
    for api in codec.LISTENERS[listener].values():
        if api.key == 18:
            continue
        for at in range(40):
            with dial(own_cluster, listener) as connection:
                null = bytes(at) + (b"\xff\xff\xff\xff" if listener == "CLIENT" else b"\0")
                flexible = listener != "CLIENT"
                connection.sendall(request(api.key, api.max_version, null + bytes(60), flexible))
        assert unharmed(own_cluster, listener), own_cluster.log(f"{owner(listener)}#1")


def test_a_produce_with_any_one_byte_changed_leaves_the_broker_alive(own_cluster: Nodes) -> None:
    create(own_cluster, "mangled")
    whole, _ = build(
        ProbeProduce(operation="x", slot="broker-1", broker=1, topic="mangled", partition=0, acks=1)
    )
    good = frame_request("mangler", 1, whole)
    draw = random.Random(5)
    for at in range(4, len(good)):
        bad = bytearray(good)
        bad[at] ^= draw.randrange(1, 256)
        with dial(own_cluster, "CLIENT") as connection:
            connection.sendall(bad)
    assert unharmed(own_cluster, "CLIENT"), own_cluster.log("broker-1#1")
    assert produce(own_cluster, "mangled", ["good"])[0] >= 0


def test_heartbeats_with_impossible_values_leave_the_controller_alive(own_cluster: Nodes) -> None:
    for number in (-(2**31), -1, 0, 101, 2**31 - 1):
        for state in (-128, 0, 2, 127):
            beat = m.BrokerHeartbeatRequest(state, number, number, -1, -1, (), None, state)
            with dial(own_cluster, "CONTROLLER") as connection:
                connection.sendall(codec.encode_request("stranger#1", 1, beat))
            assert unharmed(own_cluster, "CONTROLLER"), own_cluster.log("controller-1#1")


# -------------------------------------------------------------------------------- bad configuration


def run_once(folder: Path, config: object, *flags: str) -> subprocess.CompletedProcess[str]:
    """A node that is expected to end by itself."""
    path = folder / "node.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    argv = [sys.executable, *flags, "-m", "fencepost_clusters.reference.shell", str(path)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def changed(nodes: Nodes, **changes: object) -> dict[str, Any]:
    return {**nodes.config("broker-1"), **changes}


def with_property(nodes: Nodes, name: str, value: str) -> dict[str, Any]:
    config = nodes.config("broker-1")
    return {**config, "properties": {**config["properties"], name: value}}


def without(nodes: Nodes, name: str) -> dict[str, Any]:
    config = nodes.config("broker-1")
    del config[name]
    return config


BAD: dict[str, tuple[Callable[[Nodes], object], str]] = {
    "not JSON": (lambda nodes: "process.roles=broker\n", "malformed"),
    "not an object": (lambda nodes: [], "object"),
    "a missing key": (lambda nodes: without(nodes, "seed"), "seed"),
    "an unknown key": (lambda nodes: changed(nodes, colour="red"), "colour"),
    "a key of another type": (lambda nodes: changed(nodes, seed="seven"), "seed"),
    "unknown roles": (
        lambda nodes: with_property(nodes, "process.roles", "broker,leader"),
        "process.roles",
    ),
    "no roles": (lambda nodes: with_property(nodes, "process.roles", ""), "process.roles"),
    "no id": (lambda nodes: with_property(nodes, "broker.id", ""), "broker.id"),
    "bad voters": (
        lambda nodes: with_property(nodes, "controller.connect", "controller-1"),
        "controller.connect",
    ),
    "a word for a number": (
        lambda nodes: with_property(nodes, "min.insync.replicas", "two"),
        "min.insync.replicas",
    ),
    "an unknown defect": (lambda nodes: changed(nodes, defects=["sloth"]), "sloth"),
    "a port beyond all ports": (
        lambda nodes: changed(nodes, ports={"CLIENT": 90920, "REPLICATION": 9094}),
        "65535",
    ),
    "a listener too few": (lambda nodes: changed(nodes, ports={"CLIENT": 9092}), "REPLICATION"),
    "a listener of another role": (
        lambda nodes: changed(nodes, ports={"CONTROLLER": 9093}),
        "CONTROLLER",
    ),
}


@pytest.mark.parametrize(("make", "names"), BAD.values(), ids=BAD.keys())
def test_a_bad_configuration_is_one_line_and_exit_code_2(
    nodes: Nodes, make: Callable[[Nodes], object], names: str
) -> None:
    ended = run_once(nodes.folder, make(nodes))
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.count("\n") == 1
    assert names in ended.stderr
    assert not nodes.events_path("broker-1#1").exists(), "it did not get so far"


def test_no_configuration_file_is_exit_code_2(nodes: Nodes) -> None:
    for argv in ((), (str(nodes.folder / "none.json"),)):
        ended = subprocess.run(
            [sys.executable, "-m", "fencepost_clusters.reference.shell", *argv],
            capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
        assert ended.returncode == 2, ended.stderr
        assert ended.stderr.count("\n") == 1
        assert "node.json" in ended.stderr or "none.json" in ended.stderr


def test_a_node_refuses_to_run_without_its_assertions(nodes: Nodes) -> None:
    ended = run_once(nodes.folder, nodes.config("broker-1"), "-O")
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert "-O" in ended.stderr


@pytest.mark.parametrize("listener", PORTS)
def test_a_port_in_use_is_named_and_exit_code_4(nodes: Nodes, listener: str) -> None:
    taken = (nodes.address(owner(listener)), PORTS[listener])
    with socket.create_server(taken):
        ended = run_once(nodes.folder, nodes.config(owner(listener)))
    assert ended.returncode == 4, ended.stderr
    assert ended.stderr.count("\n") == 1
    assert f"{taken[0]}:{taken[1]}" in ended.stderr
    assert "in use" in ended.stderr


def test_a_disk_that_cannot_be_had_is_exit_code_4(nodes: Nodes) -> None:
    (nodes.folder / "data-broker-1").write_text("a file where the folder should be")
    ended = run_once(nodes.folder, nodes.config("broker-1"))
    assert ended.returncode == 4, ended.stderr
    assert ended.stderr.count("\n") == 1
    assert "data-broker-1" in ended.stderr


# ------------------------------------------------------------------------------------ how it ends


def test_sigterm_ends_broker_and_controller_in_order(nodes: Nodes) -> None:
    nodes.start_both()
    with dial(nodes, "CLIENT") as connection:
        for node in ("broker-1", "controller-1"):
            nodes.processes[node].send_signal(SIGTERM)
            assert nodes.processes[node].wait(LIMIT_S) == 0, nodes.log(f"{node}#1")
            last = nodes.bodies(f"{node}#1")[-1]
            assert isinstance(last, NodeStopped)
        assert hung_up(connection)
    states = [b.new for b in nodes.bodies("broker-1#1") if isinstance(b, BrokerStateChanged)]
    assert states == ["FENCED", "ACTIVE", "SHUTDOWN"]


def test_sigterm_ends_a_broker_that_never_found_a_controller(nodes: Nodes) -> None:
    process = nodes.start("broker-1")
    eventually(lambda: bool(nodes.bodies("broker-1#1")), "the broker has started")
    process.send_signal(SIGTERM)
    assert process.wait(LIMIT_S) == 0
    assert isinstance(nodes.bodies("broker-1#1")[-1], NodeStopped)


# ----------------------------------------------------------------------------------- real clients


def create(cluster: Nodes, topic: str, partitions: int = 1) -> None:
    admin = AdminClient(quietly(cluster))
    made = admin.create_topics([NewTopic(topic, partitions, 1)], request_timeout=LIMIT_S)
    made[topic].result(LIMIT_S)


def quietly(cluster: Nodes, **own: object) -> dict[str, object]:
    """confluent-kafka's settings; what it logs of brokers killed on purpose is left out."""
    return {
        "bootstrap.servers": cluster.bootstrap,
        "log_level": 0,
        "error_cb": lambda error: None,
        **{name.replace("_", "."): value for name, value in own.items()},
    }


def produce(cluster: Nodes, topic: str, values: list[str], **own: object) -> list[int]:
    """The offsets that the reports name; -1 with acks=0, where nobody tells them."""
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
    """So many values from an offset on, by assign and then a seek."""
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
            if offset == start + len(values):  # what was fetched before the seek is passed over
                values.append(value.decode())
        return values
    finally:
        consumer.close()


PRODUCERS: dict[str, dict[str, object]] = {
    "zero": {"acks": "0"},
    "one": {"acks": "1"},
    "all": {"acks": "all"},
    "idempotent": {"acks": "all", "enable_idempotence": True},
}


def test_topics_and_messages_survive_kill_9(nodes: Nodes) -> None:
    nodes.start_both()
    written: dict[str, list[str]] = {}
    for name, own in PRODUCERS.items():
        create(nodes, name)
        written[name] = [f"{name}-{number}".ljust(300, ".") for number in range(40)]
        offsets = produce(nodes, name, written[name], **own)
        assert offsets == ([-1] * 40 if name == "zero" else list(range(40)))
    for name, values in written.items():  # acks=0 is acknowledged by being read
        assert read(nodes, name, len(values)) == values
    for node in ("controller-1", "broker-1"):
        end(nodes.processes[node])
        nodes.start(node)
    nodes.await_active()
    metadata = AdminClient(quietly(nodes)).list_topics(timeout=LIMIT_S)
    assert set(metadata.topics) == set(written)
    for name, values in written.items():
        assert read(nodes, name, len(values)) == values
    assert produce(nodes, "idempotent", ["after"], **PRODUCERS["idempotent"]) == [40]


def test_confluent_kafka_administers(cluster: Nodes) -> None:
    admin = AdminClient(quietly(cluster))
    create(cluster, "administered", partitions=3)
    assert len(admin.list_topics(timeout=LIMIT_S).topics["administered"].partitions) == 3
    with pytest.raises(KafkaException) as twice:
        create(cluster, "administered")
    assert twice.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    described = admin.describe_cluster(request_timeout=LIMIT_S).result(LIMIT_S)
    assert [(n.id, n.host, n.port) for n in described.nodes] == [
        (1, cluster.address("broker-1"), PORTS["CLIENT"])
    ]
    assert described.cluster_id == "fencepost"
    admin.delete_topics(["administered"], request_timeout=LIMIT_S)["administered"].result(LIMIT_S)
    assert "administered" not in admin.list_topics(timeout=LIMIT_S).topics


def test_confluent_kafka_reads_from_any_offset(cluster: Nodes) -> None:
    create(cluster, "seeks")
    values = [f"{number}" for number in range(30)]
    produce(cluster, "seeks", values)
    assert read(cluster, "seeks", 5, start=25) == values[25:]
    consumer = Consumer(quietly(cluster, group_id="g", enable_auto_commit=False))
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition("seeks", 0), timeout=LIMIT_S)
        assert (low, high) == (0, 30)
    finally:
        consumer.close()


def test_kafka_python_works_unmodified(cluster: Nodes) -> None:
    kafka = pytest.importorskip("kafka")
    admin = kafka.KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        admin.create_topics([kafka.admin.NewTopic("python", 1, 1)])
        assert "python" in admin.list_topics()
        described = admin.describe_cluster()
        assert [broker["node_id"] for broker in described["brokers"]] == [1]
        values = [f"{acks}-{number}".encode() for acks in (0, 1, "all") for number in range(5)]
        for acks in (0, 1, "all"):
            producer = kafka.KafkaProducer(
                bootstrap_servers=cluster.bootstrap, acks=acks, enable_idempotence=acks == "all"
            )
            for number in range(5):
                producer.send("python", f"{acks}-{number}".encode(), partition=0)
            producer.flush(LIMIT_S)
            producer.close(LIMIT_S)
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=cluster.bootstrap, group_id=None, enable_auto_commit=False
        )
        place = kafka.TopicPartition("python", 0)
        consumer.assign([place])
        consumer.seek(place, 0)
        read_back: list[bytes] = []
        deadline = time.monotonic() + LIMIT_S
        while len(read_back) < len(values):
            assert time.monotonic() < deadline, read_back
            for records in consumer.poll(timeout_ms=500).values():
                read_back += [record.value for record in records]
        consumer.close(autocommit=False)
        assert read_back == values
        admin.delete_topics(["python"])
        assert "python" not in admin.list_topics()
    finally:
        admin.close()


def test_a_consumer_group_is_refused_in_time(cluster: Nodes) -> None:
    create(cluster, "grouped")
    began = time.monotonic()
    consumer = Consumer(quietly(cluster, group_id="g"))
    consumer.subscribe(["grouped"])
    message = consumer.poll(OUT_OF_SCOPE_S)
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    with pytest.raises(KafkaException) as refused:
        consumer.commit(offsets=[TopicPartition("grouped", 0, 1)], asynchronous=False)
    assert refused.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    consumer.close()
    assert time.monotonic() - began < OUT_OF_SCOPE_S


def test_a_transaction_is_refused_in_time(cluster: Nodes) -> None:
    producer = Producer(quietly(cluster, transactional_id="t"))
    began = time.monotonic()
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(OUT_OF_SCOPE_S)
    assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert time.monotonic() - began < OUT_OF_SCOPE_S


def test_kafka_python_is_refused_a_group_in_time(cluster: Nodes) -> None:
    kafka = pytest.importorskip("kafka")
    create(cluster, "python-grouped")
    began = time.monotonic()
    consumer = kafka.KafkaConsumer(
        "python-grouped", bootstrap_servers=cluster.bootstrap, group_id="g"
    )
    try:
        with pytest.raises(kafka.errors.GroupAuthorizationFailedError):
            consumer.poll(timeout_ms=int(OUT_OF_SCOPE_S * 1000))
    finally:
        consumer.close(autocommit=False)
    assert time.monotonic() - began < OUT_OF_SCOPE_S
