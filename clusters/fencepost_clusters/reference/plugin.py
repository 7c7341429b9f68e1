"""The entry point: the reference cluster as a plugin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fencepost import System, hookimpl
from fencepost_clusters.reference.cluster import ReferenceQuorum


@hookimpl
def fencepost_systems() -> Sequence[System]:
    """`reference/quorum`."""
    return (ReferenceQuorum(),)


@hookimpl
def fencepost_workloads() -> Mapping[str, Sequence[str]]:
    """`core_clients`: the clients of simulated runs, on real sockets."""
    return {"core_clients": ("-m", "fencepost_clusters.reference.shell.client")}
