"""A leader without a controller: its first ISR, replaced processes, reassignments, and balance."""

from __future__ import annotations

import pytest
from tests.clusters.reference.broker_bench import BrokerBench
from tests.clusters.reference.classic_bench import (
    KEY,
    TOPIC,
    alone,
    at,
    children,
    exists,
    fetches,
    is_multi,
    isr,
    known,
    noted,
    once,
    other_broker,
    process,
    restarted,
    started,
    stored_isr,
    topic,
)

from fencepost_clusters.reference.classic.core import znodes
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.over_zookeeper.core.contents import decode, encode
from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire.errors import Error
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_kafka import (
    IsrPrepared,
    LeadershipEnded,
    LeadershipStarted,
    ReassignmentNoticed,
    ReplicaStood,
)

REQUESTS = znodes.state("orders", 0, 2)
REASSIGNED = znodes.reassigned("orders", 0)
LEADER = znodes.leader("orders", 0)


def together(**more: str) -> BrokerBench:
    """A bench whose broker leads a partition; broker 2 is a member of the ISR."""
    one = started(**more)
    other_broker(one)
    topic(one, (1, 2), isr((1, 2), (known(one).elections.process, process(one, 2))))
    one.passes(0.01)
    fetches(one)
    assert noted(one, LeadershipStarted)
    return one


def reassigns(one: BrokerBench, replicas: tuple[int, ...] | None) -> Error:
    part = a.ReassignablePartition(partition_index=0, replicas=replicas)
    topics = (a.ReassignableTopic(name="orders", partitions=(part,)),)
    (answer,) = one.asks("CLIENT", a.AlterPartitionReassignmentsRequest(timeout=1, topics=topics))
    assert isinstance(answer, e.Reply)
    assert isinstance(answer.message, a.AlterPartitionReassignmentsResponse)
    return Error(answer.message.responses[0].partitions[0].error_code)


def requested(one: BrokerBench, node: int = 2) -> list[str]:
    """The state changes that are requested of a replica, oldest first."""
    path = znodes.state("orders", 0, node)
    found = []
    for name in sorted(children(one, path)):
        read = at(one, zk.GetData(f"{path}/{name}"))
        assert isinstance(read, zk.Data)
        found.append(decode(path, read.data, znodes.StateRequest).change.value)
    return found


def partition(one: BrokerBench) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """The replicas, the ISR and the leader, as the broker knows them."""
    found = known(one).known.partition(KEY)
    assert found is not None
    return found.replicas, found.isr, found.leader


# --------------------------------------------------------------------------------------- its first


def test_a_leader_serves_once_every_live_member_has_its_log() -> None:
    one = started()
    other_broker(one)
    mine, two = known(one).elections.process, process(one, 2)
    topic(one, (1, 2), isr((1, 2), (mine, two)))
    one.passes(0.5)
    assert not noted(one, LeadershipStarted)
    assert stored_isr(one).preparing
    fetches(one)
    assert noted(one, LeadershipStarted)
    (prepared,) = noted(one, IsrPrepared)
    assert (prepared.isr, prepared.awaited, prepared.ends) == ((1, 2), (1, 2), (0, 0))
    assert (prepared.leader_epoch, prepared.waited_ms, prepared.most_ms) == (4, 500, 1500)
    found = stored_isr(one)
    assert (found.epoch, found.leader, found.isr, found.since) == (4, 1, (1, 2), (mine, two))
    assert not found.preparing


@pytest.mark.parametrize(("enabled", "balance_ms"), [("true", 300_000), ("false", 0)])
def test_a_leader_notes_whether_leaderships_return(enabled: str, balance_ms: int) -> None:
    one = alone(auto_leader_rebalance_enable=enabled, leader_imbalance_check_interval_ms="300000")
    (prepared,) = noted(one, IsrPrepared)
    assert prepared.balance_ms == balance_ms


def test_the_first_leader_waits_for_all_live_replicas() -> None:
    one = started()
    other_broker(one)
    topic(one, (1, 2, 3))
    one.passes(1)
    assert not noted(one, LeadershipStarted)
    fetches(one)
    (prepared,) = noted(one, IsrPrepared)
    assert (prepared.isr, prepared.awaited) == ((1, 2), (1, 2))


def test_a_winner_requests_the_other_live_replicas_to_follow() -> None:
    one = started()
    other_broker(one)
    topic(one, (1, 2, 3))
    one.passes(0.01)
    assert requested(one, 2) == ["become_follower"]
    assert requested(one, 3) == []
    assert requested(one, 1) == []


def test_a_lost_first_isr_is_stored_by_the_next_try() -> None:
    """The first write was carried out: its result is read, and counts."""
    one = started()
    mine = known(one).elections.process
    topic(one, (1,), isr((1,), (mine,)))

    def lost(request: zk.Request) -> zk.Answer:
        one.carries_out(request)
        return zk.Unknown()

    def stores(request: zk.Request) -> bool:
        return isinstance(request, zk.Multi) and isinstance(request.writes[0], zk.Check)

    one.meddles = once(stores, lost)
    one.passes(1)
    assert len(noted(one, IsrPrepared)) == 1
    assert len(noted(one, LeadershipStarted)) == 1


def test_an_election_that_another_wins_is_lost() -> None:
    one = started()
    other_broker(one)
    mine, two = known(one).elections.process, process(one, 2)
    topic(one, (2, 1), isr((1, 2), (mine, two)))

    def other(_: zk.Request) -> None:
        content = znodes.Isr(epoch=4, leader=2, isr=(1, 2), since=(mine, two), version=1)
        leader = zk.Create(LEADER, b"2", ephemeral=True)
        one.write(zk.Multi((leader, zk.SetData(znodes.isr("orders", 0), encode(content)))))

    one.meddles = once(is_multi, other)
    one.passes(0.3)
    (stood,) = noted(one, ReplicaStood)
    assert not stood.won
    assert (stood.waited_ms, stood.preferred, stood.standing) == (200, False, (2, 1))
    assert partition(one) == ((2, 1), (2, 1), 2)
    one.passes(1)
    assert len(noted(one, ReplicaStood)) == 1


def test_a_broker_that_waits_stands_no_more_once_another_leads() -> None:
    one = started()
    other_broker(one)
    mine, two = known(one).elections.process, process(one, 2)
    topic(one, (2, 1), isr((1, 2), (mine, two)))
    content = znodes.Isr(epoch=4, leader=2, isr=(1, 2), since=(mine, two), version=1)
    leader = zk.Create(LEADER, b"2", ephemeral=True)
    one.write(zk.Multi((leader, zk.SetData(znodes.isr("orders", 0), encode(content)))))
    one.passes(1)
    assert not noted(one, ReplicaStood)


def test_a_change_of_brokers_does_not_begin_the_wait_again() -> None:
    one = started()
    topic(one, (2, 1))
    one.passes(0.15)
    other_broker(one, 3)
    one.passes(0.06)
    (stood,) = noted(one, ReplicaStood)
    assert stood.waited_ms == 200


def test_a_replica_that_was_never_a_member_does_not_stand() -> None:
    one = started()
    other_broker(one)
    topic(one, (1, 2), isr((2,), (process(one, 2),)))
    one.passes(5)
    assert not noted(one, ReplicaStood)


def test_a_topic_that_is_deleted_before_its_election_gets_no_leader() -> None:
    one = started()
    topic(one, (2, 1))
    marked = encode(znodes.Topic(id=TOPIC, version=1, deleting=True))
    one.write(zk.SetData(znodes.topic("orders"), marked))
    one.passes(1)
    assert not noted(one, ReplicaStood)


# ---------------------------------------------------------------------------------- other processes


def test_a_member_whose_process_is_replaced_leaves_the_isr_at_once() -> None:
    one = together()
    restarted(one)
    one.passes(0.2)
    assert stored_isr(one).isr == (1,)


def test_a_member_that_is_gone_for_a_moment_stays() -> None:
    one = together()
    one.write(zk.Delete(znodes.broker(2)))
    one.passes(0.2)
    assert stored_isr(one).isr == (1, 2)


def test_a_replaced_process_joins_again_once_it_has_fetched() -> None:
    one = together()
    restarted(one)
    one.passes(0.2)
    fetches(one)
    one.passes(0.2)
    assert stored_isr(one).isr == (1, 2)
    assert stored_isr(one).since == (known(one).elections.process, process(one, 2))


def test_what_a_former_process_fetched_does_not_count() -> None:
    one = alone((1, 2))
    fetches(one)
    follower = known(one).data.replicas.all()[0].followers[2]
    assert follower.end == 0
    restarted(one)
    assert known(one).data.replicas.all()[0].followers[2].end == -1


def test_what_a_process_fetched_counts_while_it_is_the_same() -> None:
    one = alone((1, 2))
    fetches(one)
    other_broker(one, 3)
    assert known(one).data.replicas.all()[0].followers[2].end == 0


# ------------------------------------------------------------------------------------ reassignments


def test_a_reassignment_requests_the_new_replica_once() -> None:
    one = alone()
    assert reassigns(one, (1, 2)) is Error.NONE
    assert requested(one) == ["assigned"]
    (noticed,) = noted(one, ReassignmentNoticed)
    assert (noticed.path, noticed.adding) == (REASSIGNED, (2,))
    other_broker(one, 3)
    one.passes(1)
    assert requested(one) == ["assigned"]


def test_a_reassignment_that_begins_again_requests_the_new_replica_again() -> None:
    one = alone()
    reassigns(one, (1, 2))
    assert reassigns(one, None) is Error.NONE
    assert not exists(one, REASSIGNED)
    assert requested(one) == ["assigned", "unassigned"]
    assert reassigns(one, (1, 2)) is Error.NONE
    assert requested(one) == ["assigned", "unassigned", "assigned"]


def test_a_new_replica_that_does_not_fetch_is_requested_again() -> None:
    one = alone(leader_imbalance_check_interval_ms="2000")
    reassigns(one, (1, 2))
    one.passes(2.5)
    assert requested(one) == ["assigned", "assigned"]
    fetches(one)
    one.passes(2.5)
    assert requested(one).count("assigned") == 2


def test_a_new_replica_with_an_empty_log_has_fetched() -> None:
    """It cannot join the ISR yet, since no transaction has an answer."""
    one = alone(leader_imbalance_check_interval_ms="1000")
    reassigns(one, (1, 2))
    one.meddles = lambda request: zk.Unknown() if is_multi(request) else None
    fetches(one)
    one.passes(2.5)
    assert requested(one) == ["assigned"]


def test_a_reassignment_ends_once_the_new_replica_is_in_the_isr() -> None:
    one = alone()
    reassigns(one, (2, 1))
    assert partition(one)[0] == (2, 1)
    fetches(one)
    one.passes(0.2)
    assert not exists(one, REASSIGNED)
    assert not exists(one, LEADER), "the preferred replica stands"
    assert partition(one) == ((2, 1), (2, 1), -1)
    assert [x.reason for x in noted(one, LeadershipEnded)] == ["metadata"]


def test_a_new_order_of_the_same_replicas_ends_no_leadership() -> None:
    one = together(auto_leader_rebalance_enable="0")
    assert reassigns(one, (2, 1)) is Error.NONE
    assert exists(one, LEADER)
    assert partition(one) == ((2, 1), (2, 1), 1)
    assert requested(one) == ["become_follower"]


def test_a_removed_replica_is_requested_to_go() -> None:
    one = together()
    assert reassigns(one, (1,)) is Error.NONE
    assert requested(one) == ["become_follower", "unassigned"]
    assert stored_isr(one).isr == (1,)
    assert partition(one) == ((1,), (1,), 1)
    assert stored_isr(one).epoch == 5, "it was elected again"


def test_a_target_is_changed_while_a_reassignment_is_under_way() -> None:
    one = alone(others=3)
    reassigns(one, (1, 2))
    assert reassigns(one, (1, 3)) is Error.NONE
    assert requested(one, 2) == ["assigned", "unassigned"]
    assert requested(one, 3) == ["assigned"]
    read = at(one, zk.GetData(REASSIGNED))
    assert isinstance(read, zk.Data)
    assert decode(REASSIGNED, read.data, znodes.Assigned).replicas == (1, 3)
    assert exists(one, LEADER)


def test_an_end_that_is_refused_is_decided_again() -> None:
    one = alone()
    reassigns(one, (2, 1))
    refused = zk.Done((zk.Refused(zk.Reason.BAD_VERSION),))

    def ends(request: zk.Request) -> bool:
        return isinstance(request, zk.Multi) and any(
            isinstance(write, zk.Delete) and write.path == LEADER for write in request.writes
        )

    one.meddles = once(ends, lambda _: refused)
    fetches(one)
    one.passes(0.2)
    assert not exists(one, REASSIGNED)


# ------------------------------------------------------------------------------------------ balance


def test_a_leadership_is_given_back_to_the_preferred_replica() -> None:
    one = started(leader_imbalance_check_interval_ms="2000")
    other_broker(one)
    mine, two = known(one).elections.process, process(one, 2)
    topic(one, (2, 1), isr((1, 2), (mine, two)))
    one.passes(0.3)
    fetches(one)
    assert noted(one, LeadershipStarted)
    one.passes(1.5)
    assert exists(one, LEADER)
    one.passes(0.5)
    (ended, *_) = noted(one, LeadershipEnded)
    assert ended.reason == "metadata"


@pytest.mark.parametrize("case", ["off", "preferred", "not-live"])
def test_a_leadership_is_kept(case: str) -> None:
    one = started(
        leader_imbalance_check_interval_ms="2000",
        auto_leader_rebalance_enable="0" if case == "off" else "1",
    )
    other_broker(one)
    mine, two = known(one).elections.process, process(one, 2)
    topic(one, (1, 2) if case == "preferred" else (2, 1), isr((1, 2), (mine, two)))
    one.passes(0.3)
    fetches(one)
    assert noted(one, LeadershipStarted)
    if case == "not-live":
        one.write(zk.Delete(znodes.broker(2)))
    one.passes(5)
    assert not noted(one, LeadershipEnded)
