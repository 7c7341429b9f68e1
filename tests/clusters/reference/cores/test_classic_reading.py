"""What a broker without a controller reads, notes, and keeps of the cluster."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from tests.clusters.reference.broker_bench import ME, OTHER, BrokerBench
from tests.clusters.reference.classic_bench import (
    ENDPOINTS,
    KEY,
    TOPIC,
    at,
    children,
    exists,
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

from fencepost_clusters.reference.classic.core import reading, writes, znodes
from fencepost_clusters.reference.classic.core.known import Known
from fencepost_clusters.reference.classic.core.policies import ClassicPolicies
from fencepost_clusters.reference.classic.core.reading import Brokers, Reader
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.node.effects import Instant, ToZooKeeper
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.replication.cluster_state import Partition
from fencepost_clusters.reference.over_zookeeper.core.contents import encode
from fencepost_clusters.reference.over_zookeeper.core.session import Clock, Session
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_kafka import (
    BrokerCommitted,
    BrokersListed,
    LeadershipStarted,
    PartitionCommitted,
    StateChangeCarriedOut,
    TopicCommitted,
    TopicMarked,
)

ISR = znodes.isr("orders", 0)
LEADER = znodes.leader("orders", 0)


def led_by_two(one: BrokerBench, epoch: int = 4) -> znodes.Isr:
    """Broker 2 becomes the leader of the partition."""
    content = znodes.Isr(epoch=epoch, leader=2, isr=(2,), since=(process(one, 2),), version=1)
    leader = zk.Create(LEADER, b"2", ephemeral=True)
    one.write(zk.Multi((leader, zk.SetData(ISR, encode(content)))))
    return content


def with_two(replicas: tuple[int, ...] = (2, 1)) -> BrokerBench:
    one = started()
    other_broker(one)
    topic(one, replicas, isr((2,), (process(one, 2),)))
    return one


def partition(one: BrokerBench) -> Partition:
    found = known(one).known.partition(KEY)
    assert found is not None
    return found


# ------------------------------------------------------------------------------------------ brokers


def test_the_list_of_brokers_is_noted_once_and_each_change_of_it() -> None:
    one = started()
    other_broker(one)
    two = process(one, 2)
    info = encode(znodes.BrokerInfo(ENDPOINTS, version=1, stopping=True))
    one.write(zk.SetData(znodes.broker(2), info))
    assert known(one).known.ready() == {1}
    one.write(zk.Delete(znodes.broker(2)))
    (listed,) = noted(one, BrokersListed)
    assert listed.live == (1,)
    of_two = [x for x in noted(one, BrokerCommitted) if x.broker_id == 2]
    assert [(x.fenced, x.broker_epoch, x.incarnation) for x in of_two] == [
        (False, two, f"{two:x}"),
        (True, two, f"{two:x}"),
    ]
    assert of_two[0].offset == two
    assert of_two[1].offset > two
    image = known(one).known.image
    assert image.brokers[2].fenced
    assert known(one).known.process_of(2) is None


def test_a_registration_of_the_same_process_is_noted_with_its_new_epoch() -> None:
    one = started()
    other_broker(one)
    two = process(one, 2)
    one.write(zk.Delete(znodes.broker(2)))
    info = encode(znodes.BrokerInfo(ENDPOINTS, version=1, since=two))
    one.write(zk.Create(znodes.broker(2), info, ephemeral=True))
    assert process(one, 2) == two
    newest = [x for x in noted(one, BrokerCommitted) if x.broker_id == 2][-1]
    assert newest.broker_epoch > two
    assert newest.incarnation == f"{two:x}"


@pytest.mark.parametrize("name", ["two", "-2"])
def test_a_registration_under_no_id_is_named_and_left_out(name: str) -> None:
    one = started()
    info = encode(znodes.BrokerInfo(ENDPOINTS, version=1))
    one.write(zk.Create(f"{znodes.BROKER_IDS}/{name}", info))
    assert f"/brokers/ids/{name} is not a broker id" in one.reasons()
    assert sorted(known(one).known.registrations) == [1]
    other_broker(one)
    assert sorted(known(one).known.registrations) == [1, 2]


def test_a_registration_that_goes_while_it_is_read_is_left_out() -> None:
    one = started()
    other_broker(one)
    gone = zk.Refused(zk.Reason.NO_NODE)
    read = zk.GetData(znodes.broker(2), watch=True)
    one.meddles = once(lambda request: request == read, lambda _: gone)
    other_broker(one, 3)
    assert sorted(known(one).known.registrations) == [1, 3]


def test_a_missing_list_of_topics_is_named_and_read_again() -> None:
    one = started()
    gone = zk.Refused(zk.Reason.NO_NODE)
    listing = zk.GetChildren(znodes.TOPICS, watch=True)
    one.meddles = once(lambda request: request == listing, lambda _: gone)
    topic(one, (1,))
    assert one.reasons() == ["/brokers/topics is missing"]
    assert "orders" not in known(one).known.image.topics
    one.passes(0.9)
    assert "orders" not in known(one).known.image.topics
    one.passes(0.2)
    assert "orders" in known(one).known.image.topics
    asked = len(one.asked)
    one.passes(3)
    assert one.asked[asked:].count(listing) == 0


def test_a_change_while_a_part_is_read_is_read_afterwards() -> None:
    one = started()
    info = encode(znodes.BrokerInfo(ENDPOINTS, version=1))
    mine = zk.GetData(znodes.broker(1), watch=True)

    def other(_: zk.Request) -> None:
        one.write(zk.Create(znodes.broker(3), info, ephemeral=True))

    one.meddles = once(lambda request: request == mine, other)
    other_broker(one)
    assert sorted(known(one).known.registrations) == [1, 2, 3]


def test_a_read_that_the_connection_is_lost_under_begins_again_with_it() -> None:
    one = started()
    listing = zk.GetChildren(znodes.BROKER_IDS, watch=True)
    one.meddles = once(lambda request: request == listing, lambda _: zk.Unknown())
    other_broker(one)
    assert sorted(known(one).known.registrations) == [1]
    one.give(e.ZooKeeperEvent(zk.Suspended()))
    known(one).reader.want(Brokers())
    one.give(e.ZooKeeperEvent(zk.Connected(ME)))
    assert sorted(known(one).known.registrations) == [1, 2]


# ------------------------------------------------------------------------------------------- topics


def test_a_topic_is_noted_when_it_is_made_marked_and_gone() -> None:
    one = with_two((2,))
    content = znodes.Topic(id=TOPIC, version=1, deleting=True, config={"retention.ms": "5"})
    for _ in range(2):
        one.write(zk.SetData(znodes.topic("orders"), encode(content)))
    assert known(one).known.image.settings["orders"] == {"retention.ms": "5"}
    assert len(noted(one, TopicMarked)) == 1
    one.write(zk.Delete(znodes.state("orders", 0, 2)))
    one.write(zk.Multi(writes.topic_gone(known(one).known, "orders")))
    changes = [(x.topic, x.topic_id, x.deleted, x.role) for x in noted(one, TopicCommitted)]
    assert changes == [
        ("orders", str(TOPIC), False, "controller"),
        ("orders", str(TOPIC), True, "controller"),
    ]


def test_a_topic_that_is_made_again_is_another_one() -> None:
    one = with_two((2,))
    one.give(e.ZooKeeperEvent(zk.Suspended()))
    one.tree.disconnect(ME)
    one.tree.request(OTHER, zk.Delete(znodes.state("orders", 0, 2)), 0)
    one.tree.request(OTHER, zk.Multi(writes.topic_gone(known(one).known, "orders")), 0)
    topic(one, (1,), topic_id=UUID(int=9))
    one.give(e.ZooKeeperEvent(zk.Connected(ME)))
    image = known(one).known.image
    assert image.topics == {"orders": UUID(int=9)}
    assert image.names == {UUID(int=9): "orders"}
    changes = [(x.topic_id, x.deleted) for x in noted(one, TopicCommitted)]
    assert changes == [
        (str(TOPIC), False),
        (str(TOPIC), True),
        (str(UUID(int=9)), False),
    ]
    one.passes(0.1)
    assert noted(one, LeadershipStarted)


def test_a_topic_that_goes_while_it_is_read_is_passed_over() -> None:
    one = started()

    def goes(_: zk.Request) -> None:
        one.write(zk.Delete(znodes.topic("former")))

    listing = zk.GetChildren(znodes.topic("former"), watch=True)
    one.meddles = once(lambda request: request == listing, goes)
    one.write(zk.Create(znodes.topic("former"), encode(znodes.Topic(id=TOPIC, version=1))))
    assert listing in one.asked
    assert not known(one).known.image.topics
    assert not one.reasons()


def test_a_partition_that_is_added_is_read() -> None:
    one = started()
    topic(one, (1,))
    one.passes(0.1)
    added = Partition(topic_id=TOPIC, index=1, replicas=(1,), isr=(), leader=-1, leader_epoch=0)
    one.write(zk.Multi(tuple(writes.partition_made("orders", added))))
    one.passes(0.1)
    assert [x.index for x in known(one).data.replicas.all()] == [0, 1]
    assert len(noted(one, LeadershipStarted)) == 2


# --------------------------------------------------------------------------------------- partitions


def test_a_partition_is_noted_with_its_newest_transaction() -> None:
    one = with_two()
    before = partition(one)
    assert (before.leader, before.leader_epoch, before.isr) == (-1, 3, (2,))
    led_by_two(one)
    after = partition(one)
    assert (after.leader, after.leader_epoch) == (2, 4)
    read = at(one, zk.GetData(ISR))
    assert isinstance(read, zk.Data)
    assert [x.offset for x in noted(one, PartitionCommitted)][-1] == read.stat.mzxid
    count = len(noted(one, PartitionCommitted))
    one.write(zk.Delete(LEADER))
    assert partition(one).leader == -1
    assert len(noted(one, PartitionCommitted)) == count + 1
    assert [x.offset for x in noted(one, PartitionCommitted)][-1] == one.tree.zxid


def test_a_read_of_what_is_known_notes_nothing() -> None:
    one = with_two()
    led_by_two(one)
    count = len(noted(one, PartitionCommitted))
    one.give(e.ZooKeeperEvent(zk.Suspended()))
    one.give(e.ZooKeeperEvent(zk.Connected(ME)))
    assert len(noted(one, PartitionCommitted)) == count


def test_a_change_between_two_reads_of_a_partition_is_read_whole() -> None:
    """No broker takes the leader of one time with the ISR of another."""
    one = with_two()
    content = znodes.Isr(epoch=4, leader=2, isr=(2, 1), since=(process(one, 2), 1), version=1)

    def other(_: zk.Request) -> None:
        leader = zk.Create(LEADER, b"2", ephemeral=True)
        one.write(zk.Multi((leader, zk.SetData(ISR, encode(content)))))

    read = zk.GetData(ISR, watch=True)
    one.meddles = once(lambda request: request == read, other)
    one.write(zk.SetData(ISR, encode(isr((2,), (process(one, 2),)))))
    found = [(x.leader, x.leader_epoch) for x in noted(one, PartitionCommitted)]
    assert (-1, 4) not in found
    assert (partition(one).leader, partition(one).leader_epoch) == (2, 4)


def test_a_leaders_znode_without_an_isr_is_named() -> None:
    one = with_two()
    one.write(zk.Create(LEADER, b"2", ephemeral=True))
    assert f"{LEADER} was created without an ISR" in one.reasons()
    assert partition(one).leader == -1


def test_a_leaders_znode_of_the_former_session_of_this_broker_leads_nothing() -> None:
    one = started()
    mine = known(one).elections.process
    topic(one, (2,), isr((1,), (mine,)))
    content = znodes.Isr(epoch=4, leader=1, isr=(1,), since=(mine,), version=1)
    leader = zk.Create(LEADER, b"1", ephemeral=True)
    one.write(zk.Multi((leader, zk.SetData(ISR, encode(content)))))
    assert partition(one).leader == -1
    assert not noted(one, LeadershipStarted)


def test_a_partition_under_reassignment_has_the_new_replicas_first() -> None:
    one = with_two((2, 1))
    entry = znodes.reassigned("orders", 0)
    one.write(zk.Create(entry, encode(znodes.Assigned(replicas=(3, 2), version=1))))
    found = partition(one)
    assert (found.replicas, found.adding, found.removing) == ((3, 2, 1), (3,), (1,))
    one.write(zk.SetData(entry, encode(znodes.Assigned(replicas=(4, 2), version=1))))
    assert partition(one).adding == (4,)
    assert known(one).known.versions[entry] == 1


def test_members_of_an_isr_are_in_the_order_of_the_replicas() -> None:
    one = with_two((1, 2))
    one.write(zk.SetData(ISR, encode(isr((9, 2, 1), (7, process(one, 2), 8)))))
    assert partition(one).isr == (1, 2, 9)
    assert stored_isr(one).isr == (9, 2, 1)
    assert not exists(one, LEADER)


def test_requests_that_came_while_there_was_no_session_are_carried_out_in_the_next() -> None:
    one = with_two()
    led_by_two(one)
    one.session_ends()
    made = at(one, writes.request("orders", 0, 1, znodes.StateChange.BECOME_FOLLOWER))
    assert isinstance(made, zk.Created)
    one.session_begins()
    assert children(one, znodes.state("orders", 0, 1)) == ()
    assert noted(one, StateChangeCarriedOut)


def test_a_replica_whose_topic_is_gone_goes_too() -> None:
    one = with_two()
    led_by_two(one)
    assert known(one).data.replicas.all()
    gone = [znodes.leader("orders", 0), znodes.replicas("orders", 0), znodes.isr("orders", 0)]
    gone += [znodes.state("orders", 0, node) for node in (1, 2)]
    gone += [znodes.states("orders", 0), znodes.partition("orders", 0)]
    gone += [znodes.reassignments("orders"), znodes.topic("orders")]
    one.write(zk.Multi(tuple(zk.Delete(path) for path in gone)))
    assert not known(one).known.image.topics
    assert not known(one).data.replicas.all()


def test_a_policy_learns_whether_a_part_was_read_before() -> None:
    asked: list[tuple[str, bool]] = []

    def notices(watched: str, seen: bool) -> bool:
        asked.append((watched, seen))
        return True

    out = Outbox()
    session = Session((("zookeeper-1", 2181),), "", 3000, out)
    session.changed(zk.Connected(5), Instant(0, 0))
    listener: Any = None
    reader = Reader(
        Known(1, out), session, Clock(Instant(0, 0)), listener, ClassicPolicies(notices=notices)
    )
    reader.want(reading.Settings())
    (sent,) = [each for each in out.drain() if isinstance(each, ToZooKeeper)]
    session.answered(sent.request_id, zk.Refused(zk.Reason.NO_NODE))
    reader.want(reading.Settings())
    assert asked == [("Settings", False), ("Settings", True)]
