"""Kafka's committed metadata records, replayed into what our events say of them.

Pure: records in, event bodies out. A record that changes something tells the whole state after it,
as `metadata.broker` and `metadata.partition` do; kinds that no event is about are told by
`metadata.committed` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, final

from msgspec import Struct
from msgspec.structs import replace

from fencepost_clusters.apache_kafka.schema import Record
from fencepost_kafka import (
    BrokerCommitted,
    BrokerDeleted,
    FeatureFinalized,
    MetadataCommitted,
    PartitionCommitted,
    TopicCommitted,
)

_Key = TypeVar("_Key")
_Told = TypeVar("_Told", BrokerCommitted, PartitionCommitted)
_UNCHANGED = -2
"""PartitionChangeRecord's leader, when it stays."""
_ELR, _LAST_ELR = "EligibleLeaderReplicas", "LastKnownElr"
"""KIP-966; None where the records' version has them not."""
_IDLE = "NoOpRecord"
"""Written twice a second so that lags can be measured; nothing else is in it."""


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record of the log: where it is, the epoch of the controller that wrote it, its digest, and
    where its batch begins."""

    offset: int
    epoch: int
    record: Record
    digest: str
    batch: int


@final
class Metadata:
    """The state that the records up to now make."""

    def __init__(self) -> None:
        self._topics: dict[str, str] = {}
        """topic id -> topic."""
        self._partitions: dict[tuple[str, int], PartitionCommitted] = {}
        """topic id and number -> the partition as it is."""
        self._elrs: dict[tuple[str, int], tuple[tuple[int, ...], tuple[int, ...]]] = {}
        """As above -> the eligible leader replicas, and the last known ones."""
        self._brokers: dict[int, BrokerCommitted] = {}

    def replay_batch(self, batch: Sequence[StoredRecord]) -> Sequence[Struct]:
        """What the committed records of one batch tell.

        What a controller decides at once is in one batch, and each record of it may have been made
        of the state before: one may end a replica's eligibility, and the next elect it. So who was
        eligible before counts up to the partition's last record in the batch.
        """
        before = {(p.topic, p.partition): p.eligible for p in self._partitions.values()}
        told = [body for stored in batch for body in self.replay(stored)]
        last: set[tuple[str, int]] = set()
        for at in reversed(range(len(told))):
            body = told[at]
            if isinstance(body, PartitionCommitted):
                place = body.topic, body.partition
                if place in last:
                    eligible = dict.fromkeys((*body.eligible, *before.get(place, ())))
                    told[at] = replace(body, eligible=tuple(eligible))
                last.add(place)
        return told

    def replay(self, stored: StoredRecord) -> Sequence[Struct]:
        """What a committed record tells, itself first; nothing for an idle one."""
        record = stored.record
        if record.kind == _IDLE:
            return ()
        told: list[Struct] = [
            MetadataCommitted(
                stored.offset, stored.epoch, record.kind, stored.digest, record.version
            )
        ]
        teller = TABLE.get(record.kind)
        if teller is not None:
            told += teller(self, stored.offset, record.values)
        return told

    def restore(self, offset: int, records: Iterable[Record]) -> Sequence[Struct]:
        """What the records of a snapshot tell, the last record in which is at `offset`.

        They take the place of all there was: what is no more is told first, then what is not as it
        was, as of `offset`, and every feature.
        """
        new = Metadata()
        features: list[Struct] = []
        for record in records:
            teller = TABLE.get(record.kind)
            told = list(teller(new, offset, record.values)) if teller is not None else []
            features += (body for body in told if isinstance(body, FeatureFinalized))
        gone: list[Struct] = [
            TopicCommitted(offset, name, topic_id, deleted=True)
            for topic_id, name in self._topics.items()
            if topic_id not in new._topics
        ]
        gone += (BrokerDeleted(offset, one) for one in self._brokers if one not in new._brokers)
        come: list[Struct] = [
            TopicCommitted(offset, name, topic_id, deleted=False)
            for topic_id, name in new._topics.items()
            if topic_id not in self._topics
        ]
        come += _changed(self._brokers, new._brokers)
        come += _changed(self._partitions, new._partitions)
        self._topics, self._brokers = new._topics, new._brokers
        self._partitions, self._elrs = new._partitions, new._elrs
        return [*gone, *features, *come]

    def _registered(self, offset: int, values: Mapping[str, Any]) -> Iterator[Struct]:
        broker = values["BrokerId"]
        told = BrokerCommitted(
            offset, broker, values["BrokerEpoch"], values["Fenced"], values["IncarnationId"]
        )
        self._brokers[broker] = told
        yield told

    def _registration_changed(self, offset: int, values: Mapping[str, Any]) -> Iterator[Struct]:
        if values["Fenced"]:
            broker = values["BrokerId"]
            told = replace(self._brokers[broker], offset=offset, fenced=values["Fenced"] > 0)
            self._brokers[broker] = told
            yield told

    def _unregistered(self, offset: int, values: Mapping[str, Any]) -> Iterator[Struct]:
        self._brokers.pop(values["BrokerId"], None)
        yield BrokerDeleted(offset, values["BrokerId"])

    def _topic(self, offset: int, values: Mapping[str, Any]) -> Iterator[Struct]:
        self._topics[values["TopicId"]] = values["Name"]
        yield TopicCommitted(offset, values["Name"], values["TopicId"], deleted=False)

    def _topic_removed(self, offset: int, values: Mapping[str, Any]) -> Iterator[Struct]:
        topic_id = values["TopicId"]
        for key in [key for key in self._partitions if key[0] == topic_id]:
            del self._partitions[key], self._elrs[key]
        yield TopicCommitted(offset, self._topics.pop(topic_id), topic_id, deleted=True)

    def _partition(self, offset: int, values: Mapping[str, Any]) -> Iterator[Struct]:
        topic_id, number = values["TopicId"], values["PartitionId"]
        told = PartitionCommitted(
            offset, self._topics[topic_id], number, values["Leader"], values["LeaderEpoch"],
            tuple(values["Isr"]), tuple(values["Replicas"]), tuple(values["AddingReplicas"]),
            tuple(values["RemovingReplicas"]),
        )  # fmt: skip
        elrs = tuple(values[_ELR] or ()), tuple(values[_LAST_ELR] or ())
        yield self._now((topic_id, number), told, elrs)

    def _partition_changed(self, offset: int, values: Mapping[str, Any]) -> Iterator[Struct]:
        key = values["TopicId"], values["PartitionId"]
        was, elrs = self._partitions[key], self._elrs[key]
        moved = values["Leader"] != _UNCHANGED

        def now(name: str, before: tuple[int, ...]) -> tuple[int, ...]:
            return before if values[name] is None else tuple(values[name])

        told = PartitionCommitted(
            offset, was.topic, was.partition,
            values["Leader"] if moved else was.leader,
            # Only a record that names a leader begins an epoch: an ISR change alone does not.
            was.leader_epoch + moved,
            now("Isr", was.isr), now("Replicas", was.replicas),
            now("AddingReplicas", was.adding), now("RemovingReplicas", was.removing),
        )  # fmt: skip
        yield self._now(key, told, (now(_ELR, elrs[0]), now(_LAST_ELR, elrs[1])))

    def _now(
        self,
        key: tuple[str, int],
        told: PartitionCommitted,
        elrs: tuple[tuple[int, ...], tuple[int, ...]],
    ) -> Struct:
        """The partition as it is now. Once nobody is eligible any more, who led last may lead again
        (KIP-966): one record may say both, so it counts as soon as the ISR is empty."""
        eligible, last = elrs
        if not told.isr:
            eligible = tuple(dict.fromkeys((*eligible, *last)))
        told = replace(told, eligible=eligible)
        self._partitions[key], self._elrs[key] = told, elrs
        return told

    def _feature(self, offset: int, values: Mapping[str, Any]) -> Iterator[Struct]:
        yield FeatureFinalized(offset, values["Name"], values["FeatureLevel"])


def _changed(
    was: Mapping[_Key, _Told], now: Mapping[_Key, _Told]
) -> Iterator[BrokerCommitted | PartitionCommitted]:
    """What is not as it was, but for when that was told."""
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
    "FeatureLevelRecord": Metadata._feature,
}
"""Every kind of record that more is told of than that it was committed.

FenceBrokerRecord and UnfenceBrokerRecord are of a metadata.version below that which a disk is
formatted with by any version from 3.9 on: BrokerRegistrationChangeRecord has taken their place.
"""
