"""Apache Kafka in ZooKeeper mode as the framework sees it.

A version is named after the system: `apache/zookeeper@2.1.1`; `apache/zookeeper` is the default
one. Each broker knows ZooKeeper's servers and the other brokers by the names of their slots, which
its own hosts file maps to its own ends of the links. From KIP-291 on, the controller's requests to
brokers have a listener, and so a link, of their own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files

from msgspec import Struct

from fencepost import (
    ClientSpec,
    Cluster,
    Command,
    FaultChooser,
    Fold,
    Layout,
    LogParser,
    Place,
    Remains,
    Shape,
    Slot,
    Supplied,
    UsageError,
    View,
    counted,
)
from fencepost_clusters.apache_kafka import disks, distribution
from fencepost_clusters.apache_kafka.builds import released
from fencepost_clusters.apache_kafka.cluster import image_of, jvm_options, resource
from fencepost_clusters.apache_kafka.log_memory import Configured
from fencepost_clusters.apache_kafka.log_parser import KafkaLogParser
from fencepost_clusters.apache_kafka.metrics import exporter_config
from fencepost_clusters.apache_kafka.zookeeper_mode import replaced_states, settings
from fencepost_clusters.apache_kafka.zookeeper_mode.log_parser import table
from fencepost_clusters.java import NODE_ENVIRONMENT, disk_of, properties, resolver_files
from fencepost_clusters.zookeeper import slots as zookeeper
from fencepost_clusters.zookeeper import view as servers
from fencepost_clusters.zookeeper.kafka_probe import probe
from fencepost_clusters.zookeeper.log_parser import ROLE, ServerLogParser
from fencepost_clusters.zookeeper.transactions import logged
from fencepost_clusters.zookeeper.view import ServersView
from fencepost_kafka import KafkaView, Role, Timing
from fencepost_kafka.bounds import availability
from fencepost_kafka.facade.cluster import KafkaCluster
from fencepost_kafka.faults.random_faults import KafkaFaultChooser
from fencepost_kafka.faults.selectors import SELECTORS, select
from fencepost_kafka.faults.situation import Servers
from fencepost_kafka.faults.states import STATES, states_of
from fencepost_kafka.layout import Ports, lay_out_beside, listener_of
from fencepost_kafka.recovery import missing
from fencepost_kafka.status import status

DEFAULT_VERSION = "3.9.2"
VERSIONS = ("2.1.1", DEFAULT_VERSION)
"""The last release before KIP-380, and the last one with this mode."""
METRICS_PORT = 9095
OBSERVER = "znode_observer"
_EXPIRY_S = 1.0
"""How long a session may last beyond its timeout: a server ends sessions only at its ticks."""
_RESTART_MS = 40_000
"""How long a broker may take from its start until it is registered, on a busy machine."""


@dataclass(frozen=True, slots=True)
class ZooKeeperMode:
    """`apache/zookeeper`: one version of Kafka, unpatched, over one server of ZooKeeper or more."""

    version: str = DEFAULT_VERSION
    name: str = "apache/zookeeper"
    plane: str = "zookeeper"
    workload: str = "kafka_clients"
    counts: Mapping[str, int] = field(default_factory=lambda: {ROLE: 1, Role.BROKER.value: 3})
    folds: Sequence[type[Fold]] = (KafkaView, ServersView)
    selectors: Sequence[str] = SELECTORS

    def at(self, version: str) -> ZooKeeperMode:
        """Another version of Kafka; raises UsageError for one that is not known here."""
        if version not in VERSIONS:
            raise UsageError(f"{self.name} knows Kafka {' and '.join(VERSIONS)}, not {version}")
        return replace(self, version=version, name=f"apache/zookeeper@{version}")

    @property
    def ports(self) -> Ports:
        """Where brokers listen; before KIP-291 a controller's requests had no listener."""
        separate = tuple(map(int, self.version.split(".")[:2])) >= (2, 2)
        return Ports(controller=9093 if separate else 0, metrics=METRICS_PORT)

    def layout(self, shape: Shape) -> Layout:
        """ZooKeeper's servers, brokers with a duplicate each, and the clients' slot.

        Raises UsageError for a bad shape or defects, NotApplicable for what Kafka does not have.
        """
        if shape.defects:
            raise UsageError(f"{self.name} has no defects to switch on")
        settings.check(shape)
        ensemble = zookeeper.servers(counted(self, shape)[ROLE])
        return lay_out_beside(
            shape,
            self.ports,
            ensemble,
            lambda clients: zookeeper.links(ensemble, clients),
            zookeeper.UNASKED,
        )

    probe = staticmethod(probe)
    """A question that fits the port: ZooKeeper's, or ApiVersions."""

    def missing(self, view: View, layout: Layout) -> Sequence[str]:
        """Lists servers that do not serve, and what any Kafka cluster lacks."""
        return (*servers.missing(view, layout), *missing(view, layout))

    def recovery_bound_ms(self, shape: Shape) -> int:
        """Three sessions and the time of a restart."""
        return self.timing(shape).recovery_bound_ms

    def facade(self, cluster: Cluster) -> KafkaCluster:
        """See `KafkaCluster`."""
        return KafkaCluster(cluster, self.timing(cluster.shape))

    select = staticmethod(select)
    """See `fencepost_kafka.faults.selectors`."""

    states = STATES
    """See `fencepost_kafka.faults.states`."""

    states_of = staticmethod(states_of)
    """See `fencepost_kafka.faults.states`."""

    status = staticmethod(status)
    """See `fencepost_kafka.status`."""

    def fault_chooser(self, shape: Shape) -> FaultChooser:
        """See `fencepost_kafka.faults.random_faults`. A second broker with an id ends by itself at
        once, which the harness would report as a failure."""
        return KafkaFaultChooser(
            self.timing(shape),
            servers=Servers(ROLE, servers.serving),
            needs_session=True,
            without=frozenset({"duplicate_id"}),
        )

    def properties(self, place: Place, shape: Shape) -> dict[str, str]:
        """The configuration of the broker in a place."""
        connect = ",".join(
            f"{host}:{port}" for host, port in zookeeper.addresses(place.layout.of(ROLE))
        )
        return {
            **settings.SUITE_SETTINGS,
            "zookeeper.connect": connect,
            **settings.given(shape.settings),
            "broker.id": str(place.slot.node_id),
            **self._listeners(place),
            "log.dirs": disk_of(place),
            **settings.given(shape.own_of(place.slot.name, place.process)),
        }

    def fetch(self) -> str:
        """See `Fetched`: Kafka, and ZooKeeper."""
        logging = resource("log4j2.properties") + _resource("log4j2.properties")
        kafka = distribution.installed(released(self.version), os.environ, logging).home
        return f"{kafka}, {zookeeper.fetched()}"

    def command(self, place: Place, shape: Shape) -> Command:
        """The command of a server or a broker; installs missing software first.

        Raises EnvironmentFailed as `distribution.installed` does.
        """
        if place.slot.role == ROLE:
            return zookeeper.start(place, {})
        logging = resource("log4j2.properties") + _resource("log4j2.properties")
        kafka = (
            distribution.in_image(released(self.version))
            if place.image
            else distribution.installed(released(self.version), os.environ, logging)
        )
        return Command(
            ("/bin/sh", "start.sh"),
            {
                **NODE_ENVIRONMENT,
                "DATA": disk_of(place),
                "SESSION_S": str(self.timing(shape).lease_ms / 1000 + _EXPIRY_S),
                "KAFKA_HOME": str(kafka.home),
                "JAVA": kafka.java,
                "JVM_OPTIONS": " ".join(jvm_options(Role.BROKER)),
                "ARCHIVE": str(kafka.archive),
                "AGENT": f"{kafka.agent}={place.address}:{METRICS_PORT}:metrics.json",
            },
            {
                "start.sh": _resource("start.sh"),
                "log4j2.properties": logging,
                "metrics.json": exporter_config(),
                **resolver_files(place.hosts),
                "server.properties": properties(self.properties(place, shape)),
            },
        )

    def image(self, slot: Slot) -> str:
        """The image that `images/zookeeper` makes, or `images/kafka` for this version."""
        return zookeeper.IMAGE if slot.role == ROLE else image_of(self.version)

    def log_parser(self, slot: Slot, shape: Shape) -> LogParser:
        """The parser of a server's log, or of a broker's."""
        if slot.role == ROLE:
            return ServerLogParser(slot.node_id)
        return KafkaLogParser(
            slot, Configured(self.timing(shape).lease_ms), table=table(self.version)
        )

    def observers(self, shape: Shape) -> Sequence[ClientSpec]:
        """The client that watches znodes, in a session of its own, below the brokers' chroot."""
        return (ClientSpec("observer", OBSERVER, {"chroot": settings.chroot(shape.settings)}),)

    def read_disks(self, remains: Remains, shape: Shape) -> Sequence[Supplied]:
        """The states of partitions that the observer missed, from the disks of ZooKeeper's servers
        (see `replaced_states`), and the logs of all brokers."""
        servers = [disk for name, disk in remains.disks.items() if name.startswith(f"{ROLE}-")]
        changes = [change for disk in servers for change in logged(disk)]
        chroot = settings.chroot(shape.settings)
        states = replaced_states.supplied(remains.events, changes, chroot, remains.from_wall_ns)
        return (*states, *disks.supplied(remains, self.layout(shape)))

    def timing(self, shape: Shape) -> Timing:
        """The durations that the settings imply; a session stands for a lease."""
        read = {**settings.SUITE_SETTINGS, **settings.given(shape.settings)}
        session_ms = int(read["zookeeper.session.timeout.ms"])
        return Timing(
            heartbeat_ms=session_ms // 3,
            lease_ms=session_ms,
            election_ms=session_ms,
            recovery_bound_ms=3 * session_ms + _RESTART_MS,
            takeover_ms=session_ms * 5 // 4,
        )

    def stated(self, shape: Shape) -> Sequence[Struct]:
        """The bounds of its availability."""
        read = {**settings.SUITE_SETTINGS, **settings.given(shape.settings)}
        return (availability(self.timing(shape), lambda name: int(read[name])),)

    @property
    def told_ports(self) -> Sequence[int]:
        """See `fencepost.Advertises`: metadata name the clients' listener of each broker."""
        return (self.ports.client,)

    def _listeners(self, place: Place) -> dict[str, str]:
        """The addresses on which a broker listens, and those that it advertises."""
        name, ports = place.slot.name, self.ports
        ends = {
            "CLIENT": (place.advertised, ports.client),
            "REPLICATION": (name, ports.replication),
            **({"CONTROLLER": (name, ports.controller)} if ports.controller else {}),
            **{listener_of(one.slot): (one.address, one.port) for one in place.listeners},
        }
        control = {"control.plane.listener.name": "CONTROLLER"} if ports.controller else {}
        return {
            "listeners": ",".join(
                f"{one}://{place.address}:{port}" for one, (_, port) in ends.items()
            ),
            "advertised.listeners": ",".join(
                f"{one}://{host}:{port}" for one, (host, port) in ends.items()
            ),
            "listener.security.protocol.map": ",".join(f"{one}:PLAINTEXT" for one in ends),
            "inter.broker.listener.name": "REPLICATION",
            **control,
        }


def _resource(name: str) -> str:
    """A file of this mode's own."""
    folder = files("fencepost_clusters.apache_kafka.zookeeper_mode")
    return folder.joinpath(name).read_text(encoding="utf-8")
