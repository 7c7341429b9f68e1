"""The requests behind an administrator's commands, and where their answers hold the error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from fencepost import AdminCommand, CreateTopic, DeleteTopic, DescribeCluster, ListTopics
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch


class Asked(Struct, frozen=True):
    """A request, what it is called in events, and how to read the error out of its answer."""

    api: str
    subject: str
    request: m.Request
    error_in: Callable[[Any], int]
    reads_only: bool = False


def ask_admin(command: AdminCommand, limit_ms: int) -> Asked:
    """What a command asks of the cluster."""
    match command:
        case CreateTopic():
            configs = tuple(m.CreatableTopicConfig(k, v) for k, v in command.config.items())
            new = m.CreatableTopic(
                command.topic, command.partitions, command.replication, configs=configs
            )
            request = m.CreateTopicsRequest((new,), limit_ms)
            return Asked("create_topic", command.topic, request, lambda a: a.topics[0].error_code)
        case DeleteTopic():
            return Asked(
                "delete_topic",
                command.topic,
                m.DeleteTopicsRequest((command.topic,), limit_ms),
                lambda a: a.responses[0].error_code,
            )
        case ListTopics():
            return Asked("list_topics", "", m.MetadataRequest(None), _no_error, True)
        case DescribeCluster():
            return Asked("describe_cluster", "", m.MetadataRequest(()), _no_error, True)


def _no_error(answer: Any) -> int:
    return 0


def count_records(data: bytes) -> int:
    """How many messages are in whole record batches."""
    return sum(header.count for header, _ in record_batch.split(data, verify=False))
