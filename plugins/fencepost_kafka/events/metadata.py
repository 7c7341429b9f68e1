"""Kinds of events about the metadata log: what is committed, applied, and in snapshots."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal

from msgspec import Struct

from fencepost import OWN, Authority, Change, Nearest, Origin, numbers
from fencepost_kafka.events.values import NodeRole
from fencepost_kafka.events.words import at, broker_scope, partition_scope, scopes, topic_scope


class MetadataCommitted(Struct, frozen=True, gc=False, tag="metadata.committed", kw_only=True):
    """This node's metadata high watermark passed the record at `offset`, and it replayed the
    record.

    `epoch` is the record's own; `kind` its KIP-631 name, `version` the one it is written in;
    `digest` a checksum of its content.
    """

    offset: int
    epoch: int
    kind: str
    digest: str
    version: int = 0

    def sentence(self) -> str:
        return f"committed a {self.kind} record at metadata offset {self.offset}"


class MetadataApplied(Struct, frozen=True, gc=False, tag="metadata.applied", kw_only=True):
    """This node has applied the committed metadata up to and including `offset`, of `epoch`.

    For nodes that do not report each record as `metadata.committed` does.
    """

    offset: int
    epoch: int

    def sentence(self) -> str:
        return f"applied the metadata up to offset {self.offset}"


class MetadataDigest(Struct, frozen=True, gc=False, tag="metadata.digest", kw_only=True):
    """A checksum of this node's whole metadata, with all below `offset` replayed.

    `entities` is how many records it takes to describe it. Written at the same offsets by every
    node, and where a snapshot begins.
    """

    offset: int
    entities: int
    digest: str

    def sentence(self) -> str:
        return (
            f"has the state {self.digest} at metadata offset {self.offset}, of {self.entities} "
            "entities"
        )


class FeatureFinalized(Struct, frozen=True, gc=False, tag="metadata.feature", kw_only=True):
    """This node replayed a record that enables `level` of a feature (KIP-584)."""

    offset: int
    feature: str
    level: int

    def sentence(self) -> str:
        return f"committed at offset {self.offset}: {self.feature} is enabled at level {self.level}"


class SnapshotStarted(Struct, frozen=True, gc=False, tag="snapshot.started", kw_only=True):
    """This node begins a snapshot of its state with all below `offset` replayed.

    `controller_epoch` is that of the active controller that asked for it (-1: its own decision).
    """

    offset: int
    entities: int
    controller_epoch: int

    def sentence(self) -> str:
        return f"begins a snapshot of {self.entities} entities at metadata offset {self.offset}"


class SnapshotStored(Struct, frozen=True, gc=False, kw_only=True, tag="snapshot.stored"):
    """This node is about to store a snapshot.

    `records` is how many it holds, `entities` how many the state needs that it describes, `digest`
    that state's checksum, read back from the snapshot; `level` the metadata.format it is written
    by, `epoch` that of the last record below `offset`.
    """

    offset: int
    epoch: int
    records: int
    entities: int
    level: int
    digest: str

    def sentence(self) -> str:
        return (
            f"stores a snapshot at metadata offset {self.offset}: {self.records} records, which "
            "make the "
            f"state {self.digest}"
        )


class SnapshotLoaded(Struct, frozen=True, gc=False, tag="snapshot.loaded", kw_only=True):
    """This node rebuilt its state from a snapshot, its own or a leader's; `digest` is the state's.

    Records that it had replayed before no longer count; it continues with the log at `offset`.
    """

    offset: int
    epoch: int
    digest: str

    def sentence(self) -> str:
        return (
            f"loaded a snapshot at metadata offset {self.offset}, which makes the state "
            f"{self.digest}"
        )


class MetadataTruncated(Struct, frozen=True, gc=False, tag="metadata.truncated", kw_only=True):
    """This node dropped its metadata records from `from_offset` up to (not including) `log_end`."""

    from_offset: int
    log_end: int
    high_watermark: int
    epoch: int

    def sentence(self) -> str:
        return (
            f"dropped metadata from offset {self.from_offset} to {self.log_end}, high watermark "
            f"{self.high_watermark}"
        )

    def authority(self) -> Sequence[Authority]:
        return (Authority(OWN, Change.NOTED, self.epoch),)


class StateReverted(Struct, frozen=True, gc=False, tag="metadata.state_reverted", kw_only=True):
    """A former active controller rebuilt its state; `offset` is the first offset not in it."""

    offset: int
    high_watermark: int
    epoch: int

    def sentence(self) -> str:
        return (
            f"reverted to the state before offset {self.offset}, high watermark "
            f"{self.high_watermark}"
        )

    def authority(self) -> Sequence[Authority]:
        return (Authority(OWN, Change.NOTED, self.epoch),)


class BrokerCommitted(Struct, frozen=True, gc=False, tag="metadata.broker", kw_only=True):
    """This node replayed a committed BrokerRecord (follows its `metadata.committed`).

    `fenced` and `incarnation` come from the record's tagged fields. `role` says which node of the
    process replayed it, where one is both broker and controller.
    """

    offset: int
    broker_id: int
    broker_epoch: int
    fenced: bool
    incarnation: str
    role: Literal[NodeRole, ""] = ""

    def sentence(self) -> str:
        state = "fenced" if self.fenced else "active"
        return (
            f"committed at offset {self.offset}: broker {self.broker_id} is {state}, broker epoch "
            f"{self.broker_epoch}, incarnation {self.incarnation[:8]}"
        )

    def authority(self) -> Sequence[Authority]:
        change = Change.LOST if self.fenced else Change.GAINED
        scope = broker_scope(self.broker_id)
        # The record of a registration begins its epoch, and fences: what it takes is of the epochs
        # before. It took an id that its holder had been given in this very epoch.
        begins = self.fenced and self.offset == self.broker_epoch
        epoch = self.broker_epoch - 1 if begins else self.broker_epoch
        return (Authority(scope, change, epoch, None, scope),)

    def source_of(self, process: str) -> Sequence[Hashable]:
        return (("broker record", self.offset),)

    def came_from(self, process: str) -> Sequence[Origin]:
        return (Origin(("broker record", self.offset), Nearest.FIRST),)

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class TopicCommitted(Struct, frozen=True, gc=False, tag="metadata.topic", kw_only=True):
    """This node replayed a committed TopicRecord or DeleteTopicRecord; `role` as for a broker's."""

    offset: int
    topic: str
    topic_id: str
    deleted: bool
    role: Literal[NodeRole, ""] = ""

    def sentence(self) -> str:
        named = f"{self.topic} (id {self.topic_id})" if self.topic_id else self.topic
        return (
            f"committed at offset {self.offset}: the topic {named} is "
            f"{'deleted' if self.deleted else 'created'}"
        )

    def authority(self) -> Sequence[Authority]:
        change = Change.LOST if self.deleted else Change.GAINED
        return (Authority(topic_scope(self.topic), change, holder=None),)

    def source_of(self, process: str) -> Sequence[Hashable]:
        return (("topic record", self.offset),)

    def came_from(self, process: str) -> Sequence[Origin]:
        return (Origin(("topic record", self.offset), Nearest.FIRST),)

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class PartitionCommitted(Struct, frozen=True, gc=False, kw_only=True, tag="metadata.partition"):
    """This node replayed a committed PartitionRecord or IsrChangeRecord; the fields are the new
    state.

    During a reassignment `replicas` lists the new replicas, of which those in `adding` were no
    replicas before, and then those in `removing`. `role` is as in `metadata.broker`. `eligible` are
    replicas outside the ISR that may lead: they hold every committed record, or were the last to do
    so (KIP-966). `skipped` are the states before this one that were not read: this one did not
    replace the one that was read before. `offline` are replicas in directories that their brokers
    have not registered, so that they cannot lead (KIP-858); a broker's registration states them
    anew.
    """

    offset: int
    topic: str
    partition: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    role: Literal[NodeRole, ""] = ""
    eligible: tuple[int, ...] = ()
    skipped: int = 0
    offline: tuple[int, ...] = ()

    def sentence(self) -> str:
        leader = f"broker {self.leader} leads" if self.leader >= 0 else "no broker leads"
        moves = f", adding {numbers(self.adding)}" if self.adding else ""
        moves += f", removing {numbers(self.removing)}" if self.removing else ""
        moves += f", offline {numbers(self.offline)}" if self.offline else ""
        return (
            f"committed at offset {self.offset}: {leader} {at(self)} in leader epoch "
            f"{self.leader_epoch}, "
            f"ISR {numbers(self.isr)}{moves}"
        )

    def authority(self) -> Sequence[Authority]:
        change = Change.GAINED if self.leader >= 0 else Change.LOST
        scope = partition_scope(self.topic, self.partition)
        leader = broker_scope(self.leader) if self.leader >= 0 else ""
        return (Authority(scope, change, self.leader_epoch, None, leader),)

    def source_of(self, process: str) -> Sequence[Hashable]:
        return (("partition record", self.offset),)

    def came_from(self, process: str) -> Sequence[Origin]:
        return (Origin(("partition record", self.offset), Nearest.FIRST),)

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class TopicMarked(Struct, frozen=True, gc=False, tag="metadata.topic_marked", kw_only=True):
    """This node replayed a committed TopicRecord that marks the topic as being deleted."""

    offset: int
    topic: str
    topic_id: str

    def sentence(self) -> str:
        return f"committed at offset {self.offset}: the topic {self.topic} is being deleted"

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class BrokerDeleted(Struct, frozen=True, gc=False, tag="metadata.broker_deleted", kw_only=True):
    """This node replayed a committed DeleteBrokerRecord."""

    offset: int
    broker_id: int

    def sentence(self) -> str:
        return f"committed at offset {self.offset}: broker {self.broker_id} is deleted"

    def authority(self) -> Sequence[Authority]:
        scope = broker_scope(self.broker_id)
        return (Authority(scope, Change.LOST, holder=None, node=scope),)

    def source_of(self, process: str) -> Sequence[Hashable]:
        return (("broker record", self.offset),)

    def came_from(self, process: str) -> Sequence[Origin]:
        return (Origin(("broker record", self.offset), Nearest.FIRST),)

    def concerns(self) -> Sequence[str]:
        return scopes(self)
