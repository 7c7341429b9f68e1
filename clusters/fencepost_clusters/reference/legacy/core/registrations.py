"""The registrations of brokers, read from ZooKeeper: the broker epoch and endpoints of each. Every
broker reads them (HB-24), and the controller bases its decisions on them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping

from msgspec import Struct

from fencepost_clusters.reference.legacy.core import znodes
from fencepost_clusters.reference.over_zookeeper.core.contents import BadZnode, decode
from fencepost_clusters.reference.over_zookeeper.core.session import certain
from fencepost_clusters.zookeeper.client import port as zk


class Registration(Struct, frozen=True):
    """A broker's znode: its czxid, which is the broker epoch, and its content."""

    broker: int
    epoch: int
    info: znodes.BrokerInfo
    owner: int

    @property
    def since(self) -> int:
        """The czxid of the process's first registration."""
        return self.epoch if self.info.since < 0 else self.info.since

    def endpoint(self, listener: str) -> tuple[str, int] | None:
        """Host and port of a listener; None if the znode has no address for it (HB-15)."""
        return self.info.endpoint(listener)


Unreadable = Callable[[str], None]
"""Called for each unreadable znode with a sentence that names the reason."""


def read_all(
    unreadable: Unreadable,
) -> Generator[zk.Request, zk.Answer, Mapping[int, Registration]]:
    """Reads and watches every registration, and the list of registrations.

    An unreadable znode is left out. Raises Disconnected.
    """
    listed = certain((yield zk.GetChildren(znodes.BROKER_IDS, watch=True)))
    names = listed.names if isinstance(listed, zk.Children) else ()
    found: dict[int, Registration] = {}
    for name in names:
        read = certain((yield zk.GetData(f"{znodes.BROKER_IDS}/{name}", watch=True)))
        if not isinstance(read, zk.Data):
            continue  # it was deleted after it was listed
        try:
            if not name.isdecimal():
                raise BadZnode(f"{znodes.BROKER_IDS}/{name} is not a broker id")
            info = decode(znodes.broker(int(name)), read.data, znodes.BrokerInfo)
        except BadZnode as bad:
            unreadable(str(bad))
            continue
        found[int(name)] = Registration(int(name), read.stat.czxid, info, read.stat.owner)
    return found
