"""A broker's ephemeral znode /brokers/ids/N: it belongs to the session of one process.

A process whose id is taken waits until the other session is over, since that may be its own former
process's. If it outlasts two session timeouts, it is a live one.
"""

from __future__ import annotations

from collections.abc import Generator

from fencepost_clusters.reference.classic.core import znodes
from fencepost_clusters.reference.over_zookeeper.core.contents import encode, format_of
from fencepost_clusters.reference.over_zookeeper.core.registering import (
    Owned,
    Taken,
    make_path,
    own,
)
from fencepost_clusters.reference.over_zookeeper.core.session import certain
from fencepost_clusters.zookeeper.client import port as zk


def make_paths(chroot: str) -> Generator[zk.Request, zk.Answer, None]:
    """Creates the persistent znodes of a cluster that are missing. Raises Disconnected, or BadZnode
    if the chroot does not exist."""
    yield from make_path(znodes.BROKERS, chroot, encode(znodes.BrokerSettings(version=1)))
    for path in znodes.PERSISTENT:
        certain((yield zk.Create(path)))


def other_format() -> Generator[zk.Request, zk.Answer, str]:
    """Why this release cannot join the cluster: its settings have another format, in one sentence.
    Empty if they have this one, or cannot be read at all. Raises Disconnected."""
    read = certain((yield zk.GetData(znodes.BROKERS)))
    found = format_of(read.data) if isinstance(read, zk.Data) else None
    if found is None or found == znodes.FORMAT:
        return ""
    return f"{znodes.BROKERS} has format {found}, but this broker reads format {znodes.FORMAT}"


def register(
    me: int, info: znodes.BrokerInfo, session: int
) -> Generator[zk.Request, zk.Answer, Owned | Taken]:
    """Creates the znode; one that is taken has a watch. Raises Disconnected, or BadZnode if its
    parent is missing."""
    return (yield from own(znodes.broker(me), encode(info), session, watch=True))
