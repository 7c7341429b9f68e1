"""One term of a controller: the cluster as it is stored, the brokers as they are known, and the
jobs that change both.

A job is a part of a task (`session`), and one runs at a time, so that each decides upon what the
one before has stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import final
from uuid import UUID

from fencepost_clusters.reference.core.cluster import leadership, reassigning
from fencepost_clusters.reference.core.cluster.policies import ClusterPolicies
from fencepost_clusters.reference.core.legacy import registrations, znodes
from fencepost_clusters.reference.core.legacy.controller import messages
from fencepost_clusters.reference.core.legacy.controller.election import Won
from fencepost_clusters.reference.core.legacy.controller.queues import Queues
from fencepost_clusters.reference.core.legacy.controller.stored import Stored
from fencepost_clusters.reference.core.legacy.policies import LegacyControllerPolicies
from fencepost_clusters.reference.core.legacy.registrations import Registration
from fencepost_clusters.reference.core.legacy.session import certain
from fencepost_clusters.reference.core.legacy.states import CONTROLLER_NAMES
from fencepost_clusters.reference.core.node.effects import Instant, Outbox
from fencepost_clusters.reference.core.node.settings import REPLICATION_LISTENER, Settings
from fencepost_clusters.reference.core.replication.cluster_state import Partition
from fencepost_clusters.reference.core.replication.replica import Key
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error
from fencepost_clusters.reference.wire.legacy import BrokerState
from fencepost_clusters.zookeeper import port as zk
from fencepost_kafka import (
    BrokerDeclared,
    ControllerState,
    DeclaredFor,
    PartitionCommitted,
    TopicCommitted,
    TopicMarked,
    ZnodeUnreadable,
)

MS = 1_000_000

Steps = Generator[zk.Request, zk.Answer, None]
Decide = Callable[[], Sequence[r.Record]]


class Deposed(Exception):
    """A write was refused: another controller has stored its epoch."""


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


@final
class Term:
    """See the module. `now` is the moment of the step that is under way."""

    def __init__(
        self,
        won: Won,
        settings: Settings,
        queues: Queues,
        policies: LegacyControllerPolicies,
        cluster: ClusterPolicies,
        out: Outbox,
        now: Instant,
    ) -> None:
        self.epoch = won.epoch
        self.first = won.first
        self.stored = Stored(epoch=won.epoch, epoch_version=won.version)
        self.brokers: dict[int, KnownBroker] = {}
        self.over = False
        self.ready = False
        """Whether the state is read, so that requests can be decided."""
        self.now = now
        self._settings = settings
        self._queues = queues
        self._policies = policies
        self._cluster = cluster
        self._out = out
        self._jobs: deque[Steps] = deque()
        self._running = False
        self._wanted_change = False
        self._announced: tuple[int, ...] = ()
        """The brokers that the newest metadata name."""
        self._deleting: dict[str, set[int]] = {}
        """A topic that is being deleted -> the brokers that have not confirmed it."""

    # ------------------------------------------------------------------------------------- jobs

    def add(self, job: Steps) -> None:
        """Puts a job at the end of the line."""
        self._jobs.append(job)

    @property
    def has_work(self) -> bool:
        """Whether jobs wait and none runs."""
        return bool(self._jobs) and not self._running and not self.over

    def work(self) -> Steps:
        """Runs the jobs in order until none is left."""
        self._running = True
        while self._jobs and not self.over:
            yield from self._jobs.popleft()
        self._running = False

    # ------------------------------------------------------------------------------ the beginning

    def begin(self) -> Steps:
        """Reads all that is stored, and puts every registered broker in a state (HB-02)."""
        yield from self._read_topics()
        config = certain((yield zk.GetData(znodes.BROKER_CONFIG)))
        if isinstance(config, zk.Data):
            self._read_config("", znodes.BROKER_CONFIG, config)
        marked = certain((yield zk.GetChildren(znodes.DELETE_TOPICS, watch=True)))
        if isinstance(marked, zk.Children):
            for name in marked.names:
                if name in self.stored.image.topics:
                    topic_id = self.stored.image.topics[name]
                    self.stored.replay([r.TopicRecord(name=name, topic_id=topic_id, deleting=True)])
        found = yield from registrations.read_all(self._unreadable)
        self.ready = True
        for one in found.values():
            state = self._policies.state_of_newcomer(one.info.version)
            if not self.first and state is BrokerState.INITIAL:
                state = BrokerState.ACTIVE  # a failover makes nobody inactive by itself
            self._meet(one, state, "controller_elected")
        every = self.stored.image.all_partitions()
        for broker in sorted({b for p in every for b in p.replicas} - set(found)):
            self._note_absent(broker)
        gone = {b for p in every for b in (*p.isr, p.leader)}
        yield from self._elect_without(sorted(gone - {-1} - set(self._electable())))
        yield from self._elect_leaderless()
        for broker, known in self.brokers.items():
            if known.state in (BrokerState.ACTIVE, BrokerState.STOPPING):
                self._initialise(broker)
        self._continue_deletions()

    def _read_topics(self) -> Steps:
        listed = certain((yield zk.GetChildren(znodes.TOPICS, watch=True)))
        names = listed.names if isinstance(listed, zk.Children) else ()
        states: list[tuple[int, Partition]] = []
        for name in names:
            read = certain((yield zk.GetData(znodes.topic(name))))
            if not isinstance(read, zk.Data):
                continue
            try:
                content = znodes.decode(znodes.topic(name), read.data, znodes.Assignment)
                self.stored.read_topic(name, content, read.stat.version)
            except znodes.BadZnode as bad:
                self._unreadable(str(bad))
                continue
            for index in sorted(int(one) for one in content.partitions):
                path = znodes.state(name, index)
                state = certain((yield zk.GetData(path, watch=True)))
                if not isinstance(state, zk.Data):
                    continue
                try:
                    one = self.stored.read_state(name, index, state.data, state.stat.version)
                    states.append((state.stat.mzxid, one))
                except znodes.BadZnode as bad:
                    self._unreadable(str(bad))
            config = certain((yield zk.GetData(znodes.config(name))))
            if isinstance(config, zk.Data):
                self._read_config(name, znodes.config(name), config)
        for zxid, one in sorted(states, key=lambda found: found[0]):
            self._note_partition(one, zxid)

    def _read_config(self, name: str, path: str, read: zk.Data) -> None:
        self.stored.versions[path] = read.stat.version
        try:
            values = znodes.decode(path, read.data, znodes.Config).config
        except znodes.BadZnode as bad:
            self._unreadable(str(bad))
            return
        if name:
            self.stored.image.settings[name] = dict(values)
        else:
            self.stored.image.broker_settings.update(values)

    def _unreadable(self, said: str) -> None:
        """A znode that another process wrote is no part of the cluster, and is left alone."""
        self._out.note(ZnodeUnreadable(said))

    # ------------------------------------------------------------------------------------- storing

    def store(self, decide: Decide) -> Generator[zk.Request, zk.Answer, Sequence[r.Record]]:
        """Stores what `decide` returns, deciding again if a partition was changed meanwhile.

        Raises Deposed or Disconnected.
        """
        while True:
            records = decide()
            writes = self.stored.transaction(records)
            if not writes:
                self.stored.replay(records)
                return records
            answer = certain((yield zk.Multi(writes)))
            assert isinstance(answer, zk.Done), answer
            refused = [
                (write, result)
                for write, result in zip(writes, answer.results, strict=True)
                if isinstance(result, zk.Refused)
            ]
            if not refused:
                break
            write, _ = next(
                one
                for one in refused
                if one[1].why not in (zk.Reason.ROLLED_BACK, zk.Reason.AFTER_REFUSED)
            )
            if isinstance(write, zk.Check) or self.over:
                raise Deposed
            yield from self._read_again(write.path)
        before = dict(self.stored.image.names)
        zxid = self.stored.wrote(writes, answer.results)
        if zxid < 0:
            made = certain((yield zk.Exists(writes[1].path)))
            zxid = made.stat.czxid if isinstance(made, zk.Found) and made.stat else 0
        self.stored.replay(records)
        self._note(records, before, zxid)
        return records

    def _read_again(self, path: str) -> Steps:
        """A znode has another version than this controller has read."""
        parts = path.split("/")
        read = certain((yield zk.GetData(path, watch=path.endswith("/state"))))
        if not isinstance(read, zk.Data):
            return
        if path.endswith("/state"):
            name, index = parts[3], int(parts[5])
            try:
                one = self.stored.read_state(name, index, read.data, read.stat.version)
            except znodes.BadZnode as bad:
                self._unreadable(str(bad))
                raise Deposed from bad
            self._note_partition(one, read.stat.mzxid)
        else:
            self.stored.versions[path] = read.stat.version

    def refresh(self, path: str) -> Generator[zk.Request, zk.Answer, Partition | None]:
        """Reads a partition's state again, and watches it; the partition if it was another."""
        name, index = path.split("/")[3], int(path.split("/")[5])
        known = self.stored.versions.get(path)
        before = self.stored.image.partition(name, index)
        if known is None or before is None:
            return None
        read = certain((yield zk.GetData(path, watch=True)))
        if not isinstance(read, zk.Data) or read.stat.version <= known:
            return None
        yield from self._read_again(path)
        after = self.stored.image.partition(name, index)
        return after if after != before else None

    def _note(self, records: Iterable[r.Record], before: Mapping[UUID, str], zxid: int) -> None:
        image = self.stored.image
        for record in records:
            match record:
                case r.TopicRecord(deleting=True):
                    self._out.note(TopicMarked(zxid, record.name, str(record.topic_id)))
                case r.TopicRecord():
                    self._out.note(
                        TopicCommitted(
                            offset=zxid,
                            topic=record.name,
                            topic_id=str(record.topic_id),
                            deleted=False,
                            role="controller",
                        )
                    )
                case r.DeleteTopicRecord():
                    assert record.name is not None
                    self._out.note(
                        TopicCommitted(
                            offset=zxid,
                            topic=before[record.name],
                            topic_id=str(record.name),
                            deleted=True,
                            role="controller",
                        )
                    )
                case r.PartitionRecord() | r.IsrChangeRecord():
                    assert record.topic_id is not None
                    self._note_partition(
                        image.partitions[record.topic_id][record.partition_id], zxid
                    )
                case _:
                    pass

    def _note_partition(self, one: Partition, zxid: int) -> None:
        self._out.note(
            PartitionCommitted(
                offset=zxid,
                topic=self.stored.image.names[one.topic_id],
                partition=one.index,
                leader=one.leader,
                leader_epoch=one.leader_epoch,
                isr=one.isr,
                replicas=one.replicas,
                adding=one.adding,
                removing=one.removing,
                role="controller",
            )
        )

    # ----------------------------------------------------------------------------------- brokers

    def _meet(self, one: Registration, state: BrokerState, reason: DeclaredFor) -> None:
        """A process that the controller has not known: its state, and its endpoints."""
        self.stored.image.brokers.pop(one.broker, None)
        self.brokers[one.broker] = KnownBroker(
            registration=one,
            state=BrokerState.INITIAL,
            initialised=one.epoch,
            incarnation=one.epoch,
            heard_ns=self.now.monotonic_ns,
            version=one.info.version,
        )
        self._set_state(one.broker, state, reason, "Absent")

    def _set_state(
        self,
        broker: int,
        state: BrokerState,
        reason: DeclaredFor,
        old: ControllerState | None = None,
    ) -> None:
        known = self.brokers[broker]
        before = old or CONTROLLER_NAMES[known.state]
        known.state = state
        self._replay_broker(broker, not self._policies.may_lead(state))
        self._out.note(
            BrokerDeclared(
                broker_id=broker,
                incarnation_id=known.incarnation,
                old=before,
                new=CONTROLLER_NAMES[state],
                reason=reason,
                version=known.version,
                silent_ms=(self.now.monotonic_ns - known.heard_ns) // MS,
                timeout_ms=self._settings.ms("controller.heartbeat.timeout.ms"),
                controller_epoch=self.epoch,
            )
        )

    def _replay_broker(self, broker: int, fenced: bool) -> None:
        known = self.brokers[broker]
        self.stored.replay(
            [
                r.BrokerRecord(
                    broker_id=broker,
                    broker_epoch=known.initialised,
                    end_points=tuple(
                        r.EndPoint(name=n, host=h, port=p)
                        for n, h, p in known.registration.info.endpoints
                    ),
                    fenced=fenced,
                )
            ]
        )

    def _electable(self) -> tuple[int, ...]:
        return self.stored.image.live()

    def announced(self) -> tuple[int, ...]:
        """The brokers that metadata name."""
        return tuple(
            sorted(b for b, one in self.brokers.items() if self._policies.is_announced(one.state))
        )

    def _note_absent(self, broker: int) -> None:
        """A broker that should have replicas has no registration as this term begins."""
        self._out.note(
            BrokerDeclared(
                broker_id=broker,
                incarnation_id=-1,
                old="Absent",
                new="Absent",
                reason="controller_elected",
                version=0,
                silent_ms=0,
                timeout_ms=self._settings.ms("controller.heartbeat.timeout.ms"),
                controller_epoch=self.epoch,
            )
        )

    def _close_queue(self, broker: int) -> None:
        """Nothing more is sent to a broker; what it has not confirmed is asked for again later."""
        self._queues.close(broker)
        self._deleting = {name: left for name, left in self._deleting.items() if broker not in left}

    def _forget(self, broker: int, reason: DeclaredFor) -> None:
        """A broker without a znode is in the cluster no longer (HB-28)."""
        known = self.brokers.pop(broker)
        self._close_queue(broker)
        self.stored.replay([r.DeleteBrokerRecord(id=broker)])
        self._out.note(
            BrokerDeclared(
                broker_id=broker,
                incarnation_id=known.initialised,
                old=CONTROLLER_NAMES[known.state],
                new="Absent",
                reason=reason,
                version=known.version,
                silent_ms=(self.now.monotonic_ns - known.heard_ns) // MS,
                timeout_ms=self._settings.ms("controller.heartbeat.timeout.ms"),
                controller_epoch=self.epoch,
            )
        )

    def change_soon(self) -> None:
        """The registrations have changed, or may have: they are to be read again."""
        if not self._wanted_change:
            self._wanted_change = True
            self.add(self._broker_change())

    def _broker_change(self) -> Steps:
        """Compares the registrations with what is known of each broker (BE-05)."""
        self._wanted_change = False
        found = yield from registrations.read_all(self._unreadable)
        timeout_ns = self._settings.ns("controller.heartbeat.timeout.ms")
        for broker in sorted(set(self.brokers) - set(found)):
            silent_ns = self.now.monotonic_ns - self.brokers[broker].heard_ns
            if not self._policies.stays_registered(silent_ns, timeout_ns):
                self._forget(broker, "gone")
                yield from self._elect_without([broker])
        for broker, one in sorted(found.items()):
            known = self.brokers.get(broker)
            if known is not None:
                compared = self._policies.compared_epoch(known.initialised, known.incarnation)
                known.registration = one
                if not self._policies.has_bounced(compared, one.epoch):
                    continue
                self._forget(broker, "bounced")
                yield from self._elect_without([broker])
            state = self._policies.state_of_newcomer(one.info.version)
            self._meet(one, state, "bounced" if known is not None else "registered")
            if self._policies.may_lead(state):
                yield from self._became_live(broker, was_known=known is not None)

    def declare(
        self, broker: int, state: BrokerState, reason: DeclaredFor, then: Callable[[], None]
    ) -> Steps:
        """Puts a broker in another state, and does what follows from that; then calls `then`."""
        known = self.brokers.get(broker)
        if known is not None and known.state is not state:
            was_live = self._policies.may_lead(known.state)
            self._set_state(broker, state, reason)
            lives = self._policies.may_lead(state)
            if lives and not was_live:
                yield from self._became_live(broker, was_known=False)
            elif was_live and not lives:
                self._close_queue(broker)
                yield from self._elect_without([broker])
        then()

    def _became_live(self, broker: int, was_known: bool) -> Steps:
        """A broker is in the cluster: it leads what only it can lead, and is sent all it needs."""
        changed = yield from self.store(
            lambda: leadership.on_broker_back(self.stored.image, broker, self._cluster.election)
        )
        if self._policies.initialises(was_known):
            self._initialise(broker)
        self.announce(changed, except_for=broker)
        self._continue_deletions()

    def _initialise(self, broker: int) -> None:
        """Sends a process the cluster's metadata, and all partitions that it hosts (BE-06,
        BE-07)."""
        known = self.brokers[broker]
        address = known.registration.endpoint(REPLICATION_LISTENER)
        if address is None:
            return
        epoch = known.initialised
        self._queues.open(broker, epoch, address)
        image = self.stored.image
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
        return messages.Sender(self._settings.node_id, self.epoch, self.stored.versions)

    # ---------------------------------------------------------------------------------- elections

    def _elect_without(self, brokers: Sequence[int]) -> Steps:
        """Brokers are gone: others lead what they led, and they leave the ISRs."""
        for broker in brokers:
            changed = yield from self.store(partial(self._without, broker))
            self.announce(changed)
        if brokers:
            self._continue_deletions()

    def _without(self, broker: int) -> list[r.Record]:
        """The changes of partitions when a broker is gone. Those of topics that are being deleted
        stay as they are: nothing is to begin there any more."""
        image = self.stored.image
        return [
            record
            for record in leadership.on_broker_gone(image, broker, self._cluster.election)
            if not (isinstance(record, r.IsrChangeRecord) and record.topic_id in image.deleting)
        ]

    def _elect_leaderless(self) -> Steps:
        for broker in self._electable():
            yield from self.store(
                partial(
                    leadership.on_broker_back, self.stored.image, broker, self._cluster.election
                )
            )

    def hand_over(self, broker: int) -> Steps:
        """Moves leaderships off a broker that stops, and stops its other replicas (KIP-380)."""
        changed = yield from self.store(
            lambda: leadership.on_handover(self.stored.image, broker, self._cluster.election)
        )
        self.announce(changed)
        followed = [
            p
            for p in self.stored.image.all_partitions()
            if broker in p.isr and p.leader not in (broker, -1) and len(p.isr) > 1
        ]
        keys = {(p.topic_id, p.index) for p in followed}
        epoch = self._queues.epoch(broker)
        if epoch is not None and followed:
            image, sender = self.stored.image, self.sender
            request = messages.stop_replica(sender, image, epoch, followed, delete=False)
            self._queues.add(broker, request)
        left = yield from self.store(
            lambda: [
                record
                for record in self._without(broker)
                if isinstance(record, r.IsrChangeRecord)
                and (record.topic_id, record.partition_id) in keys
            ]
        )
        self.announce(left, except_for=broker)

    def settle(self, places: Sequence[Partition], ready: frozenset[int]) -> Steps:
        """Ends the reassignments that have waited, and gives leaderships back (RP-20, RP-21)."""
        before = {(p.topic_id, p.index): p.replicas for p in places}
        changed = yield from self.store(
            lambda: reassigning.settle(
                self.stored.image,
                [self.stored.image.partitions[t][i] for t, i in before if self._has(t, i)],
                ready,
                self._cluster,
            )
        )
        self.announce(changed)
        self.stop_removed(before, changed)

    def _has(self, topic_id: UUID, index: int) -> bool:
        return index in self.stored.image.partitions.get(topic_id, {})

    def stop_removed(
        self, before: Mapping[Key, tuple[int, ...]], changed: Sequence[r.Record]
    ) -> None:
        """Has the replicas deleted that a reassignment has taken off their brokers."""
        for record in changed:
            if isinstance(record, r.PartitionRecord) and record.topic_id is not None:
                one = self.stored.image.partitions[record.topic_id][record.partition_id]
                for broker in before.get((one.topic_id, one.index), ()):
                    epoch = self._queues.epoch(broker)
                    if broker not in one.replicas and epoch is not None:
                        request = messages.stop_replica(
                            self.sender, self.stored.image, epoch, [one], delete=True
                        )
                        self._queues.add(broker, request)

    # ------------------------------------------------------------------------------ announcements

    def announce(
        self,
        records: Iterable[r.Record],
        except_for: int | None = None,
        new: frozenset[str] = frozenset(),
    ) -> None:
        """Commands the replicas of changed partitions, and tells every broker of them."""
        image = self.stored.image
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
        for broker in sorted(self.brokers):
            epoch = self._queues.epoch(broker)
            if epoch is None or broker == except_for:
                continue
            # First what clients are told: a new leader is asked about a topic that it knows.
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
            self.stored.image.partitions[record.topic_id][record.partition_id]
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
        for broker in sorted(self.brokers):
            epoch = self._queues.epoch(broker)
            if epoch is not None:
                request = messages.update_metadata(
                    self.sender, self.stored.image, epoch, changed, self.announced()
                )
                self._queues.add(broker, request)

    # ----------------------------------------------------------------------------------- deletion

    def _continue_deletions(self) -> None:
        """Has every replica of the topics being deleted removed, once all its brokers live."""
        image = self.stored.image
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
            topic_id = self.stored.image.topics[name]
            self.add(self._delete_topic(topic_id))

    def _delete_topic(self, topic_id: UUID) -> Steps:
        def decide() -> list[r.Record]:
            image = self.stored.image
            return [r.DeleteTopicRecord(name=t) for t in image.deleting if t == topic_id]

        yield from self.store(decide)

    def mark_deleted(self) -> None:
        """A topic was marked: its deletion begins, or waits for a broker that is away."""
        self._continue_deletions()
