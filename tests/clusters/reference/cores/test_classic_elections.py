"""When a replica stands without a controller, and what an election does at once."""

from __future__ import annotations

from uuid import UUID

from tests.clusters.reference.classic_bench import (
    ENDPOINTS,
    KEY,
    alone,
    at,
    exists,
    fetches,
    is_multi,
    isr,
    known,
    noted,
    once,
    other_broker,
    process,
    started,
    stored_isr,
    topic,
)

from fencepost_clusters.reference.classic.core import znodes
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.over_zookeeper.core.contents import encode
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_kafka import LeadershipEnded, LeadershipStarted, PartitionCommitted, ReplicaStood

LEADER = znodes.leader("orders", 0)
FORMER = 1
"""A process that is registered no more."""


def test_a_new_process_stands_late_once_the_last_member_of_the_isr_has_gone() -> None:
    one = started()
    other_broker(one)
    topic(one, (2, 1), isr((2, 1), (process(one, 2), FORMER)))
    one.passes(3)
    assert not noted(one, ReplicaStood)
    one.write(zk.Delete(znodes.broker(2)))
    one.passes(1.6)
    assert not noted(one, ReplicaStood)
    one.passes(0.2)
    (stood,) = noted(one, ReplicaStood)
    assert (stood.won, stood.waited_ms, stood.standing) == (True, 1700, (1,))


def test_a_replica_stands_earlier_once_those_before_it_have_gone() -> None:
    """It has waited since it first could stand."""
    one = started()
    for node in (2, 3):
        other_broker(one, node)
    topic(one, (2, 3, 1))
    one.passes(0.05)
    one.write(zk.Delete(znodes.broker(3)))
    one.passes(0.21)
    (stood,) = noted(one, ReplicaStood)
    assert (stood.waited_ms, stood.standing) == (250, (2, 1))


def test_another_version_of_the_isr_is_another_candidacy() -> None:
    one = started()
    other_broker(one)
    mine, two = known(one).elections.process, process(one, 2)
    topic(one, (2, 1), isr((2, 1), (two, mine)))
    one.passes(0.15)
    one.write(zk.SetData(znodes.isr("orders", 0), encode(isr((1, 2), (mine, two)))))
    one.passes(0.15)
    assert not noted(one, ReplicaStood)
    one.passes(0.06)
    (stood,) = noted(one, ReplicaStood)
    assert stood.waited_ms == 200


def test_a_broker_whose_id_is_taken_meanwhile_does_not_stand_in_its_next_session() -> None:
    one = started()
    topic(one, (2, 1))
    one.passes(0.1)
    one.session_ends()
    info = encode(znodes.BrokerInfo(ENDPOINTS, version=1))
    at(one, zk.Create(znodes.broker(1), info, ephemeral=True))
    one.session_begins()
    one.passes(2)
    assert not noted(one, ReplicaStood)
    assert not exists(one, LEADER)


def test_a_winner_knows_its_election_before_it_reads_anything() -> None:
    one = started()
    topic(one, (1,))
    before = len(one.asked)
    one.passes(0.01)
    asked = one.asked[before:]
    elects, stores = [n for n, request in enumerate(asked) if isinstance(request, zk.Multi)][:2]
    assert not any(isinstance(request, zk.GetData) for request in asked[elects:stores])
    number = next(n for n, body in enumerate(one.notes) if isinstance(body, ReplicaStood))
    committed = one.notes[number + 1]
    assert isinstance(committed, PartitionCommitted)
    assert (committed.leader, committed.leader_epoch, committed.isr) == (1, 1, (1,))
    found = at(one, zk.Exists(LEADER))
    assert isinstance(found, zk.Found)
    assert found.stat is not None
    assert committed.offset == found.stat.czxid


def test_a_broker_that_stops_stands_for_nothing_more() -> None:
    """It stays while it leads a partition that no other replica can lead. Its registration does not
    say that it stops if that write got no answer."""
    one = alone(others=1)
    registration = znodes.broker(1)
    one.meddles = lambda asked: zk.Unknown() if getattr(asked, "path", "") == registration else None
    one.give(e.ShutdownAsked())
    one.meddles = None
    topic(one, (1,), name="refunds", topic_id=UUID(int=8))
    one.passes(2)
    assert not one.exited
    assert len(noted(one, ReplicaStood)) == 1
    assert not exists(one, znodes.leader("refunds", 0))


def test_the_outcome_of_an_isr_write_of_a_replica_that_was_removed_meanwhile_changes_nothing() -> (
    None
):
    one = alone((1, 2))

    def removes(_: zk.Request) -> None:
        known(one).remove("orders", KEY)

    one.meddles = once(is_multi, removes)
    fetches(one)
    one.passes(0.1)
    assert stored_isr(one).isr == (1, 2)
    assert len(noted(one, LeadershipEnded)) == 1


def test_a_refused_election_is_tried_again() -> None:
    one = started()
    refused = zk.Done((zk.Refused(zk.Reason.BAD_VERSION),))
    one.meddles = once(is_multi, lambda _: refused)
    topic(one, (1,))
    one.passes(1)
    assert [stood.won for stood in noted(one, ReplicaStood)] == [False, True]


def test_a_broker_with_id_0_is_a_leader_like_any_other() -> None:
    one = started()
    other_broker(one, 0)
    mine, zero = known(one).elections.process, process(one, 0)
    topic(one, (0, 1), isr((0, 1), (zero, mine)))
    one.passes(0.1)
    content = znodes.Isr(epoch=4, leader=0, isr=(0, 1), since=(zero, mine), version=1)
    leader = zk.Create(LEADER, b"0", ephemeral=True)
    one.write(zk.Multi((leader, zk.SetData(znodes.isr("orders", 0), encode(content)))))
    assert known(one).elections.deadline_ns() is None
    marked = encode(znodes.Topic(id=KEY[0], version=1, deleting=True))
    one.write(zk.SetData(znodes.topic("orders"), marked))
    assert zk.GetChildren(znodes.states("orders", 0)) not in one.asked
    one.write(zk.Delete(LEADER))
    assert zk.GetChildren(znodes.states("orders", 0)) in one.asked


def test_a_new_leader_serves_before_it_has_read_its_isr_again() -> None:
    one = started()
    mine = known(one).elections.process

    def answers(request: zk.Request) -> zk.Answer | None:
        stores = isinstance(request, zk.Multi) and isinstance(request.writes[0], zk.Check)
        if stores:
            one.meddles = lambda _: zk.Unknown()
            return one.carries_out(request)
        return None

    one.meddles = answers
    topic(one, (1,), isr((1,), (mine,)))
    one.passes(0.01)
    assert one.meddles is not answers
    assert noted(one, LeadershipStarted)
    assert not stored_isr(one).preparing
