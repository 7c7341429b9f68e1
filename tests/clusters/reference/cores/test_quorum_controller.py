"""One controller of the quorum: its terms, its voters, its decisions and metrics, without a
cluster."""

from __future__ import annotations

import pytest
from quorum_bench import (
    CONTROLLER,
    ROW,
    SECOND,
    VOTERS,
    QuorumBroker,
    QuorumController,
    snapshot_part,
)

from fencepost_clusters.reference.core.assembly import DiskContents
from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.quorum.broker_state import BrokerState
from fencepost_clusters.reference.core.quorum.raft.electorate import voters_record
from fencepost_clusters.reference.core.quorum.raft.messages import (
    end_answer,
    end_epoch,
    fetch_answer,
    fetch_snapshot,
    vote_answer,
)
from fencepost_clusters.reference.core.quorum.raft.metadata_log import Snapshot
from fencepost_clusters.reference.core.quorum.raft.timing import Vote
from fencepost_clusters.reference.core.replication.cluster_state import Partition
from fencepost_clusters.reference.wire import administration as a
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import (
    ElectionStarted,
    MetricsReported,
    SnapshotAsked,
    SnapshotStarted,
    SnapshotStored,
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


# ------------------------------------------------------------------------------------------ voters


def test_a_controller_whose_id_is_0_may_become_a_voter(alone: QuorumController) -> None:
    alone.fetched(0)
    listener = a.RaftVoterListener(name="CONTROLLER", host="c-0", port=9093)
    asked = a.AddRaftVoterRequest(cluster_id=None, timeout=1000, voter_id=0, listeners=(listener,))
    assert alone.asks(asked) == [], "it is not committed yet: two voters are a majority of two"
    answers = [one.message for one in alone.fetched(0)]
    assert a.AddRaftVoterResponse(error_code=Error.NONE) in answers


@pytest.mark.parametrize(
    ("node", "listener"), [(-1, "CONTROLLER"), (104, "CLIENT")], ids=["no id", "no address"]
)
def test_a_voter_without_an_id_or_an_address_for_controllers_is_refused(
    alone: QuorumController, node: int, listener: str
) -> None:
    alone.fetched(node)
    at = a.RaftVoterListener(name=listener, host="c-4", port=9093)
    asked = a.AddRaftVoterRequest(cluster_id=None, timeout=1000, voter_id=node, listeners=(at,))
    (reply,) = alone.asks(asked)
    assert isinstance(reply.message, a.AddRaftVoterResponse)
    assert reply.message.error_code == Error.INVALID_REQUEST
    assert alone.core.raft.voters.keys() == {CONTROLLER}


@pytest.mark.parametrize(("lacks", "error"), [(100, Error.NONE), (101, Error.REQUEST_TIMED_OUT)])
def test_a_new_voter_may_lack_so_many_committed_records_and_no_more(
    alone: QuorumController, lacks: int, error: Error
) -> None:
    """A majority of two would wait for it."""
    raft = alone.core.raft
    alone.fetched(104)
    at = raft.log.end
    while raft.high_watermark < at + lacks:
        alone.beat(3, BrokerState.INITIAL)
    listener = a.RaftVoterListener(name="CONTROLLER", host="c-4", port=9093)
    alone.asks(
        a.AddRaftVoterRequest(cluster_id=None, timeout=1000, voter_id=104, listeners=(listener,))
    )
    assert (104 in raft.voters) == (error is Error.NONE)


@pytest.mark.parametrize(("ends", "stands"), [(102, True), (103, False)])
def test_a_voter_stands_for_election_soon_after_its_leader_has_resigned(
    ends: int, stands: bool
) -> None:
    """KIP-595: it would wait for the fetch timeout otherwise. Another controller cannot resign
    for the leader."""
    controller = QuorumController(settings={"controller.quorum.election.timeout.ms": "1000"})
    controller.follows(102, 1)
    controller.asks(end_epoch(ends, 1))
    controller.node.passes(0.5)
    assert bool(controller.node.noted(ElectionStarted)) is stands


def test_no_voter_is_added_before_a_record_of_the_term_is_committed() -> None:
    """KIP-853: the voters could differ by two from those of an earlier leader."""
    controller = QuorumController()
    controller.stands()
    controller.node.answers("quorum", vote_answer(None, 1, granted=True))
    controller.fetched(104)
    at = a.RaftVoterListener(name="CONTROLLER", host="c-4", port=9093)
    asked = a.AddRaftVoterRequest(cluster_id=None, timeout=1000, voter_id=104, listeners=(at,))
    controller.asks(asked)
    assert controller.core.raft.voters.keys() == {*VOTERS}
    controller.followed()
    controller.asks(asked)
    assert controller.core.raft.voters.keys() == {*VOTERS, 104}


def test_a_controller_that_a_record_names_as_a_voter_stands_for_election_without_a_leader() -> None:
    controller = QuorumController(102)
    voters = {v: (f"c-{v - 100}", 9093) for v in (101, 102)}
    controller.follows(102, 1, record_batch.build([r.encode(voters_record(voters))], 0, 1, 1))
    controller.node.passes(30)
    assert controller.node.noted(ElectionStarted)


def test_a_removed_leader_stands_for_no_election() -> None:
    controller = QuorumController().elected()
    controller.asks(a.RemoveRaftVoterRequest(cluster_id=None, voter_id=CONTROLLER))
    controller.node.give(e.Tick())
    assert controller.core.active, "its removal is not committed"
    controller.followed()
    done = controller.node.give(e.Tick())
    assert not controller.core.active
    sent = [one for one in done if isinstance(one, e.Call) and one.channel == "quorum"]
    assert [one.address[0] for one in sent] == ["c-2", "c-3"], "they need not wait"
    for one in sent:
        controller.node.give(e.Answered(one.call_id, end_answer(1)))
    before = len(controller.node.noted(ElectionStarted))
    controller.node.passes(60)
    assert len(controller.node.noted(ElectionStarted)) == before


def test_a_controller_whose_admission_was_not_committed_stands_for_no_election() -> None:
    """The leader that admitted it lost the record; the next one does not have it."""
    controller = QuorumController(102, 103)
    voters = {v: (f"c-{v - 100}", 9093) for v in VOTERS}
    data = record_batch.build([r.encode(voters_record(voters))], 0, 1, 1)
    controller.follows(102, 1, data)
    assert controller.core.raft.voters.keys() == {*VOTERS}
    controller.follows(103, 2, diverging=m.EpochEndOffset(epoch=0, end_offset=0))
    assert controller.core.raft.voters.keys() == {102, 103}
    controller.node.passes(60)
    assert controller.node.noted(ElectionStarted) == []


def test_a_controller_whose_log_is_cut_off_after_a_record_of_voters_keeps_them() -> None:
    controller = QuorumController(102, 103)
    voters = {v: (f"c-{v - 100}", 9093) for v in VOTERS}
    controller.follows(102, 1, record_batch.build([r.encode(voters_record(voters))], 0, 1, 1))
    controller.follows(102, 1, record_batch.build([r.encode(ROW)], 1, 1, 1))
    controller.follows(103, 2, diverging=m.EpochEndOffset(epoch=1, end_offset=1))
    assert controller.core.log.end == 1
    assert controller.core.raft.voters.keys() == {*VOTERS}


def test_a_controller_that_a_snapshot_names_as_a_voter_stands_for_election_without_a_leader() -> (
    None
):
    """QC-07: otherwise a quorum of two would have no leader any more."""
    controller = QuorumController(102)
    voters = {v: (f"c-{v - 100}", 9093) for v in (101, 102)}
    data = record_batch.build([r.encode(voters_record(voters))], 0, 1, 1)
    snapshot = m.SnapshotId(end_offset=5, epoch=1)
    controller.follows(102, 1, snapshot=snapshot)
    controller.node.answers("metadata", snapshot_part(snapshot, data, leader=102))
    assert controller.core.committed.image.offset == 5
    controller.node.passes(30)
    assert controller.node.noted(ElectionStarted)


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
