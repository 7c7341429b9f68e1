"""Which partition a producer's messages go to: the messages of one batch to one partition."""

from __future__ import annotations

import pytest
from tests.kafka.test_clients import Administered, clients_of

from fencepost import UsageError
from fencepost_kafka import ProducerOptions

PLACES = (("orders", 0), ("orders", 1), ("bills", 0))


def partitions(count: int, rate: float, linger_ms: int) -> list[tuple[str, int]]:
    options = ProducerOptions(partitions=PLACES, rate=rate, linger_ms=linger_ms)
    return [options.place(number) for number in range(count)]


@pytest.mark.parametrize("linger_ms", [0, 10, 20])
def test_each_message_goes_to_the_next_partition(linger_ms: int) -> None:
    assert partitions(4, 50, linger_ms) == [*PLACES, PLACES[0]]


@pytest.mark.parametrize("linger_ms", [21, 40])
def test_messages_within_a_linger_go_to_one_partition(linger_ms: int) -> None:
    first, second, third = PLACES
    assert partitions(7, 50, linger_ms) == [first, first, second, second, third, third, first]


@pytest.mark.parametrize("linger_ms", [-1, 10_001])
def test_a_linger_that_no_message_outlasts_is_refused(linger_ms: int) -> None:
    with pytest.raises(UsageError, match="linger_ms is 0 to 10000 milliseconds"):
        clients_of(Administered()).produce("orders", linger_ms=linger_ms)
