"""One broker of the plane without a controller, over a model of ZooKeeper."""

from __future__ import annotations

import pytest
from tests.clusters.reference.broker_bench import ME, OTHER, BrokerBench
from tests.clusters.reference.classic_bench import (
    ENDPOINTS,
    TOPIC,
    bench,
    isr,
    known,
    noted,
    other_broker,
    topic,
)

from fencepost import NodeStopped, UsageError
from fencepost_clusters.reference.assembly import read_settings
from fencepost_clusters.reference.classic.core import writes, znodes
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.over_zookeeper.core.contents import encode
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_kafka import (
    BrokerRegistered,
    IsrPrepared,
    LeadershipStarted,
    ReplicaRemoved,
    ReplicaStood,
    StateChangeCarriedOut,
    ZnodeUnreadable,
)

ISR = "/brokers/topics/orders/0/ISR"


# ------------------------------------------------------------------------------------ registration


def taken() -> BrokerBench:
    """A bench in which another session has this broker's id."""
    one = bench()
    for path in (znodes.BROKERS, znodes.BROKER_IDS):
        one.tree.request(OTHER, zk.Create(path, encode(znodes.BrokerSettings(version=1))), 0)
    info = encode(znodes.BrokerInfo(ENDPOINTS, version=1))
    one.tree.request(OTHER, zk.Create(znodes.broker(1), info, ephemeral=True), 0)
    one.start()
    return one


def test_a_process_whose_id_is_taken_by_a_live_session_ends_with_one_sentence() -> None:
    one = taken()
    one.passes(5.9)
    assert not one.exited
    one.passes(0.2)
    assert one.exited
    (stopped,) = noted(one, NodeStopped)
    assert isinstance(stopped, NodeStopped)
    assert stopped.reason == (
        "broker id 1 is taken by a live process: /brokers/ids/1 belongs to session 2"
    )
    found, _ = one.tree.request(OTHER, zk.Exists(znodes.broker(1)), 0)
    assert isinstance(found, zk.Found)
    assert found.stat is not None
    assert found.stat.owner == OTHER


def test_a_process_gets_its_id_once_the_former_session_is_over() -> None:
    one = taken()
    one.passes(2.9)
    one.write(zk.Delete(znodes.broker(1)))
    assert noted(one, BrokerRegistered)
    one.passes(10)
    assert not one.exited


def test_a_process_that_has_its_id_waits_for_it_no_more() -> None:
    one = taken()
    one.passes(2.9)
    one.write(zk.Delete(znodes.broker(1)))
    assert one.core.deadline_ns() is None


def test_time_without_zookeeper_does_not_count_for_the_other_session() -> None:
    one = taken()
    one.passes(3)
    one.give(e.ZooKeeperEvent(zk.Suspended()))
    one.passes(20)
    one.give(e.ZooKeeperEvent(zk.Connected(ME)))
    one.passes(5.9)
    assert not one.exited


# --------------------------------------------------------------------------------------- elections


def test_the_first_leader_of_a_partition_is_any_replica_that_is_live() -> None:
    one = bench()
    one.start()
    topic(one, (2, 1))
    one.passes(0.19)
    assert not noted(one, ReplicaStood)
    one.passes(0.02)
    assert [body.won for body in one.notes if isinstance(body, ReplicaStood)] == [True]
    assert noted(one, IsrPrepared)
    assert noted(one, LeadershipStarted)


def test_a_new_process_is_no_member_of_an_isr_while_another_member_lives() -> None:
    one = bench()
    one.start()
    other_broker(one)
    two = known(one).known.process_of(2)
    assert two is not None
    topic(one, (1, 2), isr((1, 2), (-5, two)))
    one.passes(10)
    assert not noted(one, ReplicaStood)


def test_a_new_process_stands_late_if_no_member_lives() -> None:
    one = bench()
    one.start()
    topic(one, (1, 2), isr((1, 2), (-5, -6)))
    one.passes(1.49)
    assert not noted(one, ReplicaStood)
    one.passes(0.02)
    assert noted(one, ReplicaStood)


def test_a_leader_waits_for_a_live_member_and_then_serves_without_it() -> None:
    one = bench()
    one.start()
    other_broker(one)
    node = known(one)
    two = node.known.process_of(2)
    assert two is not None
    topic(one, (1, 2), isr((1, 2), (node.elections.process, two)))
    one.passes(1.4)
    assert noted(one, ReplicaStood)
    assert not noted(one, LeadershipStarted)
    one.passes(0.2)
    (prepared,) = noted(one, IsrPrepared)
    assert isinstance(prepared, IsrPrepared)
    assert (prepared.isr, prepared.awaited) == ((1,), (1, 2))
    assert noted(one, LeadershipStarted)


def test_a_leader_that_gets_no_answers_asks_no_more_than_ten_times_a_second() -> None:
    one = bench()
    one.start()
    other_broker(one)
    node = known(one)
    two = node.known.process_of(2)
    assert two is not None
    topic(one, (1, 2), isr((1, 2), (node.elections.process, two)))
    one.passes(1)
    one.loses = True
    one.passes(2)  # the bench fails if it goes round in a circle
    assert not noted(one, LeadershipStarted)
    one.loses = False
    one.passes(0.2)
    assert noted(one, LeadershipStarted)


def test_a_session_that_ends_ends_every_leadership() -> None:
    one = bench()
    one.start()
    topic(one, (1,))
    one.passes(0.1)
    (replica,) = known(one).data.replicas.all()
    assert replica.leading
    one.session_ends()
    assert not replica.leading


# ------------------------------------------------------------------------------------ transactions

MARKED = r.TopicRecord(name="orders", topic_id=TOPIC, deleting=True)
EXTENDED = r.PartitionRecord(partition_id=1, topic_id=TOPIC, replicas=(1,), isr=(), leader=-1)


@pytest.mark.parametrize("records", [(MARKED, EXTENDED), (EXTENDED, MARKED)])
def test_a_deletion_and_a_new_partition_decided_at_once_are_not_both_stored(
    records: tuple[r.Record, r.Record],
) -> None:
    """Otherwise the new partition would outlive the requests to delete the topic's replicas."""
    one = bench()
    one.start()
    topic(one, (1,))
    one.passes(0.1)
    first, second = (writes.transaction(known(one).known, (record,)) for record in records)
    one.write(zk.Multi(first))
    answer, _ = one.tree.request(OTHER, zk.Multi(second), 0)
    assert isinstance(answer, zk.Done)
    assert any(isinstance(result, zk.Refused) for result in answer.results)


# ---------------------------------------------------------------------------------- foreign znodes


@pytest.mark.parametrize(
    ("path", "data"),
    [
        (ISR, b"1,2"),
        (
            ISR,
            b'{"controller_epoch":1,"leader":1,"isr":[1],"version":1}',
        ),
        (
            ISR,
            b'{"epoch":1,"leader":1,"isr":[1],"since":[],"version":1}',
        ),
        ("/brokers/topics/orders/0/replicas", b"1,2"),
        ("/brokers/topics/orders", b'{"version":1,"partitions":{"0":[1,2]}}'),
        ("/brokers/ids/2", b"broker-2:9092"),
        ("/brokers", b"{"),
    ],
    ids=("ISR-list", "ISR-legacy", "ISR-no-processes", "replicas", "topic", "broker", "brokers"),
)
def test_a_znode_of_a_former_format_is_named_in_one_sentence_and_kept(
    path: str, data: bytes
) -> None:
    one = bench()
    one.start()
    topic(one, (1,))
    other_broker(one)
    one.passes(0.1)
    one.write(zk.SetData(path, data))
    one.passes(3)
    said = [
        body.reason for body in noted(one, ZnodeUnreadable) if isinstance(body, ZnodeUnreadable)
    ]
    assert said
    assert all(path in reason and "\n" not in reason for reason in said)
    read, _ = one.tree.request(OTHER, zk.GetData(path), 0)
    assert isinstance(read, zk.Data)
    assert read.data == data


def test_an_unreadable_partition_is_read_again_until_it_is_readable() -> None:
    one = bench()
    one.start()
    topic(one, (1,))
    one.passes(0.1)
    read, _ = one.tree.request(OTHER, zk.GetData(ISR), 0)
    assert isinstance(read, zk.Data)
    one.write(zk.SetData(ISR, b"1"))
    one.passes(1.5)
    one.tree.request(OTHER, zk.SetData(ISR, read.data), 0)
    before = len(noted(one, ZnodeUnreadable))
    one.passes(3)
    assert len(noted(one, ZnodeUnreadable)) <= before + 1


# ----------------------------------------------------------------------------------- state changes


def test_a_replica_that_is_still_assigned_outlives_a_request_that_was_overtaken() -> None:
    one = bench()
    one.start()
    topic(one, (1,))
    one.write(writes.request("orders", 0, 1, znodes.StateChange.UNASSIGNED))
    one.passes(1)
    (carried_out,) = noted(one, StateChangeCarriedOut)
    assert isinstance(carried_out, StateChangeCarriedOut)
    assert carried_out.moot
    assert not noted(one, ReplicaRemoved)
    left, _ = one.tree.request(OTHER, zk.GetChildren("/brokers/topics/orders/0/state/1"), 0)
    assert isinstance(left, zk.Children)
    assert left.names == ()


def test_an_unreadable_request_is_kept() -> None:
    one = bench()
    one.start()
    topic(one, (1,))
    path = "/brokers/topics/orders/0/state/1/request-0000000009"
    one.write(zk.Create(path, b"becomeFollower"))
    one.passes(1)
    assert noted(one, ZnodeUnreadable)
    found, _ = one.tree.request(OTHER, zk.Exists(path), 0)
    assert isinstance(found, zk.Found)
    assert found.stat is not None


# ---------------------------------------------------------------------------------------- settings

GOOD = {"control.plane": "classic", "broker.id": "1", "zookeeper.connect": "zookeeper-1:2181"}


def test_the_plane_is_shown_with_the_settings() -> None:
    effective = read_settings(GOOD).effective()
    assert effective["control.plane"] == "classic"
    assert effective["leader.election.wait.time.ms"] == "5000"


@pytest.mark.parametrize(("given", "chroot"), [("", ""), ("/", ""), ("/a/b", "/a/b")])
def test_the_chroot_is_what_follows_the_servers(given: str, chroot: str) -> None:
    servers = "zookeeper-1:2181, zookeeper-2:65535"
    settings = read_settings(GOOD | {"zookeeper.connect": servers + given})
    assert settings.zookeeper == (("zookeeper-1", 2181), ("zookeeper-2", 65535))
    assert settings.chroot == chroot


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"control.plane": "legacy"}, "control.plane must be classic"),
        ({"process.roles": "broker"}, "set one of them"),
        ({"zookeeper.connect": ""}, "names no server"),
        ({"zookeeper.connect": "zookeeper-1"}, "needs host:port, not 'zookeeper-1'"),
        ({"zookeeper.connect": ":2181"}, "needs host:port, not ':2181'"),
        ({"zookeeper.connect": "zookeeper-1:0"}, "needs host:port"),
        ({"zookeeper.connect": "zookeeper-1:65536"}, "needs host:port"),
        ({"zookeeper.connect": "zookeeper-1:port"}, "needs host:port"),
        ({"preferred.replica.time.ms": "soon"}, "preferred.replica.time.ms must be"),
    ],
    ids=("plane", "roles", "no-servers", "no-port", "no-host", "0", "65536", "name", "no-number"),
)
def test_a_bad_configuration_is_refused(changed: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_settings(GOOD | changed)
