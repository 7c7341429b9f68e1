"""The znodes of the plane over ZooKeeper: their paths, and their contents as JSON.

Paths and fields are Kafka's. Any process may write to ZooKeeper, so invalid content raises
BadZnode, whose message is one sentence.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from msgspec import Struct

from fencepost_clusters.reference.over_zookeeper.core.contents import BadZnode

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
"""The persistent znodes of every cluster, parents first; each broker creates those missing."""

LEGACY_INFO, HEARTBEAT_INFO = 4, 5
"""BrokerInfo versions: below and from the inter-broker protocol with heartbeats (HB-22)."""


class ControllerInfo(Struct, frozen=True):
    """The content of /controller."""

    brokerid: int
    version: int = 1


class BrokerInfo(Struct, frozen=True):
    """The content of /brokers/ids/N: a broker's endpoints, as (listener, host, port).

    Kafka has no field `since`. In each later registration of a process, it is the czxid of the
    process's first registration; in the first one it is -1.
    """

    version: int
    endpoints: tuple[tuple[str, str, int], ...]
    since: int = -1

    def endpoint(self, listener: str) -> tuple[str, int] | None:
        """Host and port of a listener; None if there is no valid address."""
        for name, host, port in self.endpoints:
            if name == listener and host and 0 < port < 1 << 16:
                return host, port
        return None


class Assignment(Struct, frozen=True):
    """The content of /brokers/topics/T: partition number -> replicas."""

    partitions: Mapping[str, tuple[int, ...]]
    adding: Mapping[str, tuple[int, ...]] = {}
    removing: Mapping[str, tuple[int, ...]] = {}
    version: int = 3


class PartitionState(Struct, frozen=True):
    """The content of a partition's state znode; `controller_epoch` is the epoch of the controller
    that wrote it last."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    version: int = 1


class Config(Struct, frozen=True):
    """The content of a config znode: the changed settings."""

    config: Mapping[str, str] = {}
    version: int = 1


def number(path: str, data: bytes) -> int:
    """Decodes the content of /controller_epoch; raises BadZnode."""
    if not data.isdigit():
        raise BadZnode(f"{path} does not contain a number")
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
    """The topic and partition number in the path of a partition's state."""
    _, _, _, name, _, index, _ = path.split("/")
    return name, int(index)


def config(name: str) -> str:
    """The path of a topic's settings."""
    return f"{TOPIC_CONFIGS}/{name}"


def deletion(name: str) -> str:
    """The path of the znode that marks a topic for deletion."""
    return f"{DELETE_TOPICS}/{name}"


def topic_id(name: str) -> uuid.UUID:
    """A topic's id, derived from its name: this plane stores no topic ids."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"topic:{name}")
