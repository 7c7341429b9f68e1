"""The requests for an administrator's commands, and the place of the error in their answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from fencepost_clusters.reference.core.cluster import changes
from fencepost_clusters.reference.core.cluster.image import TOPIC_RESOURCE
from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import (
    AddBrokers,
    AdminCommand,
    AlterSettings,
    CreateTopic,
    DeleteBroker,
    DeleteTopic,
    DescribeCluster,
    ElectPreferred,
    ListReassignments,
    ListTopics,
    Reassign,
    Rebalance,
)


class AdminRequest(Struct, frozen=True):
    """A request, its name in events, and the function that reads the error in its answer."""

    api: str
    subject: str
    request: m.Request
    error_in: Callable[[Any], int]
    reads_only: bool = False
    details_in: Callable[[Any], tuple[str, ...]] = lambda answer: ()


def ask_admin(command: AdminCommand, limit_ms: int) -> AdminRequest:
    """The request for a command."""
    match command:
        case CreateTopic():
            configs = tuple(
                m.CreatableTopicConfig(name=k, value=v) for k, v in command.config.items()
            )
            new = m.CreatableTopic(
                name=command.topic,
                num_partitions=command.partitions,
                replication_factor=command.replication,
                configs=configs,
            )
            request = m.CreateTopicsRequest(topics=(new,), timeout=limit_ms)
            return AdminRequest(
                "create_topic", command.topic, request, lambda a: a.topics[0].error_code
            )
        case DeleteTopic():
            return AdminRequest(
                "delete_topic",
                command.topic,
                m.DeleteTopicsRequest(topic_names=(command.topic,), timeout=limit_ms),
                lambda a: a.responses[0].error_code,
            )
        case ListTopics():
            return AdminRequest("list_topics", "", m.MetadataRequest(topics=None), _no_error, True)
        case DescribeCluster():
            return AdminRequest(
                "describe_cluster", "", m.MetadataRequest(topics=()), _no_error, True
            )
        case Reassign():
            topics = tuple(_reassigned(*move) for move in command.moves)
            asked = a.AlterPartitionReassignmentsRequest(timeout=limit_ms, topics=topics)
            subject = ",".join(f"{t}-{p}" for t, p, _ in command.moves)
            return AdminRequest("reassign", subject, asked, _first_error)
        case ListReassignments():
            listing = a.ListPartitionReassignmentsRequest(timeout=limit_ms, topics=None)
            return AdminRequest(
                "list_reassignments", "", listing, _first_error, True, details_in=_under_way
            )
        case ElectPreferred():
            places = (a.TopicPartitions(topic=command.topic, partitions=command.partitions),)
            election = a.ElectLeadersRequest(
                election_type=0, topic_partitions=places, timeout=limit_ms
            )
            return AdminRequest("elect_preferred", command.topic, election, _election_error)
        case AlterSettings():
            changed = tuple(
                a.AlterableConfig(name=k, config_operation=0, value=v)
                for k, v in command.config.items()
            )
            resource = a.AlterConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name=command.topic, configs=changed
            )
            altering = a.IncrementalAlterConfigsRequest(resources=(resource,))
            return AdminRequest("alter_settings", command.topic, altering, _first_error)
        case DeleteBroker():
            deletion = a.UnregisterBrokerRequest(broker_id=command.broker)
            return AdminRequest("delete_broker", str(command.broker), deletion, _first_error)
        case AddBrokers():
            adding = a.RebalanceRequest(timeout=limit_ms, brokers=command.brokers)
            return AdminRequest(
                "add_brokers", ",".join(map(str, command.brokers)), adding, _first_error
            )
        case Rebalance():
            return AdminRequest(
                "rebalance", "", a.RebalanceRequest(timeout=limit_ms, brokers=()), _first_error
            )


def _reassigned(topic: str, partition: int, replicas: tuple[int, ...]) -> a.ReassignableTopic:
    part = a.ReassignablePartition(partition_index=partition, replicas=replicas or None)
    return a.ReassignableTopic(name=topic, partitions=(part,))


def _first_error(answer: Any) -> int:
    return next(changes.errors(answer), Error.NONE)


def _election_error(answer: Any) -> int:
    """As in confluent-kafka: the error of one partition without an election."""
    harmless = (Error.NONE, Error.ELECTION_NOT_NEEDED)
    return next((e for e in changes.errors(answer) if e not in harmless), Error.NONE)


def _under_way(answer: Any) -> tuple[str, ...]:
    return tuple(f"{t.name}-{p.partition_index}" for t in answer.topics for p in t.partitions)


def _no_error(answer: Any) -> int:
    return 0


def count_records(data: bytes) -> int:
    """How many messages are in whole record batches."""
    return sum(header.count for header, _ in record_batch.split(data, verify=False))
