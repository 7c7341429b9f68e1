"""What a broker does with the partitions that it leads: it becomes their leader, changes their ISR,
ends reassignments, and gives leaderships up.

A new leader serves followers at once, and waits until the members of the ISR that are live have its
log, or LeaderElectionWaitTime has passed. Then it stores the ISR of those that have it, and serves
clients. So its log end is its high watermark from the first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator
from operator import itemgetter
from typing import final

from msgspec import Struct

from fencepost import MS
from fencepost_clusters.reference.classic.core import settings as s
from fencepost_clusters.reference.classic.core import writes, znodes
from fencepost_clusters.reference.classic.core.context import Context
from fencepost_clusters.reference.classic.core.elections import Elections
from fencepost_clusters.reference.classic.core.known import StoredIsr
from fencepost_clusters.reference.classic.core.reading import Partition as PartitionPart
from fencepost_clusters.reference.classic.core.znodes import StateChange
from fencepost_clusters.reference.core.cluster import reassigning
from fencepost_clusters.reference.core.node.deadlines import earliest
from fencepost_clusters.reference.core.node.effects import Instant
from fencepost_clusters.reference.core.replication.cluster_state import Partition
from fencepost_clusters.reference.core.replication.replica import Key, Replica
from fencepost_clusters.reference.core.replication.replicas import Replicas
from fencepost_clusters.reference.over_zookeeper.core.session import Disconnected, Task, certain
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_kafka import IsrPrepared, ReassignmentNoticed

RETRY_NS = 100 * MS


class _Term(Struct):
    """This broker's time as a partition's leader. `first`: no ISR was stored before."""

    epoch: int
    began_ns: int
    first: bool
    assigned: frozenset[int] = frozenset()
    """The new replicas of a reassignment that were requested to start."""
    storing: IsrPrepared | None = None
    """The ISR that this leader stores before it serves; it may be stored without an answer."""


@final
class Leading:
    """See the module. `stored` is called with each partition whose ISR this broker has stored, or
    whose leadership it has given up."""

    def __init__(
        self,
        context: Context,
        elections: Elections,
        replicas: Replicas,
        stored: Callable[[Key], None],
    ) -> None:
        self._settings = context.settings
        self._known = context.known
        self._lifecycle = context.lifecycle
        self._session = context.session
        self._clock = context.clock
        self._reader = context.reader
        self._policies = context.policies
        self._elections = elections
        self._replicas = replicas
        self._stored = stored
        # The leaderships of this broker. A term begins with each leader epoch.
        self._terms: dict[Key, _Term] = {}
        self._busy: set[Key] = set()
        """The partitions for which a transaction is under way."""
        self._retry_ns = 0
        """Before this time no transaction begins: the connection was lost under the last one."""
        self._next_balance_ns = 0
        self._next_leave_ns = 0

    # -------------------------------------------------------------------------------------- driver

    def deadline_ns(self) -> int | None:
        """When a Tick is wanted next."""
        wait_ns = self._settings.ns(s.ELECTION_WAIT)
        preparing = (
            # Without a connection nothing can be stored, so no Tick is wanted for it: the next
            # connection is an input.
            max(one.began_ns + wait_ns, self._retry_ns)
            for _, one, _ in self._preparing()
            if self._session.connected is not None
        )
        balance = self._next_balance_ns if self._terms else None
        leave = self._next_leave_ns if self._lifecycle.stopping and self._terms else None
        return earliest((*preparing, balance, leave))

    @property
    def _balances(self) -> bool:
        return bool(self._settings.ms("auto.leader.rebalance.enable"))

    def _preparing(self) -> Iterator[tuple[Key, _Term, Replica]]:
        """The leaderships whose first ISR is to be stored. Without a replica there is nothing to
        wait for: it was removed, since the topic is being deleted."""
        for key, term in self._terms.items():
            one, replica = self._known.partition(key), self._replicas.by_key.get(key)
            if key in self._busy or one is None or not one.preparing or replica is None:
                continue
            yield key, term, replica

    def consider(self, keys: Collection[Key], now: Instant) -> None:
        """Begins and ends terms, and carries on the reassignments of these partitions."""
        for key in sorted(keys):
            one = self._known.partition(key)
            if one is None or one.leader != self._known.me:
                self._terms.pop(key, None)
                continue
            term = self._terms.get(key)
            # Read from ZooKeeper, and not only won in `Elections`: the answer to a winning
            # transaction may have been lost.
            if term is None or term.epoch != one.leader_epoch:
                # The ISR of a new partition is empty, in leader epoch 0, and the first election
                # begins epoch 1.
                first = one.leader_epoch == 1
                term = self._terms[key] = _Term(one.leader_epoch, now.monotonic_ns, first)
            if not one.preparing:
                self._go_on_reassigning(key, one, term)

    def note_stored(self, keys: Collection[Key]) -> None:
        """Records the first ISRs of new leaderships that are stored, before these serve."""
        for key in sorted(keys):
            one, term = self._known.partition(key), self._terms.get(key)
            if one is None or term is None or term.storing is None or one.preparing:
                continue
            # By what was read: so an ISR whose answer was lost is reported as well.
            if (one.leader, one.leader_epoch) == (self._known.me, term.epoch):
                self._known.out.note(term.storing)
                term.storing = None

    def go_on(self, now: Instant) -> None:
        """Stores the ISRs of new leaderships that need not wait any more."""
        for key, term, replica in sorted(self._preparing(), key=itemgetter(0)):
            if self._may_serve(key, replica, term, now):
                self._start(key, self._prepare(key, replica, term))

    def tick(self, now: Instant) -> None:
        """Returns leaderships to preferred replicas, and gives them up before this broker stops."""
        if self._lifecycle.stopping and now.monotonic_ns >= self._next_leave_ns:
            self._next_leave_ns = now.monotonic_ns + RETRY_NS
            self._leave()
        if now.monotonic_ns < self._next_balance_ns:
            return
        self._next_balance_ns = now.monotonic_ns + self._settings.ns(
            "leader.imbalance.check.interval.ms"
        )
        returns = self._policies.cluster.election.returns_to_preferred
        for key in sorted(self._terms):
            one = self._known.partition(key)
            if one is None or one.preparing or key in self._busy:
                continue
            if reassigning.under_way(one):
                self._assign_again(key, one)
            elif self._balances and returns(one, self._known.ready()):
                # Nobody appoints the preferred replica. This leader deletes its znode, and of the
                # replicas that stand the preferred one does not wait.
                self._start(key, self._give_up(key, one))

    def _start(self, key: Key, task: Task) -> None:
        # One transaction of a partition at a time: two would be based upon the same versions, and
        # one of them be refused.
        if self._session.connected is not None and self._clock.now.monotonic_ns >= self._retry_ns:
            self._busy.add(key)
            self._session.start(self._alone(key, task))

    def _alone(self, key: Key, task: Task) -> Task:
        """Runs a task, the only one of its partition."""
        try:
            yield from task
        except Disconnected:
            self._retry_ns = self._clock.now.monotonic_ns + RETRY_NS
        finally:
            self._busy.discard(key)

    def _reread(self, key: Key) -> None:
        name = self._known.image.names.get(key[0])
        if name is not None:
            self._reader.want(PartitionPart(name, key[1]))

    # --------------------------------------------------------------------------- becoming a leader

    def _caught_up(self, replica: Replica) -> tuple[int, ...]:
        """The replicas that have everything that this leader had when it was elected."""
        return tuple(
            r
            for r in replica.partition.replicas
            # A follower has this leader's log once it has fetched from `epoch_start` on. It must be
            # registered, too: an ISR names the process of each member.
            if r == replica.me
            or (r in self._known.registrations and replica.end_of(r) >= replica.epoch_start)
        )

    def _awaited(self, key: Key, replica: Replica, term: _Term) -> tuple[int, ...]:
        """The live members of the ISR; all live replicas if no ISR was stored before."""
        ready = self._known.ready()
        # No ISR was stored, so there is no message yet: any live replica may become a member.
        if term.first:
            return tuple(r for r in replica.partition.replicas if r in ready)
        members, _ = self._elections.members(self._known.isrs[key], ready)
        return tuple(r for r in members if r in ready)

    def _may_serve(self, key: Key, replica: Replica, term: _Term, now: Instant) -> bool:
        waited_ns = now.monotonic_ns - term.began_ns
        most_ns = self._settings.ns(s.ELECTION_WAIT)
        # A member that is live and does not fetch must not keep the partition from clients for
        # ever. It is left out of the ISR.
        if self._policies.classic.has_waited(waited_ns, most_ns):
            return True
        return set(self._awaited(key, replica, term)) <= set(self._caught_up(replica))

    def _prepare(self, key: Key, replica: Replica, term: _Term) -> Task:
        """Stores the ISR of the replicas that have this leader's log."""
        one, before = self._known.image.partitions[key[0]][key[1]], self._known.isrs[key].content
        members, awaited = self._caught_up(replica), self._awaited(key, replica, term)
        registered = {b: self._known.process_of(b) for b in members}
        registered[self._known.me] = self._elections.process
        content = znodes.Isr(
            epoch=before.epoch,
            leader=before.leader,
            isr=members,
            since=tuple(p if p is not None else -1 for p in registered.values()),
            version=1,
        )
        ends = tuple(replica.end_of(b) for b in members)
        waited_ns = self._clock.now.monotonic_ns - term.began_ns
        term.storing = IsrPrepared(
            topic=replica.topic,
            partition=replica.index,
            leader_epoch=content.epoch,
            log_end=replica.epoch_start,
            isr=members,
            ends=ends,
            awaited=awaited,
            waited_ms=waited_ns // MS,
            most_ms=self._settings.ms(s.ELECTION_WAIT),
            balance_ms=self._settings.ms("leader.imbalance.check.interval.ms")
            if self._balances
            else 0,
            path=znodes.isr(replica.topic, replica.index),
        )
        stat = yield from self.store(one, content)
        # Deposed, or a reassignment changed the ISR: it is read again, and the next `consider`
        # decides.
        if stat is None:
            self._reread(key)
            return
        self._known.set_isr(key, StoredIsr(content, stat.version), stat.mzxid)
        self._stored(key)

    def store(
        self, one: Partition, content: znodes.Isr
    ) -> Generator[zk.Request, zk.Answer, zk.Stat | None]:
        """Stores an ISR of a partition that this broker leads; None if it is refused."""
        name = self._known.image.names[one.topic_id]
        # The check proves that a leader's znode is there, the version of the ISR that no other
        # leader has been elected: each election writes the ISR.
        leads = zk.Check(znodes.leader(name, one.index))
        isr = writes.isr_write(self._known, one, content)
        done = certain((yield zk.Multi((leads, isr))))
        if isinstance(done, zk.Done) and isinstance(done.results[-1], zk.DataSet):
            return done.results[-1].stat
        return None

    # ------------------------------------------------------------------------------- reassignments

    def _go_on_reassigning(self, key: Key, one: Partition, term: _Term) -> None:
        """Requests the new replicas to start, and ends the reassignment once they have caught
        up."""
        if not reassigning.under_way(one):
            term.assigned = frozenset()
        if not reassigning.under_way(one) or key in self._busy:
            return
        new = frozenset(one.adding) - term.assigned
        # The end of the reassignment, if all new replicas are in the ISR.
        record = reassigning.switch(self._known.image, one, self._policies.cluster.placement)
        if record is not None:
            self._start(key, self._write(key, writes.transaction(self._known, (record,))))
        elif new:
            term.assigned |= new
            self._start(key, self._assign(key, sorted(new)))

    def _assign_again(self, key: Key, one: Partition) -> None:
        """Requests the new replicas again that have not fetched: an earlier request may have been
        for a reassignment that was called off."""
        term, replica = self._terms[key], self._replicas.by_key.get(key)
        if replica is not None:
            term.assigned = frozenset(b for b in term.assigned if replica.end_of(b) >= 0)
            self._go_on_reassigning(key, one, term)

    def _assign(self, key: Key, brokers: Collection[int]) -> Task:
        name = self._known.image.names[key[0]]
        self._known.out.note(
            ReassignmentNoticed(
                topic=name,
                partition=key[1],
                path=znodes.reassigned(name, key[1]),
                adding=tuple(brokers),
            )
        )
        for broker in brokers:
            # It may exist already, which is as good: only the loss of the connection is an error.
            certain((yield zk.Create(znodes.state(name, key[1], broker))))
            certain((yield writes.request(name, key[1], broker, StateChange.ASSIGNED)))

    def _write(self, key: Key, found: tuple[zk.Write, ...]) -> Task:
        """Carries out a transaction that ends this broker's leadership of a partition."""
        done = certain((yield zk.Multi(found)))
        if isinstance(done, zk.Done) and not isinstance(done.results[-1], zk.Refused):
            self._known.unled(key)
            self._stored(key)
        self._reread(key)

    # ---------------------------------------------------------------------------------- giving up

    def _give_up(self, key: Key, one: Partition) -> Task:
        yield from self._write(key, writes.unled(self._known, one))

    def _leave(self) -> None:
        """Gives up the partitions that another member of the ISR can lead."""
        ready = self._known.ready() - {self._known.me}
        for key in sorted(self._terms):
            one = self._known.partition(key)
            if one is None or key in self._busy:
                continue
            members, restarted = self._elections.members(self._known.isrs[key], ready)
            # If nobody else can lead, the broker keeps the partition until its time to stop is
            # over.
            if not restarted and any(b in ready for b in members):
                self._start(key, self._give_up(key, one))
