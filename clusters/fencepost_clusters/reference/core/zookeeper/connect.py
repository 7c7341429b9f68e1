"""The servers of ZooKeeper that a node is given."""

from __future__ import annotations

from fencepost import UsageError
from fencepost_clusters.reference.core.node.effects import Address


def servers_of(text: str) -> tuple[tuple[Address, ...], str]:
    """The servers and the chroot of `host:port,host:port/chroot`; raises UsageError."""
    servers, slash, path = text.partition("/")
    found: list[Address] = []
    for entry in filter(None, (part.strip() for part in servers.split(","))):
        host, colon, port = entry.rpartition(":")
        if not (colon and host and port.isdecimal() and 0 < int(port) < 65536):
            raise UsageError(f"zookeeper.connect needs host:port, not {entry!r}")
        found.append((host, int(port)))
    if not found:
        raise UsageError(
            "process.roles is not set, which selects a node over ZooKeeper, but zookeeper.connect "
            "names no server"
        )
    return tuple(found), f"/{path}" if slash and path else ""
