"""The reference cluster's quorum plane as the framework sees it: slots, links, commands, defects.

Controllers have ids from 101 on, brokers from 1: one space (QC-03). Each broker has a duplicate
slot, so that a second live process with its id has addresses and links of its own. Where a broker
and a controller share a process, they share a slot, and keep ids and endpoints of their own
(QC-02).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata

from msgspec import Struct

from fencepost import (
    Cluster,
    Command,
    Defect,
    FaultChooser,
    Host,
    Layout,
    Place,
    Shape,
    SimulatedDisk,
    SimulatedProcess,
    Slot,
    UsageError,
    View,
    WorkerConfig,
)
from fencepost.testing import Demonstration
from fencepost_clusters.reference.core.node import settings as s
from fencepost_clusters.reference.core.node.settings import (
    CLIENT_LISTENER,
    CONTROLLER_LISTENER,
    REPLICATION_LISTENER,
)
from fencepost_clusters.reference.defects.catalogue import DEFECTS, policies_with
from fencepost_clusters.reference.wire.codec import CLIENT_CALLS, NODE_CALLS
from fencepost_kafka import COUNTS, KafkaView, Role, Timing
from fencepost_kafka.bounds import availability
from fencepost_kafka.demo import demonstration
from fencepost_kafka.facade.cluster import KafkaCluster
from fencepost_kafka.faults.administration import OPERATIONS
from fencepost_kafka.faults.random_faults import KafkaFaultChooser
from fencepost_kafka.faults.selectors import SELECTORS, select
from fencepost_kafka.faults.states import STATES, states_of
from fencepost_kafka.layout import Ports, lay_out
from fencepost_kafka.probe import kafka_probe
from fencepost_kafka.recovery import missing, superseded
from fencepost_kafka.status import status
from fencepost_kafka.vocabulary import with_spare_broker

PORTS = Ports(metrics=9095)
IMAGE = "fencepost/reference"

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
"""The settings of suites unless a test sets others; KIP-631's defaults are slower."""


@dataclass(frozen=True, slots=True)
class ReferenceQuorum:
    """`reference/quorum`: KIP-631's controllers and the shared data plane, as local programs."""

    name: str = "reference/quorum"
    plane: str = "quorum"
    version: str = field(default_factory=lambda: metadata.version("fencepost"))
    """That of Fencepost, whose programs they are."""

    def layout(self, shape: Shape) -> Layout:
        """Controllers, brokers with a duplicate each, and the clients' slot; raises UsageError."""
        policies_with(shape.defects)
        self._settings(shape)
        return lay_out(shape, PORTS)

    counts = COUNTS
    """Controllers, brokers, and processes that are both."""

    folds = (KafkaView,)
    """Kafka's view."""

    workload = "kafka_clients"
    """confluent-kafka."""

    probe = staticmethod(kafka_probe)
    """ApiVersions."""

    def missing(self, view: View, layout: Layout) -> Sequence[str]:
        """See `fencepost_kafka.recovery`."""
        return missing(view, layout)

    superseded = staticmethod(superseded)
    """See `fencepost_kafka.recovery`."""

    def recovery_bound_ms(self, shape: Shape) -> int:
        """Three leases and ten seconds."""
        return self.timing(shape).recovery_bound_ms

    def facade(self, cluster: Cluster) -> KafkaCluster:
        """See `KafkaCluster`."""
        return KafkaCluster(cluster, self.timing(cluster.shape))

    selectors = SELECTORS
    """See `fencepost_kafka.faults.selectors`."""

    select = staticmethod(select)
    """See `fencepost_kafka.faults.selectors`."""

    states = STATES
    """See `fencepost_kafka.faults.states`."""

    states_of = staticmethod(states_of)
    """See `fencepost_kafka.faults.states`."""

    status = staticmethod(status)
    """See `fencepost_kafka.status`."""

    grown = staticmethod(with_spare_broker)
    """With a broker that a random schedule may add."""

    def fault_chooser(self, shape: Shape) -> FaultChooser:
        """See `fencepost_kafka.faults.random_faults`."""
        return KafkaFaultChooser(
            self.timing(shape), administration=frozenset(OPERATIONS), voters_forget=True
        )

    def mutable(self) -> Sequence[str]:
        """The decisions of its nodes."""
        core = "fencepost_clusters.reference.core"
        return [f"{core}.{part}" for part in ("quorum", "cluster", "replication", "log")]

    def demonstration(self) -> Demonstration:
        """A broker that lost its lease goes on serving: KIP-631's zombie."""
        return demonstration("serves-without-lease", followed_by="reference/legacy")

    def properties(self, place: Place, shape: Shape) -> dict[str, str]:
        """The configuration of the process in a place; raises UsageError for an unknown setting.

        Controllers must know each other's ids from the start; brokers learn them (QC-05).
        """
        slot, controllers = place.slot, place.layout.of(Role.CONTROLLER)
        ids = {role: slot.id_as(role) for role in (Role.BROKER, Role.CONTROLLER)}
        mine = {f"{role.value}.id": str(node) for role, node in ids.items() if node is not None}
        voters = (
            [f"{c.id_as(Role.CONTROLLER)}@{c.name}:{PORTS.controller}" for c in controllers]
            if "controller.id" in mine
            else [f"{c.name}:{PORTS.controller}" for c in controllers]
        )
        listeners = {"controller.listeners": CONTROLLER_LISTENER} if "controller.id" in mine else {}
        return {
            **_cluster_properties(shape),
            "process.roles": ",".join(name.removesuffix(".id") for name in mine),
            **mine,
            **listeners,
            "controller.connect": ",".join(voters),
            "cluster.id": f"fencepost-{place.run}",
            **_credentials(shape, place.run),
            **shape.own_of(slot.name, place.process),
        }

    @property
    def told_ports(self) -> Sequence[int]:
        """See `fencepost.Advertises`: metadata name the clients' listener of each broker."""
        return (PORTS.client,)

    def ports(self, slot: Slot) -> dict[str, int]:
        """The port of each listener of the node in a slot."""
        ports: dict[str, int] = {}
        if slot.id_as(Role.CONTROLLER) is not None:
            ports[CONTROLLER_LISTENER] = PORTS.controller
        if slot.id_as(Role.BROKER) is not None:
            ports |= {CLIENT_LISTENER: PORTS.client, REPLICATION_LISTENER: PORTS.replication}
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
            "apps": {one.slot: (one.address, one.port) for one in place.listeners},
            "hosts": dict(place.hosts),
            "ports": self.ports(slot),
            "metrics_port": PORTS.metrics,
            "properties": self.properties(place, shape),
            "defects": list(shape.defects),
            "seed": place.seed,
        }
        module = "fencepost_clusters.reference.shell"
        python = "python3" if place.image else sys.executable
        return Command(
            (python, "-m", module, "node.json"),
            files={"node.json": json.dumps(node, indent=1)},
            preload=True,
        )

    def image(self, slot: Slot) -> str:
        """The image that `images/reference/Dockerfile` makes."""
        return IMAGE

    # The simulator's parts are imported by the first simulated run: loading a plugin stays cheap.

    def simulated_disk(self, slot: Slot) -> SimulatedDisk:
        """An empty disk in memory."""
        from fencepost_clusters.reference.simulation.disk import MemoryDisk  # noqa: PLC0415

        return MemoryDisk()

    def simulated_node(
        self, place: Place, shape: Shape, disk: SimulatedDisk, host: Host
    ) -> SimulatedProcess:
        """One node's core on the simulator's host."""
        from fencepost_clusters.reference.simulation import processes  # noqa: PLC0415

        settings = s.read(self.properties(place, shape))
        policies = policies_with(shape.defects)
        return processes.node(
            place,
            settings,
            ports=self.ports(place.slot),
            policies=policies,
            disk=disk,
            host=host,
        )

    def simulated_probe(self, port: int) -> object:
        """ApiVersions, as on real sockets."""
        from fencepost_clusters.reference.simulation.shell import probe  # noqa: PLC0415

        return probe()

    def simulated_client(self, config: WorkerConfig, host: Host) -> SimulatedProcess:
        """One client's core on the simulator's host."""
        from fencepost_clusters.reference.simulation import processes  # noqa: PLC0415

        return processes.client(config, host)

    def frame(self, message: object, port: int) -> bytes | None:
        """A request as real nodes and clients send it, without its length."""
        from fencepost_clusters.reference.simulation import shell  # noqa: PLC0415

        return shell.frame(message, CLIENT_CALLS if port == PORTS.client else NODE_CALLS)

    def defects(self) -> Sequence[Defect]:
        """The defects that can be switched on."""
        return DEFECTS

    def effective(self, properties: Mapping[str, str]) -> Mapping[str, str]:
        """The settings that a node reads from a configuration; raises UsageError if it would refuse
        to start."""
        return s.read(properties).effective()

    def timing(self, shape: Shape) -> Timing:
        """The bounds that the settings imply."""
        settings = self._settings(shape)
        return Timing(
            heartbeat_ms=settings.heartbeat_ms,
            lease_ms=settings.lease_ms,
            election_ms=settings.ms("controller.quorum.election.timeout.ms"),
            recovery_bound_ms=3 * settings.lease_ms + 10_000,
            takeover_ms=settings.ms("controller.quorum.fetch.timeout.ms")
            + 4 * settings.ms("controller.quorum.election.timeout.ms"),
        )

    def stated(self, shape: Shape) -> Sequence[Struct]:
        """The bounds of its availability."""
        return (availability(self.timing(shape), self._settings(shape).ms),)

    def _settings(self, shape: Shape) -> s.Settings:
        return s.read(
            {
                **_cluster_properties(shape),
                "process.roles": "broker",
                "broker.id": "1",
                "controller.connect": f"controller-1:{PORTS.controller}",
                **_credentials(shape, "run"),
            }
        )


def _cluster_properties(shape: Shape) -> dict[str, str]:
    """The configuration that all nodes of a cluster share."""
    unknown = sorted(set(shape.settings) - {*s.names(), "sasl.enabled.mechanisms"})
    if unknown:
        raise UsageError(f"reference/quorum has no setting {unknown[0]!r}")
    return {**SUITE_SETTINGS, **shape.settings}


def _credentials(shape: Shape, run: str) -> dict[str, str]:
    """The users, if SASL is enabled: nodes are `node`, which has cluster-action rights; `app` has
    none."""
    if not shape.settings.get("sasl.enabled.mechanisms"):
        return {}
    return {
        "sasl.plain.users": f"node:{run}-node,app:{run}-app",
        "super.users": "node",
        "sasl.username": "node",
        "sasl.password": f"{run}-node",
    }
