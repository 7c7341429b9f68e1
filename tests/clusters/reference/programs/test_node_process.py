"""A node as a process of its own: foreign bytes, bad configurations and requests, and its end."""

from __future__ import annotations

import json
import random  # noqa: TID251 - seeded: always the same bytes
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGTERM
from typing import Any

import pytest
from direct_nodes import (
    LIMIT_S,
    PORTS,
    Nodes,
    answers,
    create,
    dial,
    eventually,
    frame,
    hung_up,
    nodes_in,
    owner,
    produce,
    request,
)

from fencepost import ConnectionClosed, NodeStopped
from fencepost_clusters.reference.wire import codec
from fencepost_clusters.reference.wire import messages as m
from fencepost_kafka import BrokerStateChanged, ProbeFetch, ProbeProduce
from fencepost_kafka.confluent.probe import build, frame_request

pytestmark = pytest.mark.real


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
    """A controller and an active broker for one test, whose requests are accepted."""
    nodes.start_both()
    return nodes


# ----------------------------------------------------------------------------------- foreign bytes


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
def test_a_frame_that_never_ends_delays_no_other_client(cluster: Nodes, listener: str) -> None:
    with dial(cluster, listener) as connection:
        connection.sendall(request(18, 0, b"")[:-2])
        assert answers(cluster, listener)
        connection.sendall(request(18, 0, b"")[-2:])
        assert connection.recv(8, socket.MSG_WAITALL), "the rest came, so must the answer"


def unharmed(cluster: Nodes, listener: str) -> bool:
    """Whether the node still runs after the step that read everything that was sent to it."""
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


def test_a_fetch_below_the_log_is_out_of_range_at_once(cluster: Nodes) -> None:
    create(cluster, "fetched")
    asked = ProbeFetch(
        operation="x", slot="broker-1", broker=1, topic="fetched", partition=0, offset=-5
    )
    whole, understand = build(asked)
    with dial(cluster, "CLIENT") as connection:
        connection.sendall(frame_request("prober", 1, whole))
        (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
        answer = understand(connection.recv(size, socket.MSG_WAITALL))
    assert "OFFSET_OUT_OF_RANGE" in repr(answer).upper()


def test_heartbeats_with_impossible_values_leave_the_controller_alive(own_cluster: Nodes) -> None:
    for number in (-(2**31), -1, 0, 101, 2**31 - 1):
        for state in (-128, 0, 2, 127):
            beat = m.BrokerHeartbeatRequest(
                target_state=state,
                broker_id=number,
                broker_epoch=number,
                lease_start_time_ms=-1,
                cur_metadata_offset=-1,
                listeners=(),
                incarnation_id=None,
                current_state=state,
            )
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
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
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


def test_a_disk_that_cannot_be_used_is_exit_code_4(nodes: Nodes) -> None:
    (nodes.folder / "data-broker-1").write_text("a file where the folder should be")
    ended = run_once(nodes.folder, nodes.config("broker-1"))
    assert ended.returncode == 4, ended.stderr
    assert ended.stderr.count("\n") == 1
    assert "data-broker-1" in ended.stderr


# ------------------------------------------------------------------------------------ how it ends


def test_sigterm_ends_broker_and_controller_in_order(nodes: Nodes) -> None:
    # Its lease outlasts a controller that stalls: otherwise it would be fenced once more.
    nodes.properties = {"registration.lease.timeout.ms": "30000"}
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


# ----------------------------------------------------------------------------------------- rights


SASL = {
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.plain.users": "node:secret,app:other",
    "super.users": "node",
    "sasl.username": "node",
    "sasl.password": "secret",
}


def introduced(nodes: Nodes, username: str, password: str) -> tuple[socket.socket, int]:
    """A connection to the controller with its proof of a user; the error in the answer."""
    connection = socket.create_connection((nodes.address("controller-1"), 9093), timeout=LIMIT_S)
    proof = f"\0{username}\0{password}".encode()
    asked = (m.SaslHandshakeRequest(mechanism="PLAIN"), m.SaslAuthenticateRequest(auth_bytes=proof))
    error = 0
    for number, message in enumerate(asked):
        connection.sendall(codec.encode_request("test", number, message))
        answer = _answer(connection, type(message))
        assert isinstance(answer, m.SaslHandshakeResponse | m.SaslAuthenticateResponse)
        error = answer.error_code
    return connection, error


def _answer(connection: socket.socket, asked: type) -> m.Response:
    with connection.makefile("rb") as stream:
        size = int.from_bytes(stream.read(4))
        return codec.decode_response(asked, stream.read(size))[1]


@pytest.mark.parametrize(
    ("username", "password", "introduction", "command"),
    [("node", "secret", 0, 0), ("app", "other", 0, 31), ("app", "secret", 58, None)],
    ids=["with rights", "without rights", "wrong password"],
)
def test_a_controller_requires_an_authenticated_client(
    nodes: Nodes, username: str, password: str, introduction: int, command: int | None
) -> None:
    nodes.properties = SASL
    nodes.start_both()  # so a broker with the right password is admitted
    connection, error = introduced(nodes, username, password)
    with connection:
        assert error == introduction
        if command is None:
            assert connection.recv(1) == b""
            return
        made = m.CreateTopicsRequest(
            topics=(m.CreatableTopic(name="t", num_partitions=1, replication_factor=1),),
            timeout=2000,
        )
        connection.sendall(codec.encode_request("test", 9, made))
        answer = _answer(connection, m.CreateTopicsRequest)
        assert isinstance(answer, m.CreateTopicsResponse)
        assert answer.topics[0].error_code == command
