"""One term of a controller: the stored state of the cluster, the known brokers, and the jobs that
change both.

A job is a part of a task (`session`). One job runs at a time, so that each decides on the state
that the job before it has stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from functools import partial
from typing import final
from uuid import UUID

from fencepost import MS
from fencepost_clusters.reference.core.cluster import leadership, reassigning
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.node.settings import REPLICATION_LISTENER, Settings
from fencepost_clusters.reference.core.replication.cluster_state import Partition
from fencepost_clusters.reference.core.replication.replica import Key
from fencepost_clusters.reference.legacy.core import registrations
from fencepost_clusters.reference.legacy.core.controller.announcer import Announcer, KnownBroker
from fencepost_clusters.reference.legacy.core.controller.election import Won
from fencepost_clusters.reference.legacy.core.controller.queues import Queues
from fencepost_clusters.reference.legacy.core.controller.store import Steps, Store
from fencepost_clusters.reference.legacy.core.policies import PlanePolicies
from fencepost_clusters.reference.legacy.core.registrations import Registration
from fencepost_clusters.reference.legacy.core.states import CONTROLLER_NAMES
from fencepost_clusters.reference.over_zookeeper.core.session import Clock
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.legacy import BrokerState
from fencepost_kafka import BrokerDeclared, ControllerState, DeclaredFor


@final
class Term:
    """See the module."""

    def __init__(
        self,
        won: Won,
        settings: Settings,
        queues: Queues,
        *,
        policies: PlanePolicies,
        out: Outbox,
        clock: Clock,
    ) -> None:
        self.epoch = won.epoch
        self.first = won.first
        self.store = Store(won, out)
        self.brokers: dict[int, KnownBroker] = {}
        self.ready = False
        """Whether the stored state is read, so that requests can be decided."""
        self._clock = clock
        self._settings = settings
        self._policies = policies.legacy.controller
        self._cluster = policies.cluster
        self._out = out
        self._queues = queues
        self._jobs: deque[Steps] = deque()
        self._running = False
        # Whether a broker change waits among the jobs. Watches that fire before it runs are served
        # by it: it reads all registrations.
        self._wanted_change = False
        self.suspected: set[int] = set()
        """The silent brokers for which a job that declares them inactive is waiting."""
        self.announcer = Announcer(
            settings,
            self.store,
            brokers=self.brokers,
            queues=queues,
            policies=self._policies,
            later=self.add,
        )

    # ------------------------------------------------------------------------------------- jobs

    def add(self, job: Steps) -> None:
        """Appends a job."""
        self._jobs.append(job)

    @property
    def active(self) -> frozenset[int]:
        """The brokers that are active, and not stopping."""
        return frozenset(
            b
            for b, one in self.brokers.items()
            if one.state is BrokerState.ACTIVE and not one.stopping
        )

    @property
    def has_work(self) -> bool:
        """Whether jobs are waiting, and no job is running."""
        return bool(self._jobs) and not self._running and not self.store.over

    def work(self) -> Steps:
        """Runs the jobs in order until none is left.

        The requests of a job are sent before the next job begins, so that no request is sent with
        an outdated state of the cluster (HB-03).
        """
        # If the connection is lost, a job ends by an exception and this stays true: the term is
        # over then.
        self._running = True
        while self._jobs and not self.store.over:
            yield from self._jobs.popleft()
            self._queues.tick(self._clock.now)
        self._running = False

    # ------------------------------------------------------------------------------ the beginning

    def begin(self) -> Steps:
        """Reads the stored state, and declares the state of every registered broker (HB-02)."""
        yield from self.store.read()
        found = yield from registrations.read_all(self.store.unreadable)
        # From here on requests become jobs, which wait until this first one has ended.
        self.ready = True
        for one in found.values():
            state = self._policies.state_of_newcomer(one.info.version)
            reachable = one.endpoint(REPLICATION_LISTENER) is not None
            # A new controller has heard of no broker. Brokers that its predecessor had declared
            # inactive are active for one timeout again; the first controller of a cluster has no
            # predecessor whose brokers could lead.
            if not self.first and reachable and state is BrokerState.INITIAL:
                state = BrokerState.ACTIVE  # a failover alone makes no broker inactive
            self._meet(one, state, "controller_elected")
        every = self.store.image.all_partitions()
        # Rules and the report learn from this that a broker with replicas is absent.
        for broker in sorted({b for p in every for b in p.replicas} - set(found)):
            self._note_declared(
                broker, -1, "Absent", "Absent", reason="controller_elected", known=None
            )
        # The order of the next three steps: leaderships of absent brokers move; then processes lose
        # what their predecessors had; and what is without a leader after that gets one.
        gone = {b for p in every for b in (*p.isr, p.leader)}
        yield from self._elect_without(sorted(gone - {-1} - set(self.store.image.live())))
        yield from self._end_inheritance()
        yield from self._elect_leaderless()
        for broker, known in self.brokers.items():
            if known.state in (BrokerState.ACTIVE, BrokerState.STOPPING):
                self.announcer.initialise(broker)
        self.announcer.continue_deletions()

    # ----------------------------------------------------------------------------------- brokers

    def _meet(self, one: Registration, state: BrokerState, reason: DeclaredFor) -> None:
        """Adds a broker's process that this term has not known, in its first state."""
        self.brokers[one.broker] = KnownBroker(
            registration=one,
            state=BrokerState.INITIAL,
            initialised=one.epoch,
            incarnation=one.epoch,
            heard_ns=self._clock.now.monotonic_ns,
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
        self._replay_broker(broker)
        declared = (known.incarnation, before, CONTROLLER_NAMES[state])
        self._note_declared(broker, *declared, reason=reason, known=known)

    def _note_declared(
        self,
        broker: int,
        incarnation: int,
        old: ControllerState,
        new: ControllerState,
        *,
        reason: DeclaredFor,
        known: KnownBroker | None,
    ) -> None:
        """`known` is None for a broker without a registration when the term begins."""
        heard_ns = self._clock.now.monotonic_ns if known is None else known.heard_ns
        self._out.note(
            BrokerDeclared(
                broker_id=broker,
                incarnation_id=incarnation,
                old=old,
                new=new,
                reason=reason,
                version=0 if known is None else known.version,
                silent_ms=(self._clock.now.monotonic_ns - heard_ns) // MS,
                timeout_ms=self._settings.ms("controller.heartbeat.timeout.ms"),
                controller_epoch=self.epoch,
            )
        )

    def _replay_broker(self, broker: int) -> None:
        """Stores in the image whether a broker may be elected and join an ISR."""
        known = self.brokers[broker]
        # Only the image knows this: a broker's state at the controller is stored nowhere.
        self.store.stored.replay(
            [
                r.BrokerRecord(
                    broker_id=broker,
                    broker_epoch=known.initialised,
                    end_points=tuple(
                        r.EndPoint(name=n, host=h, port=p)
                        for n, h, p in known.registration.info.endpoints
                    ),
                    fenced=known.stopping or not self._policies.may_lead(known.state),
                )
            ]
        )

    def _forget(self, broker: int, reason: DeclaredFor) -> None:
        """Removes a broker's process whose znode is gone (HB-28)."""
        known = self.brokers.pop(broker)
        self.announcer.close(broker)
        self.store.stored.replay([r.DeleteBrokerRecord(id=broker)])
        old = CONTROLLER_NAMES[known.state]
        self._note_declared(broker, known.initialised, old, "Absent", reason=reason, known=known)

    def change_soon(self) -> None:
        """Adds a broker change, since the registrations may have changed."""
        if not self._wanted_change:
            self._wanted_change = True
            self.add(self._broker_change())

    def _broker_change(self) -> Steps:
        """Compares the registrations with the known state of each broker (BE-05)."""
        self._wanted_change = False
        found = yield from registrations.read_all(self.store.unreadable)
        timeout_ns = self._settings.ns("controller.heartbeat.timeout.ms")
        # First the brokers that are gone. A broker with another czxid is another process: in the
        # second loop its predecessor loses its leaderships before the new process gets any (BE-05).
        for broker in sorted(set(self.brokers) - set(found)):
            silent_ns = self._clock.now.monotonic_ns - self.brokers[broker].heard_ns
            if not self._policies.stays_registered(silent_ns, timeout_ns):
                self._forget(broker, "gone")
                yield from self._elect_without([broker])
        for broker, one in sorted(found.items()):
            known = self.brokers.get(broker)
            if known is not None:
                # With the czxid for which the broker was initialised. A heartbeat may have named a
                # newer one already; compared with that, the bounce would go unnoticed, and the new
                # process would never be told its replicas.
                compared = self._policies.compared_epoch(known.initialised, known.incarnation)
                if not self._policies.has_bounced(compared, one.epoch):
                    continue
                self._forget(broker, "bounced")
                yield from self._elect_without([broker])
            state = self._policies.state_of_newcomer(one.info.version)
            self._meet(one, state, "bounced" if known is not None else "registered")
            if self._policies.may_lead(state):
                yield from self._became_live(broker)

    def declare(self, broker: int, state: BrokerState, reason: DeclaredFor) -> Steps:
        """Declares a broker's new state, and carries out the consequences."""
        known = self.brokers.get(broker)
        if known is None or known.state is state:
            return
        was_live = self._policies.may_lead(known.state)
        self._set_state(broker, state, reason)
        lives = self._policies.may_lead(state)
        if lives and not was_live:
            yield from self._became_live(broker)
        # Its queue ends first: a request that waits in it was made for a live broker.
        elif was_live and not lives:
            self.announcer.close(broker)
            yield from self._elect_without([broker])

    def _became_live(self, broker: int) -> Steps:
        """Handles a broker that became live: it leads the partitions without a leader, and is sent
        metadata and its partitions."""
        changed = yield from self.store.carry_out(
            lambda: leadership.on_broker_back(self.store.image, broker, self._cluster.election)
        )
        if self._policies.initialises(self.announcer.has_initialised(broker)):
            self.announcer.initialise(broker)
        # The broker itself has just been sent all of its partitions.
        self.announcer.announce(changed, except_for=broker)
        self.announcer.continue_deletions()

    # ---------------------------------------------------------------------------------- elections

    def _elect_without(self, brokers: Sequence[int]) -> Steps:
        """Moves the leaderships of brokers that are gone, and takes them out of the ISRs."""
        for broker in brokers:
            changed = yield from self.store.carry_out(partial(self._without, broker))
            self.announcer.announce(changed)

    def _without(self, broker: int, places: Collection[Key] | None = None) -> list[r.Record]:
        """The changes of partitions (all, or those of `places`) when a broker is gone. Topics in
        deletion stay unchanged."""
        image = self.store.image
        return [
            record
            for record in leadership.on_broker_gone(image, broker, self._cluster.election)
            if isinstance(record, r.IsrChangeRecord)
            and record.topic_id not in image.deleting
            and (places is None or (record.topic_id, record.partition_id) in places)
        ]

    def _end_inheritance(self) -> Steps:
        """Takes leaderships and ISR memberships from processes that registered after a partition's
        state was written: they belong to the brokers' former processes (RP-10). An ISR keeps its
        last member: the process that has run for the longest, which still has its data (RP-06)."""
        # The last member of an ISR stays in it. So the order decides which process that is: the
        # youngest leave first, since the oldest still has its data. A broker that came last with an
        # empty disk was kept once, and all others truncated to it.
        youngest_first = sorted(
            self.brokers.items(), key=lambda one: one[1].registration.since, reverse=True
        )
        for broker, known in youngest_first:
            # zxids order all writes of ZooKeeper, so a state that was written before the
            # registration was not written about this process.
            earlier = {k for k, zxid in self.store.written.items() if zxid < known.initialised}
            yield from self.store.carry_out(partial(self._without, broker, earlier))

    def _elect_leaderless(self) -> Steps:
        for broker in self.store.image.live():
            yield from self.store.carry_out(
                partial(leadership.on_broker_back, self.store.image, broker, self._cluster.election)
            )

    def hand_over(self, broker: int) -> Steps:
        """Moves leaderships off a stopping broker, and stops its other replicas (KIP-380). From now
        on it takes part in no election, and joins no ISR: its last fetches may still reach leaders
        after its replicas were stopped (HB-05)."""
        self.brokers[broker].stopping = True
        self._replay_broker(broker)
        changed = yield from self.store.carry_out(
            lambda: leadership.on_handover(self.store.image, broker, self._cluster.election)
        )
        self.announcer.announce(changed)
        # What it leads has moved, as far as another broker can lead it. What it follows is stopped,
        # and then it leaves those ISRs.
        followed = [
            p
            for p in self.store.image.all_partitions()
            if broker in p.isr and p.leader not in (broker, -1)
        ]
        keys = {(p.topic_id, p.index) for p in followed}
        self.announcer.stop(broker, followed)
        left = yield from self.store.carry_out(partial(self._without, broker, keys))
        self.announcer.announce(left, except_for=broker)

    def settle(self, places: Sequence[Partition], ready: frozenset[int]) -> Steps:
        """Completes reassignments, and returns leaderships to preferred replicas (RP-20, RP-21)."""
        before = {(p.topic_id, p.index): p.replicas for p in places}
        changed = yield from self.store.carry_out(
            lambda: reassigning.settle(
                self.store.image,
                # Asked again: a topic may have been deleted while this job waited.
                [self.store.image.partitions[t][i] for t, i in before if self._has(t, i)],
                ready,
                self._cluster,
            )
        )
        self.announcer.announce(changed)
        self.announcer.stop_removed(before, changed)

    def _has(self, topic_id: UUID, index: int) -> bool:
        return index in self.store.image.partitions.get(topic_id, {})
