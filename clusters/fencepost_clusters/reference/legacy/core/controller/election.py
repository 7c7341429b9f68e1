"""The election over /controller: the broker whose session created the ephemeral znode is the
controller, once it has stored its controller epoch in /controller_epoch."""

from __future__ import annotations

from collections.abc import Generator

from msgspec import Struct

from fencepost_clusters.reference.legacy.core import znodes
from fencepost_clusters.reference.over_zookeeper.core.contents import BadZnode, decode, encode
from fencepost_clusters.reference.over_zookeeper.core.session import certain
from fencepost_clusters.zookeeper.client import port as zk


class Won(Struct, frozen=True):
    """This broker is the controller. `version` is that of /controller_epoch; `first`: it is the
    cluster's first controller."""

    epoch: int
    version: int
    first: bool


class Lost(Struct, frozen=True):
    """Another broker is the controller; None: its znode is `unreadable`, for this reason."""

    controller: int | None
    unreadable: str = ""


def stand(me: int, session: int) -> Generator[zk.Request, zk.Answer, Won | Lost]:
    """Stands for election, and watches /controller. Raises Disconnected, or BadZnode if the
    controller epoch is unreadable."""
    wanted = zk.Create(znodes.CONTROLLER, encode(znodes.ControllerInfo(me)), ephemeral=True)
    while True:
        # Whatever the answer is, the znode is read next: the creation may have succeeded in an
        # attempt whose answer was lost.
        certain((yield wanted))
        read = certain((yield zk.GetData(znodes.CONTROLLER, watch=True)))
        if not isinstance(read, zk.Data):
            continue  # the winner's session ended meanwhile
        # By the session and not by the id in it: a former process of this broker may still hold the
        # znode.
        if read.stat.owner == session:
            won = yield from _store_epoch()
            if won is not None:
                return won
            continue
        try:
            info = decode(znodes.CONTROLLER, read.data, znodes.ControllerInfo)
        except BadZnode as bad:
            return Lost(None, str(bad))
        return Lost(info.brokerid)


def resign(session: int) -> Generator[zk.Request, zk.Answer, None]:
    """Deletes /controller if it belongs to this session. Raises Disconnected."""
    read = certain((yield zk.GetData(znodes.CONTROLLER)))
    if isinstance(read, zk.Data) and read.stat.owner == session:
        yield zk.Delete(znodes.CONTROLLER, read.stat.version)


def _store_epoch() -> Generator[zk.Request, zk.Answer, Won | None]:
    """Stores the next controller epoch; None if another broker stored one meanwhile."""
    read = certain((yield zk.GetData(znodes.CONTROLLER_EPOCH)))
    if not isinstance(read, zk.Data):
        made = certain((yield zk.Create(znodes.CONTROLLER_EPOCH, b"1")))
        return Won(1, 0, first=True) if isinstance(made, zk.Created) else None
    epoch = znodes.number(znodes.CONTROLLER_EPOCH, read.data) + 1
    # With the version that was read. Two that take themselves for elected cannot both store an
    # epoch, and each later transaction of the loser fails by its check.
    stored = certain(
        (yield zk.SetData(znodes.CONTROLLER_EPOCH, str(epoch).encode(), read.stat.version))
    )
    return Won(epoch, stored.stat.version, first=False) if isinstance(stored, zk.DataSet) else None
