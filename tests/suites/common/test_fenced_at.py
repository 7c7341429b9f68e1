"""Which brokers were out of the cluster at an offset of the metadata log."""

from __future__ import annotations

import pytest
from msgspec import Struct

from fencepost.testing import HistoryBuilder
from fencepost_kafka import BrokerCommitted, BrokerDeleted
from fencepost_suites.common.fenced import FencedAt

ONE, TWO = "controller-1#1", "controller-2#1"


def registered(offset: int, fenced: bool) -> BrokerCommitted:
    return BrokerCommitted(
        offset=offset, broker_id=1, broker_epoch=1, fenced=fenced, incarnation="x"
    )


def deleted(offset: int) -> BrokerDeleted:
    return BrokerDeleted(offset=offset, broker_id=1)


@pytest.mark.parametrize("out", [registered(7, True), deleted(7)])
def test_a_broker_is_out_after_the_record_that_fences_or_deletes_it(out: Struct) -> None:
    h = HistoryBuilder()
    h.add(ONE, registered(5, False))
    first = h.add(ONE, out)
    h.add(TWO, out)
    h.add(ONE, registered(9, False))
    known = FencedAt()
    for event in h.events():
        known.take(event)
    assert [known.by(1, offset) for offset in (5, 7, 8, 9, 10)] == [
        *(None, None),
        *(first, first),
        None,
    ]


def test_of_a_broker_without_a_record_nothing_is_known() -> None:
    assert FencedAt().by(1, 5) is None
