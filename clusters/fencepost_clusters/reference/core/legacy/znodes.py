"""The znodes of the plane over ZooKeeper: their paths, and their contents as JSON.

Paths and fields are Kafka's. A content that is not what it should be raises BadZnode, which says
what is wrong in one sentence: any process may write to ZooKeeper.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TypeVar

import msgspec
from msgspec import Struct

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIG = "/config/brokers/<default>"
DELETE_TOPICS = "/admin/delete_topics"
PERSISTENT = (
    "/brokers", BROKER_IDS, TOPICS, "/config", TOPIC_CONFIGS, "/config/brokers", "/admin",
    DELETE_TOPICS,
)  # fmt: skip
"""What every cluster has, parents first; each broker makes what is missing."""

LEGACY_INFO, HEARTBEAT_INFO = 4, 5
"""BrokerInfo versions: below and from the inter-broker protocol with heartbeats (HB-22)."""


class BadZnode(ValueError):
    """A znode holds what this software cannot read."""


class ControllerInfo(Struct, frozen=True):
    """The content of /controller."""

    brokerid: int
    version: int = 1


class BrokerInfo(Struct, frozen=True):
    """The content of /brokers/ids/N: where a broker listens, as (listener, host, port).

    `since` is our own, in both versions: the czxid of this process's first registration, in each
    later one (-1 in the first).
    """

    version: int
    endpoints: tuple[tuple[str, str, int], ...]
    since: int = -1

    def endpoint(self, listener: str) -> tuple[str, int] | None:
        """Host and port of a listener; None if there is none that can be dialled."""
        for name, host, port in self.endpoints:
            if name == listener and host and 0 < port < 1 << 16:
                return host, port
        return None


class Assignment(Struct, frozen=True):
    """The content of /brokers/topics/T: the replicas of each partition, by its number."""

    partitions: Mapping[str, tuple[int, ...]]
    adding: Mapping[str, tuple[int, ...]] = {}
    removing: Mapping[str, tuple[int, ...]] = {}
    version: int = 3


class PartitionState(Struct, frozen=True):
    """The content of a partition's state znode; `controller_epoch` is that of the last controller
    that wrote it."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    version: int = 1


class Config(Struct, frozen=True):
    """The content of a config znode: settings that were changed."""

    config: Mapping[str, str] = {}
    version: int = 1


T = TypeVar("T")


def encode(content: Struct) -> bytes:
    """A znode's content."""
    return msgspec.json.encode(content)


def decode(path: str, data: bytes, kind: type[T]) -> T:
    """A znode's content; raises BadZnode."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise BadZnode(f"{path} holds no {kind.__name__}: {error}") from None


def number(path: str, data: bytes) -> int:
    """The content of /controller_epoch; raises BadZnode."""
    if not data.isdigit():
        raise BadZnode(f"{path} holds no number")
    return int(data)


def broker(node: int) -> str:
    """The path of a broker's registration."""
    return f"{BROKER_IDS}/{node}"


def topic(name: str) -> str:
    """The path of a topic's assignment."""
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    """The path above a topic's partitions."""
    return f"{topic(name)}/partitions"


def state(name: str, index: int) -> str:
    """The path of a partition's state."""
    return f"{partitions(name)}/{index}/state"


def place(path: str) -> tuple[str, int]:
    """The topic and the number of the partition whose state has this path."""
    _, _, _, name, _, index, _ = path.split("/")
    return name, int(index)


def config(name: str) -> str:
    """The path of a topic's settings."""
    return f"{TOPIC_CONFIGS}/{name}"


def deletion(name: str) -> str:
    """The path of the mark on a topic that is being deleted."""
    return f"{DELETE_TOPICS}/{name}"


def topic_id(name: str) -> uuid.UUID:
    """The id of a topic in this plane, which has names only: the same for every process."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"topic:{name}")
