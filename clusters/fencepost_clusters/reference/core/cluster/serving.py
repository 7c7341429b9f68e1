"""Answers to clients' requests other than Produce and Fetch: pure functions of the image."""

from __future__ import annotations

from fencepost_clusters.reference.core.cluster.image import Image
from fencepost_clusters.reference.core.cluster.policies import ServingPolicies
from fencepost_clusters.reference.core.node.settings import CLIENT_LISTENER, kind_of
from fencepost_clusters.reference.core.replication.cluster_state import Broker
from fencepost_clusters.reference.core.replication.replica import Replica
from fencepost_clusters.reference.core.replication.replicas import Replicas
from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error

EARLIEST = -2
LATEST = -1
LOG_DIR = "data"
"""The name of a broker's folder of logs, for clients."""
GREATEST = -3
"""The record with the greatest time (KIP-734)."""


def metadata(
    image: Image,
    request: m.MetadataRequest,
    me: int,
    cluster_id: str,
    policies: ServingPolicies,
    listener: str = CLIENT_LISTENER,
) -> m.MetadataResponse:
    """Live brokers and topics as committed; fenced brokers are left out (REG-07).

    Brokers have the addresses of the `listener` at which it was asked. `controller_id` names this
    broker: it forwards administrative requests.
    """
    brokers: list[m.MetadataResponseBroker] = []
    for broker in policies.named_brokers(image):
        address = _address(image.brokers[broker], listener)
        if address is not None:
            host, port = address
            brokers.append(m.MetadataResponseBroker(node_id=broker, host=host, port=port))
    there = sorted(name for name, topic in image.topics.items() if topic not in image.deleting)
    every = tuple(m.MetadataRequestTopic(name=name) for name in there)
    live = set(image.live())
    topics = tuple(
        _topic(image, asked, live, policies)
        for asked in (every if request.topics is None else request.topics)
    )
    return m.MetadataResponse(
        brokers=tuple(brokers), cluster_id=cluster_id, controller_id=me, topics=topics
    )


def _address(broker: Broker, listener: str) -> tuple[str, int] | None:
    """Where clients that ask at this listener reach a broker."""
    clients = kind_of(listener) == CLIENT_LISTENER
    return broker.endpoint(listener if clients else CLIENT_LISTENER)


def _topic(
    image: Image, asked: m.MetadataRequestTopic, live: set[int], policies: ServingPolicies
) -> m.MetadataResponseTopic:
    # A client that knows a topic by its id wants that topic, and none of the same name made later.
    if asked.name is None:
        topic_id, unknown = asked.topic_id, Error.UNKNOWN_TOPIC_ID
    else:
        topic_id, unknown = image.topics.get(asked.name), Error.UNKNOWN_TOPIC_OR_PARTITION
    if topic_id is None or topic_id not in image.names or topic_id in image.deleting:
        return m.MetadataResponseTopic(
            error_code=unknown, name=asked.name or "", partitions=(), topic_id=asked.topic_id
        )
    parts = tuple(
        m.MetadataResponsePartition(
            error_code=Error.NONE if one.leader >= 0 else Error.LEADER_NOT_AVAILABLE,
            partition_index=index,
            leader_id=policies.named_leader(one),
            leader_epoch=one.leader_epoch,
            replica_nodes=one.replicas,
            isr_nodes=one.isr,
            offline_replicas=tuple(r for r in one.replicas if r not in live),
        )
        for index, one in sorted(image.partitions[topic_id].items())
    )
    return m.MetadataResponseTopic(
        error_code=Error.NONE, name=image.names[topic_id], partitions=parts, topic_id=topic_id
    )


def list_offsets(
    image: Image, replicas: Replicas, request: m.ListOffsetsRequest
) -> m.ListOffsetsResponse:
    """Earliest, latest (the high watermark), the first record of a time, or that of the greatest.

    A new leader whose high watermark is below the start of its epoch does not know the latest
    offset yet: its own high watermark may be below one that an earlier answer named. The client
    gets a retriable error (KIP-207).
    """
    topics = tuple(
        m.ListOffsetsTopicResponse(
            name=topic.name,
            partitions=tuple(
                _offset(image, replicas, topic.name, asked) for asked in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return m.ListOffsetsResponse(topics=topics)


def _offset(
    image: Image, replicas: Replicas, topic: str, asked: m.ListOffsetsPartition
) -> m.ListOffsetsPartitionResponse:
    index = asked.partition_index
    known = image.partition(topic, index)
    if known is None:
        return m.ListOffsetsPartitionResponse(
            partition_index=index, error_code=Error.UNKNOWN_TOPIC_OR_PARTITION
        )
    one = replicas.get(known.topic_id, index)
    if one is None or not one.leading:
        return m.ListOffsetsPartitionResponse(
            partition_index=index, error_code=Error.NOT_LEADER_OR_FOLLOWER
        )
    error = one.epoch_error(asked.current_leader_epoch)
    if error is not Error.NONE:
        return m.ListOffsetsPartitionResponse(partition_index=index, error_code=error)
    if asked.timestamp < GREATEST:  # tiered storage's, which does not exist here
        return m.ListOffsetsPartitionResponse(
            partition_index=index, error_code=Error.UNSUPPORTED_VERSION
        )
    if asked.timestamp == LATEST and one.high_watermark < one.epoch_start:
        return m.ListOffsetsPartitionResponse(
            partition_index=index, error_code=Error.LEADER_NOT_AVAILABLE
        )
    if asked.timestamp == LATEST:
        return m.ListOffsetsPartitionResponse(
            partition_index=index,
            error_code=Error.NONE,
            offset=one.high_watermark,
            leader_epoch=one.epoch,
        )
    if asked.timestamp == EARLIEST:
        return m.ListOffsetsPartitionResponse(
            partition_index=index, error_code=Error.NONE, offset=one.log.start
        )
    return _searched(one, asked)


def _searched(one: Replica, asked: m.ListOffsetsPartition) -> m.ListOffsetsPartitionResponse:
    """The batch that holds the record; the shell looks into it. A leader that finds none may yet
    learn that more is committed (KIP-207)."""
    index, below = asked.partition_index, one.high_watermark
    greatest = asked.timestamp == GREATEST
    found = one.log.newest(below) if greatest else one.log.with_timestamp(asked.timestamp, below)
    if found is None:
        error = Error.LEADER_NOT_AVAILABLE if below < one.epoch_start else Error.NONE
        return m.ListOffsetsPartitionResponse(partition_index=index, error_code=error)
    return m.ListOffsetsPartitionResponse(
        partition_index=index,
        error_code=Error.NONE,
        leader_epoch=found.epoch,
        search=m.RecordSearch(
            batch=m.LogSlice(log=one.name, start=found.base, end=found.end),
            timestamp=found.max_timestamp if greatest else asked.timestamp,
        ),
    )


def offset_for_leader_epoch(
    image: Image, replicas: Replicas, request: m.OffsetForLeaderEpochRequest
) -> m.OffsetForLeaderEpochResponse:
    """The end offset of an epoch, for clients that check for truncation (KIP-320)."""
    topics = tuple(
        m.OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=tuple(
                _epoch_end(image, replicas, topic.topic, asked) for asked in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return m.OffsetForLeaderEpochResponse(topics=topics)


def _epoch_end(
    image: Image, replicas: Replicas, topic: str, asked: m.OffsetForLeaderPartition
) -> m.OffsetForLeaderResult:
    known = image.partition(topic, asked.partition)
    one = replicas.get(known.topic_id, asked.partition) if known is not None else None
    if one is None or not one.leading:
        error = Error.NOT_LEADER_OR_FOLLOWER
        return m.OffsetForLeaderResult(error_code=error, partition=asked.partition)
    error = one.epoch_error(asked.current_leader_epoch)
    if error is not Error.NONE:
        return m.OffsetForLeaderResult(error_code=error, partition=asked.partition)
    epoch, end = one.log.end_for_epoch(asked.leader_epoch)
    return m.OffsetForLeaderResult(
        error_code=error, partition=asked.partition, leader_epoch=epoch, end_offset=end
    )


def describe_log_dirs(
    image: Image, replicas: Replicas, request: a.DescribeLogDirsRequest
) -> a.DescribeLogDirsResponse:
    """The sizes of this broker's replicas, in its one folder of logs. Kafka's tool asks before it
    begins a reassignment."""
    wanted = None
    if request.topics is not None:
        wanted = {(one.topic, index) for one in request.topics for index in one.partitions}
    found: dict[str, list[a.DescribeLogDirsPartition]] = {}
    for (topic_id, index), one in replicas.by_key.items():
        name = image.names.get(topic_id)
        # A replica whose topic is deleted may be there until its log is removed.
        if name is None or (wanted is not None and (name, index) not in wanted):
            continue
        size = one.log.size(one.log.start, one.log.end)
        lag = max(0, one.high_watermark - one.log.end)
        found.setdefault(name, []).append(
            a.DescribeLogDirsPartition(partition_index=index, partition_size=size, offset_lag=lag)
        )
    topics = tuple(
        a.DescribeLogDirsTopic(name=name, partitions=tuple(parts))
        for name, parts in sorted(found.items())
    )
    only = a.DescribeLogDirsResult(error_code=Error.NONE, log_dir=LOG_DIR, topics=topics)
    return a.DescribeLogDirsResponse(results=(only,))


def find_coordinator(
    image: Image, request: m.FindCoordinatorRequest, me: int, listener: str = CLIENT_LISTENER
) -> m.FindCoordinatorResponse:
    """This broker, for groups, so that their requests fail with a clear error; none for
    transactions. With a retriable error a client would wait for ever."""
    broker = image.brokers.get(me)
    address = _address(broker, listener) if broker is not None else None
    if request.key_type != 0 or address is None:
        error = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return m.FindCoordinatorResponse(
            error_code=error,
            node_id=-1,
            host="",
            port=-1,
            error_message="transactions are not supported",
        )
    host, port = address
    return m.FindCoordinatorResponse(error_code=Error.NONE, node_id=me, host=host, port=port)


def offset_commit(request: m.OffsetCommitRequest) -> m.OffsetCommitResponse:
    """Consumer groups do not exist here, as the error says."""
    return m.OffsetCommitResponse(
        topics=tuple(
            m.OffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    m.OffsetCommitResponsePartition(
                        partition_index=part.partition_index,
                        error_code=Error.GROUP_ID_NOT_FOUND,
                    )
                    for part in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def offset_fetch(request: m.OffsetFetchRequest) -> m.OffsetFetchResponse:
    """No offset is ever committed: -1."""
    return m.OffsetFetchResponse(
        topics=tuple(
            m.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=tuple(
                    m.OffsetFetchResponsePartition(partition_index=index, error_code=Error.NONE)
                    for index in topic.partition_indexes
                ),
            )
            for topic in request.topics or ()
        )
    )
