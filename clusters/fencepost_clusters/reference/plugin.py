"""The entry point: the reference cluster as a plugin."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost import System, hookimpl
from fencepost_clusters.reference.cluster import ReferenceQuorum


@hookimpl
def fencepost_systems() -> Sequence[System]:
    """`reference/quorum`."""
    return (ReferenceQuorum(),)
