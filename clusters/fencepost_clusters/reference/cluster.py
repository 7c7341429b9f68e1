"""The reference cluster's quorum plane as the framework sees it: slots, links, commands, defects.

Controllers have ids from 101 on, brokers from 1: one space (QC-03). Each broker has a twin slot, so
that a second live process with its id has addresses and links of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fencepost import (
    Command,
    Defect,
    Host,
    Layout,
    Link,
    Place,
    Role,
    Shape,
    SimulatedDisk,
    SimulatedProcess,
    Slot,
    Timing,
    UsageError,
    WorkerConfig,
)
from fencepost_clusters.reference.core import settings as s
from fencepost_clusters.reference.core.protections import DEFECTS, switched_off
from fencepost_clusters.reference.core.settings import (
    CLIENT_LISTENER,
    CONTROLLER_LISTENER,
    REPLICATION_LISTENER,
)

CLIENT_PORT = 9092
CONTROLLER_PORT = 9093
REPLICATION_PORT = 9094
FIRST_CONTROLLER_ID = 101
MAX_NODES = 60

SUITE_SETTINGS: Mapping[str, str] = {
    "registration.heartbeat.interval.ms": "300",
    "registration.lease.timeout.ms": "3000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1500",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "300",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "controlled.shutdown.timeout.ms": "6000",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "log.segment.bytes": "65536",
}
"""What suites run with unless a test asks for something else; KIP-631's defaults are slower."""


@dataclass(frozen=True, slots=True)
class ReferenceQuorum:
    """`reference/quorum`: KIP-631's controllers and the shared data plane, as local programs."""

    name: str = "reference/quorum"
    plane: str = "quorum"

    def layout(self, shape: Shape) -> Layout:
        """Controllers, brokers with a twin each, and the clients' slot; raises UsageError."""
        if not 1 <= shape.controllers <= MAX_NODES or not 1 <= shape.brokers <= MAX_NODES:
            raise UsageError(f"a cluster has 1 to {MAX_NODES} controllers and as many brokers")
        switched_off(shape.defects)
        self._settings(shape)
        controllers = [
            Slot(f"controller-{n}", Role.CONTROLLER, FIRST_CONTROLLER_ID + n - 1, n)
            for n in range(1, shape.controllers + 1)
        ]
        first = shape.controllers + 1
        brokers = [
            Slot(f"broker-{n}", Role.BROKER, n, first + n - 1) for n in range(1, shape.brokers + 1)
        ]
        first += shape.brokers
        twins = [
            Slot(f"broker-{b.node_id}-twin", Role.BROKER, b.node_id, first + b.node_id - 1, True)
            for b in brokers
        ]
        clients = Slot("clients", Role.CLIENT, -1, first + shape.brokers)
        slots = (*controllers, *brokers, *twins, clients)
        return Layout(slots, tuple(_links(slots)))

    def client_port(self) -> int:
        """The brokers' client listener."""
        return CLIENT_PORT

    def properties(self, slot: Slot, layout: Layout, shape: Shape, run: str) -> dict[str, str]:
        """How the node in a slot is configured; raises UsageError for an unknown setting."""
        voters = ",".join(
            f"{c.node_id}@{c.name}:{CONTROLLER_PORT}" for c in layout.of(Role.CONTROLLER)
        )
        return {
            **_cluster_properties(shape),
            "process.roles": slot.role.value,
            f"{slot.role.value}.id": str(slot.node_id),
            "controller.connect": voters,
            "cluster.id": f"fencepost-{run}",
        }

    def ports(self, slot: Slot) -> dict[str, int]:
        """The port of each listener of the node in a slot."""
        if slot.role is Role.CONTROLLER:
            return {CONTROLLER_LISTENER: CONTROLLER_PORT}
        return {CLIENT_LISTENER: CLIENT_PORT, REPLICATION_LISTENER: REPLICATION_PORT}

    def command(self, place: Place, shape: Shape) -> Command:
        """One node as a Python process with a configuration file."""
        slot = place.slot
        node = {
            "run": place.run,
            "process": place.process,
            "name": slot.name,
            "events": str(place.events_path),
            "data": str(place.data_dir),
            "address": place.address,
            "advertised": place.advertised,
            "hosts": dict(place.hosts),
            "ports": self.ports(slot),
            "properties": self.properties(slot, place.layout, shape, place.run),
            "defects": list(shape.defects),
            "seed": place.seed,
        }
        module = "fencepost_clusters.reference.shell"
        return Command(
            (sys.executable, "-m", module, "node.json"),
            {},
            {"node.json": json.dumps(node, indent=1)},
        )

    # The simulator's parts are imported by the first simulated run: loading a plugin stays cheap.

    def simulated_disk(self) -> SimulatedDisk:
        """An empty disk in memory."""
        from fencepost_clusters.reference.simulation.disk import MemoryDisk  # noqa: PLC0415

        return MemoryDisk()

    def simulated_node(
        self, place: Place, shape: Shape, disk: SimulatedDisk, host: Host
    ) -> SimulatedProcess:
        """One node's core on the simulator's host."""
        from fencepost_clusters.reference.simulation import processes  # noqa: PLC0415

        settings = s.read(self.properties(place.slot, place.layout, shape, place.run))
        protections = switched_off(shape.defects)
        return processes.node(place, settings, self.ports(place.slot), protections, disk, host)

    def simulated_client(self, config: WorkerConfig, host: Host) -> SimulatedProcess:
        """One client's core on the simulator's host."""
        from fencepost_clusters.reference.simulation import processes  # noqa: PLC0415

        return processes.client(config, host)

    def defects(self) -> Sequence[Defect]:
        """The protections that can be switched off."""
        return DEFECTS

    def timing(self, shape: Shape) -> Timing:
        """What the settings mean for how long things take."""
        settings = self._settings(shape)
        return Timing(
            heartbeat_ms=settings.heartbeat_ms,
            lease_ms=settings.lease_ms,
            election_ms=settings.ms("controller.quorum.election.timeout.ms"),
            replica_lag_ms=settings.ms("replica.lag.time.max.ms"),
            recovery_bound_ms=3 * settings.lease_ms + 10_000,
        )

    def _settings(self, shape: Shape) -> s.Settings:
        return s.read(
            {
                **_cluster_properties(shape),
                "process.roles": "broker",
                "broker.id": "1",
                "controller.connect": f"{FIRST_CONTROLLER_ID}@controller-1:{CONTROLLER_PORT}",
            }
        )


def _cluster_properties(shape: Shape) -> dict[str, str]:
    """What all nodes of a cluster have in common."""
    unknown = sorted(set(shape.settings) - set(s.names()))
    if unknown:
        raise UsageError(f"reference/quorum has no setting {unknown[0]!r}")
    return {**SUITE_SETTINGS, **shape.settings}


def _links(slots: Sequence[Slot]) -> list[Link]:
    """Every connection that one slot dials to another."""
    links: list[Link] = []
    for source in slots:
        for target in slots:
            if source.name == target.name or target.role is Role.CLIENT:
                continue
            if source.role is Role.CLIENT:
                if target.role is Role.BROKER:
                    links.append(Link(source.name, target.name, CLIENT_PORT))
            elif target.role is Role.CONTROLLER:
                links.append(Link(source.name, target.name, CONTROLLER_PORT))
            elif source.role is Role.BROKER:
                links.append(Link(source.name, target.name, REPLICATION_PORT))
    return links
