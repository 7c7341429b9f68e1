"""The transactions in which decisions of the plane without a controller are stored."""

from __future__ import annotations

from uuid import UUID

import pytest
from tests.clusters.reference.classic_bench import KEY, TOPIC

from fencepost_clusters.reference.classic.core import writes, znodes
from fencepost_clusters.reference.classic.core.known import Known, Read, StoredIsr
from fencepost_clusters.reference.core.node.outbox import Outbox
from fencepost_clusters.reference.core.replication.cluster_state import Partition
from fencepost_clusters.reference.over_zookeeper.core.contents import BadZnode, encode
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.zookeeper.client import port as zk

REPLICAS, ENTRY = znodes.replicas("orders", 0), znodes.reassigned("orders", 0)
LEADER, ISR = znodes.leader("orders", 0), znodes.isr("orders", 0)
SINCE = {1: 11, 2: 12}


def cluster(target: tuple[int, ...] | None = None, *, led: bool = True) -> Known:
    """Broker 1 leads orders-0, which is assigned to 1 and 2; both are in the ISR."""
    known = Known(1, Outbox())
    known.set_topic("orders", znodes.Topic(id=TOPIC, version=1), 10, 10)
    content = znodes.Isr(epoch=3, leader=1, isr=(1, 2), since=(11, 12), version=1)
    read = Read(
        offset=20,
        led=led,
        assigned=(1, 2),
        target=target,
        isr=StoredIsr(content, 7),
        versions={REPLICAS: 5, ENTRY: 6, znodes.topic("orders"): 4},
    )
    known.set_partition(KEY, read)
    return known


def changed(
    known: Known,
    replicas: tuple[int, ...],
    isr: tuple[int, ...] = (1, 2),
    **moving: tuple[int, ...],
) -> tuple[zk.Write, ...]:
    one = Partition(
        topic_id=TOPIC,
        index=0,
        replicas=replicas,
        isr=isr,
        leader=1,
        leader_epoch=4,
        adding=moving.get("adding", ()),
        removing=moving.get("removing", ()),
    )
    return tuple(writes.reassigned(known, one))


def stores(path: str, replicas: tuple[int, ...], version: int) -> zk.SetData:
    return zk.SetData(path, encode(znodes.Assigned(replicas=replicas, version=1)), version)


def goes(node: int) -> zk.Create:
    return writes.request("orders", 0, node, znodes.StateChange.UNASSIGNED)


def test_a_reassignment_begins_with_its_target() -> None:
    found = changed(cluster(), (2, 3, 1), adding=(3,), removing=(1,))
    target = encode(znodes.Assigned(replicas=(2, 3), version=1))
    assert found == (stores(REPLICAS, (1, 2), 5), zk.Create(ENTRY, target))


def test_a_reassignment_gets_another_target() -> None:
    found = changed(cluster((1, 3)), (1, 4, 2), adding=(4,), removing=(2,))
    assert found == (stores(REPLICAS, (1, 2), 5), stores(ENTRY, (1, 4), 6), goes(3))


def test_a_reassignment_that_is_called_off_keeps_its_leader() -> None:
    found = changed(cluster((1, 2, 3)), (1, 2))
    assert found == (stores(REPLICAS, (1, 2), 5), zk.Delete(ENTRY, 6), goes(3))


def test_the_end_of_a_reassignment_leaves_no_leader() -> None:
    known = cluster((2, 3))
    found = changed(known, (2, 3), (2, 3))
    content = znodes.Isr(epoch=3, leader=1, isr=(2, 3), since=(12, -1), version=1)
    assert found == (
        stores(REPLICAS, (2, 3), 5),
        zk.Delete(ENTRY, 6),
        zk.SetData(ISR, encode(content), 7),
        zk.Delete(LEADER),
        goes(1),
    )


def test_without_a_leader_none_is_removed() -> None:
    found = changed(cluster((2, 3), led=False), (2, 3), (2, 3))
    assert zk.Delete(LEADER) not in found


def test_a_leader_that_leaves_the_isr_leads_no_more() -> None:
    found = changed(cluster(), (1, 2, 3), (2,), adding=(3,))
    assert zk.Delete(LEADER) in found


def test_another_order_of_the_replicas_is_stored_alone() -> None:
    assert changed(cluster(), (2, 1), (2, 1)) == (stores(REPLICAS, (2, 1), 5),)


def test_a_leadership_is_given_up_in_its_leader_epoch_only() -> None:
    known = cluster()
    one = known.partition(KEY)
    assert one is not None
    record = r.IsrChangeRecord(topic_id=TOPIC, partition_id=0, isr=(1, 2), leader=2, leader_epoch=4)
    expected = (zk.Check(ISR, 7), zk.Delete(LEADER))
    assert writes.unled(known, one) == expected
    assert writes.transaction(known, (record,)) == expected


def test_a_deletion_ends_a_reassignment_and_requests_each_replica_to_go() -> None:
    record = r.TopicRecord(name="orders", topic_id=TOPIC, deleting=True)
    requests = tuple(
        writes.request("orders", 0, node, znodes.StateChange.DELETE) for node in (1, 2)
    )
    marked = encode(znodes.Topic(id=TOPIC, version=1, deleting=True))
    topic = zk.SetData(znodes.topic("orders"), marked, 4)
    assert writes.transaction(cluster(), (record,)) == (topic, *requests)
    ended = zk.Delete(ENTRY, 6)
    assert writes.transaction(cluster((1, 3)), (record,)) == (topic, ended, *requests)


@pytest.mark.parametrize("target", [(1, 2, 3), (1,)], ids=["more", "fewer"])
def test_a_deletion_ends_a_reassignment_to_more_replicas_or_to_fewer(
    target: tuple[int, ...],
) -> None:
    record = r.TopicRecord(name="orders", topic_id=TOPIC, deleting=True)
    assert zk.Delete(ENTRY, 6) in writes.transaction(cluster(target), (record,))


def test_broker_0_leads_no_more_once_it_is_outside_the_isr() -> None:
    known = cluster()
    content = znodes.Isr(epoch=3, leader=0, isr=(0, 2), since=(10, 12), version=1)
    read = Read(
        offset=21,
        led=True,
        assigned=(0, 2),
        target=None,
        isr=StoredIsr(content, 7),
        versions={REPLICAS: 5},
    )
    known.set_partition(KEY, read)
    assert zk.Delete(LEADER) in changed(known, (0, 2, 3), (2,), adding=(3,))


def test_a_new_topic_is_made_with_its_settings_and_partitions() -> None:
    made = UUID(int=9)
    records = (
        r.TopicRecord(name="later", topic_id=made),
        r.ConfigRecord(resource_type=2, resource_name="later", name="retention.ms", value="5"),
        r.PartitionRecord(partition_id=0, topic_id=made, replicas=(1,), isr=(), leader=-1),
    )
    found = writes.transaction(cluster(), records)
    content = znodes.Topic(id=made, version=1, config={"retention.ms": "5"})
    assert found[0] == zk.Create(znodes.topic("later"), encode(content))
    assert [x.path for x in found[1:]] == [
        "/brokers/topics/later/0",
        "/brokers/topics/later/0/ISR",
        "/brokers/topics/later/0/state",
        "/brokers/topics/later/0/state/1",
        "/brokers/topics/later/0/replicas",
        "/brokers/partitions_reassigned/later",
    ]


def test_an_isr_that_names_no_process_for_a_member_or_a_member_twice_is_unreadable() -> None:
    for members, since in (((1, 2), (11,)), ((1, 1), (11, 11))):
        content = znodes.Isr(epoch=1, leader=1, isr=members, since=since, version=1)
        with pytest.raises(BadZnode, match="one process for each member"):
            znodes.isr_of(ISR, encode(content))
