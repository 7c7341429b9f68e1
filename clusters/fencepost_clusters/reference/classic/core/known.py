"""The cluster as a broker has read it from ZooKeeper: hard state, which only reads and the broker's
own stored writes change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from fencepost_clusters.reference.classic.core import znodes
from fencepost_clusters.reference.core.cluster.image import Image
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.replication.cluster_state import Broker, Partition
from fencepost_clusters.reference.core.replication.replica import Key
from fencepost_kafka import BrokerCommitted, BrokersListed, TopicCommitted, TopicMarked


class Registration(Struct, frozen=True):
    """A broker's znode: its czxid, which is the broker epoch, its version, and its content."""

    broker: int
    epoch: int
    version: int
    info: znodes.BrokerInfo

    @property
    def since(self) -> int:
        """The czxid of the process's first registration, which names the process."""
        return self.epoch if self.info.since < 0 else self.info.since


class StoredIsr(Struct, frozen=True):
    """The content of an ISR znode, and its version."""

    content: znodes.Isr
    version: int


class Read(Struct, frozen=True, kw_only=True):
    """The znodes of a partition at one time. `offset` is the newest transaction that changed one of
    them, `target` the new replicas of a reassignment under way."""

    offset: int
    led: bool
    assigned: tuple[int, ...]
    target: tuple[int, ...] | None
    isr: StoredIsr
    versions: dict[str, int]


@dataclass(slots=True)
class Known:
    """See the module. `versions` are the data versions of znodes, by path."""

    me: int
    out: Outbox
    image: Image = field(default_factory=Image)
    registrations: dict[int, Registration] = field(default_factory=dict)
    listed: bool = False
    """Whether the list of registrations was ever read."""
    isrs: dict[Key, StoredIsr] = field(default_factory=dict)
    assigned: dict[Key, tuple[int, ...]] = field(default_factory=dict)
    """The replicas of each partition, those of before a reassignment that is under way."""
    versions: dict[str, int] = field(default_factory=dict)
    offsets: dict[Key, int] = field(default_factory=dict)
    """The newest transaction that is applied, by partition."""

    # ------------------------------------------------------------------------------------ brokers

    def set_registrations(self, found: dict[int, Registration], offset: int) -> None:
        """Applies the registrations that were read; `offset` is the newest change of their list."""
        if not self.listed:
            self.listed = True
            self.out.note(BrokersListed(offset=offset, live=tuple(sorted(found))))
        for broker, one in sorted(found.items()):
            before = self.registrations.get(broker)
            if before is None or before.epoch != one.epoch:
                self._note_broker(one, one.epoch, fenced=False)
            self.image.brokers[broker] = self._broker(one, fenced=False)
        for broker in sorted(self.registrations.keys() - found.keys()):
            gone = self.registrations[broker]
            self._note_broker(gone, offset, fenced=True)
            self.image.brokers[broker] = self._broker(gone, fenced=True)
        self.registrations = found

    @staticmethod
    def _broker(one: Registration, fenced: bool) -> Broker:
        return Broker(
            id=one.broker,
            epoch=one.epoch,
            fenced=fenced,
            incarnation=None,
            endpoints=one.info.endpoints,
            registered_at=one.since,
        )

    def _note_broker(self, one: Registration, offset: int, fenced: bool) -> None:
        self.out.note(
            BrokerCommitted(
                offset=offset,
                broker_id=one.broker,
                broker_epoch=one.epoch,
                fenced=fenced,
                incarnation=f"{one.since:x}",
                role="broker",
            )
        )

    def process_of(self, broker: int) -> int | None:
        """The registered process of a broker; None: none is."""
        one = self.registrations.get(broker)
        return None if one is None else one.since

    def ready(self) -> frozenset[int]:
        """The live brokers that take leaderships: those that are not stopping."""
        return frozenset(b for b, one in self.registrations.items() if not one.info.stopping)

    # ------------------------------------------------------------------------------------- topics

    def set_topic(self, name: str, content: znodes.Topic, created: int, changed: int) -> None:
        """Applies a topic's znode, by the transactions that created and changed it."""
        image = self.image
        if name not in image.topics:
            image.topics[name] = content.id
            image.names[content.id] = name
            image.partitions[content.id] = {}
            self._note_topic(name, created, deleted=False)
        if content.deleting and content.id not in image.deleting:
            image.deleting.add(content.id)
            self.out.note(TopicMarked(offset=changed, topic=name, topic_id=str(content.id)))
        image.settings[name] = dict(content.config)

    def forget_topic(self, name: str, offset: int) -> tuple[Key, ...]:
        """Removes a topic that is gone; returns its partitions."""
        self._note_topic(name, offset, deleted=True)
        image = self.image
        topic_id = image.topics.pop(name)
        del image.names[topic_id]
        image.deleting.discard(topic_id)
        image.settings.pop(name, None)
        gone = tuple((topic_id, index) for index in sorted(image.partitions.pop(topic_id)))
        for key in gone:
            self.isrs.pop(key, None)
            self.offsets.pop(key, None)
        return gone

    def _note_topic(self, name: str, offset: int, deleted: bool) -> None:
        """As the word of a controller: a topic is gone only once each broker, upon a request, has
        removed its replicas."""
        topic_id = str(self.image.topics[name])
        self.out.note(
            TopicCommitted(
                offset=offset, topic=name, topic_id=topic_id, deleted=deleted, role="controller"
            )
        )

    # --------------------------------------------------------------------------------- partitions

    def partition(self, key: Key) -> Partition | None:
        """A partition, if it is known."""
        return self.image.partitions.get(key[0], {}).get(key[1])

    def set_partition(self, key: Key, read: Read) -> None:
        """Applies a partition's znodes."""
        self.versions |= read.versions
        self.assigned[key] = read.assigned
        content = read.isr.content
        wanted = read.target
        replicas = read.assigned
        adding: tuple[int, ...] = ()
        removing: tuple[int, ...] = ()
        if wanted is not None:
            adding = tuple(b for b in wanted if b not in read.assigned)
            removing = tuple(b for b in read.assigned if b not in wanted)
            replicas = (*wanted, *removing)
        one = Partition(
            topic_id=key[0],
            index=key[1],
            replicas=replicas,
            isr=_ordered(replicas, content.isr),
            leader=content.leader if read.led else -1,
            leader_epoch=content.epoch,
            adding=adding,
            removing=removing,
            preparing=read.led and content.preparing,
        )
        self._set(key, one, read.isr, read.offset)

    def set_isr(self, key: Key, stored: StoredIsr, offset: int, leader: int | None = None) -> None:
        """Applies an ISR that this broker has stored, as the leader, or in its election."""
        before = self.image.partitions[key[0]][key[1]]
        one = replace(
            before,
            isr=_ordered(before.replicas, stored.content.isr),
            leader=before.leader if leader is None else leader,
            leader_epoch=stored.content.epoch,
            preparing=stored.content.preparing,
        )
        self._set(key, one, stored, offset)

    def unled(self, key: Key) -> None:
        """This broker leads a partition no longer, whatever ZooKeeper has."""
        before = self.image.partitions[key[0]][key[1]]
        self.image.partitions[key[0]][key[1]] = replace(before, leader=-1, preparing=False)

    def _set(self, key: Key, one: Partition, stored: StoredIsr, offset: int) -> None:
        newest = self.offsets.get(key, -1)
        # A read may end after this broker's own write that is newer.
        if offset < newest:
            return
        self.image.partitions[key[0]][key[1]] = one
        self.isrs[key] = stored
        self.offsets[key] = offset
        # The same state may be read often. Each transaction is reported once.
        if offset > newest and key[0] not in self.image.deleting:
            self._note_partition(one, offset)

    def _note_partition(self, one: Partition, offset: int) -> None:
        self.out.note(self.image.committed(one, offset, "broker"))

    def led_by_me(self) -> Sequence[Key]:
        """The partitions that this broker leads, by topic name and number."""
        return [
            (one.topic_id, one.index)
            for one in self.image.all_partitions()
            if one.leader == self.me
        ]


def _ordered(replicas: tuple[int, ...], isr: tuple[int, ...]) -> tuple[int, ...]:
    """An ISR in the order of the replicas."""
    return (*(b for b in replicas if b in isr), *(b for b in isr if b not in replicas))
