"""Plain messages: the content of requests and responses, in any version on the wire.

Fields have the names of Kafka's schemas (KIP-631's for heartbeats); a field that a version lacks
has a default. Durations (`timeout`, `max_wait`) are milliseconds, error codes integers, topic ids
UUIDs. `records` is bytes, or a `LogSlice` that the shell replaces by the bytes it names.
"""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct

from fencepost_clusters.reference.wire import legacy
from fencepost_clusters.reference.wire.administration import AdminRequest, AdminResponse

METADATA_TOPIC = "__kafka_metadata"
METADATA_TOPIC_ID = UUID(int=1)


class LogSlice(Struct, frozen=True, gc=False, kw_only=True):
    """Whole batches of one log, from the batch at `start` up to (not including) offset `end`."""

    log: str
    start: int
    end: int


Records = bytes | LogSlice | None

# ------------------------------------------------------------------------------ Produce and Fetch


class PartitionProduceData(Struct, frozen=True, gc=False, kw_only=True):
    index: int
    records: bytes | None


class TopicProduceData(Struct, frozen=True, gc=False, kw_only=True):
    name: str
    partition_data: tuple[PartitionProduceData, ...]


class ProduceRequest(Struct, frozen=True, gc=False, kw_only=True):
    acks: int
    timeout: int
    topic_data: tuple[TopicProduceData, ...]
    transactional_id: str | None = None


class PartitionProduceResponse(Struct, frozen=True, gc=False, kw_only=True):
    index: int
    error_code: int
    base_offset: int = -1
    log_start_offset: int = -1


class TopicProduceResponse(Struct, frozen=True, gc=False, kw_only=True):
    name: str
    partition_responses: tuple[PartitionProduceResponse, ...]


class ProduceResponse(Struct, frozen=True, gc=False, kw_only=True):
    responses: tuple[TopicProduceResponse, ...]


class ReplicaState(Struct, frozen=True, gc=False, kw_only=True):
    replica_id: int = -1
    replica_epoch: int = -1


class FetchPartition(Struct, frozen=True, gc=False, kw_only=True):
    partition: int
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1


class FetchTopic(Struct, frozen=True, gc=False, kw_only=True):
    partitions: tuple[FetchPartition, ...]
    topic: str = ""
    topic_id: UUID | None = None


class ForgottenTopic(Struct, frozen=True, gc=False, kw_only=True):
    partitions: tuple[int, ...]
    topic_id: UUID | None = None


class FetchRequest(Struct, frozen=True, gc=False, kw_only=True):
    """In a session (KIP-227) `topics` are the partitions that are new in it or have another
    position, and `forgotten_topics_data` those that leave it."""

    max_wait: int
    min_bytes: int
    max_bytes: int
    topics: tuple[FetchTopic, ...]
    replica_state: ReplicaState = ReplicaState()
    session_id: int = 0
    session_epoch: int = -1
    forgotten_topics_data: tuple[ForgottenTopic, ...] = ()


class EpochEndOffset(Struct, frozen=True, gc=False, kw_only=True):
    epoch: int = -1
    end_offset: int = -1


class LeaderIdAndEpoch(Struct, frozen=True, gc=False, kw_only=True):
    leader_id: int = -1
    leader_epoch: int = -1


class SnapshotId(Struct, frozen=True, gc=False, kw_only=True):
    """A snapshot of the metadata log: its end offset, and the epoch of the last record before
    that."""

    end_offset: int = -1
    epoch: int = -1


class PartitionData(Struct, frozen=True, gc=False, kw_only=True):
    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: int = -1
    log_start_offset: int = -1
    diverging_epoch: EpochEndOffset = EpochEndOffset()
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()
    records: Records = None
    snapshot_id: SnapshotId = SnapshotId()


class FetchableTopicResponse(Struct, frozen=True, gc=False, kw_only=True):
    partitions: tuple[PartitionData, ...]
    topic: str = ""
    topic_id: UUID | None = None


class NodeEndpoint(Struct, frozen=True, gc=False, kw_only=True):
    node_id: int
    host: str
    port: int


class FetchResponse(Struct, frozen=True, gc=False, kw_only=True):
    """`node_endpoints`, for the metadata log, are the quorum's voters and their addresses."""

    error_code: int
    responses: tuple[FetchableTopicResponse, ...]
    session_id: int = 0
    node_endpoints: tuple[NodeEndpoint, ...] = ()


# ------------------------------------------------------------------------- what clients ask about


class MetadataRequestTopic(Struct, frozen=True, gc=False, kw_only=True):
    """`name` None: the topic is named by its id."""

    name: str | None
    topic_id: UUID | None = None


class MetadataRequest(Struct, frozen=True, gc=False, kw_only=True):
    topics: tuple[MetadataRequestTopic, ...] | None


class MetadataResponseBroker(Struct, frozen=True, gc=False, kw_only=True):
    node_id: int
    host: str
    port: int


class MetadataResponsePartition(Struct, frozen=True, gc=False, kw_only=True):
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: tuple[int, ...]
    isr_nodes: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


class MetadataResponseTopic(Struct, frozen=True, gc=False, kw_only=True):
    error_code: int
    name: str
    partitions: tuple[MetadataResponsePartition, ...]
    topic_id: UUID | None = None


class MetadataResponse(Struct, frozen=True, gc=False, kw_only=True):
    brokers: tuple[MetadataResponseBroker, ...]
    cluster_id: str
    controller_id: int
    topics: tuple[MetadataResponseTopic, ...]


class ListOffsetsPartition(Struct, frozen=True, gc=False, kw_only=True):
    partition_index: int
    timestamp: int
    current_leader_epoch: int = -1


class ListOffsetsTopic(Struct, frozen=True, gc=False, kw_only=True):
    name: str
    partitions: tuple[ListOffsetsPartition, ...]


class ListOffsetsRequest(Struct, frozen=True, gc=False, kw_only=True):
    topics: tuple[ListOffsetsTopic, ...]


class RecordSearch(Struct, frozen=True, gc=False, kw_only=True):
    """The first record of one batch with a time, in ms, or a later one."""

    batch: LogSlice
    timestamp: int


class ListOffsetsPartitionResponse(Struct, frozen=True, gc=False, kw_only=True):
    """The shell replaces `search` by the offset and the time of the record that is found."""

    partition_index: int
    error_code: int
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1
    search: RecordSearch | None = None


class ListOffsetsTopicResponse(Struct, frozen=True, gc=False, kw_only=True):
    name: str
    partitions: tuple[ListOffsetsPartitionResponse, ...]


class ListOffsetsResponse(Struct, frozen=True, gc=False, kw_only=True):
    topics: tuple[ListOffsetsTopicResponse, ...]


class OffsetForLeaderPartition(Struct, frozen=True, gc=False, kw_only=True):
    partition: int
    leader_epoch: int
    current_leader_epoch: int = -1


class OffsetForLeaderTopic(Struct, frozen=True, gc=False, kw_only=True):
    topic: str
    partitions: tuple[OffsetForLeaderPartition, ...]


class OffsetForLeaderEpochRequest(Struct, frozen=True, gc=False, kw_only=True):
    topics: tuple[OffsetForLeaderTopic, ...]


class OffsetForLeaderResult(Struct, frozen=True, gc=False, kw_only=True):
    error_code: int
    partition: int
    leader_epoch: int = -1
    end_offset: int = -1


class OffsetForLeaderTopicResult(Struct, frozen=True, gc=False, kw_only=True):
    topic: str
    partitions: tuple[OffsetForLeaderResult, ...]


class OffsetForLeaderEpochResponse(Struct, frozen=True, gc=False, kw_only=True):
    topics: tuple[OffsetForLeaderTopicResult, ...]


class InitProducerIdRequest(Struct, frozen=True, gc=False, kw_only=True):
    transactional_id: str | None


class InitProducerIdResponse(Struct, frozen=True, gc=False, kw_only=True):
    error_code: int
    producer_id: int
    producer_epoch: int


class ApiVersionsRequest(Struct, frozen=True, gc=False, kw_only=True):
    pass


class ApiVersion(Struct, frozen=True, gc=False, kw_only=True):
    api_key: int
    min_version: int
    max_version: int


class ApiVersionsResponse(Struct, frozen=True, gc=False, kw_only=True):
    error_code: int
    api_keys: tuple[ApiVersion, ...]


# ---------------------------------------------------------------------------------- administration


class CreatableReplicaAssignment(Struct, frozen=True, gc=False, kw_only=True):
    partition_index: int
    broker_ids: tuple[int, ...]


class CreatableTopicConfig(Struct, frozen=True, gc=False, kw_only=True):
    name: str
    value: str | None


class CreatableTopic(Struct, frozen=True, gc=False, kw_only=True):
    name: str
    num_partitions: int
    replication_factor: int
    assignments: tuple[CreatableReplicaAssignment, ...] = ()
    configs: tuple[CreatableTopicConfig, ...] = ()


class CreateTopicsRequest(Struct, frozen=True, gc=False, kw_only=True):
    topics: tuple[CreatableTopic, ...]
    timeout: int
    validate_only: bool = False


class CreatableTopicConfigs(Struct, frozen=True, gc=False, kw_only=True):
    """`config_source` as in DescribeConfigs."""

    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool = False


class CreatableTopicResult(Struct, frozen=True, gc=False, kw_only=True):
    """`configs` are the topic's own."""

    name: str
    error_code: int
    topic_id: UUID | None = None
    error_message: str | None = None
    num_partitions: int = -1
    replication_factor: int = -1
    configs: tuple[CreatableTopicConfigs, ...] = ()


class CreateTopicsResponse(Struct, frozen=True, gc=False, kw_only=True):
    topics: tuple[CreatableTopicResult, ...]


class DeleteTopicsRequest(Struct, frozen=True, gc=False, kw_only=True):
    topic_names: tuple[str, ...]
    timeout: int


class DeletableTopicResult(Struct, frozen=True, gc=False, kw_only=True):
    name: str
    error_code: int


class DeleteTopicsResponse(Struct, frozen=True, gc=False, kw_only=True):
    responses: tuple[DeletableTopicResult, ...]


# ------------------------------------------------------ groups: refused, with Kafka's proper errors


class FindCoordinatorRequest(Struct, frozen=True, gc=False, kw_only=True):
    key: str
    key_type: int = 0


class FindCoordinatorResponse(Struct, frozen=True, gc=False, kw_only=True):
    error_code: int
    node_id: int
    host: str
    port: int
    error_message: str | None = None


class OffsetCommitRequestPartition(Struct, frozen=True, gc=False, kw_only=True):
    partition_index: int


class OffsetCommitRequestTopic(Struct, frozen=True, gc=False, kw_only=True):
    name: str
    partitions: tuple[OffsetCommitRequestPartition, ...]


class OffsetCommitRequest(Struct, frozen=True, gc=False, kw_only=True):
    group_id: str
    topics: tuple[OffsetCommitRequestTopic, ...]


class OffsetCommitResponsePartition(Struct, frozen=True, gc=False, kw_only=True):
    partition_index: int
    error_code: int


class OffsetCommitResponseTopic(Struct, frozen=True, gc=False, kw_only=True):
    name: str
    partitions: tuple[OffsetCommitResponsePartition, ...]


class OffsetCommitResponse(Struct, frozen=True, gc=False, kw_only=True):
    topics: tuple[OffsetCommitResponseTopic, ...]


class OffsetFetchRequestTopic(Struct, frozen=True, gc=False, kw_only=True):
    name: str
    partition_indexes: tuple[int, ...]


class OffsetFetchRequest(Struct, frozen=True, gc=False, kw_only=True):
    group_id: str
    topics: tuple[OffsetFetchRequestTopic, ...] | None


class OffsetFetchResponsePartition(Struct, frozen=True, gc=False, kw_only=True):
    partition_index: int
    error_code: int
    committed_offset: int = -1
    metadata: str | None = ""


class OffsetFetchResponseTopic(Struct, frozen=True, gc=False, kw_only=True):
    name: str
    partitions: tuple[OffsetFetchResponsePartition, ...]


class OffsetFetchResponse(Struct, frozen=True, gc=False, kw_only=True):
    topics: tuple[OffsetFetchResponseTopic, ...]
    error_code: int = 0


class JoinGroupRequest(Struct, frozen=True, gc=False, kw_only=True):
    group_id: str
    member_id: str


class JoinGroupResponse(Struct, frozen=True, gc=False, kw_only=True):
    error_code: int
    members: tuple[()] = ()
    protocol_name: str = ""
    leader: str = ""
    member_id: str = ""


# ------------------------------------------------------------------------- the quorum (KIP-595)


class VotePartition(Struct, frozen=True, gc=False, kw_only=True):
    partition_index: int
    replica_epoch: int
    replica_id: int
    last_offset_epoch: int
    last_offset: int


class VoteTopic(Struct, frozen=True, gc=False, kw_only=True):
    topic_name: str
    partitions: tuple[VotePartition, ...]


class VoteRequest(Struct, frozen=True, gc=False, kw_only=True):
    topics: tuple[VoteTopic, ...]
    cluster_id: str | None = None


class VoteResult(Struct, frozen=True, gc=False, kw_only=True):
    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int
    vote_granted: bool


class VoteTopicResult(Struct, frozen=True, gc=False, kw_only=True):
    topic_name: str
    partitions: tuple[VoteResult, ...]


class VoteResponse(Struct, frozen=True, gc=False, kw_only=True):
    error_code: int
    topics: tuple[VoteTopicResult, ...]


class EpochPartition(Struct, frozen=True, gc=False, kw_only=True):
    partition_index: int
    leader_id: int
    leader_epoch: int
    error_code: int = 0
    preferred_successors: tuple[int, ...] = ()


class EpochTopic(Struct, frozen=True, gc=False, kw_only=True):
    topic_name: str
    partitions: tuple[EpochPartition, ...]


class BeginQuorumEpochRequest(Struct, frozen=True, gc=False, kw_only=True):
    topics: tuple[EpochTopic, ...]
    cluster_id: str | None = None


class BeginQuorumEpochResponse(Struct, frozen=True, gc=False, kw_only=True):
    error_code: int
    topics: tuple[EpochTopic, ...]


class EndQuorumEpochRequest(Struct, frozen=True, gc=False, kw_only=True):
    topics: tuple[EpochTopic, ...]
    cluster_id: str | None = None


class EndQuorumEpochResponse(Struct, frozen=True, gc=False, kw_only=True):
    error_code: int
    topics: tuple[EpochTopic, ...]


class PartitionSnapshot(Struct, frozen=True, gc=False, kw_only=True):
    partition: int
    current_leader_epoch: int
    snapshot_id: SnapshotId
    position: int


class TopicSnapshot(Struct, frozen=True, gc=False, kw_only=True):
    name: str
    partitions: tuple[PartitionSnapshot, ...]


class FetchSnapshotRequest(Struct, frozen=True, gc=False, kw_only=True):
    """KIP-630: a part of the snapshot that a fetch was pointed to."""

    replica_id: int
    max_bytes: int
    topics: tuple[TopicSnapshot, ...]
    cluster_id: str | None = None


class PartitionSnapshotData(Struct, frozen=True, gc=False, kw_only=True):
    index: int
    error_code: int
    snapshot_id: SnapshotId
    current_leader: LeaderIdAndEpoch
    size: int
    position: int
    unaligned_records: bytes


class TopicSnapshotData(Struct, frozen=True, gc=False, kw_only=True):
    name: str
    partitions: tuple[PartitionSnapshotData, ...]


class FetchSnapshotResponse(Struct, frozen=True, gc=False, kw_only=True):
    error_code: int
    topics: tuple[TopicSnapshotData, ...]


# ---------------------------------------------------- brokers and the active controller (KIP-631)


class IsrMember(Struct, frozen=True, gc=False, kw_only=True):
    broker_id: int
    broker_epoch: int


class AlterPartitionData(Struct, frozen=True, gc=False, kw_only=True):
    partition_index: int
    leader_epoch: int
    new_isr_with_epochs: tuple[IsrMember, ...]
    leader_recovery_state: int = 0
    partition_epoch: int = -1


class AlterPartitionTopic(Struct, frozen=True, gc=False, kw_only=True):
    topic_id: UUID | None
    partitions: tuple[AlterPartitionData, ...]


class AlterPartitionRequest(Struct, frozen=True, gc=False, kw_only=True):
    """KIP-631's AlterIsr, as Kafka's AlterPartition carries it."""

    broker_id: int
    broker_epoch: int
    topics: tuple[AlterPartitionTopic, ...]


class AlterPartitionResult(Struct, frozen=True, gc=False, kw_only=True):
    partition_index: int
    error_code: int
    leader_id: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    partition_epoch: int = -1


class AlterPartitionTopicResult(Struct, frozen=True, gc=False, kw_only=True):
    topic_id: UUID | None
    partitions: tuple[AlterPartitionResult, ...]


class AlterPartitionResponse(Struct, frozen=True, gc=False, kw_only=True):
    error_code: int
    topics: tuple[AlterPartitionTopicResult, ...]


class Listener(Struct, frozen=True, gc=False, kw_only=True):
    name: str
    host: str
    port: int
    security_protocol: int = 0


class Feature(Struct, frozen=True, gc=False, kw_only=True):
    """The levels of a feature that a broker supports, both included."""

    name: str
    min_level: int
    max_level: int


class BrokerHeartbeatRequest(Struct, frozen=True, gc=False, kw_only=True):
    """KIP-631's heartbeat; the fields after `listeners` are tagged fields."""

    target_state: int
    broker_id: int
    broker_epoch: int
    lease_start_time_ms: int
    cur_metadata_offset: int
    listeners: tuple[Listener, ...]
    incarnation_id: UUID | None = None
    current_state: int = 0
    features: tuple[Feature, ...] = ()


class BrokerHeartbeatResponse(Struct, frozen=True, gc=False, kw_only=True):
    """`controller_epoch` is a tagged field."""

    error_code: int
    active_controller_id: int
    next_state: int
    broker_epoch: int
    lease_end_time_ms: int
    controller_epoch: int = -1


class ControllerHeartbeatRequest(Struct, frozen=True, gc=False, kw_only=True):
    controller_id: int
    last_snapshot_offset: int


class ControllerHeartbeatResponse(Struct, frozen=True, gc=False, kw_only=True):
    error_code: int
    start_snapshot: bool = False


class SaslHandshakeRequest(Struct, frozen=True, gc=False, kw_only=True):
    mechanism: str


class SaslHandshakeResponse(Struct, frozen=True, gc=False, kw_only=True):
    error_code: int
    mechanisms: tuple[str, ...]


class SaslAuthenticateRequest(Struct, frozen=True, gc=False, kw_only=True):
    auth_bytes: bytes


class SaslAuthenticateResponse(Struct, frozen=True, gc=False, kw_only=True):
    error_code: int
    error_message: str | None = None
    auth_bytes: bytes = b""


class RawFrame(Struct, frozen=True, gc=False):
    """A request or an answer as bytes, without their length, for a client that builds and reads
    bytes itself."""

    frame: bytes


Request = (
    ProduceRequest | FetchRequest | MetadataRequest | ListOffsetsRequest
    | OffsetForLeaderEpochRequest | InitProducerIdRequest | ApiVersionsRequest | CreateTopicsRequest
    | DeleteTopicsRequest | FindCoordinatorRequest | OffsetCommitRequest | OffsetFetchRequest
    | JoinGroupRequest | VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest
    | AlterPartitionRequest | BrokerHeartbeatRequest | ControllerHeartbeatRequest | AdminRequest
    | SaslHandshakeRequest | SaslAuthenticateRequest
    | FetchSnapshotRequest | legacy.Request | RawFrame
)  # fmt: skip
Response = (
    ProduceResponse | FetchResponse | MetadataResponse | ListOffsetsResponse
    | OffsetForLeaderEpochResponse | InitProducerIdResponse | ApiVersionsResponse
    | CreateTopicsResponse | DeleteTopicsResponse | FindCoordinatorResponse | OffsetCommitResponse
    | OffsetFetchResponse | JoinGroupResponse | VoteResponse | BeginQuorumEpochResponse
    | EndQuorumEpochResponse | AlterPartitionResponse | BrokerHeartbeatResponse
    | ControllerHeartbeatResponse | AdminResponse | FetchSnapshotResponse
    | SaslHandshakeResponse | SaslAuthenticateResponse | legacy.Response | RawFrame
)  # fmt: skip
