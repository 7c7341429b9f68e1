"""Kinds of events of brokers without a controller: they elect leaders over ZooKeeper, and request
state changes of each other there (the replication design)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from fencepost import Authority, Change, numbers
from fencepost_kafka.events.words import at, partition_scope, scopes


class BrokersListed(Struct, frozen=True, gc=False, tag="zookeeper.brokers_listed", kw_only=True):
    """This broker has read for the first time which brokers are registered, `live`. `offset` is the
    newest change of the list. It records later changes broker by broker (`metadata.broker`).
    """

    offset: int
    live: tuple[int, ...]

    def sentence(self) -> str:
        return f"found the brokers {numbers(self.live)} registered, by offset {self.offset}"


class ReplicaStood(Struct, frozen=True, gc=False, tag="zookeeper.replica_stood", kw_only=True):
    """This broker has tried to become the partition's leader in `leader_epoch`, without a
    controller, by creating the leader's znode, `path`; `won`: it has.

    `isr` is the stored ISR that it stood by (empty: none was ever stored), `standing` are the
    replicas that may lead. It had known for `waited_ms` that there is no leader. Unless it is the
    `preferred` replica, it has to wait for `preferred_ms`.
    """

    topic: str
    partition: int
    broker_id: int
    leader_epoch: int
    isr: tuple[int, ...]
    preferred: bool
    waited_ms: int
    preferred_ms: int
    won: bool
    path: str
    standing: tuple[int, ...] = ()

    def sentence(self) -> str:
        outcome = "won" if self.won else "did not win"
        return (
            f"stood for the leadership of {at(self)} in leader epoch {self.leader_epoch} after "
            f"{self.waited_ms} ms, ISR {numbers(self.isr)}, and {outcome}"
        )

    def authority(self) -> Sequence[Authority]:
        # The record of the new leader is the gain; this is how it came about.
        scope = partition_scope(self.topic, self.partition)
        return (Authority(scope, Change.NOTED, self.leader_epoch),) if self.won else ()

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class IsrPrepared(Struct, frozen=True, gc=False, tag="replica.isr_prepared", kw_only=True):
    """This new leader has stored the `isr` with which it begins to serve clients, in the znode
    `path`.

    `ends` are the log ends of its members, `log_end` that of the leader. It had waited `waited_ms`,
    of `most_ms` allowed, for the `awaited` replicas: the live members of the ISR that elected it.
    `balance_ms` is how often it checks whether the preferred replica can lead (0: never).
    """

    topic: str
    partition: int
    leader_epoch: int
    log_end: int
    isr: tuple[int, ...]
    ends: tuple[int, ...]
    awaited: tuple[int, ...]
    waited_ms: int
    most_ms: int
    balance_ms: int
    path: str

    def sentence(self) -> str:
        return (
            f"stored the ISR {numbers(self.isr)} of {at(self)} in leader epoch "
            f"{self.leader_epoch}, after {self.waited_ms} ms"
        )

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class StateChangeCarriedOut(
    Struct, frozen=True, gc=False, tag="zookeeper.state_change", kw_only=True
):
    """This broker carries out a request for a state change of its replica: become_follower,
    assigned, unassigned, delete. `path` is its znode. `moot`: another change has overtaken it, so
    that there is nothing to do."""

    topic: str
    partition: int
    path: str
    change: str
    moot: bool = False

    def sentence(self) -> str:
        moot = ", which was overtaken" if self.moot else ""
        return f"carries out a request for {at(self)}: {self.change}{moot}"

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class ReassignmentNoticed(
    Struct, frozen=True, gc=False, tag="zookeeper.reassignment", kw_only=True
):
    """This leader has read a reassignment of its partition in the znode `path`, and requests the
    new replicas `adding` to start."""

    topic: str
    partition: int
    path: str
    adding: tuple[int, ...]

    def sentence(self) -> str:
        return f"notices the reassignment of {at(self)}, adding {numbers(self.adding)}"

    def concerns(self) -> Sequence[str]:
        return scopes(self)
