"""The life of a broker of the quorum plane: heartbeats, deletion, takeover and shutdown, and what
controllers that are not active answer; without a cluster."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest
from quorum_bench import (
    CONTROLLER,
    LEASE_MS,
    ME,
    OTHER,
    TERM,
    TOPIC,
    QuorumBroker,
    QuorumController,
    registration,
    replies,
    snapshot_part,
)

from fencepost import NodeStopped
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.quorum.broker_state import BrokerState
from fencepost_clusters.reference.core.quorum.raft import messages
from fencepost_clusters.reference.core.replication.replica import log_name
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import (
    BrokerStateChanged,
    BrokerStopping,
    FollowingStarted,
    LeadershipEnded,
    LeadershipStarted,
    SnapshotLoaded,
    StateReverted,
)

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


@pytest.fixture
def leader() -> QuorumBroker:
    """An active broker that leads a partition, and has a write that waits for its follower."""
    broker = QuorumBroker().activates().holds(ME)
    assert broker.node.asks("CLIENT", PRODUCE) == []
    return broker


def changes(broker: QuorumBroker) -> list[tuple[str, str]]:
    """Its states and their reasons, in order."""
    return [(one.new, one.reason) for one in broker.node.noted(BrokerStateChanged)]


def heartbeat(broker: QuorumBroker) -> m.BrokerHeartbeatRequest:
    sent = broker.node.called("heartbeat").message
    assert isinstance(sent, m.BrokerHeartbeatRequest)
    return sent


def beaten(broker: QuorumBroker) -> int:
    """How many heartbeats have left."""
    return sum(isinstance(x, e.Call) and x.channel == "heartbeat" for x in broker.node.effects)


def refused_writes(done: tuple[e.Effect, ...]) -> list[int]:
    """The errors of the writes that are answered."""
    found = [one.message for one in replies(done)]
    return [
        one.responses[0].partition_responses[0].error_code
        for one in found
        if isinstance(one, m.ProduceResponse)
    ]


# -------------------------------------------------------------------------------------- heartbeats


def test_an_active_broker_sends_a_heartbeat_at_each_interval() -> None:
    broker = QuorumBroker().activates()
    broker.node.passes(0.4)
    before = beaten(broker)
    for _ in range(10):
        broker.beats(epoch=1)
        broker.node.passes(0.3)
    assert beaten(broker) - before == 10


def test_a_heartbeat_without_an_answer_is_followed_by_one_to_the_next_controller() -> None:
    broker = QuorumBroker()
    leaderless = messages.fetch_answer(
        None, TERM, high_watermark=0, error=Error.NOT_LEADER_OR_FOLLOWER
    )
    broker.node.answers("metadata", leaderless)
    assert broker.core.raft.leader is None
    for host in ("c-2", "c-3", "c-1"):
        lost = broker.node.called("heartbeat")
        broker.node.calls.remove(lost)
        before = beaten(broker)
        broker.node.give(e.CallFailed(lost.call_id, "timed out"))
        broker.node.passes(0.049)
        assert beaten(broker) == before
        broker.node.passes(0.001)
        assert broker.node.called("heartbeat").address[0] == host


def test_a_broker_turns_to_the_controller_that_a_refusal_names() -> None:
    """QC-22."""
    broker = QuorumBroker()
    leaderless = messages.fetch_answer(
        None, TERM, high_watermark=0, error=Error.NOT_LEADER_OR_FOLLOWER
    )
    broker.node.answers("metadata", leaderless)
    for named, host in ((103, "c-3"), (-1, "c-1"), (-1, "c-2")):
        broker.beats(error=Error.NOT_CONTROLLER, controller=(named, TERM))
        broker.node.passes(0.06)
        assert broker.node.called("heartbeat").address[0] == host


def test_a_broker_that_the_controller_holds_for_fenced_is_fenced() -> None:
    """QC-14. It asks again soon."""
    broker = QuorumBroker().activates()
    broker.node.passes(0.4)
    broker.beats(BrokerState.FENCED, epoch=1)
    assert changes(broker)[-1] == ("FENCED", "refused")
    before = beaten(broker)
    broker.node.passes(0.049)
    assert beaten(broker) == before
    broker.node.passes(0.001)
    assert beaten(broker) == before + 1
    assert heartbeat(broker).current_state == BrokerState.FENCED


def test_an_answer_to_a_heartbeat_from_before_it_was_fenced_makes_no_broker_active() -> None:
    """QC-20: it needs another epoch."""
    broker = QuorumBroker().activates()
    broker.node.passes(0.4)
    late = heartbeat(broker)
    assert late.current_state == BrokerState.ACTIVE
    broker.node.passes(LEASE_MS / 1000)
    assert broker.state is BrokerState.FENCED
    broker.beats(epoch=1)
    assert broker.state is BrokerState.FENCED
    assert heartbeat(broker).current_state == BrokerState.FENCED, "the next one leaves at once"


def test_a_lease_that_was_over_when_its_answer_came_makes_no_broker_active() -> None:
    broker = QuorumBroker()
    broker.beats(BrokerState.FENCED)
    broker.registers()
    broker.node.passes(0.1)
    broker.node.now_ns = (heartbeat(broker).lease_start_time_ms + LEASE_MS) * 1_000_000
    broker.beats(epoch=1)
    assert [one.new for one in broker.node.noted(BrokerStateChanged)] == ["FENCED"]


# ----------------------------------------------------------------------------- other registrations


def test_a_broker_that_was_deleted_registers_again_at_once(leader: QuorumBroker) -> None:
    """QC-26. It leads nothing until then."""
    done = leader.commits(r.DeleteBrokerRecord(id=ME))
    assert changes(leader)[-1] == ("FENCED", "refused")
    assert refused_writes(done) == [Error.NOT_LEADER_OR_FOLLOWER]
    assert [one.reason for one in leader.node.noted(LeadershipEnded)] == ["unassigned"]
    leader.node.passes(0)
    assert heartbeat(leader).broker_epoch == -1
    leader.holds(ME, epoch=1)
    assert len(leader.node.noted(LeadershipStarted)) == 1, "it is not registered yet"
    leader.beats(BrokerState.FENCED, epoch=7)
    leader.registers(epoch=7)
    assert len(leader.node.noted(LeadershipStarted)) == 2


def test_a_broker_whose_id_another_process_took_stops_acting(leader: QuorumBroker) -> None:
    """QC-19."""
    done = leader.commits(registration(ME, uuid.UUID(int=77), 9, fenced=True))
    assert changes(leader)[-1] == ("FENCED", "taken_over")
    leader.holds(ME, epoch=1)
    assert len(leader.node.noted(LeadershipStarted)) == 1
    assert len(changes(leader)) == 3
    assert refused_writes(done) == [Error.NOT_LEADER_OR_FOLLOWER]
    assert [one.reason for one in leader.node.noted(LeadershipEnded)] == ["taken_over"]
    leader.node.passes(0.4)
    leader.beats(epoch=1)
    assert leader.state is BrokerState.FENCED
    leader.node.give(e.ShutdownAsked())
    assert changes(leader)[-1] == ("SHUTDOWN", "shutdown_requested")
    assert leader.node.exited


# ---------------------------------------------------------------------------------------- shutdown


def test_a_broker_shuts_down_once_the_controller_grants_it(leader: QuorumBroker) -> None:
    """QC-18. Its log and its checkpoint are on disk then."""
    leader.node.passes(0.4)
    leader.node.give(e.ShutdownAsked())
    leader.beats(epoch=1)
    assert not leader.node.exited
    leader.node.passes(0.06)
    assert heartbeat(leader).target_state == BrokerState.SHUTDOWN
    (stopping,) = leader.node.noted(BrokerStopping)
    assert (stopping.state, stopping.global_state) == ("ACTIVE", "Stopping")
    done = leader.beats(BrokerState.SHUTDOWN, epoch=1)
    assert changes(leader)[-1] == ("SHUTDOWN", "shutdown_granted")
    assert refused_writes(done) == [Error.NOT_LEADER_OR_FOLLOWER]
    assert [one.reason for one in leader.node.noted(LeadershipEnded)] == ["shutdown"]
    name = log_name("orders", (TOPIC, 0))
    stored = [one for one in done if isinstance(one, e.Checkpoint)]
    assert [one.flushed for one in stored] == [{name: 1}]
    assert leader.node.noted(NodeStopped)
    assert leader.node.exited


def test_a_broker_asks_for_its_shutdown_at_once_and_again_soon() -> None:
    broker = QuorumBroker().activates()
    broker.node.give(e.ShutdownAsked())
    broker.node.passes(0)
    assert heartbeat(broker).target_state == BrokerState.SHUTDOWN
    broker.beats(epoch=1)
    before = beaten(broker)
    broker.node.passes(0.049)
    assert beaten(broker) == before
    broker.node.passes(0.001)
    assert beaten(broker) == before + 1


def test_a_broker_asks_to_become_active_as_soon_as_it_has_its_registration() -> None:
    """REG-04."""
    broker = QuorumBroker()
    broker.beats(BrokerState.FENCED)
    before = beaten(broker)
    broker.registers()
    broker.node.passes(0)
    assert beaten(broker) == before + 1
    broker.beats(epoch=1)
    assert [one.global_state for one in broker.node.noted(BrokerStateChanged)] == [
        "Fenced",
        "Online",
    ]


def test_a_broker_that_waits_for_its_registration_asks_again_soon() -> None:
    broker = QuorumBroker()
    before = beaten(broker)
    broker.beats(BrokerState.FENCED)
    broker.node.passes(0.049)
    assert beaten(broker) == before
    broker.node.passes(0.001)
    assert beaten(broker) == before + 1


def test_a_broker_remembers_that_it_was_active() -> None:
    """Its policies may ask for it: whether it serves clients may depend on it."""
    broker = QuorumBroker()
    broker.beats(BrokerState.FENCED)
    assert not broker.core.lifecycle.was_active
    broker.registers()
    broker.node.passes(0.1)
    broker.beats(epoch=1)
    assert broker.core.lifecycle.was_active
    broker.node.passes(5)
    assert (broker.state, broker.core.lifecycle.was_active) == (BrokerState.FENCED, True)


def test_a_broker_that_gets_no_grant_ends_when_its_time_is_up() -> None:
    broker = QuorumBroker(controlled_shutdown_timeout_ms="2000").activates()
    broker.node.give(e.ShutdownAsked())
    broker.node.passes(1)
    broker.node.give(e.ShutdownAsked())  # asked twice, it does not wait longer
    broker.node.passes(0.99)
    assert not broker.node.exited
    broker.node.passes(0.01)
    assert changes(broker)[-1] == ("SHUTDOWN", "shutdown_timeout")
    assert broker.node.exited


def test_a_broker_that_has_not_registered_just_ends() -> None:
    broker = QuorumBroker()
    broker.node.give(e.ShutdownAsked())
    assert broker.node.exited
    assert not any(isinstance(one, e.Checkpoint) for one in broker.node.effects)


def test_a_broker_follows_the_snapshot_that_replaces_its_metadata(leader: QuorumBroker) -> None:
    """QC-11: any part of it may be another one."""
    mine = leader.core.lifecycle.incarnation
    part = r.PartitionRecord(
        partition_id=0, topic_id=TOPIC, replicas=(ME, OTHER), isr=(ME, OTHER), leader=ME,
        leader_epoch=0,
    )  # fmt: skip
    led = leader.core.data.replicas.by_key[TOPIC, 0]
    fetched = m.FetchPartition(
        partition=0,
        fetch_offset=1,
        partition_max_bytes=1 << 20,
        current_leader_epoch=0,
        last_fetched_epoch=0,
    )
    leader.node.asks(
        "REPLICATION",
        m.FetchRequest(
            max_wait=0,
            min_bytes=0,
            max_bytes=1 << 20,
            topics=(m.FetchTopic(partitions=(fetched,), topic_id=TOPIC),),
            replica_state=m.ReplicaState(replica_id=OTHER, replica_epoch=2),
        ),
    )
    assert led.end_of(OTHER) == 1
    for end, last in ((50, part), (60, replace(part, leader=OTHER, leader_epoch=3))):
        records = (
            registration(ME, mine, 1),
            registration(OTHER, uuid.UUID(int=44), 40),
            r.TopicRecord(name="orders", topic_id=TOPIC),
            last,
        )
        data = record_batch.build([r.encode(one) for one in records], 0, TERM, 1)
        wanted = m.SnapshotId(end_offset=end, epoch=TERM)
        answer = messages.fetch_answer(CONTROLLER, TERM, high_watermark=end, snapshot=wanted)
        leader.node.answers("metadata", answer)
        leader.node.answers("metadata", snapshot_part(wanted, data))
        assert leader.node.noted(SnapshotLoaded)[-1].offset == end
        if end == 50:
            assert led.end_of(OTHER) == -1, "another process may have the id"
    (following,) = leader.node.noted(FollowingStarted)
    assert (following.leader, following.leader_epoch) == (OTHER, 3)


def test_a_broker_leads_a_partition_that_it_learns_from_a_snapshot() -> None:
    """QC-11."""
    broker = QuorumBroker().activates()
    part = r.PartitionRecord(
        partition_id=0, topic_id=TOPIC, replicas=(ME, OTHER), isr=(ME, OTHER), leader=ME,
        leader_epoch=0,
    )  # fmt: skip
    records = (
        registration(ME, broker.core.lifecycle.incarnation, 1),
        registration(OTHER, uuid.UUID(int=OTHER), 40),
        r.TopicRecord(name="orders", topic_id=TOPIC),
        part,
    )
    data = record_batch.build([r.encode(one) for one in records], 0, TERM, 1)
    wanted = m.SnapshotId(end_offset=50, epoch=TERM)
    answer = messages.fetch_answer(CONTROLLER, TERM, high_watermark=50, snapshot=wanted)
    broker.node.answers("metadata", answer)
    broker.node.answers("metadata", snapshot_part(wanted, data))
    assert broker.core.data.replicas.by_key[TOPIC, 0].leading


# ------------------------------------------------------------------------------------------- disks


def test_a_restarted_broker_goes_on_with_its_logs_and_deletes_those_that_are_not_its_own() -> None:
    """RP-08, RP-25."""
    first = QuorumBroker().activates().holds(ME)
    first.node.asks("CLIENT", PRODUCE)
    entries = first.core.data.replicas.by_key[TOPIC, 0].log._entries
    mine, stray = log_name("orders", (TOPIC, 0)), log_name("gone", (uuid.UUID(int=3), 0))
    found = {mine: tuple(entries), stray: tuple(entries)}
    broker = QuorumBroker(recovered=e.Recovered(found, {mine: 1, stray: 1}))
    broker.beats(BrokerState.FENCED)
    broker.holds(ME).registers()
    assert [one for one in broker.node.effects if isinstance(one, e.Delete)] == [e.Delete(stray)]
    one = broker.core.data.replicas.by_key[TOPIC, 0]
    assert (one.log.end, one.high_watermark) == (1, 1)


# --------------------------------------------------------------------- requests to the wrong node


def test_a_broker_refuses_the_heartbeats_of_brokers_and_of_controllers() -> None:
    broker = QuorumBroker().activates()
    beat = m.BrokerHeartbeatRequest(
        target_state=3,
        broker_id=OTHER,
        broker_epoch=-1,
        lease_start_time_ms=0,
        cur_metadata_offset=0,
        listeners=(),
    )
    (reply,) = broker.node.asks("REPLICATION", beat)
    assert isinstance(reply.message, m.BrokerHeartbeatResponse)
    assert reply.message.error_code == Error.NOT_CONTROLLER
    assert reply.message.active_controller_id == CONTROLLER
    report = m.ControllerHeartbeatRequest(controller_id=102, last_snapshot_offset=-1)
    (reply,) = broker.node.asks("REPLICATION", report)
    assert reply.message == m.ControllerHeartbeatResponse(error_code=Error.NOT_CONTROLLER)


@pytest.mark.parametrize("listener", ["REPLICATION", "CLIENT"])
def test_a_request_that_is_for_no_broker_closes_its_connection(listener: str) -> None:
    broker = QuorumBroker().activates()
    assert broker.node.asks(listener, messages.vote(TERM, 102, 0, -1)) == []
    assert isinstance(broker.node.effects[-1], e.Close)


def test_a_controller_that_is_not_active_names_the_one_that_is_if_it_knows_one() -> None:
    controller = QuorumController()
    for leader in (-1, 102):
        if leader > 0:
            controller.follows(leader, TERM)
        (reply,) = controller.beat(1, BrokerState.INITIAL)
        assert isinstance(reply.message, m.BrokerHeartbeatResponse)
        assert reply.message.error_code == Error.NOT_CONTROLLER
        assert reply.message.active_controller_id == leader
    (reply,) = controller.asks(m.DeleteTopicsRequest(topic_names=("orders",), timeout=1000))
    assert isinstance(reply.message, m.DeleteTopicsResponse)
    assert [one.error_code for one in reply.message.responses] == [Error.NOT_CONTROLLER]


def test_a_controller_closes_the_connection_of_a_request_that_is_not_for_it() -> None:
    controller = QuorumController().elected()
    for message in (PRODUCE, messages.vote(9, 109, 0, -1)):
        before = len(controller.node.effects)
        assert controller.asks(message) == []
        (closed,) = controller.node.effects[before:]
        assert isinstance(closed, e.Close)


def test_an_answer_to_a_call_that_a_controller_never_made_is_a_fault_of_its_driver() -> None:
    controller = QuorumController().elected()
    with pytest.raises(AssertionError, match="no part of this node made call 999"):
        controller.node.give(e.Answered(999, messages.vote_answer(None, TERM, granted=True)))


def test_a_controller_that_is_deposed_refuses_the_requests_that_wait_for_a_commit() -> None:
    """QC-08, QC-09: the next leader may drop their records."""
    controller = QuorumController().elected()
    assert controller.beat(1, BrokerState.INITIAL) == []
    assert controller.asks(m.DeleteTopicsRequest(topic_names=("orders",), timeout=1000)) == []
    before = len(controller.node.effects)
    controller.asks(messages.begin_epoch(102, 9))
    answers = [one.message for one in replies(controller.node.effects[before:])]
    errors = [
        one.error_code
        if isinstance(one, m.BrokerHeartbeatResponse)
        else one.responses[0].error_code
        for one in answers
        if isinstance(one, m.BrokerHeartbeatResponse | m.DeleteTopicsResponse)
    ]
    assert errors == [Error.NOT_CONTROLLER, Error.NOT_CONTROLLER]
    assert controller.core.committed.image.brokers == {}
    assert len(controller.node.noted(StateReverted)) == 1
