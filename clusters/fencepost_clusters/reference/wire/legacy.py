"""Messages of the plane over ZooKeeper: KIP-343's two, and the control requests of KIP-380.

The broker epoch in a request is the czxid of a broker's registration (BE-01), and so is KIP-343's
incarnation id (HB-01). A control request of a version before KIP-380 has no broker epoch; the
codec sets it to `NO_EPOCH` (BE-10).
"""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

NO_EPOCH = -1


class BrokerState(IntEnum):
    """KIP-343's states of a broker, as the controller keeps them."""

    INITIAL = 0
    INACTIVE = 1
    ACTIVE = 2
    STOPPING = 3


# --------------------------------------------------------------------------------------- KIP-343


class MetadataHeartbeatRequest(Struct, frozen=True, kw_only=True):
    broker_id: int
    incarnation_id: int
    target_state: int


class MetadataHeartbeatResponse(Struct, frozen=True, kw_only=True):
    error_code: int
    error_string: str | None = None
    current_state: int = BrokerState.INITIAL


class IsrChangePartition(Struct, frozen=True, kw_only=True):
    leader_epoch: int
    partition_index: int
    isr_nodes: tuple[int, ...]


class IsrChangeTopic(Struct, frozen=True, kw_only=True):
    topic_name: str
    partitions: tuple[IsrChangePartition, ...]


class IsrChangeRequest(Struct, frozen=True, kw_only=True):
    broker_id: int
    incarnation_id: int
    topics: tuple[IsrChangeTopic, ...]


class IsrChangeResult(Struct, frozen=True, kw_only=True):
    error_code: int
    error_message: str | None = None


class IsrChangeResponse(Struct, frozen=True, kw_only=True):
    """`results` has one entry per requested partition, in the order of the request (HB-19)."""

    top_level_error_code: int
    top_level_error_message: str | None = None
    results: tuple[IsrChangeResult, ...] = ()


# ------------------------------------------------------------------------------ control requests


class LeaderAndIsrPartition(Struct, frozen=True, kw_only=True):
    partition_index: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    zk_version: int
    replicas: tuple[int, ...]
    is_new: bool


class LeaderAndIsrTopic(Struct, frozen=True, kw_only=True):
    topic_name: str
    partition_states: tuple[LeaderAndIsrPartition, ...]


class LiveLeader(Struct, frozen=True, kw_only=True):
    broker_id: int
    host_name: str
    port: int


class LeaderAndIsrRequest(Struct, frozen=True, kw_only=True):
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    topic_states: tuple[LeaderAndIsrTopic, ...]
    live_leaders: tuple[LiveLeader, ...]


class PartitionError(Struct, frozen=True, kw_only=True):
    topic_name: str
    partition_index: int
    error_code: int


class LeaderAndIsrResponse(Struct, frozen=True, kw_only=True):
    error_code: int
    partition_errors: tuple[PartitionError, ...] = ()


class UpdateMetadataPartition(Struct, frozen=True, kw_only=True):
    partition_index: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    zk_version: int
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]


class UpdateMetadataTopic(Struct, frozen=True, kw_only=True):
    topic_name: str
    partition_states: tuple[UpdateMetadataPartition, ...]


class UpdateMetadataEndpoint(Struct, frozen=True, kw_only=True):
    port: int
    host: str
    listener: str
    security_protocol: int


class UpdateMetadataBroker(Struct, frozen=True, kw_only=True):
    id: int
    endpoints: tuple[UpdateMetadataEndpoint, ...]
    rack: str | None = None


class UpdateMetadataRequest(Struct, frozen=True, kw_only=True):
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    topic_states: tuple[UpdateMetadataTopic, ...]
    live_brokers: tuple[UpdateMetadataBroker, ...]


class UpdateMetadataResponse(Struct, frozen=True, kw_only=True):
    error_code: int


class StopReplicaTopic(Struct, frozen=True, kw_only=True):
    topic_name: str
    partition_indexes: tuple[int, ...]


class StopReplicaRequest(Struct, frozen=True, kw_only=True):
    """Without `delete_partitions`, the replicas stop and keep their data."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    delete_partitions: bool
    topics: tuple[StopReplicaTopic, ...]


class StopReplicaResponse(Struct, frozen=True, kw_only=True):
    error_code: int
    partition_errors: tuple[PartitionError, ...] = ()


class ControlledShutdownRequest(Struct, frozen=True, kw_only=True):
    broker_id: int
    broker_epoch: int


class RemainingPartition(Struct, frozen=True, kw_only=True):
    topic_name: str
    partition_index: int


class ControlledShutdownResponse(Struct, frozen=True, kw_only=True):
    """`remaining_partitions` are the partitions that the broker still leads."""

    error_code: int
    remaining_partitions: tuple[RemainingPartition, ...] = ()


Request = (
    MetadataHeartbeatRequest | IsrChangeRequest | LeaderAndIsrRequest | UpdateMetadataRequest
    | StopReplicaRequest | ControlledShutdownRequest
)  # fmt: skip
Response = (
    MetadataHeartbeatResponse | IsrChangeResponse | LeaderAndIsrResponse | UpdateMetadataResponse
    | StopReplicaResponse | ControlledShutdownResponse
)  # fmt: skip
