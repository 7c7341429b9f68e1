"""The entry point: Apache Kafka as a plugin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from fencepost import (
    Applicability,
    Clause,
    KnownFinding,
    Rule,
    System,
    Workload,
    declared,
    hookimpl,
)
from fencepost_clusters.apache_kafka.attached.cluster import OBSERVER as ATTACHED_OBSERVER
from fencepost_clusters.apache_kafka.attached.cluster import AttachedKafka
from fencepost_clusters.apache_kafka.beside_segments import LeaderEpochsFound, ProducersFound
from fencepost_clusters.apache_kafka.cluster import METRICS_READER, OBSERVER, KRaft
from fencepost_clusters.apache_kafka.findings import known_findings
from fencepost_clusters.apache_kafka.log_memory import (
    ControllerFailed,
    FaultReported,
    IsrRequestForgotten,
    QuorumConfigured,
    SessionConfigured,
)
from fencepost_clusters.apache_kafka.metadata.misplaced import ReplicaMisplaced
from fencepost_clusters.apache_kafka.metadata.on_disk import MetadataStateFound
from fencepost_clusters.apache_kafka.metrics import MetricsObserved
from fencepost_clusters.apache_kafka.rules import promises
from fencepost_clusters.apache_kafka.zookeeper_mode.cluster import OBSERVER as ZNODE_OBSERVER
from fencepost_clusters.apache_kafka.zookeeper_mode.cluster import ZooKeeperMode

DECLARED = declared(
    "fencepost_clusters.apache_kafka", "kraft.toml", "zookeeper.toml", "attached.toml"
)


@hookimpl
def fencepost_event_kinds() -> Sequence[type[Struct]]:
    """The kinds about a broker's session, a controller's quorum and failures, faults, what a leader
    forgets, a node's metrics page, misplaced replicas, and the metadata, leader epochs and
    producers on disks."""
    of_logs = (
        *(SessionConfigured, QuorumConfigured, ControllerFailed, FaultReported),
        IsrRequestForgotten,
    )
    of_disks = (MetadataStateFound, LeaderEpochsFound, ProducersFound)
    return (*of_logs, MetricsObserved, ReplicaMisplaced, *of_disks)


@hookimpl
def fencepost_systems() -> Sequence[System]:
    """`apache/kraft` and `apache/zookeeper`, in their default versions and, as
    `apache/kraft@4.1.0`, in others; and `apache/attached@cluster.toml`, which runs already."""
    return (KRaft(), ZooKeeperMode(), AttachedKafka())


@hookimpl
def fencepost_workloads() -> Mapping[str, Workload]:
    """The clients that read the metadata log, metrics pages, and znodes."""
    return {
        OBSERVER: Workload(("-m", "fencepost_clusters.apache_kafka.metadata.observer")),
        ZNODE_OBSERVER: Workload(("-m", "fencepost_clusters.apache_kafka.zookeeper_mode.observer")),
        METRICS_READER: Workload(("-m", "fencepost_clusters.apache_kafka.metrics_reader")),
        ATTACHED_OBSERVER: Workload(("-m", "fencepost_clusters.apache_kafka.attached.observer")),
    }


@hookimpl
def fencepost_clauses() -> Sequence[Clause]:
    """The promises of Kafka that no seed document makes."""
    return DECLARED.clauses


@hookimpl
def fencepost_applicability() -> Sequence[Applicability]:
    """What the promises of the seed documents are in KRaft mode and in ZooKeeper mode."""
    return DECLARED.applicability


@hookimpl
def fencepost_rules() -> Sequence[Rule[Any]]:
    """The rules for these promises."""
    return promises.RULES


@hookimpl
def fencepost_known_findings() -> Sequence[KnownFinding]:
    """The known violations of these promises by Kafka."""
    return known_findings()
