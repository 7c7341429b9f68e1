"""The LeaderAndIsr that gives brokers their roles of one partition."""

from __future__ import annotations

from fencepost_clusters.reference.wire import legacy as w


def roles(
    leader: int,
    epoch: int,
    *,
    isr: tuple[int, ...] = (1, 2),
    replicas: tuple[int, ...] = (1, 2),
    version: int = 0,
    broker_epoch: int = w.NO_EPOCH,
) -> w.LeaderAndIsrRequest:
    """The controller, which is broker 2, makes a broker the leader of orders-0."""
    state = w.LeaderAndIsrPartition(
        partition_index=0,
        controller_epoch=1,
        leader=leader,
        leader_epoch=epoch,
        isr=isr,
        zk_version=version,
        replicas=replicas,
        is_new=False,
    )
    return w.LeaderAndIsrRequest(
        controller_id=2,
        controller_epoch=1,
        broker_epoch=broker_epoch,
        topic_states=(w.LeaderAndIsrTopic(topic_name="orders", partition_states=(state,)),),
        live_leaders=(),
    )
