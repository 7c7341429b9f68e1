"""The binary schemas of the messages of the plane over ZooKeeper, declared as kio's own schemas.

KIP-343 gives its messages no API keys, so they have keys above Kafka's. The control requests have
Kafka's keys and versions; KIP-380's schemas name each topic once for all its partitions. None of
these versions has tagged fields. kio builds codecs from real types, so this module must not
postpone the evaluation of annotations.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, dataclass_transform

from kio.schema.request_header.v1.header import RequestHeader
from kio.schema.response_header.v0.header import ResponseHeader
from kio.static.constants import EntityType

METADATA_HEARTBEAT, ISR_CHANGE = 10_343, 10_344
LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, CONTROLLED_SHUTDOWN = 4, 5, 6, 7

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def _entity(kind: EntityType, key: int, version: int) -> Callable[[type[T]], type[T]]:
    """Makes a class a kio entity: a request, a response, or a structure nested in one."""
    header = ResponseHeader if kind is EntityType.response else RequestHeader

    def mark(cls: type[T]) -> type[T]:
        marked: Any = cls
        marked.__type__ = kind
        marked.__version__ = version
        marked.__flexible__ = False
        marked.__api_key__ = key
        marked.__header_schema__ = header
        return dataclass(frozen=True, slots=True, kw_only=True)(cls)

    return mark


def _int8() -> Any:
    return field(metadata={"kafka_type": "int8"})


def _int16() -> Any:
    return field(metadata={"kafka_type": "int16"})


def _int32() -> Any:
    return field(metadata={"kafka_type": "int32"})


def _int64() -> Any:
    return field(metadata={"kafka_type": "int64"})


def _string() -> Any:
    return field(metadata={"kafka_type": "string"})


def _bool() -> Any:
    return field(metadata={"kafka_type": "bool"})


REQUEST, RESPONSE, NESTED = EntityType.request, EntityType.response, EntityType.nested

# --------------------------------------------------------------------------------------- KIP-343


@_entity(REQUEST, METADATA_HEARTBEAT, 0)
class MetadataHeartbeatRequest:
    broker_id: int = _int32()
    incarnation_id: int = _int64()
    target_state: int = _int8()


@_entity(RESPONSE, METADATA_HEARTBEAT, 0)
class MetadataHeartbeatResponse:
    error_code: int = _int16()
    error_string: str | None = _string()
    current_state: int = _int8()


@_entity(NESTED, ISR_CHANGE, 0)
class IsrChangePartition:
    leader_epoch: int = _int32()
    partition_index: int = _int32()
    isr_nodes: tuple[int, ...] = _int32()


@_entity(NESTED, ISR_CHANGE, 0)
class IsrChangeTopic:
    topic_name: str = _string()
    partitions: tuple[IsrChangePartition, ...]


@_entity(REQUEST, ISR_CHANGE, 0)
class IsrChangeRequest:
    broker_id: int = _int32()
    incarnation_id: int = _int64()
    topics: tuple[IsrChangeTopic, ...]


@_entity(NESTED, ISR_CHANGE, 0)
class IsrChangeResult:
    error_code: int = _int16()
    error_message: str | None = _string()


@_entity(RESPONSE, ISR_CHANGE, 0)
class IsrChangeResponse:
    top_level_error_code: int = _int16()
    top_level_error_message: str | None = _string()
    results: tuple[IsrChangeResult, ...]


# ------------------------------------------------------------------------------ control requests


@_entity(NESTED, LEADER_AND_ISR, 2)
class LeaderAndIsrPartition:
    partition_index: int = _int32()
    controller_epoch: int = _int32()
    leader: int = _int32()
    leader_epoch: int = _int32()
    isr: tuple[int, ...] = _int32()
    zk_version: int = _int32()
    replicas: tuple[int, ...] = _int32()
    is_new: bool = _bool()


@_entity(NESTED, LEADER_AND_ISR, 2)
class LeaderAndIsrTopic:
    topic_name: str = _string()
    partition_states: tuple[LeaderAndIsrPartition, ...]


@_entity(NESTED, LEADER_AND_ISR, 2)
class LiveLeader:
    broker_id: int = _int32()
    host_name: str = _string()
    port: int = _int32()


@_entity(REQUEST, LEADER_AND_ISR, 2)
class LeaderAndIsrRequest:
    controller_id: int = _int32()
    controller_epoch: int = _int32()
    broker_epoch: int = _int64()
    topic_states: tuple[LeaderAndIsrTopic, ...]
    live_leaders: tuple[LiveLeader, ...]


@_entity(NESTED, LEADER_AND_ISR, 2)
class PartitionError:
    topic_name: str = _string()
    partition_index: int = _int32()
    error_code: int = _int16()


@_entity(RESPONSE, LEADER_AND_ISR, 2)
class LeaderAndIsrResponse:
    error_code: int = _int16()
    partition_errors: tuple[PartitionError, ...]


@_entity(NESTED, UPDATE_METADATA, 5)
class UpdateMetadataPartition:
    partition_index: int = _int32()
    controller_epoch: int = _int32()
    leader: int = _int32()
    leader_epoch: int = _int32()
    isr: tuple[int, ...] = _int32()
    zk_version: int = _int32()
    replicas: tuple[int, ...] = _int32()
    offline_replicas: tuple[int, ...] = _int32()


@_entity(NESTED, UPDATE_METADATA, 5)
class UpdateMetadataTopic:
    topic_name: str = _string()
    partition_states: tuple[UpdateMetadataPartition, ...]


@_entity(NESTED, UPDATE_METADATA, 5)
class UpdateMetadataEndpoint:
    port: int = _int32()
    host: str = _string()
    listener: str = _string()
    security_protocol: int = _int16()


@_entity(NESTED, UPDATE_METADATA, 5)
class UpdateMetadataBroker:
    id: int = _int32()
    endpoints: tuple[UpdateMetadataEndpoint, ...]
    rack: str | None = _string()


@_entity(REQUEST, UPDATE_METADATA, 5)
class UpdateMetadataRequest:
    controller_id: int = _int32()
    controller_epoch: int = _int32()
    broker_epoch: int = _int64()
    topic_states: tuple[UpdateMetadataTopic, ...]
    live_brokers: tuple[UpdateMetadataBroker, ...]


@_entity(RESPONSE, UPDATE_METADATA, 5)
class UpdateMetadataResponse:
    error_code: int = _int16()


@_entity(NESTED, STOP_REPLICA, 1)
class StopReplicaTopic:
    topic_name: str = _string()
    partition_indexes: tuple[int, ...] = _int32()


@_entity(REQUEST, STOP_REPLICA, 1)
class StopReplicaRequest:
    controller_id: int = _int32()
    controller_epoch: int = _int32()
    broker_epoch: int = _int64()
    delete_partitions: bool = _bool()
    topics: tuple[StopReplicaTopic, ...]


@_entity(RESPONSE, STOP_REPLICA, 1)
class StopReplicaResponse:
    error_code: int = _int16()
    partition_errors: tuple[PartitionError, ...]


@_entity(REQUEST, CONTROLLED_SHUTDOWN, 2)
class ControlledShutdownRequest:
    broker_id: int = _int32()
    broker_epoch: int = _int64()


@_entity(NESTED, CONTROLLED_SHUTDOWN, 2)
class RemainingPartition:
    topic_name: str = _string()
    partition_index: int = _int32()


@_entity(RESPONSE, CONTROLLED_SHUTDOWN, 2)
class ControlledShutdownResponse:
    error_code: int = _int16()
    remaining_partitions: tuple[RemainingPartition, ...]


# -------------------------------------------------------- control requests before KIP-380 (BE-10)
#
# Their responses have the same bytes as in the newer versions.


@_entity(NESTED, LEADER_AND_ISR, 1)
class NamedLeaderAndIsrPartition:
    topic_name: str = _string()
    partition_index: int = _int32()
    controller_epoch: int = _int32()
    leader: int = _int32()
    leader_epoch: int = _int32()
    isr: tuple[int, ...] = _int32()
    zk_version: int = _int32()
    replicas: tuple[int, ...] = _int32()
    is_new: bool = _bool()


@_entity(REQUEST, LEADER_AND_ISR, 1)
class LeaderAndIsrV1:
    controller_id: int = _int32()
    controller_epoch: int = _int32()
    partition_states: tuple[NamedLeaderAndIsrPartition, ...]
    live_leaders: tuple[LiveLeader, ...]


@_entity(NESTED, UPDATE_METADATA, 4)
class NamedUpdateMetadataPartition:
    topic_name: str = _string()
    partition_index: int = _int32()
    controller_epoch: int = _int32()
    leader: int = _int32()
    leader_epoch: int = _int32()
    isr: tuple[int, ...] = _int32()
    zk_version: int = _int32()
    replicas: tuple[int, ...] = _int32()
    offline_replicas: tuple[int, ...] = _int32()


@_entity(REQUEST, UPDATE_METADATA, 4)
class UpdateMetadataV4:
    controller_id: int = _int32()
    controller_epoch: int = _int32()
    partition_states: tuple[NamedUpdateMetadataPartition, ...]
    live_brokers: tuple[UpdateMetadataBroker, ...]


@_entity(NESTED, STOP_REPLICA, 0)
class NamedPartition:
    topic_name: str = _string()
    partition_index: int = _int32()


@_entity(REQUEST, STOP_REPLICA, 0)
class StopReplicaV0:
    controller_id: int = _int32()
    controller_epoch: int = _int32()
    delete_partitions: bool = _bool()
    partitions: tuple[NamedPartition, ...]


@_entity(REQUEST, CONTROLLED_SHUTDOWN, 1)
class ControlledShutdownV1:
    broker_id: int = _int32()
