"""What a node of a cluster says when it is asked: its quorum, and its metadata.

The questions change nothing. Each goes to one node, whose answer is that of its own image of the
metadata; a node that is cut off from the controllers answers with an old one. So a node is believed
only after it has the controllers' answer about the quorum: it forwards that question, and cannot
answer it alone.
"""

from __future__ import annotations

import io
import socket
import struct
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from kio.schema.delete_topics.v6 import request as delete_request
from kio.schema.delete_topics.v6.response import DeleteTopicsResponse
from kio.schema.describe_quorum.v0 import request as quorum_request
from kio.schema.describe_quorum.v0.response import DescribeQuorumResponse
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.metadata.v12.response import MetadataResponse
from kio.serial import entity_reader, entity_writer
from msgspec import Struct

from fencepost_kafka.security import receive

Address = tuple[str, int]
LIMIT_S: Final = 3.0
_MOST_BYTES = 1 << 26
# kio's annotations give every number a type of its own, which its own coercion undoes: plain values
# work.
_QUORUM: Any = quorum_request
_METADATA: Any = MetadataRequest
_DELETE: Any = delete_request


class Unanswered(Exception):
    """A node did not answer, or refused; the message says which and why."""


class Quorum(Struct, frozen=True):
    """The active controller, its epoch, and the offset up to which metadata are committed."""

    leader: int
    epoch: int
    high_watermark: int


class PartitionShown(Struct, frozen=True):
    """A partition in a node's metadata."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class Shown(Struct, frozen=True):
    """A node's metadata: the address that it tells of each live broker, the id of each topic, and
    every partition."""

    brokers: Mapping[int, Address]
    topics: Mapping[str, str]
    partitions: tuple[PartitionShown, ...]


def quorum_by(address: Address, client: str) -> Quorum:
    """The quorum, by the controllers, through one node; raises Unanswered."""
    places = (_QUORUM.PartitionData(partition_index=0),)
    topics = (_QUORUM.TopicData(topic_name="__cluster_metadata", partitions=places),)
    asked = _QUORUM.DescribeQuorumRequest(topics=topics)
    answer = ask(address, client, asked, DescribeQuorumResponse)
    _check(address, answer.error_code)
    part = answer.topics[0].partitions[0]
    _check(address, part.error_code)
    return Quorum(part.leader_id, part.leader_epoch, part.high_watermark)


def metadata_by(address: Address, client: str) -> Shown:
    """The metadata of one node; raises Unanswered."""
    asked = _METADATA(
        topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    answer = ask(address, client, asked, MetadataResponse)
    partitions = [
        PartitionShown(
            topic=str(topic.name),
            partition=part.partition_index,
            leader=part.leader_id,
            leader_epoch=part.leader_epoch,
            replicas=tuple(part.replica_nodes),
            isr=tuple(part.isr_nodes),
        )
        for topic in answer.topics
        for part in topic.partitions
    ]
    return Shown(
        {one.node_id: (one.host, one.port) for one in answer.brokers},
        {str(one.name): str(one.topic_id) for one in answer.topics},
        tuple(sorted(partitions, key=lambda one: (one.topic, one.partition))),
    )


def delete_topics(address: Address, client: str, topics: tuple[str, ...]) -> Mapping[str, str]:
    """Asks a node to delete topics; the error of each that is not deleted. Raises Unanswered."""
    named = tuple(_DELETE.DeleteTopicState(name=one, topic_id=None) for one in topics)
    asked = _DELETE.DeleteTopicsRequest(topics=named, timeout=timedelta(seconds=LIMIT_S))
    answer = ask(address, client, asked, DeleteTopicsResponse)
    fine = (ErrorCode.none, ErrorCode.unknown_topic_or_partition)
    return {
        str(one.name): one.error_code.name for one in answer.responses if one.error_code not in fine
    }


def ask(address: Address, client: str, asked: Any, response: Any) -> Any:
    """The answer of one node to one request, over a connection of its own; raises Unanswered."""
    where = f"{address[0]}:{address[1]}"
    header = asked.__header_schema__(
        request_api_key=asked.__api_key__, request_api_version=asked.__version__,
        correlation_id=1, client_id=client,
    )  # fmt: skip
    buffer = io.BytesIO()
    entity_writer(type(header))(buffer, header)
    entity_writer(type(asked))(buffer, asked)
    body = buffer.getvalue()
    try:
        with socket.create_connection(address, LIMIT_S) as connection:
            connection.settimeout(LIMIT_S)
            connection.sendall(struct.pack(">i", len(body)) + body)
            size = struct.unpack(">i", receive(connection, 4))[0]
            if not 0 < size <= _MOST_BYTES:
                raise Unanswered(f"{where} answered with {size} bytes, which is not Kafka's way")
            found = receive(connection, size)
    except OSError as failed:
        why = failed.strerror or str(failed) or type(failed).__name__
        raise Unanswered(f"{where} does not answer: {why}") from failed
    try:
        _, at = entity_reader(response.__header_schema__)(found, 0)
        answer, _ = entity_reader(response)(found, at)
    except Exception as odd:  # whatever kio raises at bytes that are not Kafka's
        raise Unanswered(f"{where} gave an answer that cannot be read: {odd}") from odd
    return answer


def _check(address: Address, error: ErrorCode) -> None:
    if error is not ErrorCode.none:
        raise Unanswered(f"{address[0]}:{address[1]} answered {error.name.upper()}")
