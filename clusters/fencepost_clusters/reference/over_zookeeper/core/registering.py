"""How a broker registers over ZooKeeper: by an ephemeral znode, which belongs to one session.

The znode goes with the session, so a broker registers anew in each session, and in a session that
was suspended it stays registered. A connection may be lost between the creation of the znode and
its answer. So a znode that exists is looked at before it counts as another process's: one that this
session owns is the result of an attempt without an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import final

from msgspec import Struct

from fencepost_clusters.reference.core.node.deadlines import earliest
from fencepost_clusters.reference.core.node.effects import Instant
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.over_zookeeper.core.contents import BadZnode
from fencepost_clusters.reference.over_zookeeper.core.session import (
    TRY_AGAIN_NS,
    Clock,
    Session,
    Task,
    certain,
)
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_kafka import ZnodeUnreadable


class Owned(Struct, frozen=True):
    """The znode belongs to this session; its czxid is the broker epoch."""

    czxid: int


class Taken(Struct, frozen=True):
    """The znode belongs to another session."""

    czxid: int
    session: int


def make_path(path: str, chroot: str, data: bytes = b"") -> Generator[zk.Request, zk.Answer, None]:
    """Creates a persistent znode unless it exists. Raises Disconnected, or BadZnode if it has no
    parent, since the chroot does not exist then."""
    if _has_no_parent(certain((yield zk.Create(path, data)))):
        raise BadZnode(f"the chroot '{chroot}' of zookeeper.connect does not exist")


def own(
    path: str, data: bytes, session: int, *, watch: bool = False
) -> Generator[zk.Request, zk.Answer, Owned | Taken]:
    """Creates an ephemeral znode in this session; with `watch`, one that is taken is watched.
    Raises Disconnected, or BadZnode if its parent is missing."""
    while True:
        made = certain((yield zk.Create(path, data, ephemeral=True)))
        if isinstance(made, zk.Created) and made.stat is not None:
            return Owned(made.stat.czxid)
        if _has_no_parent(made):
            raise BadZnode(f"{path.rpartition('/')[0]} is missing")
        found = certain((yield zk.Exists(path, watch=watch)))
        stat = found.stat if isinstance(found, zk.Found) else None
        # Otherwise the znode went between the two requests, and the loop creates it.
        if stat is not None:
            mine = stat.owner == session
            return Owned(stat.czxid) if mine else Taken(stat.czxid, stat.owner)


def _has_no_parent(made: zk.Answer) -> bool:
    return isinstance(made, zk.Refused) and made.why is zk.Reason.NO_NODE


@final
class Registering:
    """Has a broker register in each session, and again later where that was not possible.

    `register` is the plane's task for one attempt: it sets `registered_in` once it has succeeded. A
    znode that it cannot use, for which it raises BadZnode, may be mended, so it is tried again.
    """

    def __init__(
        self, session: Session, clock: Clock, register: Callable[[int], Task], out: Outbox
    ) -> None:
        self.registered_in: int | None = None
        """The session that owns this broker's znode, as far as the broker knows."""
        self._session = session
        self._clock = clock
        self._register = register
        self._out = out
        self._again_ns: int | None = None
        """When the next attempt is due, after one that failed."""

    def deadline_ns(self) -> int | None:
        """When the next session is opened, or the next attempt made."""
        return earliest((self._session.deadline_ns(), self._again_ns))

    def tick(self, now: Instant) -> None:
        """Opens the next session, or makes the next attempt, when it is due."""
        self._session.tick(now)
        if self._again_ns is not None and now.monotonic_ns >= self._again_ns:
            self._again_ns = None
            self.start()

    def start(self) -> None:
        """Begins an attempt, if the session takes requests."""
        session = self._session.connected
        if session is not None:
            self._session.start(self._attempt(session))

    def try_again(self, at_ns: int) -> None:
        """The next attempt is made at this time."""
        self._again_ns = at_ns

    def _attempt(self, session: int) -> Task:
        if self.registered_in == session:
            return
        self._again_ns = None
        try:
            yield from self._register(session)
        except BadZnode as bad:
            self._out.note(ZnodeUnreadable(reason=str(bad)))
            self._again_ns = self._clock.now.monotonic_ns + TRY_AGAIN_NS
