"""Plain messages of administration: reassignment, elections, settings, the quorum, deletion.

As in `messages`, which has the messages about topics, fields have the names of Kafka's schemas.
Rebalance is this cluster's own: Kafka leaves that arithmetic to a tool.
"""

from __future__ import annotations

from msgspec import Struct

# ---------------------------------------------------------------------------------- reassignment


class ReassignablePartition(Struct, frozen=True, kw_only=True):
    """`replicas` None: the reassignment under way is called off."""

    partition_index: int
    replicas: tuple[int, ...] | None


class ReassignableTopic(Struct, frozen=True, kw_only=True):
    name: str
    partitions: tuple[ReassignablePartition, ...]


class AlterPartitionReassignmentsRequest(Struct, frozen=True, kw_only=True):
    timeout: int
    topics: tuple[ReassignableTopic, ...]


class ReassignablePartitionResponse(Struct, frozen=True, kw_only=True):
    partition_index: int
    error_code: int
    error_message: str | None = None


class ReassignableTopicResponse(Struct, frozen=True, kw_only=True):
    name: str
    partitions: tuple[ReassignablePartitionResponse, ...]


class AlterPartitionReassignmentsResponse(Struct, frozen=True, kw_only=True):
    error_code: int
    responses: tuple[ReassignableTopicResponse, ...]
    error_message: str | None = None


class ListPartitionReassignmentsTopics(Struct, frozen=True, kw_only=True):
    name: str
    partition_indexes: tuple[int, ...]


class ListPartitionReassignmentsRequest(Struct, frozen=True, kw_only=True):
    timeout: int
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None


class OngoingPartitionReassignment(Struct, frozen=True, kw_only=True):
    partition_index: int
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


class OngoingTopicReassignment(Struct, frozen=True, kw_only=True):
    name: str
    partitions: tuple[OngoingPartitionReassignment, ...]


class ListPartitionReassignmentsResponse(Struct, frozen=True, kw_only=True):
    error_code: int
    topics: tuple[OngoingTopicReassignment, ...]
    error_message: str | None = None


class RebalanceRequest(Struct, frozen=True, kw_only=True):
    """`brokers`: those that get replicas, with as few moves as possible; none: every partition is
    placed again."""

    timeout: int
    brokers: tuple[int, ...]


class RebalanceResponse(Struct, frozen=True, kw_only=True):
    """`moved` is how many partitions are being reassigned."""

    error_code: int
    moved: int = 0
    error_message: str | None = None


# -------------------------------------------------------------------------------------- log dirs


class DescribableLogDirTopic(Struct, frozen=True, kw_only=True):
    topic: str
    partitions: tuple[int, ...]


class DescribeLogDirsRequest(Struct, frozen=True, kw_only=True):
    """`topics` None: every replica of the broker."""

    topics: tuple[DescribableLogDirTopic, ...] | None


class DescribeLogDirsPartition(Struct, frozen=True, kw_only=True):
    """`partition_size` in bytes."""

    partition_index: int
    partition_size: int
    offset_lag: int
    is_future_key: bool = False


class DescribeLogDirsTopic(Struct, frozen=True, kw_only=True):
    name: str
    partitions: tuple[DescribeLogDirsPartition, ...]


class DescribeLogDirsResult(Struct, frozen=True, kw_only=True):
    """`total_bytes` and `usable_bytes` are -1: not known."""

    error_code: int
    log_dir: str
    topics: tuple[DescribeLogDirsTopic, ...]
    total_bytes: int = -1
    usable_bytes: int = -1


class DescribeLogDirsResponse(Struct, frozen=True, kw_only=True):
    results: tuple[DescribeLogDirsResult, ...]
    error_code: int = 0


# ------------------------------------------------------------------------------------ partitions


class CreatePartitionsAssignment(Struct, frozen=True, kw_only=True):
    broker_ids: tuple[int, ...]


class CreatePartitionsTopic(Struct, frozen=True, kw_only=True):
    """`count` is of the old and new partitions; `assignments`: the brokers of each new one, None to
    have them placed."""

    name: str
    count: int
    assignments: tuple[CreatePartitionsAssignment, ...] | None = None


class CreatePartitionsRequest(Struct, frozen=True, kw_only=True):
    topics: tuple[CreatePartitionsTopic, ...]
    timeout: int
    validate_only: bool = False


class CreatePartitionsTopicResult(Struct, frozen=True, kw_only=True):
    name: str
    error_code: int
    error_message: str | None = None


class CreatePartitionsResponse(Struct, frozen=True, kw_only=True):
    results: tuple[CreatePartitionsTopicResult, ...]


# ------------------------------------------------------------------------------------- elections


class TopicPartitions(Struct, frozen=True, kw_only=True):
    topic: str
    partitions: tuple[int, ...]


class ElectLeadersRequest(Struct, frozen=True, kw_only=True):
    """`election_type` 0 elects the preferred replica; `topic_partitions` None: all partitions."""

    election_type: int
    topic_partitions: tuple[TopicPartitions, ...] | None
    timeout: int


class PartitionResult(Struct, frozen=True, kw_only=True):
    partition_id: int
    error_code: int
    error_message: str | None = None


class ReplicaElectionResult(Struct, frozen=True, kw_only=True):
    topic: str
    partition_result: tuple[PartitionResult, ...]


class ElectLeadersResponse(Struct, frozen=True, kw_only=True):
    error_code: int
    replica_election_results: tuple[ReplicaElectionResult, ...]


# -------------------------------------------------------------------------------------- settings


class AlterableConfig(Struct, frozen=True, kw_only=True):
    """`config_operation`: 0 sets, 1 deletes."""

    name: str
    config_operation: int
    value: str | None


class AlterConfigsResource(Struct, frozen=True, kw_only=True):
    resource_type: int
    resource_name: str
    configs: tuple[AlterableConfig, ...]


class IncrementalAlterConfigsRequest(Struct, frozen=True, kw_only=True):
    resources: tuple[AlterConfigsResource, ...]
    validate_only: bool = False


class AlterConfigsResourceResponse(Struct, frozen=True, kw_only=True):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


class IncrementalAlterConfigsResponse(Struct, frozen=True, kw_only=True):
    responses: tuple[AlterConfigsResourceResponse, ...]


class DescribeConfigsResource(Struct, frozen=True, kw_only=True):
    resource_type: int
    resource_name: str
    configuration_keys: tuple[str, ...] | None


class DescribeConfigsRequest(Struct, frozen=True, kw_only=True):
    resources: tuple[DescribeConfigsResource, ...]


class DescribeConfigsResourceResult(Struct, frozen=True, kw_only=True):
    """`config_source`: 1 the topic, 3 all brokers, 4 this broker, 5 a default."""

    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool = False


class DescribeConfigsResult(Struct, frozen=True, kw_only=True):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    configs: tuple[DescribeConfigsResourceResult, ...] = ()


class DescribeConfigsResponse(Struct, frozen=True, kw_only=True):
    results: tuple[DescribeConfigsResult, ...]


# ------------------------------------------------------------------------- brokers and controllers


class UnregisterBrokerRequest(Struct, frozen=True, kw_only=True):
    broker_id: int


class UnregisterBrokerResponse(Struct, frozen=True, kw_only=True):
    error_code: int
    error_message: str | None = None


class QuorumPartition(Struct, frozen=True, kw_only=True):
    partition_index: int


class QuorumTopic(Struct, frozen=True, kw_only=True):
    topic_name: str
    partitions: tuple[QuorumPartition, ...]


class DescribeQuorumRequest(Struct, frozen=True, kw_only=True):
    topics: tuple[QuorumTopic, ...]


class QuorumReplica(Struct, frozen=True, kw_only=True):
    replica_id: int
    log_end_offset: int
    last_fetch_timestamp: int = -1
    last_caught_up_timestamp: int = -1


class QuorumPartitionResult(Struct, frozen=True, kw_only=True):
    partition_index: int
    error_code: int
    leader_id: int = -1
    leader_epoch: int = -1
    high_watermark: int = -1
    current_voters: tuple[QuorumReplica, ...] = ()
    observers: tuple[QuorumReplica, ...] = ()


class QuorumTopicResult(Struct, frozen=True, kw_only=True):
    topic_name: str
    partitions: tuple[QuorumPartitionResult, ...]


class DescribeQuorumResponse(Struct, frozen=True, kw_only=True):
    error_code: int
    topics: tuple[QuorumTopicResult, ...]


class RaftVoterListener(Struct, frozen=True, kw_only=True):
    name: str
    host: str
    port: int


class AddRaftVoterRequest(Struct, frozen=True, kw_only=True):
    """KIP-853's request to make a controller a voter."""

    cluster_id: str | None
    timeout: int
    voter_id: int
    listeners: tuple[RaftVoterListener, ...]


class AddRaftVoterResponse(Struct, frozen=True, kw_only=True):
    error_code: int
    error_message: str | None = None


class RemoveRaftVoterRequest(Struct, frozen=True, kw_only=True):
    """KIP-853's request to remove a controller from the voters."""

    cluster_id: str | None
    voter_id: int


class RemoveRaftVoterResponse(Struct, frozen=True, kw_only=True):
    error_code: int
    error_message: str | None = None


AdminRequest = (
    AlterPartitionReassignmentsRequest | ListPartitionReassignmentsRequest | RebalanceRequest
    | ElectLeadersRequest | IncrementalAlterConfigsRequest | DescribeConfigsRequest
    | UnregisterBrokerRequest | DescribeQuorumRequest | AddRaftVoterRequest
    | RemoveRaftVoterRequest | CreatePartitionsRequest | DescribeLogDirsRequest
)  # fmt: skip
AdminResponse = (
    AlterPartitionReassignmentsResponse | ListPartitionReassignmentsResponse | RebalanceResponse
    | ElectLeadersResponse | IncrementalAlterConfigsResponse | DescribeConfigsResponse
    | UnregisterBrokerResponse | DescribeQuorumResponse | AddRaftVoterResponse
    | RemoveRaftVoterResponse | CreatePartitionsResponse | DescribeLogDirsResponse
)  # fmt: skip
