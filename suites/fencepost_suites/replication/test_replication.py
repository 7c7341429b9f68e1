"""The replication design: acknowledged data is kept, and uncommitted data is never read."""

from __future__ import annotations

import pytest

from fencepost import ProcessSpawned, Shape
from fencepost.testing import EventLog, Faults
from fencepost_kafka import FollowingStarted, LogAppended, kafka_shape
from fencepost_kafka.testing import KafkaClients, KafkaCluster, KafkaNode
from fencepost_suites.common.places import apart_from_controller, led_elsewhere

clause = pytest.mark.clause
physical = pytest.mark.physical
LEADERS_STAY = Shape(
    settings={"auto.leader.rebalance.enable": "0", "registration.lease.timeout.ms": "6000"}
)
"""A cluster in which leadership does not return to the preferred replica by itself. Leases outlast
an election here and below, as in `shapes.OUTLASTING_LEASE`."""
PATIENT = Shape(
    settings={"replica.lag.time.max.ms": "30000", "registration.lease.timeout.ms": "9000"}
)
"""Followers that are cut off stay in the ISR until the test goes on, however long that takes."""
LEASE_OUTLASTS_LAG = Shape(
    settings={"registration.lease.timeout.ms": "5500", "replica.lag.time.max.ms": "2000"}
)
"""A leader that is cut off from every node asks for a smaller ISR long before its lease ends."""
LONG_LEASE_OF_FOUR = kafka_shape(brokers=4, settings=LEASE_OUTLASTS_LAG.settings)
"""The same, with a broker that has no replica of a given partition."""


@clause("JEPSEN-lost-write-acks1")
def test_writes_that_the_leader_alone_acknowledged_are_read_while_it_leads(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders", partitions=1)
    writes = clients.produce("orders", acks=1, count=200, rate=200)
    cluster.eventually(writes.acked_at_least(20))
    with faults.kill(cluster.followers("orders", 0)[0]):
        cluster.eventually(writes.settled)
    cluster.eventually(cluster.recovered)
    assert writes.acked <= clients.read_all("orders")


@clause("AVAIL-readable", "JEPSEN-G1c-realtime")
def test_a_consumer_gets_what_is_written_once_the_next_leader_serves(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders", partitions=1)
    reads = clients.consume("orders")
    clients.produce("orders", count=20, rate=100)
    cluster.eventually(reads.polled_at_least(20), within_ms=60_000)
    with faults.kill(cluster.leader("orders", 0)):
        clients.produce("orders", count=20, rate=100)
        cluster.eventually(reads.polled_at_least(40), within_ms=60_000)
    cluster.eventually(cluster.recovered)


@physical("signals")
@clause("RP-06", "RP-13", "RP-05", "JEPSEN-lost-write", "JEPSEN-duplicate")
def test_acked_writes_survive_failover(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    # With more partitions, all of the first writes may be acknowledged by the other leaders.
    clients.create_topic("orders", partitions=1)
    writes = clients.produce("orders", acks="all", rate=200)
    clients.consume("orders")
    cluster.eventually(writes.acked_at_least(100))
    victim = cluster.leader("orders", 0)
    with faults.kill(victim):
        cluster.eventually(cluster.another_leader("orders", 0, victim))
        cluster.eventually(writes.acked_at_least(len(writes.acked) + 200))
        writes.stop()
        cluster.eventually(writes.settled, within_ms=60_000)
    cluster.eventually(cluster.recovered)
    assert writes.acked <= clients.read_all("orders")


@clause("RP-04", "RP-09", "RP-10", "RP-27")
def test_a_follower_that_does_not_keep_up_leaves_the_isr_and_returns_caught_up(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    writes = clients.produce("orders")
    cluster.eventually(writes.acked_at_least(50))
    # The cut must not hide the follower from the controller, which would drop it at once.
    led = led_elsewhere(cluster, "orders")
    leader = cluster.leader("orders", led)
    follower = cluster.followers("orders", led)[0]
    # A one-way cut: it still receives the leader's answers, but there is no request to answer.
    with faults.cut(follower, leader):
        cluster.eventually(~follower.in_sync("orders", led))
        cluster.eventually(writes.acked_at_least(len(writes.acked) + 50))
    cluster.eventually(follower.in_sync("orders", led))


@pytest.mark.only(
    "reference/quorum", reason="an isolated leader of Kafka's goes on serving (QC-17)"
)
@pytest.mark.parametrize("fencepost_shape", [LEADERS_STAY], ids=["leaders-stay"])
@physical("disks")
@clause("RP-15", "RP-24", "RP-18")
def test_a_former_leader_truncates_messages_that_no_other_replica_has(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders", partitions=1)
    old = cluster.leader("orders", 0)
    # The probe must run before the leader's lease begins to run out.
    assert clients.produce_directly(old, "orders", 0, acks="all").answered
    with faults.isolate(old):
        # It does not know of its successor yet: it stores acks=1 writes, and no follower fetches
        # them.
        for _ in range(3):
            clients.produce_directly(old, "orders", 0, acks=1)
        cluster.eventually(old.fenced_by_controller)
        cluster.eventually(cluster.another_leader("orders", 0, old))
        new = cluster.leader("orders", 0)
        # Its log grows beyond the old leader's, which would continue there if it did not truncate.
        for _ in range(5):
            assert clients.produce_directly(new, "orders", 0, acks="all").answered
        assert not clients.produce_directly(old, "orders", 0, acks=1).answered
    cluster.eventually(old.in_sync("orders", 0))
    assert not clients.produce_directly(old, "orders", 0, acks=1).answered


@physical("disks")
@clause("RP-15")
def test_a_follower_without_the_newest_high_watermark_keeps_its_log(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders", partitions=1)
    leader = cluster.leader("orders", 0)
    far, near = cluster.followers("orders", 0)
    # It learns a high watermark late; after each change of the ISR it begins to follow again from
    # its own log.
    with faults.slow_link(far, leader, latency_ms=200):
        writes = clients.produce("orders")
        cluster.eventually(writes.acked_at_least(50))
        with faults.kill(near):
            cluster.eventually(~near.in_sync("orders", 0))
            cluster.eventually(writes.acked_at_least(len(writes.acked) + 50))
        cluster.eventually(near.in_sync("orders", 0))
    cluster.eventually(cluster.recovered)


@pytest.mark.parametrize("fencepost_shape", [PATIENT], ids=["patient"])
@clause("RP-07")
def test_an_uncommitted_message_is_never_read(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders", partitions=1)
    leader = cluster.leader("orders", 0)
    assert clients.produce_directly(leader, "orders", 0, acks="all").answered
    with faults.cut([f.name for f in cluster.followers("orders", 0)], leader):
        assert clients.produce_directly(leader, "orders", 0, acks=1).answered
        assert clients.fetch_directly(leader, "orders", 0).records == 1
    # Acknowledged by all replicas, as is everything before it.
    assert clients.produce_directly(leader, "orders", 0, acks="all").answered
    assert len(clients.read_all("orders")) == 3


@pytest.mark.only(
    "reference/quorum", "apache/kraft", reason="a follower may be the controller elsewhere"
)
@pytest.mark.parametrize("fencepost_shape", [LEASE_OUTLASTS_LAG], ids=["long-lease"])
@clause("RP-32", "RP-04")
def test_a_leader_that_cannot_store_a_smaller_isr_commits_on_the_old_one(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.produce("orders")
    leader = cluster.leader("orders", 0)
    follower = cluster.followers("orders", 0)[0]
    with faults.cut_from_controllers(leader), faults.partition(leader, follower):
        result = clients.produce_directly(leader, "orders", 0, acks="all")
        assert not result.answered
        cluster.eventually(leader.fenced_by_controller)
    cluster.eventually(cluster.recovered)


@pytest.mark.only("reference/legacy", reason="controllers elsewhere are cut off by their role")
@pytest.mark.parametrize("fencepost_shape", [LONG_LEASE_OF_FOUR], ids=["long-lease-four"])
@clause("RP-32", "RP-04")
def test_a_leader_cut_off_from_the_controllers_broker_commits_on_the_old_isr(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders", partitions=4)
    clients.produce("orders")
    led = apart_from_controller(cluster, "orders", 4)
    leader = cluster.leader("orders", led)
    others = [cluster.active_controller, cluster.followers("orders", led)[0]]
    with faults.partition(leader, others):
        result = clients.produce_directly(leader, "orders", led, acks="all")
        assert not result.answered
        cluster.eventually(leader.fenced_by_controller)
    cluster.eventually(cluster.recovered)


@pytest.mark.only("simulated", reason="a killed process leaves what it wrote to the kernel")
@clause("RP-26")
def test_flushed_data_survives_a_power_loss(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    writes = clients.produce("orders")
    for _ in range(3):
        leader = cluster.leader("orders", 0)
        cluster.eventually(cluster.next_flush(leader, "orders", 0))
        cluster.eventually(writes.acked_at_least(len(writes.acked) + 30))  # not flushed yet
        with faults.lose_power(leader):
            cluster.eventually(writes.acked_at_least(len(writes.acked) + 50))
        cluster.eventually(cluster.recovered)
    writes.stop()
    cluster.eventually(writes.settled)
    assert writes.acked <= clients.read_all("orders")


@physical("disks")
@clause("RP-05", "RP-10", "JEPSEN-lost-write")
def test_a_log_whose_end_is_damaged_is_fetched_again(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    clients.create_topic("orders", partitions=1)
    writes = clients.produce("orders", rate=100)
    cluster.eventually(writes.acked_at_least(100))
    for follower in (True, False):
        leader = cluster.leader("orders", 0)
        victim = cluster.followers("orders", 0)[0] if follower else leader
        died = _newest(history, victim)
        with faults.damage_disk(victim, files="orders-*/*.log", last_bytes=4_000) as damaged:
            assert damaged.receipt.true
            cluster.eventually(victim.fenced_by_controller)
        stored = history.of(LogAppended, died)[-1].log_end
        cluster.eventually(cluster.recovered)
        begun = history.of(FollowingStarted, _newest(history, victim))[0]
        assert begun.log_end < stored, "its last messages were damaged"
        cluster.eventually(writes.acked_at_least(len(writes.acked) + 50))
    writes.stop()
    cluster.eventually(writes.settled)
    assert writes.acked <= clients.read_all("orders")


def _newest(history: EventLog, node: KafkaNode) -> str:
    """The newest process of a node."""
    return [one.started for one in history.of(ProcessSpawned) if one.slot == node.name][-1]


@clause("JEPSEN-aborted-read")
def test_a_write_that_was_finally_refused_is_never_read(
    cluster: KafkaCluster, clients: KafkaClients
) -> None:
    too_large = {"message.max.bytes": "4000000"}  # for the client, not for the broker
    refused = clients.produce("orders", size=2_000_000, count=3, rate=5, settings=too_large)
    cluster.eventually(refused.settled)
    assert not refused.acked
    writes = clients.produce("orders", count=30)
    cluster.eventually(writes.settled)
    assert clients.read_all("orders") == writes.acked
