"""One controller of the quorum: its terms, its snapshots, its decisions and metrics, without a
cluster."""

from __future__ import annotations

import pytest
from quorum_bench import CONTROLLER, ROW, SECOND, QuorumBroker, QuorumController, snapshot_part

from fencepost_clusters.reference.assembly import DiskContents
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.quorum.broker_state import BrokerState
from fencepost_clusters.reference.core.quorum.raft.messages import fetch_answer, fetch_snapshot
from fencepost_clusters.reference.core.quorum.raft.metadata_log import Snapshot
from fencepost_clusters.reference.core.quorum.raft.timing import Vote
from fencepost_clusters.reference.core.replication.cluster_state import Partition
from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import (
    MetricsReported,
    SnapshotAsked,
    SnapshotStarted,
    SnapshotStored,
    StateReverted,
)


@pytest.fixture
def alone() -> QuorumController:
    """The active controller of a quorum of one, with two active brokers."""
    return QuorumController(CONTROLLER).elected().activates(1, 2)


def metrics(controller: QuorumController) -> MetricsReported:
    (found,) = controller.core.metrics_now()
    return found


# ----------------------------------------------------------------------------------------- changes


def created(
    controller: QuorumController, *names: str, replicas: tuple[int, ...] = (1, 2)
) -> dict[str, Error]:
    """The error of each new topic of one partition, by the answer."""
    topics = tuple(
        m.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=(m.CreatableReplicaAssignment(partition_index=0, broker_ids=replicas),),
        )
        for name in names
    )
    (reply,) = controller.asks(m.CreateTopicsRequest(topics=topics, timeout=1000))
    assert isinstance(reply.message, m.CreateTopicsResponse)
    return {one.name: Error(one.error_code) for one in reply.message.topics}


def test_a_topic_whose_name_collides_within_the_request_is_refused(
    alone: QuorumController,
) -> None:
    """A client waits for an answer about each name."""
    assert created(alone, "a.b", "a_b") == {"a.b": Error.NONE, "a_b": Error.INVALID_REQUEST}
    assert list(alone.core.committed.image.topics) == ["a.b"]


def test_a_level_of_the_metadata_that_is_finalized_is_not_written_again_in_the_next_term() -> None:
    controller = QuorumController().elected()
    end = controller.core.log.end
    controller.node.passes(10)
    assert not controller.core.active
    assert controller.elected().core.log.end == end + 1, "the record that begins the term"


def partition(controller: QuorumController) -> Partition:
    """The partition of the topic, as it is committed."""
    found = controller.core.committed.image.partition("orders", 0)
    assert found is not None
    return found


def isr_change(
    controller: QuorumController, isr: tuple[int, ...], leader: int = 1
) -> list[e.Reply]:
    """The leader of the partition asks for an ISR."""
    image, one = controller.core.committed.image, partition(controller)
    members = tuple(
        m.IsrMember(broker_id=member, broker_epoch=image.brokers[member].epoch) for member in isr
    )
    part = m.AlterPartitionData(
        partition_index=0, leader_epoch=one.leader_epoch, new_isr_with_epochs=members
    )
    topic = m.AlterPartitionTopic(topic_id=one.topic_id, partitions=(part,))
    return controller.asks(
        m.AlterPartitionRequest(
            broker_id=leader, broker_epoch=image.brokers[leader].epoch, topics=(topic,)
        )
    )


def test_of_two_isr_changes_of_a_partition_in_one_request_the_second_is_refused(
    alone: QuorumController,
) -> None:
    """RP-24: both would have the same leader epoch."""
    created(alone, "orders")
    one = partition(alone)
    member = m.IsrMember(broker_id=1, broker_epoch=alone.core.committed.image.brokers[1].epoch)
    part = m.AlterPartitionData(
        partition_index=0, leader_epoch=one.leader_epoch, new_isr_with_epochs=(member,)
    )
    topic = m.AlterPartitionTopic(topic_id=one.topic_id, partitions=(part, part))
    (reply,) = alone.asks(
        m.AlterPartitionRequest(broker_id=1, broker_epoch=member.broker_epoch, topics=(topic,))
    )
    assert isinstance(reply.message, m.AlterPartitionResponse)
    errors = [result.error_code for result in reply.message.topics[0].partitions]
    assert errors == [Error.NONE, Error.INVALID_REQUEST]
    assert partition(alone).leader_epoch == one.leader_epoch + 1


@pytest.mark.parametrize("broker", [1, 9], ids=["earlier epoch", "unknown broker"])
def test_an_isr_change_of_a_process_that_is_not_registered_is_refused(
    alone: QuorumController, broker: int
) -> None:
    """QC-19."""
    created(alone, "orders")
    one, epoch = partition(alone), alone.core.committed.image.brokers[1].epoch
    member = m.IsrMember(broker_id=1, broker_epoch=epoch)
    part = m.AlterPartitionData(
        partition_index=0, leader_epoch=one.leader_epoch, new_isr_with_epochs=(member,)
    )
    topic = m.AlterPartitionTopic(topic_id=one.topic_id, partitions=(part,))
    (reply,) = alone.asks(
        m.AlterPartitionRequest(broker_id=broker, broker_epoch=epoch - 1, topics=(topic,))
    )
    refused = m.AlterPartitionResponse(error_code=Error.STALE_BROKER_EPOCH, topics=())
    assert (reply.message, partition(alone)) == (refused, one)


def test_a_leadership_returns_at_the_interval_though_no_isr_changes(
    alone: QuorumController,
) -> None:
    """RP-21: a preferred replica that has joined the ISR may be willing only later."""
    created(alone, "orders", replicas=(1, 2))
    isr_change(alone, (1, 2))
    alone.beat(1, target=BrokerState.SHUTDOWN)
    assert partition(alone).leader == 2
    isr_change(alone, (1, 2), leader=2)
    alone.beat(1)
    assert (partition(alone).isr, partition(alone).leader) == ((1, 2), 2)
    for _ in range(400):
        alone.beat(1)
        alone.beat(2)
        alone.node.passes(1)
    assert partition(alone).leader == 1


def test_a_deposed_controller_records_the_epoch_that_it_led() -> None:
    """QC-09."""
    controller = QuorumController(stored=DiskContents(vote=Vote(4))).elected()
    controller.follows(102, 9)
    (reverted,) = controller.node.noted(StateReverted)
    assert reverted.epoch == 5


def test_a_reassignment_ends_with_the_isr_change_that_completes_it(
    alone: QuorumController,
) -> None:
    """RP-20."""
    created(alone, "orders", replicas=(1,))
    part = a.ReassignablePartition(partition_index=0, replicas=(2,))
    topic = a.ReassignableTopic(name="orders", partitions=(part,))
    alone.asks(a.AlterPartitionReassignmentsRequest(timeout=1000, topics=(topic,)))
    isr_change(alone, (1, 2))
    one = partition(alone)
    assert (one.replicas, one.isr, one.leader, one.adding) == ((2,), (2,), 2, ())


# --------------------------------------------------------------------------------------- snapshots

OFTEN = {"metadata.snapshot.interval.records": "10", "registration.lease.timeout.ms": "3000"}
OFTEN |= {"registration.heartbeat.interval.ms": "300", "metadata.snapshot.slice.records": "1"}


def reported(controller: QuorumController, standby: int, offset: int) -> bool:
    """Whether the answer to the report of a standby asks for a snapshot."""
    report = m.ControllerHeartbeatRequest(controller_id=standby, last_snapshot_offset=offset)
    (reply,) = controller.asks(report)
    assert isinstance(reply.message, m.ControllerHeartbeatResponse)
    assert reply.message.error_code == Error.NONE
    return reply.message.start_snapshot


def filled(controller: QuorumController, end: int) -> QuorumController:
    """Changes are committed up to an offset at least."""
    resource = a.AlterConfigsResource(
        resource_type=4,
        resource_name="",
        configs=(a.AlterableConfig(name=ROW.name, config_operation=0, value="1"),),
    )
    asked = a.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    while controller.core.log.end < end:
        controller.asks(asked)
    controller.followed()
    return controller


def test_one_controller_after_the_other_is_asked_for_a_snapshot() -> None:
    """QC-12."""
    controller = QuorumController(settings=OFTEN).elected()
    assert not reported(controller, 102, -1), "too little was committed"
    filled(controller, 9)
    assert not reported(controller, 102, -1)
    filled(controller, 10)

    asked = controller.node.noted(SnapshotAsked)
    assert [one.controller for one in asked] == [CONTROLLER], "it is the first to know"
    assert not reported(controller, 103, -1)
    (started,) = controller.node.noted(SnapshotStarted)
    assert started.controller_epoch == controller.core.raft.epoch
    controller.node.passes(0.1)
    assert controller.node.noted(SnapshotStored)
    (stored,) = (one for one in controller.node.effects if isinstance(one, e.StoreSnapshot))
    assert stored.offset == controller.core.snapshots.last_offset >= 10
    assert reported(controller, 103, -1)
    assert reported(controller, 103, -1), "the answer may have been lost"
    assert not reported(controller, 102, -1)
    assert not reported(controller, 103, 10)
    assert reported(controller, 102, -1)
    waited = [(one.controller, one.waited) for one in controller.node.noted(SnapshotAsked)]
    assert waited == [(CONTROLLER, False), (103, True), (102, True)]
    assert not reported(controller, 102, 10)
    filled(controller, 30)
    controller.node.passes(0.1)
    assert reported(controller, 102, 10)
    last = controller.node.noted(SnapshotAsked)[-1]
    assert (last.controller, last.waited) == (102, False), "it has not asked while another did"


def test_a_controller_that_takes_its_snapshot_in_silence_holds_up_the_others_for_one_lease() -> (
    None
):
    """QC-12."""
    controller = filled(QuorumController(settings=OFTEN).elected(), 10)
    controller.node.passes(0.1)
    assert reported(controller, 103, -1)
    for _ in range(5):
        controller.node.passes(0.5)
        controller.followed()
    assert not reported(controller, 102, -1)
    controller.node.passes(0.5)
    assert reported(controller, 102, -1)


def test_a_controller_that_reports_while_it_takes_its_snapshot_holds_up_the_others() -> None:
    """QC-12: for longer than a lease, too."""
    controller = filled(QuorumController(settings=OFTEN).elected(), 10)
    controller.node.passes(0.1)
    assert reported(controller, 103, -1)
    for _ in range(10):
        controller.node.passes(0.5)
        controller.followed()
        assert reported(controller, 103, -1)
        assert not reported(controller, 102, -1)


def test_a_report_of_a_stranger_is_refused() -> None:
    controller = QuorumController().elected()
    for node, error in ((109, Error.INVALID_REQUEST), (CONTROLLER, Error.INVALID_REQUEST)):
        report = m.ControllerHeartbeatRequest(controller_id=node, last_snapshot_offset=5)
        (reply,) = controller.asks(report)
        assert reply.message == m.ControllerHeartbeatResponse(error_code=error)


def test_a_standby_takes_a_snapshot_when_it_is_asked_and_reports_it_at_once() -> None:
    """QC-12."""
    controller = QuorumController(settings=OFTEN)
    controller.follows(102, 5, record_batch.build([r.encode(ROW)] * 12, 0, 5, 1), committed=12)
    report = controller.node.called("heartbeat")
    assert report.address == ("c-2", 9093)
    asks = m.ControllerHeartbeatResponse(error_code=Error.NONE, start_snapshot=True)
    controller.node.answers("heartbeat", asks)
    (started,) = controller.node.noted(SnapshotStarted)
    assert (started.offset, started.controller_epoch) == (12, 5)
    controller.node.passes(0.05)
    again = controller.node.called("heartbeat").message
    assert again == m.ControllerHeartbeatRequest(controller_id=CONTROLLER, last_snapshot_offset=12)
    controller.node.answers("heartbeat", m.ControllerHeartbeatResponse(error_code=Error.NONE))
    controller.node.passes(0.2)
    assert [one for one in controller.node.calls if one.channel == "heartbeat"] == []
    controller.node.passes(0.2)
    lost = controller.node.called("heartbeat")
    controller.node.calls.remove(lost)
    controller.node.give(e.CallFailed(lost.call_id, "closed"))
    controller.node.passes(0.4)
    assert controller.node.called("heartbeat").message == again
    refusal = m.ControllerHeartbeatResponse(error_code=Error.NOT_CONTROLLER, start_snapshot=True)
    controller.node.answers("heartbeat", refusal)
    assert len(controller.node.noted(SnapshotStarted)) == 1
    controller.follows(102, 5, record_batch.build([r.encode(ROW)] * 12, 12, 5, 1), committed=24)
    controller.node.passes(0.4)
    controller.node.answers("heartbeat", asks)
    assert [one.offset for one in controller.node.noted(SnapshotStarted)] == [12, 24]


STORED = Snapshot(5, 1, record_batch.build([r.encode(ROW)], 0, 1, 1))
SIZE = len(STORED.data)


@pytest.mark.parametrize(
    ("position", "error", "data"),
    [
        (-1, Error.POSITION_OUT_OF_RANGE, b""),
        (0, Error.NONE, STORED.data),
        (SIZE - 1, Error.NONE, STORED.data[-1:]),
        (SIZE, Error.NONE, b""),
        (SIZE + 1, Error.POSITION_OUT_OF_RANGE, b""),
    ],
)
def test_a_snapshot_is_served_from_a_position_in_it(
    position: int, error: Error, data: bytes
) -> None:
    """KIP-630."""
    stored = DiskContents(snapshot=STORED, vote=Vote(1))
    controller = QuorumController(CONTROLLER, stored=stored).elected()
    wanted = m.SnapshotId(end_offset=STORED.offset, epoch=STORED.epoch)
    asked = fetch_snapshot(1, controller.core.raft.epoch, wanted, position)
    (reply,) = controller.asks(asked)
    assert isinstance(reply.message, m.FetchSnapshotResponse)
    part = reply.message.topics[0].partitions[0]
    assert (part.error_code, part.unaligned_records) == (error, data)


# ----------------------------------------------------------------------------------------- metrics


def test_the_rates_of_requests_and_commits_are_those_of_the_last_whole_second(
    alone: QuorumController,
) -> None:
    """QC-25."""
    alone.node.passes(60)
    before = metrics(alone)
    alone.node.passes(0.2)
    for _ in range(3):
        alone.beat(3, BrokerState.INITIAL)
    alone.node.passes(60)
    found = [one for one in alone.node.noted(MetricsReported) if one.requests_rate > 0][-1]
    assert found.requests == before.requests + 3
    assert found.requests_rate == pytest.approx(3000 / found.over_ms, abs=0.001)
    commits = found.commits - before.commits
    assert commits > 0
    assert found.commit_rate == pytest.approx(1000 * commits / found.over_ms, abs=0.001)


def test_the_latency_of_commits_is_the_time_from_a_change_until_a_majority_has_it() -> None:
    """QC-25."""
    controller = QuorumController().elected()
    controller.node.now_ns += SECOND
    controller.node.give(e.Tick())
    controller.beat(1, BrokerState.INITIAL)
    controller.node.now_ns += SECOND // 4
    controller.followed()
    controller.node.now_ns += SECOND
    controller.node.give(e.Tick())
    assert 250.0 in [one.commit_latency_ms for one in controller.node.noted(MetricsReported)]


def test_the_lag_of_the_snapshot_is_a_metric_of_controllers() -> None:
    """QC-25."""
    stored = DiskContents(snapshot=STORED, vote=Vote(1))
    controller = QuorumController(CONTROLLER, stored=stored).elected()
    controller.node.passes(2)
    assert metrics(controller).snapshot_lag == controller.core.log.end - STORED.offset > 0
    broker = QuorumBroker().activates()
    broker.node.passes(4)
    (found,) = broker.core.metrics_now()
    assert (found.snapshot_lag, found.replayed) == (0, broker.end)


@pytest.mark.parametrize(("snapshot", "lag"), [(-1, 0), (0, 40), (30, 10)])
def test_without_a_snapshot_there_is_no_lag_of_it(
    alone: QuorumController, snapshot: int, lag: int
) -> None:
    """QC-25. A snapshot at offset 0 is one, of an empty state."""
    while alone.core.raft.last_stable < 40:
        alone.beat(3, BrokerState.INITIAL)
    alone.node.passes(2)
    core, now = alone.core, e.Instant(alone.node.now_ns + SECOND, 0)
    core.metrics.observe(core.raft, core.committed, snapshot, now)
    assert core.metrics.latest.snapshot_lag == lag


def test_a_node_that_falls_behind_and_catches_up_says_so_at_once() -> None:
    """QC-25."""
    broker = QuorumBroker().activates()
    broker.node.passes(2)
    before = len(broker.node.noted(MetricsReported))
    snapshot = m.SnapshotId(end_offset=50, epoch=1)
    answer = fetch_answer(CONTROLLER, 1, high_watermark=50, snapshot=snapshot)
    broker.node.answers("metadata", answer)
    broker.node.give(e.Tick())
    (behind,) = broker.node.noted(MetricsReported)[before:]
    assert behind.metadata_lag == 50 - broker.end
    broker.node.answers("metadata", snapshot_part(snapshot, STORED.data))
    (_, caught_up) = broker.node.noted(MetricsReported)[before:]
    assert caught_up.metadata_lag == 0


def test_records_that_a_term_left_uncommitted_are_no_slow_commits_of_the_next_one() -> None:
    """QC-25: the next leader may have dropped them."""
    controller = QuorumController().elected()
    committed = controller.core.raft.high_watermark
    controller.beat(1, BrokerState.INITIAL)
    controller.node.passes(10)
    assert not controller.core.active
    epoch = controller.core.raft.epoch + 1
    end = m.EpochEndOffset(epoch=controller.core.log.last_epoch, end_offset=committed)
    controller.follows(102, epoch, diverging=end)
    data = record_batch.build([r.encode(ROW)] * 3, committed, epoch, 1)
    controller.follows(102, epoch, data, committed=committed + 3)
    controller.node.passes(10)
    assert controller.core.raft.high_watermark == committed + 3
    assert {one.commit_latency_ms for one in controller.node.noted(MetricsReported)} == {0}
