"""Snapshots of the metadata: the fewest records that describe an image at one offset (KIP-631).

A snapshot is made from a consistent copy and written slice by slice, so that it delays no node; the
image goes on changing meanwhile. It replaces the log below its offset: a node that loads it and
replays the log after it has the same state.

See docs/decisions/45-snapshots.md.
"""

from __future__ import annotations

from typing import Final, final
from uuid import UUID
from zlib import crc32

import msgspec

from fencepost_clusters.reference.core.cluster.image import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    Image,
    broker_record,
)
from fencepost_clusters.reference.core.node.effects import Instant, StoreSnapshot
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.node.settings import Settings
from fencepost_clusters.reference.core.quorum.metadata.features import level
from fencepost_clusters.reference.core.quorum.metadata.policies import MetadataPolicies
from fencepost_clusters.reference.core.quorum.raft.metadata_log import (
    LOG_NAME,
    MetadataLog,
    Snapshot,
)
from fencepost_clusters.reference.core.replication.cluster_state import Broker, Partition
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire import records as r
from fencepost_kafka import MetadataDigest, SnapshotLoaded, SnapshotStarted, SnapshotStored

SLICE_NS: Final = 10_000_000
"""The time between two slices."""


def records_of(image: Image) -> tuple[r.Record, ...]:
    """One record for each entity: an entity with two records would be an error of the format
    (QC-11)."""
    found: list[r.Record] = []
    # In a fixed order: equal images have equal bytes, which `digest` relies on.
    found += _configs(BROKER_RESOURCE, "", image.broker_settings)
    for kind, name in sorted(image.other_settings):
        found += _configs(kind, name, image.other_settings[kind, name])
    for broker in sorted(image.brokers):
        found.append(_broker(image.brokers[broker], image.superseded.get(broker, frozenset())))
    # A deleted broker is state, too: which process held the id, and which have lost it. Without
    # this a node that loads the snapshot would give the id back (QC-19).
    for broker, held in sorted(image.deleted.items()):
        lost = tuple(sorted(image.superseded.get(broker, ())))
        found.append(r.DeleteBrokerRecord(id=broker, incarnation_id=held, superseded=lost))
    for name, topic_id in sorted(image.topics.items()):
        deleting = topic_id in image.deleting
        found.append(r.TopicRecord(name=name, topic_id=topic_id, deleting=deleting))
        found += _configs(TOPIC_RESOURCE, name, image.settings.get(name, {}))
        parts = image.partitions[topic_id]
        found += [_partition(parts[index]) for index in sorted(parts)]
    return (*found, *sorted(image.rights, key=repr))


def _configs(kind: int, name: str, values: dict[str, str]) -> list[r.Record]:
    return [
        r.ConfigRecord(resource_type=kind, resource_name=name, name=key, value=values[key])
        for key in sorted(values)
    ]


def _broker(broker: Broker, superseded: frozenset[UUID]) -> r.Record:
    record = broker_record(broker, broker.epoch, broker.fenced)
    return r.with_past(record, broker.registered_at, tuple(sorted(superseded)))


def _partition(one: Partition) -> r.Record:
    return r.PartitionRecord(
        partition_id=one.index,
        topic_id=one.topic_id,
        replicas=one.replicas,
        isr=one.isr,
        leader=one.leader,
        leader_epoch=one.leader_epoch,
        adding_replicas=one.adding,
        removing_replicas=one.removing,
    )


def digest(image: Image) -> str:
    """A checksum of the whole state: equal on any two nodes that have replayed the same records."""
    values = [_plain(record) for record in records_of(image)]
    return f"{crc32(msgspec.json.encode(values)):08x}"


def _plain(record: r.Record) -> tuple[object, ...]:
    return r.TYPE_OF[type(record)], msgspec.to_builtins(record)


def load(snapshot: Snapshot) -> Image:
    """The image that a snapshot describes; raises CorruptBatch or UnknownRecord."""
    image = Image()
    for _, data in record_batch.split(snapshot.data):
        for value in record_batch.values(data):
            image.replay(r.decode(value), image.offset)
    image.offset = snapshot.offset
    return image


def state_digest(image: Image, offset: int) -> MetadataDigest:
    """The event that describes a node's state at an offset."""
    return MetadataDigest(offset=offset, entities=len(records_of(image)), digest=digest(image))


class _Writing:
    """A snapshot being written: the copy's records, how many of them are written, and their
    bytes."""

    def __init__(self, image: Image, offset: int, epoch: int, now: Instant) -> None:
        # Records are frozen, so this list is the consistent copy: the image may go on changing.
        self.records = records_of(image)
        self.level = level(image)
        self.offset, self.epoch = offset, epoch
        self.next_ns = now.monotonic_ns
        self.done = 0
        self.written = 0
        self.data = b""


@final
class Snapshots:
    """The snapshots of one node: the one it is writing, and the offset of the last."""

    def __init__(
        self, settings: Settings, log: MetadataLog, policies: MetadataPolicies, out: Outbox
    ) -> None:
        self._settings = settings
        self._log = log
        self._policies = policies
        self._out = out
        self._writing: _Writing | None = None
        if log.snapshot is not None:
            self._note_loaded(log.snapshot)

    @property
    def last_offset(self) -> int:
        """The offset of the last snapshot; -1 when there is none."""
        return -1 if self._log.snapshot is None else self._log.snapshot.offset

    @property
    def under_way(self) -> bool:
        return self._writing is not None

    def due(self, committed: int) -> bool:
        """Whether enough was committed since the last snapshot to take another."""
        records = committed - max(0, self.last_offset)
        return records >= self._settings.ms("metadata.snapshot.interval.records")

    def start(self, image: Image, now: Instant, controller_epoch: int = -1) -> None:
        """Begins a snapshot of the present image; the controller of that epoch asked for it."""
        if self._writing is not None or image.offset <= self.last_offset:
            return
        epoch = self._log.epoch_before(image.offset)
        self._writing = _Writing(image, image.offset, epoch, now)
        self._out.note(state_digest(image, image.offset))
        self._out.note(
            SnapshotStarted(
                offset=image.offset,
                entities=len(self._writing.records),
                controller_epoch=controller_epoch,
            )
        )

    def checkpoint(self, image: Image, now: Instant) -> None:
        """Takes a snapshot of the present image, whole, at once."""
        self._give_up()
        self.start(image, now)
        while self._writing is not None:
            self._slice(self._writing, image, now)

    def replaced(self, snapshot: Snapshot) -> None:
        """A leader's snapshot replaced the log: gives up the snapshot that was being written."""
        self._give_up()
        self._note_loaded(snapshot)

    def _give_up(self) -> None:
        self._writing = None

    def deadline_ns(self) -> int | None:
        """When the next slice is to be written."""
        return None if self._writing is None else self._writing.next_ns

    def tick(self, image: Image, now: Instant) -> bool:
        """Writes the slice that is due, if any; returns whether the snapshot is complete and
        stored."""
        writing = self._writing
        if writing is None or now.monotonic_ns < writing.next_ns:
            return False
        self._slice(writing, image, now)
        return self._writing is None

    def _slice(self, writing: _Writing, image: Image, now: Instant) -> None:
        most = self._settings.ms("metadata.snapshot.slice.records")
        copied = writing.records[writing.done : writing.done + most]
        chosen = self._policies.snapshot_slice(copied, image)
        writing.done += most
        writing.next_ns = now.monotonic_ns + SLICE_NS
        if chosen:
            values = [r.encode(record, writing.level) for record in chosen]
            writing.data += record_batch.build(values, writing.written, writing.epoch, now.wall_ms)
            writing.written += len(chosen)
        if writing.done >= len(writing.records):
            self._store(writing)

    def _store(self, writing: _Writing) -> None:
        self._writing = None
        snapshot = Snapshot(writing.offset, writing.epoch, writing.data)
        # What is recorded is what the bytes say, and not what was meant to be in them: so a rule
        # can see a snapshot that is not its image.
        rebuilt = load(snapshot)
        self._out.note(
            SnapshotStored(
                offset=snapshot.offset,
                epoch=snapshot.epoch,
                records=writing.written,
                entities=len(records_of(rebuilt)),
                level=writing.level,
                digest=digest(rebuilt),
            )
        )
        # Stored first; only then may the batches below it go.
        self._out.add(StoreSnapshot(LOG_NAME, snapshot.offset, snapshot.epoch, snapshot.data))
        self._log.compact(snapshot)

    def _note_loaded(self, snapshot: Snapshot) -> None:
        rebuilt = digest(load(snapshot))
        self._out.note(SnapshotLoaded(offset=snapshot.offset, epoch=snapshot.epoch, digest=rebuilt))
