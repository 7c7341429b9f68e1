"""A broker's ephemeral znode: it belongs to the session of one process."""

from __future__ import annotations

from collections.abc import Callable, Generator

from msgspec import Struct

from fencepost_clusters.reference.legacy.core import registrations, znodes
from fencepost_clusters.reference.legacy.core.registrations import Registration
from fencepost_clusters.reference.over_zookeeper.core.contents import encode
from fencepost_clusters.reference.over_zookeeper.core.registering import Owned, make_path, own
from fencepost_clusters.reference.over_zookeeper.core.session import certain
from fencepost_clusters.zookeeper.client import port as zk


class Made(Struct, frozen=True):
    """The znode is created. `epoch` is its czxid, `former` that of the znode before it, if any."""

    epoch: int
    former: int | None
    overwrote: bool


class TakenOver(Struct, frozen=True):
    """Another process has registered under the id: this process never registers again."""


def make_paths(chroot: str) -> Generator[zk.Request, zk.Answer, None]:
    """Creates the persistent znodes of a cluster that are missing. Raises Disconnected, or BadZnode
    if the chroot does not exist."""
    for path in znodes.PERSISTENT:
        yield from make_path(path, chroot)
    empty = encode(znodes.Config())
    certain((yield zk.Create(znodes.BROKER_CONFIG, empty)))


def register(
    me: int, info: znodes.BrokerInfo, session: int, sessions: frozenset[int], first: bool
) -> Generator[zk.Request, zk.Answer, Made | TakenOver]:
    """Creates the znode (HB-01). Raises Disconnected, or BadZnode if its parent is missing.

    If the znode exists, a process that has never registered (`first`) deletes it and creates its
    own in one transaction; the newest czxid wins. A process that has registered before replaces
    only a znode of one of its own `sessions`.
    """
    path, data = znodes.broker(me), encode(info)
    former: int | None = None
    overwrote = False
    while True:
        found = yield from own(path, data, session)
        if isinstance(found, Owned):
            return Made(found.czxid, former, overwrote)
        is_other = found.session not in sessions
        if is_other and not first:
            return TakenOver()
        former, overwrote = found.czxid, is_other
        # In one transaction, so that there is no moment without a registration: the controller sees
        # one change, to another czxid. Then it looks again, since a third process may have done the
        # same.
        certain((yield zk.Multi((zk.Delete(path), zk.Create(path, data, ephemeral=True)))))


class Peers:
    """The registrations of all brokers, read again after each change.

    `changed` is called after each read.
    """

    def __init__(self, changed: Callable[[], None], unreadable: registrations.Unreadable) -> None:
        self.known: dict[int, Registration] = {}
        self._changed = changed
        self._unreadable = unreadable
        self._reading = False
        self._again = False

    def start(self) -> bool:
        """Whether to begin a read now. If one is under way, it is repeated when it ends."""
        if self._reading:
            self._again = True
            return False
        self._reading = True
        return True

    def read(self) -> Generator[zk.Request, zk.Answer, None]:
        """Reads all registrations, and watches them."""
        try:
            while True:
                self._again = False
                found = yield from registrations.read_all(self._unreadable)
                self.known.clear()
                self.known.update(found)
                self._changed()
                if not self._again:
                    return
        finally:
            self._reading = False
