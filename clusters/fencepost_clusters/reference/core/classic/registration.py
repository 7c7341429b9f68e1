"""A broker's ephemeral znode /brokers/ids/N: it belongs to the session of one process.

A process whose id is taken waits until the other session is over, since that may be its own former
process's. If it outlasts two session timeouts, it is a live one.
"""

from __future__ import annotations

from collections.abc import Generator

from msgspec import Struct

from fencepost_clusters.reference.core.classic import znodes
from fencepost_clusters.reference.core.zookeeper.contents import BadZnode, encode, format_of
from fencepost_clusters.reference.core.zookeeper.session import certain
from fencepost_clusters.zookeeper.client import port as zk


class Made(Struct, frozen=True):
    """The znode is created; its czxid is the broker epoch."""

    epoch: int


class Taken(Struct, frozen=True):
    """Another session has the id; its znode has this czxid, and a watch."""

    epoch: int
    session: int


def make_paths(chroot: str) -> Generator[zk.Request, zk.Answer, None]:
    """Creates the persistent znodes of a cluster that are missing. Raises Disconnected, or BadZnode
    if the chroot does not exist."""
    settings = encode(znodes.BrokerSettings(version=1))
    made = certain((yield zk.Create(znodes.BROKERS, settings)))
    if isinstance(made, zk.Refused) and made.why is zk.Reason.NO_NODE:
        raise BadZnode(f"the chroot '{chroot}' of zookeeper.connect does not exist")
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
) -> Generator[zk.Request, zk.Answer, Made | Taken]:
    """Creates the znode. Raises Disconnected, or BadZnode if its parent is missing."""
    path = znodes.broker(me)
    while True:
        made = certain((yield zk.Create(path, encode(info), ephemeral=True)))
        if isinstance(made, zk.Created) and made.stat is not None:
            return Made(made.stat.czxid)
        if isinstance(made, zk.Refused) and made.why is zk.Reason.NO_NODE:
            raise BadZnode(f"{znodes.BROKER_IDS} is missing")
        found = certain((yield zk.Exists(path, watch=True)))
        stat = found.stat if isinstance(found, zk.Found) else None
        if stat is None:
            continue
        if stat.owner == session:
            return Made(stat.czxid)
        return Taken(stat.czxid, stat.owner)
