"""The system `reference/legacy`: the reference cluster over ZooKeeper (KIP-343, KIP-380).

Any broker may be the controller. Each broker has a link to each ZooKeeper server and to each other
broker, so that each link can be cut alone: in KIP-343, a broker reaches ZooKeeper but not the
controller.
"""

from __future__ import annotations

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
    LogParser,
    NotApplicable,
    Place,
    Shape,
    SimulatedDisk,
    SimulatedProcess,
    Slot,
    UsageError,
    View,
)
from fencepost.testing import Demonstration
from fencepost_clusters.reference.core.node import settings as quorum
from fencepost_clusters.reference.core.node.settings import Settings, number
from fencepost_clusters.reference.defects.catalogue import LEGACY_DEFECTS, policies_with
from fencepost_clusters.reference.legacy import bounce_demo
from fencepost_clusters.reference.legacy.core import settings as s
from fencepost_clusters.reference.over_zookeeper import nodes
from fencepost_clusters.reference.wire.codec import CLIENT_CALLS, LEGACY_CALLS
from fencepost_clusters.zookeeper import slots as zookeeper
from fencepost_clusters.zookeeper.kafka_probe import probe
from fencepost_clusters.zookeeper.log_parser import ROLE as ZOOKEEPER
from fencepost_clusters.zookeeper.server import Timing as ServerTiming
from fencepost_clusters.zookeeper.view import ServersView, serving
from fencepost_clusters.zookeeper.view import missing as servers_missing
from fencepost_kafka import KafkaView, Role, Timing
from fencepost_kafka.bounds import availability
from fencepost_kafka.facade.cluster import KafkaCluster
from fencepost_kafka.faults.random_faults import KafkaFaultChooser
from fencepost_kafka.faults.selectors import SELECTORS, select
from fencepost_kafka.faults.situation import Servers
from fencepost_kafka.faults.states import STATES, states_of
from fencepost_kafka.recovery import missing
from fencepost_kafka.status import status

SUITE_SETTINGS: Mapping[str, str] = {
    "broker.heartbeat.interval.ms": "300",
    "broker.heartbeat.timeout.ms": "3000",
    "controller.heartbeat.timeout.ms": "2000",
    "zookeeper.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "300",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "controlled.shutdown.timeout.ms": "6000",
    "leader.imbalance.check.interval.ms": "1000",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "log.segment.bytes": "65536",
}
"""The settings of a cluster; a shape can change them."""


@dataclass(frozen=True, slots=True)
class ReferenceLegacy:
    """`reference/legacy`: brokers over a real ZooKeeper, as local programs."""

    name: str = "reference/legacy"
    plane: str = "legacy"
    version: str = field(default_factory=lambda: metadata.version("fencepost"))
    """That of Fencepost, whose programs they are."""

    def layout(self, shape: Shape) -> Layout:
        """ZooKeeper's servers, brokers with a duplicate each, and the clients' slot.

        Raises UsageError for a bad shape.
        """
        policies_with(shape.defects)
        _settings(shape)
        return nodes.layout(shape, controllers=True)

    told_ports = nodes.TOLD
    """See `fencepost.Advertises`."""

    counts = nodes.COUNTS
    """The default numbers of brokers and ZooKeeper servers."""

    folds = (KafkaView, ServersView)
    """Kafka's view, and the view of ZooKeeper's servers."""

    workload = "kafka_clients"
    """confluent-kafka."""

    probe = staticmethod(probe)
    """ApiVersions for brokers, a request of ZooKeeper's for its servers."""

    def missing(self, view: View, layout: Layout) -> Sequence[str]:
        """See `fencepost_kafka.recovery`. The controller must also have read every registration: a
        broker without heartbeats reports itself active before that."""
        lacks = [*servers_missing(view, layout), *missing(view, layout)]
        kafka = view.of(KafkaView)
        if kafka.active_controller is None:
            lacks.append("no broker is the controller")
        lacks += [
            f"no controller has read the registration of {slot.name}"
            for slot in layout.of(Role.BROKER)
            if slot.node_id not in kafka.fenced
        ]
        return [*lacks, *nodes.unreadable(view, layout)] if lacks else []

    def recovery_bound_ms(self, shape: Shape) -> int:
        """Three session timeouts, three leases, and ten seconds."""
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

    def fault_chooser(self, shape: Shape) -> FaultChooser:
        """See `fencepost_kafka.faults.random_faults`."""
        servers = Servers(ZOOKEEPER, serving)
        return KafkaFaultChooser(self.timing(shape), servers=servers, control_requests=True)

    def mutable(self) -> Sequence[str]:
        """The decisions of its control plane and of its session with ZooKeeper: the others are the
        same as in `reference/quorum`."""
        reference = "fencepost_clusters.reference"
        return [f"{reference}.legacy.core", f"{reference}.over_zookeeper.core"]

    def demonstration(self) -> Demonstration:
        """A broker carries out a StopReplica for its former process (KIP-380)."""
        return bounce_demo.demonstration()

    def properties(self, place: Place, shape: Shape) -> dict[str, str]:
        """A broker's configuration; raises UsageError for an unknown setting."""
        return nodes.properties(place, shape, _cluster_properties(shape))

    fetch = staticmethod(zookeeper.fetched)
    """See `Fetched`: ZooKeeper."""

    def command(self, place: Place, shape: Shape) -> Command:
        """The command of a broker, a Python process with a configuration file, or of a server."""
        given = {} if place.slot.role == ZOOKEEPER else self.properties(place, shape)
        return nodes.command(place, shape, given)

    def log_parser(self, slot: Slot, shape: Shape) -> LogParser | None:
        """The parser of a ZooKeeper server's log; brokers write their own events."""
        return nodes.log_parser(slot)

    image = staticmethod(nodes.image)
    """The image from `images/`."""

    simulated_disk = staticmethod(nodes.simulated_disk)
    """An empty disk of a broker in memory, or an empty tree of znodes."""

    def simulated_node(
        self, place: Place, shape: Shape, disk: SimulatedDisk, host: Host
    ) -> SimulatedProcess:
        """A broker's core, or a model of a ZooKeeper server, on the simulator's host."""
        if place.slot.role == ZOOKEEPER:
            return zookeeper.simulated(place, disk, host)
        settings = s.read(self.properties(place, shape))
        return nodes.simulated_broker(place, shape, settings, disk, host)

    simulated_probe = staticmethod(nodes.simulated_probe)
    """The probe of a broker's or ZooKeeper's port: ApiVersions, or a ping."""

    simulated_client = staticmethod(nodes.simulated_client)
    """A client's core on the simulator's host."""

    def frame(self, message: object, port: int) -> bytes | None:
        """The bytes of a request as real nodes and clients send it, without its length."""
        from fencepost_clusters.reference.simulation import shell  # noqa: PLC0415

        calls = CLIENT_CALLS if port == nodes.PORTS.client else LEGACY_CALLS
        return shell.frame(message, calls)

    def defects(self) -> Sequence[Defect]:
        """The defects that can be switched on."""
        return LEGACY_DEFECTS

    def effective(self, properties: Mapping[str, str]) -> Mapping[str, str]:
        """The settings that a node reads from a configuration; raises UsageError if the node would
        refuse to start."""
        return s.read(properties).effective()

    def timing(self, shape: Shape) -> Timing:
        """The bounds that follow from the settings. The lease is the longer of the session timeout
        and the broker's heartbeat timeout."""
        settings = _settings(shape)
        session_ms = settings.ms(_SESSION)
        lease_ms = max(session_ms, settings.ms("broker.heartbeat.timeout.ms"))
        return Timing(
            heartbeat_ms=settings.ms("broker.heartbeat.interval.ms"),
            lease_ms=lease_ms,
            election_ms=session_ms,
            recovery_bound_ms=3 * (lease_ms + session_ms) + 10_000,
            takeover_ms=session_ms * 5 // 4,
        )

    def stated(self, shape: Shape) -> Sequence[Struct]:
        """The bounds of its availability."""
        return (availability(self.timing(shape), _settings(shape).ms),)


_SESSION = "zookeeper.session.timeout.ms"


def _settings(shape: Shape) -> Settings:
    read = s.read({**_cluster_properties(shape), **nodes.SERVER})
    ServerTiming().check_session(_SESSION, read.ms(_SESSION))
    return read


def _cluster_properties(shape: Shape) -> dict[str, str]:
    """The configuration that all brokers of a cluster share. Raises UsageError for an unknown
    setting, and NotApplicable for a setting that only the quorum plane has."""
    given: dict[str, str] = {}
    for name, value in shape.settings.items():
        if name in s.names():
            given[name] = value
        elif name == "registration.lease.timeout.ms":
            given |= _lease(number(name, value))
        elif name == "registration.heartbeat.interval.ms":
            given["broker.heartbeat.interval.ms"] = value
        elif name in quorum.names():
            raise NotApplicable(f"the plane over ZooKeeper has no setting {name!r}")
        else:
            raise UsageError(f"reference/legacy has no setting {name!r}")
    return {**SUITE_SETTINGS, **given}


def _lease(ms: int) -> dict[str, str]:
    """A lease of that length in this plane's settings: the session timeout, and the heartbeat
    timeouts of controller and broker."""
    return {
        _SESSION: str(ms),
        "controller.heartbeat.timeout.ms": str(ms),
        "broker.heartbeat.timeout.ms": str(ms + 1000),
    }
