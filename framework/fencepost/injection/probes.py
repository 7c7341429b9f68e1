"""Probes: questions to a node through a link, by which receipts of link faults are measured."""

from __future__ import annotations

import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, final

from fencepost.model.clock import MS, now_ns
from fencepost.model.errors import PluginFailed
from fencepost.model.system.capabilities import Probed, System
from fencepost.model.system.probe import Probe
from fencepost.model.system.topology import Link

End = tuple[str, int]
"""An address and a port."""

_MOST_PADDING = 32_000
ESTABLISHED = "01"
TCP = "net/tcp"
"""Below /proc: the TCP sockets of this host."""


def tcp_probe(address: str, port: int, timeout_s: float, size: int = 0) -> bool:
    """Sends one line of HTTP; any byte that comes back is an answer.

    HTTP servers answer it, and many others answer a line that they do not understand with an error.
    A node that only closes the connection does not answer: the end of a connection passes a cut.
    """
    padding = "-" * max(0, min(size, _MOST_PADDING) - 30)
    try:
        with socket.create_connection((address, port), timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(f"GET /fencepost{padding} HTTP/1.0\r\n\r\n".encode())
            return connection.recv(1) != b""
    except OSError:
        return False


def probe_of(system: System) -> Probe:
    """The system's own probe, or `tcp_probe`."""
    return system.probe if isinstance(system, Probed) else tcp_probe


def unanswered_probe(system: System) -> str:
    """The error message for a system whose nodes do not answer `tcp_probe`. Empty for a system with
    a probe of its own."""
    if isinstance(system, Probed):
        return ""
    return (
        f"the system {system.name} has no `probe` (fencepost.Probed), and no node answers the line "
        "of HTTP that is sent instead: give it a probe that its nodes answer"
    )


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """Whether a probe was answered, and after how long (or how long it waited in vain)."""

    came: bool
    took_ms: float


def probe_name(probe: Probe) -> str:
    """`module:name`, by which a probe is imported on the nodes' side."""
    return f"{getattr(probe, '__module__', '')}:{getattr(probe, '__qualname__', '')}"


def raised(system: System, what: str, probe: Probe | None = None) -> PluginFailed:
    """The error for a system's probe that broke its contract: `what` is the exception that it
    raised; `probe` as of `ask_all`."""
    name = probe_name(probe or probe_of(system))
    return PluginFailed(
        f"the probe {name} of the system {system.name} raised {what}: let "
        "it return False for a node that refuses, closes or is silent (fencepost.Probed)"
    )


def ask_all(
    system: System, asked: Mapping[End, tuple[float, int]], probe: Probe | None = None
) -> Mapping[End, ProbeAnswer]:
    """Probes every end at once; `asked` holds how long to wait for each, and the question's size.

    `probe` is that of a secured cluster (None: the system's own). Raises PluginFailed for one that
    raises.
    """
    ask_end = probe or probe_of(system)

    def ask(end: End) -> ProbeAnswer:
        timeout_s, size = asked[end]
        began = now_ns()
        try:
            came = ask_end(*end, timeout_s, size)
        except Exception as error:  # a plugin's own code may raise anything
            raise raised(system, f"{type(error).__name__}: {error}", probe) from error
        return ProbeAnswer(came, (now_ns() - began) / MS)

    if not asked:
        return {}
    # One thread for each end, never fewer: in turn, ten cut links would stay silent for ten times
    # the patience, and the first of them would be measured long before the last.
    with ThreadPoolExecutor(len(asked)) as pool:
        return dict(zip(asked, pool.map(ask, asked), strict=True))


class Prober(Protocol):
    """Probes links, and counts their connections, from where the dialling slots are."""

    def ask(self, asked: Mapping[Link, tuple[float, int]]) -> Mapping[Link, ProbeAnswer]:
        """Probes every link at once; see `ask_all`."""
        ...

    def open_connections(self, links: Iterable[Link]) -> Mapping[Link, int]:
        """How many TCP connections are established to each link's end."""
        ...

    def direct(self, links: Sequence[Link]) -> Mapping[Link, int]:
        """How many connections the sources of these links have that pass none of them; links
        without any are left out, and all where that cannot be seen."""
        ...


@final
@dataclass(frozen=True, slots=True)
class HostProber:
    """For links whose ends are on this host, by the system's probe."""

    system: System
    end: Callable[[Link], End]
    past: Callable[[Sequence[Link]], Mapping[Link, int]]
    """See `Prober.direct`."""
    probe: Probe | None = None
    """That of a secured cluster; see `ask_all`."""
    accepted: Callable[[Sequence[Link]], Mapping[Link, int]] | None = None
    """See `Prober.open_connections`; None: they are counted on this host, at the links' ends."""

    def direct(self, links: Sequence[Link]) -> Mapping[Link, int]:
        """See `Prober.direct`."""
        return self.past(links)

    def ask(self, asked: Mapping[Link, tuple[float, int]]) -> Mapping[Link, ProbeAnswer]:
        """See `Prober.ask`."""
        ends = {self.end(link): how for link, how in asked.items()}
        answers = ask_all(self.system, ends, self.probe)
        return {link: answers[self.end(link)] for link in asked}

    def open_connections(self, links: Iterable[Link]) -> Mapping[Link, int]:
        """See `Prober.open_connections`."""
        if self.accepted is not None:
            return self.accepted(tuple(links))
        ends = {link: self.end(link) for link in links}
        counts = open_connections(ends.values())
        return {link: counts[end] for link, end in ends.items()}


def open_connections(ends: Iterable[End]) -> Mapping[End, int]:
    """How many TCP connections are established to each of these ends on this host."""
    return count_open(ends, Path("/proc", TCP).read_text())


def count_open(ends: Iterable[End], shown: str) -> Mapping[End, int]:
    """How many connections are established to each of these ends, by the text of /proc/net/tcp."""
    sockets = Counter(_sockets(shown))
    # By the local end, so what counts is the accepted side: one socket for each connection. Both
    # sides are in the file, since both are on this host.
    return {end: sockets[as_in_proc(end), ESTABLISHED] for end in ends}


def count_accepted(ports: Iterable[int], shown: str) -> Mapping[int, int]:
    """How many connections are established to each of these ports, whatever the address, by the
    text of /proc/net/tcp or tcp6."""
    found = Counter(
        int(local.rpartition(":")[2], 16)
        for local, state in _sockets(shown)
        if state == ESTABLISHED
    )
    return {port: found[port] for port in ports}


def _sockets(shown: str) -> Sequence[tuple[str, str]]:
    """The local end and the state of every TCP socket in that text."""
    lines = shown.splitlines()[1:]
    return [(fields[1], fields[3]) for fields in map(str.split, lines)]


def as_in_proc(end: End) -> str:
    """An end as the files below /proc/net show it."""
    address, port = end
    # The kernel prints the four bytes of the address as one number of the machine: on x86 127.0.0.1
    # is `0100007F`. The port is the plain number.
    native = struct.unpack("=I", socket.inet_aton(address))[0]
    return f"{native:08X}:{port:04X}"
