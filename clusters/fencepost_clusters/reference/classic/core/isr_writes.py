"""How a leader changes its ISR: it writes the partition's ISR znode itself, as long as its own
leader's znode is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from fencepost_clusters.reference.classic.core import writes, znodes
from fencepost_clusters.reference.classic.core.known import Known, StoredIsr
from fencepost_clusters.reference.classic.core.lifecycle import Lifecycle
from fencepost_clusters.reference.core.replication.cluster_state import ClusterState
from fencepost_clusters.reference.core.replication.replica import Key, Replica
from fencepost_clusters.reference.core.replication.replicas import IsrOutcome
from fencepost_clusters.reference.over_zookeeper.core.contents import BadZnode
from fencepost_clusters.reference.over_zookeeper.core.session import Session, Task
from fencepost_clusters.reference.wire.errors import Error
from fencepost_clusters.zookeeper.client import port as zk

Written = Callable[[int, Key, IsrOutcome | None], None]
"""Called with the number of a write, its partition, and its outcome (None: unknown)."""


@final
class IsrWrites:
    """See the module; it is what `Replicas` asks for ISR changes."""

    learns_by_answer = True

    def __init__(
        self, known: Known, lifecycle: Lifecycle, session: Session, written: Written
    ) -> None:
        self._known = known
        self._lifecycle = lifecycle
        self._session = session
        self._written = written

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration."""
        return self._lifecycle.epoch

    def can_ask(self) -> bool:
        """Whether the session takes writes now."""
        return self._session.connected is not None and self._lifecycle.registered

    def ask(
        self,
        call_id: int,
        one: Replica,
        members: tuple[int, ...],
        joined: tuple[int, ...],
        state: ClusterState,
    ) -> None:
        """Begins to store `members` as the ISR."""
        self._session.start(self._write(call_id, one, members))

    def _write(self, call_id: int, one: Replica, members: tuple[int, ...]) -> Task:
        content = writes.isr_with(self._known, one.partition, members)
        leads = zk.Check(znodes.leader(one.topic, one.index))
        isr = writes.isr_write(self._known, one.partition, content)
        answer = yield zk.Multi((leads, isr))
        match answer:
            case zk.Done(results) if isinstance(results[-1], zk.DataSet):
                stat = results[-1].stat
                self._wrote(call_id, one, StoredIsr(content, stat.version), stat.mzxid)
            # Refused: either this leader is deposed, or an earlier write of it succeeded without an
            # answer. Only the znode tells.
            case zk.Done() | zk.Refused():
                yield from self._read_back(call_id, one)
            case _:
                self._written(call_id, one.key, None)

    def _read_back(self, call_id: int, one: Replica) -> Task:
        """Reads an ISR that could not be stored. If it is of this leader's epoch, it is the result
        of an earlier write without an answer, or of a reassignment that was called off; otherwise
        this leader is deposed."""
        path = znodes.isr(one.topic, one.index)
        leads = yield zk.Exists(znodes.leader(one.topic, one.index))
        read = yield zk.GetData(path)
        if not isinstance(read, zk.Data) or not isinstance(leads, zk.Found):
            self._written(call_id, one.key, None)
            return
        try:
            content = znodes.isr_of(path, read.data)
        except BadZnode:
            self._written(call_id, one.key, IsrOutcome(Error.FENCED_LEADER_EPOCH))
            return
        mine = leads.stat is not None and leads.stat.owner == self._session.connected
        if mine and (content.leader, content.epoch) == (one.me, one.epoch):
            self._wrote(call_id, one, StoredIsr(content, read.stat.version), read.stat.mzxid)
        else:
            self._written(call_id, one.key, IsrOutcome(Error.FENCED_LEADER_EPOCH))

    def _wrote(self, call_id: int, one: Replica, stored: StoredIsr, offset: int) -> None:
        """Applies an ISR that is stored, and reports it."""
        known = self._known.isrs.get(one.key)
        # The broker has read of a later election while this write was under way.
        if known is None or known.content.epoch != stored.content.epoch:
            self._written(call_id, one.key, IsrOutcome(Error.FENCED_LEADER_EPOCH))
            return
        self._known.set_isr(one.key, stored, offset)
        content = stored.content
        outcome = IsrOutcome(Error.NONE, content.isr, content.epoch)
        self._written(call_id, one.key, outcome)
