"""One replica of a partition on this broker: its log, its high watermark, and its part as leader.

The high watermark is exclusive. The leader moves it to the lowest log end among the stored ISR and
any replica that it has asked to add. A shrink counts only once it is stored (RP-32).

See docs/decisions/42-isr-changes.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from msgspec import Struct

from fencepost_clusters.reference.core.log.entry import Entry, entry
from fencepost_clusters.reference.core.log.index import LogIndex
from fencepost_clusters.reference.core.node.effects import (
    EXIT_UNREADABLE,
    Append,
    Instant,
    Sync,
    Truncate,
)
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.replication.cluster_state import Partition
from fencepost_clusters.reference.core.replication.policies import ReplicationPolicies
from fencepost_clusters.reference.core.replication.roles import (
    ADOPTED,
    APPENDED,
    COMMITTED,
    Contact,
    CutReason,
    Follower,
    Part,
    RetireReason,
)
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire.batch_header import BatchHeader
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import (
    FollowerFetched,
    FollowingStarted,
    HighWatermarkAdvanced,
    LeadershipEnded,
    LeadershipStarted,
    LogAppended,
    LogTruncated,
    ReplicaCheckpointed,
)

Key = tuple[UUID, int]


def log_name(topic: str, key: Key) -> str:
    """The log's folder: a topic that was created again under its old name has another log."""
    topic_id, index = key
    return f"{topic}-{index}-{topic_id.hex}"


class RecoveredLog(Struct, frozen=True):
    """A replica's state on the disk: the index of its log, and its stored high watermark."""

    entries: tuple[Entry, ...] = ()
    high_watermark: int = 0


@dataclass(frozen=True, slots=True)
class ReplicaHost:
    """The state that all replicas of a broker share.

    `changed` gets a replica's key whenever the replica changes in a way that a request waits for;
    the value is the sum of such changes: APPENDED, COMMITTED, ADOPTED.
    """

    broker: int
    keep_in_sync_ms: int
    changed: dict[Key, int]
    policies: ReplicationPolicies
    out: Outbox


class Replica:
    """See the module."""

    def __init__(
        self, host: ReplicaHost, topic: str, partition: Partition, stored: RecoveredLog
    ) -> None:
        self.me = host.broker
        self.topic = topic
        self.index = partition.index
        self.partition = partition
        self.name = log_name(topic, (partition.topic_id, partition.index))
        self._keep_in_sync_ms = host.keep_in_sync_ms
        self.log = LogIndex(stored.entries)
        self.high_watermark = host.policies.restored_watermark(stored.high_watermark, self.log.end)
        self.flushed = 0
        """The log is known to be synced to disk below this offset (RP-26)."""
        # The high watermark and the flushed offset that were noted last, so that a quiet replica
        # notes none again.
        self._stored = (-1, -1)
        self.part = Part.IDLE
        self.followers: dict[int, Follower] = {}
        self.adding: tuple[int, ...] = ()
        """Replicas whose admission to the ISR was asked for and may be stored already."""
        self.asked: int | None = None
        """The AlterIsr that is in flight, by its call, or that was granted and is not replayed
        yet."""
        self.unsettled = False
        """Whether a requested ISR may be stored although this leader got no answer."""
        # No ISR is asked for before this time.
        self.retry_ns = 0
        # The log's end when this broker began to lead, and not anew with each leader epoch in which
        # it goes on. A follower below it may lack messages of a former leader (RP-10).
        self.epoch_start = 0
        self.proposed: tuple[int, ...] | None = None
        """The ISR that this leader wants instead of the stored one, if any."""
        self.expelled: set[int] = set()
        """Members of the ISR whose process there is gone: they leave it as soon as that can be
        stored."""
        self.key = (partition.topic_id, partition.index)
        self._changed = host.changed
        self._policies = host.policies
        self._out = host.out

    def _mark(self, change: int) -> None:
        self._changed[self.key] = self._changed.get(self.key, 0) | change

    @property
    def leading(self) -> bool:
        return self.part is Part.LEADER

    def epoch_error(self, current_leader_epoch: int) -> Error:
        """The answer to a client that knows the partition in this leader epoch (-1: in none), by
        KIP-320: an older one is fenced, and of a newer one this replica has not heard yet."""
        if 0 <= current_leader_epoch < self.epoch:
            return Error.FENCED_LEADER_EPOCH
        return Error.UNKNOWN_LEADER_EPOCH if current_leader_epoch > self.epoch else Error.NONE

    @property
    def serves_followers(self) -> bool:
        """Whether it leads, though it may not serve clients yet."""
        return self.part in (Part.LEADER, Part.PREPARING)

    @property
    def epoch(self) -> int:
        return self.partition.leader_epoch

    # ------------------------------------------------------------------------------------- roles

    def adopt(self, partition: Partition, now: Instant) -> None:
        """Adopts the role in the committed metadata."""
        # The transitions: to leader (at once, or by way of PREPARING), to the next epoch of a
        # leader, to another stored ISR of it; and below, for a broker that does not lead, to idle
        # or to follower.
        before, self.partition = self.partition, partition
        was = self.part
        self._mark(ADOPTED)
        if partition.leader == self.me:
            # A reassignment adds replicas to a leader that goes on.
            for new in partition.replicas:
                if new != self.me:
                    self.followers.setdefault(new, Follower())
            if not self.serves_followers:
                self._lead(now)
            elif was is Part.PREPARING and not partition.preparing:
                self._serve()
            # The ISR that it stores first, as leader of its own, is not confirmed yet.
            elif was is Part.PREPARING:
                pass
            # A leader that is named again, in the next epoch, has not stopped leading: its
            # followers' positions still count.
            elif partition.leader_epoch != before.leader_epoch:
                self._continue()
            elif partition.isr != before.isr:
                self._settle()
            return
        if partition.leader < 0:
            self.part = Part.IDLE
        # A follower begins anew with each leader epoch, even under the same leader: it tells the
        # leader its position again, and the leader counts only what was fetched in the present
        # epoch.
        elif was is not Part.FOLLOWER or partition.leader_epoch != before.leader_epoch:
            self._follow()
        if was is Part.LEADER:
            self._out.note(
                LeadershipEnded(
                    topic=self.topic,
                    partition=self.index,
                    leader_epoch=before.leader_epoch,
                    reason="metadata",
                )
            )

    def retire(self, reason: RetireReason) -> None:
        """Stops leading or following."""
        was, self.part = self.part, Part.IDLE
        self._mark(ADOPTED)
        if was is Part.LEADER:
            self._out.note(
                LeadershipEnded(
                    topic=self.topic, partition=self.index, leader_epoch=self.epoch, reason=reason
                )
            )

    def _lead(self, now: Instant) -> None:
        self.part = Part.PREPARING
        self.epoch_start = self.log.end
        # Nothing that this broker knew of its followers counts any more: since it led last, one of
        # them may have lost its log. Each has the whole lag time from here on before it leaves the
        # ISR.
        self.expelled = set()
        self.followers = {
            r: Follower(caught_up_ns=now.monotonic_ns)
            # During a reassignment a member of the ISR may be no replica of the new ones.
            for r in {*self.partition.replicas, *self.partition.isr}
            if r != self.me
        }
        if not self.partition.preparing:
            self._serve()

    def _serve(self) -> None:
        """Begins to serve clients."""
        self.part = Part.LEADER
        self._continue()

    def _continue(self) -> None:
        """Continues as leader in the next epoch, after its ISR was stored. Nothing is truncated
        (ruling on epochs)."""
        self._out.note(
            LeadershipStarted(
                topic=self.topic,
                partition=self.index,
                leader_epoch=self.epoch,
                isr=self.partition.isr,
                log_start=self.log.start,
                log_end=self.log.end,
                high_watermark=self.high_watermark,
                keep_in_sync_ms=self._keep_in_sync_ms,
            )
        )
        self._settle()

    def _settle(self) -> None:
        """Another ISR is stored: earlier requests no longer count."""
        # Each ISR is stored upon the one before. A request that was built upon an older one cannot
        # be stored any more, so the high watermark need not wait for whom it adds.
        self.asked, self.adding, self.proposed, self.unsettled = None, (), None, False
        self.expelled &= set(self.partition.isr)
        self.advance()

    def confirmed(self) -> None:
        """The ISR that this leader has is the stored one, by the answer to what it asked last."""
        self._settle()

    def _follow(self) -> None:
        self.part = Part.FOLLOWER
        self._out.note(
            FollowingStarted(
                topic=self.topic,
                partition=self.index,
                leader=self.partition.leader,
                leader_epoch=self.epoch,
                log_end=self.log.end,
                high_watermark=self.high_watermark,
            )
        )
        # Followers of Kafka once cut their logs back to the high watermark here. KIP-101 ended
        # that: the high watermark comes a fetch late, so a follower could cut off what was
        # acknowledged, and then be elected.
        kept = self._policies.kept_when_following(self.high_watermark, self.log.end)
        self._cut(kept, "high_watermark")

    # ------------------------------------------------------------------------------- as a leader

    def append(self, header: BatchHeader, batch: bytes) -> Entry:
        """Stamps and stores a client's batch at the end of the log."""
        base = self.log.end
        # The offset and the leader epoch are the leader's to give; the rest of the batch stays byte
        # for byte.
        stamped = record_batch.stamp(batch, base, self.epoch)
        stored = entry(record_batch.parse(stamped, verify=False))
        self._store(header, stamped, stored, as_leader=True)
        return stored

    def _store(self, header: BatchHeader, data: bytes, stored: Entry, as_leader: bool) -> None:
        # Controllers that lost their disks may have elected a leader in an epoch that was used
        # before. A log whose epochs fall cannot be compared with any other, so the node ends with a
        # sentence.
        if stored.epoch < self.log.last_epoch:
            self._out.end(
                f"the log of {self.topic}-{self.index} has messages of leader epoch "
                f"{self.log.last_epoch}, but is in epoch {stored.epoch} by the committed metadata",
                EXIT_UNREADABLE,
            )
            return
        expected = self.log.end
        self._out.note(
            LogAppended(
                topic=self.topic,
                partition=self.index,
                base_offset=stored.base,
                log_end=stored.end,
                expected_base=expected,
                batch_epoch=stored.epoch,
                leader_epoch=self.epoch,
                as_leader=as_leader,
                digest=_digest(header, stored.epoch),
                producer_id=stored.producer_id,
                base_sequence=stored.base_sequence,
            )
        )
        self.log.append(stored)
        # A follower that had the whole log has it no longer. Its session does not name the
        # partition before it fetches this batch, so the time of its contact must not count for it
        # (see `Follower`).
        for follower in self.followers.values():
            follower.fall_behind()
        self._mark(APPENDED)
        self._out.add(Append(self.name, stored.base, data))

    def counted(self) -> tuple[int, ...]:
        """The replicas over which the high watermark is the least log end."""
        return self._policies.counted_replicas(self.partition.isr, self.adding, self.proposed)

    def end_of(self, replica: int) -> int:
        """A replica's log end as this leader knows it; -1 if unknown."""
        if replica == self.me:
            return self.log.end
        return self.followers[replica].end if replica in self.followers else -1

    def advance(self) -> None:
        """Moves the leader's high watermark as far as allowed: not before it serves clients."""
        if not self.leading:
            return
        # A replica that has not fetched from this leader has the end -1, so nothing is committed
        # before each member of the ISR has shown what it holds.
        counted = self.counted()
        held = min((self.end_of(r) for r in counted), default=-1)
        # It never falls while this broker leads. A new leader's may be below what its predecessor
        # had told clients; it regains that with the first fetches of the ISR (KIP-207).
        if held > self.high_watermark:
            self.high_watermark = held
            self._note_watermark(True, counted)

    def _note_watermark(self, as_leader: bool, counted: tuple[int, ...]) -> None:
        self._mark(COMMITTED)
        self._out.note(
            HighWatermarkAdvanced(
                topic=self.topic,
                partition=self.index,
                high_watermark=self.high_watermark,
                log_end=self.log.end,
                leader_epoch=self.epoch,
                as_leader=as_leader,
                isr=self.partition.isr if as_leader else (),
                counted=counted,
            )
        )

    def fetched(
        self,
        follower: int,
        *,
        client: str,
        broker_epoch: int,
        offset: int,
        contact: Contact,
        now: Instant,
    ) -> None:
        """Counts a follower's fetch from `offset`; see `Follower.fetched`."""
        known = self.followers.setdefault(follower, Follower())
        known.fetched(offset, self.log.end, contact, now.monotonic_ns)
        known.epoch = self.epoch
        # Nothing that a rule or the high watermark looks at is another one.
        if offset == known.end and broker_epoch == known.broker_epoch:
            return
        known.end, known.broker_epoch = offset, broker_epoch
        self._out.note(
            FollowerFetched(
                topic=self.topic,
                partition=self.index,
                leader_epoch=self.epoch,
                follower=follower,
                client=client,
                broker_epoch=broker_epoch,
                offset=offset,
            )
        )
        self.advance()

    def forget(self, follower: int) -> None:
        """A follower's process was replaced: the offsets that its predecessor fetched no longer
        count."""
        if follower in self.followers:
            self.followers[follower] = Follower(caught_up_ns=self.followers[follower].caught_up_ns)
            self._mark(ADOPTED)

    def expel(self, member: int) -> None:
        """A member of the ISR is another process now: it has to catch up before it is one again."""
        if member in self.partition.isr:
            self.expelled.add(member)

    def laggards(self, now: Instant, lag_ns: int) -> tuple[int, ...]:
        """The ISR's members that have not kept up for the time allowed (RP-09)."""
        silent_ns = {r: now.monotonic_ns - f.caught_up_ns for r, f in self.followers.items()}
        return tuple(
            r
            for r in self.partition.isr
            if r != self.me
            and (r in self.expelled or self._policies.is_laggard(silent_ns[r], lag_ns))
        )

    def joiners(self, now: Instant, lag_ns: int) -> tuple[int, ...]:
        """The replicas outside the ISR that may join it (RP-10)."""
        # At the high watermark the follower has all that is committed. In a new leader's first
        # moments that is too little: its own high watermark is late, and below the start of its
        # epoch lies what its predecessor may have acknowledged.
        least_end = max(self.high_watermark, self.epoch_start)
        return tuple(
            r
            for r, known in sorted(self.followers.items())
            if r in self.partition.replicas
            and r not in self.partition.isr
            and known.end >= 0
            # A replica that was taken away from the follower, and given back, is empty. What it had
            # fetched before does not count: it joined the ISR with an empty log, was elected, and
            # acknowledged messages were lost.
            and known.epoch == self.epoch
            and self._policies.may_join(known, least_end, now.monotonic_ns, lag_ns)
        )

    def next_look_ns(self, lag_ns: int) -> int | None:
        """When a leader may have to change the ISR, at the earliest; None while a request is in
        flight, and for a follower."""
        if not self.leading or self.asked is not None:
            return None
        isr = self.partition.isr
        outside = any(r not in isr for r in self.followers)
        # Something is to be asked for, or asked again, or a replica outside the ISR may have caught
        # up: it is looked at with every retry.
        if self.adding or self.unsettled or self.expelled or outside:
            return self.retry_ns
        # All is well. The first member that could lag is looked at when it would lag if it fetched
        # no more. A fetch meanwhile does not move the entry; the look then finds nothing, and sets
        # the next time.
        times = [self.followers[r].caught_up_ns + lag_ns for r in isr if r != self.me]
        return max(self.retry_ns, min(times)) if times else None

    def propose(self, isr: tuple[int, ...]) -> None:
        """This leader wants another ISR. Until that is stored, `counted_replicas` decides the high
        watermark."""
        self.proposed = isr
        self.advance()

    def refused(self) -> None:
        """The requested replicas were certainly not added: the high watermark waits for them no
        longer.

        It moves now, before the next request, since a replica may join only at the high watermark.
        """
        self.adding = ()
        self.advance()

    # ------------------------------------------------------------------------------ to the disk

    def flush(self) -> None:
        """Syncs the unsynced part of the log, then moves the flushed offset, so that it is never
        ahead of the disk (RP-26)."""
        # The sync comes before the checkpoint that names it. The other order would state as flushed
        # what a loss of power still takes.
        if self._policies.sync_is_due(self.flushed, self.log.end):
            self._out.add(Sync(self.name))
        self.flushed = self.log.end
        if (self.high_watermark, self.flushed) != self._stored:
            self._stored = (self.high_watermark, self.flushed)
            self._out.note(
                ReplicaCheckpointed(
                    topic=self.topic,
                    partition=self.index,
                    high_watermark=self.high_watermark,
                    flushed=self.flushed,
                )
            )

    # ----------------------------------------------------------------------------- as a follower

    def take(self, header: BatchHeader, data: bytes) -> None:
        """Stores a batch from the leader, unchanged, at the end of the log (RP-05)."""
        # The answer was built for the position that this replica had when it asked.
        if header.base_offset < self.log.end:
            return  # the end of an answer from before a truncation
        header, data = self._policies.batch_from_leader(header, data, self.log.end)
        self._store(header, data, entry(header), as_leader=False)

    def learn(self, leaders_watermark: int) -> None:
        """Adopts the leader's high watermark, up to the end of our log (RP-27)."""
        before = self.high_watermark
        self.high_watermark = self._policies.learned_watermark(
            before, leaders_watermark, self.log.end
        )
        if self.high_watermark > before:
            self._note_watermark(False, ())

    def diverged(self, epoch: int, end_offset: int) -> None:
        """The leader's log diverges from ours after `epoch` at `end_offset`: truncates ours
        (RP-15)."""
        # The leader's answer says where its epoch ends; this log may end that epoch earlier. Up to
        # the lower of both the logs are the same. If this log has epochs of which the leader has
        # none, the next fetch finds that, and cuts again (KIP-101).
        _, mine = self.log.end_for_epoch(epoch)
        self._cut(min(end_offset, mine), "leader_epoch")

    def _cut(self, to_offset: int, reason: CutReason) -> None:
        before = self.log.end
        if before <= to_offset:
            return
        after = self.log.truncate(to_offset)
        self._out.note(
            LogTruncated(
                topic=self.topic,
                partition=self.index,
                to_offset=after,
                from_log_end=before,
                high_watermark=self.high_watermark,
                leader_epoch=self.epoch,
                reason=reason,
            )
        )
        self._out.add(Truncate(self.name, after))
        self.high_watermark = min(self.high_watermark, after)
        self.flushed = min(self.flushed, after)


def _digest(header: BatchHeader, epoch: int) -> str:
    """A checksum of a batch as stored: the same bytes, sent again to another leader, are another
    batch."""
    return f"{header.crc & 0xFFFFFFFF:08x}.{epoch}"
