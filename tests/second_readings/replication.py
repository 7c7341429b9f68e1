"""Second readings of the replication design: leaders, logs, high watermarks, ISRs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from fencepost.events.names import first_of, slot_of
from fencepost_kafka import (
    AdminCompleted,
    BrokerCommitted,
    FetchServed,
    FollowerFetched,
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
from second_readings.quorum import before, partitions, told_in_order
from second_readings.reading import NEVER, At, History, Word, reading, undecided, violated

GONE = (AdminCompleted, TopicCommitted, TopicMarked, LeadershipEnded, ReplicaRemoved)


def own_events(history: History) -> bool:
    """Whether nodes write their own events, so that what is not told was not done; of Apache Kafka
    they are made of the lines that it logs."""
    return history.plane not in ("kraft", "zookeeper")


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


@reading("RP-29", PartitionCommitted, BrokerCommitted)
def none_leads_alone(history: History) -> Iterator[Word]:
    """While no member of the ISR is live, the partition has no leader; but for an ISR that was
    never stored."""
    fenced: dict[int, tuple[int, bool]] = {}
    last: dict[tuple[str, int], PartitionCommitted] = {}
    for at in history.of(PartitionCommitted, BrokerCommitted):
        body = at.body
        if isinstance(body, BrokerCommitted):
            known = fenced.get(body.broker_id, (-1, True))
            fenced[body.broker_id] = max(known, (body.offset, body.fenced))
            continue
        was = last.get(name(at))
        if was is not None and body.offset <= was.offset:
            continue
        last[name(at)] = body
        out = all(fenced.get(member, (-1, False))[1] for member in body.isr)
        if was is None and body.leader >= 0 and out:
            yield undecided(*name(at), body.leader)  # whether it is new is not told
        if was is None or not was.isr or body.leader in (-1, was.leader):
            continue
        members = {*was.isr, *was.eligible}
        if all(fenced.get(member, (-1, False))[1] for member in members):
            yield (violated if history.plane == "quorum" else undecided)(*name(at), body.leader)
        elif body.leader not in {*members, *body.isr}:
            yield undecided(*name(at), body.leader)  # whether a member was live is not told
        elif any(fenced.get(member, (-1, False))[0] >= body.offset for member in members):
            yield undecided(*name(at), body.leader)  # it was unfenced no earlier


@reading(
    "RP-24", PartitionCommitted, LeadershipStarted, FollowerFetched, HighWatermarkAdvanced, *GONE
)
def one_leader_an_epoch(history: History) -> Iterator[Word]:
    """A partition has at most one leader in each leader epoch, and leader epochs only grow."""
    in_order = told_in_order(history, PartitionCommitted)
    for (topic, partition), records in partitions(history).items():
        word = violated if promised(history, topic) and in_order else undecided
        leaders: dict[int, set[int]] = {}
        for record in records:
            if record.leader >= 0:
                leaders.setdefault(record.leader_epoch, set()).add(record.leader)
        for epoch, ids in leaders.items():
            if len(ids) > 1:
                yield word(topic, partition, epoch)
        for one, other in pairwise(records):
            former = one.leader if one.leader >= 0 else other.leader
            began = other.leader >= 0 and other.leader != former
            if other.leader_epoch < one.leader_epoch + began:
                yield word(topic, partition, other.offset)
            elif one.leader < 0 <= other.leader and other.leader_epoch == one.leader_epoch:
                yield undecided(topic, partition, other.offset)  # who led in it before
    begun = {
        (topic, partition, record.leader_epoch)
        for (topic, partition), records in partitions(history).items()
        for record in records
    }
    for at in history.of(LeadershipStarted):
        given = {
            record.leader
            for record in partitions(history).get(name(at), ())
            if record.leader_epoch == at.body.leader_epoch and record.leader >= 0
        }
        if (*name(at), at.body.leader_epoch) not in begun:
            yield undecided(*name(at), at.body.leader_epoch)  # a record was not told
        elif given and not any(first_of(at.process).endswith(f"-{leader}") for leader in given):
            yield (violated if sure(history, at) else undecided)(*name(at), at.process)
    for at in history.of(LeadershipStarted):
        led = [
            one.body.leader_epoch
            for one in before(history, at, LeadershipStarted)
            if name(one) == name(at)
        ]
        if max(led, default=-1) > at.body.leader_epoch:
            yield undecided(*name(at), at.process)  # of a topic that was made again, or its word
    # Whoever only acts as a leader may have been told of a record that nobody else tells.
    for at in history.of(FollowerFetched, HighWatermarkAdvanced):
        acts = isinstance(at.body, FollowerFetched) or at.body.as_leader
        slots = {
            f"broker-{record.leader}"
            for record in partitions(history).get(name(at), ())
            if record.leader_epoch == at.body.leader_epoch
        }
        if acts and first_of(at.process) not in slots:
            yield undecided(*name(at), at.process)
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
            moved = not one.adding and set(one.replicas) != set(other.replicas)
            if moved and not set(other.replicas) <= set(one.isr):
                yield undecided(topic, partition, "moved")  # the record that began it is not told
            if one.adding and not other.adding and other.leader not in (-1, *other.replicas):
                yield violated(topic, partition, "leader")
            elif other.leader not in (-1, *other.replicas):
                yield undecided(topic, partition, "leader")  # it is told of no reassignment


@reading(
    "RP-04",
    ProduceAnswered,
    PartitionCommitted,
    LogTruncated,
    LogAppended,
    LeadershipStarted,
    FollowingStarted,
)
def acknowledged_by_all(history: History) -> Iterator[Word]:
    """A synchronous write is acknowledged only after every in-sync replica has it; an asynchronous
    one once the leader has."""
    for at in history.of(ProduceCompleted):
        if (at.body.outcome, at.body.acks) == ("ok", -1) and any(
            told_end(history, at, one) <= at.body.offset for one in stored_isr(history, at)
        ):
            yield undecided(*name(at), at.body.offset)  # by what that member told
    for at in history.of(ProduceAnswered):
        body = at.body
        if body.error != "NONE" or body.log_end < 0:
            continue
        own = [
            one.body.log_end
            for one in before(history, at, LogAppended, LeadershipStarted)
            if name(one) == name(at)
        ]
        # What it knows of a member that has just come back, or that it has not heard of (-1), may
        # be less than what was committed before.
        known = body.acks == -1 and any(0 <= end < body.log_end for end in body.ends)
        short = known and body.high_watermark < body.log_end
        stored = [
            one.body.log_end for one in before(history, at, LogAppended) if name(one) == name(at)
        ]
        end = max(body.log_end, body.base_offset + 1)
        if short or (own and own[0] < end):
            yield violated(*name(at), body.base_offset)
        elif stored and told_end(history, at, own_id(at.process)) < body.log_end:
            yield undecided(*name(at), body.base_offset)  # it had more when it began to lead
        elif known or (
            body.acks == -1
            and any(
                told_end(history, at, one) < body.log_end
                for one in (*body.isr, *stored_isr(history, at))
            )
        ):
            yield undecided(*name(at), body.base_offset)  # by what that member told


@reading(
    "RP-07",
    *(FetchServed, HighWatermarkAdvanced, Polled, LeadershipStarted, FollowingStarted, LogAppended),
    *GONE,
)
def below_watermark(history: History) -> Iterator[Word]:
    """Consumers read from the leader only, and only below the high watermark."""
    for at in history.of(FetchServed):
        if at.body.to_offset > at.body.high_watermark:
            yield violated(*name(at), at.body.to_offset)
            continue
        # The answer's own mark counts for nothing where replicas report theirs.
        told = [
            one
            for one in history.of(HighWatermarkAdvanced, LeadershipStarted, FollowingStarted)
            if name(one) == name(at) and one.place < at.place
        ]
        reports = any(isinstance(one.body, HighWatermarkAdvanced) for one in told)
        if reports and at.body.to_offset > max(one.body.high_watermark for one in told):
            certain = sure(history, at) and own_events(history)
            yield (violated if certain else undecided)(*name(at), at.body.to_offset)
    for at in history.of(Polled):
        known = [
            one.body.high_watermark
            for one in history.of(HighWatermarkAdvanced)
            if name(one) == name(at) and one.place < at.place
        ]
        if known and at.body.offsets and max(at.body.offsets) >= max(known):
            # Apache Kafka's nodes log a high watermark after they have answered by it.
            certain = sure(history, at) and own_events(history)
            yield (violated if certain else undecided)(*name(at), max(at.body.offsets))
        stored = {
            one.process: one.body.log_end
            for one in history.of(LogAppended, FollowingStarted, LeadershipStarted)
            if name(one) == name(at) and one.place < at.place
        }
        read = max(at.body.offsets, default=-1)
        if not own_events(history) and any(end <= read for end in stored.values()):
            yield undecided(*name(at), "stored")  # whether it was in the ISR, or told all


@reading("RP-27", HighWatermarkAdvanced, LogAppended)
def within_log(history: History) -> Iterator[Word]:
    """Followers never hold a high watermark above their own log end."""
    for at in history.of(HighWatermarkAdvanced):
        if at.body.high_watermark > at.body.log_end:
            yield violated(*name(at), at.process)
    for at in history.of(LogAppended):
        if not at.body.as_leader:
            own = [
                one.body.high_watermark
                for one in before(history, at, HighWatermarkAdvanced)
                if name(one) == name(at)
            ]
            led = [
                one.body.high_watermark
                for one in history.of(HighWatermarkAdvanced)
                if name(one) == name(at) and one.at_ns < at.at_ns - 1_000_000_000
            ]
            if max(led, default=0) > max(own, default=0):
                yield undecided(*name(at), at.process)  # it has not learned it for a second


@reading("RP-32", HighWatermarkAdvanced, PartitionCommitted, LogAppended, LogTruncated)
def stored_isr_counts(history: History) -> Iterator[Word]:
    """A shrunk ISR counts for commits only once it is stored."""
    for at in history.of(HighWatermarkAdvanced):
        if not at.body.as_leader:
            continue
        counted = set(at.body.counted)
        earlier = [
            set(one.body.isr)
            for one in history.of(PartitionCommitted)
            if name(one) == name(at) and one.place < at.place
        ]
        stored = [
            set(one.body.isr) for one in history.of(PartitionCommitted) if name(one) == name(at)
        ]
        if not set(at.body.isr) <= counted:
            yield violated(*name(at), at.process)
        elif any(stored) and not any(isr <= counted for isr in stored if isr):
            told = bool(counted)  # other nodes do not say over whom they count
            yield (violated if told else undecided)(*name(at), at.process, "never stored")
        elif any(earlier) and not any(isr <= counted for isr in earlier if isr):
            yield undecided(*name(at), at.process, "stored later")
        elif any(earlier) and not stored_isr(history, at) <= counted:
            # A larger one may be told before its leader tells what it committed.
            yield undecided(*name(at), at.process, "larger by now")
        elif at.body.high_watermark > 0 and not followers_have(history, at):
            yield undecided(*name(at), at.process)  # what followers stored was not told


def own_id(process: str) -> int:
    """The id of a broker, by the name of its slot, such as broker-2."""
    return int(first_of(process).rpartition("-")[2])


def told_end(history: History, at: At, member: int) -> int:
    """How far a member's log of the partition reached before an event, by what it told to have
    stored and dropped, without gaps. Where it says that it begins with more, some was not told;
    with less, that it dropped the rest."""
    end = 0
    for one in history.of(LogAppended, LogTruncated, FollowingStarted, LeadershipStarted):
        theirs = name(one) == name(at) and first_of(one.process).endswith(f"-{member}")
        if not theirs or one.place >= at.place:
            continue
        if isinstance(one.body, LogTruncated):
            end = min(end, one.body.to_offset)
        elif not isinstance(one.body, LogAppended):
            end = min(end, one.body.log_end)
        elif one.body.base_offset <= end:
            end = one.body.log_end
    return end


def began(history: History, at: At) -> int:
    """Where a replica's log ended by its newest word before an event, of whatever kind."""
    own = [
        one.body.to_offset if isinstance(one.body, LogTruncated) else one.body.log_end
        for one in before(history, at, *STORES)
        if name(one) == name(at)
    ]
    return own[0] if own else at.body.base_offset


def stored_isr(history: History, at: At) -> set[int]:
    """The newest ISR that a record told before an event, and after it: which of them was stored by
    then, is not told. And that which others had told before: its own word is no proof."""
    told = [one for one in history.of(PartitionCommitted) if name(one) == name(at)]
    earlier = [one for one in told if one.place < at.place]
    by_others = [one for one in earlier if one.process != at.process]
    found: set[int] = set()
    for those in ([one.body for one in words] for words in (earlier, told, by_others)):
        newest = max(those, key=lambda body: body.offset, default=None)
        found |= set(newest.isr) if newest is not None else set()
    return found


def followers_have(history: History, at: At) -> bool:
    """Whether each follower that a leader counted has told that it stored as much."""
    for member in set(at.body.counted):
        end = told_end(history, at, member)
        if end < at.body.high_watermark:
            return False
    return True


def unproven(history: History, record: PartitionCommitted) -> Iterator[Word]:
    """Whether a member of a new ISR has not told that it has what is committed."""
    told = next(at for at in history.of(PartitionCommitted) if at.body is record)
    marks = [
        one.body.high_watermark
        for one in history.of(HighWatermarkAdvanced)
        if name(one) == name(told) and one.place < told.place
    ]
    asked = any(
        name(one) == name(told)
        and set(one.body.new_isr) == set(record.isr)
        and one.body.leader_epoch >= record.leader_epoch - 1
        and one.place < told.place
        for one in history.of(IsrChangeAsked)
    )
    most = max(marks, default=0)
    if not asked or any(told_end(history, told, member) < most for member in record.isr):
        yield undecided(*name(told), record.offset)


def other_processes(
    history: History, one: PartitionCommitted, other: PartitionCommitted
) -> Iterator[Word]:
    """Members whose place a record keeps, or gives to a process that no leader counted, though
    another process of the broker had registered: one of its records may have been told wrongly."""
    for member in other.isr:
        lives = sorted(
            (at.body.offset, at.body.incarnation)
            for at in history.of(BrokerCommitted)
            if at.body.broker_id == member and at.body.offset < other.offset
        )
        news = [then for before, then in pairwise(lives) if before[1] != then[1]]
        fetched = [
            at.body.broker_epoch for at in history.of(FollowerFetched) if at.body.follower == member
        ]
        begin = news[-1][0] if news else -1
        counted = max(fetched, default=begin)
        if (begin > one.offset) if member in one.isr else (counted < begin):
            yield undecided(other.topic, other.partition, member, begin)


@reading(
    *("RP-10", IsrChangeAsked, PartitionCommitted, HighWatermarkAdvanced, LogAppended),
    *(LogTruncated, BrokerCommitted, FollowerFetched),
)
def enters_caught_up(history: History) -> Iterator[Word]:
    """A follower enters the ISR only when it has reached the leader's high watermark and the start
    of the leader's epoch."""
    for records in partitions(history).values():
        for one, other in pairwise(records):
            yield from other_processes(history, one, other)
            if set(other.isr) - set(one.isr):
                yield from unproven(history, other)
    for at in history.of(IsrChangeAsked):
        body = at.body
        for member, end in zip(body.new_isr, body.ends, strict=False):
            needed = max(body.high_watermark, body.epoch_start)
            if member in body.old_isr:
                continue
            if 0 <= end < needed:  # -1: it is not told
                yield violated(*name(at), member)
            elif told_end(history, at, member) < needed:
                yield undecided(*name(at), member)
            stored = [
                one
                for one in history.of(LogAppended)
                if name(one) == name(at)
                and one.place < at.place
                and first_of(one.process).endswith(f"-{member}")
            ]
            counted = [
                one.body.client
                for one in history.of(FollowerFetched)
                if name(one) == name(at) and one.place < at.place and one.body.follower == member
            ]
            if stored and stored[-1].body.log_end < needed:
                # Of another process than the one that was counted, its leader may not have heard.
                same = not counted or counted[-1] == stored[-1].process
                yield (violated if same else undecided)(*name(at), member, "by its own log")
            elif not stored and needed > 0:
                yield undecided(*name(at), member)


STORES = (LogAppended, LogTruncated, FollowingStarted, LeadershipStarted)


def short_candidates(history: History) -> Iterator[Word]:
    """Who may lead and, by its own last word, lacks what is committed: a word may be missing."""
    records: dict[tuple[str, int], PartitionCommitted] = {}
    marks: dict[tuple[str, int], int] = {}
    ends: dict[tuple[str, int, str], int] = {}
    for at in history.of(PartitionCommitted, HighWatermarkAdvanced, *STORES):
        body, place = at.body, name(at)
        if isinstance(body, PartitionCommitted):
            if place not in records or body.offset > records[place].offset:
                records[place] = body
        elif isinstance(body, HighWatermarkAdvanced):
            marks[place] = max(marks.get(place, 0), body.high_watermark if body.as_leader else 0)
        else:
            end = body.to_offset if isinstance(body, LogTruncated) else body.log_end
            ends[(*place, slot_of(at.process))] = end
        record = records.get(place)
        for broker in (*record.isr, *record.eligible) if record else ():
            committed = marks.get(place, 0)
            if ends.get((*place, f"broker-{broker}"), committed) < committed:
                yield undecided(*place, broker)


@reading("RP-06", PartitionCommitted, LeadershipStarted, HighWatermarkAdvanced, *STORES[:3], *GONE)
def committed_stays(history: History) -> Iterator[Word]:
    """A committed message is never lost while one replica of its ISR stays up: a new leader has
    all below the high watermark, and is of the ISR."""
    yield from short_candidates(history)
    for (topic, partition), records in partitions(history).items():
        certain = promised(history, topic) and told_in_order(history, PartitionCommitted)
        for one, other in pairwise(records):
            members = {*one.isr, *one.eligible}
            if other.leader not in (-1, one.leader, *members) and members and not other.skipped:
                # If it is a member by the same record, one that let it in may not have been told.
                sure_of_it = certain and other.leader not in other.isr
                yield (violated if sure_of_it else undecided)(topic, partition, other.leader)
        for record in records:
            if record.leader not in (-1, *record.isr, *record.eligible) and record.isr:
                yield (violated if certain else undecided)(topic, partition, record.leader)
    for at in history.of(LeadershipStarted):
        for one in history.of(FollowingStarted, LeadershipStarted):
            same = name(one) == name(at) and one.place < at.place
            if same and lacks(history, at, one.body.high_watermark):
                yield undecided(*name(at), at.process)  # what it had is told as it begins only
        for one in history.of(HighWatermarkAdvanced):
            earlier = one.body.leader_epoch < at.body.leader_epoch
            same = name(one) == name(at) and one.place < at.place
            if same and lacks(history, at, one.body.high_watermark):
                # Of its own epoch, it may have been told before it began.
                certain = sure(history, at) and earlier
                yield (violated if certain else undecided)(*name(at), at.process)


def lacks(history: History, leader: At, committed: int) -> bool:
    """Whether the log of a new leader ends before what was committed, or begins behind the start
    of it, by the log of a leader before."""
    starts = [
        at.body.log_start
        for at in history.of(LeadershipStarted)
        if name(at) == name(leader) and at.place < leader.place and at.body.log_start >= 0
    ]
    first = min(starts, default=committed)
    return committed > leader.body.log_end or first < min(leader.body.log_start, committed)


@reading("RP-13", LeadershipStarted, ProduceAnswered, ProduceCompleted, ProduceInvoked, *GONE)
def leader_has_it(history: History) -> Iterator[Word]:
    """Leader failure after the answer: the new leader has the message."""
    for at in history.of(LeadershipStarted):
        answered = [
            ack.body
            for ack in history.of(ProduceAnswered)
            if name(ack) == name(at) and ack.place < at.place
        ]
        for body in answered:
            behind = 0 <= body.base_offset < at.body.log_start
            if (body.error, body.acks) == ("NONE", -1) and (
                behind or body.log_end > at.body.log_end
            ):
                yield undecided(*name(at), body.base_offset)  # whether a client ever got it
        for ack in history.of(ProduceCompleted):
            body = ack.body
            if (
                name(ack) == name(at)
                and ack.place < at.place
                and (body.outcome, body.acks) == ("ok", -1)
                and body.offset >= 0
                and not at.body.log_start <= body.offset < at.body.log_end
            ):
                # A leader of an older epoch than that of another one may begin late.
                epochs = [
                    one.body.leader_epoch
                    for one in history.of(LeadershipStarted)
                    if name(one) == name(at) and one.place < at.place
                ]
                certain = sure(history, at) and at.body.leader_epoch > max(epochs, default=-1)
                yield (violated if certain else undecided)(*name(at), body.offset)


@reading(
    "RP-08", ReplicaCheckpointed, HighWatermarkAdvanced, LeadershipStarted, FollowingStarted, *GONE
)
def restored_watermark(history: History) -> Iterator[Word]:
    """After a restart a replica's high watermark is the smaller of the checkpoint and the log end
    offset."""
    seen: set[tuple[str, str, int]] = set()
    for at in history.of(LeadershipStarted, FollowingStarted):
        key = (at.process, *name(at))
        if key in seen:
            continue
        seen.add(key)
        if 0 <= at.body.log_end < at.body.high_watermark:
            yield violated(*key)
        stored = [
            one
            for one in history.of(ReplicaCheckpointed)
            if slot_of(one.process) == slot_of(at.process)
            and name(one) == name(at)
            and one.place < at.place
        ]
        if not stored:
            if at.body.high_watermark > 0:
                yield undecided(*key)  # it had no checkpoint that anybody told
            elif at.body.high_watermark < 0:  # in other nodes' logs: it is not told
                yield (violated if own_events(history) else undecided)(*key)
            continue
        most = min(stored[-1].body.high_watermark, at.body.log_end)
        if at.body.high_watermark < most:
            yield undecided(*key)  # it may have ended before it had stored that
        reported = [
            one.body.high_watermark
            for one in history.of(HighWatermarkAdvanced)
            if slot_of(one.process) == slot_of(at.process)
            and name(one) == name(at)
            and one.place < at.place
        ]
        if at.body.high_watermark > max(reported, default=0):
            yield undecided(*key)
        if isinstance(at.body, FollowingStarted) and at.body.high_watermark > most:
            # What a killed process checkpointed last, it may not have told; but how far it was.
            told = [
                one.body.high_watermark
                for one in history.of(HighWatermarkAdvanced)
                if slot_of(one.process) == slot_of(at.process) and name(one) == name(at)
            ]
            certain = sure(history, at) and at.body.high_watermark > max(told, default=0)
            yield (violated if certain else undecided)(*key)


@reading("RP-15", LogAppended, LogTruncated, HighWatermarkAdvanced, *GONE)
def truncates_to_confirmed(history: History) -> Iterator[Word]:
    """A follower truncates to what the new leader's log confirms, and drops nothing that is
    committed."""
    batches: dict[tuple[str, int, int], set[str]] = {}
    for at in history.of(LogAppended):
        batches.setdefault((*name(at), at.body.base_offset), set()).add(at.body.digest)
    for key, digests in batches.items():
        if len(digests) > 1:
            yield undecided(*key)  # whether each was dropped in time, RP-05 judges as well
    for at in history.of(LogTruncated):
        body = at.body
        if body.reason == "recovery":
            continue
        if body.reason == "leader_epoch" and body.to_offset < body.high_watermark:
            yield (violated if sure(history, at) else undecided)(*name(at), at.process)
        kept = {
            (one.body.base_offset, one.body.digest)
            for one in history.of(LogAppended)
            if one.body.base_offset >= body.to_offset
            and name(one) == name(at)
            and slot_of(one.process) != slot_of(at.process)
        }
        if any(
            (one.body.base_offset, one.body.digest) in kept
            for one in before(history, at, LogAppended)
            if name(one) == name(at)
        ):
            yield undecided(*name(at), at.process)  # whether its leader had it then
        for mark in history.of(HighWatermarkAdvanced):
            if name(mark) != name(at) or mark.place > at.place or not mark.body.as_leader:
                continue
            held = {
                one.body.base_offset: (one.body.log_end, one.body.digest)
                for one in history.of(LogAppended)
                if one.process == mark.process
                and slot_of(one.process) != slot_of(at.process)
                and name(one) == name(at)
                and one.place < mark.place
            }
            committed = {
                (base, digest)
                for base, (end, digest) in held.items()
                if end <= mark.body.high_watermark
            }
            dropped = {
                (one.body.base_offset, one.body.digest)
                for one in history.of(LogAppended)
                if slot_of(one.process) == slot_of(at.process)
                and name(one) == name(at)
                and one.place < at.place
                and one.body.base_offset >= body.to_offset
            }
            if committed & dropped:
                yield (violated if sure(history, at) else undecided)(*name(at), at.process)
                break


@reading("RP-26", LogTruncated, ReplicaCheckpointed, FollowingStarted, LeadershipStarted)
def flushed_stays(history: History) -> Iterator[Word]:
    """Data before the flushed offset survives the loss of the page cache."""
    for at in history.of(FollowingStarted, LeadershipStarted):
        stored = [
            one.body.flushed
            for one in history.of(ReplicaCheckpointed)
            if slot_of(one.process) == slot_of(at.process)
            and name(one) == name(at)
            and one.place < at.place
        ]
        if stored and at.body.log_end < stored[-1]:
            yield undecided(*name(at), at.process)  # it may have truncated to a leader's log
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


@reading(
    *("RP-18", FetchServed, LogAppended, LeadershipStarted, LeadershipEnded, FollowingStarted),
)
def leader_serves(history: History) -> Iterator[Word]:
    """Produce and fetch sent to a broker that does not lead the partition get a not-leader error
    and have no effect."""
    for at in history.of(FetchServed, LogAppended):
        if isinstance(at.body, LogAppended) and not at.body.as_leader:
            continue
        turns = [
            one
            for one in before(history, at, LeadershipStarted, LeadershipEnded, FollowingStarted)
            if name(one) == name(at)
        ]
        if turns and isinstance(turns[0].body, FollowingStarted):
            # It follows, and has not said that it stopped leading.
            new = isinstance(at.body, LogAppended) and at.at_ns - turns[0].at_ns > 1_000_000_000
            yield (violated if new and own_events(history) else undecided)(*name(at), at.process)
        elif not turns or isinstance(turns[0].body, LeadershipEnded):
            yield violated(*name(at), at.process)


@reading(
    *("RP-31", ProduceAnswered, LeadershipStarted, LeadershipEnded, HighWatermarkAdvanced),
    *(LogAppended, FollowingStarted),
)
def never_as_committed(history: History) -> Iterator[Word]:
    """A leader that steps down answers every produce still in its commit queue, never as
    committed."""
    answered = {history.events[at.place].cause for at in history.of(ProduceAnswered)}
    for at in history.of(LogAppended):
        cause = history.events[at.place].cause
        if not at.body.as_leader or cause is None or not cause.request or cause in answered:
            continue
        ended = [
            one.at_ns
            for one in history.of(LeadershipEnded, FollowingStarted)
            if one.process == at.process and name(one) == name(at) and one.place > at.place
        ]
        later = [one.at_ns for one in history.of(LogAppended) if one.process == at.process]
        if ended:
            # A process that goes on for so long had time to answer.
            alive = max(later) > min(ended) + 10_000_000_000
            yield (violated if alive else undecided)(*name(at), at.body.base_offset, "unanswered")
    for at in history.of(ProduceAnswered):
        body = at.body
        if body.error != "NONE" or body.acks != -1:
            continue
        turns = [
            one
            for one in before(history, at, LeadershipStarted, LeadershipEnded)
            if name(one) == name(at)
        ]
        marks = [
            one.body.high_watermark
            for one in before(history, at, HighWatermarkAdvanced, LeadershipStarted)
            if name(one) == name(at)
        ]
        if turns and isinstance(turns[0].body, LeadershipEnded):
            # What was committed before is not in the queue any more.
            mark = min(max(marks, default=NEVER), body.high_watermark)
            yield (undecided if body.log_end <= mark else violated)(*name(at), at.process)
        if marks and max(marks) <= body.base_offset:
            yield undecided(*name(at), at.process)  # whether it had stepped down, and told nothing


@reading(
    *("RP-05", LogAppended, LogTruncated, HighWatermarkAdvanced, FollowingStarted),
    *(LeadershipStarted, *GONE),
)
def same_messages(history: History) -> Iterator[Word]:
    """Up to the high watermark all replicas of a partition hold the same messages in the same
    order."""
    for at in history.of(FollowingStarted, LeadershipStarted):
        if at.body.log_end != told_end(history, at, own_id(at.process)):
            yield undecided(*name(at), at.process)  # some that it stored or dropped was not told
    stored: dict[tuple[str, int], dict[str, dict[int, tuple[int, str]]]] = {}
    for at in history.of(LogAppended, LogTruncated):
        log = stored.setdefault(name(at), {}).setdefault(slot_of(at.process), {})
        if isinstance(at.body, LogTruncated):
            for base in [base for base in log if log[base][0] > at.body.to_offset]:
                del log[base]
        else:
            ends = [end for end, _ in log.values()]
            if at.body.base_offset != at.body.expected_base:
                yield violated(*name(at), at.process, at.body.base_offset)
            elif at.body.base_offset not in (*([max(ends)] if ends else []), began(history, at)):
                yield undecided(*name(at), at.process)  # what it had, or dropped, was not told
            elif not ends and at.body.base_offset != told_end(history, at, own_id(at.process)):
                yield undecided(*name(at), at.process)  # where its log ended, or what it stored
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


@reading("RP-14", ReplicaStood, IsrPrepared, LeadershipStarted, FetchServed, ProduceAnswered)
def stands(history: History) -> Iterator[Word]:
    """A new leader comes from the ISR; others than the preferred one have waited
    PreferredReplicaTime. It takes its log end offset as high watermark."""
    for at in history.of(FetchServed, ProduceAnswered):
        began = next(
            (one.body for one in before(history, at, LeadershipStarted) if name(one) == name(at)),
            None,
        )
        if began is not None and 0 <= at.body.high_watermark < began.log_end:
            same = began.leader_epoch == at.body.leader_epoch
            yield (violated if same else undecided)(*name(at), at.process, "high watermark")
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
    for at in history.of(LeadershipStarted) if history.plane == "classic" else ():
        stored = before(history, at, IsrPrepared)
        if not any(
            name(one) == name(at) and one.body.leader_epoch == at.body.leader_epoch
            for one in stored
        ):
            yield violated(*name(at), at.process, "not stored")
