"""One broker over ZooKeeper; the test answers in place of the controller and of clients."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import pytest
from broker_bench import ME, OTHER, SECOND, BrokerBench
from msgspec.structs import replace
from role_requests import roles

from fencepost import NodeStopped
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.replication.replica import log_name
from fencepost_clusters.reference.legacy.core import znodes
from fencepost_clusters.reference.legacy.core.broker.broker import LegacyNode
from fencepost_clusters.reference.legacy.core.broker.registration import Peers
from fencepost_clusters.reference.legacy.core.controller.messages import BEING_DELETED
from fencepost_clusters.reference.over_zookeeper.core.contents import decode, encode
from fencepost_clusters.reference.wire import legacy as w
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire.errors import Error
from fencepost_clusters.zookeeper.client import port as zk
from fencepost_kafka import (
    BrokerRegistered,
    BrokerStateChanged,
    ControllerBegan,
    ControllerEnded,
    ControlRequestAnswered,
    LeadershipEnded,
    LeadershipStarted,
    MetadataHeartbeatReceived,
)

TOPIC = znodes.topic_id("orders")
HEARTBEAT = w.MetadataHeartbeatRequest(broker_id=2, incarnation_id=7, target_state=2)
SHUTDOWN = w.ControlledShutdownRequest(broker_id=2, broker_epoch=7)
BATCH = record_batch.build([b"x"], 0, -1, 1)
PRODUCE = m.ProduceRequest(
    acks=-1,
    timeout=60_000,
    topic_data=(
        m.TopicProduceData(
            name="orders", partition_data=(m.PartitionProduceData(index=0, records=BATCH),)
        ),
    ),
)


LEARN = w.UpdateMetadataRequest(
    controller_id=2,
    controller_epoch=1,
    broker_epoch=w.NO_EPOCH,
    topic_states=(
        w.UpdateMetadataTopic(
            topic_name="orders",
            partition_states=(
                w.UpdateMetadataPartition(
                    partition_index=0,
                    controller_epoch=1,
                    leader=1,
                    leader_epoch=1,
                    isr=(1, 2),
                    zk_version=0,
                    replicas=(1, 2),
                    offline_replicas=(),
                ),
            ),
        ),
    ),
    live_brokers=tuple(w.UpdateMetadataBroker(id=broker, endpoints=()) for broker in (1, 2)),
)


def follower(bench: BrokerBench) -> BrokerBench:
    """Broker 1 has registered, and broker 2 is the controller."""
    bench.write(zk.Create(znodes.CONTROLLER, encode(znodes.ControllerInfo(2))))
    bench.start()
    bench.registers(2)
    bench.passes(0.1)
    return bench


def leader(bench: BrokerBench | None = None, **settings: str) -> BrokerBench:
    """Broker 1 is active, and leads orders-0 in epoch 1 with broker 2 in the ISR."""
    bench = follower(bench or BrokerBench(**settings))
    beat = [one for one in bench.calls if isinstance(one.message, w.MetadataHeartbeatRequest)]
    for one in beat:
        bench.answer(one, w.MetadataHeartbeatResponse(error_code=Error.NONE, current_state=2))
    for request in (LEARN, roles(1, 1)):
        (answered,) = bench.asks("REPLICATION", request)
        assert isinstance(answered, e.Reply)
    return bench


def node(bench: BrokerBench) -> LegacyNode:
    assert isinstance(bench.core, LegacyNode)
    return bench.core


def test_a_request_before_the_registration_closes_its_connection() -> None:
    """Its sender asks again at once; without an answer it would wait for its timeout."""
    bench = BrokerBench()
    bench.give(e.Tick())
    (closed,) = bench.asks("REPLICATION", HEARTBEAT)
    assert isinstance(closed, e.Close)
    bench.give(e.Recovered({}, {}))
    (closed,) = bench.asks("REPLICATION", LEARN)
    assert isinstance(closed, e.Close), "BE-07: it cannot decide whether this is meant for it"


def test_a_broker_that_is_not_the_controller_refuses_a_controlled_shutdown() -> None:
    (reply,) = follower(BrokerBench()).asks("REPLICATION", SHUTDOWN)
    assert isinstance(reply, e.Reply)
    assert isinstance(reply.message, w.ControlledShutdownResponse)
    assert reply.message.error_code == Error.NOT_CONTROLLER


def test_a_stopping_broker_stays_while_it_leads_though_the_controller_left_it_nothing() -> None:
    """HB-05: it has not received the LeaderAndIsr by which it stops leading. When its time is up,
    it answers the writes that still wait for followers."""
    bench = leader(inter_broker_protocol="2", controlled_shutdown_timeout_ms="5000")
    assert bench.asks("CLIENT", PRODUCE) == []
    bench.give(e.ShutdownAsked())
    bench.passes(0.2)
    nothing = w.ControlledShutdownResponse(error_code=Error.NONE, remaining_partitions=())
    bench.answer(bench.called(w.ControlledShutdownRequest), nothing)
    bench.passes(4)
    assert bench.did(NodeStopped) == 0
    before = len(bench.answers)
    bench.passes(1)
    (ended,) = (
        one for one in bench.notes if isinstance(one, BrokerStateChanged) and one.new == "SHUTDOWN"
    )
    assert ended.reason == "shutdown_timeout"
    assert bench.did(NodeStopped) == 1
    (lost,) = (one for one in bench.notes if isinstance(one, LeadershipEnded))
    assert (lost.leader_epoch, lost.reason) == (1, "shutdown")
    assert bench.closed, "the controller would learn of its end by the session's timeout"
    (high_watermarks,) = {tuple(one.high_watermarks) for one in bench.checkpoints[-1:]}
    assert high_watermarks == (log_name("orders", (TOPIC, 0)),)
    (reply,) = bench.answers[before:]
    assert isinstance(reply, e.Reply)
    assert isinstance(reply.message, m.ProduceResponse)


def test_the_answer_to_an_isr_change_of_a_former_leader_epoch_has_no_effect() -> None:
    """The controller has elected since. The ISR of the newer epoch counts (HB-19)."""
    bench = leader(replica_lag_time_max_ms="1000")
    bench.passes(2)
    asked = bench.called(w.IsrChangeRequest)
    assert isinstance(asked.message, w.IsrChangeRequest)
    assert asked.message.topics[0].partitions[0].isr_nodes == (1,)
    bench.asks("REPLICATION", roles(1, 2, version=1))
    granted = w.IsrChangeResponse(
        top_level_error_code=Error.NONE, results=(w.IsrChangeResult(error_code=Error.NONE),)
    )
    bench.answer(asked, granted)
    assert node(bench).data.replicas.by_key[TOPIC, 0].partition.isr == (1, 2)


def test_a_broker_that_ends_without_replicas_leaves_its_checkpoint_as_it_is() -> None:
    """RP-08: the logs on its disk have no replicas before the controller names them."""
    bench = BrokerBench()
    bench.give(e.Tick())
    bench.give(e.Recovered({}, {}))
    bench.give(e.ShutdownAsked())
    assert bench.exited
    assert bench.checkpoints == []


def settings(values: Mapping[str, str]) -> bytes:
    return encode(znodes.Config(values))


def produced(bench: BrokerBench) -> int | None:
    """The error in the answer to a Produce; None without an answer."""
    for one in bench.asks("CLIENT", PRODUCE):
        assert isinstance(one, e.Reply)
        assert isinstance(one.message, m.ProduceResponse)
        return one.message.responses[0].partition_responses[0].error_code
    return None


def parents(path: str) -> list[str]:
    return [path[:at] for at, letter in enumerate(path) if letter == "/" and at]


THREE = settings({"min.insync.replicas": "3"})


def write(bench: BrokerBench, path: str, data: bytes) -> None:
    """Another client writes a znode, and those above it that are missing."""
    for one in (*parents(path), path):
        bench.tree.request(OTHER, zk.Create(one), 0)
    bench.write(zk.SetData(path, data))


SETTINGS = pytest.mark.parametrize("path", [znodes.config("orders"), znodes.BROKER_CONFIG])


@SETTINGS
@pytest.mark.parametrize("before", [True, False])
def test_a_leader_obeys_the_settings_of_its_topic_and_of_all_brokers(
    path: str, before: bool
) -> None:
    """The ISR of two is too small. The settings are there, or are changed later."""
    bench = BrokerBench()
    write(bench, path, THREE if before else settings({}))
    bench = leader(bench)
    if not before:
        assert produced(bench) is None
        write(bench, path, THREE)
    assert produced(bench) == Error.NOT_ENOUGH_REPLICAS


@SETTINGS
@pytest.mark.parametrize("same", [True, False], ids=["same session", "next session"])
@pytest.mark.parametrize("meanwhile", [True, False], ids=["meanwhile", "later"])
def test_a_leader_learns_of_settings_that_changed_while_it_had_no_connection_or_later(
    path: str, same: bool, meanwhile: bool
) -> None:
    """A connection's watches are lost with it."""
    bench = BrokerBench()
    write(bench, path, settings({}))
    bench = leader(bench)
    if same:
        bench.tree.disconnect(ME)
        bench.give(e.ZooKeeperEvent(zk.Suspended()))
    else:
        bench.session_ends()
    if meanwhile:
        write(bench, path, THREE)
    if same:
        bench.give(e.ZooKeeperEvent(zk.Connected(ME)))
    else:
        bench.session_begins()
        bench.passes(0)
        beat = bench.called(w.MetadataHeartbeatRequest)
        bench.answer(beat, w.MetadataHeartbeatResponse(error_code=Error.NONE, current_state=2))
    if not meanwhile:
        write(bench, path, THREE)
    assert produced(bench) == Error.NOT_ENOUGH_REPLICAS


def test_a_broker_that_registers_again_sends_a_heartbeat_at_once() -> None:
    """Until the answer it serves no client."""
    bench = leader()
    before = bench.now_ns
    bench.session_ends()
    bench.session_begins()
    bench.passes(0)
    (registered,) = [one for one in bench.notes if isinstance(one, BrokerRegistered)][1:]
    beat = bench.called(w.MetadataHeartbeatRequest)
    assert isinstance(beat.message, w.MetadataHeartbeatRequest)
    assert beat.message.incarnation_id == registered.broker_epoch
    assert bench.now_ns == before


def test_only_the_first_leader_and_isr_is_called_the_first() -> None:
    """BE-07 is judged by it."""
    bench = leader()
    bench.asks("REPLICATION", roles(1, 2))
    answered = [one for one in bench.notes if isinstance(one, ControlRequestAnswered)]
    assert [one.first for one in answered if one.api == "LeaderAndIsr"] == [True, False]


def test_a_broker_opens_a_session_once_its_logs_are_recovered_and_after_each_end() -> None:
    bench = BrokerBench()
    bench.give(e.Tick())
    bench.passes(1)
    assert bench.opened == 0
    bench.give(e.Recovered({}, {}))
    bench.passes(1)
    assert bench.opened == 1
    bench.give(e.ZooKeeperEvent(zk.Ended(zk.End.NEVER_MADE)))
    assert bench.opened == 1
    bench.passes(1)
    assert bench.opened == 2


@pytest.mark.parametrize("event", [zk.Suspended(), zk.Ended(zk.End.EXPIRED)])
def test_a_controller_without_its_connection_is_none_and_names_none(
    event: zk.Suspended | zk.Ended,
) -> None:
    """HB-27. It would send its heartbeats to itself."""
    bench = BrokerBench()
    bench.start()
    assert node(bench).elected == 1
    bench.give(e.ZooKeeperEvent(event))
    assert node(bench).elected is None
    assert node(bench).session.connected is None
    assert bench.did(ControllerEnded) == 1


def test_an_administrators_request_is_passed_on_to_the_controller_and_its_answer_back() -> None:
    bench = leader()
    topic = m.CreatableTopic(name="refunds", num_partitions=1, replication_factor=2)
    create = m.CreateTopicsRequest(topics=(topic,), timeout=5000)
    assert bench.asks("CLIENT", create) == []
    for error in (Error.NOT_CONTROLLER, Error.NONE):
        bench.passes(0.5)
        call = bench.called(m.CreateTopicsRequest)
        assert call.address == ("broker-2", 9094)
        before = len(bench.answers)
        answer = m.CreateTopicsResponse(
            topics=(m.CreatableTopicResult(name="refunds", error_code=error),)
        )
        bench.answer(call, answer)
    assert [one.message for one in bench.answers[before:] if isinstance(one, e.Reply)] == [answer]


def test_a_controller_whose_znodes_another_client_removed_begins_a_new_term() -> None:
    """It still holds the election: no other broker would begin one."""
    bench = BrokerBench()
    bench.start()
    bench.passes(1)
    topic = m.CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
    bench.asks("REPLICATION", m.CreateTopicsRequest(topics=(topic,), timeout=1000))
    bench.passes(1)
    bench.write(zk.Delete(znodes.state("orders", 0)))
    bench.asks("REPLICATION", m.DeleteTopicsRequest(topic_names=("orders",), timeout=1000))
    bench.passes(1)
    began = [one.epoch for one in bench.notes if isinstance(one, ControllerBegan)]
    assert began == [1, 2]


def test_a_controller_runs_for_minutes_and_does_at_each_tick_what_is_due() -> None:
    """`passes` fails where a Tick leaves what is due undone."""
    bench = BrokerBench()
    bench.start()
    bench.passes(120)
    accepted = [one for one in bench.notes if isinstance(one, MetadataHeartbeatReceived)]
    assert 55 <= sum(one.error == "NONE" for one in accepted) <= 65
    assert bench.did(ControllerBegan) == 1


def test_a_leader_whose_write_of_an_isr_got_no_answer_writes_it_again() -> None:
    """HB-22."""
    bench = BrokerBench(inter_broker_protocol="2", replica_lag_time_max_ms="1000")
    state = znodes.state("orders", 0)
    for one in parents(state):
        bench.tree.request(OTHER, zk.Create(one), 0)
    content = znodes.PartitionState(1, 1, (1, 2), 1)
    bench.write(zk.Create(state, encode(content)))
    leader(bench)
    bench.loses = True
    bench.passes(3)
    bench.loses = False
    bench.passes(1)
    stored, _ = bench.tree.request(OTHER, zk.GetData(state), 0)
    assert isinstance(stored, zk.Data)
    assert decode(state, stored.data, znodes.PartitionState).isr == (1,)


def test_a_broker_serves_no_metadata_of_a_topic_in_deletion() -> None:
    """RP-25."""
    bench = leader()
    for names in (["orders"], []):
        (reply,) = bench.asks("CLIENT", m.MetadataRequest(topics=None))
        assert isinstance(reply, e.Reply)
        assert isinstance(reply.message, m.MetadataResponse)
        assert [topic.name for topic in reply.message.topics] == names
        (topic,) = LEARN.topic_states
        deleted = tuple(replace(one, leader=BEING_DELETED) for one in topic.partition_states)
        states = (replace(topic, partition_states=deleted),)
        bench.asks("REPLICATION", replace(LEARN, topic_states=states))


def test_a_silent_controllers_broker_serves_up_to_the_moment_at_which_it_fences_itself() -> None:
    """HB-06, HB-07."""
    bench = leader(broker_heartbeat_timeout_ms="13000")
    (accepted,) = (one for one in bench.notes if isinstance(one, MetadataHeartbeatReceived))
    fenced_ns = accepted.sent_ns + 13 * SECOND
    bench.passes((fenced_ns - bench.now_ns) / SECOND - 0.001)
    for now_ns, served in ((bench.now_ns, True), (fenced_ns, False)):
        bench.now_ns = now_ns
        (answer,) = bench.asks("CLIENT", m.MetadataRequest(topics=None))
        assert isinstance(answer, e.Reply) is served


def fetch_of_broker_2(broker_epoch: int, offset: int) -> m.FetchRequest:
    at = {"current_leader_epoch": 1, "last_fetched_epoch": 1}
    part = m.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000, **at)
    topics = (m.FetchTopic(partitions=(part,), topic="orders", topic_id=TOPIC),)
    follower = m.ReplicaState(replica_id=2, replica_epoch=broker_epoch)
    limits = {"max_wait": 0, "min_bytes": 0, "max_bytes": 1000}
    return m.FetchRequest(topics=topics, replica_state=follower, **limits)


def test_what_a_replaced_process_has_fetched_counts_no_longer() -> None:
    """HB-24: the next process may have an empty disk."""
    bench = leader()
    bench.asks("CLIENT", PRODUCE)
    one = node(bench).data.replicas.by_key[TOPIC, 0]
    bench.asks("REPLICATION", fetch_of_broker_2(node(bench).peers.known[2].epoch, 1))
    assert one.end_of(2) == 1
    bench.write(zk.Delete(znodes.broker(2)))
    bench.registers(2)
    assert one.end_of(2) < 0


def test_a_fetch_of_a_replaced_process_is_refused() -> None:
    """HB-24."""
    bench = leader()
    epoch = node(bench).peers.known[2].epoch
    for replica_epoch, error in ((epoch - 1, Error.STALE_BROKER_EPOCH), (epoch, Error.NONE)):
        (reply,) = bench.asks("REPLICATION", fetch_of_broker_2(replica_epoch, 0))
        assert isinstance(reply, e.Reply)
        assert isinstance(reply.message, m.FetchResponse)
        assert reply.message.error_code == error


def test_a_broker_calls_no_controller_whose_registration_is_gone() -> None:
    bench = leader()
    bench.passes(0.5)
    bench.write(zk.Delete(znodes.broker(2)))
    bench.calls.clear()
    bench.passes(5)
    assert bench.calls == []
    bench.registers(2)
    bench.passes(0.1)
    assert bench.called(w.MetadataHeartbeatRequest).address == ("broker-2", 9094)


ACTIVE = w.MetadataHeartbeatResponse(error_code=Error.NONE, current_state=2)


@pytest.mark.parametrize("taken_over", [True, False])
def test_the_answer_to_a_heartbeat_of_before_makes_no_broker_active(taken_over: bool) -> None:
    """HB-12, HB-24: another process has the id meanwhile, or this one has registered again."""
    bench = follower(BrokerBench())
    beat = bench.called(w.MetadataHeartbeatRequest)
    bench.tree.end(ME)
    if taken_over:
        info = encode(znodes.BrokerInfo(5, ()))
        bench.tree.request(OTHER, zk.Create(znodes.broker(1), info, ephemeral=True), 0)
    bench.give(e.ZooKeeperEvent(zk.Ended(zk.End.EXPIRED)))
    bench.session_begins()
    bench.answer(beat, ACTIVE)
    assert node(bench).lifecycle.lost is taken_over
    changes = [one.new for one in bench.notes if isinstance(one, BrokerStateChanged)]
    assert "ACTIVE" not in changes


def test_a_leader_whose_id_another_process_takes_leads_no_more() -> None:
    """HB-24."""
    bench = leader()
    create = zk.Create(znodes.broker(1), b'{"version": 5, "endpoints": []}', ephemeral=True)
    bench.write(zk.Multi((zk.Delete(znodes.broker(1)), create)))
    (lost,) = (one for one in bench.notes if isinstance(one, LeadershipEnded))
    assert lost.reason == "taken_over"


def test_an_isr_that_is_granted_to_a_leader_whose_id_was_taken_makes_it_no_leader_again() -> None:
    """HB-24: the answer was under way. Two processes led one partition in one leader epoch."""
    bench = leader(replica_lag_time_max_ms="1000")
    bench.passes(2)
    asked = bench.called(w.IsrChangeRequest)
    create = zk.Create(znodes.broker(1), b'{"version": 5, "endpoints": []}', ephemeral=True)
    bench.write(zk.Multi((zk.Delete(znodes.broker(1)), create)))
    led = len([one for one in bench.notes if isinstance(one, LeadershipStarted)])
    granted = w.IsrChangeResponse(
        top_level_error_code=Error.NONE, results=(w.IsrChangeResult(error_code=Error.NONE),)
    )
    bench.answer(asked, granted)
    assert len([one for one in bench.notes if isinstance(one, LeadershipStarted)]) == led


def test_changes_of_registrations_during_a_read_cause_one_more_read() -> None:
    """Of two reads at a time, the older one could end last."""
    changes: list[int] = []
    peers = Peers(lambda: changes.append(len(peers.known)), lambda reason: None)
    tree = BrokerBench().tree
    for path in znodes.PERSISTENT:
        tree.request(OTHER, zk.Create(path), 0)
    assert peers.start()
    steps = peers.read()
    request = next(steps)
    assert not peers.start()
    assert not peers.start()
    with suppress(StopIteration):
        while True:
            answer, _ = tree.request(ME, request, 0)
            if not changes:
                info = encode(znodes.BrokerInfo(5, ()))
                tree.request(OTHER, zk.Create(znodes.broker(2), info), 0)
            request = steps.send(answer)
    assert changes == [0, 1]
    assert peers.start()
