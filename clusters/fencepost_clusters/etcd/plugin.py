"""What the etcd plugin offers: its events, clients, clauses and rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from fencepost import Clause, Rule, hookimpl
from fencepost_clusters.etcd import rules
from fencepost_clusters.etcd.clauses import CLAUSES
from fencepost_clusters.etcd.events import KINDS


@hookimpl
def fencepost_event_kinds() -> Sequence[type[Struct]]:
    return KINDS


@hookimpl
def fencepost_workloads() -> Mapping[str, Sequence[str]]:
    return {"etcd_clients": ("-m", "fencepost_clusters.etcd.clients.worker")}


@hookimpl
def fencepost_clauses() -> Sequence[Clause]:
    return CLAUSES


@hookimpl
def fencepost_rules() -> Sequence[Rule[Any]]:
    return rules.ALL
