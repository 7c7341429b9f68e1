"""Second readings of the replication design: leaders, logs, high watermarks, ISRs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from fencepost.events.names import first_of, slot_of
from fencepost_kafka import (
    AdminCompleted,
    FetchServed,
    FollowingStarted,
    HighWatermarkAdvanced,
    IsrChangeAsked,
    IsrPrepared,
    LeadershipEnded,
    LeadershipStarted,
    LogAppended,
    LogTruncated,
    PartitionCommitted,
    Polled,
    ProduceAnswered,
    ProduceCompleted,
    ProduceInvoked,
    ReplicaCheckpointed,
    ReplicaRemoved,
    ReplicaStood,
    TopicCommitted,
    TopicMarked,
)
from second_readings.clients import deleted
from second_readings.quorum import before, partitions
from second_readings.reading import At, History, Word, reading, undecided, violated

GONE = (AdminCompleted, TopicCommitted, TopicMarked, LeadershipEnded, ReplicaRemoved)


def name(at: At) -> tuple[str, int]:
    return at.body.topic, at.body.partition


def promised(history: History, topic: str) -> bool:
    """Whether the topic had one life, and no disk was harmed."""
    return not history.lost_data and not deleted(history, topic)


def sure(history: History, at: At) -> bool:
    return promised(history, at.body.topic)


@reading("RP-19", PartitionCommitted)
def members(history: History) -> Iterator[Word]:
    """ISR is a subset of AR, and a broker holds at most one replica of a partition."""
    for at in history.of(PartitionCommitted):
        body = at.body
        if not set(body.isr) <= set(body.replicas) or len({*body.replicas}) < len(body.replicas):
            yield violated(*name(at), body.offset)


@reading("RP-29", PartitionCommitted)
def leads_in_sync(history: History) -> Iterator[Word]:
    """While no member of the ISR is live, the partition has no leader: a leader is a member of the
    ISR, or of an ISR that was never stored."""
    for at in history.of(PartitionCommitted):
        body = at.body
        if body.leader >= 0 and body.isr and body.leader not in (*body.isr, *body.eligible):
            yield violated(*name(at), body.leader)


@reading("RP-24", PartitionCommitted, LeadershipStarted, *GONE)
def one_leader_an_epoch(history: History) -> Iterator[Word]:
    """A partition has at most one leader in each leader epoch, and leader epochs only grow."""
    for (topic, partition), records in partitions(history).items():
        word = violated if promised(history, topic) else undecided
        leaders: dict[int, set[int]] = {}
        for record in records:
            if record.leader >= 0:
                leaders.setdefault(record.leader_epoch, set()).add(record.leader)
        for epoch, ids in leaders.items():
            if len(ids) > 1:
                yield word(topic, partition, epoch)
        for one, other in pairwise(records):
            if other.leader_epoch < one.leader_epoch:
                yield word(topic, partition, other.offset)
    started: dict[tuple[str, int, int], set[str]] = {}
    for at in history.of(LeadershipStarted):
        started.setdefault((*name(at), at.body.leader_epoch), set()).add(first_of(at.process))
    for (topic, partition, epoch), slots in started.items():
        if len(slots) > 1:
            yield (violated if promised(history, topic) else undecided)(topic, partition, epoch)


@reading("RP-20", PartitionCommitted, *GONE)
def switches_over(history: History) -> Iterator[Word]:
    """A reassignment switches over only when every new replica has caught up: then the ISR covers
    the new replicas."""
    for (topic, partition), records in partitions(history).items():
        for one, other in pairwise(records):
            added = set(one.adding) & set(other.replicas)
            if one.adding and not other.adding and not added <= set(other.isr):
                yield (violated if promised(history, topic) else undecided)(topic, partition)


@reading("RP-04", ProduceAnswered)
def acknowledged_by_all(history: History) -> Iterator[Word]:
    """A synchronous write is acknowledged only after every in-sync replica has it."""
    for at in history.of(ProduceAnswered):
        body = at.body
        if body.acks == -1 and body.error == "NONE" and body.log_end >= 0:
            if any(end < body.log_end for end in body.ends):
                yield violated(*name(at), body.base_offset)


@reading("RP-07", FetchServed, HighWatermarkAdvanced, Polled, *GONE)
def below_watermark(history: History) -> Iterator[Word]:
    """Consumers read from the leader only, and only below the high watermark."""
    for at in history.of(FetchServed):
        if at.body.to_offset > at.body.high_watermark:
            yield violated(*name(at), at.body.to_offset)
    for at in history.of(Polled):
        known = [
            one.body.high_watermark
            for one in history.of(HighWatermarkAdvanced)
            if name(one) == name(at) and one.place < at.place
        ]
        if known and at.body.offsets and max(at.body.offsets) >= max(known):
            yield (violated if sure(history, at) else undecided)(*name(at), max(at.body.offsets))


@reading("RP-27", HighWatermarkAdvanced)
def within_log(history: History) -> Iterator[Word]:
    """Followers never hold a high watermark above their own log end."""
    for at in history.of(HighWatermarkAdvanced):
        if at.body.high_watermark > at.body.log_end:
            yield violated(*name(at), at.process)


@reading("RP-32", HighWatermarkAdvanced)
def stored_isr_counts(history: History) -> Iterator[Word]:
    """A shrunk ISR counts for commits only once it is stored."""
    for at in history.of(HighWatermarkAdvanced):
        if at.body.as_leader and not set(at.body.isr) <= set(at.body.counted):
            yield violated(*name(at), at.process)


@reading("RP-10", IsrChangeAsked)
def enters_caught_up(history: History) -> Iterator[Word]:
    """A follower enters the ISR only when it has reached the leader's high watermark and the start
    of the leader's epoch."""
    for at in history.of(IsrChangeAsked):
        body = at.body
        for member, end in zip(body.new_isr, body.ends, strict=False):
            if member not in body.old_isr and end < max(body.high_watermark, body.epoch_start):
                yield violated(*name(at), member)


@reading("RP-06", LeadershipStarted, HighWatermarkAdvanced, *GONE)
def committed_stays(history: History) -> Iterator[Word]:
    """A committed message is never lost while one replica of its ISR stays up: a new leader has
    all below the high watermark."""
    for at in history.of(LeadershipStarted):
        for one in history.of(HighWatermarkAdvanced):
            earlier = one.body.leader_epoch < at.body.leader_epoch
            if name(one) == name(at) and earlier and one.place < at.place:
                if one.body.high_watermark > at.body.log_end:
                    yield (violated if sure(history, at) else undecided)(*name(at), at.process)


@reading("RP-13", LeadershipStarted, ProduceCompleted, ProduceInvoked, *GONE)
def leader_has_it(history: History) -> Iterator[Word]:
    """Leader failure after the answer: the new leader has the message."""
    for at in history.of(LeadershipStarted):
        for ack in history.of(ProduceCompleted):
            body = ack.body
            if (
                name(ack) == name(at)
                and ack.place < at.place
                and (body.outcome, body.acks) == ("ok", -1)
                and body.offset >= at.body.log_end
            ):
                yield (violated if sure(history, at) else undecided)(*name(at), body.offset)


@reading("RP-08", ReplicaCheckpointed, LeadershipStarted, FollowingStarted, *GONE)
def restored_watermark(history: History) -> Iterator[Word]:
    """After a restart a replica's high watermark is the smaller of the checkpoint and the log end
    offset."""
    seen: set[tuple[str, str, int]] = set()
    for at in history.of(LeadershipStarted, FollowingStarted):
        key = (at.process, *name(at))
        if key in seen:
            continue
        seen.add(key)
        stored = [
            one
            for one in history.of(ReplicaCheckpointed)
            if slot_of(one.process) == slot_of(at.process)
            and name(one) == name(at)
            and one.place < at.place
        ]
        if not stored or stored[-1].process == at.process:
            continue
        most = min(stored[-1].body.high_watermark, at.body.log_end)
        if isinstance(at.body, FollowingStarted) and at.body.high_watermark > most:
            yield (violated if sure(history, at) else undecided)(*key)


@reading("RP-15", LogTruncated)
def truncates_to_confirmed(history: History) -> Iterator[Word]:
    """A follower truncates to what the new leader's log confirms, and loses no committed
    message."""
    for at in history.of(LogTruncated):
        if at.body.reason == "leader_epoch" and at.body.to_offset < at.body.high_watermark:
            yield (undecided if history.lost_data else violated)(*name(at), at.process)


@reading("RP-26", LogTruncated, ReplicaCheckpointed)
def flushed_stays(history: History) -> Iterator[Word]:
    """Data before the flushed offset survives the loss of the page cache."""
    for at in history.of(LogTruncated):
        if at.body.reason != "recovery":
            continue
        stored = [
            one.body.flushed
            for one in history.of(ReplicaCheckpointed)
            if slot_of(one.process) == slot_of(at.process)
            and name(one) == name(at)
            and one.place < at.place
        ]
        if stored and at.body.to_offset < stored[-1]:
            yield violated(*name(at), at.process)


@reading("RP-18", FetchServed, ProduceAnswered, LeadershipStarted, LeadershipEnded)
def leader_serves(history: History) -> Iterator[Word]:
    """Produce and fetch sent to a broker that does not lead the partition get a not-leader
    error."""
    for at in history.of(FetchServed, ProduceAnswered):
        if isinstance(at.body, ProduceAnswered) and at.body.error != "NONE":
            continue
        turns = [
            one
            for one in before(history, at, LeadershipStarted, LeadershipEnded)
            if name(one) == name(at)
        ]
        if not turns:
            yield undecided(*name(at), at.process)
        elif isinstance(turns[0].body, LeadershipEnded):
            yield violated(*name(at), at.process)


@reading("RP-05", LogAppended, LogTruncated, HighWatermarkAdvanced, *GONE)
def same_messages(history: History) -> Iterator[Word]:
    """Up to the high watermark all replicas of a partition hold the same messages in the same
    order."""
    stored: dict[tuple[str, int], dict[str, dict[int, tuple[int, str]]]] = {}
    for at in history.of(LogAppended, LogTruncated):
        log = stored.setdefault(name(at), {}).setdefault(slot_of(at.process), {})
        if isinstance(at.body, LogTruncated):
            for base in [base for base in log if log[base][0] > at.body.to_offset]:
                del log[base]
        else:
            if at.body.base_offset != at.body.expected_base:
                yield violated(*name(at), at.process, at.body.base_offset)
            log[at.body.base_offset] = at.body.log_end, at.body.digest
    for (topic, partition), logs in stored.items():
        committed = max(
            (
                at.body.high_watermark
                for at in history.of(HighWatermarkAdvanced)
                if name(at) == (topic, partition)
            ),
            default=0,
        )
        for base in {base for log in logs.values() for base in log}:
            held = {log[base] for log in logs.values() if base in log and log[base][0] <= committed}
            if len({digest for _, digest in held}) > 1:
                # A replica that goes on behind may not have truncated yet.
                yield undecided(topic, partition, base)


@reading("RP-14", ReplicaStood, IsrPrepared)
def stands(history: History) -> Iterator[Word]:
    """A new leader comes from the ISR; others than the preferred one have waited
    PreferredReplicaTime."""
    won: dict[tuple[str, int, int], set[str]] = {}
    for at in history.of(ReplicaStood):
        body = at.body
        if body.won:
            if body.isr and body.broker_id not in body.isr:
                yield violated(*name(at), body.broker_id)
            won.setdefault((*name(at), body.leader_epoch), set()).add(at.process)
        if not body.preferred and body.waited_ms < body.preferred_ms:
            yield violated(*name(at), body.broker_id, "early")
    for key, processes in won.items():
        if len(processes) > 1:
            yield violated(*key)


@reading("RP-16", IsrPrepared, FetchServed, ProduceAnswered, LeadershipStarted)
def waits_for_replicas(history: History) -> Iterator[Word]:
    """A new leader waits until the live in-sync replicas have caught up or LeaderElectionWaitTime
    has passed."""
    for at in history.of(IsrPrepared):
        body = at.body
        there = all(one in body.isr for one in body.awaited)
        if not there and body.waited_ms < body.most_ms:
            yield violated(*name(at), at.process)
        if any(end < body.log_end for end in body.ends):
            yield violated(*name(at), at.process, "ends")
