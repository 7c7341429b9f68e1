"""Clients' requests that wait at a leader: fetches for records, and writes for their commit."""

from __future__ import annotations

import struct
from unittest.mock import Mock

import pytest
from crc32c import crc32c
from quorum_bench import ME, OTHER, SECOND, TOPIC, QuorumBroker, replies

from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.core.quorum.broker_state import BrokerState
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire import records as r
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import BrokerStateChanged, FetchServed, ProduceAnswered, RequestRefused

BATCH = record_batch.build([b"x"], 0, -1, 1)
MANY = 1 << 20


def produce(
    *indexes: int, acks: int = -1, timeout_ms: int = 60_000, batch: bytes = BATCH
) -> m.ProduceRequest:
    """A batch for each of these partitions."""
    data = tuple(m.PartitionProduceData(index=index, records=batch) for index in indexes)
    topics = (m.TopicProduceData(name="orders", partition_data=data),)
    return m.ProduceRequest(acks=acks, timeout=timeout_ms, topic_data=topics)


def read(
    *offsets: int,
    max_wait: int = 500,
    min_bytes: int = 1,
    max_bytes: int = MANY,
    session: int = 0,
    epoch: int = -1,
) -> m.FetchRequest:
    """A client's fetch from these offsets of partitions 0, 1 and so on."""
    parts = tuple(
        m.FetchPartition(
            partition=index,
            fetch_offset=offset,
            partition_max_bytes=MANY,
            current_leader_epoch=epoch,
        )
        for index, offset in enumerate(offsets)
    )
    return m.FetchRequest(
        max_wait=max_wait,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=(m.FetchTopic(partitions=parts, topic="orders"),),
        session_id=session,
    )


def parts(answer: m.Response | None) -> list[m.PartitionData]:
    assert isinstance(answer, m.FetchResponse)
    return [part for topic in answer.responses for part in topic.partitions]


def served(answer: m.Response | None) -> list[int]:
    """How far the records of each partition go in an answer without errors; -1 without records."""
    assert {part.error_code for part in parts(answer)} == {Error.NONE}
    slices = [part.records for part in parts(answer)]
    return [one.end if isinstance(one, m.LogSlice) else -1 for one in slices]


def errors(answer: m.Response | None) -> list[Error]:
    """The error of each partition in an answer."""
    if isinstance(answer, m.ProduceResponse):
        return [Error(p.error_code) for t in answer.responses for p in t.partition_responses]
    return [Error(part.error_code) for part in parts(answer)]


class Leader:
    """Broker 1 leads two partitions alone, unless broker 2 is in the ISR, too."""

    def __init__(self) -> None:
        self.broker = QuorumBroker().activates()
        self.node, self.core = self.broker.node, self.broker.core

    def leads(self, isr: tuple[int, ...] = (ME,), leader: int = ME, epoch: int = 0) -> Leader:
        topic = [] if epoch else [r.TopicRecord(name="orders", topic_id=TOPIC)]
        parts = [
            r.PartitionRecord(
                partition_id=index,
                topic_id=TOPIC,
                replicas=(ME, OTHER),
                isr=isr,
                leader=leader,
                leader_epoch=epoch,
            )
            for index in (0, 1)
        ]
        self.broker.commits(*topic, *parts)
        return self

    def sets(self, name: str, value: str) -> None:
        """The controller commits a setting of the topic."""
        record = r.ConfigRecord(resource_type=2, resource_name="orders", name=name, value=value)
        self.broker.commits(record)

    def since(self, before: int) -> list[m.Response | None]:
        """The answers among its effects from this number on."""
        return [one.message for one in replies(self.node.effects[before:])]

    def asked(self, message: m.Request) -> list[m.Response | None]:
        """The answers that leave at once when a client asks."""
        return [one.message for one in self.node.asks("CLIENT", message)]

    def fetched(self, offset: int, session: tuple[int, int] = (0, 0)) -> list[e.Reply]:
        """Broker 2 has both logs up to this offset; the answers that leave at once."""
        parts = tuple(
            m.FetchPartition(
                partition=index,
                fetch_offset=offset,
                partition_max_bytes=MANY,
                current_leader_epoch=0,
                last_fetched_epoch=0 if offset else -1,
            )
            for index in (0, 1)
        )
        return self.node.asks(
            "REPLICATION",
            m.FetchRequest(
                max_wait=500,
                min_bytes=0,
                max_bytes=MANY,
                topics=(m.FetchTopic(partitions=parts, topic_id=TOPIC),),
                replica_state=m.ReplicaState(replica_id=OTHER, replica_epoch=2),
                session_id=session[0],
                session_epoch=session[1],
            ),
        )


def active(isr: tuple[int, ...] = (ME,)) -> Leader:
    return Leader().leads(isr)


@pytest.fixture
def alone() -> Leader:
    """The ISR is broker 1 alone, so what it stores is committed."""
    return active()


# ----------------------------------------------------------------------------------------- fetches


def test_a_clients_fetch_of_a_session_is_refused(alone: Leader) -> None:
    """KIP-227: clients have none here. Without an answer, one would wait for its timeout."""
    unknown = m.FetchResponse(error_code=Error.FETCH_SESSION_ID_NOT_FOUND, responses=())
    assert alone.asked(read(0, session=7)) == [unknown]


def test_a_parked_fetch_is_refused_once_the_broker_is_fenced(alone: Leader) -> None:
    """QC-17."""
    alone.node.passes(0.5)
    assert alone.asked(read(0, max_wait=60_000)) == []
    before = len(alone.node.effects)
    alone.node.passes(5)
    assert alone.broker.state is BrokerState.FENCED
    (answer,) = alone.since(before)
    assert errors(answer) == [Error.NOT_LEADER_OR_FOLLOWER]


def test_a_parked_fetch_is_answered_once(alone: Leader) -> None:
    """By the first batch, and not again by the next one or when its time is up."""
    alone.asked(read(0))
    before = len(alone.node.effects)
    alone.asked(produce(0, acks=1))
    alone.asked(produce(0, acks=1))
    alone.node.passes(1)
    fetches = [one for one in alone.since(before) if isinstance(one, m.FetchResponse)]
    assert [served(one) for one in fetches] == [[1]]
    (event,) = alone.node.noted(FetchServed)
    assert (event.from_offset, event.to_offset) == (0, 1)


def test_a_parked_fetch_is_answered_when_its_time_is_up_and_not_before(alone: Leader) -> None:
    alone.asked(read(0, 0, max_wait=500))
    before = len(alone.node.effects)
    alone.node.passes(0.499)
    assert alone.since(before) == []
    alone.node.passes(0.001)
    assert [served(one) for one in alone.since(before)] == [[-1, -1]]


def test_a_parked_fetch_is_answered_though_it_found_its_partition_led_by_another_since(
    alone: Leader,
) -> None:
    alone.asked(read(0, max_wait=60_000, min_bytes=MANY))
    before = len(alone.node.effects)
    alone.leads(leader=OTHER, isr=(OTHER,), epoch=1)
    assert [errors(one) for one in alone.since(before)] == [[Error.NOT_LEADER_OR_FOLLOWER]]


def test_fetches_that_wait_for_one_partition_are_answered_in_the_order_in_which_they_came(
    alone: Leader,
) -> None:
    for offsets in ((0,), (0, 0)):
        alone.asked(read(*offsets))
    before = len(alone.node.effects)
    alone.asked(produce(0, acks=1))
    fetches = [one for one in alone.since(before) if isinstance(one, m.FetchResponse)]
    assert [served(one) for one in fetches] == [[1], [1, -1]]


def test_a_parked_fetch_counts_the_bytes_of_all_its_partitions(alone: Leader) -> None:
    alone.asked(produce(0, acks=1))
    assert alone.asked(read(0, 0, min_bytes=3 * len(BATCH))) == []
    before = len(alone.node.effects)
    alone.asked(produce(1, acks=1))
    assert not any(isinstance(one, m.FetchResponse) for one in alone.since(before))
    alone.asked(produce(0, acks=1))
    fetches = [one for one in alone.since(before) if isinstance(one, m.FetchResponse)]
    assert [served(one) for one in fetches] == [[2, 1]]


def test_a_fetch_that_finds_just_the_bytes_that_it_wants_does_not_wait(alone: Leader) -> None:
    alone.asked(produce(0, 1, acks=1))
    (answer,) = alone.asked(read(0, 0, min_bytes=2 * len(BATCH)))
    assert served(answer) == [1, 1]


@pytest.mark.parametrize("wanted", [1, MANY])
@pytest.mark.parametrize(
    ("most", "ends"),
    [(len(BATCH) - 1, [1, -1]), (2 * len(BATCH) - 1, [1, -1]), (2 * len(BATCH), [1, 1])],
)
def test_only_the_first_batch_of_an_answer_may_be_larger_than_allowed(
    alone: Leader, most: int, ends: list[int], wanted: int
) -> None:
    """An answer without room for more does not wait for more."""
    alone.asked(produce(0, 1, acks=1))
    (answer,) = alone.asked(read(0, 0, min_bytes=wanted, max_bytes=most))
    assert served(answer) == ends


def test_a_parked_fetch_waits_for_no_more_than_its_answer_may_have(alone: Leader) -> None:
    alone.asked(produce(0, acks=1))
    assert alone.asked(read(0, 0, min_bytes=MANY, max_bytes=2 * len(BATCH))) == []
    before = len(alone.node.effects)
    alone.asked(produce(1, acks=1))
    fetches = [one for one in alone.since(before) if isinstance(one, m.FetchResponse)]
    assert [served(one) for one in fetches] == [[1, 1]]


def test_a_parked_fetch_of_a_follower_is_answered_by_the_first_batch() -> None:
    leader = active((ME, OTHER))
    leader.fetched(0)
    assert leader.fetched(0, session=(1, 1)) == []
    before = len(leader.node.effects)
    leader.asked(produce(1))
    (answer,) = leader.since(before)
    assert [part.partition_index for part in parts(answer)] == [1]


def test_a_change_of_a_replica_is_looked_at_once(alone: Leader) -> None:
    """Every later step would look at it again."""
    alone.asked(read(0, min_bytes=MANY))
    alone.asked(produce(0, acks=1))
    assert not alone.core.replicas.changed


def test_a_batch_that_is_not_committed_makes_no_parked_fetch_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A leader has many readers that wait."""
    leader = active((ME, OTHER))
    leader.asked(read(0))
    log = leader.core.replicas.by_key[TOPIC, 0].log
    looked = Mock(wraps=log.span)
    monkeypatch.setattr(log, "span", looked)
    leader.asked(produce(0))
    assert looked.call_args_list == []
    leader.fetched(1)
    assert looked.call_args_list != []


def test_nothing_is_kept_of_a_fetch_that_was_answered(alone: Leader) -> None:
    """A broker would run out of memory."""
    alone.asked(read(0, 0))
    alone.asked(read(0))
    alone.node.passes(1)
    fetching = alone.core.fetching
    assert (fetching._parked, fetching._waiting) == ({}, {})
    assert fetching.deadline_ns() is None


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        (-1, Error.NONE),
        (0, Error.FENCED_LEADER_EPOCH),
        (3, Error.NONE),
        (4, Error.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_a_fetch_in_another_leader_epoch_is_refused(
    alone: Leader, epoch: int, error: Error
) -> None:
    """KIP-320."""
    alone.leads(epoch=3)
    (answer,) = alone.asked(read(0, max_wait=0, epoch=epoch))
    assert errors(answer) == [error]


@pytest.mark.parametrize(
    ("offset", "error"),
    [(-1, Error.OFFSET_OUT_OF_RANGE), (1, Error.NONE), (2, Error.OFFSET_OUT_OF_RANGE)],
)
def test_a_fetch_from_outside_the_log_is_refused(alone: Leader, offset: int, error: Error) -> None:
    alone.asked(produce(0, acks=1))
    (answer,) = alone.asked(read(offset, max_wait=0))
    assert errors(answer) == [error]
    (part,) = parts(answer)
    assert part.high_watermark == 1


# ------------------------------------------------------------------------------------------ writes


def test_a_write_that_is_not_committed_fails_when_its_time_is_up_and_not_before() -> None:
    """RP-04. `passes` fails if the broker wants a Tick at which it does nothing."""
    leader = active((ME, OTHER))
    assert leader.asked(produce(0, timeout_ms=500)) == []
    assert leader.asked(produce(1, timeout_ms=800)) == []
    before = len(leader.node.effects)
    leader.node.passes(0.499)
    assert leader.since(before) == []
    for seconds in (0.001, 0.3):
        leader.node.passes(seconds)
        (answer,) = leader.since(before)
        assert errors(answer) == [Error.REQUEST_TIMED_OUT]
        before = len(leader.node.effects)


def test_a_write_to_two_partitions_is_answered_once_both_are_committed() -> None:
    leader = active((ME, OTHER))
    assert leader.asked(produce(0, 1)) == []
    before = len(leader.node.effects)
    leader.fetched(0)
    assert not any(isinstance(one, m.ProduceResponse) for one in leader.since(before))
    leader.fetched(1)
    (answer,) = (one for one in leader.since(before) if isinstance(one, m.ProduceResponse))
    assert errors(answer) == [Error.NONE, Error.NONE]
    assert isinstance(answer, m.ProduceResponse)
    assert [one.base_offset for one in answer.responses[0].partition_responses] == [0, 0]
    for index, event in enumerate(leader.node.noted(ProduceAnswered)):
        assert (event.partition, event.error, event.duplicate) == (index, "NONE", False)
        assert (event.base_offset, event.log_end, event.high_watermark) == (0, 1, 1)
        assert (event.leader_epoch, event.isr, event.ends) == (0, (ME, OTHER), (1, 1))


def test_a_write_that_timed_out_has_no_offset_in_its_answer_and_its_record() -> None:
    """It may be committed later, and at another offset."""
    leader = active((ME, OTHER))
    leader.asked(produce(0, timeout_ms=500))
    before = len(leader.node.effects)
    leader.node.passes(0.5)
    (answer,) = leader.since(before)
    assert isinstance(answer, m.ProduceResponse)
    assert answer.responses[0].partition_responses[0].base_offset == -1
    (event,) = leader.node.noted(ProduceAnswered)
    assert (event.error, event.base_offset, event.log_end) == ("REQUEST_TIMED_OUT", -1, -1)
    assert (event.isr, event.ends) == ((ME, OTHER), (1, -1))


def test_a_write_that_is_sent_again_waits_as_long_as_it_says() -> None:
    """RP-12. It changes no replica, and it may have less time than the first one."""
    leader = active((ME, OTHER))
    batch = record_batch.build([b"x"], 0, -1, 1, producer=(7, 0, 0))
    leader.asked(produce(0, timeout_ms=800, batch=batch))
    leader.asked(produce(0, timeout_ms=300, batch=batch))
    before = len(leader.node.effects)
    leader.node.passes(0.3)
    (answer,) = leader.since(before)
    assert errors(answer) == [Error.REQUEST_TIMED_OUT]
    assert leader.node.noted(ProduceAnswered)[-1].duplicate
    assert leader.core.replicas.by_key[TOPIC, 0].log.end == 1


def test_a_write_to_a_follower_is_refused_and_recorded() -> None:
    """RP-18."""
    follower = active()
    follower.leads(leader=OTHER, isr=(ME, OTHER), epoch=1)
    (answer,) = follower.asked(produce(0))
    assert errors(answer) == [Error.NOT_LEADER_OR_FOLLOWER]
    (refused,) = follower.node.noted(RequestRefused)
    assert (refused.reason, refused.error) == ("not_leader", "NOT_LEADER_OR_FOLLOWER")
    (event,) = follower.node.noted(ProduceAnswered)
    assert (event.error, event.leader_epoch, event.high_watermark) == (refused.error, -1, -1)


@pytest.mark.parametrize(("acks", "error"), [(-1, Error.NOT_ENOUGH_REPLICAS), (1, Error.NONE)])
def test_only_a_write_that_waits_for_the_isr_needs_a_large_one(
    alone: Leader, acks: int, error: Error
) -> None:
    """One that waits for no follower may be lost in any case."""
    alone.sets("min.insync.replicas", "2")
    (answer,) = alone.asked(produce(0, acks=acks))
    assert errors(answer) == [error]
    reasons = [one.reason for one in alone.node.noted(RequestRefused)]
    assert reasons == (["not_enough_replicas"] if error is not Error.NONE else [])


@pytest.mark.parametrize(("spare", "error"), [(0, Error.NONE), (-1, Error.MESSAGE_TOO_LARGE)])
def test_a_batch_of_the_greatest_size_is_stored_and_a_larger_one_is_not(
    alone: Leader, spare: int, error: Error
) -> None:
    alone.sets("max.message.bytes", str(len(BATCH) + spare))
    (answer,) = alone.asked(produce(0))
    assert errors(answer) == [error]


@pytest.mark.parametrize("attributes", [0x10, 0x20], ids=["transactional", "control"])
def test_a_batch_of_a_transaction_is_refused(alone: Leader, attributes: int) -> None:
    batch = bytearray(BATCH)
    batch[22] = attributes
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[record_batch.CRC_FROM :])))
    (answer,) = alone.asked(produce(0, batch=bytes(batch)))
    assert errors(answer) == [Error.INVALID_REQUEST]


@pytest.mark.parametrize(
    ("batch", "error"),
    [(b"", Error.INVALID_REQUEST), (BATCH[:-1] + b"?", Error.CORRUPT_MESSAGE)],
    ids=["empty", "corrupt"],
)
def test_what_is_no_batch_is_refused(alone: Leader, batch: bytes, error: Error) -> None:
    (answer,) = alone.asked(produce(0, batch=batch))
    assert errors(answer) == [error]
    assert alone.core.replicas.by_key[TOPIC, 0].log.end == 0


def test_a_refused_batch_that_was_stored_since_is_not_remembered(alone: Leader) -> None:
    """The log has it then, and others would be forgotten for it."""
    alone.sets("min.insync.replicas", "2")
    batch = record_batch.build([b"x"], 0, -1, 1, producer=(7, 0, 0))
    alone.asked(produce(0, batch=batch))
    assert len(alone.core.producing._refused_batches._earliest) == 1
    alone.sets("min.insync.replicas", "1")
    (answer,) = alone.asked(produce(0, batch=batch))
    assert errors(answer) == [Error.NONE]
    assert alone.core.producing._refused_batches._earliest == {}


def test_a_write_with_one_bad_partition_is_stored_in_the_other(alone: Leader) -> None:
    (answer,) = alone.asked(produce(0, 7, acks=1))
    assert errors(answer) == [Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION]
    assert alone.core.replicas.by_key[TOPIC, 0].log.end == 1


@pytest.mark.parametrize("acks", [-2, 2])
def test_a_write_that_wants_other_acknowledgements_is_refused(alone: Leader, acks: int) -> None:
    (answer,) = alone.asked(produce(0, acks=acks))
    assert errors(answer) == [Error.INVALID_REQUIRED_ACKS]


def test_a_write_without_acknowledgement_has_an_empty_answer(alone: Leader) -> None:
    """The shell sends nothing for it."""
    assert alone.asked(produce(0, acks=0)) == [None]
    assert alone.core.replicas.by_key[TOPIC, 0].log.end == 1


def test_a_write_that_waits_is_refused_as_soon_as_the_controller_fences_its_leader() -> None:
    """QC-17: also before the lease ends."""
    leader = active((ME, OTHER))
    assert leader.asked(produce(0)) == []
    leader.node.passes(0.3)
    done = leader.broker.beats(error=Error.STALE_BROKER_EPOCH)
    assert [errors(one.message) for one in replies(done)] == [[Error.NOT_LEADER_OR_FOLLOWER]]


def test_a_request_at_the_very_end_of_the_lease_is_handled_after_that_end() -> None:
    """QC-17."""
    leader = active((ME,))
    leader.node.now_ns = leader.core.lifecycle.lease_ends_ns
    before = len(leader.node.effects)
    assert [errors(one) for one in leader.asked(produce(0))] == [[Error.NOT_LEADER_OR_FOLLOWER]]
    bodies = [one.body for one in leader.node.effects[before:] if isinstance(one, e.Note)]
    kinds = [type(one) for one in bodies if isinstance(one, BrokerStateChanged | RequestRefused)]
    assert kinds == [BrokerStateChanged, RequestRefused]


def test_a_request_about_messages_has_a_broker_look_at_no_metadata(alone: Leader) -> None:
    """Most requests are, and the metadata are as they were."""
    looked = alone.core.committed.advance = Mock(wraps=alone.core.committed.advance)
    alone.asked(produce(0))
    alone.asked(read(0))
    alone.fetched(0)
    assert looked.call_count == 0
    alone.broker.learns()
    assert looked.call_count == 1


def test_all_writes_that_wait_are_refused_once_when_the_lease_ends() -> None:
    """QC-17."""
    leader = active((ME, OTHER))
    for index in (0, 1):
        assert leader.asked(produce(index)) == []
    leader.node.now_ns += 4 * SECOND
    before = len(leader.node.effects)
    leader.node.passes(90)
    assert [errors(one) for one in leader.since(before)] == [[Error.NOT_LEADER_OR_FOLLOWER]] * 2
