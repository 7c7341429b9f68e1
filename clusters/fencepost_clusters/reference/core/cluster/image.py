"""The cluster's metadata: hard state, changed only by replaying records.

Controllers keep one at the committed offset, and the active controller a second one that runs ahead
of it; brokers keep the committed one. Values are frozen, so a copy is cheap.
"""

from __future__ import annotations

from typing import Final, TypeVar
from uuid import UUID

from msgspec.structs import replace

from fencepost_clusters.reference.core.replication.cluster_state import Broker, Partition
from fencepost_clusters.reference.wire import records as r
from fencepost_kafka import NodeRole, PartitionCommitted

K = TypeVar("K")

TOPIC_RESOURCE: Final = 2
"""Kafka's resource type of a topic in ConfigRecord."""
BROKER_RESOURCE: Final = 4
"""Kafka's resource type of a broker; under an empty name, of all brokers."""


class OtherHistory(Exception):
    """A record that does not follow from those before it: controllers that lost their disks may
    have given a node a log of two histories."""


class Image:
    """See the module. `offset` is the next one to replay."""

    def __init__(self) -> None:
        self.offset = 0
        self.brokers: dict[int, Broker] = {}
        self.superseded: dict[int, frozenset[UUID]] = {}
        """broker id -> incarnations that lost it to a later one: none of them ever wins again."""
        self.deleted: dict[int, UUID] = {}
        """broker id -> the incarnation that held it when it was deleted; it may come back."""
        self.topics: dict[str, UUID] = {}
        self.names: dict[UUID, str] = {}
        self.partitions: dict[UUID, dict[int, Partition]] = {}
        self.settings: dict[str, dict[str, str]] = {}
        """topic -> its own settings."""
        self.broker_settings: dict[str, str] = {}
        """The settings of all brokers."""
        self.deleting: set[UUID] = set()
        """Topics that are marked as being deleted: clients see them no more, and their partitions
        are still to be deleted."""
        self.other_settings: dict[tuple[int, str], dict[str, str]] = {}
        """(resource type, name) -> the settings of brokers and of other resources."""
        self.rights: set[r.AccessControlRecord] = set()
        """Access control records: stored, but not used yet."""

    def copy(self) -> Image:
        """An independent copy of the state."""
        other = Image()
        other.offset = self.offset
        other.brokers = dict(self.brokers)
        other.superseded = dict(self.superseded)
        other.deleted = dict(self.deleted)
        other.topics = dict(self.topics)
        other.names = dict(self.names)
        other.partitions = {topic: dict(parts) for topic, parts in self.partitions.items()}
        other.settings = {topic: dict(values) for topic, values in self.settings.items()}
        other.broker_settings = dict(self.broker_settings)
        other.deleting = set(self.deleting)
        other.other_settings = {one: dict(values) for one, values in self.other_settings.items()}
        other.rights = set(self.rights)
        return other

    def live(self) -> tuple[int, ...]:
        """The ids of the unfenced brokers, sorted."""
        return tuple(sorted(b.id for b in self.brokers.values() if not b.fenced))

    def has_lost(self, broker: int, incarnation: UUID | None) -> bool:
        """Whether a broker's process has lost its id to a later one (QC-19)."""
        return incarnation in self.superseded.get(broker, ())

    def all_partitions(self) -> tuple[Partition, ...]:
        """Every partition, by topic name and number."""
        return tuple(
            self.partitions[self.topics[name]][index]
            for name in sorted(self.topics)
            for index in sorted(self.partitions[self.topics[name]])
        )

    def partition(self, topic: str, index: int) -> Partition | None:
        """A partition by topic name."""
        topic_id = self.topics.get(topic)
        return None if topic_id is None else self.partitions[topic_id].get(index)

    def named(self, record: r.PartitionRecord | r.IsrChangeRecord) -> Partition:
        """The partition that a replayed record is about."""
        assert record.topic_id is not None
        return self.partitions[record.topic_id][record.partition_id]

    def committed(self, one: Partition, offset: int, role: NodeRole) -> PartitionCommitted:
        """The event that a node in this role stored or read a partition's state at `offset`."""
        return PartitionCommitted(
            offset=offset,
            topic=self.names[one.topic_id],
            partition=one.index,
            leader=one.leader,
            leader_epoch=one.leader_epoch,
            isr=one.isr,
            replicas=one.replicas,
            adding=one.adding,
            removing=one.removing,
            role=role,
        )

    def setting(self, topic: str, name: str) -> str | None:
        """The value of a setting that was changed: the topic's own, or that of all brokers."""
        return self.settings.get(topic, {}).get(name) or self.broker_settings.get(name)

    def replay(self, record: r.Record, offset: int) -> None:
        """Replays the record at `offset`, which must be the next offset; raises `OtherHistory`."""
        assert offset >= self.offset, f"record {offset} replayed at {self.offset}"
        self.offset = offset + 1
        match record:
            case r.BrokerRecord():
                self._broker(record, offset)
            case r.TopicRecord():
                assert record.topic_id is not None
                self.topics[record.name] = record.topic_id
                self.names[record.topic_id] = record.name
                self.partitions.setdefault(record.topic_id, {})
                if record.deleting:
                    self.deleting.add(record.topic_id)
            case r.PartitionRecord():
                assert record.topic_id is not None
                self._parts(record.topic_id, offset)[record.partition_id] = Partition(
                    topic_id=record.topic_id,
                    index=record.partition_id,
                    replicas=record.replicas,
                    isr=record.isr,
                    leader=record.leader,
                    leader_epoch=record.leader_epoch,
                    adding=record.adding_replicas,
                    removing=record.removing_replicas,
                )
            case r.IsrChangeRecord():
                self._isr_change(record, offset)
            case r.ConfigRecord():
                if record.resource_type == TOPIC_RESOURCE:
                    _set(self.settings, record.resource_name, record)
                elif record.resource_type == BROKER_RESOURCE and not record.resource_name:
                    _change(self.broker_settings, record)
                else:
                    resource = (record.resource_type, record.resource_name)
                    _set(self.other_settings, resource, record)
            case r.DeleteTopicRecord():
                assert record.name is not None
                self._parts(record.name, offset)  # raises for a topic that there is not
                name = self.names.pop(record.name)
                del self.topics[name], self.partitions[record.name]
                self.settings.pop(name, None)
                self.deleting.discard(record.name)
            case r.DeleteBrokerRecord():
                self._delete_broker(record)
            case r.AccessControlRecord():
                self.rights.add(record)

    def _broker(self, record: r.BrokerRecord, offset: int) -> None:
        before = self.brokers.get(record.broker_id)
        same = before is not None and before.incarnation == record.incarnation_id
        lost = self.superseded.get(record.broker_id, frozenset())
        held = before.incarnation if before is not None else self.deleted.get(record.broker_id)
        if held is not None and held != record.incarnation_id:
            lost |= {held}
        registered_at = before.registered_at if before is not None and same else offset
        if record.registered_at >= 0:  # of a snapshot, which holds the past, too
            registered_at = record.registered_at
            lost = frozenset(one for one in record.superseded if one is not None)
        if lost:
            self.superseded[record.broker_id] = lost
        self.deleted.pop(record.broker_id, None)
        self.brokers[record.broker_id] = Broker(
            id=record.broker_id,
            epoch=record.broker_epoch,
            fenced=record.fenced,
            incarnation=record.incarnation_id,
            endpoints=tuple((e.name, e.host, e.port) for e in record.end_points),
            registered_at=registered_at,
        )

    def _delete_broker(self, record: r.DeleteBrokerRecord) -> None:
        known = self.brokers.pop(record.id, None)
        held = record.incarnation_id if known is None else known.incarnation
        if held is not None:
            self.deleted[record.id] = held
        if record.superseded:  # of a snapshot, which holds the past, too
            self.superseded[record.id] = frozenset(x for x in record.superseded if x is not None)

    def _parts(self, topic_id: UUID, offset: int) -> dict[int, Partition]:
        """The partitions of the topic that the record at an offset is about."""
        parts = self.partitions.get(topic_id)
        if parts is None:
            raise OtherHistory(
                f"the record at offset {offset} is about the unknown topic {topic_id}"
            )
        return parts

    def _isr_change(self, record: r.IsrChangeRecord, offset: int) -> None:
        assert record.topic_id is not None
        parts = self._parts(record.topic_id, offset)
        before = parts.get(record.partition_id)
        if before is None:
            raise OtherHistory(
                f"the record at offset {offset} is about the unknown partition "
                f"{record.partition_id} of topic {record.topic_id}"
            )
        parts[record.partition_id] = replace(
            before, isr=record.isr, leader=record.leader, leader_epoch=record.leader_epoch
        )


def _set(settings: dict[K, dict[str, str]], of: K, record: r.ConfigRecord) -> None:
    """Changes a setting of one resource; a resource without settings is left out."""
    values = settings.setdefault(of, {})
    _change(values, record)
    if not values:
        del settings[of]


def _change(values: dict[str, str], record: r.ConfigRecord) -> None:
    """Changes a setting in a mapping. A setting without a value is removed, so that no answer lists
    it (QC-11)."""
    if record.value:
        values[record.name] = record.value
    else:
        values.pop(record.name, None)


def broker_record(broker: Broker, epoch: int, fenced: bool) -> r.BrokerRecord:
    """The record that gives a known broker another epoch or fenced state."""
    return r.BrokerRecord(
        broker_id=broker.id,
        broker_epoch=epoch,
        end_points=tuple(r.EndPoint(name=n, host=h, port=p) for n, h, p in broker.endpoints),
        fenced=fenced,
        incarnation_id=broker.incarnation,
    )


def isr_change(
    partition: Partition, isr: tuple[int, ...], leader: int, epoch: int
) -> r.IsrChangeRecord:
    """The record that gives a partition another ISR, leader and leader epoch."""
    return r.IsrChangeRecord(
        partition_id=partition.index,
        topic_id=partition.topic_id,
        isr=isr,
        leader=leader,
        leader_epoch=epoch,
    )
