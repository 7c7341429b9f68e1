"""The znodes of the plane without a controller: the paths of the replication design, and their
contents.

    /brokers                                        the settings of all brokers
    /brokers/ids/[broker]                           a live broker (ephemeral)
    /brokers/topics/[topic]                         the topic's id and settings
    /brokers/topics/[topic]/[partition]/replicas    the assigned replicas, preferred one first
    /brokers/topics/[topic]/[partition]/leader      the leader's broker id (ephemeral)
    /brokers/topics/[topic]/[partition]/ISR         the ISR, with the leader epoch
    /brokers/topics/[topic]/[partition]/state/[broker]/request-N   state changes for a replica
    /brokers/partitions_reassigned/[topic]/[partition]             the new replicas

The paths are the design's. It leaves most contents open: they are JSON here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal
from uuid import UUID

from msgspec import Struct

from fencepost_clusters.reference.over_zookeeper.core.contents import BadZnode, decode

BROKERS = "/brokers"
BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
REASSIGNED = "/brokers/partitions_reassigned"
PERSISTENT = (BROKER_IDS, TOPICS, REASSIGNED)
"""The persistent znodes of every cluster below /brokers; each broker creates those missing."""

Format = Literal[1]
"""The format of all contents. A znode of any other is unreadable."""
FORMAT: Format = 1


class BrokerInfo(Struct, frozen=True):
    """The content of /brokers/ids/N: a broker's endpoints, as (listener, host, port).

    `since` names the process: in each later registration of a process it is the czxid of its first
    one; in the first one it is -1. A `stopping` broker takes no leaderships.
    """

    endpoints: tuple[tuple[str, str, int], ...]
    version: Format
    since: int = -1
    stopping: bool = False


class BrokerSettings(Struct, frozen=True):
    """The content of /brokers: the settings of all brokers."""

    version: Format
    config: Mapping[str, str] = {}


class Topic(Struct, frozen=True):
    """The content of a topic's znode. A topic that is created again has another id."""

    id: UUID
    version: Format
    config: Mapping[str, str] = {}
    deleting: bool = False


class Assigned(Struct, frozen=True):
    """The content of a partition's replicas znode, and of its znode in partitions_reassigned."""

    replicas: tuple[int, ...]
    version: Format


class Isr(Struct, frozen=True):
    """The content of a partition's ISR znode.

    It is written in the transaction that creates the leader's znode, with the next leader epoch,
    and by that leader only until the next election. `leader` is the leader of that epoch. `since`
    names the process of each member, as in `BrokerInfo`: another process of the same broker is no
    member. A leader that is `preparing` does not serve clients yet. The ISR of a new partition is
    empty, in leader epoch 0.
    """

    epoch: int
    leader: int
    isr: tuple[int, ...]
    since: tuple[int, ...]
    version: Format
    preparing: bool = False

    def process_of(self, broker: int) -> int | None:
        """The process by which a broker is a member; None: it is none."""
        return dict(zip(self.isr, self.since, strict=True)).get(broker)


class StateChange(StrEnum):
    """The state changes of a replica that others request."""

    BECOME_FOLLOWER = "become_follower"
    ASSIGNED = "assigned"
    UNASSIGNED = "unassigned"
    DELETE = "delete"


class StateRequest(Struct, frozen=True):
    """The content of a request for a state change."""

    change: StateChange
    version: Format


def isr_of(path: str, data: bytes) -> Isr:
    """Decodes the content of an ISR znode; raises BadZnode."""
    found = decode(path, data, Isr)
    if len(found.isr) != len(found.since) or len(set(found.isr)) != len(found.isr):
        raise BadZnode(f"{path} does not name one process for each member of the ISR")
    return found


def broker(node: int) -> str:
    """The path of a broker's registration."""
    return f"{BROKER_IDS}/{node}"


def topic(name: str) -> str:
    """The path of a topic."""
    return f"{TOPICS}/{name}"


def partition(name: str, index: int) -> str:
    """The path of a partition."""
    return f"{topic(name)}/{index}"


def replicas(name: str, index: int) -> str:
    """The path of a partition's assigned replicas."""
    return f"{partition(name, index)}/replicas"


def leader(name: str, index: int) -> str:
    """The path of a partition's leader."""
    return f"{partition(name, index)}/leader"


def isr(name: str, index: int) -> str:
    """The path of a partition's ISR."""
    return f"{partition(name, index)}/ISR"


def states(name: str, index: int) -> str:
    """The path above the states of a partition's replicas."""
    return f"{partition(name, index)}/state"


def state(name: str, index: int, node: int) -> str:
    """The path below which requests for state changes of a replica are."""
    return f"{states(name, index)}/{node}"


def request(name: str, index: int, node: int) -> str:
    """The path of a new request: ZooKeeper adds its number."""
    return f"{state(name, index, node)}/request-"


def reassigned(name: str, index: int) -> str:
    """The path of a reassignment."""
    return f"{reassignments(name)}/{index}"


def reassignments(name: str) -> str:
    """The path above a topic's reassignments."""
    return f"{REASSIGNED}/{name}"
