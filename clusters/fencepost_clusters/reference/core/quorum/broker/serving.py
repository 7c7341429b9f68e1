"""What clients ask of a broker, other than Produce and Fetch: pure answers from the image."""

from __future__ import annotations

from fencepost_clusters.reference.core.node.settings import CLIENT_LISTENER
from fencepost_clusters.reference.core.quorum.broker.policies import BrokerPolicies
from fencepost_clusters.reference.core.quorum.metadata.image import Image
from fencepost_clusters.reference.core.replication.replicas import Replicas
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error

EARLIEST = -2
LATEST = -1


def metadata(
    image: Image, request: m.MetadataRequest, me: int, cluster_id: str, policies: BrokerPolicies
) -> m.MetadataResponse:
    """Live brokers and topics as committed; fenced brokers are left out (REG-07).

    `controller_id` names this broker: it forwards administrative requests.
    """
    brokers: list[m.MetadataResponseBroker] = []
    for broker in policies.named_brokers(image):
        address = image.brokers[broker].endpoint(CLIENT_LISTENER)
        if address is not None:
            brokers.append(m.MetadataResponseBroker(broker, *address))
    there = sorted(name for name, topic in image.topics.items() if topic not in image.deleting)
    wanted = there if request.topics is None else [t.name for t in request.topics]
    live = set(image.live())
    topics = tuple(_topic(image, name, live, policies) for name in wanted)
    return m.MetadataResponse(tuple(brokers), cluster_id, me, topics)


def _topic(
    image: Image, name: str, live: set[int], policies: BrokerPolicies
) -> m.MetadataResponseTopic:
    topic_id = image.topics.get(name)
    if topic_id is None or topic_id in image.deleting:
        return m.MetadataResponseTopic(Error.UNKNOWN_TOPIC_OR_PARTITION, name, ())
    parts = tuple(
        m.MetadataResponsePartition(
            Error.NONE if one.leader >= 0 else Error.LEADER_NOT_AVAILABLE,
            index, policies.named_leader(one), one.leader_epoch, one.replicas, one.isr,
            tuple(r for r in one.replicas if r not in live),
        )
        for index, one in sorted(image.partitions[topic_id].items())
    )  # fmt: skip
    return m.MetadataResponseTopic(Error.NONE, name, parts)


def list_offsets(
    image: Image, replicas: Replicas, request: m.ListOffsetsRequest
) -> m.ListOffsetsResponse:
    """Earliest, latest (the high watermark), or the first offset of a timestamp.

    A new leader whose high watermark lags behind the start of its epoch does not know the latest
    yet, and what it knows may be less than was told before: an error to be retried (KIP-207).
    """
    topics = tuple(
        m.ListOffsetsTopicResponse(
            topic.name,
            tuple(_offset(image, replicas, topic.name, asked) for asked in topic.partitions),
        )
        for topic in request.topics
    )
    return m.ListOffsetsResponse(topics)


def _offset(
    image: Image, replicas: Replicas, topic: str, asked: m.ListOffsetsPartition
) -> m.ListOffsetsPartitionResponse:
    index = asked.partition_index
    known = image.partition(topic, index)
    if known is None:
        return m.ListOffsetsPartitionResponse(index, Error.UNKNOWN_TOPIC_OR_PARTITION)
    one = replicas.get(known.topic_id, index)
    if one is None or not one.leading:
        return m.ListOffsetsPartitionResponse(index, Error.NOT_LEADER_OR_FOLLOWER)
    if asked.timestamp == LATEST and one.high_watermark < one.epoch_start:
        return m.ListOffsetsPartitionResponse(index, Error.LEADER_NOT_AVAILABLE)
    if asked.timestamp == LATEST:
        return m.ListOffsetsPartitionResponse(index, Error.NONE, -1, one.high_watermark)
    if asked.timestamp == EARLIEST:
        return m.ListOffsetsPartitionResponse(index, Error.NONE, -1, one.log.start)
    offset, timestamp = one.log.for_timestamp(asked.timestamp, one.high_watermark)
    return m.ListOffsetsPartitionResponse(index, Error.NONE, timestamp, offset)


def offset_for_leader_epoch(
    image: Image, replicas: Replicas, request: m.OffsetForLeaderEpochRequest
) -> m.OffsetForLeaderEpochResponse:
    """Where the log of an epoch ends, for clients that check for truncation (KIP-320)."""
    topics: list[m.OffsetForLeaderTopicResult] = []
    for topic in request.topics:
        parts: list[m.OffsetForLeaderResult] = []
        for asked in topic.partitions:
            known = image.partition(topic.topic, asked.partition)
            one = replicas.get(known.topic_id, asked.partition) if known is not None else None
            if one is None or not one.leading:
                parts.append(m.OffsetForLeaderResult(Error.NOT_LEADER_OR_FOLLOWER, asked.partition))
                continue
            epoch, end = one.log.end_for_epoch(asked.leader_epoch)
            parts.append(m.OffsetForLeaderResult(Error.NONE, asked.partition, epoch, end))
        topics.append(m.OffsetForLeaderTopicResult(topic.topic, tuple(parts)))
    return m.OffsetForLeaderEpochResponse(tuple(topics))


def find_coordinator(
    image: Image, request: m.FindCoordinatorRequest, me: int
) -> m.FindCoordinatorResponse:
    """This broker, for groups, so that their requests fail with a clear error; none for
    transactions. A retriable error would leave clients waiting without a word."""
    broker = image.brokers.get(me)
    address = broker.endpoint(CLIENT_LISTENER) if broker is not None else None
    if request.key_type != 0 or address is None:
        error = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return m.FindCoordinatorResponse(error, -1, "", -1, "transactions are not supported")
    return m.FindCoordinatorResponse(Error.NONE, me, *address)


def offset_commit(request: m.OffsetCommitRequest) -> m.OffsetCommitResponse:
    """Consumer groups are out of scope: refused, never swallowed."""
    return m.OffsetCommitResponse(
        tuple(
            m.OffsetCommitResponseTopic(
                topic.name,
                tuple(
                    m.OffsetCommitResponsePartition(
                        part.partition_index, Error.GROUP_AUTHORIZATION_FAILED
                    )
                    for part in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def offset_fetch(request: m.OffsetFetchRequest) -> m.OffsetFetchResponse:
    """Nothing is ever committed, and so it says: offset -1."""
    return m.OffsetFetchResponse(
        tuple(
            m.OffsetFetchResponseTopic(
                topic.name,
                tuple(
                    m.OffsetFetchResponsePartition(index, Error.NONE)
                    for index in topic.partition_indexes
                ),
            )
            for topic in request.topics or ()
        )
    )
