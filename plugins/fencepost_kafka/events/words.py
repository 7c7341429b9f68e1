"""Phrases that sentences about Kafka's events share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from fencepost import Scope


class OfPartition(Protocol):
    """A body that names a partition."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...


def at(body: OfPartition) -> str:
    """`orders-0`."""
    return f"{body.topic}-{body.partition}"


def offsets(first: int, end: int) -> str:
    """`offset 3`, `offsets 3 to 7`; `end` is exclusive."""
    return f"offset {first}" if end - first == 1 else f"offsets {first} to {end - 1}"


_BROKER_FIELDS = ("broker_id", "follower", "requester", "broker")


def partition_scope(topic: str, partition: int) -> str:
    """The scope of the authority over a partition: its leadership."""
    return f"partition {topic}-{partition}"


def topic_scope(topic: str) -> str:
    """The scope of a topic's existence: it has no holder, and a deletion ends it."""
    return f"topic {topic}"


def broker_scope(broker: int) -> str:
    """The scope of the authority over a broker's id: its registration and its lease."""
    return f"broker {broker}"


def term_scope(epoch: int) -> str:
    """The scope of the votes of one controller epoch."""
    return f"term {epoch}"


CONTROLLER_SCOPE = "controller"


def partition_of(body: OfPartition) -> Scope:
    """The partition that a body names, as a fact."""
    return Scope("partition", at(body))


def partition_at(topic: str, partition: int) -> Scope:
    """A partition, as a fact."""
    return Scope("partition", f"{topic}-{partition}")


def broker_of(broker: int) -> Scope:
    """A broker, by its id, as a fact."""
    return Scope("broker", str(broker))


def topic_of(topic: str) -> Scope:
    """A topic, as a fact."""
    return Scope("topic", topic)


def scopes(body: Any) -> Sequence[str]:
    """The scopes that a body is about, by its fields: brokers, a partition, the process of a
    client."""
    found = [
        broker_scope(broker)
        for broker in dict.fromkeys(getattr(body, field, -1) for field in _BROKER_FIELDS)
        if broker >= 0
    ]
    if getattr(body, "topic", "") and getattr(body, "partition", -1) >= 0:
        found.append(partition_scope(body.topic, body.partition))
    if getattr(body, "client", ""):
        found.append(f"process {body.client}")
    if getattr(body, "slot", ""):
        found.append(f"slot {body.slot}")
    return found
