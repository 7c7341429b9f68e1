"""Makes events of the lines that a ZooKeeper server logs, by a table with one row per kind of line.

A row has the end of the logger's name, a pattern of the message, and a function that makes the
events. Samples of each row, as a server printed them, are in the tests. The parser remembers only
facts that later lines leave out: whether the server is standalone, its epoch, and whether it leads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from re import Match, Pattern
from typing import final

from msgspec import Struct

from fencepost import NodeStarted, NodeStopped, ParsedEvent
from fencepost_clusters.zookeeper.events import Mode, ServerLooks, ServerServes, SessionExpired

ROLE = "zookeeper"
"""The role of every server's slot."""

_LINE = re.compile(r"(?P<at>\d{4}-\d\d-\d\dT\S+) [A-Z]+ (?P<logger>\S+) (?P<message>.*)")
"""A line as logback.xml lays it out; the stamp has milliseconds and a time zone."""
_ABNORMAL = "[^,]*, exiting abnormally *(?P<what>.*)"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@final
@dataclass(slots=True)
class Memory:
    """Facts about a server that later lines of its log do not repeat."""

    server: int
    started: bool = False
    alone: bool = False
    epoch: int = -1
    leads: bool = False


Bodies = Iterator[Struct]
MakeEvents = Callable[[Memory, Match[str]], Bodies]


@dataclass(frozen=True, slots=True)
class LogPattern:
    """One kind of line, and the events that it makes."""

    logger: str
    message: Pattern[str]
    make_events: MakeEvents


@final
class ServerLogParser:
    """The parser of the log of one process, of the server with that number."""

    def __init__(self, server: int) -> None:
        self._memory = Memory(server)

    def parse(self, line: str) -> Sequence[ParsedEvent]:
        """The events of one line; most lines have none."""
        read = _LINE.match(line)
        if read is None:
            return ()
        for row in _ROWS:
            if not read["logger"].endswith(row.logger):
                continue
            found = row.message.match(read["message"].rstrip())
            if found is not None:
                at_ns = wall_clock_ns(read["at"])
                bodies = row.make_events(self._memory, found)
                return [ParsedEvent(at_ns, body, wall=True) for body in bodies]
        return ()


def wall_clock_ns(stamp: str) -> int:
    """Nanoseconds since 1970 of a stamp as logback prints it, exactly."""
    return (datetime.fromisoformat(stamp) - _EPOCH) // _MICROSECOND * 1_000


def _started(memory: Memory, found: Match[str]) -> Bodies:
    if not memory.started:  # a standalone server reads its configuration twice
        memory.started = True
        yield NodeStarted(role=ROLE, node_id=memory.server)


def _starts_alone(memory: Memory, found: Match[str]) -> Bodies:
    memory.alone = True
    yield from ()


def _serves_alone(memory: Memory, found: Match[str]) -> Bodies:
    if memory.alone:  # a leader manages containers, too
        yield ServerServes(server=memory.server, mode="standalone")


def _looks(memory: Memory, found: Match[str]) -> Bodies:
    led = memory.epoch if memory.leads else -1
    memory.leads = False
    yield ServerLooks(server=memory.server, led=led)


def _epoch(memory: Memory, found: Match[str]) -> Bodies:
    memory.epoch = int(found[1])
    yield from ()


def _first_zxid(memory: Memory, found: Match[str]) -> Bodies:
    memory.epoch = int(found[1], 16) >> 32
    yield from ()


def _serves(memory: Memory, found: Match[str]) -> Bodies:
    memory.leads = found[1] == "leading"
    mode: Mode = "leader" if memory.leads else "follower"
    yield ServerServes(server=memory.server, mode=mode, epoch=memory.epoch)


def _expired(memory: Memory, found: Match[str]) -> Bodies:
    yield SessionExpired(session=found[1], timeout_ms=int(found[2]))


def _broke(memory: Memory, found: Match[str]) -> Bodies:
    """The exception, which logback.xml prints on the same line, without its stack."""
    yield NodeStopped(reason=found["what"].partition(" at ")[0] or "exiting abnormally")


def _row(logger: str, message: str, make_events: MakeEvents) -> LogPattern:
    return LogPattern(f".{logger}", re.compile(message), make_events)


_ROWS = (
    _row("QuorumPeerConfig", "Reading configuration from: ", _started),
    _row("ZooKeeperServerMain", "Starting server$", _starts_alone),
    _row("ContainerManager", "Using checkIntervalMs=", _serves_alone),
    _row("FastLeaderElection", "New election. My id = ", _looks),
    _row("Leader", "Have quorum of supporters,.* last processed zxid: 0x([0-9a-f]+)", _first_zxid),
    _row("Learner", r"Set the current epoch to (\d+)$", _epoch),
    _row("QuorumPeer", "Peer state changed: (leading|following) - broadcast$", _serves),
    _row(
        "ZooKeeperServer", r"Expiring session (0x[0-9a-f]+), timeout of (\d+)ms exceeded", _expired
    ),
    _row("QuorumPeerMain", _ABNORMAL, _broke),
    _row("ZooKeeperServerMain", _ABNORMAL, _broke),
)
