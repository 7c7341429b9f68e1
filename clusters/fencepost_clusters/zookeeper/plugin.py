"""The entry point: the event kinds of ZooKeeper's servers, in the cluster of any system."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from fencepost import hookimpl
from fencepost_clusters.zookeeper.events import KINDS


@hookimpl
def fencepost_event_kinds() -> Sequence[type[Struct]]:
    """The event kinds of servers."""
    return KINDS
