"""`apache/attached@cluster.toml`: a cluster of Apache Kafka that somebody else started.

Its file says where its nodes are, and what can be done to them (`fencepost.Attachment`). What is
known of it is what any client could know: its clients' own operations, the answers of its nodes
(`observer`), and what their logs say at INFO. For each promise, `attached.toml` says whether that
is enough to judge it.

Nothing of the user's is changed: topics are made under names of ours (`fencepost.OURS`), consumers
have no group, and no setting is altered.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import Struct

from fencepost import (
    HARNESS,
    OURS,
    AttachedNode,
    Attachment,
    ClientSpec,
    Cluster,
    Command,
    EnvironmentFailed,
    Layout,
    LogParser,
    Place,
    ProcessSpawned,
    Shape,
    Slot,
    Survey,
    UsageError,
    View,
    attachment_in,
    end_of,
    kind_name,
    laid_out,
)
from fencepost_clusters.apache_kafka.attached.asking import (
    Shown,
    Unanswered,
    metadata_by,
    quorum_by,
)
from fencepost_clusters.apache_kafka.attached.draft import drafted
from fencepost_clusters.apache_kafka.attached.log_layout import OwnLayoutParser
from fencepost_clusters.apache_kafka.log_memory import Configured
from fencepost_kafka import ClusterSeen, KafkaView, Role, Timing
from fencepost_kafka.bounds import availability
from fencepost_kafka.clients.workers import LOADED_TOPICS
from fencepost_kafka.facade.cluster import KafkaCluster
from fencepost_kafka.faults.selectors import SELECTORS, select
from fencepost_kafka.probe import kafka_probe
from fencepost_kafka.status import status

NAME = "apache/attached"
OBSERVER = "attached_observer"
DEFAULTS: Mapping[str, str] = {
    "broker.heartbeat.interval.ms": "2000",
    "broker.session.timeout.ms": "9000",
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
    "min.insync.replicas": "1",
    "replica.lag.time.max.ms": "30000",
}
"""Kafka's defaults of the settings by which promises have bounds; the file's `[settings]` name
those that differ."""
_RESTART_MS = 40_000
"""How long a node may take from its start until it is in the cluster, on a busy machine."""
_CLIENT = "fencepost-survey"
_SEEN = kind_name(ClusterSeen)
_SPAWNED = kind_name(ProcessSpawned)
_NAMED = 5


@dataclass(frozen=True, slots=True)
class AttachedKafka:
    """See the module. Without a file it can be named, and not run."""

    file: Path | None = None
    given: Attachment | None = None
    name: str = NAME
    plane: str = "attached"
    version: str = ""

    def at(self, version: str) -> AttachedKafka:
        """The cluster of a file, by its path; raises UsageError as `attachment_in`, and for a
        setting that is no number."""
        path = Path(version).expanduser()
        found = attachment_in(path)
        for setting, value in found.settings.items():
            if setting not in DEFAULTS:
                raise UsageError(f"{path}: [settings] knows {', '.join(DEFAULTS)}, not {setting}")
            if not value.isascii() or not value.isdecimal():
                raise UsageError(f"{path}: {setting} is a whole number in quotes, not {value!r}")
        for node in found.nodes:
            for role in node.roles:
                if role not in (Role.BROKER, Role.CONTROLLER):
                    raise UsageError(f"{path}: {node.name} is a broker, a controller, or both")
        return replace(self, file=path, given=found, name=f"{NAME}@{version}")

    def attachment(self) -> Attachment:
        """See `fencepost.Attached`."""
        if self.given is None:
            raise UsageError(f"{NAME} is attached by a file: name it {NAME}@cluster.toml")
        return self.given

    @property
    def counts(self) -> Mapping[str, int]:
        """None: the file says which nodes there are."""
        return {}

    folds = (KafkaView,)
    """Kafka's view, as far as anything is known."""

    workload = "kafka_clients"
    """confluent-kafka."""

    probe = staticmethod(kafka_probe)
    """ApiVersions."""

    selectors = SELECTORS
    """See `fencepost_kafka.faults.selectors`."""

    select = staticmethod(select)
    """See `fencepost_kafka.faults.selectors`."""

    status = staticmethod(status)
    """See `fencepost_kafka.status`."""

    def layout(self, shape: Shape) -> Layout:
        """The nodes of the file, and its links; raises UsageError for a shape."""
        if shape.settings or shape.defects or shape.spares or shape.own:
            raise UsageError(
                f"{self.name} is as it is: it gets no settings, defects or spare nodes"
            )
        return laid_out(self.attachment(), Role.BROKER)

    def command(self, place: Place, shape: Shape) -> Command:
        """What starts a node again; the first process of a slot runs already."""
        node = self.attachment().named[place.slot.name]
        return Command(node.start or (node.name,))

    def log_parser(self, slot: Slot, shape: Shape) -> LogParser:
        """Makes events of what a node logs in Kafka's own layout."""
        configured = Configured(
            session_ms=self._number("broker.session.timeout.ms"),
            fetch_timeout_ms=self._number("controller.quorum.fetch.timeout.ms"),
            keep_in_sync_ms=self._number("replica.lag.time.max.ms"),
        )
        utc = self.attachment().named[slot.name].in_utc
        return OwnLayoutParser(slot, configured, utc=utc)

    def observers(self, shape: Shape) -> Sequence[ClientSpec]:
        """The client that asks the nodes what they know."""
        options = {"nodes": [[one.id, *end_of(one.address)] for one in self._brokers()]}
        return (ClientSpec("observer", OBSERVER, options),)

    def missing(self, view: View, layout: Layout) -> Sequence[str]:
        """What the nodes' answers and the harness say is lacking."""
        lacks = []
        for slot in layout.nodes():
            if view.newest.get(slot.name, "") not in view.alive:
                lacks.append(f"{slot.name} does not run")
        seen = [one.body for (_, kind), one in view.latest.items() if kind == _SEEN]
        if not seen:
            return (*lacks, "no node has said yet what the cluster has")
        body = seen[-1]
        assert isinstance(body, ClusterSeen)
        spawned = view.latest.get((HARNESS, _SPAWNED))
        if spawned is not None and body.began_ns < spawned.at_ns:
            # It may tell of a node that has ended since, and begins again.
            return (*lacks, "the nodes have not been asked since the last process began")
        lacks += [f"{one.name} does not answer" for one in self._brokers() if one.id in body.silent]
        return (*lacks, *wrong_with(self.attachment(), body.live, body.leaderless, body.short))

    def recovery_bound_ms(self, shape: Shape) -> int:
        """Three sessions and the time of a restart."""
        return self.timing().recovery_bound_ms

    def facade(self, cluster: Cluster) -> KafkaCluster:
        """See `KafkaCluster`: topics of its tests have names of ours."""
        return KafkaCluster(cluster, self.timing(), topics=OURS)

    def timing(self) -> Timing:
        """The durations that the settings imply."""
        lease_ms = self._number("broker.session.timeout.ms")
        election_ms = self._number("controller.quorum.election.timeout.ms")
        return Timing(
            heartbeat_ms=self._number("broker.heartbeat.interval.ms"),
            lease_ms=lease_ms,
            election_ms=election_ms,
            recovery_bound_ms=3 * lease_ms + _RESTART_MS,
            takeover_ms=self._number("controller.quorum.fetch.timeout.ms") + 4 * election_ms,
        )

    def stated(self, shape: Shape) -> Sequence[Struct]:
        """The bounds of its availability."""
        return (availability(self.timing(), self._number),)

    # ------------------------------------------------------------------------- being attached

    makes = tuple(f"the topic {OURS}{one}" for one in LOADED_TOPICS)
    """The topics of the load; a test makes others."""

    drafted = staticmethod(drafted)
    """See `draft`."""

    def tidying(self) -> Sequence[str]:
        """See `fencepost.Attached`: deletes every topic of ours."""
        program = "fencepost_clusters.apache_kafka.attached.tidy"
        return (sys.executable, "-m", program, *(one.address for one in self._brokers()))

    def surveyed(self) -> Survey:
        """See `fencepost.Attached`: the brokers, the topics, and whether clients stay at the
        proxies."""
        found: Shown | None = None
        for node in self._brokers():
            try:
                quorum_by(end_of(node.address), _CLIENT)
                shown = metadata_by(end_of(node.address), _CLIENT)
            except Unanswered as silent:
                raise EnvironmentFailed(f"{node.name}: {silent}") from silent
            found = found or shown
        if found is None:
            raise UsageError(f"{self.name} has no broker")
        leaderless = [f"{one.topic}-{one.partition}" for one in found.partitions if one.leader < 0]
        short = [
            f"{one.topic}-{one.partition}"
            for one in found.partitions
            if set(one.isr) != set(one.replicas)
        ]
        live = tuple(found.brokers)
        wrong = [*wrong_with(self.attachment(), live, leaderless[:_NAMED], short[:_NAMED])]
        wrong += self._strays(found)
        topics = [f"the topic {name}" for name in sorted(found.topics) if not name.startswith(OURS)]
        brokers = [f"broker {one}" for one in sorted(found.brokers)]
        ours = [f"the topic {name}" for name in sorted(found.topics) if name.startswith(OURS)]
        return Survey(has=(*brokers, *topics), ours=tuple(ours), wrong=tuple(wrong))

    def _strays(self, shown: Shown) -> Sequence[str]:
        """The brokers that tell clients another address than that of their proxy: a client would
        leave the proxy with its first answer."""
        listens = {
            one.target: one.listen for one in self.attachment().links if one.source == "clients"
        }
        found = []
        for node in self._brokers():
            told, listen = shown.brokers.get(node.id), listens.get(node.name)
            if told is not None and listen is not None and told != end_of(listen):
                found.append(
                    f"{node.name} tells clients {told[0]}:{told[1]}, and the proxy before it "
                    f"listens at {listen}: they would leave it at once"
                )
        return found

    def _brokers(self) -> Sequence[AttachedNode]:
        return brokers_of(self.attachment())

    def _number(self, setting: str) -> int:
        return int(self.attachment().settings.get(setting, DEFAULTS[setting]))


def brokers_of(attachment: Attachment) -> Sequence[AttachedNode]:
    """The nodes that are brokers: those without a role, too."""
    return [one for one in attachment.nodes if not one.roles or Role.BROKER in one.roles]


def wrong_with(
    attachment: Attachment,
    live: Sequence[int],
    leaderless: Sequence[str],
    short: Sequence[str],
) -> Sequence[str]:
    """What a cluster lacks by its own word, a sentence each."""
    missing = [one for one in brokers_of(attachment) if one.id not in live]
    found = [f"{one.name} is not in the cluster" for one in missing]
    if leaderless:
        found.append(f"no leader: {', '.join(leaderless)}")
    if short:
        found.append(f"not fully in sync: {', '.join(short)}")
    return found
