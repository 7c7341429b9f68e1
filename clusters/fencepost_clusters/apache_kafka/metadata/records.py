"""Makes events of Kafka's committed metadata records, by replaying them.

Pure: it takes records and returns event bodies. A record that changes something makes an event with
the whole state after it, as `metadata.broker` and `metadata.partition` have it; a record of any
other kind makes only a `metadata.committed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, final

from msgspec import Struct
from msgspec.structs import replace

from fencepost_clusters.apache_kafka.metadata.misplaced import ReplicaMisplaced
from fencepost_clusters.apache_kafka.metadata.schema import Record
from fencepost_kafka import (
    BrokerCommitted,
    BrokerDeleted,
    FeatureFinalized,
    MetadataCommitted,
    PartitionCommitted,
    TopicCommitted,
)

_Key = TypeVar("_Key")
_Committed = TypeVar("_Committed", BrokerCommitted, PartitionCommitted)
_UNCHANGED = -2
"""PartitionChangeRecord's leader if it does not change."""
_ELR, _LAST_ELR = "EligibleLeaderReplicas", "LastKnownElr"
"""KIP-966; None in versions of the record that do not have them."""
_LOG_DIRS, _DIRECTORIES = "LogDirs", "Directories"
"""KIP-858; None or empty in versions of the records that do not have them."""
_RESERVED = frozenset(f"{'A' * 21}{last}" for last in "AQg")
"""Kafka's own ids, which name no directory: none is chosen yet, it is lost, or it has no id yet."""
_IDLE = "NoOpRecord"
"""Written twice a second so that lags can be measured; it has no content."""


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record of the log: its offset, the epoch of the controller that wrote it, its digest, and
    the offset of its batch."""

    offset: int
    epoch: int
    record: Record
    digest: str
    batch: int


@final
class Metadata:
    """The state that results from the records so far."""

    def __init__(self) -> None:
        self._topics: dict[str, str] = {}
        """topic id -> topic."""
        self._partitions: dict[tuple[str, int], PartitionCommitted] = {}
        """topic id and number -> the partition's present state."""
        self._elrs: dict[tuple[str, int], tuple[tuple[int, ...], tuple[int, ...]]] = {}
        """As above -> the eligible leader replicas, and the last known ones."""
        self._placed: dict[tuple[str, int], Mapping[int, str]] = {}
        """As above -> the directory of each replica; none where records name no directories."""
        self._brokers: dict[int, BrokerCommitted] = {}
        self._directories: dict[int, frozenset[str]] = {}
        """broker id -> the directories on its disks that it has registered, and that are not lost
        since; not of a broker that registers none."""

    def replay_batch(self, batch: Sequence[StoredRecord]) -> Sequence[Struct]:
        """The event bodies of the committed records of one batch.

        The changes that a controller decides together are in one batch, and each record may have
        been made from the state before the batch: one may end a replica's eligibility, and the next
        elect it. So the replicas that were eligible before count until the partition's last record
        in the batch.
        """
        before = {(p.topic, p.partition): p.eligible for p in self._partitions.values()}
        bodies = [body for stored in batch for body in self.replay(stored)]
        # From the end on: the last record of a partition keeps its own eligible replicas.
        last: set[tuple[str, int]] = set()
        for at in reversed(range(len(bodies))):
            body = bodies[at]
            if isinstance(body, PartitionCommitted):
                place = body.topic, body.partition
                if place in last:
                    eligible = dict.fromkeys((*body.eligible, *before.get(place, ())))
                    bodies[at] = replace(body, eligible=tuple(eligible))
                last.add(place)
        return bodies

    def replay(self, stored: StoredRecord) -> Sequence[Struct]:
        """The event bodies of a committed record, its own first; none for an idle record."""
        record = stored.record
        if record.kind == _IDLE:
            return ()
        bodies: list[Struct] = [
            MetadataCommitted(
                offset=stored.offset,
                epoch=stored.epoch,
                kind=record.kind,
                digest=stored.digest,
                version=record.version,
            )
        ]
        make_bodies = TABLE.get(record.kind)
        if make_bodies is not None:
            bodies += make_bodies(self, stored.offset, record.values)
        return bodies

    def restore(self, offset: int, records: Iterable[Record]) -> Sequence[Struct]:
        """The event bodies of a snapshot's records, the last of which is at `offset`.

        The snapshot replaces the whole state. The bodies are about entities that no longer exist,
        every feature, and entities that differ from before, all as of `offset`.
        """
        new = Metadata()
        features: list[Struct] = []
        for record in records:
            make_bodies = TABLE.get(record.kind)
            bodies = (
                list(make_bodies(new, offset, record.values)) if make_bodies is not None else []
            )
            features += (body for body in bodies if isinstance(body, FeatureFinalized))
        gone: list[Struct] = [
            TopicCommitted(offset=offset, topic=name, topic_id=topic_id, deleted=True)
            for topic_id, name in self._topics.items()
            # By the id: a topic that was deleted and made again has another one, and both are told.
            if topic_id not in new._topics
        ]
        gone += (
            BrokerDeleted(offset=offset, broker_id=one)
            for one in self._brokers
            if one not in new._brokers
        )
        come: list[Struct] = [
            TopicCommitted(offset=offset, topic=name, topic_id=topic_id, deleted=False)
            for topic_id, name in new._topics.items()
            if topic_id not in self._topics
        ]
        come += _changed(self._brokers, new._brokers)
        come += _changed(self._partitions, new._partitions)
        self._topics, self._brokers = new._topics, new._brokers
        self._partitions, self._elrs = new._partitions, new._elrs
        self._directories, self._placed = new._directories, new._placed
        return [*gone, *features, *come]

    def _registered(self, offset: int, values: Mapping[str, Any]) -> Iterator[Struct]:
        broker = values["BrokerId"]
        body = BrokerCommitted(
            offset=offset,
            broker_id=broker,
            broker_epoch=values["BrokerEpoch"],
            fenced=values["Fenced"],
            incarnation=values["IncarnationId"],
        )
        self._brokers[broker] = body
        # The registration says anew which directories there are, if it names any.
        self._directories.pop(broker, None)
        yield body
        yield from self._has_directories(offset, broker, values)

    def _has_directories(
        self, offset: int, broker: int, values: Mapping[str, Any]
    ) -> Iterator[Struct]:
        """The directories of a broker, if a record of it names any, and the partitions of which
        replicas are offline by that, or no more."""
        if values.get(_LOG_DIRS):
            self._directories[broker] = frozenset(values[_LOG_DIRS])
        for key, was in self._partitions.items():
            if broker in self._placed[key] and self._offline(key) != was.offline:
                body = replace(was, offset=offset, offline=self._offline(key))
                self._partitions[key] = body
                yield body

    def _offline(self, key: tuple[str, int]) -> tuple[int, ...]:
        """The replicas of a partition whose brokers have not registered their directory."""
        return tuple(
            one for one, directory in self._placed[key].items() if self._lacks(one, directory)
        )

    def _lacks(self, broker: int, directory: str) -> bool:
        own = self._directories.get(broker)
        # A broker that registers no directories lacks none.
        return own is not None and directory not in own and directory not in _RESERVED

    def _registration_changed(self, offset: int, values: Mapping[str, Any]) -> Iterator[Struct]:
        broker = values["BrokerId"]
        yield from self._has_directories(offset, broker, values)
        # 0: the record leaves it as it is.
        if values["Fenced"]:
            body = replace(self._brokers[broker], offset=offset, fenced=values["Fenced"] > 0)
            self._brokers[broker] = body
            yield body

    def _unregistered(self, offset: int, values: Mapping[str, Any]) -> Iterator[Struct]:
        self._brokers.pop(values["BrokerId"], None)
        yield BrokerDeleted(offset=offset, broker_id=values["BrokerId"])

    def _topic(self, offset: int, values: Mapping[str, Any]) -> Iterator[Struct]:
        self._topics[values["TopicId"]] = values["Name"]
        yield TopicCommitted(
            offset=offset, topic=values["Name"], topic_id=values["TopicId"], deleted=False
        )

    def _topic_removed(self, offset: int, values: Mapping[str, Any]) -> Iterator[Struct]:
        topic_id = values["TopicId"]
        for key in [key for key in self._partitions if key[0] == topic_id]:
            del self._partitions[key], self._elrs[key], self._placed[key]
        yield TopicCommitted(
            offset=offset, topic=self._topics.pop(topic_id), topic_id=topic_id, deleted=True
        )

    def _partition(self, offset: int, values: Mapping[str, Any]) -> Iterator[Struct]:
        topic_id, number = values["TopicId"], values["PartitionId"]
        body = PartitionCommitted(
            offset=offset,
            topic=self._topics[topic_id],
            partition=number,
            leader=values["Leader"],
            leader_epoch=values["LeaderEpoch"],
            isr=tuple(values["Isr"]),
            replicas=tuple(values["Replicas"]),
            adding=tuple(values["AddingReplicas"]),
            removing=tuple(values["RemovingReplicas"]),
        )
        elrs = tuple(values.get(_ELR) or ()), tuple(values.get(_LAST_ELR) or ())
        self._placed[topic_id, number] = {}
        self._place((topic_id, number), body, values)
        yield self._now((topic_id, number), body, elrs)
        yield from self._misplaced(body, values)

    def _partition_changed(self, offset: int, values: Mapping[str, Any]) -> Iterator[Struct]:
        key = values["TopicId"], values["PartitionId"]
        was, elrs = self._partitions[key], self._elrs[key]
        moved = values["Leader"] != _UNCHANGED

        def now(name: str, before: tuple[int, ...]) -> tuple[int, ...]:
            found = values.get(name)  # a release from before KIP-966 knows no eligible replicas
            return before if found is None else tuple(found)

        body = PartitionCommitted(
            offset=offset,
            topic=was.topic,
            partition=was.partition,
            leader=values["Leader"] if moved else was.leader,
            # Only a record that names a leader begins an epoch; a change of the ISR alone does not.
            leader_epoch=was.leader_epoch + moved,
            isr=now("Isr", was.isr),
            replicas=now("Replicas", was.replicas),
            adding=now("AddingReplicas", was.adding),
            removing=now("RemovingReplicas", was.removing),
        )
        self._place(key, body, values)
        yield self._now(key, body, (now(_ELR, elrs[0]), now(_LAST_ELR, elrs[1])))
        yield from self._misplaced(body, values)

    def _place(
        self, key: tuple[str, int], body: PartitionCommitted, values: Mapping[str, Any]
    ) -> None:
        """Keeps the directories of a partition's replicas, if a record names them."""
        if values.get(_DIRECTORIES):
            self._placed[key] = dict(zip(body.replicas, values[_DIRECTORIES], strict=False))

    def _misplaced(self, body: PartitionCommitted, values: Mapping[str, Any]) -> Iterator[Struct]:
        """The replicas that a record moves to directories which their brokers have not."""
        for broker, directory in zip(body.replicas, values.get(_DIRECTORIES) or (), strict=False):
            if self._lacks(broker, directory):
                yield ReplicaMisplaced(
                    offset=body.offset,
                    topic=body.topic,
                    partition=body.partition,
                    broker_id=broker,
                    directory=directory,
                )

    def _eligible_cleared(self, offset: int, values: Mapping[str, Any]) -> Iterator[Struct]:
        """Of one topic, or of all: no replica outside the ISR may lead any more."""
        topic = values["TopicName"]
        for key, was in self._partitions.items():
            if topic in ("", was.topic) and any(self._elrs[key]):
                yield self._now(key, replace(was, offset=offset), ((), ()))

    def _now(
        self,
        key: tuple[str, int],
        body: PartitionCommitted,
        elrs: tuple[tuple[int, ...], tuple[int, ...]],
    ) -> Struct:
        """The partition's present state. Once no replica is eligible, the last leader may lead
        again (KIP-966). One record may state both, so that counts as soon as the ISR is empty."""
        eligible, last = elrs
        if not body.isr:
            eligible = tuple(dict.fromkeys((*eligible, *last)))
        body = replace(body, eligible=eligible, offline=self._offline(key))
        self._partitions[key], self._elrs[key] = body, elrs
        return body

    def _feature(self, offset: int, values: Mapping[str, Any]) -> Iterator[Struct]:
        yield FeatureFinalized(offset=offset, feature=values["Name"], level=values["FeatureLevel"])


def _changed(
    was: Mapping[_Key, _Committed], now: Mapping[_Key, _Committed]
) -> Iterator[BrokerCommitted | PartitionCommitted]:
    """The events that differ from those before, apart from the offset."""
    for key, one in now.items():
        before = was.get(key)
        if before is None or replace(before, offset=one.offset) != one:
            yield one


TABLE: Mapping[str, Callable[[Metadata, int, Mapping[str, Any]], Iterator[Struct]]] = {
    "RegisterBrokerRecord": Metadata._registered,
    "BrokerRegistrationChangeRecord": Metadata._registration_changed,
    "UnregisterBrokerRecord": Metadata._unregistered,
    "TopicRecord": Metadata._topic,
    "RemoveTopicRecord": Metadata._topic_removed,
    "PartitionRecord": Metadata._partition,
    "PartitionChangeRecord": Metadata._partition_changed,
    "ClearElrRecord": Metadata._eligible_cleared,
    "FeatureLevelRecord": Metadata._feature,
}
"""Every kind of record that makes an event beyond `metadata.committed`.

FenceBrokerRecord and UnfenceBrokerRecord are missing: BrokerRegistrationChangeRecord has replaced
them in every metadata.version that 3.3 or newer formats a disk with.
"""
