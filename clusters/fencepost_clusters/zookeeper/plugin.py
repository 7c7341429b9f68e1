"""The entry point: what ZooKeeper's servers tell, in the cluster of any system."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from fencepost import hookimpl
from fencepost_clusters.zookeeper.events import KINDS


@hookimpl
def fencepost_event_kinds() -> Sequence[type[Struct]]:
    """What servers log."""
    return KINDS
