"""Which batches are refused while an earlier one of their producer may come again."""

from __future__ import annotations

import pytest

from fencepost_clusters.reference.core.replication.refused_batches import MOST, RefusedBatches
from fencepost_clusters.reference.wire import record_batch
from fencepost_clusters.reference.wire.errors import Error

ORDERS = ("orders", 0)
NOT_LEADER = Error.NOT_LEADER_OR_FOLLOWER


def batch(producer: int, epoch: int, sequence: int) -> bytes:
    return record_batch.build([b"a"], 0, -1, 1, producer=(producer, epoch, sequence))


def precede(refused: RefusedBatches, producer: int, epoch: int, sequence: int) -> bool:
    return refused.precede(ORDERS, record_batch.parse(batch(producer, epoch, sequence)))


def test_only_later_batches_of_the_same_producer_epoch_and_partition_are_preceded() -> None:
    refused = RefusedBatches()
    for sequence in (3, 2, 4):
        refused.refused(ORDERS, batch(7, 1, sequence), NOT_LEADER)
    assert [precede(refused, 7, 1, sequence) for sequence in (1, 2, 3)] == [False, False, True]
    assert not precede(refused, 8, 1, 3)
    assert not precede(refused, 7, 0, 3)
    assert not precede(refused, 7, 2, 3)
    later = record_batch.parse(batch(7, 1, 3))
    assert not refused.precede(("orders", 1), later)
    refused.stored(ORDERS, later)
    assert not precede(refused, 7, 1, 3)


def test_a_newer_producer_epoch_replaces_what_was_refused_of_an_older_one() -> None:
    refused = RefusedBatches()
    refused.refused(ORDERS, batch(7, 1, 0), NOT_LEADER)
    refused.refused(ORDERS, batch(7, 2, 5), NOT_LEADER)
    refused.refused(ORDERS, batch(7, 1, 0), NOT_LEADER)
    assert [precede(refused, 7, 2, sequence) for sequence in (5, 6)] == [False, True]
    assert not precede(refused, 7, 1, 1)


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (batch(7, 0, 0), Error.MESSAGE_TOO_LARGE),
        (batch(7, 0, 0), Error.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (batch(-1, -1, -1), NOT_LEADER),
        (b"", NOT_LEADER),
    ],
)
def test_a_batch_that_no_client_sends_again_as_it_was_is_not_remembered(
    records: bytes, error: Error
) -> None:
    refused = RefusedBatches()
    refused.refused(ORDERS, records, error)
    assert not precede(refused, 7, 0, 1)
    assert not precede(refused, -1, -1, 0)


def test_the_oldest_are_forgotten_first() -> None:
    refused = RefusedBatches()
    for producer in range(MOST + 1):
        refused.refused(ORDERS, batch(producer, 0, 0), NOT_LEADER)
    assert [precede(refused, producer, 0, 1) for producer in (0, 1, MOST)] == [False, True, True]
