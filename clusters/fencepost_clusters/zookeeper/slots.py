"""ZooKeeper's servers in the cluster of another system: slots, links, and commands.

Servers have ids from 201 on, so that they share no id with brokers and controllers. Each connection
is behind a link of its own: from a client to a server, and between two servers. Only the server
that leads listens on the peer port, so links to that port are not probed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from fencepost import Command, Host, Link, Place, SimulatedDisk, Slot, UsageError
from fencepost_clusters.java import disk_of
from fencepost_clusters.zookeeper import distribution
from fencepost_clusters.zookeeper.log_parser import ROLE
from fencepost_clusters.zookeeper.server import (
    CLIENT_PORT,
    ELECTION_PORT,
    PEER_PORT,
    Server,
    command,
)
from fencepost_clusters.zookeeper.simulation.server import SimulatedServer, TreeDisk
from fencepost_clusters.zookeeper.simulation.tree import Tree

FIRST_ID = 201
SIZES = (1, 3, 5)
UNASKED = frozenset({PEER_PORT})
"""The ports for `Layout.unasked`."""
IMAGE = f"fencepost/zookeeper:{distribution.VERSION}"
"""The image that `images/zookeeper/Dockerfile` makes."""


def servers(count: int, first_index: int = 1) -> tuple[Slot, ...]:
    """The slots of one server or an ensemble; raises UsageError for a number that is not in
    `SIZES`."""
    if count not in SIZES:
        raise UsageError(f"ZooKeeper is one server, or an ensemble of 3 or 5, not {count}")
    return tuple(
        Slot(f"zookeeper-{n}", ROLE, FIRST_ID + n - 1, first_index + n - 1)
        for n in range(1, count + 1)
    )


def links(ensemble: Sequence[Slot], clients: Sequence[Slot]) -> tuple[Link, ...]:
    """Every connection to a server: from each of these clients, and from each other server."""
    return (
        *(Link(one.name, server.name, CLIENT_PORT) for one in clients for server in ensemble),
        *(
            Link(one.name, other.name, port)
            for one in ensemble
            for other in ensemble
            if one != other
            for port in (PEER_PORT, ELECTION_PORT)
        ),
    )


def addresses(ensemble: Sequence[Slot]) -> tuple[tuple[str, int], ...]:
    """The addresses to which clients connect, by the names of slots."""
    return tuple((server.name, CLIENT_PORT) for server in ensemble)


def start(place: Place, settings: Mapping[str, str]) -> Command:
    """The command of one server, a JVM; downloads ZooKeeper first if necessary.

    Raises EnvironmentFailed as `distribution.installed` does. `settings` are further lines of its
    configuration.
    """
    ensemble = place.layout.of(ROLE)
    server = Server(
        address=place.address,
        data=f"./{disk_of(place)}",
        number=place.slot.node_id,
        members={one.node_id: one.name for one in ensemble} if len(ensemble) > 1 else {},
        hosts=place.hosts,
        settings=settings,
    )
    zookeeper = distribution.in_image() if place.image else distribution.installed(os.environ)
    return command(zookeeper, server)


def fetched() -> str:
    """Where ZooKeeper is; downloads it first if necessary. Raises as `start` does."""
    return str(distribution.installed(os.environ).home)


def simulated_disk() -> SimulatedDisk:
    """An empty tree."""
    return TreeDisk(Tree())


def simulated(place: Place, disk: SimulatedDisk, host: Host) -> SimulatedServer:
    """A simulated server; raises UsageError in an ensemble of several."""
    assert isinstance(disk, TreeDisk), disk
    if len(place.layout.of(ROLE)) > 1:
        raise UsageError(
            "the simulator has one ZooKeeper server, which never loses its majority: leave the "
            "count of zookeeper at 1"
        )
    return SimulatedServer(place.slot.node_id, disk, host)
