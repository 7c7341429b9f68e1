"""AlterIsr: the request by which a leader of the quorum plane changes its ISR."""

from __future__ import annotations

from collections.abc import Mapping

from fencepost_clusters.reference.core.node.effects import Address, Call
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.node.settings import Settings
from fencepost_clusters.reference.core.quorum.broker.lifecycle import Lifecycle
from fencepost_clusters.reference.core.quorum.raft.raft import Raft
from fencepost_clusters.reference.core.replication.cluster_state import ClusterState
from fencepost_clusters.reference.core.replication.replica import Replica
from fencepost_clusters.reference.core.replication.replicas import IsrOutcome
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error


class AlterIsr:
    """See the module. A granted ISR counts once its record is replayed."""

    learns_by_answer = False

    def __init__(
        self,
        settings: Settings,
        controllers: Mapping[int, Address],
        raft: Raft,
        lifecycle: Lifecycle,
        out: Outbox,
    ) -> None:
        self._settings = settings
        self._controllers = controllers
        self._raft = raft
        self._lifecycle = lifecycle
        self._out = out

    @property
    def broker_epoch(self) -> int:
        """The registered epoch of this broker."""
        return self._lifecycle.epoch

    def can_ask(self) -> bool:
        """Whether the active controller is known."""
        return self._raft.leader is not None and self._raft.leader in self._controllers

    def ask(
        self,
        call_id: int,
        one: Replica,
        members: tuple[int, ...],
        joined: tuple[int, ...],
        state: ClusterState,
    ) -> None:
        """Sends the request to the active controller; it names each member with its broker
        epoch."""
        assert self._raft.leader is not None
        # For a replica that joins: the epoch of the process that has caught up, as its fetches
        # named it. For a member that stays: that of the registration. The controller refuses both
        # if another process has registered since.
        epochs = {
            r: self.broker_epoch
            if r == one.me
            else one.followers[r].broker_epoch
            if r in joined
            else state.brokers[r].epoch
            for r in members
        }
        self._out.add(
            Call(
                call_id=call_id,
                address=self._controllers[self._raft.leader],
                channel="isr",
                message=_request(one, self.broker_epoch, epochs),
                timeout_ms=self._settings.ms("request.timeout.ms"),
            )
        )


def outcome(answer: m.Response) -> IsrOutcome:
    """The outcome in an answer to AlterIsr, for its one partition."""
    assert isinstance(answer, m.AlterPartitionResponse), answer
    if answer.error_code != Error.NONE:
        return IsrOutcome(Error(answer.error_code))
    result = answer.topics[0].partitions[0]
    return IsrOutcome(Error(result.error_code), result.isr, result.leader_epoch)


def _request(one: Replica, broker_epoch: int, epochs: Mapping[int, int]) -> m.AlterPartitionRequest:
    """The request for a partition's next ISR: its members, each with its broker epoch."""
    part = m.AlterPartitionData(
        partition_index=one.index,
        leader_epoch=one.epoch,
        new_isr_with_epochs=tuple(
            m.IsrMember(broker_id=r, broker_epoch=epoch) for r, epoch in epochs.items()
        ),
    )
    topic = m.AlterPartitionTopic(topic_id=one.partition.topic_id, partitions=(part,))
    return m.AlterPartitionRequest(broker_id=one.me, broker_epoch=broker_epoch, topics=(topic,))
