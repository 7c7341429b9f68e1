"""A broker's own znode: made under its session, and never shared with another process."""

from __future__ import annotations

from collections.abc import Callable, Generator

from msgspec import Struct

from fencepost_clusters.reference.core.legacy import registrations, znodes
from fencepost_clusters.reference.core.legacy.registrations import Registration
from fencepost_clusters.reference.core.legacy.session import certain
from fencepost_clusters.zookeeper.client import port as zk


class Made(Struct, frozen=True):
    """The znode stands. `epoch` is its czxid; `former` that of the znode it replaced, if any."""

    epoch: int
    former: int | None
    overwrote: bool


class TakenOver(Struct, frozen=True):
    """Another process has registered under the id since: this one never registers again."""


def make_paths() -> Generator[zk.Request, zk.Answer, None]:
    """Makes what every cluster has in ZooKeeper. Raises Disconnected."""
    for path in znodes.PERSISTENT:
        certain((yield zk.Create(path)))
    empty = znodes.encode(znodes.Config())
    certain((yield zk.Create(znodes.BROKER_CONFIG, empty)))


def register(
    me: int, info: znodes.BrokerInfo, session: int, sessions: frozenset[int], first: bool
) -> Generator[zk.Request, zk.Answer, Made | TakenOver]:
    """Makes the znode (HB-01). Raises Disconnected.

    A process that starts (`first`) takes the id from whatever has it: it deletes that znode and
    makes its own in one transaction, and the newest czxid wins. A process that was registered
    before takes back only what one of its own `sessions` has left.
    """
    path, data = znodes.broker(me), znodes.encode(info)
    former: int | None = None
    overwrote = False
    while True:
        made = certain((yield zk.Create(path, data, ephemeral=True)))
        if isinstance(made, zk.Created) and made.stat is not None:
            return Made(made.stat.czxid, former, overwrote)
        found = certain((yield zk.Exists(path)))
        stat = found.stat if isinstance(found, zk.Found) else None
        if stat is None:
            continue
        if stat.owner == session:
            return Made(stat.czxid, former, overwrote)
        own = stat.owner in sessions
        if not own and not first:
            return TakenOver()
        former = stat.czxid
        overwrote = not own
        certain((yield zk.Multi((zk.Delete(path), zk.Create(path, data, ephemeral=True)))))


class Peers:
    """The registrations of all brokers, read again whenever one changes.

    `changed` is called after each reading.
    """

    def __init__(self, changed: Callable[[], None], rubbish: registrations.Rubbish) -> None:
        self.known: dict[int, Registration] = {}
        self._changed = changed
        self._rubbish = rubbish
        self._reading = False
        self._again = False

    def start(self) -> bool:
        """Whether a reading is to begin now; one that is under way is repeated after its end."""
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
                found = yield from registrations.read_all(self._rubbish)
                self.known.clear()
                self.known.update(found)
                self._changed()
                if not self._again:
                    return
        finally:
            self._reading = False
