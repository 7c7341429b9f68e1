"""The probe by which it is measured that a link to a Kafka node answers."""

from __future__ import annotations

import socket
import struct
import time

from fencepost import Probe
from fencepost_kafka.security import Access

_API_VERSIONS = 18
_CORRELATION = 0x0FE2CE
_MOST_PADDING = 32_000
"""A client id's length is a signed 16-bit number."""


def kafka_probe(address: str, port: int, timeout_s: float, size: int = 0) -> bool:
    """ApiVersions v0, which every Kafka listener answers without authentication."""
    try:
        with socket.create_connection((address, port), timeout_s) as connection:
            return _answers(connection, timeout_s, size)
    except OSError:
        return False


def secured_probe(access: Access) -> Probe:
    """The same of a secured listener. Where links carry TLS, its handshake may take as long as the
    answer: through a slow link, each of them is delayed."""

    def probe(address: str, port: int, timeout_s: float, size: int = 0) -> bool:
        try:
            with access.encrypted((address, port), timeout_s) as connection:
                return _answers(connection, timeout_s, size)
        except OSError:
            return False

    return probe


def _answers(connection: socket.socket, timeout_s: float, size: int) -> bool:
    client = b"fencepost-probe".ljust(min(size, _MOST_PADDING), b"-")
    request = struct.pack(">hhih", _API_VERSIONS, 0, _CORRELATION, len(client)) + client
    deadline_s = time.monotonic() + timeout_s
    answer = b""
    connection.sendall(struct.pack(">i", len(request)) + request)
    while len(answer) < 8 and (left_s := deadline_s - time.monotonic()) > 0:
        connection.settimeout(left_s)
        more = connection.recv(4096)
        if not more:
            return False
        answer += more
    return answer[4:8] == struct.pack(">i", _CORRELATION)
