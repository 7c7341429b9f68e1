"""What the controller commands brokers, and tells them of the cluster: by control requests, in one
queue for each broker's process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import final
from uuid import UUID

from fencepost_clusters.reference.core.legacy.controller import messages
from fencepost_clusters.reference.core.legacy.controller.queues import Queues
from fencepost_clusters.reference.core.legacy.controller.store import Steps, Store
from fencepost_clusters.reference.core.legacy.policies import LegacyControllerPolicies
from fencepost_clusters.reference.core.legacy.registrations import Registration
from fencepost_clusters.reference.core.node.settings import REPLICATION_LISTENER, Settings
from fencepost_clusters.reference.core.replication.cluster_state import Partition
from fencepost_clusters.reference.core.replication.replica import Key
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error
from fencepost_clusters.reference.wire.legacy import BrokerState


@dataclass(slots=True)
class KnownBroker:
    """A broker as the controller knows it.

    `initialised` is the broker epoch that the last broker change found, `incarnation` the newest
    that a heartbeat has named.
    """

    registration: Registration
    state: BrokerState
    initialised: int
    incarnation: int
    heard_ns: int
    version: int

    @property
    def cached(self) -> int:
        """The newest broker epoch that the controller has read or a heartbeat has named (BE-04)."""
        return max(self.initialised, self.incarnation)


@final
class Announcer:
    """See the module. `later` puts a job at the end of the term's line."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        *,
        brokers: Mapping[int, KnownBroker],
        queues: Queues,
        policies: LegacyControllerPolicies,
        later: Callable[[Steps], None],
    ) -> None:
        self._settings = settings
        self._store = store
        self._epoch = store.stored.epoch
        self._brokers = brokers
        self._queues = queues
        self._policies = policies
        self._later = later
        self._initialised: set[int] = set()
        """The brokers that were sent the cluster's metadata in this term."""
        self._announced: tuple[int, ...] = ()
        """The brokers that the newest metadata name."""
        self._deleting: dict[str, set[int]] = {}
        """A topic that is being deleted -> the brokers that have not confirmed it."""

    def stop(self, broker: int, partitions: Sequence[Partition]) -> None:
        """Has a broker stop replicas, which keep their data."""
        epoch = self._queues.epoch(broker)
        if epoch is not None and partitions:
            request = messages.stop_replica(
                self.sender, self._store.image, epoch, partitions, delete=False
            )
            self._queues.add(broker, request)

    def announced(self) -> tuple[int, ...]:
        """The brokers that metadata name."""
        return tuple(
            sorted(b for b, one in self._brokers.items() if self._policies.is_announced(one.state))
        )

    def close(self, broker: int) -> None:
        """Nothing more is sent to a broker; what it has not confirmed is asked for again later."""
        self._queues.close(broker)
        self._deleting = {name: left for name, left in self._deleting.items() if broker not in left}

    def has_initialised(self, broker: int) -> bool:
        """Whether a process of this broker was initialised in this term."""
        return broker in self._initialised

    def initialise(self, broker: int) -> None:
        """Sends a process the cluster's metadata, and all partitions that it hosts (BE-06,
        BE-07)."""
        known = self._brokers[broker]
        address = known.registration.endpoint(REPLICATION_LISTENER)
        if address is None:
            return
        epoch = known.initialised
        self._initialised.add(broker)
        self._queues.open(broker, epoch, address)
        image = self._store.image
        every = image.all_partitions()
        sender = self.sender
        self._queues.add(
            broker, messages.update_metadata(sender, image, epoch, every, self.announced())
        )
        hosted = tuple(
            p for p in every if broker in p.replicas and p.topic_id not in image.deleting
        )
        first = self._policies.first_partitions(hosted)
        self._queues.add(broker, messages.leader_and_isr(sender, image, epoch, first))

    @property
    def sender(self) -> messages.Sender:
        """This controller as its requests name it."""
        return messages.Sender(
            id=self._settings.node_id,
            epoch=self._epoch,
            versions=self._store.stored.versions,
            protocol=self._settings.ms("inter.broker.protocol"),
        )

    def stop_removed(
        self, before: Mapping[Key, tuple[int, ...]], changed: Sequence[r.Record]
    ) -> None:
        """Has the replicas deleted that a reassignment has taken off their brokers."""
        for record in changed:
            if isinstance(record, r.PartitionRecord) and record.topic_id is not None:
                one = self._store.image.partitions[record.topic_id][record.partition_id]
                for broker in before.get((one.topic_id, one.index), ()):
                    epoch = self._queues.epoch(broker)
                    if broker not in one.replicas and epoch is not None:
                        request = messages.stop_replica(
                            self.sender, self._store.image, epoch, [one], delete=True
                        )
                        self._queues.add(broker, request)

    def announce(
        self,
        records: Iterable[r.Record],
        except_for: int | None = None,
        new: frozenset[str] = frozenset(),
    ) -> None:
        """Commands the replicas of changed partitions, and tells every broker of them."""
        image = self._store.image
        keys = {
            (record.topic_id, record.partition_id): None
            for record in records
            if isinstance(record, r.PartitionRecord | r.IsrChangeRecord)
        }
        changed = [image.partitions[t][i] for t, i in keys if t is not None]
        announced = self.announced()
        if not changed and announced == self._announced:
            return
        self._announced = announced
        for broker in sorted(self._brokers):
            epoch = self._queues.epoch(broker)
            if epoch is None or broker == except_for:
                continue
            # First what clients learn: a new leader is asked about a topic that it knows.
            self._queues.add(
                broker,
                messages.update_metadata(self.sender, image, epoch, changed, announced),
            )
            mine = [p for p in changed if broker in p.replicas]
            if mine:
                request = messages.leader_and_isr(self.sender, image, epoch, mine, new)
                self._queues.add(broker, request)

    def tell(self, records: Iterable[r.Record]) -> None:
        """Tells every broker of ISRs that their leaders asked for, which need no command."""
        changed = [
            self._store.image.partitions[record.topic_id][record.partition_id]
            for record in records
            if isinstance(record, r.IsrChangeRecord) and record.topic_id is not None
        ]
        self._update_metadata(changed)

    def announce_read(self, one: Partition) -> None:
        """Tells every broker of an ISR that its leader wrote itself (HB-22)."""
        self._update_metadata([one])

    def _update_metadata(self, changed: Sequence[Partition]) -> None:
        if not changed:
            return
        for broker in sorted(self._brokers):
            epoch = self._queues.epoch(broker)
            if epoch is not None:
                request = messages.update_metadata(
                    self.sender, self._store.image, epoch, changed, self.announced()
                )
                self._queues.add(broker, request)

    def continue_deletions(self) -> None:
        """Has every replica of the topics being deleted removed, once all its brokers live."""
        image = self._store.image
        for topic_id in sorted(image.deleting):
            name = image.names[topic_id]
            parts = list(image.partitions[topic_id].values())
            brokers = {b for p in parts for b in p.replicas}
            waiting = {b for b in brokers if self._queues.epoch(b) is not None}
            if waiting != brokers:
                self._deleting.pop(name, None)
                continue  # a broker is away: its replicas would outlive the topic (RP-25)
            if name in self._deleting:
                continue
            self._deleting[name] = set(brokers)
            for broker in sorted(brokers):
                epoch = self._queues.epoch(broker)
                assert epoch is not None
                mine = [p for p in parts if broker in p.replicas]
                self._queues.add(
                    broker,
                    messages.update_metadata(self.sender, image, epoch, parts, self.announced()),
                )
                self._queues.add(
                    broker,
                    messages.stop_replica(self.sender, image, epoch, mine, delete=True),
                    partial(self._deleted, name, broker),
                )

    def _deleted(self, name: str, broker: int, error: Error) -> None:
        """A broker has removed its replicas of a topic."""
        waiting = self._deleting.get(name)
        if waiting is None or error is not Error.NONE:
            return
        waiting.discard(broker)
        if not waiting:
            del self._deleting[name]
            topic_id = self._store.image.topics[name]
            self._later(self._delete_topic(topic_id))

    def _delete_topic(self, topic_id: UUID) -> Steps:
        def decide() -> list[r.Record]:
            image = self._store.image
            return [r.DeleteTopicRecord(name=t) for t in image.deleting if t == topic_id]

        yield from self._store.carry_out(decide)
