"""Probes: a question and its answer, and everything that is not an answer."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import cast

import pytest

from fencepost import Probe, System
from fencepost.injection.probes import ProbeAnswer, ask_all, open_connections
from fencepost.model.clock import MS, SECOND, now_ns
from fencepost.model.errors import PluginFailed
from fencepost_kafka.probe import kafka_probe

Reply = Callable[[socket.socket, bytes], None]


@pytest.fixture
def serve() -> Iterator[Callable[[Reply], tuple[str, int]]]:
    servers = []

    def start(reply: Reply) -> tuple[str, int]:
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)

        def run() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, suppress(OSError):
                        (length,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
                        reply(connection, connection.recv(length, socket.MSG_WAITALL))

        threading.Thread(target=run, daemon=True).start()
        host, port = server.getsockname()
        return host, port

    yield start
    for server in servers:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def answer(connection: socket.socket, request: bytes) -> None:
    connection.sendall(struct.pack(">i", 10) + request[4:8] + bytes(6))


def test_the_question_is_api_versions_v0(serve: Callable[[Reply], tuple[str, int]]) -> None:
    got = []

    def note(connection: socket.socket, request: bytes) -> None:
        got.append(request)
        answer(connection, request)

    assert kafka_probe(*serve(note), 5)
    key, version, _, length = struct.unpack(">hhih", got[0][:10])
    assert (key, version, got[0][10:]) == (18, 0, b"fencepost-probe")
    assert length == 15


def test_a_question_can_be_made_large(serve: Callable[[Reply], tuple[str, int]]) -> None:
    sizes = []

    def note(connection: socket.socket, request: bytes) -> None:
        sizes.append(len(request))
        answer(connection, request)

    for size in (0, 20_000, 1_000_000):
        address, port = serve(note)
        assert kafka_probe(address, port, 5, size)
    assert sizes == [25, 20_010, 32_010]


def test_an_answer_may_come_in_pieces(serve: Callable[[Reply], tuple[str, int]]) -> None:
    def slowly(connection: socket.socket, request: bytes) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in struct.pack(">i", 10) + request[4:8] + bytes(6):
            connection.sendall(bytes([byte]))

    assert kafka_probe(*serve(slowly), 5)


@pytest.mark.parametrize(
    "reply",
    [
        lambda connection, request: None,
        lambda connection, request: connection.sendall(b"\x00\x00"),
        lambda connection, request: connection.sendall(bytes(14)),
        lambda connection, request: connection.recv(1),
    ],
    ids=["closes", "closes early", "answers something else", "is silent"],
)
def test_bytes_that_are_not_an_answer(
    serve: Callable[[Reply], tuple[str, int]], reply: Reply
) -> None:
    began = now_ns()
    assert not kafka_probe(*serve(reply), 0.2)
    assert now_ns() - began < 20 * SECOND  # it does not wait for ever


def test_without_a_listener_there_is_no_answer() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert not kafka_probe("127.0.0.1", free.getsockname()[1], 1)


def test_all_are_asked_at_once() -> None:
    barrier = threading.Barrier(5, timeout=30)

    def probe(address: str, port: int, timeout_s: float, size: int = 0) -> bool:
        barrier.wait()
        return port % 2 == 0

    answers = ask_all(probed(probe), {("127.0.0.1", port): (1.0, 0) for port in range(5)})
    assert [answers["127.0.0.1", port].came for port in range(5)] == [
        True,
        False,
        True,
        False,
        True,
    ]
    assert ask_all(probed(probe), {}) == {}


def test_how_long_an_answer_took_is_measured() -> None:
    def probe(address: str, port: int, timeout_s: float, size: int = 0) -> bool:
        threading.Event().wait(timeout_s)
        return False

    began = now_ns()
    (got,) = ask_all(probed(probe), {("127.0.0.1", 1): (0.05, 0)}).values()
    assert isinstance(got, ProbeAnswer)
    assert 49 < got.took_ms <= (now_ns() - began) / MS


def test_open_connections_are_counted_at_their_end() -> None:
    with (
        socket.create_server(("127.0.0.5", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
        socket.create_connection(server.getsockname()),
    ):
        end = server.getsockname()
        assert open_connections([end, ("127.0.0.6", end[1])]) == {end: 2, ("127.0.0.6", end[1]): 0}
        assert one.fileno() > 0


def probed(probe: Probe) -> System:
    """A system of which only the name and the probe are used."""
    return cast(System, SimpleNamespace(name="acme/lamps", probe=probe))


def clumsy_probe(address: str, port: int, timeout_s: float, size: int = 0) -> bool:
    raise ConnectionResetError("by its peer")


def test_a_probe_that_raises_is_named_with_what_it_is_to_do() -> None:
    with pytest.raises(PluginFailed) as caught:
        ask_all(probed(clumsy_probe), {("127.0.0.1", 1): (1.0, 0)})
    assert str(caught.value) == (
        f"the probe {__name__}:clumsy_probe of the system acme/lamps raised "
        "ConnectionResetError: by its peer: let it return False for a node that refuses, closes or "
        "is silent (fencepost.Probed)"
    )
    assert caught.value.exit_code == 2
