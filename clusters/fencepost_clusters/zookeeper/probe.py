"""Questions to a server that change nothing: a four-letter word, and whether a link answers."""

from __future__ import annotations

import socket
import struct

from fencepost_clusters.zookeeper.server import CLIENT_PORT, ELECTION_PORT, PEER_PORT

PORTS = frozenset({CLIENT_PORT, PEER_PORT, ELECTION_PORT})
"""The ports on which servers of a cluster listen."""
_MOST_PADDING = 32_000
_PROTOCOL_V1 = -65_536
_NO_VOTER = 1 << 40
"""Added to a probe's own port, this makes a server number that no voter has."""
_UNKNOWN_SESSION = 1
_ENDED = 0


def server_probe(address: str, port: int, timeout_s: float, size: int = 0) -> bool:
    """Asks a server of a cluster on its client port or its election port."""
    asks = election_probe if port == ELECTION_PORT else zookeeper_probe
    return asks(address, port, timeout_s, size)


def election_probe(address: str, port: int, timeout_s: float, size: int = 0) -> bool:
    """Sends a vote to an election port, as a server that is no voter. A member answers at once with
    its own vote, and does not count ours (ZooKeeper's FastLeaderElection, WorkerReceiver).
    """
    vote = struct.pack(">iqqqqi", 0, 0, 0, 0, 0, 1).ljust(min(size, _MOST_PADDING), b"\0")
    try:
        with socket.create_connection((address, port), timeout=timeout_s) as connection:
            here = f"{address}:{port}".encode()
            number = _NO_VOTER + connection.getsockname()[1]
            greeting = struct.pack(">qqi", _PROTOCOL_V1, number, len(here)) + here
            connection.sendall(greeting + struct.pack(">i", len(vote)) + vote)
            return connection.recv(4096) != b""
    except OSError:
        return False


def ask(address: str, port: int, word: str, timeout_s: float) -> str:
    """The answer to a four-letter word, such as `srvr`; raises OSError if none comes in time."""
    with socket.create_connection((address, port), timeout=timeout_s) as connection:
        connection.sendall(word.encode())
        answer = b""
        while part := connection.recv(65_536):
            answer += part
    return answer.decode(errors="replace")


def zookeeper_probe(address: str, port: int, timeout_s: float, size: int = 0) -> bool:
    """Asks a client port to resume a session that never existed; a server that serves refuses it.

    The password is as long as `size` asks for. Unlike a new session, this makes no transaction.
    """
    password = bytes(max(16, min(size, _MOST_PADDING)))
    body = struct.pack(">iqiqi", 0, 0, 1000, _UNKNOWN_SESSION, len(password)) + password + b"\0"
    try:
        with socket.create_connection((address, port), timeout=timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            answer = b""
            while len(answer) < 20 and (part := connection.recv(4096)):
                answer += part
    except OSError:
        return False
    if len(answer) < 20:
        return False
    _, _, _, session = struct.unpack(">iiiq", answer[:20])
    return bool(session == _ENDED)
