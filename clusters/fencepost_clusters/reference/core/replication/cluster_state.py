"""The metadata and the state of the broker that replication reads, in every plane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol
from uuid import UUID

from msgspec import Struct

from fencepost_clusters.reference.core.node.effects import Instant
from fencepost_kafka import BrokerStateName


class Broker(Struct, frozen=True, gc=False, kw_only=True):
    """A registration: `epoch` is the offset of the record that gave it."""

    id: int
    epoch: int
    fenced: bool
    incarnation: UUID | None
    endpoints: tuple[tuple[str, str, int], ...]
    registered_at: int
    """The offset of this incarnation's first record."""

    def endpoint(self, listener: str) -> tuple[str, int] | None:
        """Host and port of a listener."""
        for name, host, port in self.endpoints:
            if name == listener:
                return host, port
        return None


class Partition(Struct, frozen=True, gc=False, kw_only=True):
    """A partition as its newest record has it; `leader` is -1 if there is none.

    During a reassignment `replicas` lists the new replicas, of which those in `adding` were no
    replicas before, and then those in `removing`.
    """

    topic_id: UUID
    index: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    preparing: bool = False
    """Whether the leader does not serve clients yet: it stores an ISR of its own first."""


class ClusterState(Protocol):
    """The committed metadata, as far as replication reads it."""

    @property
    def brokers(self) -> Mapping[int, Broker]: ...
    @property
    def topics(self) -> Mapping[str, UUID]: ...
    @property
    def names(self) -> Mapping[UUID, str]: ...
    @property
    def partitions(self) -> Mapping[UUID, Mapping[int, Partition]]: ...

    def all_partitions(self) -> tuple[Partition, ...]: ...
    def partition(self, topic: str, index: int) -> Partition | None: ...
    def setting(self, topic: str, name: str) -> str | None: ...


class NamedState(Protocol):
    """A state of a broker, in any plane."""

    @property
    def label(self) -> BrokerStateName:
        """Its name, as events have it."""
        ...


class Session(Protocol):
    """This broker's registration: its epoch and state, and whether it may serve clients."""

    @property
    def epoch(self) -> int: ...
    @property
    def state(self) -> NamedState: ...

    def serving(self, now: Instant) -> bool:
        """Whether a new request of a client is processed."""
        ...

    def finishing(self, now: Instant) -> bool:
        """Whether a waiting request of a client is still carried out."""
        ...
