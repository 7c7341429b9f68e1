"""Leader elections: each replica that may lead stands by itself, and the one that creates the
leader's znode first wins.

The preferred replica stands at once. The others stand later, each at a time of its own. A broker's
new process inherits no membership of an ISR. If all members have been replaced by new processes,
these may stand, but only after LeaderElectionWaitTime: a process that is a member may be without a
session for a moment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import final

from msgspec import Struct
from msgspec.structs import replace

from fencepost import MS
from fencepost_clusters.reference.classic.core import settings as s
from fencepost_clusters.reference.classic.core import writes, znodes
from fencepost_clusters.reference.classic.core.context import Context
from fencepost_clusters.reference.classic.core.known import StoredIsr
from fencepost_clusters.reference.classic.core.reading import Partition as PartitionPart
from fencepost_clusters.reference.classic.core.znodes import StateChange
from fencepost_clusters.reference.core.node.effects import Instant
from fencepost_clusters.reference.core.replication.cluster_state import Partition
from fencepost_clusters.reference.core.replication.replica import Key
from fencepost_clusters.reference.over_zookeeper.core.session import Task, certain
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_kafka import ReplicaStood


class _Candidacy(Struct, frozen=True):
    """When this broker stands: for the election after that leader epoch, over that version of the
    ISR."""

    epoch: int
    version: int
    restarted: bool
    standing: tuple[int, ...]
    since_ns: int
    due_ns: int

    @property
    def election(self) -> tuple[int, int, bool]:
        """For which election it is, and in which part."""
        return self.epoch, self.version, self.restarted


@final
class Elections:
    """See the module. `hosts` says whether this broker has a replica of a partition; `elected` is
    called for each election that it has won."""

    def __init__(
        self, context: Context, hosts: Callable[[Key], bool], elected: Callable[[Key], None]
    ) -> None:
        self.process = -1
        """This process, as registrations and ISRs name it."""
        self._settings = context.settings
        self._known = context.known
        self._lifecycle = context.lifecycle
        self._session = context.session
        self._clock = context.clock
        self._reader = context.reader
        self._policies = context.policies.classic
        self._hosts = hosts
        self._elected = elected
        # The partitions for which this broker will stand.
        self._candidacies: dict[Key, _Candidacy] = {}
        # Those for which a transaction is under way.
        self._standing: set[Key] = set()

    def deadline_ns(self) -> int | None:
        """When this broker stands next."""
        return min((one.due_ns for one in self._candidacies.values()), default=None)

    def tick(self, now: Instant) -> None:
        """Stands for the partitions that are due."""
        for key, one in sorted(self._candidacies.items()):
            if now.monotonic_ns >= one.due_ns:
                del self._candidacies[key]
                # Without a connection the candidacy is dropped; what is read after the next one
                # makes another.
                if key not in self._standing and self._session.connected is not None:
                    self._standing.add(key)
                    self._session.start(self._stand(key, one))

    def give_up(self) -> None:
        """This broker stands for nothing: it has no session."""
        self._candidacies.clear()

    def consider(self, keys: Collection[Key], now: Instant) -> None:
        """Decides whether, and when, this broker stands for these partitions."""
        for key in sorted(keys):
            one = self._known.partition(key)
            found = None if one is None else self._candidacy(key, one, now)
            if found is None:
                self._candidacies.pop(key, None)
                continue
            before = self._candidacies.get(key)
            # What is considered again for the same election keeps its time, or every event would
            # put it off. The time only becomes earlier: a replica that was to stand before this one
            # may have died.
            if before is not None and before.election == found.election:
                later = replace(found, since_ns=before.since_ns)
                found = min(before, later, key=lambda candidacy: candidacy.due_ns)
            self._candidacies[key] = found

    def _candidacy(self, key: Key, one: Partition, now: Instant) -> _Candidacy | None:
        stored = self._known.isrs[key]
        if one.leader >= 0 or key[0] in self._known.image.deleting:
            return None
        if not self._lifecycle.registered or self._lifecycle.stopping or not self._hosts(key):
            return None
        live = self._known.ready()
        members, restarted = self.members(stored, live)
        me = self._known.me
        standing = self._policies.electors(one.replicas, members, live)
        if me not in standing:
            return None
        preferred_ns = self._settings.ns(s.PREFERRED)
        wait_ns = self._policies.waits_ns(me, one.replicas, standing, preferred_ns)
        # All members are new processes. One of the old ones may only be without a session for a
        # moment, and has what the new ones may lack.
        if restarted:
            wait_ns += self._settings.ns(s.ELECTION_WAIT)
        return _Candidacy(
            epoch=stored.content.epoch,
            version=stored.version,
            restarted=restarted,
            standing=standing,
            since_ns=now.monotonic_ns,
            due_ns=now.monotonic_ns + wait_ns,
        )

    def members(self, stored: StoredIsr, live: Collection[int]) -> tuple[tuple[int, ...], bool]:
        """The members of a stored ISR that may stand, none if no ISR was ever stored; and whether
        they are new processes of their brokers, since no member of the ISR itself is live."""
        content = stored.content
        same = tuple(b for b in content.isr if self._is_member(content, b))
        # A process that is a member and live outranks all new processes.
        if any(b in live for b in same):
            return same, False
        return content.isr, bool(content.isr)

    def _is_member(self, content: znodes.Isr, broker: int) -> bool:
        """A new process of a broker inherits no membership (RP-10)."""
        process = self._known.process_of(broker)
        return process is not None and process == content.process_of(broker)

    # ---------------------------------------------------------------------------------- standing

    def _stand(self, key: Key, candidacy: _Candidacy) -> Task:
        """Tries to become the leader, in one transaction with the next leader epoch."""
        try:
            one, stored = self._known.partition(key), self._known.isrs.get(key)
            if one is None or stored is None or one.leader >= 0:
                return
            # Another election was held, or the ISR was changed, since this broker decided to stand.
            if (stored.content.epoch, stored.version) != (candidacy.epoch, candidacy.version):
                return
            content = self._first_isr(one, stored)
            name = self._known.image.names[key[0]]
            path = znodes.leader(name, key[1])
            # The creation of an existing znode is refused, so at most one candidate wins. The
            # version of the ISR fences an election by an ISR that was read too early.
            leader = zk.Create(path, str(self._known.me).encode(), ephemeral=True)
            isr = writes.isr_write(self._known, one, content)
            done = certain((yield zk.Multi((leader, isr))))
            results = done.results if isinstance(done, zk.Done) else ()
            won = len(results) == 2 and self._policies.has_won(results[0])
            self._note(name, one, candidacy, content, stored.content.isr, won=won)
            if not won:
                self._reader.want(PartitionPart(name, key[1]))
                return
            version, offset = stored.version + 1, self._known.offsets[key]
            if len(results) == 2 and isinstance(results[1], zk.DataSet):
                version, offset = results[1].stat.version, results[1].stat.mzxid
            me = self._known.me
            # Applied at once, without a read: the watch will bring the same.
            self._known.set_isr(key, StoredIsr(content, version), offset, leader=me)
            self._elected(key)
            yield from self._announce(name, one)
        finally:
            self._standing.discard(key)

    def _first_isr(self, one: Partition, stored: StoredIsr) -> znodes.Isr:
        """The ISR of an election: as it was, with this process as the member of its broker."""
        before, me = stored.content, self._known.me
        # The members stay as they were, although some may be dead: who has the log is known only
        # once the new leader has heard from them.
        process = dict(zip(before.isr, before.since, strict=True)) | {me: self.process}
        members = (*before.isr, *((me,) if me not in before.isr else ()))
        return znodes.Isr(
            epoch=self._policies.next_leader_epoch(before.epoch),
            leader=me,
            isr=members,
            since=tuple(process[b] for b in members),
            version=1,
            preparing=self._policies.prepares(),
        )

    def _announce(self, name: str, one: Partition) -> Task:
        """Requests each other live replica to become a follower, before it waits for any."""
        for broker in one.replicas:
            if broker != self._known.me and broker in self._known.registrations:
                yield writes.request(name, one.index, broker, StateChange.BECOME_FOLLOWER)

    def _note(
        self,
        name: str,
        one: Partition,
        candidacy: _Candidacy,
        content: znodes.Isr,
        isr: tuple[int, ...],
        *,
        won: bool,
    ) -> None:
        me, now_ns = self._known.me, self._clock.now.monotonic_ns
        self._known.out.note(
            ReplicaStood(
                topic=name,
                partition=one.index,
                broker_id=me,
                leader_epoch=content.epoch,
                isr=isr,
                preferred=one.replicas[0] == me,
                waited_ms=(now_ns - candidacy.since_ns) // MS,
                preferred_ms=self._settings.ms(s.PREFERRED),
                won=won,
                path=znodes.leader(name, one.index),
                standing=candidacy.standing,
            )
        )
