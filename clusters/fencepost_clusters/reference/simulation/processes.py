"""Makes the processes of the simulated runtime: nodes on memory disks, and the system's own
clients."""

from __future__ import annotations

from collections.abc import Mapping

from fencepost import Host, Place, SimulatedDisk, UsageError, WorkerConfig
from fencepost_clusters.reference.assembly import assemble
from fencepost_clusters.reference.client.node import ClientNode, read_options
from fencepost_clusters.reference.core.node.effects import Instant
from fencepost_clusters.reference.core.node.settings import Settings
from fencepost_clusters.reference.core.node.site import Site
from fencepost_clusters.reference.policies import Policies
from fencepost_clusters.reference.simulation.disk import MemoryDisk
from fencepost_clusters.reference.simulation.shell import Core, Shell, ShellIdentity
from fencepost_clusters.reference.wire.codec import LISTENERS, OVER_ZOOKEEPER


def node(
    place: Place,
    settings: Settings,
    *,
    ports: Mapping[str, int],
    policies: Policies,
    disk: SimulatedDisk,
    host: Host,
) -> Shell:
    """A node's process; `ports` maps its listeners to their ports."""
    assert isinstance(disk, MemoryDisk), disk
    site = Site(place.slot.name, place.advertised, ports, place.process)

    def make(now: Instant) -> Core:
        return assemble(
            settings, site, stored=disk.stored(), chance=host.chance, policies=policies, now=now
        )

    listeners = {port: name for name, port in ports.items()}
    offset_ms = settings.ms("clock.offset.ms")
    identity = ShellIdentity(
        process=place.process,
        listeners=listeners,
        principal=settings.rights.username,
        clock_offset_ms=offset_ms,
        served=OVER_ZOOKEEPER[settings.plane][0] if settings.zookeeper else LISTENERS,
    )
    return Shell(identity, make, disk, host)


def client(config: WorkerConfig, host: Host) -> Shell:
    """A client's process; raises UsageError for a bootstrap address that is none."""
    bootstrap: list[tuple[str, int]] = []
    for address in config.bootstrap:
        name, _, port = address.rpartition(":")
        if not name or not port.isdecimal():
            raise UsageError(f"{address!r} is no address:port")
        bootstrap.append((name, int(port)))
    options = read_options(bytes(config.options))

    def make(now: Instant) -> Core:
        return ClientNode(config.process, bootstrap, config.client_port, options, now)

    return Shell(ShellIdentity(config.process), make, MemoryDisk(), host)
