"""The replication design's failures of a leader: their effect on requests in flight and on data on
disk."""

from __future__ import annotations

import pytest

from fencepost.testing import EventLog, Faults
from fencepost_kafka import IsrChangeAnswered, kafka_shape
from fencepost_kafka.testing import KafkaClients, KafkaCluster
from fencepost_suites.common.places import apart_from_controller
from fencepost_suites.common.shapes import shaped

clause = pytest.mark.clause
physical = pytest.mark.physical
PATIENT = shaped("patient", replica_lag_time_max_ms="30000", registration_lease_timeout_ms="9000")
"""Followers that are cut off stay in the ISR until the test goes on, however long that takes."""
_PATIENT = {"replica.lag.time.max.ms": "30000", "registration.lease.timeout.ms": "9000"}
PATIENT_OF_FOUR = pytest.mark.parametrize(
    "fencepost_shape", [kafka_shape(brokers=4, settings=_PATIENT)], ids=["patient-four"]
)
"""As `PATIENT`, with a broker that has no replica of a given partition."""
OUTLASTING_LEASE_OF_FOUR = pytest.mark.parametrize(
    "fencepost_shape",
    [kafka_shape(brokers=4, settings={"registration.lease.timeout.ms": "6000"})],
    ids=["outlasting-lease-of-four"],
)


@physical("sockets")
@clause("RP-11", "RP-12", "RP-13", "JEPSEN-duplicate")
def test_a_write_whose_answer_was_lost_with_the_leader_is_sent_again_and_stored_once(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders", partitions=1)
    writes = clients.produce("orders", acks="all", rate=200)
    cluster.eventually(writes.acked_at_least(100))
    leader = cluster.leader("orders", 0)
    # It stores and commits what it receives, and its answers reach no client.
    with faults.cut(leader, "clients"):
        cluster.eventually(writes.goes_on(20))
        with faults.kill(leader):
            cluster.eventually(writes.acked_at_least(len(writes.acked) + 200))
    writes.stop()
    cluster.eventually(writes.settled, within_ms=60_000)
    assert writes.acked <= clients.read_all("orders")


@pytest.mark.only(
    *("reference/quorum", "reference/legacy", "reference/classic", "apache/kraft"),
    reason="a follower may be the controller elsewhere",
)
@PATIENT_OF_FOUR
@clause("RP-31")
def test_a_leader_that_steps_down_fails_the_writes_that_wait_for_followers(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders", partitions=4)
    writes = clients.produce("orders", acks="all")
    cluster.eventually(writes.acked_at_least(50))
    led = apart_from_controller(cluster, "orders", 4)
    leader = cluster.leader("orders", led)
    followers = [f.name for f in cluster.followers("orders", led)]
    with faults.cut(followers, leader):
        cluster.eventually(writes.goes_on(20))
        with faults.terminate(leader):
            cluster.eventually(writes.acked_at_least(len(writes.acked) + 50))
    cluster.eventually(leader.active)


@OUTLASTING_LEASE_OF_FOUR
@clause("RP-29")
def test_while_the_isr_is_dead_the_partition_has_no_leader(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    # One replica is enough, so that none outside the ISR is eligible beside it (KIP-966).
    clients.create_topic("orders", partitions=4, config={"min.insync.replicas": "1"})
    # The leader asks the controller for the change of its ISR, so that is none of the followers.
    led = apart_from_controller(cluster, "orders", 4)
    leader = cluster.leader("orders", led)
    followers = cluster.followers("orders", led)
    with faults.cut([f.name for f in followers], leader):
        # The followers need something to lag behind by: otherwise a leader may count them as in
        # sync.
        assert clients.produce_directly(leader, "orders", led, acks=1).answered
        for follower in followers:
            cluster.eventually(~follower.in_sync("orders", led))
        with faults.kill(leader):
            cluster.eventually(leader.fenced_by_controller)
            cluster.eventually(cluster.leaderless("orders", led))
            for follower in followers:
                assert not clients.produce_directly(follower, "orders", led, acks=1).answered
    cluster.eventually(leader.leads("orders", led))


@shaped("long-lease", registration_lease_timeout_ms="8000", replica_lag_time_max_ms="1000")
@clause("QC-32")
def test_an_isr_change_asked_for_in_a_former_epoch_is_refused(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients, history: EventLog
) -> None:
    clients.create_topic("orders", partitions=1)
    clients.produce("orders")
    for _ in range(3):
        leader = cluster.leader("orders", 0)
        follower = cluster.followers("orders", 0)[0]
        # The pause is shorter than its lease, so it still leads; when it wakes, its followers have
        # been silent for too long.
        with faults.pause(leader):
            faults.bounce(follower, after_ms=1_000)
            cluster.eventually(follower.active)
        cluster.eventually(cluster.recovered)
        if any(body.error == "FENCED_LEADER_EPOCH" for body in history.of(IsrChangeAnswered)):
            break  # if it had to look for another controller first, it read its new epoch there


@PATIENT
@physical("disks")
@clause("RP-08", "RP-15")
def test_a_restarted_replica_begins_with_its_checkpointed_high_watermark(
    cluster: KafkaCluster, faults: Faults, clients: KafkaClients
) -> None:
    clients.create_topic("orders", partitions=1)
    leader = cluster.leader("orders", 0)
    assert clients.produce_directly(leader, "orders", 0, acks="all").answered
    cluster.eventually(leader.checkpointed("orders", 0))
    with faults.partition(leader, [f.name for f in cluster.followers("orders", 0)]):
        for _ in range(3):
            assert clients.produce_directly(leader, "orders", 0, acks=1).answered
        faults.bounce(leader, after_ms=0)
    cluster.eventually(cluster.recovered)
    assert len(clients.read_all("orders")) == 1
