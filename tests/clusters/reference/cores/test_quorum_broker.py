"""One broker of the quorum plane: its lease, its leaderships and its fetches, without a cluster."""

from __future__ import annotations

import struct
import uuid
from dataclasses import replace
from itertools import pairwise

import pytest
from crc32c import crc32c
from quorum_bench import (
    CONTROLLER,
    CONTROLLERS,
    ME,
    OTHER,
    ROW,
    SECOND,
    TERM,
    TOPIC,
    QuorumBroker,
    registration,
    replies,
)

from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.quorum.broker_state import BrokerState
from fencepost_clusters.reference.core.quorum.raft.messages import fetch_answer
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import (
    BrokerStateChanged,
    FollowerFetched,
    HighWatermarkAdvanced,
    LogAppended,
    MetadataDigest,
    ProduceAnswered,
    RequestRefused,
    SnapshotStarted,
    SnapshotStored,
    TopicMarked,
)

PRODUCE = m.ProduceRequest(
    acks=-1,
    timeout=60_000,
    topic_data=(
        m.TopicProduceData(
            name="orders",
            partition_data=(
                m.PartitionProduceData(index=0, records=record_batch.build([b"x"], 0, -1, 1)),
            ),
        ),
    ),
)

OTHER_LEADS = r.IsrChangeRecord(
    partition_id=0, topic_id=TOPIC, isr=(ME, OTHER), leader=OTHER, leader_epoch=1
)


@pytest.fixture
def broker() -> QuorumBroker:
    return QuorumBroker().activates()


def heartbeat(broker: QuorumBroker) -> m.BrokerHeartbeatRequest:
    """Its heartbeat in flight."""
    sent = broker.node.called("heartbeat").message
    assert isinstance(sent, m.BrokerHeartbeatRequest)
    return sent


def produced(done: list[e.Reply]) -> list[Error]:
    """The error in each answer to a Produce."""
    errors: list[Error] = []
    for one in done:
        assert isinstance(one.message, m.ProduceResponse)
        errors.append(Error(one.message.responses[0].partition_responses[0].error_code))
    return errors


def fetched_from(
    offset: int, leader_epoch: int = 0, session: tuple[int, int] = (0, 0)
) -> m.FetchRequest:
    """A fetch by broker 2."""
    part = m.FetchPartition(
        partition=0,
        fetch_offset=offset,
        partition_max_bytes=1 << 20,
        current_leader_epoch=leader_epoch,
        last_fetched_epoch=0 if offset else -1,
    )
    return m.FetchRequest(
        max_wait=0,
        min_bytes=0,
        max_bytes=1 << 20,
        topics=(m.FetchTopic(partitions=(part,), topic_id=TOPIC),),
        replica_state=m.ReplicaState(replica_id=OTHER, replica_epoch=2),
    )


# ------------------------------------------------------------------------------------------ lease


def test_a_broker_whose_lease_ended_while_it_was_paused_is_fenced_though_the_answer_renews_it(
    broker: QuorumBroker,
) -> None:
    """QC-14, QC-20: another controller may have fenced it meanwhile."""
    broker.node.passes(0.5)
    broker.node.now_ns = broker.core.lifecycle.lease_ends_ns + SECOND // 10
    broker.beats(epoch=1)
    assert broker.state is BrokerState.FENCED
    assert broker.node.noted(BrokerStateChanged)[-1].reason == "lease_expired"


def test_a_broker_that_was_fenced_during_a_heartbeat_sends_the_next_with_its_answer(
    broker: QuorumBroker,
) -> None:
    """QC-20: it needs another epoch, and need not wait for the interval to ask for it."""
    broker.node.passes(0.4)
    lost = broker.node.called("heartbeat")
    broker.node.calls.remove(lost)
    left_ns = broker.core.lifecycle.lease_ends_ns - broker.node.now_ns
    broker.node.passes(left_ns / SECOND - 0.06)
    broker.node.give(e.CallFailed(lost.call_id, "timed out"))
    broker.node.passes(0.06)
    assert (broker.state, heartbeat(broker).current_state) == (
        BrokerState.FENCED,
        BrokerState.ACTIVE,
    )
    broker.beats(epoch=1)
    broker.node.passes(0)
    assert heartbeat(broker).current_state == BrokerState.FENCED


def test_a_process_that_lost_its_id_never_registers_again(broker: QuorumBroker) -> None:
    """QC-19: not even if a controller that has not heard of its successor asks it to."""
    for error in (Error.DUPLICATE_BROKER_REGISTRATION, Error.STALE_BROKER_EPOCH):
        broker.node.passes(0.4)
        broker.beats(error=error)
    broker.node.passes(0.4)
    assert heartbeat(broker).broker_epoch == 1


@pytest.mark.parametrize(
    ("error", "epoch"),
    [
        (Error.STALE_BROKER_EPOCH, -1),
        (Error.BROKER_ID_NOT_REGISTERED, -1),
        (Error.UNSUPPORTED_VERSION, 1),
    ],
)
def test_a_refused_broker_registers_again_only_if_its_registration_is_gone(
    broker: QuorumBroker, error: Error, epoch: int
) -> None:
    """QC-15: a broker that is too old for the metadata is still the registered one."""
    broker.node.passes(0.4)
    broker.beats(error=error)
    assert broker.state is BrokerState.FENCED
    broker.holds(ME)
    assert produced(broker.node.asks("CLIENT", PRODUCE)) == [Error.NOT_LEADER_OR_FOLLOWER], "QC-17"
    broker.node.passes(0.4)
    assert heartbeat(broker).broker_epoch == epoch


def test_a_write_that_waits_is_answered_once_when_the_lease_ends(broker: QuorumBroker) -> None:
    """QC-17, RP-31."""
    broker.holds(ME)
    assert broker.node.asks("CLIENT", PRODUCE) == []
    before = len(broker.node.effects)
    broker.node.passes(5)
    assert broker.state is BrokerState.FENCED
    broker.commits(OTHER_LEADS)
    assert produced(replies(broker.node.effects[before:])) == [Error.NOT_LEADER_OR_FOLLOWER]


def test_a_write_that_waits_is_refused_as_soon_as_another_broker_leads(
    broker: QuorumBroker,
) -> None:
    """RP-31: the log still has it, and its next leader may commit it, or not."""
    broker.holds(ME)
    assert broker.node.asks("CLIENT", PRODUCE) == []
    done = broker.commits(OTHER_LEADS)
    assert produced(replies(done)) == [Error.NOT_LEADER_OR_FOLLOWER]


def test_a_heartbeat_that_is_due_when_a_message_comes_leaves_in_the_same_step(
    broker: QuorumBroker,
) -> None:
    """Messages may follow one another without a pause, so nothing that is due waits for a Tick."""
    broker.holds(ME, isr=(ME,))
    broker.node.now_ns += SECOND // 2
    assert produced(broker.node.asks("CLIENT", PRODUCE)) == [Error.NONE]
    assert heartbeat(broker).lease_start_time_ms == broker.node.now.wall_ms
    next_ns = broker.core.deadline_ns()
    assert next_ns is not None
    assert next_ns > broker.node.now_ns, "no Tick is wanted for what is done"


# ------------------------------------------------------------------------------------- replication


def test_a_leader_asks_for_no_isr_change_while_the_active_controller_has_no_address() -> None:
    """A leader of the quorum that is removed leads on until its removal is committed."""
    broker = QuorumBroker(replica_lag_time_max_ms="1000").activates().holds(ME)
    left = tuple(one for one in CONTROLLERS if one.node_id != CONTROLLER)
    answer = fetch_answer(CONTROLLER, TERM, high_watermark=broker.end, voters=left)
    broker.node.answers("metadata", answer)
    broker.node.passes(2)
    assert [one for one in broker.node.calls if one.channel == "isr"] == []
    named = fetch_answer(103, TERM + 1, high_watermark=broker.end, voters=left)
    broker.node.answers("metadata", named)
    broker.node.passes(1)
    assert broker.node.called("isr").address == ("c-3", 9093)


def test_what_a_former_process_fetched_does_not_count_for_the_next_one(
    broker: QuorumBroker,
) -> None:
    """QC-19, RP-10: the next process may lack it."""
    broker.holds(ME)
    broker.node.asks("CLIENT", PRODUCE)
    broker.node.asks("REPLICATION", fetched_from(1))
    one = broker.core.data.replicas.by_key[TOPIC, 0]
    assert one.end_of(OTHER) == 1
    broker.commits(registration(OTHER, uuid.UUID(int=OTHER), 2, fenced=True))
    assert one.end_of(OTHER) == 1, "the same process"
    broker.commits(registration(OTHER, uuid.UUID(int=7), 9, fenced=True))
    assert one.end_of(OTHER) == -1


def answer(
    high_watermark: int = 0, records: bytes = b"", error: Error = Error.NONE
) -> m.PartitionData:
    """A leader's answer for the partition."""
    return m.PartitionData(
        partition_index=0, error_code=error, high_watermark=high_watermark, records=records
    )


def follower() -> QuorumBroker:
    """Broker 2 leads; it has a fetch in flight."""
    return QuorumBroker().activates().holds(OTHER)


def fetches(done: tuple[e.Effect, ...]) -> int:
    return sum(isinstance(one, e.Call) and one.channel == "replication" for one in done)


def test_the_next_fetch_of_a_follower_leaves_with_the_answer_to_the_last_one() -> None:
    assert fetches(follower().replicates(answer())) == 1


def test_a_fetch_that_is_refused_is_repeated_after_a_while_whatever_happens_meanwhile() -> None:
    """A leader that does not know yet that it leads would be asked as often as it can answer."""
    broker = follower()
    assert fetches(broker.replicates(answer(error=Error.NOT_LEADER_OR_FOLLOWER))) == 0
    assert fetches(broker.node.give(e.Tick())) == 0
    assert fetches(broker.learns()) == 0, "no news"
    before = len(broker.node.effects)
    broker.node.passes(0.1)
    assert fetches(tuple(broker.node.effects[before:])) == 1


def test_a_fetch_that_is_refused_is_repeated_at_once_after_news_of_the_metadata() -> None:
    broker = follower()
    broker.replicates(error=Error.FETCH_SESSION_ID_NOT_FOUND)
    assert fetches(broker.commits(ROW)) == 1


def test_after_a_fetch_without_an_answer_a_follower_names_all_its_partitions_again() -> None:
    """KIP-227: the leader may not have got it, and would go on from the positions before."""
    broker = follower()
    batch = record_batch.build([b"x"], 0, 0, 1)
    broker.replicates(answer(1, batch))
    lost = broker.node.called("replication")
    broker.node.calls.remove(lost)
    broker.node.give(e.CallFailed(lost.call_id, "closed"))
    broker.node.passes(0.1)
    sent = broker.node.called("replication").message
    assert isinstance(sent, m.FetchRequest)
    assert (sent.session_id, sent.session_epoch) == (0, 0)
    ((part,),) = (topic.partitions for topic in sent.topics)
    assert part.fetch_offset == 1


def test_a_follower_says_that_its_high_watermark_advanced_only_when_it_did() -> None:
    broker = follower()
    batch = record_batch.build([b"x"], 0, 0, 1)
    broker.replicates(answer(1, batch))
    for _ in range(2):
        broker.replicates(answer(1))
    advanced = broker.node.noted(HighWatermarkAdvanced)
    assert [(one.high_watermark, one.as_leader) for one in advanced] == [(1, False)]


def test_a_follower_of_a_topic_that_is_deleted_fetches_no_more() -> None:
    broker = follower()
    assert fetches(broker.commits(r.DeleteTopicRecord(name=TOPIC))) == 0
    assert fetches(broker.replicates(answer())) == 0


def test_a_follower_fetches_a_new_topic_in_place_of_one_that_was_deleted_with_the_same_record() -> (
    None
):
    broker, new = follower(), uuid.UUID(int=10)
    part = r.PartitionRecord(
        partition_id=0, topic_id=new, replicas=(ME, OTHER), isr=(OTHER,), leader=OTHER,
        leader_epoch=0,
    )  # fmt: skip
    broker.commits(
        r.DeleteTopicRecord(name=TOPIC), r.TopicRecord(name="refunds", topic_id=new), part
    )
    broker.replicates()
    sent = broker.node.called("replication").message
    assert isinstance(sent, m.FetchRequest)
    assert [topic.topic_id for topic in sent.topics] == [new]
    assert [topic.topic_id for topic in sent.forgotten_topics_data] == [TOPIC]


def test_a_record_of_what_a_request_changed_names_the_request_as_its_cause(
    broker: QuorumBroker,
) -> None:
    """Explanations follow it."""
    broker.holds(ME)
    broker.node.asks("CLIENT", PRODUCE, client="producer")
    broker.node.asks("REPLICATION", fetched_from(1), client="broker-2#1")
    causes = {
        type(one.body): one.cause.process
        for one in broker.node.effects
        if isinstance(one, e.Note) and one.cause is not None
    }
    assert causes == {
        LogAppended: "producer",
        FollowerFetched: "broker-2#1",
        HighWatermarkAdvanced: "broker-2#1",
        ProduceAnswered: "producer",
    }


def test_a_record_of_a_refusal_names_the_refused_request_as_its_cause(
    broker: QuorumBroker,
) -> None:
    broker.node.passes(5)
    assert broker.state is BrokerState.FENCED
    broker.node.asks("CLIENT", m.MetadataRequest(topics=None), client="reader")
    (refusal,) = (
        one
        for one in broker.node.effects
        if isinstance(one, e.Note) and isinstance(one.body, RequestRefused)
    )
    assert refusal.cause is not None
    assert refusal.cause.process == "reader"


def batch_of(producer: int, sequence: int) -> m.ProduceRequest:
    """A message of an idempotent producer."""
    data = bytearray(record_batch.build([b"x"], 0, -1, 1))
    struct.pack_into(">qhi", data, 43, producer, 0, sequence)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    part = m.PartitionProduceData(index=0, records=bytes(data))
    topic = m.TopicProduceData(name="orders", partition_data=(part,))
    return m.ProduceRequest(acks=-1, timeout=60_000, topic_data=(topic,))


@pytest.mark.parametrize("producer", [0, 7])
def test_a_leader_that_refused_a_batch_waits_for_it_before_it_takes_a_later_one(
    broker: QuorumBroker, producer: int
) -> None:
    """RP-12: the producer sends it again; librdkafka takes it for stored once a later one is."""
    setting = r.ConfigRecord(
        resource_type=2, resource_name="orders", name="min.insync.replicas", value="2"
    )
    broker.holds(ME, isr=(ME,))
    broker.commits(setting)
    early, late = batch_of(producer, 0), batch_of(producer, 1)
    refused = produced(broker.node.asks("CLIENT", early))
    assert refused == [Error.NOT_ENOUGH_REPLICAS]
    broker.commits(replace(setting, value=""))
    answers = [produced(broker.node.asks("CLIENT", one)) for one in (late, early, late, early)]
    assert answers == [
        [Error.OUT_OF_ORDER_SEQUENCE_NUMBER],
        [Error.NONE],
        [Error.NONE],
        [Error.NONE],
    ]
    assert broker.core.data.replicas.by_key[TOPIC, 0].log.end == 2, (
        "the repeated one is stored once"
    )


# --------------------------------------------------------------------------------------- snapshots


def test_a_broker_takes_a_snapshot_each_time_that_enough_is_committed_since_the_last() -> None:
    broker = QuorumBroker(metadata_snapshot_interval_records="10").activates()
    while broker.end < 35:
        broker.commits(ROW)
        broker.node.passes(0.02)
    assert [one.offset for one in broker.node.noted(SnapshotStored)] == [0, 10, 20, 30]
    notes = [one.body for one in broker.node.effects if isinstance(one, e.Note)]
    begun = [(a, b) for a, b in pairwise(notes) if isinstance(b, SnapshotStarted)]
    digests = [a.offset for a, _ in begun if isinstance(a, MetadataDigest)]
    assert digests == [b.offset for _, b in begun], "each says which state it is of"


def test_a_broker_goes_on_with_its_snapshot_though_a_client_asks_at_that_time() -> None:
    broker = QuorumBroker(
        metadata_snapshot_interval_records="10", metadata_snapshot_slice_records="1"
    ).activates()
    while (due_ns := broker.core.snapshots.deadline_ns()) is None:
        broker.commits(ROW)
    broker.node.now_ns = due_ns
    assert len(broker.node.asks("CLIENT", PRODUCE)) == 1
    later_ns = broker.core.snapshots.deadline_ns()
    assert later_ns is None or later_ns > due_ns


def test_every_node_records_a_digest_of_the_state_at_the_same_offsets() -> None:
    """QC-08: so that they can be compared, however the records came in batches."""
    one, several = QuorumBroker().activates(), QuorumBroker().activates()
    while one.end < 140:
        one.commits(ROW)
        if one.end % 4 == 0:
            several.commits(*[ROW] * (one.end - several.end))
    for broker in (one, several):
        digests = [note.offset for note in broker.node.noted(MetadataDigest) if note.offset > 0]
        assert digests == [32, 64, 96, 128]


def test_a_topic_that_is_marked_as_being_deleted_is_recorded(broker: QuorumBroker) -> None:
    """QC-26: rules about deletions read it."""
    broker.commits(r.TopicRecord(name="orders", topic_id=TOPIC))
    broker.commits(r.TopicRecord(name="orders", topic_id=TOPIC, deleting=True))
    (marked,) = broker.node.noted(TopicMarked)
    assert (marked.topic, marked.topic_id, marked.offset) == ("orders", str(TOPIC), broker.end - 1)


def test_a_snapshot_holds_the_record_that_begins_a_term(broker: QuorumBroker) -> None:
    """QC-11: the log goes on right after the snapshot."""
    begins = record_batch.build([b"0001"], broker.end, TERM + 1, 1, control=True)
    broker.end += 1
    broker.learns(begins)
    broker.core.snapshots.start(broker.core.committed.image, broker.node.now)
    broker.node.give(e.Tick())
    assert broker.node.noted(SnapshotStarted)[-1].offset == broker.end


def test_a_broker_fetches_from_the_controller_that_answers_its_heartbeat(
    broker: QuorumBroker,
) -> None:
    """A fetch from the one before it, which may be silent, would have to time out first."""
    broker.node.passes(0.4)
    done = broker.beats(epoch=1, controller=(102, TERM + 1))
    (call,) = (one for one in done if isinstance(one, e.Call) and one.channel == "metadata")
    assert call.address == ("c-2", 9093)


def test_a_broker_stays_in_the_epoch_of_its_leader_though_a_candidate_has_begun_another(
    broker: QuorumBroker,
) -> None:
    """The candidate may never win. The leader's own epoch would then count as an old one."""
    broker.node.answers(
        "metadata",
        fetch_answer(None, TERM + 5, high_watermark=broker.end, error=Error.NOT_LEADER_OR_FOLLOWER),
    )
    broker.node.passes(1)
    refusal = fetch_answer(
        CONTROLLER, TERM, high_watermark=broker.end, error=Error.NOT_LEADER_OR_FOLLOWER
    )
    broker.node.answers("metadata", refusal)
    assert broker.node.called("metadata").address == ("c-1", 9093)
