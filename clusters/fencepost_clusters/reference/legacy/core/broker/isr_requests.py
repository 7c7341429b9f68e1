"""How a leader changes its ISR: it asks the controller (HB-16). Below the protocol that brings
IsrChange, it writes the partition's znode itself (HB-22)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import final

from fencepost_clusters.reference.core.node.effects import Address, Call
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.node.settings import Settings
from fencepost_clusters.reference.core.replication.cluster_state import ClusterState
from fencepost_clusters.reference.core.replication.replica import Key, Replica
from fencepost_clusters.reference.core.replication.replicas import IsrOutcome
from fencepost_clusters.reference.legacy.core import znodes
from fencepost_clusters.reference.legacy.core.broker.lifecycle import Lifecycle
from fencepost_clusters.reference.legacy.core.policies import LegacyBrokerPolicies
from fencepost_clusters.reference.over_zookeeper.core.contents import BadZnode, decode, encode
from fencepost_clusters.reference.over_zookeeper.core.session import Session, Task
from fencepost_clusters.reference.wire import legacy as w
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_kafka import PartitionCommitted

Written = Callable[[int, IsrOutcome | None, int], None]
"""Called with the number of a write, its outcome (None: unknown), and the znode's version."""


@dataclass(slots=True)
class KnownZnodes:
    """What the controller's requests say about the partitions' znodes: the version of each, and the
    newest controller epoch."""

    versions: dict[Key, int] = field(default_factory=dict)
    controller_epoch: int = -1


@final
class ZnodeWrites:
    """Writes ISRs to the znodes of the partitions that this broker leads. The caller keeps `known`
    up to date; `written` is called after each write."""

    def __init__(self, session: Session, known: KnownZnodes, written: Written, out: Outbox) -> None:
        self._session = session
        self._known = known
        self._written = written
        self._out = out

    @property
    def connected(self) -> bool:
        """Whether the session takes requests."""
        return self._session.connected is not None

    def write(self, call_id: int, one: Replica, members: tuple[int, ...]) -> None:
        """Begins to store an ISR."""
        self._session.start(self._write(call_id, one, members))

    def _write(self, call_id: int, one: Replica, members: tuple[int, ...]) -> Task:
        """Writes the partition's znode if its version is the one that this leader knows."""
        key = (one.partition.topic_id, one.index)
        path = znodes.state(one.topic, one.index)
        content = znodes.PartitionState(one.me, one.epoch, members, self._known.controller_epoch)
        answer = yield zk.SetData(path, encode(content), self._known.versions[key])
        match answer:
            case zk.DataSet(stat):
                self._wrote(call_id, one, content, stat)
            case zk.Refused(zk.Reason.BAD_VERSION):
                yield from self._read_back(call_id, one, path)
            case zk.Refused():
                self._written(call_id, IsrOutcome(Error.FENCED_LEADER_EPOCH), -1)
            case _:
                self._written(call_id, None, -1)

    def _read_back(self, call_id: int, one: Replica, path: str) -> Task:
        """Reads a znode whose version has changed. If it names this leader in this epoch, it is the
        result of an earlier write without an answer; otherwise this leader is deposed."""
        read = yield zk.GetData(path)
        if not isinstance(read, zk.Data):
            self._written(call_id, None, -1)
            return
        try:
            content = decode(path, read.data, znodes.PartitionState)
        except BadZnode:
            self._written(call_id, IsrOutcome(Error.FENCED_LEADER_EPOCH), -1)
            return
        if (content.leader, content.leader_epoch) == (one.me, one.epoch):
            self._wrote(call_id, one, content, read.stat)
        else:
            self._written(call_id, IsrOutcome(Error.FENCED_LEADER_EPOCH), -1)

    def _wrote(
        self, call_id: int, one: Replica, content: znodes.PartitionState, stat: zk.Stat
    ) -> None:
        """Records that the znode contains this leader's write."""
        self._out.note(
            PartitionCommitted(
                offset=stat.mzxid,
                topic=one.topic,
                partition=one.index,
                leader=one.me,
                leader_epoch=content.leader_epoch,
                isr=content.isr,
                replicas=one.partition.replicas,
                role="broker",
            )
        )
        outcome = IsrOutcome(Error.NONE, content.isr, content.leader_epoch)
        self._written(call_id, outcome, stat.version)


@final
class IsrChanges:
    """See the module."""

    learns_by_answer = True

    def __init__(
        self,
        settings: Settings,
        lifecycle: Lifecycle,
        znodes: ZnodeWrites,
        *,
        controller: Callable[[], tuple[int, Address] | None],
        policies: LegacyBrokerPolicies,
        out: Outbox,
    ) -> None:
        """`controller` returns the controller's broker id and address, if both are known."""
        self._settings = settings
        self._protocol = settings.ms("inter.broker.protocol")
        self._lifecycle = lifecycle
        self._znodes = znodes
        self._controller = controller
        self._policies = policies
        self._out = out
        self.wanted: dict[int, tuple[Key, tuple[int, ...]]] = {}
        """Call -> the partition and the ISR that it requests."""

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration."""
        return self._lifecycle.epoch

    def can_ask(self) -> bool:
        """Whether an ISR can be requested now: of the controller, or by a write to ZooKeeper."""
        if self._lifecycle.lost or not self._lifecycle.is_registered:
            return False
        if self._policies.asks_controller_for_isr(self._protocol):
            return self._controller() is not None
        return self._znodes.connected

    def ask(
        self,
        call_id: int,
        one: Replica,
        members: tuple[int, ...],
        joined: tuple[int, ...],
        state: ClusterState,
    ) -> None:
        """Requests `members` as the ISR."""
        key = (one.partition.topic_id, one.index)
        self.wanted[call_id] = (key, members)
        if not self._policies.asks_controller_for_isr(self._protocol):
            self._znodes.write(call_id, one, members)
            return
        found = self._controller()
        assert found is not None
        partition = w.IsrChangePartition(
            leader_epoch=one.epoch, partition_index=one.index, isr_nodes=members
        )
        request = w.IsrChangeRequest(
            broker_id=one.me,
            incarnation_id=self._lifecycle.epoch,
            topics=(w.IsrChangeTopic(topic_name=one.topic, partitions=(partition,)),),
        )
        timeout_ms = self._settings.ms("request.timeout.ms")
        self._out.add(Call(call_id, found[1], "isr", request, timeout_ms))

    def outcome(self, call_id: int, answer: m.Response) -> IsrOutcome:
        """The outcome in the controller's answer, for the one partition of the request."""
        assert isinstance(answer, w.IsrChangeResponse), answer
        _, members = self.wanted[call_id]
        if answer.top_level_error_code != Error.NONE:
            return IsrOutcome(Error(answer.top_level_error_code))
        error = Error(answer.results[0].error_code)
        return IsrOutcome(error, members if error is Error.NONE else ())
