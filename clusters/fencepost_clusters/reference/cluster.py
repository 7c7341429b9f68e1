"""The reference cluster's quorum plane as the framework sees it: slots, links, commands, defects.

Controllers have ids from 101 on, brokers from 1: one space (QC-03). Each broker has a twin slot, so
that a second live process with its id has addresses and links of its own. Where a broker and a
controller share a process, they share a slot, and keep ids and endpoints of their own (QC-02).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count

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
    Spare,
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
METRICS_PORT = 9095
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
    "leader.imbalance.check.interval.ms": "1000",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "log.segment.bytes": "65536",
    "metadata.snapshot.interval.records": "100",
    "metadata.snapshot.slice.records": "5",
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
        if not 0 <= shape.combined <= min(shape.controllers, shape.brokers):
            raise UsageError("no more processes can be both than there are controllers and brokers")
        switched_off(shape.defects)
        self._settings(shape)
        index = count(1)
        both = [FIRST_CONTROLLER_ID + n for n in range(shape.combined)]
        controllers = [
            Slot(f"controller-{n}", Role.CONTROLLER, FIRST_CONTROLLER_ID + n - 1, next(index))
            for n in range(shape.combined + 1, shape.controllers + 1)
        ]
        brokers = [
            Slot(
                f"broker-{n}", Role.BROKER, n, next(index),
                controller_id=both[n - 1] if n <= shape.combined else -1,
            )
            for n in range(1, shape.brokers + 1)
        ]  # fmt: skip
        twins = [
            Slot(f"{b.name}-twin", Role.BROKER, b.node_id, next(index), twin=True) for b in brokers
        ]
        spares = [
            Slot(_spare_name(spare), spare.role, spare.node_id, next(index), spare=True)
            for spare in shape.spares
        ]
        clients = Slot("clients", Role.CLIENT, -1, next(index))
        slots = (*controllers, *brokers, *twins, *spares, clients)
        return Layout(slots, tuple(_links(slots)), METRICS_PORT)

    def client_port(self) -> int:
        """The brokers' client listener."""
        return CLIENT_PORT

    def properties(self, slot: Slot, layout: Layout, shape: Shape, run: str) -> dict[str, str]:
        """How the process in a slot is configured; raises UsageError for an unknown setting.

        Controllers must know each other's ids to begin with; brokers learn them (QC-05).
        """
        controllers = layout.of(Role.CONTROLLER)
        ids = {role: slot.id_as(role) for role in (Role.BROKER, Role.CONTROLLER)}
        mine = {f"{role.value}.id": str(node) for role, node in ids.items() if node is not None}
        voters = (
            [f"{c.id_as(Role.CONTROLLER)}@{c.name}:{CONTROLLER_PORT}" for c in controllers]
            if "controller.id" in mine
            else [f"{c.name}:{CONTROLLER_PORT}" for c in controllers]
        )
        listeners = {"controller.listeners": CONTROLLER_LISTENER} if "controller.id" in mine else {}
        return {
            **_cluster_properties(shape),
            "process.roles": ",".join(name.removesuffix(".id") for name in mine),
            **mine,
            **listeners,
            "controller.connect": ",".join(voters),
            "cluster.id": f"fencepost-{run}",
            **_credentials(shape, run),
            **shape.own.get(slot.name, {}),
        }

    def ports(self, slot: Slot) -> dict[str, int]:
        """The port of each listener of the node in a slot."""
        ports: dict[str, int] = {}
        if slot.id_as(Role.CONTROLLER) is not None:
            ports[CONTROLLER_LISTENER] = CONTROLLER_PORT
        if slot.id_as(Role.BROKER) is not None:
            ports |= {CLIENT_LISTENER: CLIENT_PORT, REPLICATION_LISTENER: REPLICATION_PORT}
        return ports

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
            "metrics_port": METRICS_PORT,
            "properties": self.properties(slot, place.layout, shape, place.run),
            "defects": list(shape.defects),
            "seed": place.seed,
        }
        module = "fencepost_clusters.reference.shell"
        python = "python3" if place.image else sys.executable
        return Command(
            (python, "-m", module, "node.json"),
            {},
            {"node.json": json.dumps(node, indent=1)},
        )

    def image(self) -> str:
        """What `images/reference/Dockerfile` makes."""
        return "fencepost/reference"

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

    def effective(self, properties: Mapping[str, str]) -> Mapping[str, str]:
        """What a node makes of a configuration; raises UsageError where it refuses to start."""
        return s.read(properties).effective()

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
                "controller.connect": f"controller-1:{CONTROLLER_PORT}",
                **_credentials(shape, "run"),
            }
        )


def _cluster_properties(shape: Shape) -> dict[str, str]:
    """What all nodes of a cluster have in common."""
    unknown = sorted(set(shape.settings) - {*s.names(), "sasl.enabled.mechanisms"})
    if unknown:
        raise UsageError(f"reference/quorum has no setting {unknown[0]!r}")
    return {**SUITE_SETTINGS, **shape.settings}


def _credentials(shape: Shape, run: str) -> dict[str, str]:
    """Where SASL is enabled: nodes are `node`, which has cluster-action rights; `app` has none."""
    if not shape.settings.get("sasl.enabled.mechanisms"):
        return {}
    return {
        "sasl.plain.users": f"node:{run}-node,app:{run}-app",
        "super.users": "node",
        "sasl.username": "node",
        "sasl.password": f"{run}-node",
    }


def _spare_name(spare: Spare) -> str:
    if spare.role is Role.CONTROLLER and spare.node_id >= FIRST_CONTROLLER_ID:
        return f"controller-{spare.node_id - FIRST_CONTROLLER_ID + 1}"
    return f"{spare.role.value}-{spare.node_id}"


def _links(slots: Sequence[Slot]) -> list[Link]:
    """Every connection that one slot dials to another."""
    links: list[Link] = []
    for source in slots:
        for target in slots:
            if source.name == target.name or target.role is Role.CLIENT:
                continue
            controller = target.id_as(Role.CONTROLLER) is not None
            if controller:
                links.append(Link(source.name, target.name, CONTROLLER_PORT))
            if target.role is Role.BROKER and source.role is Role.CLIENT:
                links.append(Link(source.name, target.name, CLIENT_PORT))
            if target.role is Role.BROKER and source.role is Role.BROKER:
                links.append(Link(source.name, target.name, REPLICATION_PORT))
    return links
