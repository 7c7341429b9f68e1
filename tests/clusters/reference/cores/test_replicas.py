"""The replicas of a broker: which it has, what is on its disk, and its checkpoints."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from quorum_bench import TOPIC

from fencepost_clusters.reference.core.cluster.image import Image
from fencepost_clusters.reference.core.log.entry import entry
from fencepost_clusters.reference.core.node import settings
from fencepost_clusters.reference.core.node.effects import (
    EXIT_UNREADABLE,
    Append,
    Checkpoint,
    Delete,
    Effect,
    Exit,
    Instant,
    Note,
    Recovered,
    Sync,
)
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.replication.policies import ReplicationPolicies
from fencepost_clusters.reference.core.replication.replica import Replica, log_name
from fencepost_clusters.reference.core.replication.replicas import Replicas
from fencepost_clusters.reference.core.replication.roles import ADOPTED, Contact, Part
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire import records as r
from fencepost_kafka import (
    FollowingStarted,
    HighWatermarkAdvanced,
    LeadershipEnded,
    LeadershipStarted,
    LogTruncated,
    ReplicaCheckpointed,
    ReplicaRemoved,
)

KEY = (TOPIC, 0)
NAME = log_name("orders", KEY)
STRAY = log_name("gone", (uuid.UUID(int=3), 7))
BATCH = record_batch.build([b"x"], 0, 0, 1)
LOG = (entry(record_batch.parse(BATCH)),)
START = Instant(0, 0)
PROPERTIES = {
    "process.roles": "broker",
    "broker.id": "1",
    "controller.connect": "101@controller-1:9093",
    "replica.high.watermark.checkpoint.interval.ms": "5000",
}


def partition(
    leader: int = 1, epoch: int = 0, replicas: tuple[int, ...] = (1,)
) -> r.PartitionRecord:
    return r.PartitionRecord(
        partition_id=0,
        topic_id=TOPIC,
        replicas=replicas,
        isr=replicas,
        leader=leader,
        leader_epoch=epoch,
    )


class Bench:
    """Broker 1 has these logs on its disk, and leads a partition alone once that is adopted."""

    def __init__(
        self, recovered: Recovered | None = None, policies: ReplicationPolicies | None = None
    ) -> None:
        self.out = Outbox()
        isr_requests: Any = SimpleNamespace(can_ask=lambda: False)
        self.replicas = Replicas(
            settings.read(PROPERTIES), isr_requests, policies or ReplicationPolicies(), self.out
        )
        self.replicas.recovered(recovered or Recovered({}, {}))
        self.image = Image()
        self.image.replay(r.TopicRecord(name="orders", topic_id=TOPIC), 1)
        self.image.replay(partition(), 2)

    @property
    def one(self) -> Replica:
        return self.replicas.by_key[KEY]

    def adopts(self, *records: r.Record) -> tuple[Effect, ...]:
        """The metadata change, and the broker adopts them; returns the effects."""
        for one in records:
            self.image.replay(one, self.image.offset)
        self.replicas.adopt(self.image, [KEY], START)
        return self.out.drain()

    def at(self, seconds: int) -> tuple[Effect, ...]:
        """A Tick; returns the effects."""
        self.replicas.tick(self.image, Instant(seconds * 1_000_000_000, 0))
        return self.out.drain()


def of(effects: tuple[Effect, ...], kind: type) -> list[Any]:
    """The effects, or the events, of a kind."""
    bodies = [one.body if isinstance(one, Note) else one for one in effects]
    return [one for one in bodies if isinstance(one, kind)]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (r.DeleteTopicRecord(name=TOPIC), "deleted"),
        (partition(leader=2, epoch=1, replicas=(2,)), "unassigned"),
    ],
)
def test_a_replica_is_removed_with_its_log_for_the_reason_that_is_recorded(
    change: r.Record, reason: str
) -> None:
    """RP-25."""
    bench = Bench()
    bench.adopts()
    done = bench.adopts(change)
    assert of(done, Delete) == [Delete(NAME)]
    (removed,) = of(done, ReplicaRemoved)
    assert (removed.topic, removed.partition, removed.reason) == ("orders", 0, reason)
    assert [one.reason for one in of(done, LeadershipEnded)] == [reason]
    assert (bench.replicas.by_key, bench.replicas.all()) == ({}, ())
    assert bench.adopts() == (), "it is removed once"


def test_a_stray_log_is_removed_once() -> None:
    """RP-25: a topic of its name may have been created meanwhile."""
    bench = Bench(Recovered({NAME: LOG, STRAY: LOG}, {}))
    for strays in ([STRAY], []):
        bench.replicas.delete_strays(bench.image)
        done = bench.out.drain()
        assert of(done, Delete) == [Delete(name) for name in strays]
        assert [one.reason for one in of(done, ReplicaRemoved)] == ["stray"] * len(strays)


def test_a_log_that_a_replica_has_opened_is_no_stray() -> None:
    bench = Bench(Recovered({NAME: LOG}, {}))
    bench.adopts()
    bench.replicas.delete_unopened({NAME, STRAY})
    assert bench.out.drain() == ()


@pytest.mark.parametrize(("epoch", "ends"), [(6, True), (7, False)])
def test_a_leader_whose_log_is_of_later_epochs_than_its_own_ends_with_a_sentence(
    epoch: int, ends: bool
) -> None:
    """The controllers lost the metadata: the broker cannot know which messages are right."""
    later = record_batch.build([b"x"], 0, 7, 1)
    bench = Bench(Recovered({NAME: (entry(record_batch.parse(later)),)}, {}))
    bench.adopts(partition(epoch=epoch))
    bench.one.append(record_batch.parse(BATCH), BATCH)
    done = bench.out.drain()
    assert (of(done, Append) == []) is ends
    assert [one.code for one in of(done, Exit)] == [EXIT_UNREADABLE] * ends
    for one in of(done, Exit):
        assert "orders-0 has messages of leader epoch 7, but is in epoch 6 by" in one.reason


@pytest.mark.parametrize(("checkpoint", "high_watermark"), [(0, 0), (1, 1), (9, 1)])
def test_a_replica_goes_on_with_its_log_and_its_high_watermark_up_to_the_end(
    checkpoint: int, high_watermark: int
) -> None:
    """RP-08."""
    bench = Bench(Recovered({NAME: LOG}, {NAME: checkpoint}))
    bench.adopts(partition(leader=-1))
    one = bench.replicas.by_key[KEY]
    assert (one.log.end, one.high_watermark) == (1, high_watermark)


def test_a_topic_that_is_created_again_does_not_go_on_with_the_log_of_the_former_one() -> None:
    bench = Bench(Recovered({NAME: LOG}, {}))
    bench.adopts()
    (former,) = bench.replicas.all()
    assert former.log.end == 1
    bench.adopts(r.DeleteTopicRecord(name=TOPIC))
    bench.adopts(r.TopicRecord(name="orders", topic_id=TOPIC), partition())
    (one,) = bench.replicas.all()
    assert one is bench.replicas.get(TOPIC, 0)
    assert one.log.end == 0


def test_each_change_of_a_leader_or_follower_has_a_version_of_its_own() -> None:
    """What is derived from an older one must not be taken for a newer one."""
    bench = Bench()
    seen = [bench.replicas.version]
    for change in (
        lambda: bench.replicas.adopt(bench.image, [KEY], START),
        lambda: bench.replicas.retire_all("taken_over"),
        lambda: bench.replicas.adopt(bench.image, [KEY], START),
        lambda: bench.replicas.remove(KEY, "deleted"),
    ):
        change()
        seen.append(bench.replicas.version)
    assert seen == sorted(set(seen))


def test_a_broker_stores_its_high_watermarks_at_intervals_and_syncs_its_logs_before() -> None:
    """RP-08, RP-26."""
    bench = Bench(Recovered({NAME: LOG}, {}))
    assert bench.replicas.deadline_ns() is None, "nothing to store"
    assert bench.at(0) == ()
    bench.adopts()
    assert of(bench.at(0), Sync | Checkpoint) == [Sync(NAME), Checkpoint({NAME: 1}, {NAME: 1})]
    assert bench.replicas.deadline_ns() == 5 * 1_000_000_000
    assert bench.at(4) == ()
    done = bench.at(5)
    assert of(done, Sync | Checkpoint) == [Checkpoint({NAME: 1}, {NAME: 1})]
    assert of(done, ReplicaCheckpointed) == [], "the same as before"
    bench.replicas.by_key[KEY].append(record_batch.parse(BATCH), BATCH)
    bench.out.drain()
    done = bench.at(10)
    assert of(done, Sync | Checkpoint) == [Sync(NAME), Checkpoint({NAME: 1}, {NAME: 2})]
    (event,) = of(done, ReplicaCheckpointed)
    assert (event.high_watermark, event.flushed) == (1, 2)


def test_a_log_that_no_replica_has_opened_keeps_its_checkpoint() -> None:
    """RP-08: without a leader a broker does not open it, and may end again before there is one."""
    bench = Bench(Recovered({NAME: LOG, "audit-0-x": LOG}, {"audit-0-x": 1, "gone-0-x": 1}))
    bench.adopts()
    (stored,) = of(bench.at(0), Checkpoint)
    assert stored.high_watermarks == {NAME: 1, "audit-0-x": 1}


# ------------------------------------------------------------------------------------------- roles


def roles(effects: tuple[Effect, ...]) -> list[tuple[str, int]]:
    """The changes of role in the effects, each with its leader epoch."""
    kinds = LeadershipStarted | LeadershipEnded | FollowingStarted
    return [(type(one).__name__, one.leader_epoch) for one in of(effects, kinds)]


def test_a_replica_takes_the_part_that_the_metadata_give_it() -> None:
    """Each change is recorded once, in the leader epoch in which it began or ended."""
    bench, both = Bench(), (1, 2, 0)
    assert roles(bench.adopts()) == [("LeadershipStarted", 0)]
    assert roles(bench.adopts()) == [], "no change"
    led = bench.adopts(partition(leader=1, epoch=1, replicas=both))
    assert roles(led) == [("LeadershipStarted", 1)]
    left = bench.adopts(partition(leader=2, epoch=2, replicas=both))
    assert roles(left) == [("FollowingStarted", 2), ("LeadershipEnded", 1)]
    assert [one.reason for one in of(left, LeadershipEnded)] == ["metadata"]
    assert roles(bench.adopts(partition(leader=2, epoch=2, replicas=(1, 2)))) == []
    for leader in (2, 0):
        epoch = 5 - leader
        followed = bench.adopts(partition(leader=leader, epoch=epoch, replicas=both))
        assert roles(followed) == [("FollowingStarted", epoch)]
        assert [one.leader for one in of(followed, FollowingStarted)] == [leader]
        assert bench.one.part is Part.FOLLOWER
    assert roles(bench.adopts(partition(leader=-1, epoch=6, replicas=both))) == []
    assert bench.one.part is Part.IDLE
    assert roles(bench.adopts(partition(leader=2, epoch=6, replicas=both))) != []


def test_a_leader_begins_with_its_log_and_without_knowledge_of_its_followers() -> None:
    """RP-10: `epoch_start` is what a replica needs before it may join the ISR."""
    bench = Bench(Recovered({NAME: LOG}, {}))
    (started,) = of(bench.adopts(partition(replicas=(1, 2))), LeadershipStarted)
    assert (started.log_start, started.log_end, started.high_watermark) == (0, 1, 0)
    assert started.isr == (1, 2)
    assert bench.one.epoch_start == 1
    bench.one.fetched(
        2, client="broker-2#1", broker_epoch=5, offset=1, contact=Contact(), now=START
    )
    assert (bench.one.end_of(2), bench.one.high_watermark) == (1, 1)
    bench.adopts(partition(leader=2, epoch=1, replicas=(1, 2)))
    bench.adopts(partition(leader=1, epoch=2, replicas=(1, 2)))
    assert bench.one.end_of(2) == -1


def test_a_leader_knows_a_replica_that_is_added_while_it_leads() -> None:
    """As by a reassignment; and it goes on with those that it knows."""
    bench = Bench()
    bench.adopts(partition(replicas=(1, 2)))
    known = bench.one.followers[2]
    bench.adopts(partition(replicas=(1, 2, 3)))
    assert list(bench.one.followers) == [2, 3]
    assert bench.one.followers[2] is known


def test_a_leader_that_prepares_serves_followers_only() -> None:
    """It stores an ISR of its own first."""
    bench = Bench()
    bench.adopts(partition(leader=2, epoch=1, replicas=(1, 2)))
    led = replace(bench.one.partition, leader=1, leader_epoch=2, preparing=True)
    for _ in range(2):
        bench.one.adopt(led, START)
        assert (bench.one.leading, bench.one.serves_followers) == (False, True)
    assert roles(bench.out.drain()) == []
    bench.one.adopt(replace(led, preparing=False), START)
    assert bench.one.leading
    assert roles(bench.out.drain()) == [("LeadershipStarted", 2)]


def test_a_replica_that_stops_is_looked_at_by_the_requests_that_wait_for_it() -> None:
    bench = Bench()
    bench.adopts()
    bench.replicas.changed.clear()
    bench.replicas.retire_all("shutdown")
    assert bench.replicas.changed == {KEY: ADOPTED}


def test_a_follower_keeps_of_its_log_what_the_policy_says() -> None:
    """A defect replaces it."""
    policies = ReplicationPolicies(kept_when_following=lambda high_watermark, end: high_watermark)
    bench = Bench(Recovered({NAME: LOG}, {}), policies)
    done = bench.adopts(partition(leader=2, epoch=1, replicas=(1, 2)))
    assert [one.reason for one in of(done, LogTruncated)] == ["high_watermark"]
    assert bench.one.log.end == 0


@pytest.mark.parametrize("counts", [False, True], ids=["healthy", "replaced"])
def test_an_isr_that_is_only_wanted_counts_if_the_policy_says_so(counts: bool) -> None:
    """RP-32. A defect replaces the policy."""
    policies = ReplicationPolicies()
    if counts:
        policies = ReplicationPolicies(
            counted_replicas=lambda stored, adding, proposed: tuple(proposed or stored)
        )
    bench = Bench(Recovered({NAME: LOG}, {}), policies)
    bench.adopts(partition(replicas=(1, 2)))
    bench.at(60)
    assert bench.one.proposed == (1,)
    assert bench.one.high_watermark == counts


def test_a_high_watermark_that_stays_is_not_recorded_again() -> None:
    bench = Bench(Recovered({NAME: LOG}, {}))
    (advanced,) = of(bench.adopts(), HighWatermarkAdvanced)
    assert (advanced.high_watermark, advanced.as_leader) == (1, True)
    assert (advanced.isr, advanced.counted) == ((1,), (1,))
    bench.one.advance()
    assert bench.out.drain() == ()
