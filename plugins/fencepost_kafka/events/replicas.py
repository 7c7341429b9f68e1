"""Kinds of events about replicas: their logs, their leaders, their ISR."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

from fencepost import Authority, Change, numbers
from fencepost_kafka.events.values import LeadershipReason, RemovalReason, TruncationReason
from fencepost_kafka.events.words import at, offsets, partition_scope, scopes


class RecoveryStarted(Struct, frozen=True, gc=False, tag="node.recovery_started", kw_only=True):
    """A starting node begins to recover the logs on its disk."""

    node_id: int

    def sentence(self) -> str:
        return f"recovers the logs of node {self.node_id}"


class RecoveryEnded(Struct, frozen=True, gc=False, tag="node.recovery_ended", kw_only=True):
    """A starting node has recovered the logs on its disk: how many, with how many batches."""

    node_id: int
    logs: int
    batches: int

    def sentence(self) -> str:
        return f"has recovered {self.logs} logs with {self.batches} batches"


class LeadershipStarted(
    Struct, frozen=True, gc=False, kw_only=True, tag="replica.leadership_started"
):
    """This broker begins to serve as leader of the partition in `leader_epoch`.

    `log_start` is where its log begins (-1: not recorded). Of messages below it no event says that
    they were deleted, so they count as lost: a system that deletes the oldest messages of a topic
    does not record it. `keep_in_sync_ms` is how long a follower may lag before it asks to drop it
    (0: not recorded).
    """

    topic: str
    partition: int
    leader_epoch: int
    isr: tuple[int, ...]
    log_start: int
    log_end: int
    high_watermark: int
    keep_in_sync_ms: int = 0

    def sentence(self) -> str:
        return (
            f"leads {at(self)} in leader epoch {self.leader_epoch}, ISR {numbers(self.isr)}, "
            "log end "
            f"{self.log_end}, high watermark {self.high_watermark}"
        )

    def authority(self) -> Sequence[Authority]:
        scope = partition_scope(self.topic, self.partition)
        return (Authority(scope, Change.GAINED, self.leader_epoch, state="leader"),)

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class LeadershipEnded(Struct, frozen=True, gc=False, tag="replica.leadership_ended", kw_only=True):
    """This broker stopped serving as leader.

    `reason`: metadata, fenced, deleted (the topic), unassigned (no replica any more), shutdown.
    """

    topic: str
    partition: int
    leader_epoch: int
    reason: LeadershipReason

    def sentence(self) -> str:
        return f"stops leading {at(self)} in leader epoch {self.leader_epoch} ({self.reason})"

    def authority(self) -> Sequence[Authority]:
        scope = partition_scope(self.topic, self.partition)
        return (Authority(scope, Change.LOST, self.leader_epoch),)

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class FollowingStarted(
    Struct, frozen=True, gc=False, kw_only=True, tag="replica.following_started"
):
    """This broker follows `leader` in `leader_epoch`, from its own log as given."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    log_end: int
    high_watermark: int

    def sentence(self) -> str:
        return (
            f"follows broker {self.leader} in {at(self)}, leader epoch {self.leader_epoch}, "
            "from log end "
            f"{self.log_end}, high watermark {self.high_watermark}"
        )

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class LogAppended(Struct, frozen=True, gc=False, kw_only=True, tag="replica.log_appended"):
    """A batch was appended to this broker's log (on disk, perhaps unsynced).

    `batch_epoch` is the leader epoch in the batch; `log_end` the offset after it; `expected_base`
    the log's end before; `digest` a checksum of the batch as stored.
    """

    topic: str
    partition: int
    base_offset: int
    log_end: int
    expected_base: int
    batch_epoch: int
    leader_epoch: int
    as_leader: bool
    digest: str
    producer_id: int
    base_sequence: int

    def sentence(self) -> str:
        what = "a client's write" if self.as_leader else "fetched records"
        return (
            f"stored {what} in {at(self)} at {offsets(self.base_offset, self.log_end)}, leader "
            "epoch "
            f"{self.leader_epoch}"
        )

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class LogTruncated(Struct, frozen=True, gc=False, kw_only=True, tag="replica.log_truncated"):
    """This replica dropped [to_offset, from_log_end) of its log. `reason`: leader_epoch or
    recovery."""

    topic: str
    partition: int
    to_offset: int
    from_log_end: int
    high_watermark: int
    leader_epoch: int
    reason: TruncationReason

    def sentence(self) -> str:
        return (
            f"dropped {at(self)} from offset {self.to_offset} to {self.from_log_end} "
            f"({self.reason}), high "
            f"watermark {self.high_watermark}"
        )

    def authority(self) -> Sequence[Authority]:
        scope = partition_scope(self.topic, self.partition)
        return (Authority(scope, Change.NOTED, self.leader_epoch),)

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class HighWatermarkAdvanced(
    Struct, frozen=True, gc=False, kw_only=True, tag="replica.high_watermark"
):
    """This replica's high watermark (exclusive) is now `high_watermark`.

    On the leader `isr` is the stored ISR and `counted` the set the mark was computed over
    (the stored ISR and every replica being added, see RP-32); on a follower both are empty.
    """

    topic: str
    partition: int
    high_watermark: int
    log_end: int
    leader_epoch: int
    as_leader: bool
    isr: tuple[int, ...]
    counted: tuple[int, ...]

    def sentence(self) -> str:
        over = f" over {numbers(self.counted)}" if self.as_leader else ""
        return f"moved the high watermark of {at(self)} to {self.high_watermark}{over}"

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class FollowerFetched(Struct, frozen=True, gc=False, kw_only=True, tag="replica.follower_fetched"):
    """The leader took a follower's fetch into account: that replica's log reaches `offset`.

    Written when the offset differs from the last one counted for that follower. `client` is the
    fetching process, `broker_epoch` the one in its request.
    """

    topic: str
    partition: int
    leader_epoch: int
    follower: int
    client: str
    broker_epoch: int
    offset: int

    def sentence(self) -> str:
        return (
            f"counts broker {self.follower}, {self.client}, to have {at(self)} up to offset "
            f"{self.offset}"
        )

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class IsrChangeAsked(Struct, frozen=True, gc=False, kw_only=True, tag="replica.isr_change_asked"):
    """A leader asks the controller for a new ISR; `ends` and `high_watermark` are its reasons.

    `ends` holds the log ends of the replicas in `new_isr`, in its order; `epoch_start` is the start
    offset of the leader's epoch; `lag_ns` is how long the slowest dropped one was behind.
    """

    topic: str
    partition: int
    leader_epoch: int
    broker_epoch: int
    old_isr: tuple[int, ...]
    new_isr: tuple[int, ...]
    ends: tuple[int, ...]
    high_watermark: int
    epoch_start: int
    lag_ns: int

    def sentence(self) -> str:
        return (
            f"asked for the ISR {numbers(self.new_isr)} of {at(self)} instead of "
            f"{numbers(self.old_isr)}, "
            f"leader epoch {self.leader_epoch}"
        )

    def authority(self) -> Sequence[Authority]:
        scope, matter = partition_scope(self.topic, self.partition), f"asked {self.new_isr}"
        return (Authority(scope, Change.NOTED, self.leader_epoch, matter=matter),)

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class IsrChangeAnswered(
    Struct, frozen=True, gc=False, tag="replica.isr_change_answered", kw_only=True
):
    """The leader got the controller's answer to its AlterIsr.

    `leader_epoch` is that in which it asked, `granted_epoch` the one the change led to (-1: none).
    """

    topic: str
    partition: int
    leader_epoch: int
    error: str
    """Kafka's name of the error (NONE: none); an open set, since versions of Kafka add to it."""
    isr: tuple[int, ...]
    granted_epoch: int = -1

    def sentence(self) -> str:
        if self.error != "NONE":
            return f"was refused a new ISR of {at(self)}: {self.error}"
        return f"was granted the ISR {numbers(self.isr)} of {at(self)}"

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class ReplicaCheckpointed(Struct, frozen=True, gc=False, tag="replica.checkpointed", kw_only=True):
    """A replica is about to store its high watermark, and how far its log is synced to the disk.

    Records below `flushed` survive the loss of the page cache. Written when either changed.
    """

    topic: str
    partition: int
    high_watermark: int
    flushed: int

    def sentence(self) -> str:
        return (
            f"stores the high watermark {self.high_watermark} of {at(self)}; its log is synced "
            "up to "
            f"offset {self.flushed}"
        )

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class ReplicaRemoved(Struct, frozen=True, gc=False, tag="replica.removed", kw_only=True):
    """This broker is about to close its replica, if it is open, and to delete its log.

    `reason` is deleted (the topic), unassigned (the broker is no replica any more), or stray (found
    on the disk at start, and no replica of this broker's).
    """

    topic: str
    partition: int
    topic_id: str
    reason: RemovalReason

    def sentence(self) -> str:
        return f"deletes its log of {at(self)} ({self.reason})"

    def concerns(self) -> Sequence[str]:
        return scopes(self)


class StoredBatch(NamedTuple):
    """A batch in a log on a disk: offsets [`base_offset`, `end`), the leader epoch in it, a digest
    of its bytes, and its producer's id, epoch and first sequence number (-1: not idempotent)."""

    base_offset: int
    end: int
    leader_epoch: int
    digest: str
    producer_id: int
    producer_epoch: int
    base_sequence: int


class SegmentFound(Struct, frozen=True, gc=False, kw_only=True, tag="disk.segment"):
    """A segment of a log, as it is on the disk of a slot after all processes have ended.

    `node_id` is the slot's, and `topic_id` is empty where topics have none. `log_start` and
    `high_watermark` are those of the partition, as checkpointed there (-1: there is no checkpoint).
    `log_end` is the offset after the last whole batch of this segment. The other fields have one
    value for each batch (see `batches`). An empty log has one segment without batches.
    """

    slot: str
    node_id: int
    topic: str
    topic_id: str
    partition: int
    log_start: int
    log_end: int
    high_watermark: int
    base_offsets: tuple[int, ...]
    ends: tuple[int, ...]
    leader_epochs: tuple[int, ...]
    digests: tuple[str, ...]
    producer_ids: tuple[int, ...]
    producer_epochs: tuple[int, ...]
    base_sequences: tuple[int, ...]

    def batches(self) -> Iterator[StoredBatch]:
        """The batches, in order."""
        columns = (
            self.base_offsets,
            self.ends,
            self.leader_epochs,
            self.digests,
            self.producer_ids,
            self.producer_epochs,
            self.base_sequences,
        )
        return (StoredBatch(*row) for row in zip(*columns, strict=True))

    def sentence(self) -> str:
        first = self.base_offsets[0] if self.base_offsets else self.log_end
        return f"the disk of {self.slot} has {at(self)} from offset {first} to {self.log_end}"

    def concerns(self) -> Sequence[str]:
        return scopes(self)
