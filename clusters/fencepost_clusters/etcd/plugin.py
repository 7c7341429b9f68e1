"""The entry point: etcd as a plugin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from fencepost import Applicability, Clause, Rule, System, Workload, declared, hookimpl
from fencepost_clusters.etcd import rules
from fencepost_clusters.etcd.events import KINDS
from fencepost_clusters.etcd.system import Etcd
from fencepost_clusters.etcd.workload import WORKLOAD, etcd_clients

DECLARED = declared("fencepost_clusters.etcd", "clauses.toml")


@hookimpl
def fencepost_event_kinds() -> Sequence[type[Struct]]:
    """The event kinds of members and clients."""
    return KINDS


@hookimpl
def fencepost_systems() -> Sequence[System]:
    """`etcd/cluster`."""
    return (Etcd(),)


@hookimpl
def fencepost_workloads() -> Mapping[str, Workload]:
    """`etcd_clients`: registers, a lock and the store that it guards, by the JSON gateway."""
    worker = ("-m", "fencepost_clusters.etcd.clients.worker")
    return {WORKLOAD: Workload(worker, etcd_clients, preload=True)}


@hookimpl
def fencepost_clauses() -> Sequence[Clause]:
    """The promises of etcd."""
    return DECLARED.clauses


@hookimpl
def fencepost_applicability() -> Sequence[Applicability]:
    """What the promises to Kafka's clients are on etcd."""
    return DECLARED.applicability


@hookimpl
def fencepost_rules() -> Sequence[Rule[Any]]:
    """The rules that judge these promises."""
    return rules.ALL
