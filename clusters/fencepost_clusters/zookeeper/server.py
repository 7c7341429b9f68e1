"""The configuration and the command of a ZooKeeper server, and its mode in the answer to `srvr`.

A standalone server and a member of an ensemble differ in their configuration only. Members know
each other by name; each server has a hosts file of its own with its ends of the links.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from fencepost import Command, UsageError
from fencepost_clusters.java import NODE_ENVIRONMENT, NODE_OPTIONS, properties, resolver_files
from fencepost_clusters.zookeeper.distribution import Distribution, resource

CLIENT_PORT, PEER_PORT, ELECTION_PORT = 2181, 2888, 3888
_JVM_OPTIONS = (
    "-Xmx96m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    *NODE_OPTIONS,
)


@dataclass(frozen=True, slots=True)
class Timing:
    """The server's clock.

    A session's timeout is the one that its client asks for, but at least `min_session_ms` and at
    most `max_session_ms`. The session ends at the first tick after its timeout. ZooKeeper's own
    default for the least timeout is two ticks.
    """

    tick_ms: int = 500
    min_session_ms: int = 1000
    max_session_ms: int = 60_000

    def check_session(self, setting: str, ms: int) -> None:
        """Raises UsageError for a timeout that the servers would not grant: the session would end
        sooner, or later, than its client expects."""
        if not self.min_session_ms <= ms <= self.max_session_ms:
            raise UsageError(
                f"{setting} is {ms}: ZooKeeper's servers grant {self.min_session_ms} to "
                f"{self.max_session_ms} ms"
            )


@dataclass(frozen=True, slots=True)
class Server:
    """One server: its addresses, and its disk.

    `members` has the host of each member of its ensemble by number, this server's `number` among
    them; a standalone server has none. `hosts` resolves names to addresses. `settings` are further
    lines of its configuration.
    """

    address: str
    data: str
    port: int = CLIENT_PORT
    number: int = 0
    members: Mapping[int, str] = field(default_factory=dict)
    hosts: Mapping[str, str] = field(default_factory=dict)
    timing: Timing = field(default_factory=Timing)
    settings: Mapping[str, str] = field(default_factory=dict)


def config(server: Server) -> str:
    """The text of `zoo.cfg`; raises ValueError for a number that is not a member's."""
    timing = server.timing
    lines = {
        "tickTime": str(timing.tick_ms),
        "minSessionTimeout": str(timing.min_session_ms),
        "maxSessionTimeout": str(timing.max_session_ms),
        "dataDir": server.data,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "ruok,srvr,mntr,cons",
    }
    if server.members:
        if server.number not in server.members:
            raise ValueError(f"{server.number} is none of {sorted(server.members)}")
        lines |= {"initLimit": "20", "syncLimit": "10", "standaloneEnabled": "false"}
        for number, host in sorted(server.members.items()):
            peers = f"{host}:{PEER_PORT}:{ELECTION_PORT}:participant"
            lines[f"server.{number}"] = f"{peers};{host}:{server.port}"
    else:
        lines |= {"clientPort": str(server.port), "clientPortAddress": server.address}
    lines |= server.settings
    return properties(lines)


def command(zookeeper: Distribution, server: Server) -> Command:
    """The command of this server; its work folder is the process's own."""
    return Command(
        ("/bin/sh", "start.sh"),
        {
            **NODE_ENVIRONMENT,
            "DATA": server.data,
            "NUMBER": str(server.number) if server.members else "",
            "ZOOKEEPER_HOME": str(zookeeper.home),
            "JAVA": zookeeper.java,
            "JVM_OPTIONS": " ".join(_JVM_OPTIONS),
            "ARCHIVE": str(zookeeper.archive),
        },
        {
            "start.sh": resource("start.sh"),
            "logback.xml": resource("logback.xml"),
            **resolver_files(server.hosts),
            "zoo.cfg": config(server),
        },
    )


def mode(srvr: str) -> str | None:
    """`standalone`, `leader`, `follower` or `observer`, by the answer to `srvr`.

    None if the server serves no client yet. The answer to `ruok` does not prove readiness: a server
    answers `imok` even without a majority.
    """
    found = re.search(r"^Mode: (\w+)$", srvr, re.MULTILINE)
    return found[1] if found else None
