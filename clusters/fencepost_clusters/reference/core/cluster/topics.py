"""Creation, extension and deletion of topics: the active controller's decisions, as records and
results."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final
from uuid import UUID

from fencepost_clusters.reference.core.cluster.configs import OF_TOPIC
from fencepost_clusters.reference.core.cluster.image import TOPIC_RESOURCE, Image
from fencepost_clusters.reference.core.cluster.policies import PlacementPolicies
from fencepost_clusters.reference.core.cluster.reassigning import target
from fencepost_clusters.reference.core.cluster.topic_settings import objection
from fencepost_clusters.reference.core.node.settings import Settings
from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error

_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")
MAX_PARTITIONS: Final = 10_000


def metric(name: str) -> str:
    """A topic's name in the names of metrics, in which a dot and an underscore are the same."""
    return name.replace(".", "_")


def create(
    image: Image,
    asked: m.CreatableTopic,
    settings: Settings,
    new_id: UUID,
    policies: PlacementPolicies,
) -> tuple[list[r.Record], m.CreatableTopicResult]:
    """The records that create a topic, placed on brokers that are live now (RP-28), or the
    refusal."""
    error, message, replicas = _judge(image, asked, settings, policies)
    if error is not Error.NONE:
        return [], m.CreatableTopicResult(name=asked.name, error_code=error, error_message=message)
    found: list[r.Record] = [r.TopicRecord(name=asked.name, topic_id=new_id)]
    for config in asked.configs:
        found.append(
            r.ConfigRecord(
                resource_type=TOPIC_RESOURCE,
                resource_name=asked.name,
                name=config.name,
                value=config.value or "",
            )
        )
    live = image.live()
    found += [_new(new_id, index, members, live) for index, members in enumerate(replicas)]
    return found, m.CreatableTopicResult(
        name=asked.name,
        error_code=Error.NONE,
        topic_id=new_id,
        num_partitions=len(replicas),
        replication_factor=len(replicas[0]),
        configs=tuple(
            m.CreatableTopicConfigs(
                name=config.name, value=config.value, read_only=False, config_source=OF_TOPIC
            )
            for config in asked.configs
        ),
    )


def _new(
    topic_id: UUID, index: int, members: tuple[int, ...], live: Collection[int]
) -> r.PartitionRecord:
    isr = tuple(b for b in members if b in live)
    return r.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=members,
        isr=isr,
        leader=isr[0] if isr else -1,
        leader_epoch=0,
    )


def extend(
    image: Image, asked: a.CreatePartitionsTopic, policies: PlacementPolicies
) -> tuple[list[r.Record], a.CreatePartitionsTopicResult]:
    """The records that add partitions to a topic, placed on brokers that are live now, or the
    refusal."""
    error, message, replicas = _judge_count(image, asked, policies)
    result = a.CreatePartitionsTopicResult(name=asked.name, error_code=error, error_message=message)
    if error is not Error.NONE:
        return [], result
    topic_id, live = image.topics[asked.name], image.live()
    first = len(image.partitions[topic_id])
    return [
        _new(topic_id, first + number, members, live) for number, members in enumerate(replicas)
    ], result


def _judge_count(
    image: Image, asked: a.CreatePartitionsTopic, policies: PlacementPolicies
) -> tuple[Error, str | None, tuple[tuple[int, ...], ...]]:
    topic_id = image.topics.get(asked.name)
    if topic_id is None or topic_id in image.deleting:
        return Error.UNKNOWN_TOPIC_OR_PARTITION, None, ()
    known = image.partitions[topic_id]
    more = asked.count - len(known)
    if more <= 0 or asked.count > MAX_PARTITIONS:
        message = f"{asked.count} partitions; {len(known) + 1} to {MAX_PARTITIONS} allowed"
        return Error.INVALID_PARTITIONS, message, ()
    live = policies.brokers_for_replicas(image)
    factor = len(target(known[0]))
    if asked.assignments is not None:
        members = tuple(one.broker_ids for one in asked.assignments)
        if len(members) != more or any(len(one) != factor for one in members):
            message = f"{more} assignments of {factor} replicas are wanted"
            return Error.INVALID_REPLICA_ASSIGNMENT, message, ()
        if any(len(set(one)) != len(one) or not set(one) <= set(live) for one in members):
            return Error.INVALID_REPLICA_ASSIGNMENT, "replicas must be distinct live brokers", ()
        return Error.NONE, None, members
    if factor > len(live):
        message = f"replication factor {factor}; {len(live)} brokers are live"
        return Error.INVALID_REPLICATION_FACTOR, message, ()
    return Error.NONE, None, policies.place(live, asked.count, factor)[len(known) :]


def _judge(
    image: Image, asked: m.CreatableTopic, settings: Settings, policies: PlacementPolicies
) -> tuple[Error, str | None, tuple[tuple[int, ...], ...]]:
    if not _LEGAL.fullmatch(asked.name) or asked.name in (".", "..", m.METADATA_TOPIC):
        return Error.INVALID_TOPIC_EXCEPTION, f"{asked.name!r} is no legal topic name", ()
    if asked.name in image.topics:
        return Error.TOPIC_ALREADY_EXISTS, f"Topic '{asked.name}' already exists.", ()
    alike = next((one for one in image.topics if metric(one) == metric(asked.name)), None)
    if alike is not None:
        message = f"Topic '{asked.name}' collides with existing topic: {alike}"
        return Error.INVALID_TOPIC_EXCEPTION, message, ()
    for config in asked.configs:
        wrong = objection(config.name, config.value)
        if wrong is not None:
            return Error.INVALID_CONFIG, wrong, ()
    live = policies.brokers_for_replicas(image)
    if asked.assignments:
        chosen = {one.partition_index: one.broker_ids for one in asked.assignments}
        members = tuple(chosen.get(i, ()) for i in range(len(chosen)))
        if any(not b or len(set(b)) != len(b) or not set(b) <= set(live) for b in members):
            return Error.INVALID_REPLICA_ASSIGNMENT, "replicas must be distinct live brokers", ()
        return Error.NONE, None, members
    count = asked.num_partitions
    count = settings.ms("num.partitions") if count == -1 else count
    factor = asked.replication_factor
    factor = settings.ms("default.replication.factor") if factor == -1 else factor
    if not 0 < count <= MAX_PARTITIONS:
        return Error.INVALID_PARTITIONS, f"{count} partitions; 1 to {MAX_PARTITIONS} allowed", ()
    if not 0 < factor <= len(live):
        message = f"replication factor {factor}; {len(live)} brokers are live"
        return Error.INVALID_REPLICATION_FACTOR, message, ()
    return Error.NONE, None, policies.place(live, count, factor)


def delete(image: Image, name: str) -> tuple[list[r.Record], m.DeletableTopicResult]:
    """The record that marks a topic as being deleted, or the refusal; see `finish_deletions`."""
    known = image.topics.get(name)
    if known is None or known in image.deleting:
        return [], m.DeletableTopicResult(name=name, error_code=Error.UNKNOWN_TOPIC_OR_PARTITION)
    marked = r.TopicRecord(name=name, topic_id=known, deleting=True)
    return [marked], m.DeletableTopicResult(name=name, error_code=Error.NONE)


def finish_deletions(committed: Image, ahead: Image) -> tuple[r.Record, ...]:
    """The records that delete the topics whose mark is committed, with all their partitions.

    The active controller that sees the committed mark finishes the deletion, even if another
    controller marked the topic (QC-26).
    """
    return tuple(
        r.DeleteTopicRecord(name=topic) for topic in sorted(committed.deleting & ahead.deleting)
    )
