"""Clients' writes that wait at a leader for their commit."""

from __future__ import annotations

import struct
from unittest.mock import Mock

import pytest
from crc32c import crc32c
from quorum_bench import ME, OTHER, SECOND, TOPIC, replies
from requests_bench import BATCH, Leader, active, errors, produce, read

from fencepost_clusters.reference.core.node import effects as e
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import BrokerStateChanged, ProduceAnswered, RequestRefused


@pytest.fixture
def alone() -> Leader:
    """The ISR is broker 1 alone, so what it stores is committed."""
    return active()


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
    assert leader.core.data.replicas.by_key[TOPIC, 0].log.end == 1


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
    assert alone.core.data.replicas.by_key[TOPIC, 0].log.end == 0


def test_a_refused_batch_that_was_stored_since_is_not_remembered(alone: Leader) -> None:
    """The log has it then, and others would be forgotten for it."""
    alone.sets("min.insync.replicas", "2")
    batch = record_batch.build([b"x"], 0, -1, 1, producer=(7, 0, 0))
    alone.asked(produce(0, batch=batch))
    assert len(alone.core.data.producing._refused_batches._earliest) == 1
    alone.sets("min.insync.replicas", "1")
    (answer,) = alone.asked(produce(0, batch=batch))
    assert errors(answer) == [Error.NONE]
    assert alone.core.data.producing._refused_batches._earliest == {}


def test_a_write_with_one_bad_partition_is_stored_in_the_other(alone: Leader) -> None:
    (answer,) = alone.asked(produce(0, 7, acks=1))
    assert errors(answer) == [Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION]
    assert alone.core.data.replicas.by_key[TOPIC, 0].log.end == 1


@pytest.mark.parametrize("acks", [-2, 2])
def test_a_write_that_wants_other_acknowledgements_is_refused(alone: Leader, acks: int) -> None:
    (answer,) = alone.asked(produce(0, acks=acks))
    assert errors(answer) == [Error.INVALID_REQUIRED_ACKS]


def test_a_write_without_acknowledgement_has_an_empty_answer(alone: Leader) -> None:
    """The shell sends nothing for it."""
    assert alone.asked(produce(0, acks=0)) == [None]
    assert alone.core.data.replicas.by_key[TOPIC, 0].log.end == 1


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
    ends_ns = leader.core.lifecycle.lease_ends_ns
    leader.node.passes((ends_ns - leader.node.now_ns - 1) / SECOND)
    leader.node.now_ns = leader.core.deadline_ns()
    assert leader.node.now_ns == ends_ns
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
