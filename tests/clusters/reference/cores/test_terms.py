"""The jobs of a controller's term over ZooKeeper, without a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import msgspec
import pytest
from controller_bench import OWN, TOPIC, ControllerBench, at, stat

from fencepost_clusters.reference.core.node.effects import Note, Reply, ToZooKeeper
from fencepost_clusters.reference.legacy.core import znodes
from fencepost_clusters.reference.legacy.core.controller import messages
from fencepost_clusters.reference.legacy.core.controller.store import Steps
from fencepost_clusters.reference.legacy.core.registrations import Registration
from fencepost_clusters.reference.over_zookeeper.core.contents import decode, encode
from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire import legacy as w
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_clusters.zookeeper.simulation.tree import Tree
from fencepost_kafka import (
    BrokerDeclared,
    ControllerEnded,
    ControlRequestSent,
    IsrChangeJudged,
    TopicMarked,
    ZnodeUnreadable,
)


@pytest.fixture
def bench() -> ControllerBench:
    return ControllerBench()


def reads() -> Iterator[zk.Request]:
    """A job that waits for ZooKeeper."""
    yield zk.Exists("/x")


def wait(bench: ControllerBench) -> ToZooKeeper:
    """Begins a job that waits for ZooKeeper, so that later jobs wait behind it."""
    job: Steps = reads()  # type: ignore[assignment]
    bench.term.add(job)
    bench.controller.go_on(at(0))
    return bench.asked()[0]


def test_a_heartbeat_that_waits_while_another_process_registers_is_refused(
    bench: ControllerBench,
) -> None:
    """HB-12."""
    asked = wait(bench)
    bench.term.brokers[2].state = w.BrokerState.INACTIVE
    beat = w.MetadataHeartbeatRequest(broker_id=2, incarnation_id=OWN, target_state=2)
    bench.controller.heartbeat(bench.received(beat), beat, bench.at(1))
    bench.term.brokers[2].initialised = bench.term.brokers[2].incarnation = OWN + 1
    bench.out.drain()
    bench.session.answered(asked.request_id, zk.Found(None))
    (reply,) = (one for one in bench.out.drain() if isinstance(one, Reply))
    assert isinstance(reply.message, w.MetadataHeartbeatResponse)
    assert reply.message.error_code == Error.INVALID_INCARNATION_ID


def test_the_oldest_process_stays_in_an_isr_whose_members_all_registered_again(
    bench: ControllerBench,
) -> None:
    """RP-06: it still has the data from when the partition's state was written. A newer process may
    have an empty disk, and all followers would truncate to it."""
    term = bench.term
    info = term.brokers[2].registration.info
    for broker, epoch, since in ((2, 60, 10), (3, 50, 50)):
        later = msgspec.structs.replace(info, since=since if since != epoch else -1)
        known = term.brokers[broker]
        known.registration = Registration(broker, epoch, later, 1)
        known.initialised = known.incarnation = epoch
    term.store.written[TOPIC, 0] = 40
    term.add(term._end_inheritance())
    bench.controller.go_on(at(0))
    asked, _ = bench.asked()
    assert isinstance(asked.request, zk.Multi)
    (write,) = (one for one in asked.request.writes if isinstance(one, zk.SetData))
    content = decode(write.path, write.data, znodes.PartitionState)
    assert content.isr == (2,)


def test_a_process_that_lost_its_id_gives_the_election_up_and_never_stands_again(
    bench: ControllerBench,
) -> None:
    """HB-24: brokers would send the controller's requests to the process that has the id now."""
    bench.session.changed(zk.Connected(7), at(0))
    bench.controller.resign()
    asked, effects = bench.asked()
    assert any(isinstance(one, Note) and isinstance(one.body, ControllerEnded) for one in effects)
    bench.session.answered(asked.request_id, zk.Data(b"{}", stat(2, owner=7)))
    assert bench.asked()[0].request == zk.Delete(znodes.CONTROLLER, 2)
    bench.controller.stand()
    assert bench.out.drain() == ()


@pytest.mark.parametrize("heard", [True, False])
def test_a_broker_that_sends_a_heartbeat_while_its_declaration_waits_stays_active(
    heard: bool, bench: ControllerBench
) -> None:
    """HB-09."""
    bench.term.brokers[3].heard_ns = at(3000).monotonic_ns
    bench.controller.tick(bench.at(2998))
    bench.controller.go_on(bench.at(2998))
    bench.controller.tick(bench.at(2999))
    assert not bench.term.has_work
    asked = wait(bench)
    bench.controller.tick(bench.at(3001))
    if heard:
        beat = w.MetadataHeartbeatRequest(broker_id=2, incarnation_id=OWN, target_state=2)
        bench.controller.heartbeat(bench.received(beat), beat, bench.at(3002))
    bench.controller.tick(bench.at(3003))
    bench.out.drain()
    bench.session.answered(asked.request_id, zk.Found(None))
    declared = [one for one in bench.notes() if isinstance(one, BrokerDeclared)]
    assert [(one.broker_id, one.new) for one in declared] == ([] if heard else [(2, "Inactive")])


def test_a_broker_that_falls_silent_again_is_declared_inactive_again() -> None:
    """HB-09, HB-10."""
    bench = ControllerBench()
    bench.term.store.stored.replay([r.DeleteTopicRecord(name=TOPIC)])
    bench.term.brokers.pop(3)
    for ms in (0, 4000):
        beat = w.MetadataHeartbeatRequest(broker_id=2, incarnation_id=OWN, target_state=2)
        bench.controller.heartbeat(bench.received(beat), beat, bench.at(ms))
        for later in (2999, 3000):
            bench.controller.go_on(bench.clock.now)
            bench.controller.tick(bench.at(ms + later))
        bench.controller.go_on(bench.clock.now)
    bench.take()
    declared = [one.new for one in bench.seen if isinstance(one, BrokerDeclared)]
    assert declared == ["Inactive", "Active", "Inactive"]


def test_the_requests_of_a_job_are_sent_before_the_next_job(bench: ControllerBench) -> None:
    """HB-03: a request that names a broker is not sent after the broker was declared inactive."""

    def send_metadata() -> Steps:
        image, announced = bench.term.store.image, bench.term.announcer.announced()
        sender, every = bench.term.announcer.sender, image.all_partitions()
        bench.controller.queues.add(
            3, lambda epoch: messages.update_metadata(sender, image, epoch, every, announced)
        )
        return
        yield

    bench.term.add(send_metadata())
    bench.term.add(bench.term.declare(2, w.BrokerState.INACTIVE, "silent"))
    bench.controller.go_on(at(0))
    kinds = [
        type(one) for one in bench.notes() if isinstance(one, BrokerDeclared | ControlRequestSent)
    ]
    assert kinds[:2] == [ControlRequestSent, BrokerDeclared]


@pytest.mark.parametrize("is_controller", [True, False])
def test_only_the_current_controller_confirms_an_isr_that_needs_no_change(
    is_controller: bool, bench: ControllerBench
) -> None:
    """HB-21: a deposed controller may not know that it is deposed, nor which ISR is stored."""
    wanted = w.IsrChangePartition(leader_epoch=4, partition_index=0, isr_nodes=(2, 3))
    topic = w.IsrChangeTopic(topic_name="orders", partitions=(wanted,))
    change = w.IsrChangeRequest(broker_id=2, incarnation_id=OWN, topics=(topic,))
    bench.controller.isr_change(bench.received(change), change)
    bench.controller.go_on(bench.at(1))
    asked, effects = bench.asked()
    assert asked.request == zk.Multi((zk.Check(znodes.CONTROLLER_EPOCH, 0),))
    assert not any(isinstance(one, Reply) for one in effects)
    result = zk.Checked() if is_controller else zk.Refused(zk.Reason.BAD_VERSION)
    bench.session.answered(asked.request_id, zk.Done((result,)))
    effects = list(bench.out.drain())
    replies = [one.message for one in effects if isinstance(one, Reply)]
    ended = [
        one for one in effects if isinstance(one, Note) and isinstance(one.body, ControllerEnded)
    ]
    none = w.IsrChangeResponse(
        top_level_error_code=Error.NONE, results=(w.IsrChangeResult(error_code=Error.NONE),)
    )
    assert replies == ([none] if is_controller else [])
    assert bool(ended) is not is_controller


def test_a_controller_whose_term_ends_while_an_isr_is_stored_does_not_judge_it(
    bench: ControllerBench,
) -> None:
    """HB-17: the leader asks the next controller, which knows what is stored."""
    wanted = w.IsrChangePartition(leader_epoch=4, partition_index=0, isr_nodes=(2,))
    topic = w.IsrChangeTopic(topic_name="orders", partitions=(wanted,))
    change = w.IsrChangeRequest(broker_id=2, incarnation_id=OWN, topics=(topic,))
    bench.controller.isr_change(bench.received(change), change)
    bench.controller.go_on(bench.at(1))
    bench.take()
    bench.controller.lost_connection()
    bench.settle()
    (reply,) = [one for one in bench.effects if isinstance(one, Reply)]
    assert isinstance(reply.message, w.IsrChangeResponse)
    assert reply.message.top_level_error_code == Error.NOT_CONTROLLER
    (judged,) = [one for one in bench.seen if isinstance(one, IsrChangeJudged)]
    assert not judged.active


def test_a_topic_whose_znode_the_controller_does_not_know_is_refused_as_existing(
    bench: ControllerBench,
) -> None:
    odd = m.CreatableTopic(name="odd", num_partitions=1, replication_factor=2)
    request = m.CreateTopicsRequest(topics=(odd,), timeout=1000)
    bench.controller.change(bench.received(request))
    bench.controller.go_on(bench.at(0))
    asked, _ = bench.asked()
    assert isinstance(asked.request, zk.Multi)
    after = len(asked.request.writes) - 2
    results = (
        zk.Refused(zk.Reason.ROLLED_BACK),
        zk.Refused(zk.Reason.NODE_EXISTS),
        *[zk.Refused(zk.Reason.AFTER_REFUSED)] * after,
    )
    bench.session.answered(asked.request_id, zk.Done(results))
    (reply,) = [one for one in bench.take() if isinstance(one, Reply)]
    assert isinstance(reply.message, m.CreateTopicsResponse)
    assert reply.message.topics[0].error_code == Error.TOPIC_ALREADY_EXISTS
    (unknown,) = (one for one in bench.seen if isinstance(one, ZnodeUnreadable))
    assert unknown.reason == f"{znodes.topic('odd')} exists and is not known"
    assert "odd" not in bench.term.store.image.topics


def test_new_partitions_are_stored_in_one_transaction_and_announced_as_new(
    bench: ControllerBench,
) -> None:
    bench.term.store.stored.versions[znodes.topic("orders")] = 4
    placed = (a.CreatePartitionsAssignment(broker_ids=(3, 2)),)
    orders = a.CreatePartitionsTopic(name="orders", count=2, assignments=placed)
    request = a.CreatePartitionsRequest(topics=(orders,), timeout=1000)
    bench.controller.change(bench.received(request))
    bench.controller.go_on(bench.at(0))
    stored = bench.stored()
    made = f"{znodes.partitions('orders')}/1"
    check, parent, state, assigned = stored.writes
    assert check == bench.term.store.stored.epoch_check
    assert [parent, state.path] == [zk.Create(made), znodes.state("orders", 1)]
    assert isinstance(assigned, zk.SetData)
    assert (assigned.path, assigned.version) == (znodes.topic("orders"), 4)
    content = decode(assigned.path, assigned.data, znodes.Assignment)
    assert content.partitions == {"0": (2, 3), "1": (3, 2)}
    (commanded,) = {
        one.topic_states
        for _, one in bench.control_requests()
        if isinstance(one, w.LeaderAndIsrRequest)
    }
    (new,) = commanded[0].partition_states
    assert (new.partition_index, new.leader, new.is_new) == (1, 3, True)


def test_a_broker_change_distinguishes_a_bounce_from_a_first_registration(
    bench: ControllerBench,
) -> None:
    """BE-05. Broker 3 is gone, broker 2 has bounced, and broker 4 is new."""
    tree = Tree()
    tree.begin(1, 10**9, 0)
    state = znodes.state("orders", 0)
    parents = [state[:at] for at, letter in enumerate(state) if letter == "/" and at]
    for path in (*znodes.PERSISTENT, znodes.CONTROLLER_EPOCH, *parents, state):
        tree.request(1, zk.Create(path), 0)
    for broker in (2, 4):
        info = znodes.BrokerInfo(5, (("REPLICATION", f"broker-{broker}", 9094),))
        tree.request(1, zk.Create(znodes.broker(broker), encode(info)), 0)
    bench.term.change_soon()
    steps = bench.term.work()
    request = next(steps)
    with suppress(StopIteration):
        while True:
            request = steps.send(tree.request(1, request, 0)[0])
    declared = [one for one in bench.notes() if isinstance(one, BrokerDeclared)]
    assert [(one.broker_id, one.new, one.reason) for one in declared] == [
        (3, "Absent", "gone"),
        (2, "Absent", "bounced"),
        (2, "Initial", "bounced"),
        (4, "Initial", "registered"),
    ]
    assert set(bench.controller.queues.opened()) == set()


def test_a_controller_that_finds_a_topic_marked_for_deletion_reports_the_mark(
    bench: ControllerBench,
) -> None:
    """The controller that has marked it may be dead, and its event lost."""
    tree = Tree()
    tree.begin(1, 10**9, 0)
    for path in (*znodes.PERSISTENT, f"{znodes.DELETE_TOPICS}/orders"):
        tree.request(1, zk.Create(path), 0)
    steps = bench.term.store.read()
    request = next(steps)
    with suppress(StopIteration):
        while True:
            request = steps.send(tree.request(1, request, 0)[0])
    marked = [one for one in bench.notes() if isinstance(one, TopicMarked)]
    assert [(one.topic, one.topic_id) for one in marked] == [("orders", str(TOPIC))]
    assert marked[0].offset > 0


def test_a_defect_that_answers_an_isr_change_before_it_is_stored_answers_once() -> None:
    """HB-21."""
    bench = ControllerBench(answers_before_stored=lambda: True)
    wanted = w.IsrChangePartition(leader_epoch=4, partition_index=0, isr_nodes=(2,))
    topic = w.IsrChangeTopic(topic_name="orders", partitions=(wanted,))
    change = w.IsrChangeRequest(broker_id=2, incarnation_id=OWN, topics=(topic,))
    bench.controller.isr_change(bench.received(change), change)
    bench.controller.go_on(bench.at(1))
    (reply,) = (one for one in bench.take() if isinstance(one, Reply))
    assert isinstance(reply.message, w.IsrChangeResponse)
    assert [one.error_code for one in reply.message.results] == [Error.NONE]
    bench.stored()
    assert len([one for one in bench.seen if isinstance(one, IsrChangeJudged)]) == 1
