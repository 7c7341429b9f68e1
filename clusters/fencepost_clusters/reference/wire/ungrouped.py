"""Control requests of the versions before KIP-380: they have no broker epoch (BE-10), and repeat
the topic name for each partition.

A node handles the newer form only. If the broker epoch of a request is `NO_EPOCH`, the request is
sent in the version without a broker epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct

from fencepost_clusters.reference.wire import legacy as w
from fencepost_clusters.reference.wire import legacy_schemas as z


class NamedLeaderAndIsrPartition(Struct, frozen=True, kw_only=True):
    topic_name: str
    partition_index: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    zk_version: int
    replicas: tuple[int, ...]
    is_new: bool


class LeaderAndIsrV1(Struct, frozen=True, kw_only=True):
    controller_id: int
    controller_epoch: int
    partition_states: tuple[NamedLeaderAndIsrPartition, ...]
    live_leaders: tuple[w.LiveLeader, ...]


class NamedUpdateMetadataPartition(Struct, frozen=True, kw_only=True):
    topic_name: str
    partition_index: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    zk_version: int
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]


class UpdateMetadataV4(Struct, frozen=True, kw_only=True):
    controller_id: int
    controller_epoch: int
    partition_states: tuple[NamedUpdateMetadataPartition, ...]
    live_brokers: tuple[w.UpdateMetadataBroker, ...]


class NamedPartition(Struct, frozen=True, kw_only=True):
    topic_name: str
    partition_index: int


class StopReplicaV0(Struct, frozen=True, kw_only=True):
    controller_id: int
    controller_epoch: int
    delete_partitions: bool
    partitions: tuple[NamedPartition, ...]


class ControlledShutdownV1(Struct, frozen=True, kw_only=True):
    broker_id: int


@dataclass(frozen=True, slots=True)
class Earlier:
    """A version without a broker epoch: its binary schema, its plain class, and the conversion to
    and from the newer form."""

    version: int
    schema: type
    plain: type
    group: Callable[[Any], Any]
    ungroup: Callable[[Any], Any]


def _named(topics: Iterable[Any], kind: Any) -> tuple[Any, ...]:
    """Flattens topics: each partition gets the name of its topic."""
    return tuple(
        kind(topic_name=topic.topic_name, **msgspec.structs.asdict(one))
        for topic in topics
        for one in topic.partition_states
    )


def _by_topic(named: Iterable[Any], topic_kind: Any, kind: Any) -> tuple[Any, ...]:
    """Groups partitions by topic: each topic is named once."""
    found: dict[str, list[Any]] = {}
    for one in named:
        fields = msgspec.structs.asdict(one)
        found.setdefault(fields.pop("topic_name"), []).append(kind(**fields))
    return tuple(
        topic_kind(topic_name=name, partition_states=tuple(parts)) for name, parts in found.items()
    )


def _ungroup_leader_and_isr(asked: w.LeaderAndIsrRequest) -> LeaderAndIsrV1:
    return LeaderAndIsrV1(
        controller_id=asked.controller_id,
        controller_epoch=asked.controller_epoch,
        partition_states=_named(asked.topic_states, NamedLeaderAndIsrPartition),
        live_leaders=asked.live_leaders,
    )


def _group_leader_and_isr(read: LeaderAndIsrV1) -> w.LeaderAndIsrRequest:
    return w.LeaderAndIsrRequest(
        controller_id=read.controller_id,
        controller_epoch=read.controller_epoch,
        broker_epoch=w.NO_EPOCH,
        topic_states=_by_topic(read.partition_states, w.LeaderAndIsrTopic, w.LeaderAndIsrPartition),
        live_leaders=read.live_leaders,
    )


def _ungroup_update_metadata(asked: w.UpdateMetadataRequest) -> UpdateMetadataV4:
    return UpdateMetadataV4(
        controller_id=asked.controller_id,
        controller_epoch=asked.controller_epoch,
        partition_states=_named(asked.topic_states, NamedUpdateMetadataPartition),
        live_brokers=asked.live_brokers,
    )


def _group_update_metadata(read: UpdateMetadataV4) -> w.UpdateMetadataRequest:
    return w.UpdateMetadataRequest(
        controller_id=read.controller_id,
        controller_epoch=read.controller_epoch,
        broker_epoch=w.NO_EPOCH,
        topic_states=_by_topic(
            read.partition_states, w.UpdateMetadataTopic, w.UpdateMetadataPartition
        ),
        live_brokers=read.live_brokers,
    )


def _ungroup_stop_replica(asked: w.StopReplicaRequest) -> StopReplicaV0:
    return StopReplicaV0(
        controller_id=asked.controller_id,
        controller_epoch=asked.controller_epoch,
        delete_partitions=asked.delete_partitions,
        partitions=tuple(
            NamedPartition(topic_name=topic.topic_name, partition_index=index)
            for topic in asked.topics
            for index in topic.partition_indexes
        ),
    )


def _group_stop_replica(read: StopReplicaV0) -> w.StopReplicaRequest:
    found: dict[str, list[int]] = {}
    for one in read.partitions:
        found.setdefault(one.topic_name, []).append(one.partition_index)
    return w.StopReplicaRequest(
        controller_id=read.controller_id,
        controller_epoch=read.controller_epoch,
        broker_epoch=w.NO_EPOCH,
        delete_partitions=read.delete_partitions,
        topics=tuple(
            w.StopReplicaTopic(topic_name=name, partition_indexes=tuple(indexes))
            for name, indexes in found.items()
        ),
    )


def _ungroup_shutdown(asked: w.ControlledShutdownRequest) -> ControlledShutdownV1:
    return ControlledShutdownV1(broker_id=asked.broker_id)


def _group_shutdown(read: ControlledShutdownV1) -> w.ControlledShutdownRequest:
    return w.ControlledShutdownRequest(broker_id=read.broker_id, broker_epoch=w.NO_EPOCH)


EARLIER: Mapping[int, Earlier] = {
    z.LEADER_AND_ISR: Earlier(
        1, z.LeaderAndIsrV1, LeaderAndIsrV1, _group_leader_and_isr, _ungroup_leader_and_isr
    ),
    z.STOP_REPLICA: Earlier(
        0, z.StopReplicaV0, StopReplicaV0, _group_stop_replica, _ungroup_stop_replica
    ),
    z.UPDATE_METADATA: Earlier(
        4, z.UpdateMetadataV4, UpdateMetadataV4, _group_update_metadata, _ungroup_update_metadata
    ),
    z.CONTROLLED_SHUTDOWN: Earlier(
        1, z.ControlledShutdownV1, ControlledShutdownV1, _group_shutdown, _ungroup_shutdown
    ),
}
"""API key -> the version without a broker epoch that nodes serve and send."""


def written_in(key: int, version: int) -> Earlier | None:
    """The earlier form of this API's requests in that version; None: the newer form."""
    earlier = EARLIER.get(key)
    return earlier if earlier is not None and earlier.version == version else None


def needed_for(key: int, request: object) -> Earlier | None:
    """The earlier form in which a request without a broker epoch is sent; None: the newer form."""
    without = getattr(request, "broker_epoch", None) == w.NO_EPOCH
    return EARLIER.get(key) if without else None
