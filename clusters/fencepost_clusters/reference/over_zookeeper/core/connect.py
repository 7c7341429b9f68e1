"""The settings that every node over ZooKeeper has."""

from __future__ import annotations

from collections.abc import Mapping

from fencepost import UsageError
from fencepost_clusters.reference.core.node.effects import Address
from fencepost_clusters.reference.core.node.settings import Settings, node_id


def settings_of(
    properties: Mapping[str, str], numbers: Mapping[str, int], plane: str = ""
) -> Settings:
    """The settings of a broker over ZooKeeper, with the plane's own numbers; raises UsageError."""
    servers, chroot = servers_of(properties.get("zookeeper.connect", ""))
    node = node_id("broker.id", properties.get("broker.id"))
    return Settings(
        node_id=node,
        roles=frozenset({"broker"}),
        ids={"broker": node},
        voters={},
        bootstrap=(),
        cluster_id=properties.get("cluster.id", "fencepost"),
        numbers=numbers,
        zookeeper=servers,
        chroot=chroot,
        plane=plane,
    )


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
