"""A follower's fetches from its leader, and its replica; one broker of the quorum plane."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from quorum_bench import ME, OTHER, TOPIC, QuorumBroker, registration

from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.quorum.broker_state import BrokerState
from fencepost_clusters.reference.core.replication.replica import Replica
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import LogTruncated


def answer(
    high_watermark: int = 0,
    records: bytes = b"",
    diverging: m.EpochEndOffset | None = None,
) -> m.PartitionData:
    """A leader's answer for the partition."""
    return m.PartitionData(
        partition_index=0,
        error_code=Error.NONE,
        high_watermark=high_watermark,
        records=records,
        diverging_epoch=diverging or m.EpochEndOffset(),
    )


def batch(offset: int, epoch: int = 0, count: int = 1) -> bytes:
    return record_batch.build([b"x"] * count, offset, epoch, 1)


@pytest.fixture
def broker() -> QuorumBroker:
    """Broker 2 leads; broker 1 has a fetch in flight."""
    return QuorumBroker().activates().holds(OTHER)


def mine(broker: QuorumBroker) -> Replica:
    return broker.core.data.replicas.by_key[TOPIC, 0]


def asked(broker: QuorumBroker) -> m.FetchRequest:
    """The fetch in flight."""
    sent = broker.node.called("replication").message
    assert isinstance(sent, m.FetchRequest)
    return sent


def session(broker: QuorumBroker) -> tuple[int, int, int]:
    """The session and epoch of the fetch in flight, and the partitions that it names."""
    sent = asked(broker)
    return sent.session_id, sent.session_epoch, sum(len(one.partitions) for one in sent.topics)


# ----------------------------------------------------------------------------------------- session


def test_a_session_begins_with_a_full_fetch_and_goes_on_with_what_has_changed(
    broker: QuorumBroker,
) -> None:
    """KIP-227."""
    assert session(broker) == (0, 0, 1)
    broker.replicates(answer())
    assert session(broker) == (1, 1, 0)
    broker.replicates(answer(0, batch(0)))
    assert session(broker) == (1, 2, 1)
    broker.replicates()
    assert session(broker) == (1, 3, 0)


def test_a_follower_names_a_partition_that_has_left_its_session_once(
    broker: QuorumBroker,
) -> None:
    """KIP-227: the leader has forgotten it then."""
    for leader in (OTHER, ME):
        part = r.PartitionRecord(
            partition_id=1,
            topic_id=TOPIC,
            replicas=(ME, OTHER),
            isr=(ME, OTHER),
            leader=leader,
            leader_epoch=2 - leader % 2,
        )
        broker.commits(part)
        broker.replicates(answer())
    gone = m.ForgottenTopic(partitions=(1,), topic_id=TOPIC)
    assert asked(broker).forgotten_topics_data == (gone,)
    broker.replicates()
    assert asked(broker).forgotten_topics_data == ()


def test_after_an_answer_without_a_session_the_next_fetch_is_a_full_one_again(
    broker: QuorumBroker,
) -> None:
    """KIP-227: a leader may have no place for another session."""
    topic = m.FetchableTopicResponse(partitions=(answer(),), topic_id=TOPIC)
    without = m.FetchResponse(error_code=Error.NONE, session_id=0, responses=(topic,))
    broker.node.answers("replication", without)
    assert session(broker) == (0, 0, 1)


def test_a_broker_that_registers_again_begins_a_session_again(broker: QuorumBroker) -> None:
    """QC-19: the leader may have dropped what it counted for the former registration."""
    broker.replicates(answer())
    broker.node.passes(0.4)
    broker.beats(error=Error.BROKER_ID_NOT_REGISTERED)
    broker.node.passes(0.4)
    broker.beats(BrokerState.FENCED, epoch=9)
    broker.replicates()
    assert session(broker) == (0, 0, 1)
    assert asked(broker).replica_state == m.ReplicaState(replica_id=ME, replica_epoch=9)


def test_a_follower_does_not_look_at_a_partition_in_which_nothing_happens(
    broker: QuorumBroker,
) -> None:
    """A broker has thousands of them."""
    broker.replicates(answer())
    unread: Any = SimpleNamespace()  # whatever is read of it is an error
    mine(broker).log = unread
    broker.replicates()
    assert session(broker) == (1, 2, 0)


@pytest.mark.parametrize("waited", [0, 0.5], ids=["at once", "later"])
def test_a_fetch_without_an_answer_is_repeated_after_a_while(
    broker: QuorumBroker, waited: float
) -> None:
    """The connection may be refused, or it may time out."""
    lost = broker.node.called("replication")
    broker.node.passes(waited)
    broker.node.calls.remove(lost)
    broker.node.give(e.CallFailed(lost.call_id, "timeout"))
    broker.node.passes(0.049)
    assert not any(one.channel == "replication" for one in broker.node.calls)
    broker.node.passes(0.001)
    assert session(broker) == (0, 0, 1)


def test_the_end_of_another_call_is_no_end_of_a_fetch(broker: QuorumBroker) -> None:
    following, call = broker.core.data.following, broker.node.called("replication").call_id
    refused = m.FetchResponse(error_code=Error.FETCH_SESSION_ID_NOT_FOUND, responses=())
    assert not following.failed(call + 1, broker.node.now)
    assert not following.answered(call + 1, refused, broker.node.now)
    assert following.failed(call, broker.node.now)
    assert not following.failed(call, broker.node.now), "it has ended already"
    broker.node.passes(0.05)
    broker.node.give(e.Tick())
    call = broker.node.called("replication").call_id
    assert following.answered(call, refused, broker.node.now)
    assert not following.answered(call, refused, broker.node.now)


def test_a_follower_fetches_from_no_leader_that_is_not_registered(broker: QuorumBroker) -> None:
    """Once that registers, it is called at its new address."""
    broker = QuorumBroker()
    broker.beats(BrokerState.FENCED)
    broker.registers()
    broker.holds(OTHER)
    broker.node.passes(0.2)
    assert not any(one.channel == "replication" for one in broker.node.calls)
    broker.commits(registration(OTHER, uuid.UUID(int=OTHER), broker.end))
    assert broker.node.called("replication").address == ("broker-2", 9091)


# ----------------------------------------------------------------------------------------- replica


def test_a_follower_stores_the_batches_of_its_leader_as_they_are(broker: QuorumBroker) -> None:
    """RP-05."""
    whole = batch(0) + batch(1, count=2)
    done = broker.replicates(answer(2, whole))
    stored = [one for one in done if isinstance(one, e.Append)]
    assert [(one.base_offset, one.data) for one in stored] == [
        (0, batch(0)),
        (1, batch(1, count=2)),
    ]
    assert (mine(broker).log.end, mine(broker).high_watermark) == (3, 2)


@pytest.mark.parametrize("leader", [OTHER, ME])
def test_an_answer_of_a_former_leader_epoch_is_not_stored(
    broker: QuorumBroker, leader: int
) -> None:
    """RP-15: the logs may diverge; the next fetch tells."""
    broker.holds(leader, epoch=1)
    broker.replicates(answer(1, batch(0)))
    assert (mine(broker).log.end, mine(broker).high_watermark) == (0, 0)


def test_what_a_follower_has_already_is_not_stored_again(broker: QuorumBroker) -> None:
    broker.replicates(answer(0, batch(0)))
    done = broker.replicates(answer(0, batch(0) + batch(1)))
    assert [one.base_offset for one in done if isinstance(one, e.Append)] == [1]
    assert mine(broker).log.end == 2


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_follower_truncates_its_log_to_where_it_diverges(
    broker: QuorumBroker, epoch: int
) -> None:
    """RP-15. The high watermark goes back with it."""
    broker.holds(OTHER, epoch=3)
    broker.replicates()
    broker.replicates(answer(3, batch(0, epoch) + batch(1, epoch) + batch(2, epoch + 1)))
    assert (mine(broker).log.end, mine(broker).high_watermark) == (3, 3)
    done = broker.replicates(answer(diverging=m.EpochEndOffset(epoch=epoch, end_offset=1)))
    assert [one for one in done if isinstance(one, e.Truncate)] == [
        e.Truncate(mine(broker).name, 1)
    ]
    assert (mine(broker).log.end, mine(broker).high_watermark) == (1, 1)
    (cut,) = broker.node.noted(LogTruncated)
    assert (cut.from_log_end, cut.to_offset, cut.reason) == (3, 1, "leader_epoch")
    ((part,),) = (topic.partitions for topic in asked(broker).topics)
    assert (part.fetch_offset, part.last_fetched_epoch) == (1, epoch)


def test_a_follower_syncs_what_it_stores_in_place_of_records_that_it_had_synced(
    broker: QuorumBroker,
) -> None:
    """RP-26: its checkpoint says up to where the disk has the log."""
    name = mine(broker).name
    broker.replicates(answer(0, batch(0, count=3)))
    broker.node.passes(6)
    assert e.Sync(name) in broker.node.effects
    broker.replicates(answer(diverging=m.EpochEndOffset(epoch=0, end_offset=1)))
    broker.replicates(answer(0, batch(1)))
    before = len(broker.node.effects)
    broker.node.passes(6)
    assert e.Sync(name) in broker.node.effects[before:]


def test_a_follower_that_has_no_more_than_its_leader_truncates_nothing(
    broker: QuorumBroker,
) -> None:
    broker.replicates(answer(0, batch(0)))
    broker.replicates(answer(diverging=m.EpochEndOffset(epoch=0, end_offset=1)))
    assert broker.node.noted(LogTruncated) == []
    assert mine(broker).log.end == 1
