"""One replica of a partition on this broker: its log, its high watermark, and its part as leader.

The high watermark is exclusive. The leader moves it to the least log end among the stored ISR and
any replica it has asked to add, never among fewer: a shrink counts only once it is stored (RP-32).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from uuid import UUID

from fencepost_clusters.reference.core.log.index import Entry, LogIndex, entry
from fencepost_clusters.reference.core.node.effects import (
    Append,
    Instant,
    Outbox,
    Protections,
    Sync,
    Truncate,
)
from fencepost_clusters.reference.core.quorum.metadata.image import Partition
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire.record_batch import BatchHeader
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


class Part(Enum):
    """What a replica is just now."""

    IDLE = "idle"
    LEADER = "leader"
    FOLLOWER = "follower"


@dataclass(slots=True)
class Follower:
    """What the leader knows of a follower; `end` is -1 until it has fetched."""

    end: int = -1
    broker_epoch: int = -1
    caught_up_ns: int = 0
    leader_end: int = 0
    fetched_ns: int = 0
    told_watermark: int = -1


def log_name(topic: str, partition: Partition) -> str:
    """The log's folder: a topic made again under its old name is another log."""
    return f"{topic}-{partition.index}-{partition.topic_id.hex}"


class Replica:
    """See the module."""

    def __init__(
        self,
        me: int,
        topic: str,
        partition: Partition,
        entries: tuple[Entry, ...],
        checkpoint: int,
        keep_in_sync_ms: int,
        stirred: set[Key],
        protections: Protections,
        out: Outbox,
    ) -> None:
        """`stirred` takes the replica's key whenever something changes that a fetch waits for."""
        self.me = me
        self.topic = topic
        self.index = partition.index
        self.partition = partition
        self.name = log_name(topic, partition)
        self._keep_in_sync_ms = keep_in_sync_ms
        self.log = LogIndex(entries)
        restored = protections.holds("restart-from-checkpoint")
        self.high_watermark = min(checkpoint, self.log.end) if restored else self.log.end  # RP-08
        self.flushed = 0
        """The log is synced to disk below this offset, for all that this process knows (RP-26)."""
        self._stored = (-1, -1)
        self._sync_owed = False
        self.part = Part.IDLE
        self.followers: dict[int, Follower] = {}
        self.adding: tuple[int, ...] = ()
        """Replicas whose admission to the ISR was asked for and may be stored already."""
        self.asked: int | None = None
        """The AlterIsr in flight, by its call; or that was granted and is not replayed yet."""
        self.retry_ns = 0
        self.epoch_start = 0
        self._dropped: tuple[int, ...] = ()
        self._key = (partition.topic_id, partition.index)
        self._stirred = stirred
        self._protections = protections
        self._out = out

    @property
    def leading(self) -> bool:
        return self.part is Part.LEADER

    @property
    def epoch(self) -> int:
        return self.partition.leader_epoch

    @property
    def isr(self) -> tuple[int, ...]:
        """The stored ISR (less what the defect of RP-32 dropped on its own)."""
        return tuple(r for r in self.partition.isr if r not in self._dropped)

    # ------------------------------------------------------------------------------------- roles

    def adopt(self, partition: Partition, now: Instant) -> bool:
        """Takes on what the committed metadata says; True if this replica stops leading."""
        before, self.partition = self.partition, partition
        was = self.part
        self._stirred.add(self._key)
        if partition.leader == self.me:
            if was is not Part.LEADER:
                self._lead(now)
            elif partition.leader_epoch != before.leader_epoch:
                self._continue(now)
            return False
        if partition.leader < 0:
            self.part = Part.IDLE
        elif was is not Part.FOLLOWER or partition.leader_epoch != before.leader_epoch:
            self._follow()
        if was is Part.LEADER:
            self._out.note(LeadershipEnded(self.topic, self.index, before.leader_epoch, "metadata"))
        return was is Part.LEADER

    def retire(self, reason: str) -> bool:
        """Stops whatever it does; True if it was leading."""
        was, self.part = self.part, Part.IDLE
        self._stirred.add(self._key)
        if was is Part.LEADER:
            self._out.note(LeadershipEnded(self.topic, self.index, self.epoch, reason))
        return was is Part.LEADER

    def _lead(self, now: Instant) -> None:
        self.part = Part.LEADER
        self.epoch_start = self.log.end
        if not self._protections.holds("producers-from-log"):
            self.log.forget_producers()
        self.followers = {
            r: Follower(caught_up_ns=now.monotonic_ns)
            for r in {*self.partition.replicas, *self.partition.isr}
            if r != self.me
        }
        self._continue(now)

    def _continue(self, now: Instant) -> None:
        """A leader's next epoch: its ISR was stored. Nothing is truncated (ruling on epochs)."""
        self.asked, self.adding, self._dropped = None, (), ()
        self._out.note(
            LeadershipStarted(
                self.topic,
                self.index,
                self.epoch,
                self.partition.isr,
                self.log.start,
                self.log.end,
                self.high_watermark,
                self._keep_in_sync_ms,
            )
        )
        self.advance()

    def _follow(self) -> None:
        self.part = Part.FOLLOWER
        self._out.note(
            FollowingStarted(
                self.topic,
                self.index,
                self.partition.leader,
                self.epoch,
                self.log.end,
                self.high_watermark,
            )
        )
        if not self._protections.holds("truncate-to-confirmed"):
            self._cut(self.high_watermark, "high_watermark")

    # ------------------------------------------------------------------------------- as a leader

    def append(self, header: BatchHeader, batch: bytes) -> Entry:
        """Stamps and stores a client's batch at the end of the log."""
        base = self.log.end
        stamped = record_batch.stamp(batch, base, self.epoch)
        stored = entry(record_batch.parse(stamped, verify=False))
        self._store(header, stamped, stored, as_leader=True)
        return stored

    def _store(self, header: BatchHeader, data: bytes, stored: Entry, as_leader: bool) -> None:
        expected = self.log.end
        self._out.note(
            LogAppended(
                self.topic,
                self.index,
                stored.base,
                stored.end,
                expected,
                stored.epoch,
                self.epoch,
                as_leader,
                _digest(header, stored.epoch),
                stored.producer_id,
                stored.base_sequence,
            )
        )
        self.log.append(stored)
        self._stirred.add(self._key)
        self._out.add(Append(self.name, stored.base, data))

    def counted(self) -> tuple[int, ...]:
        """The replicas over which the high watermark is the least log end."""
        return tuple(sorted({*self.isr, *self.adding}))

    def end_of(self, replica: int) -> int:
        """A replica's log end as this leader knows it; -1 when it does not."""
        if replica == self.me:
            return self.log.end
        return self.followers[replica].end if replica in self.followers else -1

    def advance(self) -> bool:
        """Moves the leader's high watermark as far as it may; True if it moved."""
        counted = self.counted()
        held = min((self.end_of(r) for r in counted), default=-1)
        if held <= self.high_watermark:
            return False
        self.high_watermark = held
        self._note_watermark(True, counted)
        return True

    def _note_watermark(self, as_leader: bool, counted: tuple[int, ...]) -> None:
        self._stirred.add(self._key)
        self._out.note(
            HighWatermarkAdvanced(
                self.topic,
                self.index,
                self.high_watermark,
                self.log.end,
                self.epoch,
                as_leader,
                self.partition.isr if as_leader else (),
                counted,
            )
        )

    def fetched(
        self, follower: int, client: str, broker_epoch: int, offset: int, now: Instant
    ) -> bool:
        """Counts a follower's fetch from `offset`; True if the high watermark moved."""
        known = self.followers.setdefault(follower, Follower())
        if offset >= self.log.end:
            known.caught_up_ns = now.monotonic_ns
        elif offset >= known.leader_end:
            known.caught_up_ns = max(known.caught_up_ns, known.fetched_ns)
        known.fetched_ns, known.leader_end = now.monotonic_ns, self.log.end
        if offset == known.end and broker_epoch == known.broker_epoch:
            return False
        known.end, known.broker_epoch = offset, broker_epoch
        self._out.note(
            FollowerFetched(
                self.topic, self.index, self.epoch, follower, client, broker_epoch, offset
            )
        )
        return self.advance()

    def forget(self, follower: int) -> None:
        """A follower's process was replaced: what its predecessor had fetched is no word of it."""
        if follower in self.followers:
            self.followers[follower] = Follower(caught_up_ns=self.followers[follower].caught_up_ns)
            self._stirred.add(self._key)

    def laggards(self, now: Instant, lag_ns: int) -> tuple[int, ...]:
        """The ISR's members that have not kept up for the time allowed (RP-09)."""
        if not self._protections.holds("drop-laggards"):
            return ()
        return tuple(
            r
            for r in self.partition.isr
            if r != self.me and now.monotonic_ns - self.followers[r].caught_up_ns >= lag_ns
        )

    def joiners(self, now: Instant, lag_ns: int) -> tuple[int, ...]:
        """The replicas that have reached the high watermark and this epoch's start (RP-10).

        One that would be a laggard at once stays out, or it would come and go: a dead one on a
        quiet log, or one whose last question had waited, and was answered, since it was heard.
        """
        lenient = not self._protections.holds("join-when-caught-up")
        return tuple(
            r
            for r, known in sorted(self.followers.items())
            if r in self.partition.replicas
            and r not in self.partition.isr
            and known.end >= 0
            and now.monotonic_ns - (known.fetched_ns if lenient else known.caught_up_ns) < lag_ns
            and (lenient or known.end >= max(self.high_watermark, self.epoch_start))
        )

    def drop_unstored(self, dropped: tuple[int, ...]) -> None:
        """The defect of RP-32: counts a shrink that nobody stored."""
        self._dropped = dropped

    # ------------------------------------------------------------------------------ to the disk

    def flush(self) -> None:
        """Syncs what is not synced yet, and then says so: the offset never runs ahead of the disk.

        The defect of RP-26 says so first, and leaves the syncing to the next time.
        """
        if self._protections.holds("flushed-after-sync"):
            if self.flushed < self.log.end:
                self._out.add(Sync(self.name))
            self.flushed = self.log.end
        elif self._sync_owed:
            self._out.add(Sync(self.name))
            self._sync_owed = False
        else:
            self.flushed, self._sync_owed = self.log.end, True
        if (self.high_watermark, self.flushed) != self._stored:
            self._stored = (self.high_watermark, self.flushed)
            self._out.note(
                ReplicaCheckpointed(self.topic, self.index, self.high_watermark, self.flushed)
            )

    # ----------------------------------------------------------------------------- as a follower

    def take(self, header: BatchHeader, data: bytes) -> None:
        """Stores a batch from the leader, as it is, at the end of the log (RP-05)."""
        if header.base_offset < self.log.end:
            return  # the tail of an answer that came before a truncation
        stored = entry(header)
        if not self._protections.holds("append-at-end"):
            data = record_batch.stamp(data, self.log.end + 1, header.leader_epoch)
            stored = entry(record_batch.parse(data, verify=False))
        self._store(header, data, stored, as_leader=False)

    def learn(self, leaders_watermark: int) -> None:
        """The leader's high watermark, as far as our log reaches (RP-27)."""
        known = min(leaders_watermark, self.log.end)
        if known > self.high_watermark and self._protections.holds("watermark-travels"):
            self.high_watermark = known
            self._note_watermark(False, ())

    def diverged(self, epoch: int, end_offset: int) -> None:
        """The leader's log parts from ours after `epoch` at `end_offset`: cut ours (RP-15)."""
        if self._protections.holds("truncate-by-epoch"):
            _, mine = self.log.end_for_epoch(epoch)
            self._cut(min(end_offset, mine), "leader_epoch")

    def _cut(self, to_offset: int, reason: str) -> None:
        before = self.log.end
        if before <= to_offset:
            return
        after = self.log.truncate(to_offset)
        self._stirred.add(self._key)
        self._out.note(
            LogTruncated(
                self.topic, self.index, after, before, self.high_watermark, self.epoch, reason
            )
        )
        self._out.add(Truncate(self.name, after))
        self.high_watermark = min(self.high_watermark, after)
        self.flushed = min(self.flushed, after)


def _digest(header: BatchHeader, epoch: int) -> str:
    """What a batch is, as stored: the same bytes resent to another leader are another batch."""
    return f"{header.crc & 0xFFFFFFFF:08x}.{epoch}"
