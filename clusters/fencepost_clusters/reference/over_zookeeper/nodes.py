"""Brokers and servers of ZooKeeper as nodes of a cluster: what the systems over ZooKeeper share."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence

from fencepost import (
    Command,
    Host,
    Layout,
    LogParser,
    Place,
    Shape,
    SimulatedDisk,
    SimulatedProcess,
    Slot,
    View,
    WorkerConfig,
    kind_name,
)
from fencepost_clusters.reference.core.node.settings import (
    CLIENT_LISTENER,
    REPLICATION_LISTENER,
    Settings,
)
from fencepost_clusters.reference.defects.catalogue import policies_with
from fencepost_clusters.zookeeper import slots as zookeeper
from fencepost_clusters.zookeeper.log_parser import ROLE as ZOOKEEPER
from fencepost_clusters.zookeeper.log_parser import ServerLogParser
from fencepost_clusters.zookeeper.probe import PORTS as ZOOKEEPER_PORTS
from fencepost_clusters.zookeeper.simulation.messages import Ping
from fencepost_kafka import Role, ZnodeUnreadable
from fencepost_kafka.layout import Ports, lay_out_beside

PORTS = Ports(controller=0)
LISTENERS: Mapping[str, int] = {
    CLIENT_LISTENER: PORTS.client,
    REPLICATION_LISTENER: PORTS.replication,
}
TOLD = (PORTS.client,)
"""The port whose addresses metadata tell clients."""
COUNTS: Mapping[str, int] = {Role.BROKER.value: 3, ZOOKEEPER: 1}
"""The default numbers of brokers and ZooKeeper servers."""
SERVER = {"zookeeper.connect": "zookeeper-1:2181", "broker.id": "1"}
"""A broker's own properties, to read the settings of a cluster by."""


def layout(shape: Shape, *, controllers: bool) -> Layout:
    """ZooKeeper's servers, brokers with a duplicate each, and the clients' slot.

    Raises UsageError for a bad shape.
    """
    servers = zookeeper.servers({**COUNTS, **shape.counts}[ZOOKEEPER])
    return lay_out_beside(
        shape,
        PORTS,
        servers,
        lambda brokers: zookeeper.links(servers, brokers),
        zookeeper.UNASKED,
        controllers=controllers,
    )


def properties(place: Place, shape: Shape, shared: Mapping[str, str]) -> dict[str, str]:
    """A broker's configuration; `shared` is the same for all brokers."""
    servers = zookeeper.addresses(place.layout.of(ZOOKEEPER))
    return {
        **shared,
        "zookeeper.connect": ",".join(f"{host}:{port}" for host, port in servers),
        "broker.id": str(place.slot.node_id),
        **shape.own_of(place.slot.name, place.process),
    }


def command(place: Place, shape: Shape, given: Mapping[str, str]) -> Command:
    """The command of a broker with these properties, a Python process with a configuration file,
    or of a server."""
    slot = place.slot
    if slot.role == ZOOKEEPER:
        return zookeeper.start(place, {})
    node = {
        "run": place.run,
        "process": place.process,
        "name": slot.name,
        "events": str(place.events_path),
        "data": str(place.data_dir),
        "address": place.address,
        "advertised": place.advertised,
        "apps": {one.slot: (one.address, one.port) for one in place.listeners},
        "hosts": dict(place.hosts),
        "ports": LISTENERS,
        "properties": given,
        "defects": list(shape.defects),
        "seed": place.seed,
    }
    python = "python3" if place.image else sys.executable
    argv = (python, "-m", "fencepost_clusters.reference.shell", "node.json")
    return Command(argv, files={"node.json": json.dumps(node, indent=1)}, preload=True)


def log_parser(slot: Slot) -> LogParser | None:
    """The parser of a ZooKeeper server's log; brokers write their own events."""
    return ServerLogParser(slot.node_id) if slot.role == ZOOKEEPER else None


def image(slot: Slot) -> str:
    """The image from `images/`."""
    return zookeeper.IMAGE if slot.role == ZOOKEEPER else "fencepost/reference"


# The first simulated run imports the simulator, so that loading the plugin stays cheap.


def simulated_disk(slot: Slot) -> SimulatedDisk:
    """An empty disk of a broker in memory, or an empty tree of znodes."""
    if slot.role == ZOOKEEPER:
        return zookeeper.simulated_disk()
    from fencepost_clusters.reference.simulation.disk import MemoryDisk  # noqa: PLC0415

    return MemoryDisk()


def simulated_broker(
    place: Place, shape: Shape, settings: Settings, disk: SimulatedDisk, host: Host
) -> SimulatedProcess:
    """A broker's core on the simulator's host."""
    from fencepost_clusters.reference.simulation import processes  # noqa: PLC0415

    policies = policies_with(shape.defects)
    return processes.node(place, settings, ports=LISTENERS, policies=policies, disk=disk, host=host)


def simulated_probe(port: int) -> object:
    """The probe of a broker's or ZooKeeper's port: ApiVersions, or a ping."""
    if port in ZOOKEEPER_PORTS:
        return Ping()
    from fencepost_clusters.reference.simulation import shell  # noqa: PLC0415

    return shell.probe()


def simulated_client(config: WorkerConfig, host: Host) -> SimulatedProcess:
    """A client's core on the simulator's host."""
    from fencepost_clusters.reference.simulation import processes  # noqa: PLC0415

    return processes.client(config, host)


def unreadable(view: View, layout: Layout) -> Sequence[str]:
    """What brokers could not read of ZooKeeper last: the likely cause of what the cluster lacks."""
    kind = kind_name(ZnodeUnreadable)
    newest = (view.newest.get(slot.name, "") for slot in layout.of(Role.BROKER))
    events = (view.latest.get((process, kind)) for process in newest)
    bodies = (event.body for event in events if event is not None)
    return sorted({b.sentence() for b in bodies if isinstance(b, ZnodeUnreadable)})
