"""Asking a node something through a link: what receipts of link faults are measured with."""

from __future__ import annotations

import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, final

from fencepost.model.clock import MS, SECOND, now_ns
from fencepost.model.topology import Link

End = tuple[str, int]
"""An address and a port."""

_API_VERSIONS = 18
_CORRELATION = 0x0FE2CE
_MOST_PADDING = 32_000
"""A client id's length is a signed 16-bit number."""
_ESTABLISHED = "01"
_LISTENING = "0A"
_TCP = "/proc/net/tcp"


class Probe(Protocol):
    """Asks a system's node a question that changes nothing; whether its answer came in time.

    The question is at least `size` bytes long (up to 32 000). Nothing is raised for a node that
    refuses, closes or is silent.
    """

    def __call__(self, address: str, port: int, timeout_s: float, size: int = 0) -> bool: ...


def kafka_probe(address: str, port: int, timeout_s: float, size: int = 0) -> bool:
    """ApiVersions v0, which every Kafka listener answers to anybody."""
    client = b"fencepost-probe".ljust(min(size, _MOST_PADDING), b"-")
    request = struct.pack(">hhih", _API_VERSIONS, 0, _CORRELATION, len(client)) + client
    deadline = now_ns() + int(timeout_s * SECOND)
    answer = b""
    try:
        with socket.create_connection((address, port), timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            while len(answer) < 8 and (left := deadline - now_ns()) > 0:
                connection.settimeout(left / SECOND)
                more = connection.recv(4096)
                if not more:
                    return False
                answer += more
    except OSError:
        return False
    return answer[4:8] == struct.pack(">i", _CORRELATION)


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether a probe was answered, and after how long (or how long it waited in vain)."""

    came: bool
    took_ms: float


def ask_all(probe: Probe, asked: Mapping[End, tuple[float, int]]) -> Mapping[End, Answer]:
    """Probes every end at once; `asked` says how long to wait at each, and the question's size."""

    def ask(end: End) -> Answer:
        timeout_s, size = asked[end]
        began = now_ns()
        came = probe(*end, timeout_s, size)
        return Answer(came, (now_ns() - began) / MS)

    if not asked:
        return {}
    with ThreadPoolExecutor(len(asked)) as pool:
        return dict(zip(asked, pool.map(ask, asked), strict=True))


class Prober(Protocol):
    """Asks through links, and counts what passes through them, where their dialling slots are."""

    def ask(self, asked: Mapping[Link, tuple[float, int]]) -> Mapping[Link, Answer]:
        """Probes every link at once; see `ask_all`."""
        ...

    def open_connections(self, links: Iterable[Link]) -> Mapping[Link, int]:
        """How many TCP connections are established to each link's end."""
        ...


@final
@dataclass(frozen=True, slots=True)
class HostProber:
    """For links whose ends are on this host."""

    probe: Probe
    end: Callable[[Link], End]

    def ask(self, asked: Mapping[Link, tuple[float, int]]) -> Mapping[Link, Answer]:
        """See `Prober.ask`."""
        answers = ask_all(self.probe, {self.end(link): how for link, how in asked.items()})
        return {link: answers[self.end(link)] for link in asked}

    def open_connections(self, links: Iterable[Link]) -> Mapping[Link, int]:
        """See `Prober.open_connections`."""
        ends = {link: self.end(link) for link in links}
        counts = open_connections(ends.values())
        return {link: counts[end] for link, end in ends.items()}


def open_connections(ends: Iterable[End]) -> Mapping[End, int]:
    """How many TCP connections are established to each of these ends on this host."""
    return count_open(ends, Path(_TCP).read_text())


def count_open(ends: Iterable[End], shown: str) -> Mapping[End, int]:
    """How many connections are established to each of these ends, by what /proc/net/tcp showed."""
    sockets = Counter(_sockets(shown))
    return {end: sockets[_as_in_proc(end), _ESTABLISHED] for end in ends}


def listens(end: End) -> bool:
    """Whether somebody listens at just this address, not at any address of the host."""
    return (_as_in_proc(end), _LISTENING) in _sockets(Path(_TCP).read_text())


def _sockets(shown: str) -> Sequence[tuple[str, str]]:
    """The local end and the state of every TCP socket that is shown."""
    lines = shown.splitlines()[1:]
    return [(fields[1], fields[3]) for fields in map(str.split, lines)]


def _as_in_proc(end: End) -> str:
    address, port = end
    native = struct.unpack("=I", socket.inet_aton(address))[0]
    return f"{native:08X}:{port:04X}"
