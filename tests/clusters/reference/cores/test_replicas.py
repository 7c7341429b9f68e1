"""The replicas of a broker: which it has, what is on its disk, and its checkpoints."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from quorum_bench import TOPIC

from fencepost_clusters.reference.core.cluster.image import Image
from fencepost_clusters.reference.core.log.entry import entry
from fencepost_clusters.reference.core.node import settings
from fencepost_clusters.reference.core.node.effects import (
    Checkpoint,
    Delete,
    Effect,
    Instant,
    Note,
    Outbox,
    Recovered,
    Sync,
)
from fencepost_clusters.reference.core.replication.policies import ReplicationPolicies
from fencepost_clusters.reference.core.replication.replica import log_name
from fencepost_clusters.reference.core.replication.replicas import Replicas
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire import records as r
from fencepost_kafka import LeadershipEnded, ReplicaCheckpointed, ReplicaRemoved

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

    def __init__(self, recovered: Recovered | None = None) -> None:
        self.out = Outbox()
        isr_requests: Any = SimpleNamespace(can_ask=lambda: False)
        self.replicas = Replicas(
            settings.read(PROPERTIES), isr_requests, ReplicationPolicies(), self.out
        )
        self.replicas.recovered(recovered or Recovered({}, {}))
        self.image = Image()
        self.image.replay(r.TopicRecord(name="orders", topic_id=TOPIC), 1)
        self.image.replay(partition(), 2)

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
