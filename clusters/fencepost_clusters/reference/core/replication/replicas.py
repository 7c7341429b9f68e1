"""All replicas of a broker: they follow the committed metadata, and ask for ISR changes."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Final, Protocol
from uuid import UUID

from msgspec import Struct

from fencepost import MS
from fencepost_clusters.reference.core.log.entry import Entry
from fencepost_clusters.reference.core.node.deadlines import Deadlines, earliest
from fencepost_clusters.reference.core.node.effects import Checkpoint, Delete, Instant, Recovered
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.node.settings import Settings
from fencepost_clusters.reference.core.replication.cluster_state import ClusterState, Partition
from fencepost_clusters.reference.core.replication.policies import ReplicationPolicies
from fencepost_clusters.reference.core.replication.replica import (
    Key,
    RecoveredLog,
    Replica,
    ReplicaHost,
    log_name,
)
from fencepost_clusters.reference.core.replication.roles import LossReason, RetireReason
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import IsrChangeAnswered, IsrChangeAsked, RemovalReason, ReplicaRemoved

_CERTAIN = frozenset({Error.INELIGIBLE_REPLICA, Error.INVALID_REQUEST})
"""Refusals after which no earlier request can have been stored, since the leader epoch was current.
After any other refusal, such as NOT_CONTROLLER at the end of a term, a request may have been
stored."""
RETRY_NS: Final = 100 * MS


class IsrOutcome(Struct, frozen=True):
    """The answer to an ISR request: the stored ISR and leader epoch, if it was granted.

    A granted ISR counts once `Replicas.adopt` is given it.
    """

    error: Error
    isr: tuple[int, ...] = ()
    leader_epoch: int = -1


class IsrRequests(Protocol):
    """The requests by which a leader changes its ISR; they differ by plane."""

    @property
    def broker_epoch(self) -> int:
        """The epoch under which this broker asks."""
        ...

    @property
    def learns_by_answer(self) -> bool:
        """Whether a leader learns the stored ISR only from the answer, so that it has to ask again
        if none came."""
        ...

    def can_ask(self) -> bool:
        """Whether a controller to ask is known."""
        ...

    def ask(
        self,
        call_id: int,
        one: Replica,
        members: tuple[int, ...],
        joined: tuple[int, ...],
        state: ClusterState,
    ) -> None:
        """Asks that `members` be the ISR; `joined` are those that were not in it before."""
        ...


class Replicas:
    """See the module."""

    def __init__(
        self,
        settings: Settings,
        isr_requests: IsrRequests,
        policies: ReplicationPolicies,
        out: Outbox,
    ) -> None:
        self.me = settings.node_id
        self.by_key: dict[Key, Replica] = {}
        self.version = 0
        """Counts the changes of leaders and followers, for values derived from them."""
        self.changed: dict[Key, int] = {}
        """The replicas with changes for which waiting requests were not looked at yet, and the sum
        of the changes of each: APPENDED, COMMITTED, ADOPTED."""
        self._ordered: tuple[Replica, ...] = ()
        self._settings = settings
        self._isr_requests = isr_requests
        # Logs on the disk that no replica has opened yet, by their names.
        self._disk_logs: dict[str, tuple[Entry, ...]] = {}
        self._checkpoints: dict[str, int] = {}
        self._policies = policies
        self._out = out
        keep_in_sync_ms = settings.ms("replica.lag.time.max.ms")
        self._host = ReplicaHost(self.me, keep_in_sync_ms, self.changed, policies, out)
        self._calls: dict[int, tuple[Key, int]] = {}
        """ISR request in flight -> the partition, and the leader epoch in which it was asked."""
        self._next_checkpoint_ns = 0
        self._looks: Deadlines[Key] = Deadlines()
        """When to look at the ISR of a partition next: at the first time at which a member may lag,
        or a request is made again. A member that fetches meanwhile moves that time unnoticed."""

    def recovered(self, found: Recovered) -> None:
        """Applies the recovered contents of the disk, before any replica is opened."""
        assert not self.by_key, "replicas are opened upon recovered logs"
        self._disk_logs.update(found.logs)
        self._checkpoints.update(found.high_watermarks)

    def get(self, topic_id: UUID | None, index: int) -> Replica | None:
        """The replica of a partition, if this broker has one."""
        return self.by_key.get((topic_id, index)) if topic_id is not None else None

    def all(self) -> tuple[Replica, ...]:
        """Every replica, in a fixed order."""
        if len(self._ordered) != len(self.by_key):
            self._ordered = tuple(self.by_key[key] for key in sorted(self.by_key))
        return self._ordered

    # --------------------------------------------------------------------- following the metadata

    def adopt(self, state: ClusterState, changed: Iterable[Key], now: Instant) -> None:
        """Adopts the committed state of the changed partitions."""
        self.version += 1
        for key in sorted(changed):
            partition = state.partitions.get(key[0], {}).get(key[1])
            mine = self.by_key.get(key)
            if partition is None or self.me not in partition.replicas:
                if mine is not None:
                    self.remove(key, "deleted" if partition is None else "unassigned")
                continue
            if mine is None:
                mine = self._open(state.names[key[0]], partition)
                self.by_key[key] = mine
            mine.adopt(partition, now)
            self._look_at(mine)

    def remove(self, key: Key, reason: LossReason) -> None:
        """Stops a replica, and deletes its log."""
        self.version += 1
        self._ordered = ()
        mine = self.by_key.pop(key)
        mine.retire(reason)
        self._remove(mine.name, reason)

    def _open(self, topic: str, partition: Partition) -> Replica:
        name = log_name(topic, (partition.topic_id, partition.index))
        stored = RecoveredLog(self._disk_logs.pop(name, ()), self._checkpoints.get(name, 0))
        return Replica(self._host, topic, partition, stored)

    def delete_strays(self, state: ClusterState) -> None:
        """Removes the logs on disk that belong to no partition of this broker (RP-25)."""
        known = {
            log_name(state.names[one.topic_id], (one.topic_id, one.index))
            for one in state.all_partitions()
            if self.me in one.replicas
        }
        self.delete_unopened(self._disk_logs.keys() - known)

    def delete_unopened(self, logs: Set[str]) -> None:
        """Removes those of these logs that are on disk, but of no replica of this process
        (RP-25)."""
        for name in self._policies.removed_unopened(self._disk_logs.keys() & logs):
            del self._disk_logs[name]
            self._remove(name, "stray")

    def _remove(self, name: str, reason: RemovalReason) -> None:
        # From the right: a topic's name may contain hyphens.
        topic, index, topic_id = name.rsplit("-", 2)
        self._out.note(
            ReplicaRemoved(
                topic=topic, partition=int(index), topic_id=str(UUID(topic_id)), reason=reason
            )
        )
        self._out.add(Delete(name))

    def retire_all(self, reason: RetireReason) -> None:
        """Stops every replica."""
        self.version += 1
        for one in self.all():
            one.retire(reason)
            self._look_at(one)

    # --------------------------------------------------------------------------------------- ISR

    def expel(self, key: Key, member: int) -> None:
        """Takes a member out of the ISR of a partition that this broker leads, as soon as that can
        be stored."""
        one = self.by_key[key]
        one.expel(member)
        self._look_at(one)

    def deadline_ns(self) -> int | None:
        """When a Tick is wanted next: at the next laggard, retry or checkpoint, or earlier."""
        checkpoint_ns = self._next_checkpoint_ns if self.by_key else None
        return earliest((self._looks.earliest_ns(), checkpoint_ns))

    def _look_at(self, one: Replica) -> None:
        """Sets the time of the next look at a partition's ISR."""
        at_ns = one.next_look_ns(self._settings.ns("replica.lag.time.max.ms"))
        if at_ns is None:
            self._looks.drop(one.key)
        else:
            self._looks.set(one.key, at_ns)

    def tick(self, state: ClusterState, now: Instant) -> None:
        """Asks for the ISR changes that are due, and checkpoints high watermarks."""
        for key in self._looks.due(now.monotonic_ns):
            one = self.by_key.get(key)
            if one is not None:
                self._ask(one, state, now)
                self._look_at(one)
        if self.by_key and now.monotonic_ns >= self._next_checkpoint_ns:
            self.checkpoint()
            self._next_checkpoint_ns = now.monotonic_ns + self._settings.ns(
                "replica.high.watermark.checkpoint.interval.ms"
            )

    def checkpoint(self) -> None:
        """Syncs every log, then stores the flushed offset and the high watermark of every replica
        (RP-08)."""
        every = self.all()
        # All syncs come before the one checkpoint: it says of each log that it is flushed up to
        # there.
        for one in every:
            one.flush()
        # A log that this process has not opened yet keeps the checkpoint that it had: all are in
        # one file, which this one replaces. Else its replica would begin with 0 the next time.
        unopened = self._disk_logs.keys() & self._checkpoints.keys()
        self._out.add(
            Checkpoint(
                {name: self._checkpoints[name] for name in sorted(unopened)}
                | {one.name: one.high_watermark for one in every},
                {one.name: one.flushed for one in every},
            )
        )

    def _ask(self, one: Replica, state: ClusterState, now: Instant) -> None:
        lag_ns = self._settings.ns("replica.lag.time.max.ms")
        # One request takes out and adds: the new ISR is a whole, and a second request would have to
        # wait for the answer to the first.
        gone = one.laggards(now, lag_ns)
        joined = tuple(
            r
            for r in one.joiners(now, lag_ns)
            # The controller refuses a fenced member, and with it all of the request.
            if r in state.brokers and not state.brokers[r].fenced
        )
        # A request whose fate is unknown is made again with the ISR that is wanted by then, even if
        # that is the stored one: its answer settles the question.
        if not gone and not joined and not one.adding and not one.unsettled:
            # Not before the laggard's deadline, and not again and again for a fenced replica.
            one.retry_ns = now.monotonic_ns + RETRY_NS
            return
        members = tuple(
            r
            for r in one.partition.replicas
            if (r in one.partition.isr and r not in gone) or r in joined
        )
        # Before it is asked for. A defect counts the proposed ISR at once; the healthy policy
        # counts the stored one and those that may have been added.
        one.propose(members)
        if not self._isr_requests.can_ask():
            one.retry_ns = now.monotonic_ns + RETRY_NS
            return
        lag = max((now.monotonic_ns - one.followers[r].caught_up_ns for r in gone), default=0)
        call = self._out.next_call()
        self._out.note(
            IsrChangeAsked(
                topic=one.topic,
                partition=one.index,
                leader_epoch=one.epoch,
                broker_epoch=self._isr_requests.broker_epoch,
                old_isr=one.partition.isr,
                new_isr=members,
                ends=tuple(one.end_of(r) for r in members),
                high_watermark=one.high_watermark,
                epoch_start=one.epoch_start,
                lag_ns=lag,
            )
        )
        self._isr_requests.ask(call, one, members, joined, state)
        # Replicas of earlier requests stay: such a request may have been stored although this
        # leader got no answer, and the next leader, elected from that ISR, must have what is
        # committed here.
        one.asked, one.adding = call, tuple(sorted({*one.adding, *joined}))
        self._calls[call] = ((one.partition.topic_id, one.index), one.epoch)

    def is_isr_request(self, call_id: int) -> bool:
        """Whether a call asks for an ISR change."""
        return call_id in self._calls

    def answered(self, call_id: int, outcome: IsrOutcome, now: Instant) -> None:
        """Applies the answer to an ISR request."""
        key, asked_in = self._calls.pop(call_id)
        one = self.by_key.get(key)
        if one is None:
            return
        error = outcome.error
        self._out.note(
            IsrChangeAnswered(
                topic=one.topic,
                partition=one.index,
                leader_epoch=asked_in,
                error=error.name,
                isr=outcome.isr,
                granted_epoch=outcome.leader_epoch,
            )
        )
        # A granted request stays `asked` until its record is replayed. To ask again in between
        # would be upon an ISR that is stored no longer.
        if one.asked == call_id and error is not Error.NONE:
            one.asked = None
            one.retry_ns = now.monotonic_ns + RETRY_NS
            self._look_at(one)
            # Without this, a leader chose whom to add by a high watermark that still waited for the
            # refused member, moved it on, and then asked for that member again below it (RP-10).
            if error in _CERTAIN:
                one.refused()

    def confirmed(self, key: Key) -> None:
        """The ISR that a leader has is the stored one, by the answer to what it asked last."""
        one = self.by_key[key]
        one.confirmed()
        self._look_at(one)

    def failed(self, call_id: int, now: Instant) -> bool:
        """An ISR request got no answer: it may be stored, so the high watermark still waits for the
        replicas that it adds."""
        key, _ = self._calls.pop(call_id, (None, -1))
        if key is None:
            return False
        one = self.by_key.get(key)
        if one is not None and one.asked == call_id:
            one.asked = None
            # A leader of the quorum will see the record, if there is one. Over ZooKeeper only an
            # answer tells, so the leader asks until it gets one.
            one.unsettled = self._isr_requests.learns_by_answer
            one.retry_ns = now.monotonic_ns + RETRY_NS
            self._look_at(one)
        return True
