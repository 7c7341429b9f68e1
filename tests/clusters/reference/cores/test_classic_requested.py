"""Replicas without a controller: they start, and go, upon requests."""

from __future__ import annotations

from tests.clusters.reference.broker_bench import ME, OTHER, BrokerBench
from tests.clusters.reference.classic_bench import (
    KEY,
    TOPIC,
    at,
    bench,
    children,
    exists,
    isr,
    known,
    noted,
    once,
    other_broker,
    process,
    restarted,
    started,
    topic,
)

from fencepost_clusters.reference.classic.core import writes, znodes
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.replication.replica import log_name
from fencepost_clusters.reference.over_zookeeper.core.contents import encode
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_kafka import (
    BrokerRegistered,
    LeadershipEnded,
    LeadershipStarted,
    ReplicaRemoved,
    StateChangeCarriedOut,
)

LEADER = znodes.leader("orders", 0)
REASSIGNED = znodes.reassigned("orders", 0)
STATE = znodes.state("orders", 0, 1)


def follower() -> BrokerBench:
    """A bench whose broker is a new replica of a partition that broker 2 leads."""
    one = started()
    other_broker(one)
    two = process(one, 2)
    topic(one, (2,), isr((2,), (two,)))
    content = znodes.Isr(epoch=4, leader=2, isr=(2,), since=(two,), version=1)
    leader = zk.Create(LEADER, b"2", ephemeral=True)
    one.write(zk.Multi((leader, zk.SetData(znodes.isr("orders", 0), encode(content)))))
    return one


def called_off(one: BrokerBench) -> None:
    """The reassignment ends without its new replica, as a broker stores that."""
    replicas = encode(znodes.Assigned(replicas=(2,), version=1))
    write = zk.SetData(znodes.replicas("orders", 0), replicas)
    one.write(zk.Multi((write, zk.Delete(REASSIGNED))))


def assigned(one: BrokerBench) -> None:
    target = encode(znodes.Assigned(replicas=(2, 1), version=1))
    one.write(zk.Create(REASSIGNED, target))
    assert not known(one).data.replicas.all()
    one.write(zk.Create(STATE))
    one.write(writes.request("orders", 0, 1, znodes.StateChange.ASSIGNED))


def test_a_new_replica_starts_once_it_is_requested_to() -> None:
    one = follower()
    assigned(one)
    assert [each.key for each in known(one).data.replicas.all()] == [KEY]
    (carried_out,) = noted(one, StateChangeCarriedOut)
    assert (carried_out.change, carried_out.moot) == ("assigned", False)
    assert children(one, STATE) == ()


def test_a_replica_that_is_no_more_assigned_goes_upon_a_request() -> None:
    one = follower()
    assigned(one)
    called_off(one)
    assert known(one).data.replicas.all()
    one.write(writes.request("orders", 0, 1, znodes.StateChange.UNASSIGNED))
    assert not known(one).data.replicas.all()
    (removed,) = noted(one, ReplicaRemoved)
    assert removed.reason == "unassigned"
    assert not exists(one, STATE)


def test_a_replica_that_goes_and_comes_back_waits_for_a_request() -> None:
    one = follower()
    assigned(one)
    called_off(one)
    one.write(writes.request("orders", 0, 1, znodes.StateChange.UNASSIGNED))
    assigned(one)
    assert known(one).data.replicas.all()


def leading(replicas: tuple[int, ...]) -> BrokerBench:
    """A bench whose broker leads a partition as the only member of the ISR."""
    one = started()
    topic(one, replicas, isr((1,), (known(one).elections.process,)))
    one.passes(0.01)
    assert noted(one, LeadershipStarted)
    return one


def deleted(one: BrokerBench) -> None:
    marked = encode(znodes.Topic(id=TOPIC, version=1, deleting=True))
    request = writes.request("orders", 0, 1, znodes.StateChange.DELETE)
    one.write(zk.Multi((zk.SetData(znodes.topic("orders"), marked), request)))


def test_a_topic_is_gone_once_its_last_replica_is() -> None:
    one = leading((1,))
    deleted(one)
    assert not exists(one, znodes.topic("orders"))
    assert not exists(one, znodes.reassignments("orders"))
    assert [x.reason for x in noted(one, ReplicaRemoved)] == ["deleted"]
    assert [x.reason for x in noted(one, LeadershipEnded)] == ["deleted"]
    image = known(one).known.image
    assert (image.topics, image.names, image.deleting, image.settings) == ({}, {}, set(), {})
    assert not known(one).known.isrs
    assert not known(one).known.offsets
    one.passes(5)


def test_a_topic_stays_while_another_replica_is_left() -> None:
    one = leading((1, 2))
    deleted(one)
    assert exists(one, znodes.topic("orders"))
    assert not exists(one, LEADER)
    assert not exists(one, STATE)


def test_a_leader_whose_replica_is_gone_waits_for_zookeeper_and_not_for_followers() -> None:
    """ZooKeeper hangs while the broker gives up a leadership whose first ISR it had not stored."""
    one = started()
    other_broker(one)
    topic(one, (1, 2), isr((1, 2), (known(one).elections.process, process(one, 2))))
    one.passes(0.01)
    assert not noted(one, LeadershipStarted)
    left_ns = []

    def hangs(request: zk.Request) -> None:
        one.now_ns += 6_000_000_000
        known(one).handle(e.Tick(), e.Instant(one.now_ns, 0))
        due_ns = known(one).deadline_ns()
        assert due_ns is not None
        left_ns.append(due_ns - one.now_ns)

    one.meddles = once(lambda request: request == zk.Delete(LEADER), hangs)
    deleted(one)
    assert left_ns[0] > 0


def test_a_new_replica_of_a_topic_that_is_deleted_goes_too() -> None:
    one = follower()
    assigned(one)
    marked = encode(znodes.Topic(id=TOPIC, version=1, deleting=True))
    one.write(zk.SetData(znodes.topic("orders"), marked))
    assert not known(one).data.replicas.all()
    assert not exists(one, STATE)


def test_a_request_that_comes_between_two_reads_is_carried_out() -> None:
    """The replica has no requests yet when they are listed, and has one before they are watched."""
    one = follower()

    def comes(_: zk.Request) -> zk.Answer:
        target = encode(znodes.Assigned(replicas=(2, 1), version=1))
        at(one, zk.Create(REASSIGNED, target))
        at(one, zk.Create(STATE))
        at(one, writes.request("orders", 0, 1, znodes.StateChange.ASSIGNED))
        return zk.Refused(zk.Reason.NO_NODE)

    one.meddles = once(lambda request: request == zk.GetChildren(STATE, watch=True), comes)
    one.give(e.ZooKeeperEvent(zk.Suspended()))
    one.give(e.ZooKeeperEvent(zk.Connected(ME)))
    assert [each.key for each in known(one).data.replicas.all()] == [KEY]
    assert children(one, STATE) == ()


def test_a_follower_fetches_at_once_from_its_leaders_next_process() -> None:
    """And does not wait as long as it would after a failed call."""
    one = follower()
    assigned(one)
    failed = one.called(m.FetchRequest)
    one.give(e.CallFailed(failed.call_id, "refused"))
    one.calls.clear()
    restarted(one)
    assert one.called(m.FetchRequest).address == failed.address


def test_a_replica_that_goes_takes_no_leadership_from_another_broker() -> None:
    one = follower()
    assigned(one)
    called_off(one)
    one.write(writes.request("orders", 0, 1, znodes.StateChange.UNASSIGNED))
    assert not known(one).data.replicas.all()
    assert exists(one, LEADER)


def test_a_partition_is_read_before_a_request_about_it_is_carried_out() -> None:
    one = follower()
    assigned(one)
    before = len(one.asked)
    one.write(writes.request("orders", 0, 1, znodes.StateChange.BECOME_FOLLOWER))
    reads = [n for n, each in enumerate(one.asked) if isinstance(each, zk.GetData)]
    (request,) = [n for n in reads if n >= before and one.asked[n].path.startswith(STATE)]
    (done,) = [n for n, each in enumerate(one.asked) if n > request and isinstance(each, zk.Delete)]
    read = zk.GetData(znodes.isr("orders", 0), watch=True)
    assert read in one.asked[request:done]


def test_a_topic_that_is_not_deleted_outlives_its_last_replica() -> None:
    """The request is of an earlier topic of this name."""
    one = leading((1,))
    one.write(writes.request("orders", 0, 1, znodes.StateChange.DELETE))
    assert exists(one, znodes.topic("orders"))
    assert zk.GetChildren(znodes.states("orders", 0)) not in one.asked


def test_registrations_are_numbered_by_their_znode() -> None:
    one = started()
    (registered,) = noted(one, BrokerRegistered)
    assert process(one, 1) == registered.broker_epoch


def test_the_log_of_a_new_replica_stays_on_disk_until_a_request() -> None:
    """Its process was restarted, and the leader has not requested it again."""
    log = log_name("orders", KEY)
    one = bench()
    for path in (znodes.BROKERS, *znodes.PERSISTENT):
        content = encode(znodes.BrokerSettings(version=1)) if path == znodes.BROKERS else b""
        one.write(zk.Create(path, content))
    topic(one, (2,), isr((2,), (-5,)))
    one.write(zk.Create(REASSIGNED, encode(znodes.Assigned(replicas=(2, 1), version=1))))
    one.write(zk.Create(STATE))
    one.start(logs={log: ()})
    called_off(one)
    other_broker(one)
    assert not [each for each in one.effects if isinstance(each, e.Delete)]
    one.write(writes.request("orders", 0, 1, znodes.StateChange.UNASSIGNED))
    assert [each.log for each in one.effects if isinstance(each, e.Delete)] == [log]
    assert [each.reason for each in noted(one, ReplicaRemoved)] == ["stray"]


def test_a_request_that_goes_while_it_is_read_is_passed_over() -> None:
    one = leading((1,))

    def gone(request: zk.Request) -> zk.Answer | None:
        if isinstance(request, zk.GetData) and "request-" in request.path:
            one.tree.request(OTHER, zk.Delete(request.path), 0)
        return None

    one.meddles = gone
    one.write(writes.request("orders", 0, 1, znodes.StateChange.UNASSIGNED))
    assert not noted(one, StateChangeCarriedOut)


def test_requests_are_carried_out_in_their_order() -> None:
    one = follower()
    one.write(zk.Create(REASSIGNED, encode(znodes.Assigned(replicas=(2, 1), version=1))))
    path = STATE
    several = (
        zk.Create(path),
        writes.request("orders", 0, 1, znodes.StateChange.BECOME_FOLLOWER),
        writes.request("orders", 0, 1, znodes.StateChange.UNASSIGNED),
        writes.request("orders", 0, 1, znodes.StateChange.ASSIGNED),
    )
    one.write(zk.Multi(several))
    done = noted(one, StateChangeCarriedOut)
    assert [(each.change, each.moot) for each in done] == [
        ("become_follower", False),
        ("unassigned", True),
        ("assigned", False),
    ]
    assert [each.path for each in done] == sorted(each.path for each in done)
    assert children(one, STATE) == ()
