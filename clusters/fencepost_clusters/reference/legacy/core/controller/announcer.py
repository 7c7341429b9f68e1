"""The control requests that the controller sends to brokers after each change of the cluster: one
queue for each broker's process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import final
from uuid import UUID

from fencepost_clusters.reference.core.node.settings import REPLICATION_LISTENER, Settings
from fencepost_clusters.reference.core.replication.cluster_state import Partition
from fencepost_clusters.reference.core.replication.replica import Key
from fencepost_clusters.reference.legacy.core.controller import messages
from fencepost_clusters.reference.legacy.core.controller.queues import Make, Queues
from fencepost_clusters.reference.legacy.core.controller.store import Steps, Store
from fencepost_clusters.reference.legacy.core.policies import LegacyControllerPolicies
from fencepost_clusters.reference.legacy.core.registrations import Registration
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error
from fencepost_clusters.reference.wire.legacy import BrokerState


@dataclass(slots=True)
class KnownBroker:
    """The controller's state of a broker.

    `initialised` is the broker epoch that the last broker change found, `incarnation` the newest
    broker epoch in a heartbeat. A broker is `stopping` from its first controlled shutdown that is
    granted: it keeps what only it can lead, and gets no other leadership or place in an ISR.
    """

    registration: Registration
    state: BrokerState
    initialised: int
    incarnation: int
    heard_ns: int
    version: int
    stopping: bool = False

    @property
    def cached(self) -> int:
        """The newest broker epoch, from a registration or a heartbeat (BE-04)."""
        return max(self.initialised, self.incarnation)


@final
class Announcer:
    """See the module. `later` appends a job to the term's jobs."""

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
        """The brokers that were initialised in this term."""
        self._announced: tuple[int, ...] = ()
        """The brokers in the newest metadata."""
        self._deleting: dict[str, set[int]] = {}
        """Topic in deletion -> the brokers that have not confirmed the removal of its replicas."""

    def stop(self, broker: int, partitions: Sequence[Partition], *, delete: bool = False) -> None:
        """Commands a broker to stop replicas; `delete`: it deletes their data, too."""
        if partitions:
            self._queues.add(broker, self._stop_replica(partitions, delete))

    def _stop_replica(self, partitions: Sequence[Partition], delete: bool) -> Make:
        sender, image = self.sender, self._store.image
        return lambda epoch: messages.stop_replica(sender, image, epoch, partitions, delete)

    def _update_metadata(self, partitions: Sequence[Partition]) -> Make:
        sender, image, announced = self.sender, self._store.image, self.announced()
        return lambda epoch: messages.update_metadata(sender, image, epoch, partitions, announced)

    def _leader_and_isr(self, partitions: Sequence[Partition], new: Collection[Key] = ()) -> Make:
        sender, image = self.sender, self._store.image
        return lambda epoch: messages.leader_and_isr(sender, image, epoch, partitions, new)

    def announced(self) -> tuple[int, ...]:
        """The brokers that the metadata must name now."""
        return tuple(
            sorted(b for b, one in self._brokers.items() if self._policies.is_announced(one.state))
        )

    def close(self, broker: int) -> None:
        """Ends a broker's queue. The deletions that it has not confirmed start again later."""
        self._queues.close(broker)
        # Its confirmation may be lost with the queue. With the whole set forgotten,
        # `continue_deletions` commands all brokers anew; one that has deleted its replicas confirms
        # again.
        self._deleting = {name: left for name, left in self._deleting.items() if broker not in left}

    def has_initialised(self, broker: int) -> bool:
        """Whether the controller has initialised a process of this broker in this term."""
        return broker in self._initialised

    def initialise(self, broker: int) -> None:
        """Sends a process the cluster's metadata, and all partitions that it hosts (BE-06,
        BE-07)."""
        known = self._brokers[broker]
        address = known.registration.endpoint(REPLICATION_LISTENER)
        if address is None:
            return
        self._initialised.add(broker)
        self._queues.open(broker, known.initialised, address)
        image = self._store.image
        every = image.all_partitions()
        # UpdateMetadata before LeaderAndIsr, as in `announce`.
        self._queues.add(broker, self._update_metadata(every))
        hosted = tuple(
            p for p in every if broker in p.replicas and p.topic_id not in image.deleting
        )
        # Also if there is none: the first LeaderAndIsr tells the process which logs on its disk are
        # strays (BE-07).
        first = self._policies.first_partitions(hosted)
        self._queues.add(broker, self._leader_and_isr(first))

    @property
    def sender(self) -> messages.Sender:
        """The sender fields of this controller's requests."""
        return messages.Sender(
            id=self._settings.node_id,
            epoch=self._epoch,
            versions=self._store.stored.versions,
            protocol=self._settings.ms("inter.broker.protocol"),
        )

    def stop_removed(
        self, before: Mapping[Key, tuple[int, ...]], changed: Sequence[r.Record]
    ) -> None:
        """Commands brokers to delete the replicas that a reassignment has removed."""
        for record in changed:
            if isinstance(record, r.PartitionRecord):
                one = self._store.image.named(record)
                for broker in before.get((one.topic_id, one.index), ()):
                    if broker not in one.replicas:
                        self.stop(broker, [one], delete=True)

    def announce(
        self,
        records: Iterable[r.Record],
        except_for: int | None = None,
        new: Collection[Key] = (),
    ) -> None:
        """Sends UpdateMetadata about changed partitions to every broker, and LeaderAndIsr to their
        replicas. Those in `new` have just been created."""
        changed = self._changed(records)
        announced = self.announced()
        if not changed and announced == self._announced:
            return
        self._announced = announced
        for broker in sorted(self._queues.opened() - {except_for}):
            # UpdateMetadata comes first: a new leader must know the topic before clients ask.
            self._queues.add(broker, self._update_metadata(changed))
            mine = [p for p in changed if broker in p.replicas]
            if mine:
                self._queues.add(broker, self._leader_and_isr(mine, new))

    def tell(self, records: Iterable[r.Record]) -> None:
        """Sends UpdateMetadata about ISRs that leaders requested, which need no LeaderAndIsr."""
        self._tell(self._changed(records))

    def _changed(self, records: Iterable[r.Record]) -> list[Partition]:
        """The partitions of these records, each once."""
        keys = {
            (record.topic_id, record.partition_id): None
            for record in records
            if isinstance(record, r.PartitionRecord | r.IsrChangeRecord)
        }
        image = self._store.image
        return [image.partitions[t][i] for t, i in keys if t is not None]

    def announce_read(self, one: Partition) -> None:
        """Sends UpdateMetadata about an ISR that its leader wrote itself (HB-22)."""
        self._tell([one])

    def _tell(self, changed: Sequence[Partition]) -> None:
        if changed:
            for broker in sorted(self._queues.opened()):
                self._queues.add(broker, self._update_metadata(changed))

    def continue_deletions(self) -> None:
        """Commands the deletion of each topic in deletion whose brokers are all active."""
        image = self._store.image
        for topic_id in sorted(image.deleting):
            name = image.names[topic_id]
            parts = list(image.partitions[topic_id].values())
            brokers = {b for p in parts for b in p.replicas}
            if name in self._deleting or not brokers <= self._queues.opened():
                continue  # the replicas of an inactive broker would outlive the topic (RP-25)
            self._deleting[name] = set(brokers)
            for broker in sorted(brokers):
                mine = [p for p in parts if broker in p.replicas]
                self._queues.add(broker, self._update_metadata(parts))
                self._queues.add(
                    broker,
                    self._stop_replica(mine, delete=True),
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
