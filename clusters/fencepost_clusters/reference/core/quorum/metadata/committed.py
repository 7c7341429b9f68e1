"""Replays the committed metadata log into an image, and records each record as an event.

Controllers and brokers both use it: only committed records are visible (QC-08).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from zlib import crc32

from fencepost_clusters.reference.core.cluster.image import Image
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.node.settings import NodeRole
from fencepost_clusters.reference.core.quorum.metadata import features, snapshots
from fencepost_clusters.reference.core.quorum.raft.metadata_log import Batch, MetadataLog
from fencepost_clusters.reference.wire import records as r
from fencepost_kafka import (
    BrokerCommitted,
    BrokerDeleted,
    FeatureFinalized,
    MetadataCommitted,
    TopicCommitted,
    TopicMarked,
)

DIGEST_RECORDS: Final = 32
"""How many records there are between two digests of a small state."""
Replayed = Callable[[r.Record, int], None]


class Committed:
    """A node's committed image; `applied` is the first offset not replayed yet."""

    was_replaced = False

    def __init__(self, out: Outbox, log: MetadataLog, role: NodeRole) -> None:
        """Begins with the log's snapshot, if it has one. `role` is the node's."""
        self._out = out
        self._role = role
        self.replayed = 0
        """How many records this process has replayed."""
        self._rebuild(log)

    def _rebuild(self, log: MetadataLog) -> None:
        self.image = Image() if log.snapshot is None else snapshots.load(log.snapshot)
        self.applied = log.start

    def advance(self, log: MetadataLog, to_offset: int, replayed: Replayed | None = None) -> bool:
        """Replays the records below `to_offset`; False if there are none.

        `replayed` is called after each record. If the log was cut below the replayed offset, a
        leader lacked committed records: the image is built again from the remaining log. If the log
        starts past that offset, a leader's snapshot replaced it: `was_replaced` is then true until
        the next call. Raises `OtherHistory`.
        """
        before = self.applied
        self.was_replaced = log.snapshot is not None and log.start > before
        # Replayed records cannot be taken back one by one, so the image begins anew.
        if log.end < before or self.was_replaced:
            self._rebuild(log)
        elif to_offset == before:
            return False
        for batch in log.batches(self.applied, to_offset):
            for at, record in enumerate(batch.records, batch.base):
                self._remember_name(record, at)
                self.image.replay(record, at)
                self._note_record(record, at, batch.epoch, batch.versions[at - batch.base])
                if replayed is not None:
                    replayed(record, at)
            if not batch.records:
                # A control batch changes nothing but the offset. Its digest leaves out the base
                # offset, the length and the leader epoch: the event has offset and epoch as fields.
                digest = f"{crc32(batch.data[16:]):08x}"
                self._out.note(
                    MetadataCommitted(
                        offset=batch.base, epoch=batch.epoch, kind="LeaderChange", digest=digest
                    )
                )
            self.replayed += max(1, len(batch.records))
            self.applied = batch.end
            self.image.offset = batch.end
            self._note_digest(batch)
        return True

    def _note_digest(self, batch: Batch) -> None:
        """Records a digest of the state at intervals: every node at the same offsets, less often
        for a larger state."""
        entities = len(self.image.brokers) + sum(map(len, self.image.partitions.values()))
        stride = max(DIGEST_RECORDS, 1 << entities.bit_length())
        # The batch crosses a multiple of the stride. The stride depends on the state alone, so all
        # nodes find the same offsets, and a rule can compare any two of them.
        if batch.base // stride != batch.end // stride:
            self._out.note(snapshots.state_digest(self.image, batch.end))

    def _remember_name(self, record: r.Record, at: int) -> None:
        """A deleted topic's name is known only before its record is replayed."""
        if isinstance(record, r.DeleteTopicRecord) and record.name is not None:
            self._deleted_name = self.image.names.get(record.name, "")

    def _note_record(self, record: r.Record, at: int, epoch: int, version: int) -> None:
        kind = type(record).__name__.removesuffix("Record")
        digest = f"{crc32(r.encode(record)):08x}"
        self._out.note(
            MetadataCommitted(offset=at, epoch=epoch, kind=kind, digest=digest, version=version)
        )
        match record:
            case r.BrokerRecord():
                self._out.note(
                    BrokerCommitted(
                        offset=at,
                        broker_id=record.broker_id,
                        broker_epoch=record.broker_epoch,
                        fenced=record.fenced,
                        incarnation=str(record.incarnation_id or ""),
                        role=self._role,
                    )
                )
            case r.TopicRecord(deleting=True):
                self._out.note(
                    TopicMarked(offset=at, topic=record.name, topic_id=str(record.topic_id))
                )
            case r.TopicRecord():
                self._out.note(
                    TopicCommitted(
                        offset=at,
                        topic=record.name,
                        topic_id=str(record.topic_id),
                        deleted=False,
                        role=self._role,
                    )
                )
            case r.DeleteBrokerRecord():
                self._out.note(BrokerDeleted(offset=at, broker_id=record.id))
            case r.DeleteTopicRecord():
                self._out.note(
                    TopicCommitted(
                        offset=at,
                        topic=self._deleted_name,
                        topic_id=str(record.name),
                        deleted=True,
                        role=self._role,
                    )
                )
            case r.PartitionRecord() | r.IsrChangeRecord():
                one = self.image.named(record)
                self._out.note(self.image.committed(one, at, self._role))
            case r.ConfigRecord(resource_type=features.FEATURE_RESOURCE):
                self._out.note(
                    FeatureFinalized(offset=at, feature=record.name, level=int(record.value))
                )
            case _:
                pass
