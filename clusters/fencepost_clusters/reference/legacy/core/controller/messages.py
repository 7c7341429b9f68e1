"""The controller's control requests, made from the stored state of the cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from fencepost_clusters.reference.core.cluster.image import Image
from fencepost_clusters.reference.core.node.settings import REPLICATION_LISTENER
from fencepost_clusters.reference.core.replication.cluster_state import Broker, Partition
from fencepost_clusters.reference.core.replication.replica import Key
from fencepost_clusters.reference.legacy.core import znodes
from fencepost_clusters.reference.legacy.core.policies import epoch_sent
from fencepost_clusters.reference.wire import legacy as w

BEING_DELETED = -2
"""The leader in UpdateMetadata of a partition whose topic is in deletion."""


class Sender(Struct, frozen=True):
    """The controller's id and epoch, the versions of znodes that it knows, and its inter-broker
    protocol."""

    id: int
    epoch: int
    versions: Mapping[str, int]
    protocol: int


def _by_topic(image: Image, partitions: Iterable[Partition]) -> dict[str, list[Partition]]:
    found: dict[str, list[Partition]] = {}
    for one in partitions:
        found.setdefault(image.names[one.topic_id], []).append(one)
    return found


def leader_and_isr(
    sender: Sender,
    image: Image,
    broker_epoch: int,
    partitions: Sequence[Partition],
    new: Collection[Key] = (),
) -> w.LeaderAndIsrRequest:
    """A LeaderAndIsr: the broker leads or follows partitions. Those in `new` have just been
    created."""
    leaders = sorted({one.leader for one in partitions if one.leader in image.brokers})
    return w.LeaderAndIsrRequest(
        controller_id=sender.id,
        controller_epoch=sender.epoch,
        broker_epoch=epoch_sent(sender.protocol, broker_epoch),
        topic_states=tuple(
            w.LeaderAndIsrTopic(
                topic_name=name,
                partition_states=tuple(
                    w.LeaderAndIsrPartition(
                        partition_index=one.index,
                        controller_epoch=sender.epoch,
                        leader=one.leader,
                        leader_epoch=one.leader_epoch,
                        isr=one.isr,
                        zk_version=sender.versions[znodes.state(name, one.index)],
                        replicas=one.replicas,
                        is_new=(one.topic_id, one.index) in new,
                    )
                    for one in parts
                ),
            )
            for name, parts in _by_topic(image, partitions).items()
        ),
        live_leaders=tuple(_leader(image.brokers[leader]) for leader in leaders),
    )


def _leader(broker: Broker) -> w.LiveLeader:
    host, port = broker.endpoint(REPLICATION_LISTENER) or ("", -1)
    return w.LiveLeader(broker_id=broker.id, host_name=host, port=port)


def update_metadata(
    sender: Sender,
    image: Image,
    broker_epoch: int,
    partitions: Sequence[Partition],
    announced: Sequence[int],
) -> w.UpdateMetadataRequest:
    """An UpdateMetadata: partitions, and all `announced` brokers."""
    return w.UpdateMetadataRequest(
        controller_id=sender.id,
        controller_epoch=sender.epoch,
        broker_epoch=epoch_sent(sender.protocol, broker_epoch),
        topic_states=tuple(
            w.UpdateMetadataTopic(
                topic_name=name,
                partition_states=tuple(
                    w.UpdateMetadataPartition(
                        partition_index=one.index,
                        controller_epoch=sender.epoch,
                        leader=BEING_DELETED if one.topic_id in image.deleting else one.leader,
                        leader_epoch=one.leader_epoch,
                        isr=one.isr,
                        zk_version=sender.versions[znodes.state(name, one.index)],
                        replicas=one.replicas,
                        offline_replicas=tuple(x for x in one.replicas if x not in announced),
                    )
                    for one in parts
                ),
            )
            for name, parts in _by_topic(image, partitions).items()
        ),
        live_brokers=tuple(
            w.UpdateMetadataBroker(
                id=node,
                endpoints=tuple(
                    w.UpdateMetadataEndpoint(
                        port=port, host=host, listener=name, security_protocol=0
                    )
                    for name, host, port in image.brokers[node].endpoints
                ),
            )
            for node in announced
        ),
    )


def stop_replica(
    sender: Sender,
    image: Image,
    broker_epoch: int,
    partitions: Iterable[Partition],
    delete: bool,
) -> w.StopReplicaRequest:
    """A StopReplica: the broker stops replicas; `delete`: it deletes their data, too."""
    return w.StopReplicaRequest(
        controller_id=sender.id,
        controller_epoch=sender.epoch,
        broker_epoch=epoch_sent(sender.protocol, broker_epoch),
        delete_partitions=delete,
        topics=tuple(
            w.StopReplicaTopic(topic_name=name, partition_indexes=tuple(p.index for p in parts))
            for name, parts in _by_topic(image, partitions).items()
        ),
    )


ControlRequest = w.LeaderAndIsrRequest | w.UpdateMetadataRequest | w.StopReplicaRequest


def api_of(request: ControlRequest) -> str:
    """The request's name in events."""
    return type(request).__name__.removesuffix("Request")


def named(request: ControlRequest) -> tuple[str, ...]:
    """The partitions in a request, as topic-partition."""
    if isinstance(request, w.StopReplicaRequest):
        return tuple(f"{t.topic_name}-{i}" for t in request.topics for i in t.partition_indexes)
    return tuple(
        f"{topic.topic_name}-{one.partition_index}"
        for topic in request.topic_states
        for one in topic.partition_states
    )


def deletes(request: ControlRequest) -> bool:
    """Whether a request deletes the data of the replicas that it stops."""
    return isinstance(request, w.StopReplicaRequest) and request.delete_partitions


def named_brokers(request: ControlRequest) -> tuple[int, ...]:
    """The live brokers in an UpdateMetadata; none for other requests."""
    if not isinstance(request, w.UpdateMetadataRequest):
        return ()
    return tuple(one.id for one in request.live_brokers)
