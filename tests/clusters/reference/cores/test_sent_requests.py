"""What a controller over ZooKeeper sends to brokers, and when it stops, without a cluster."""

from __future__ import annotations

import pytest
from controller_bench import OWN, TOPIC, ControllerBench, stat

from fencepost_clusters.reference.core.node.effects import Call, Reply, ToZooKeeper
from fencepost_clusters.reference.legacy.core import znodes
from fencepost_clusters.reference.legacy.core.controller.messages import BEING_DELETED, deletes
from fencepost_clusters.reference.over_zookeeper.core.contents import encode
from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire import legacy as w
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_kafka import BrokerDeclared, ChangeAnswered


@pytest.fixture
def bench() -> ControllerBench:
    return ControllerBench()


DELETION = zk.Delete(znodes.topic("orders"))


def change(bench: ControllerBench, message: m.Request) -> None:
    """An administrator's request, which the controller stores."""
    bench.controller.change(bench.received(message))
    bench.controller.go_on(bench.at(0))
    bench.stored()


def delete(bench: ControllerBench) -> list[Call]:
    """Marks the topic; returns the deleting StopReplica to each of its brokers."""
    change(bench, m.DeleteTopicsRequest(topic_names=("orders",), timeout=1000))
    waiting: list[Call] = []
    informed: set[tuple[str, int]] = set()
    while calls := bench.calls():
        for call in calls:
            if isinstance(call.message, w.StopReplicaRequest):
                assert informed >= {call.address}, "clients would still see the topic there"
                waiting.append(call)
            elif isinstance(call.message, w.UpdateMetadataRequest):
                states = [one for t in call.message.topic_states for one in t.partition_states]
                if any(one.leader == BEING_DELETED for one in states):
                    informed.add(call.address)
                bench.answer(call)
            else:
                bench.answer(call)
    assert [one.address[0] for one in waiting] == ["broker-2", "broker-3"]
    return waiting


def test_a_topic_is_deleted_once_every_broker_has_confirmed_it(bench: ControllerBench) -> None:
    """RP-25: a replica that stayed would become one of a later topic of that name."""
    first, last = delete(bench)
    answered = [one for one in bench.seen if isinstance(one, ChangeAnswered)]
    assert [(one.api, one.error) for one in answered] == [("DeleteTopics", "NONE")]
    bench.answer(first)
    assert bench.calls() == []
    bench.answer(last)
    bench.controller.go_on(bench.at(1))
    assert DELETION in bench.stored().writes
    assert "orders" not in bench.term.store.image.topics


def test_a_deletion_that_a_broker_did_not_confirm_begins_again_when_it_returns(
    bench: ControllerBench,
) -> None:
    """RP-25."""
    first, _ = delete(bench)
    bench.answer(first)
    bench.term.announcer.close(3)
    bench.term.announcer.continue_deletions()
    assert bench.calls() == []
    bench.controller.queues.open(3, OWN + 1, ("broker-3", 9094))
    bench.term.announcer.continue_deletions()
    again = {broker for broker, one in bench.control_requests() if deletes(one)}
    assert again == {2, 3}
    assert DELETION in bench.stored().writes


def test_a_refused_removal_does_not_count(bench: ControllerBench) -> None:
    first, last = delete(bench)
    bench.answer(first)
    bench.answer(last, Error.STALE_BROKER_EPOCH)
    bench.controller.go_on(bench.at(1))
    assert bench.out.drain() == ()


def test_a_topic_that_was_deleted_before_is_deleted_again(bench: ControllerBench) -> None:
    for _ in range(2):
        for call in delete(bench):
            bench.answer(call)
        bench.controller.go_on(bench.at(1))
        assert DELETION in bench.stored().writes
        topic = m.CreatableTopic(name="orders", num_partitions=1, replication_factor=2)
        change(bench, m.CreateTopicsRequest(topics=(topic,), timeout=1000))
        bench.control_requests()


def test_only_the_replicas_of_a_new_topic_are_called_new(bench: ControllerBench) -> None:
    topic = m.CreatableTopic(name="refunds", num_partitions=1, replication_factor=2)
    change(bench, m.CreateTopicsRequest(topics=(topic,), timeout=1000))
    bench.term.announcer.announce([partition(0, (2, 3), (2, 3), leader=2)])
    new = {
        (topic.topic_name, state.is_new)
        for _, one in bench.control_requests()
        if isinstance(one, w.LeaderAndIsrRequest)
        for topic in one.topic_states
        for state in topic.partition_states
    }
    assert new == {("refunds", True), ("orders", False)}


def test_a_reassignment_ends_with_the_isr_change_that_completes_it(bench: ControllerBench) -> None:
    """RP-20."""
    bench.term.store.stored.versions[znodes.topic("orders")] = 0
    bench.term.store.stored.replay([partition(0, (2, 3), (2,), leader=2, adding=(3,))])
    wanted = w.IsrChangePartition(leader_epoch=1, partition_index=0, isr_nodes=(2, 3))
    topic = w.IsrChangeTopic(topic_name="orders", partitions=(wanted,))
    asked = w.IsrChangeRequest(broker_id=2, incarnation_id=OWN, topics=(topic,))
    bench.controller.isr_change(bench.received(asked), asked)
    bench.controller.go_on(bench.at(1))
    bench.stored()
    one = bench.term.store.image.partitions[TOPIC][0]
    assert (one.isr, one.adding) == ((2, 3), ())


def test_a_replica_that_a_reassignment_removes_is_deleted(bench: ControllerBench) -> None:
    """RP-20."""
    bench.term.store.stored.versions[znodes.topic("orders")] = 0
    bench.term.store.stored.replay([partition(0, (2, 3), (2, 3), leader=2, removing=(3,))])
    bench.controller.tick(bench.at(1))
    bench.controller.go_on(bench.at(1))
    bench.stored()
    assert bench.term.store.image.partitions[TOPIC][0].replicas == (2,)
    deleted = [broker for broker, one in bench.control_requests() if deletes(one)]
    assert deleted == [3]


def test_a_replica_of_a_reassignment_that_is_cancelled_is_deleted(bench: ControllerBench) -> None:
    """RP-20."""
    bench.term.store.stored.versions[znodes.topic("orders")] = 0
    bench.term.store.stored.replay([partition(0, (2, 3), (2,), leader=2, adding=(3,))])
    cancelled = a.ReassignablePartition(partition_index=0, replicas=None)
    topic = a.ReassignableTopic(name="orders", partitions=(cancelled,))
    change(bench, a.AlterPartitionReassignmentsRequest(timeout=1000, topics=(topic,)))
    assert bench.term.store.image.partitions[TOPIC][0].replicas == (2,)
    assert [broker for broker, one in bench.control_requests() if deletes(one)] == [3]


def test_leaderships_return_to_preferred_replicas_at_intervals(bench: ControllerBench) -> None:
    """RP-21."""
    for ms in (1, 5001):
        bench.term.store.stored.replay([partition(0, (2, 3), (2, 3), leader=3)])
        for known in bench.term.brokers.values():
            known.heard_ns = bench.at(ms).monotonic_ns
        bench.controller.tick(bench.clock.now)
        bench.controller.go_on(bench.clock.now)
        bench.stored()
        assert bench.term.store.image.partitions[TOPIC][0].leader == 2


def test_a_request_without_an_answer_is_sent_again_after_a_pause(bench: ControllerBench) -> None:
    """HB-25."""
    bench.term.announcer.stop(2, bench.term.store.image.all_partitions())
    for ms in (0, 50):
        bench.at(ms)
        (call,) = bench.calls()
        bench.controller.queues.failed(call.call_id, bench.clock.now)
        assert bench.controller.queues.deadline_ns() == (ms + 50) * 1_000_000
        bench.at(ms + 49)
        assert bench.calls() == []


def test_a_defect_that_sends_nothing_again_goes_on_with_the_next_request() -> None:
    """HB-25."""
    bench = ControllerBench(is_sent_again=lambda api: False)
    for _ in range(2):
        bench.term.announcer.stop(2, bench.term.store.image.all_partitions())
    for ms in (0, 50):
        bench.at(ms)
        (call,) = bench.calls()
        bench.controller.queues.failed(call.call_id, bench.clock.now)
    bench.at(100)
    assert bench.calls() == []


def test_a_heartbeat_before_its_registration_is_read_is_answered_and_declares_nothing(
    bench: ControllerBench,
) -> None:
    """HB-13: the controller reads the registrations. A server of ZooKeeper that is behind may still
    have the former process's."""
    for broker, expected in ((9, w.BrokerState.INITIAL), (2, w.BrokerState.INACTIVE)):
        bench.term.brokers[2].state = w.BrokerState.INACTIVE
        beat = w.MetadataHeartbeatRequest(broker_id=broker, incarnation_id=OWN + 1, target_state=2)
        bench.controller.heartbeat(bench.received(beat), beat, bench.at(1))
        bench.controller.go_on(bench.at(1))
        info = bench.term.brokers[3].registration.info
        found = zk.Data(encode(info), stat(0, czxid=OWN))
        while asked := bench.reads():
            names = isinstance(asked.request, zk.GetChildren)
            answer = zk.Children(("2", "3"), stat(0)) if names else found
            bench.session.answered(asked.request_id, answer)
        replies = [one for one in bench.effects if isinstance(one, Reply)]
        assert isinstance(replies[-1].message, w.MetadataHeartbeatResponse)
        assert replies[-1].message.error_code == Error.NONE
        assert replies[-1].message.current_state == expected
    assert not any(isinstance(one, BrokerDeclared) for one in bench.seen)


def test_a_stopping_follower_is_not_started_again_by_the_isr_that_it_leaves(
    bench: ControllerBench,
) -> None:
    """KIP-380: a LeaderAndIsr of a newer state would restart the replica that was stopped, and the
    broker would end as a member of the ISR."""
    bench.term.add(bench.term.hand_over(3))
    bench.controller.go_on(bench.at(0))
    bench.stored()
    sent = bench.control_requests()
    to_follower = {type(one) for broker, one in sent if broker == 3}
    assert to_follower == {w.UpdateMetadataRequest, w.StopReplicaRequest}
    assert w.LeaderAndIsrRequest in [type(one) for broker, one in sent if broker == 2]
    assert bench.term.store.image.partitions[TOPIC][0].isr == (2,)


def partition(
    index: int,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    *,
    leader: int,
    adding: tuple[int, ...] = (),
    removing: tuple[int, ...] = (),
) -> r.PartitionRecord:
    return r.PartitionRecord(
        partition_id=index,
        topic_id=TOPIC,
        replicas=replicas,
        isr=isr,
        leader=leader,
        leader_epoch=1,
        adding_replicas=adding,
        removing_replicas=removing,
    )


def shut_down(
    bench: ControllerBench, broker: int, epoch: int = OWN
) -> w.ControlledShutdownResponse:
    """The answer to a ControlledShutdown, once what follows from it is stored."""
    asked = w.ControlledShutdownRequest(broker_id=broker, broker_epoch=epoch)
    bench.controller.controlled_shutdown(bench.received(asked), asked)
    bench.controller.go_on(bench.at(0))
    while True:
        for one in bench.take():
            if isinstance(one, Reply):
                assert isinstance(one.message, w.ControlledShutdownResponse)
                return one.message
        bench.store()


def test_a_controlled_shutdown_stops_what_the_broker_only_follows_and_names_what_it_leads(
    bench: ControllerBench,
) -> None:
    """HB-05 and KIP-380: orders-0 moves to broker 3. Only broker 2 has the data of orders-1."""
    versions = bench.term.store.stored.versions
    versions |= {znodes.state("orders", index): 0 for index in (1, 2)}
    versions[znodes.topic("orders")] = 0
    bench.term.store.stored.replay(
        [partition(1, (2, 3), (2,), leader=2), partition(2, (3,), (3,), leader=3)]
    )
    answer = shut_down(bench, 2)
    assert answer.error_code == Error.NONE
    left = [(one.topic_name, one.partition_index) for one in answer.remaining_partitions]
    assert left == [("orders", 1)]
    stopped = [
        (broker, one.topics)
        for broker, one in bench.control_requests()
        if isinstance(one, w.StopReplicaRequest)
    ]
    topic = w.StopReplicaTopic(topic_name="orders", partition_indexes=(0,))
    assert stopped == [(2, (topic,))]


def test_a_broker_that_was_granted_its_shutdown_gets_no_leadership_back(
    bench: ControllerBench,
) -> None:
    """HB-05: a last fetch may arrive after the grant, and the other member of the ISR may end."""
    assert shut_down(bench, 2).remaining_partitions == ()
    one = bench.term.store.image.partitions[TOPIC][0]
    assert (one.leader, one.isr) == (3, (3,))
    wanted = w.IsrChangePartition(
        leader_epoch=one.leader_epoch, partition_index=0, isr_nodes=(2, 3)
    )
    topic = w.IsrChangeTopic(topic_name="orders", partitions=(wanted,))
    asked = w.IsrChangeRequest(broker_id=3, incarnation_id=OWN, topics=(topic,))
    bench.controller.isr_change(bench.received(asked), asked)
    bench.controller.go_on(bench.at(1))
    bench.settle()
    assert bench.term.store.image.partitions[TOPIC][0].isr == (3,)
    bench.term.store.stored.replay([partition(0, (2, 3), (2, 3), leader=3)])
    bench.term.add(bench.term.declare(3, w.BrokerState.INACTIVE, "silent"))
    bench.controller.go_on(bench.at(1))
    bench.settle()
    assert bench.term.store.image.partitions[TOPIC][0].leader == -1


def test_a_stopping_broker_still_extends_the_isr_of_a_partition_that_only_it_can_lead(
    bench: ControllerBench,
) -> None:
    """HB-05: otherwise its shutdown would never be granted."""
    bench.term.store.stored.replay([partition(0, (2, 3), (2,), leader=2)])
    assert len(shut_down(bench, 2).remaining_partitions) == 1
    wanted = w.IsrChangePartition(leader_epoch=1, partition_index=0, isr_nodes=(2, 3))
    topic = w.IsrChangeTopic(topic_name="orders", partitions=(wanted,))
    asked = w.IsrChangeRequest(broker_id=2, incarnation_id=OWN, topics=(topic,))
    bench.controller.isr_change(bench.received(asked), asked)
    bench.controller.go_on(bench.at(1))
    bench.settle()
    assert shut_down(bench, 2).remaining_partitions == ()
    assert bench.term.store.image.partitions[TOPIC][0].leader == 3


@pytest.mark.parametrize(
    ("broker", "epoch", "error"),
    [(2, OWN - 1, Error.STALE_BROKER_EPOCH), (9, OWN, Error.BROKER_ID_NOT_REGISTERED)],
)
def test_a_refused_controlled_shutdown_names_nothing(
    broker: int, epoch: int, error: Error, bench: ControllerBench
) -> None:
    """BE-04."""
    answer = shut_down(bench, broker, epoch)
    assert (answer.error_code, answer.remaining_partitions) == (error, ())
    assert bench.calls() == []


def test_an_isr_that_its_leader_wrote_is_in_the_next_metadata(bench: ControllerBench) -> None:
    """HB-22."""
    path = znodes.state("orders", 0)
    bench.controller.fired(zk.Fired(path, zk.Watch.NODE, zk.ZnodeChange.DATA))
    bench.controller.go_on(bench.at(0))
    asked = bench.reads()
    assert asked is not None
    state = encode(znodes.PartitionState(2, 4, (2,), 1))
    bench.session.answered(asked.request_id, zk.Data(state, stat(1)))
    isrs = {
        (broker, one.isr)
        for broker, sent in bench.control_requests()
        if isinstance(sent, w.UpdateMetadataRequest)
        for topic in sent.topic_states
        for one in topic.partition_states
    }
    assert isrs == {(2, (2,)), (3, (2,))}


def test_the_metadata_name_the_replicas_of_an_inactive_broker_as_offline(
    bench: ControllerBench,
) -> None:
    """HB-03."""
    bench.term.add(bench.term.declare(3, w.BrokerState.INACTIVE, "silent"))
    bench.controller.go_on(bench.at(0))
    bench.stored()
    (sent,) = [
        one for _, one in bench.control_requests() if isinstance(one, w.UpdateMetadataRequest)
    ]
    (state,) = (one for topic in sent.topic_states for one in topic.partition_states)
    assert (state.replicas, state.offline_replicas) == ((2, 3), (3,))


def test_a_controller_that_lost_its_connection_sends_no_more_of_its_requests(
    bench: ControllerBench,
) -> None:
    """HB-27."""
    bench.term.announcer.stop(2, bench.term.store.image.all_partitions())
    bench.controller.lost_connection()
    assert bench.calls() == []


@pytest.mark.parametrize("reading", [True, False])
def test_a_controller_that_has_not_read_the_state_decides_nothing(
    reading: bool, bench: ControllerBench
) -> None:
    if reading:
        bench.term.ready = False
    else:
        bench.controller.lost_connection()
    topic = m.CreatableTopic(name="refunds", num_partitions=1, replication_factor=2)
    create = m.CreateTopicsRequest(topics=(topic,), timeout=1000)
    bench.controller.change(bench.received(create))
    shutdown = w.ControlledShutdownRequest(broker_id=2, broker_epoch=OWN)
    bench.controller.controlled_shutdown(bench.received(shutdown), shutdown)
    beat = w.MetadataHeartbeatRequest(broker_id=2, incarnation_id=OWN, target_state=2)
    bench.controller.heartbeat(bench.received(beat), beat, bench.at(1))
    change = w.IsrChangeRequest(broker_id=2, incarnation_id=OWN, topics=())
    bench.controller.isr_change(bench.received(change), change)
    created, stopped, heard, changed = [
        one.message for one in bench.take() if isinstance(one, Reply)
    ]
    assert isinstance(created, m.CreateTopicsResponse)
    assert created.topics[0].error_code == Error.NOT_CONTROLLER
    assert isinstance(stopped, w.ControlledShutdownResponse)
    assert stopped.error_code == Error.NOT_CONTROLLER
    assert isinstance(heard, w.MetadataHeartbeatResponse)
    assert heard.error_code == Error.NOT_CONTROLLER
    assert isinstance(changed, w.IsrChangeResponse)
    assert changed.top_level_error_code == Error.NOT_CONTROLLER
    bench.controller.go_on(bench.at(2))
    assert bench.take() == []


def test_a_defect_that_initialises_a_broker_once_lets_it_be_active_without_requests() -> None:
    """BE-06."""
    bench = ControllerBench(initialises=lambda was_known: not was_known)
    opened: list[bool] = []
    for state in (w.BrokerState.INACTIVE, w.BrokerState.ACTIVE) * 2:
        bench.term.add(bench.term.declare(3, state, "heartbeat"))
        bench.controller.go_on(bench.at(0))
        bench.settle()
        opened.append(3 in bench.controller.queues.opened())
    assert opened == [False, True, False, False]


@pytest.mark.parametrize("was", [True, False])
def test_a_defect_that_answers_as_a_former_controller_must_have_been_one(was: bool) -> None:
    """HB-27."""
    bench = ControllerBench(answers_as_controller=lambda is_one, was_one: is_one or was_one)
    if was:
        bench.controller.lost_connection()
    else:
        bench.controller.term = None
    beat = w.MetadataHeartbeatRequest(broker_id=2, incarnation_id=OWN, target_state=2)
    bench.controller.heartbeat(bench.received(beat), beat, bench.at(1))
    (reply,) = [one for one in bench.take() if isinstance(one, Reply)]
    assert isinstance(reply.message, w.MetadataHeartbeatResponse)
    assert reply.message.error_code == (Error.NONE if was else Error.NOT_CONTROLLER)


def test_a_process_that_loses_its_id_during_an_election_gives_it_up_once_it_is_over(
    bench: ControllerBench,
) -> None:
    """HB-24."""
    bench.controller.lost_connection()
    bench.session.changed(zk.Connected(7), bench.at(0))
    bench.controller.stand()
    created, _ = bench.asked()
    bench.controller.resign()
    assert bench.take() == []
    bench.session.answered(created.request_id, zk.Created(znodes.CONTROLLER, stat(0, owner=7)))
    for number in range(2):
        read, _ = bench.asked()
        assert read.request == zk.GetData(znodes.CONTROLLER, watch=not number)
        bench.session.answered(read.request_id, zk.Data(b"{}", stat(0, owner=7 + number)))
        if not number:
            epoch, _ = bench.asked()
            bench.session.answered(epoch.request_id, zk.Data(b"4", stat(4)))
            stored, _ = bench.asked()
            assert stored.request == zk.SetData(znodes.CONTROLLER_EPOCH, b"5", 4)
            bench.session.answered(stored.request_id, zk.DataSet(stat(5)))
    assert bench.take() == []
    assert bench.controller.term is None


def test_a_process_that_loses_its_id_without_a_connection_sends_nothing(
    bench: ControllerBench,
) -> None:
    bench.controller.resign()
    assert not any(isinstance(one, ToZooKeeper) for one in bench.take())


def test_watches_that_fire_while_a_job_waits_cause_one_broker_change(
    bench: ControllerBench,
) -> None:
    fired = zk.Fired(znodes.broker(2), zk.Watch.NODE, zk.ZnodeChange.DELETED)
    for _ in range(3):
        bench.controller.fired(fired)
    bench.controller.go_on(bench.at(0))
    reads = 0
    while asked := bench.reads():
        reads += isinstance(asked.request, zk.GetChildren)
        answer = zk.Refused(zk.Reason.NO_NODE)
        if isinstance(asked.request, zk.Multi):
            bench.session.answered(asked.request_id, zk.Done((zk.Checked(), zk.DataSet(stat(1)))))
        else:
            bench.session.answered(asked.request_id, answer)
    assert reads == 1
    bench.controller.fired(fired)
    bench.controller.go_on(bench.at(1))
    asked = bench.reads()
    assert asked is not None
    assert isinstance(asked.request, zk.GetChildren)
