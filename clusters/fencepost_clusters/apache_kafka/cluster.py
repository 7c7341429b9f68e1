"""Apache Kafka as the framework sees it: the slots and links of the reference cluster, with Kafka's
own commands.

A version, or a folder or an image with a build of one's own, is named after the system:
`apache/kraft@4.1.0`, `apache/kraft@~/kafka`; `apache/kraft` is the default version. See `builds`.
Each node knows the others by the names of their slots, which its own hosts file maps to its own
ends of the links. Brokers advertise the clients' ends to clients, and their names to each other.
"""

from __future__ import annotations

import base64
import hashlib
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from uuid import UUID

from msgspec import Struct

from fencepost import (
    ClientSpec,
    Cluster,
    Command,
    FaultChooser,
    Layout,
    LogParser,
    NotApplicable,
    Place,
    Probe,
    Remains,
    Shape,
    Slot,
    Supplied,
    UsageError,
    View,
    named_path,
)
from fencepost_clusters.apache_kafka import builds, disks, distribution, settings
from fencepost_clusters.apache_kafka.builds import Build
from fencepost_clusters.apache_kafka.log_memory import Configured
from fencepost_clusters.apache_kafka.log_parser import KafkaLogParser
from fencepost_clusters.apache_kafka.metadata.first_snapshot import (
    Voter,
    first_snapshot,
    with_records,
)
from fencepost_clusters.apache_kafka.metadata.installed import schemas_in
from fencepost_clusters.apache_kafka.metrics import exporter_config
from fencepost_clusters.apache_kafka.security import (
    check_release,
    client_files,
    make_secrets,
    node_settings,
    protocol_map,
    scram_records,
    secured_layout,
)
from fencepost_clusters.java import (
    NODE_ENVIRONMENT,
    NODE_OPTIONS,
    disk_of,
    properties,
    resolver_files,
)
from fencepost_kafka import COMBINED, COUNTS, KafkaView, Role, Timing
from fencepost_kafka.bounds import availability
from fencepost_kafka.facade.cluster import KafkaCluster
from fencepost_kafka.faults.administration import EVERYWHERE, OTHER_BROKERS, OTHER_VOTERS
from fencepost_kafka.faults.random_faults import KafkaFaultChooser
from fencepost_kafka.faults.selectors import SELECTORS, select
from fencepost_kafka.faults.states import STATES, states_of
from fencepost_kafka.layout import Ports, lay_out, listener_of
from fencepost_kafka.probe import kafka_probe, secured_probe
from fencepost_kafka.recovery import missing, superseded
from fencepost_kafka.security import SECURITIES, Access, Security, security_named
from fencepost_kafka.status import status
from fencepost_kafka.vocabulary import CLIENTS, with_spare_broker

DEFAULT_VERSION = "4.4.0"
_DEFAULT = builds.released(DEFAULT_VERSION)
OLDEST = (3, 3)
NEWEST = (4, 4)
"""The newest release that was tried: see the record of `docs/_ext/record_releases.py`."""
CHANGEABLE = (3, 9)
"""The first release whose voters can change, and whose controllers advertise an address
(KIP-853)."""
BEGINS_LOG = (4, 4)
"""The first release whose metadata begins in the snapshot that begins its log."""
PORTS = Ports(metrics=9095)
CONTROLLER_LISTENER = "CONTROLLER"
OBSERVER = "kraft_observer"
METRICS_READER = "kraft_metrics_reader"
_HEAP_MB: Mapping[str, int] = {Role.CONTROLLER: 128, Role.BROKER: 256}
_RESTART_MS = 40_000
"""How long a node may take from its start until it is unfenced, on a busy machine."""


class UntriedRelease(UserWarning):
    """A run is of a release that was not tried yet."""


@dataclass(frozen=True, slots=True)
class KRaft:
    """`apache/kraft`: one build of Kafka, unpatched, with separate controllers and brokers."""

    build: Build = _DEFAULT
    name: str = "apache/kraft"
    plane: str = "kraft"

    @property
    def version(self) -> str:
        """As the software says it."""
        return self.build.version

    def at(self, version: str) -> KRaft:
        """Another build of Kafka, by its version or its folder; raises UsageError for one that is
        older than 3.3, and as `builds.named` does.

        Warns of one that is newer than those that were tried (`UntriedRelease`).
        """
        build = builds.named(version, os.environ)
        name = f"apache/kraft@{named_path(version) or version}"
        other = replace(self, build=build, name=name)
        if build.release < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            raise UsageError(f"apache/kraft knows Kafka {oldest} and newer, not {build.version}")
        if build.release > NEWEST:
            newest = ".".join(map(str, NEWEST))
            warnings.warn(
                f"{other.name} is newer than {newest}, the last release that was tried: where its "
                "nodes log in other words, clauses are unknown, and say so",
                UntriedRelease,
                stacklevel=2,
            )
        return other

    def layout(self, shape: Shape) -> Layout:
        """Controllers, brokers with a duplicate each, and the clients' slot.

        Raises UsageError for a bad shape or setting, or for defects, NotApplicable for what Kafka
        does not have.
        """
        if shape.defects:
            raise UsageError(f"{self.name} has no defects to switch on")
        if shape.counts.get(COMBINED, 0):
            raise NotApplicable("apache/kraft has one id for both nodes of a shared process")
        settings.check(shape)
        security = _security(shape)
        if security is not None:
            check_release(self.name, security, self.build.release)
        for own in shape.own.values():
            if settings.BOOTSTRAP in settings.given(own) and self.build.release < CHANGEABLE:
                raise NotApplicable(f"{self.name} knows its controllers by a fixed list of voters")
        return secured_layout(lay_out(shape, PORTS), security)

    counts = COUNTS
    """Controllers and brokers."""

    folds = (KafkaView,)
    """Kafka's view."""

    workload = "kafka_clients"
    """confluent-kafka."""

    probe = staticmethod(kafka_probe)
    """ApiVersions."""

    securities = tuple(SECURITIES)
    """See `fencepost_kafka.security`."""

    def secrets(
        self,
        shape: Shape,
        layout: Layout,
        addresses: Mapping[str, Sequence[str]],
        now: datetime,
    ) -> Mapping[str, str]:
        """See `fencepost_clusters.apache_kafka.security`."""
        return make_secrets(security_named(shape.security), layout, addresses, now)

    def client_files(self, shape: Shape, secrets: Path, user: str) -> Mapping[str, str]:
        """See `fencepost.Secured`: `<user>.properties` for Java, `<user>.librdkafka.json`."""
        security = _security(shape)
        return {} if security is None else client_files(security, secrets, user)

    def secured_probe(self, shape: Shape, secrets: Path) -> Probe:
        """ApiVersions, behind TLS if links carry it."""
        return secured_probe(Access(security_named(shape.security), secrets, CLIENTS))

    def may_start(self, slot: Slot, view: View, layout: Layout) -> bool:
        """A broker starts once a controller was active: then the first voters are committed.

        From 3.9 on a broker reads the voters in the metadata log. If it reads them before they are
        committed, and must drop them since another controller is elected, it never reads them again
        (KRaftControlRecordStateMachine.truncateNewEntries keeps the offset to read next). From then
        on it finds no controller but the one that it talks to. Of 41 clusters of 4.4.0 that began
        at once on a busy machine, 4 were not ready for that, and one did not recover later.
        """
        return slot.role is not Role.BROKER or view.of(KafkaView).controller_process != ""

    def missing(self, view: View, layout: Layout) -> Sequence[str]:
        """See `fencepost_kafka.recovery`."""
        return missing(view, layout)

    superseded = staticmethod(superseded)
    """See `fencepost_kafka.recovery`."""

    def recovery_bound_ms(self, shape: Shape) -> int:
        """Three sessions and the time of a restart."""
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
        changeable = OTHER_VOTERS if self.build.release >= CHANGEABLE else frozenset[str]()
        administration = EVERYWHERE | changeable | OTHER_BROKERS
        return KafkaFaultChooser(
            self.timing(shape),
            stops_by_leave=True,
            administration=administration,
        )

    @property
    def told_ports(self) -> Sequence[int]:
        """See `fencepost.Advertises`: metadata name the clients' listener of each broker."""
        return (PORTS.client,)

    def properties(self, place: Place, shape: Shape) -> dict[str, str]:
        """The configuration of the node in a place."""
        slot = place.slot
        security = _security(shape)
        secured = {}
        if security is not None and place.secrets is not None:
            secured = node_settings(security, place, place.secrets)
        return {
            **settings.SUITE_SETTINGS,
            **secured,
            **settings.given(shape.settings),
            "process.roles": str(slot.role),
            "node.id": str(slot.node_id),
            **self._quorum(place.layout),
            "controller.listener.names": CONTROLLER_LISTENER,
            "listener.security.protocol.map": protocol_map(security, place),
            **_listeners(place, self.build.release),
            "log.dirs": disk_of(place),
            **settings.given(shape.own_of(slot.name, place.process)),
        }

    def _quorum(self, layout: Layout) -> dict[str, str]:
        """How a node finds the controllers. Where voters can change, it knows addresses to ask
        first, and reads the voters from the metadata log."""
        found = {
            c.id_as(Role.CONTROLLER): f"{c.name}:{PORTS.controller}"
            for c in layout.of(Role.CONTROLLER)
        }
        if self.build.release >= CHANGEABLE:
            return {settings.BOOTSTRAP: ",".join(found.values())}
        voters = (f"{node}@{where}" for node, where in found.items())
        return {"controller.quorum.voters": ",".join(voters)}

    def _bootstrap(self, slot: Slot, shape: Shape) -> tuple[str, ...]:
        """The addresses of controllers that a broker is configured with."""
        own = settings.given(shape.own_of(slot.name, f"{slot.name}#1"))
        every = self._quorum(self.layout(shape)).get(settings.BOOTSTRAP, "")
        return tuple(own.get(settings.BOOTSTRAP, every).split(","))

    def _disk(self, place: Place) -> dict[str, str]:
        """The files by which start.sh formats a new disk, as StorageTool does."""
        files = {"meta.properties": properties(_formatted(place))}
        first = place.layout.of(Role.CONTROLLER)
        if place.slot not in first:
            return files
        known = scram_records(place.secrets)
        if known and self.build.release < BEGINS_LOG:
            formatted = distribution.first_metadata(self.build, os.environ, self.name)
            files["bootstrap.base64"] = _base64(with_records(formatted, known))
        if self.build.release < CHANGEABLE:
            return files
        voters = [
            Voter(
                c.node_id,
                UUID(bytes=base64.urlsafe_b64decode(f"{_directory(place.run, f'{c.name}#1')}==")),
                c.name,
                PORTS.controller,
            )
            for c in first
        ]
        data = first_snapshot(voters, CONTROLLER_LISTENER)
        if self.build.release >= BEGINS_LOG:
            formatted = distribution.first_metadata(self.build, os.environ, self.name)
            data = first_snapshot(voters, CONTROLLER_LISTENER, formatted, known)
        return {**files, "snapshot.base64": _base64(data)}

    def fetch(self) -> str:
        """See `Fetched`: Kafka."""
        if self.build.image:
            return self._own_image()
        return str(distribution.installed(self.build, os.environ, _logging()).home)

    def command(self, place: Place, shape: Shape) -> Command:
        """The command of one node, a JVM; installs Kafka first if necessary.

        Raises EnvironmentFailed as `distribution.installed` does.
        """
        logging = _logging()
        kafka = (
            distribution.in_image(self.build)
            if place.image
            else distribution.installed(self.build, os.environ, logging)
        )
        return Command(
            ("/bin/sh", "start.sh"),
            {
                **NODE_ENVIRONMENT,
                "DATA": disk_of(place),
                "KAFKA_HOME": str(kafka.home),
                "JAVA": kafka.java,
                "JVM_OPTIONS": " ".join(jvm_options(place.slot.role)),
                "ARCHIVE": str(kafka.archive),
                "AGENT": f"{kafka.agent}={place.address}:{PORTS.metrics}:metrics.json",
            },
            {
                "start.sh": resource("start.sh"),
                "log4j2.properties": logging,
                "metrics.json": exporter_config(),
                **resolver_files(place.hosts),
                "server.properties": properties(self.properties(place, shape)),
                **self._disk(place),
            },
        )

    def image(self, slot: Slot) -> str:
        """The image that `images/kafka/Dockerfile` makes of this version, or one on the image that
        was named. There is none of a folder, which raises NotApplicable."""
        if self.build.jars:
            raise NotApplicable(
                f"{self.name} is a folder, and there is no image of it: its nodes run as processes"
            )
        return self._own_image() if self.build.image else image_of(self.version)

    def _own_image(self) -> str:
        """See `image_on`."""
        # Only here: it imports the package docker, which is an extra.
        from fencepost_clusters.apache_kafka.images import image_on  # noqa: PLC0415

        resources = {"archive.sh": resource("archive.sh"), "log4j2.properties": _logging()}
        return image_on(self.build, os.environ, resources)

    def log_parser(self, slot: Slot, shape: Shape) -> LogParser:
        """Makes events of a node's standard output."""
        read = {**settings.SUITE_SETTINGS, **settings.given(shape.settings)}
        configured = Configured(
            session_ms=self.timing(shape).lease_ms,
            fetch_timeout_ms=int(read["controller.quorum.fetch.timeout.ms"]),
            keep_in_sync_ms=int(read["replica.lag.time.max.ms"]),
            balance_ms=_balance_ms(read),
            bootstrap=self._bootstrap(slot, shape),
        )
        return KafkaLogParser(slot, configured)

    def observers(self, shape: Shape) -> Sequence[ClientSpec]:
        """The clients that read the metadata log from the controllers, and all metrics pages. Two
        read the log, and each asks another controller first, so that their words can be compared:
        the leaders of two epochs may tell them different things."""
        log = {"port": PORTS.controller, "build": self.build.key}
        return (
            ClientSpec("observer", OBSERVER, log),
            ClientSpec("observer-2", OBSERVER, {**log, "first": 1}),
            ClientSpec("metrics", METRICS_READER, {"port": PORTS.metrics}),
        )

    def read_disks(self, remains: Remains, shape: Shape) -> Sequence[Supplied]:
        """The logs of all nodes, and the states of the metadata by logs and snapshots."""
        schemas = schemas_in(distribution.home_of(self.build, os.environ))
        return disks.supplied(remains, self.layout(shape), schemas)

    def timing(self, shape: Shape) -> Timing:
        """The durations that the settings imply."""
        read = {**settings.SUITE_SETTINGS, **settings.given(shape.settings)}
        lease_ms = int(read["broker.session.timeout.ms"])
        return Timing(
            heartbeat_ms=int(read["broker.heartbeat.interval.ms"]),
            lease_ms=lease_ms,
            election_ms=int(read["controller.quorum.election.timeout.ms"]),
            recovery_bound_ms=3 * lease_ms + _RESTART_MS,
            takeover_ms=int(read["controller.quorum.fetch.timeout.ms"])
            + 4 * int(read["controller.quorum.election.timeout.ms"]),
        )

    def stated(self, shape: Shape) -> Sequence[Struct]:
        """The bounds of its availability."""
        read = {**settings.SUITE_SETTINGS, **settings.given(shape.settings)}
        return (availability(self.timing(shape), lambda name: int(read[name])),)


def image_of(version: str) -> str:
    """The image of a version of Kafka."""
    return f"fencepost/kafka:{version}"


def jvm_options(role: str) -> tuple[str, ...]:
    """A small heap, and options for a quick start: no second compiler, classes from an archive.

    None may contain a blank, so the archive's path, which may, is not among them.
    """
    return (
        "-Xms64m",
        f"-Xmx{_HEAP_MB[role]}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
        "-XX:+ExitOnOutOfMemoryError",
        "-Xshare:auto",
        *NODE_OPTIONS,
    )


def resource(name: str) -> str:
    """A file beside this one."""
    return files("fencepost_clusters.apache_kafka").joinpath(name).read_text(encoding="utf-8")


def _security(shape: Shape) -> Security | None:
    """How the listeners of a cluster of that shape are secured (None: they are open); raises
    UsageError for an unknown name."""
    return security_named(shape.security) if shape.security else None


def _base64(data: bytes) -> str:
    """A file of start.sh, which takes text alone."""
    return base64.encodebytes(data).decode()


def _balance_ms(read: Mapping[str, str]) -> int:
    """How often the active controller returns leaderships to preferred replicas (0: never)."""
    if read.get("auto.leader.rebalance.enable", "true") != "true":
        return 0
    return 1_000 * int(read["leader.imbalance.check.interval.seconds"])


def _logging() -> str:
    """The Log4j configuration of a node."""
    return resource("log4j2.properties") + resource("log4j2.windows.properties")


def _listeners(place: Place, release: tuple[int, ...]) -> dict[str, str]:
    """The addresses on which a node listens, and the addresses that it advertises. Controllers
    before Kafka 3.9 accept none to advertise: all know them by the list of voters."""
    name, address = place.slot.name, place.address
    if place.slot.role is Role.CONTROLLER:
        own = {"CONTROLLER": (name, PORTS.controller)}
        advertised = {} if release < CHANGEABLE else own
    else:
        own = {
            "CLIENT": (place.advertised, PORTS.client),
            "REPLICATION": (name, PORTS.replication),
            **{listener_of(one.slot): (one.address, one.port) for one in place.listeners},
        }
        advertised = own
    found = {
        "listeners": ",".join(f"{one}://{address}:{port}" for one, (_, port) in own.items()),
    }
    if advertised:
        ends = (f"{one}://{host}:{port}" for one, (host, port) in advertised.items())
        found["advertised.listeners"] = ",".join(ends)
    if place.slot.role is not Role.CONTROLLER:
        found["inter.broker.listener.name"] = "REPLICATION"
    return found


def _formatted(place: Place) -> dict[str, str]:
    """The files that StorageTool writes on a formatted disk. Each new disk of a slot has another
    directory id."""
    return {
        "version": "1",
        "cluster.id": _uuid(place.run),
        "node.id": str(place.slot.node_id),
        "directory.id": _directory(place.run, place.process),
    }


def _directory(run: str, process: str) -> str:
    """The id of the disk that a process formats."""
    return _uuid(f"{run} {process}")


def _uuid(of: str) -> str:
    """22 characters as Kafka writes a UUID, the same for the same text; none begins with a dash."""
    digest = hashlib.sha256(of.encode()).digest()[:16]
    return "F" + base64.urlsafe_b64encode(digest).decode().rstrip("=")[1:]
