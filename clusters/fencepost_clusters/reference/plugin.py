"""The entry point: the reference cluster as a plugin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fencepost import System, Workload, hookimpl
from fencepost_clusters.reference.classic.system import ReferenceClassic
from fencepost_clusters.reference.cluster import ReferenceQuorum
from fencepost_clusters.reference.legacy.system import ReferenceLegacy
from fencepost_kafka.clients.workers import kafka_clients


@hookimpl
def fencepost_systems() -> Sequence[System]:
    """`reference/quorum`, `reference/legacy` and `reference/classic`."""
    return (ReferenceQuorum(), ReferenceLegacy(), ReferenceClassic())


@hookimpl
def fencepost_workloads() -> Mapping[str, Workload]:
    """`core_clients`: the clients of simulated runs, on real sockets."""
    argv = ("-m", "fencepost_clusters.reference.shell.client")
    return {"core_clients": Workload(argv, kafka_clients, preload=True)}
