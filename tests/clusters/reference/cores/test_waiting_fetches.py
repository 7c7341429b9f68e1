"""Clients' fetches that wait at a leader for records."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from quorum_bench import ME, OTHER, TOPIC
from requests_bench import BATCH, MANY, Leader, active, errors, parts, produce, read, served

from fencepost_clusters.reference.core.quorum.broker_state import BrokerState
from fencepost_clusters.reference.wire import messages as m
from fencepost_clusters.reference.wire.errors import Error
from fencepost_kafka import FetchServed


@pytest.fixture
def alone() -> Leader:
    """The ISR is broker 1 alone, so what it stores is committed."""
    return active()


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
    assert not alone.core.data.replicas.changed


def test_a_batch_that_is_not_committed_makes_no_parked_fetch_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A leader has many readers that wait."""
    leader = active((ME, OTHER))
    leader.asked(read(0))
    log = leader.core.data.replicas.by_key[TOPIC, 0].log
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
    fetching = alone.core.data.fetching
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
